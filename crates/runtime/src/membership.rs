//! Who takes part in a job, and since when: the words of the membership protocol.
//!
//! A *membership* is numbered by its epoch. Two pure state machines speak about it: [`coordinator::Coordinator`]
//! decides which membership comes next, [`member::Member`] decides what one worker does next. Both take events and
//! return actions; neither reads a clock, opens a socket or starts a thread, so that a seeded simulation can run
//! hundreds of histories with faults (`tests/it/membership.rs`).
//!
//! # The protocol in five sentences
//!
//! - *Planned change*: the coordinator sends `Prepare`; everyone connects to whom they lack in the background; every
//!   collective carries each member's prepared epoch, and the first boundary at which all members of the present epoch
//!   say the same newer number is where they switch. No worker waits.
//! - *Growing* takes two such changes: first the newcomer is a shadow, which receives state while the others compute
//!   and every result from then on; once it holds everything it becomes active.
//! - *Crash*: the coordinator sends `Recover`; all in-flight work is dropped, connections are made again, everyone says
//!   how far they are (`Ready`), those one update behind get the last result from one who still holds it, and `Start`
//!   goes on from the most advanced step.
//! - A step is committed when every active member has applied it; since members are never more than one update apart, a
//!   committed step lives on in every survivor.
//! - Without a coordinator the workers stop at once, keep their state, and wait for it to come back.
//!
//! A *step* is one batch; an *update*, between two boundaries, covers one or several ([`Membership::accumulation`]).

use std::ops::Range;

use bellwether_core::groups::Groups;
use bellwether_core::record::Boot;

use crate::noise::Noise;
use crate::slices::Slice;

pub mod coordinator;
mod description;
mod evaluation;
pub mod member;
mod mismatch;
mod phase;
mod position;
mod reason;
pub mod reporting;
pub mod work_queue;

pub use bellwether_core::record::{StepRecord, UnitRecord};
pub use description::{WorkloadDescription, any_class, different_parts};
pub use evaluation::EvaluationRecord;
pub use mismatch::{Mismatch, Verdict};
pub use phase::{Peer, Phase, Serve, ServerReport};
pub use position::{Activity, Position};
pub use reason::Reason;

/// Names a worker process for the whole life of a run; never reused, never 0.
pub type WorkerId = u64;

/// No network that is used for training is slower than this.
pub(crate) const FLOOR_BYTES_PER_S: f64 = 125_000.0;

/// An active member: a worker that computes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Active {
    /// Who.
    pub worker: WorkerId,
    /// Where its data plane listens, `host:port`.
    pub address: String,
    /// The virtual nodes it computes; never empty.
    pub nodes: Range<u32>,
}

/// A member that receives state and results and contributes nothing yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shadow {
    /// Who.
    pub worker: WorkerId,
    /// Where its data plane listens, `host:port`.
    pub address: String,
}

/// Who takes part from some boundary on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Membership {
    /// Number of this membership; later ones have larger numbers.
    pub epoch: u64,
    /// In rank order; their virtual nodes cover the job's without a gap.
    pub active: Vec<Active>,
    /// Newcomers that are receiving state.
    pub shadows: Vec<Shadow>,
    /// Members that were shadows in the membership before this one.
    pub promoted: Vec<WorkerId>,
    /// First boundary (number of applied steps) at which this may begin.
    pub from_step: u64,
    /// Boundary at which the members wait for the next membership.
    pub hold_at: Option<u64>,
    /// No verdict is awaited at this boundary or an earlier one.
    pub decided: u64,
    /// After the switch nothing is trained any more: checkpoint, report, leave.
    pub stop: bool,
    /// Steps that each update covers: its batch is as many times the job's. 0 means 1.
    pub accumulation: u32,
    /// Members of the one before that stand by from now on, and do not leave.
    pub paused: Vec<WorkerId>,
    /// All members are connected with all, because they share the optimizer's state.
    pub sharded: bool,
}

