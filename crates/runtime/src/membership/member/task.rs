//! What a worker is told by its half of the protocol, and the rules that this follows.

use bellwether_core::job::Goodput;

#[cfg(doc)]
use super::Member;
use crate::membership::{FromWorker, Load, Membership, WorkerId};
use crate::rounds::Rounds;

/// The parts of the job that decide what happens at a boundary.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rules {
    /// Steps of the whole run.
    pub total_steps: u64,
    /// Steps between evaluations; 0 evaluates at the end only.
    pub evaluate_every: u64,
    /// Steps between checkpoints; 0 writes at the end only.
    pub checkpoint_every: u64,
    /// Whether all members send or write their part of a checkpoint, at boundaries on which they agree in a round.
    pub slices: bool,
    /// Whether the members share the optimizer's state, and after a recovery agree on who holds what.
    pub sharded: bool,
    /// Steps between boundaries at which the members wait for a verdict; 0 never waits.
    pub verdict_every: u64,
    /// Where the job fixes the batch in advance: steps that an update covers, by the step from which on.
    pub batches: Option<Goodput>,
    /// Where virtual nodes train by themselves: steps of a round, after which all wait for all.
    pub rounds: Option<Rounds>,
}

/// What the worker's main thread does next. Each names the step of the boundary it stands at.
#[derive(Debug, Clone, PartialEq)]
pub enum Task {
    /// Nothing until a message arrives or connections are prepared. A member reports first what it has not
    /// reported yet, its switch above all: the coordinator may be waiting to hear of it.
    Wait,
    /// Drop all connections, load state if told to, connect to all peers; then [`Member::formed`].
    Form {
        /// The membership to form.
        membership: Membership,
        /// Where the state comes from; `None` keeps the one held.
        load: Option<Load>,
    },
    /// Wait for the sources' first chunks; then [`Member::shadow_began`]. The wait ends, too, when
    /// [`Member::prepared`] brings a later plan to follow: ask again then.
    BeginShadow,
    /// Hand the last result from `source` to those `behind`, if there are any; where the members share the optimizer's
    /// state, agree on who holds what; then [`Member::caught_up_with_result`].
    CatchUp {
        /// Who sends.
        source: WorkerId,
        /// Who receive.
        behind: Vec<WorkerId>,
        /// The boundary before the result.
        from: u64,
        /// The boundary after it.
        to: u64,
    },
    /// Evaluate the held-out set together; then [`Member::evaluated`].
    Evaluate,
    /// Begin to send the state to the coordinator, or to write its slices, once more perhaps; then
    /// [`Member::checkpointed`].
    Checkpoint,
    /// Adopt the prepared connections of this membership; then [`Member::switched`].
    Switch(Membership),
    /// Exchange headers only, to agree on the next membership, or that a verdict lets all go on; then
    /// [`Member::round_done`].
    Hold,
    /// Compute, reduce, apply; then [`Member::round_done`].
    Train,
    /// Send the last checkpoint (rank 0, unless [`Member::has_diverged`]; slices all members) and the digest; then
    /// [`Member::finished`].
    Finish,
    /// Compute this unit, and hand its gradient to the servers; then [`Member::unit_done`].
    Unit(u64),
    /// Evaluate the whole held-out set with what the servers hold; then [`Member::evaluated_alone`].
    EvaluateAlone(u64),
    /// Send the whole state to the coordinator (gossip); then [`Member::handed_over`].
    HandOver(u64),
    /// Ask for units, and wait.
    Idle,
    /// Say goodbye and exit: this worker is not part of the membership that began.
    Leave,
    /// Exit: the coordinator said so.
    Exit {
        /// Why.
        reason: String,
        /// Whether the worker was refused.
        refused: bool,
    },
}

/// What the shell must do at once, whatever the main thread is doing.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Make a running collective or wait return.
    Interrupt,
    /// Connect to the members whom this worker lacks, in the background; then [`Member::prepared`].
    Prepare(Membership),
    /// Tell the coordinator.
    Send(FromWorker),
}