/// The host of an address.
pub(crate) fn host(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

/// These workers, those of each host behind the first of them.
fn by_host<'a>(workers: &[WorkerId], address: impl Fn(&WorkerId) -> &'a str) -> Vec<WorkerId> {
    let mut hosts: Vec<(&str, Vec<WorkerId>)> = Vec::new();
    for worker in workers {
        let host = host(address(worker));
        match hosts.iter_mut().find(|(known, _)| *known == host) {
            Some((_, workers)) => workers.push(*worker),
            None => hosts.push((host, vec![*worker])),
        }
    }
    hosts.into_iter().flat_map(|(_, workers)| workers).collect()
}

impl Membership {
    /// The rank of `worker` among the active members.
    pub fn rank(&self, worker: WorkerId) -> Option<usize> {
        self.active.iter().position(|m| m.worker == worker)
    }

    /// Whether `worker` is a shadow here.
    pub fn shadows(&self, worker: WorkerId) -> bool {
        self.shadows.iter().any(|m| m.worker == worker)
    }

    /// Whether `worker` takes part in any role.
    pub fn contains(&self, worker: WorkerId) -> bool {
        self.rank(worker).is_some() || self.shadows(worker)
    }

    /// Those whom `worker` must be connected to: members with whom it exchanges, its shadows or its servers.
    pub fn peers(&self, worker: WorkerId) -> Vec<(WorkerId, &str)> {
        let (groups, active) = (self.groups(), self.active.iter().enumerate());
        let shadows = self.shadows.iter().enumerate();
        if let Some(rank) = self.rank(worker) {
            let linked = active.filter(|(other, _)| groups.linked(rank, *other));
            let active = linked.map(|(_, m)| (m.worker, m.address.as_str()));
            let shadows = shadows.filter(|(shadow, _)| groups.serves(rank, *shadow));
            active.chain(shadows.map(|(_, m)| (m.worker, m.address.as_str()))).collect()
        } else if let Some(shadow) = self.shadows.iter().position(|m| m.worker == worker) {
            let serving = active.filter(|(rank, _)| groups.serves(*rank, shadow));
            serving.map(|(_, m)| (m.worker, m.address.as_str())).collect()
        } else {
            vec![]
        }
    }

    /// The peers to whom a *planned* change makes a new connection; the others stay connected from the membership
    /// before. A shadow's connections are always new, so that its state stream starts from the beginning. Where members
    /// exchange in groups all are new: it is not known yet which membership comes before, and groups shift.
    pub fn new_peers(&self, worker: WorkerId) -> Vec<(WorkerId, &str)> {
        let promoted = |id: WorkerId| self.promoted.contains(&id);
        let mut peers = self.peers(worker);
        if !self.shadows(worker) && self.groups().is_one() {
            peers.retain(|(peer, _)| self.shadows(*peer) || (promoted(worker) && promoted(*peer)));
        }
        peers
    }

    /// How the active members exchange.
    pub(crate) fn groups(&self) -> Groups {
        if self.sharded && !self.active.is_empty() {
            return Groups::one(self.active.len());
        }
        let nodes: Vec<Range<u32>> = self.active.iter().map(|m| m.nodes.clone()).collect();
        let hosts: Vec<&str> = self.active.iter().map(|m| host(&m.address)).collect();
        Groups::choose_on_hosts(nodes.last().map_or(0, |last| last.end), &nodes, &hosts)
    }

    /// Whether the same workers take part in the same roles. What was decided meanwhile they hear without another
    /// membership.
    pub fn same_as(&self, other: &Membership) -> bool {
        let Membership {
            epoch: _,
            active,
            shadows,
            promoted: _,
            from_step: _,
            hold_at,
            decided: _,
            stop,
            accumulation,
            paused,
            sharded: _,
        } = other;
        (active, shadows, paused) == (&self.active, &self.shadows, &self.paused)
            && (*hold_at, *stop, *accumulation) == (self.hold_at, self.stop, self.accumulation)
    }
}

/// What a member tells the others in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offer {
    /// The newest membership for which it is ready.
    pub epoch: u64,
    /// The run goes on after every boundary up to this one, as it heard.
    pub decided: u64,
    /// The boundary at which all are to write their slices of a checkpoint, as the first member says; 0 for none, or
    /// [`STILL_WRITES`](Offer::STILL_WRITES).
    pub checkpoint: u64,
}

impl Offer {
    /// Slices of an earlier checkpoint are on their way: none is written at this boundary.
    pub const STILL_WRITES: u64 = u64::MAX;
}

/// Where a worker without state gets it from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// Computed from the seed.
    Fresh,
    /// The coordinator's checkpoint after this many steps.
    Checkpoint(u64),
}

/// A worker's part of a checkpoint, which it has written.
#[derive(Debug, Clone, PartialEq)]
pub struct SlicesWritten {
    /// The membership by which the state was cut.
    pub epoch: u64,
    /// Applied steps.
    pub step: u64,
    /// Slices of all workers.
    pub count: u64,
    /// Those that are written.
    pub slices: Vec<Slice>,
    /// How noisy the gradient was.
    pub noise: Noise,
    /// How long the worker copied, and did nothing else.
    pub stall_s: f64,
}

/// From the coordinator to one worker.
#[derive(Debug, Clone, PartialEq)]
pub enum ToWorker {
    /// Connect to the new members and switch when all have.
    Prepare(Membership),
    /// Drop what is in flight and form this membership again.
    Recover {
        /// The membership to form; workers outside it go back to standby.
        membership: Membership,
        /// Given when no worker holds any state.
        load: Option<Load>,
        /// Workers outside the membership keep what they hold: it may be needed yet.
        keep: bool,
    },
    /// All members of the recovery are ready.
    Start {
        /// The recovery's epoch.
        epoch: u64,
        /// The step to go on from.
        step: u64,
        /// Members one step behind.
        behind: Vec<WorkerId>,
        /// Who still holds the last result; meaningless when no member is behind.
        source: WorkerId,
        /// Steps that each update covers from now on, whatever the membership said: an update that is done again must
        /// cover what it covered before. 0 means 1.
        accumulation: u32,
    },
    /// Train through servers or by gossip until told otherwise; again with other addresses when one changed.
    Phase(Phase),
    /// Compute these units of the phase, in this order.
    Grant {
        /// The phase.
        epoch: u64,
        /// Which units.
        units: Vec<u64>,
    },
    /// Evaluate the whole held-out set with what the servers hold now.
    EvaluateAlone {
        /// The phase.
        epoch: u64,
        /// Complete steps.
        step: u64,
    },
    /// To a server: hold this shard.
    Serve(Serve),
    /// To a server: send the shard to the coordinator's data plane.
    HandOver {
        /// The phase.
        epoch: u64,
        /// Complete steps.
        step: u64,
    },
    /// Send the state to the coordinator, at the next boundary; or once more, after the last step, if it is not written
    /// yet.
    SendCheckpoint {
        /// The membership in force.
        epoch: u64,
        /// Committed steps.
        step: u64,
    },
    /// A verdict: the run goes on after every boundary up to this step.
    GoOn {
        /// This one.
        step: u64,
    },
    /// Say at once where you stand.
    Inquire {
        /// Write to the log what all threads are doing.
        explain: bool,
    },
    /// The worker is not needed any more.
    Bye {
        /// Why.
        reason: String,
        /// Whether it was never let in.
        refused: bool,
    },
}

/// What a planned switch cost one worker.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SwitchRecord {
    /// The epoch that began.
    pub epoch: u64,
    /// The boundary.
    pub step: u64,
    /// Seconds this worker spent at the boundary for the sake of the switch.
    pub stall_s: f64,
}

/// A worker's account of its progress.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    /// The epoch it is in.
    pub epoch: u64,
    /// Steps it has applied.
    pub step: u64,
    /// The newest applied steps, oldest first.
    pub steps: Vec<StepRecord>,
    /// Evaluations since the last report.
    pub evaluations: Vec<EvaluationRecord>,
    /// Switches since the last report.
    pub switches: Vec<SwitchRecord>,
    /// Resident memory of the process.
    pub resident_bytes: u64,
}

/// From one worker to the coordinator, after its session was opened.
#[derive(Debug, Clone, PartialEq)]
pub enum FromWorker {
    /// What the worker's start took, as far as it knows; said just before [`Warmed`](FromWorker::Warmed).
    Booted(Boot),
    /// The job was read and one batch computed.
    Warmed(WorkloadDescription),
    /// The link to the coordinator's data plane was measured.
    LinkMeasured {
        /// Over a socket, in one direction, while as much goes the other way.
        network: bellwether_core::profile::Network,
        /// The same through memory that the two share; absent between machines.
        shared_memory: Option<bellwether_core::profile::Network>,
    },
    /// Still there.
    Heartbeat,
    /// Still there, and here is where the computing thread stands.
    At(Position),
    /// The recovery's connections stand, and the worker holds the state after `step` steps.
    Ready {
        /// The recovery's epoch.
        epoch: u64,
        /// Applied steps.
        step: u64,
        /// Steps of the last result that it applied and can hand on; 0 when there is none.
        last: u64,
        /// The last membership in which it trained, and the steps that its updates covered; 0 when there is none.
        trained: (u64, u32),
    },
    /// No member has the optimizer slots of this virtual shard: the run cannot go on from what the members hold.
    Lacking {
        /// The membership whose members said so.
        epoch: u64,
        /// The first such shard.
        shard: u32,
    },
    /// A collective or connection failed; the worker waits for a recovery.
    Lost {
        /// The epoch it was in or was forming.
        epoch: u64,
        /// Applied steps.
        step: u64,
        /// Who is to blame, if anyone.
        peer: Option<WorkerId>,
        /// What happened.
        why: String,
    },
    /// Progress.
    Report(Report),
    /// A shadow holds the whole state.
    CaughtUp {
        /// The epoch it is a shadow in.
        epoch: u64,
        /// Applied steps.
        step: u64,
    },
    /// A newcomer does not take what it is sent: this member sends it nothing any more.
    ShadowLost {
        /// The epoch in which it is a shadow.
        epoch: u64,
        /// Who.
        shadow: WorkerId,
    },
    /// The worker was asked to go and would like to leave at a boundary.
    Leave {
        /// Whether another is to take its place.
        replace: bool,
    },
    /// The worker has left.
    Left {
        /// The epoch that began without it.
        epoch: u64,
        /// The boundary.
        step: u64,
    },
    /// This worker cannot go on.
    Failed {
        /// Why.
        what: String,
    },
    /// The user's own code failed, and this worker goes: it would fail so on any other.
    UserFailed {
        /// What it says, without the place in the run.
        what: String,
        /// The step that was being computed.
        step: u64,
        /// The virtual node that was being computed; 0 where none was.
        node: u32,
    },
    /// The loss of `step` is not finite; every worker sees the same.
    NotFinite {
        /// The step that was not committed.
        step: u64,
        /// What was not finite.
        what: String,
    },
    /// Two workers computed a virtual node differently; every worker sees the same.
    Mismatched(Mismatch),
    /// The state after `step` did not reach the coordinator, which may not know that it was to come.
    CheckpointFailed {
        /// Applied steps.
        step: u64,
        /// Why.
        why: String,
    },
    /// This worker's slices of a checkpoint are written.
    SlicesWritten(SlicesWritten),
    /// The checkpoint that was to be loaded is not what was written.
    CheckpointDamaged {
        /// Steps in it.
        step: u64,
        /// How it shows.
        why: String,
    },
    /// Units of a phase that are done.
    Units {
        /// The phase.
        epoch: u64,
        /// Which, in the order in which they were done.
        done: Vec<UnitRecord>,
        /// Units that the worker would like to hold.
        want: u32,
    },
    /// The connection to a server broke; the worker waits for another address.
    ServerLost {
        /// The phase.
        epoch: u64,
        /// Whose shard.
        shard: u32,
        /// What happened.
        why: String,
    },
    /// From a server: it holds its shard and answers.
    Serving {
        /// The phase.
        epoch: u64,
    },
    /// From a server: its account.
    ServerReport(ServerReport),
    /// The last step is done and the state has been handed over.
    Finished {
        /// Applied steps.
        step: u64,
        /// BLAKE3 over parameters, optimizer and model state.
        digest: [u8; 32],
    },
}
