//! What one worker does next: the worker's half of the membership protocol, as a pure state machine.
//!
//! The shell ([`crate::worker`]) asks [`Member::next_task`], carries the task out, and tells the result;
//! messages that arrive meanwhile are handed over at the next safe point, or interrupt a collective.

use super::{FromWorker, Load, Membership, ToWorker, WorkerId};

/// The parts of the job that decide what happens at a boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Steps of the whole run.
    pub total_steps: u64,
    /// Steps between evaluations; 0 evaluates at the end only.
    pub evaluate_every: u64,
    /// Steps between checkpoints; 0 writes at the end only.
    pub checkpoint_every: u64,
}

impl Rules {
    fn evaluates_at(self, step: u64) -> bool {
        step == self.total_steps || is_multiple(step, self.evaluate_every)
    }

    fn checkpoints_at(self, step: u64) -> bool {
        step < self.total_steps && is_multiple(step, self.checkpoint_every)
    }
}

fn is_multiple(step: u64, every: u64) -> bool {
    every > 0 && step > 0 && step.is_multiple_of(every)
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
    /// Hand the last result from `source` to those `behind`; then [`Member::caught_up_with_result`].
    CatchUp {
        /// Who sends.
        source: WorkerId,
        /// Who receive.
        behind: Vec<WorkerId>,
    },
    /// Evaluate the held-out set together; then [`Member::evaluated`].
    Evaluate,
    /// Begin to send the state to the coordinator; then [`Member::checkpointed`].
    Checkpoint,
    /// Adopt the prepared connections of this membership; then [`Member::switched`].
    Switch(Membership),
    /// Exchange headers only, to agree on the next membership; then [`Member::round_done`].
    Hold,
    /// Compute, reduce, apply; then [`Member::round_done`].
    Train,
    /// Send the last checkpoint (rank 0) and the digest; then [`Member::finished`].
    Finish,
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

#[derive(Debug, Clone, PartialEq)]
enum Stage {
    /// Warm, without state, outside the membership.
    Standby,
    /// Told to form a recovery.
    Forming(Option<Load>),
    /// Formed; waiting for `Start`.
    Ready,
    /// In step with the others (as active member or as shadow).
    Running,
    /// Switched into a shadow membership, first step unknown yet.
    Joining,
    /// A collective failed or the coordinator is gone; state kept.
    Broken,
    /// Everything is handed over.
    Finished,
    /// Left at a boundary.
    Gone,
    /// Dismissed.
    Dismissed { reason: String, refused: bool },
}

/// One worker's view of the protocol.
#[derive(Debug, Clone)]
pub struct Member {
    id: WorkerId,
    rules: Rules,
    stage: Stage,
    /// The membership the worker is in or is forming.
    membership: Membership,
    /// Later memberships whose connections stand, oldest first.
    prepared: Vec<Membership>,
    /// Applied steps.
    step: u64,
    /// Whether the whole state after `step` steps is here.
    has_state: bool,
    /// The epoch all members agreed on in the last round.
    agreed: Option<u64>,
    /// What this worker offered in the round under way.
    offered: u64,
    /// Highest epoch seen in a round that did not agree: hold again only with at least this.
    hold_floor: u64,
    catch_up: Option<(WorkerId, Vec<WorkerId>)>,
    evaluated_at: Option<u64>,
    checkpointed_at: Option<u64>,
    /// Nothing more is trained: the loss was not finite.
    halted: bool,
    connected: bool,
}

impl Member {
    /// A warm worker without state.
    pub fn new(id: WorkerId, rules: Rules) -> Self {
        Member {
            id,
            rules,
            stage: Stage::Standby,
            membership: Membership::default(),
            prepared: Vec::new(),
            step: 0,
            has_state: false,
            agreed: None,
            offered: 0,
            hold_floor: 0,
            catch_up: None,
            evaluated_at: None,
            checkpointed_at: None,
            halted: false,
            connected: true,
        }
    }

    /// Applied steps.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// This worker's id.
    pub fn id(&self) -> WorkerId {
        self.id
    }

    /// The membership the worker is in or is forming.
    pub fn membership(&self) -> &Membership {
        &self.membership
    }

    /// Epoch and applied steps of the state held, for a coordinator that came back.
    pub fn held(&self) -> Option<(u64, u64)> {
        self.has_state.then_some((self.membership.epoch, self.step))
    }

    /// Whether the worker is an active member at present.
    pub fn is_active(&self) -> bool {
        self.stage == Stage::Running && self.membership.rank(self.id).is_some()
    }

    /// Whether the worker is a shadow at present.
    pub fn is_shadow(&self) -> bool {
        matches!(self.stage, Stage::Running | Stage::Joining) && self.membership.shadows(self.id)
    }

    /// The epoch to offer in the header of the round under way, at the boundary that follows it.
    pub fn offer(&mut self, round: &Task) -> u64 {
        let boundary = if *round == Task::Train { self.step + 1 } else { self.step };
        self.offered = self
            .prepared
            .iter()
            .rev()
            .find(|m| m.epoch > self.membership.epoch)
            .filter(|m| m.from_step <= boundary)
            .map_or(self.membership.epoch, |m| m.epoch);
        self.offered
    }

    /// What to do now.
    pub fn next_task(&self) -> Task {
        match &self.stage {
            Stage::Dismissed { reason, refused } => Task::Exit { reason: reason.clone(), refused: *refused },
            Stage::Gone => Task::Leave,
            _ if !self.connected => Task::Wait,
            Stage::Forming(load) => Task::Form { membership: self.membership.clone(), load: *load },
            Stage::Running => self.boundary(),
            // A newcomer follows the latest plan; the members may still be at an earlier one. Who is asked
            // in as a newcomer has been given up as a member.
            Stage::Standby | Stage::Joining | Stage::Broken => match self.prepared.last() {
                Some(next) if next.shadows(self.id) => Task::Switch(next.clone()),
                _ if self.stage == Stage::Joining => Task::BeginShadow,
                _ => Task::Wait,
            },
            Stage::Ready | Stage::Finished => Task::Wait,
        }
    }

    fn boundary(&self) -> Task {
        if let Some((source, behind)) = &self.catch_up {
            return Task::CatchUp { source: *source, behind: behind.clone() };
        }
        if self.halted || self.membership.stop {
            return self.end();
        }
        if self.rules.evaluates_at(self.step) && self.evaluated_at != Some(self.step) {
            return Task::Evaluate;
        }
        let uploads = self.membership.rank(self.id) == Some(0) && self.checkpointed_at != Some(self.step);
        if uploads && self.rules.checkpoints_at(self.step) {
            return Task::Checkpoint;
        }
        if self.step >= self.rules.total_steps {
            return self.end();
        }
        if let Some(epoch) = self.agreed {
            return match self.prepared.iter().find(|m| m.epoch == epoch) {
                Some(next) => Task::Switch(next.clone()),
                // A shadow need not have prepared what the members agreed on: it waits to be asked anew.
                None => match self.prepared.last() {
                    Some(next) if next.shadows(self.id) && next.epoch > epoch => Task::Switch(next.clone()),
                    _ => Task::Wait,
                },
            };
        }
        if self.membership.hold_at == Some(self.step) {
            let floor = self.hold_floor.max(self.membership.epoch + 1);
            let offers = self.prepared.iter().any(|m| m.epoch >= floor && m.from_step <= self.step);
            // A shadow that still receives chunks must be free to say when it has them all.
            let ready = if self.is_shadow() { self.has_state } else { offers };
            return if ready { Task::Hold } else { Task::Wait };
        }
        Task::Train
    }

    /// A shadow has nothing to hand over at the end.
    fn end(&self) -> Task {
        if self.is_shadow() { Task::Wait } else { Task::Finish }
    }

    /// A message from the coordinator.
    pub fn message(&mut self, message: ToWorker) -> Vec<Effect> {
        match message {
            ToWorker::Prepare(next) => {
                if next.epoch > self.membership.epoch {
                    vec![Effect::Prepare(next)]
                } else {
                    vec![]
                }
            }
            // Whoever has left is on its way out.
            ToWorker::Recover { .. } if matches!(self.stage, Stage::Gone | Stage::Dismissed { .. }) => vec![],
            ToWorker::Recover { membership, load } => {
                self.prepared.clear();
                self.agreed = None;
                if membership.rank(self.id).is_none() {
                    // What a worker outside the membership holds grows stale.
                    self.has_state = false;
                    self.stage = Stage::Standby;
                } else {
                    // Loading overwrites what is held.
                    self.has_state &= load.is_none();
                    self.stage = Stage::Forming(load);
                }
                self.membership = membership;
                vec![Effect::Interrupt]
            }
            ToWorker::Start { epoch, step, behind, source } => {
                if self.stage == Stage::Ready && self.membership.epoch == epoch {
                    debug_assert!(self.step <= step && step <= self.step + 1);
                    let concerned = self.id == source || behind.contains(&self.id);
                    self.catch_up = (concerned && !behind.is_empty()).then_some((source, behind));
                    self.stage = Stage::Running;
                    // What was evaluated or sent before the crash may be lost: do it again. So is a step that
                    // was not finite, because not everyone may have seen it.
                    self.evaluated_at = None;
                    self.checkpointed_at = None;
                    self.halted = false;
                    self.hold_floor = 0;
                }
                vec![]
            }
            ToWorker::Bye { reason, refused } => {
                self.stage = Stage::Dismissed { reason, refused };
                vec![Effect::Interrupt]
            }
        }
    }

    /// The session with the coordinator broke: stop, keep the state, wait.
    pub fn disconnected(&mut self) -> Vec<Effect> {
        self.connected = false;
        self.prepared.clear();
        self.agreed = None;
        if !matches!(self.stage, Stage::Gone | Stage::Dismissed { .. }) {
            self.stage = if self.has_state { Stage::Broken } else { Stage::Standby };
        }
        vec![Effect::Interrupt]
    }

    /// A new session is open.
    pub fn reconnected(&mut self) {
        self.connected = true;
    }

    /// The background connections of a planned membership stand, or could not be made.
    pub fn prepared(
        &mut self,
        membership: Membership,
        result: Result<(), (WorkerId, String)>,
    ) -> Vec<Effect> {
        match result {
            Ok(()) => {
                if membership.epoch > self.membership.epoch && self.connected {
                    self.prepared.push(membership);
                    self.prepared.sort_by_key(|m| m.epoch);
                }
                vec![]
            }
            Err((peer, why)) => vec![Effect::Send(FromWorker::Lost {
                epoch: membership.epoch,
                step: self.step,
                peer: Some(peer),
                why,
            })],
        }
    }

    /// [`Task::Form`] was carried out; `loaded` is the step of a newly loaded state.
    pub fn formed(
        &mut self,
        epoch: u64,
        loaded: Option<u64>,
        result: Result<(), (Option<WorkerId>, String)>,
    ) -> Vec<Effect> {
        if let Some(step) = loaded {
            self.step = step;
            self.has_state = true;
            self.halted = false;
        }
        if !matches!(self.stage, Stage::Forming(_)) || self.membership.epoch != epoch {
            return vec![];
        }
        match result {
            Ok(()) if self.has_state => {
                self.stage = Stage::Ready;
                vec![Effect::Send(FromWorker::Ready { epoch, step: self.step })]
            }
            Ok(()) => self.broken(Some(self.id), "it holds no state".into()),
            Err((peer, why)) => self.broken(peer, why),
        }
    }

    /// [`Task::Switch`] was carried out. Without effect if a recovery or the end came in between.
    pub fn switched(&mut self, membership: Membership) {
        let newcomer = membership.shadows(self.id);
        let possible = match self.stage {
            Stage::Running => true,
            Stage::Standby | Stage::Joining | Stage::Broken => newcomer,
            _ => false,
        };
        if !possible || membership.epoch <= self.membership.epoch {
            return;
        }
        self.prepared.retain(|m| m.epoch > membership.epoch);
        self.agreed = None;
        self.hold_floor = 0;
        if newcomer {
            self.stage = Stage::Joining;
            self.has_state = false;
            self.catch_up = None;
            self.halted = false;
        } else if !membership.contains(self.id) {
            self.stage = Stage::Gone;
        }
        self.membership = membership;
    }

    /// The sources told the shadow at which boundary they began.
    pub fn shadow_began(&mut self, step: u64) {
        if self.stage == Stage::Joining {
            self.stage = Stage::Running;
            self.step = step;
            // The others evaluated before they switched.
            self.evaluated_at = Some(step);
        }
    }

    /// The shadow holds every chunk.
    pub fn shadow_complete(&mut self) -> Vec<Effect> {
        if !self.is_shadow() || self.has_state {
            return vec![];
        }
        self.has_state = true;
        vec![Effect::Send(FromWorker::CaughtUp { epoch: self.membership.epoch, step: self.step })]
    }

    /// [`Task::CatchUp`] was carried out: those behind have applied the last result.
    pub fn caught_up_with_result(&mut self) {
        if let Some((_, behind)) = self.catch_up.take()
            && behind.contains(&self.id)
        {
            self.step += 1;
        }
    }

    /// [`Task::Evaluate`] was carried out.
    pub fn evaluated(&mut self) {
        self.evaluated_at = Some(self.step);
    }

    /// [`Task::Checkpoint`] was begun.
    pub fn checkpointed(&mut self) {
        self.checkpointed_at = Some(self.step);
    }

    /// [`Task::Finish`] was carried out.
    pub fn finished(&mut self, digest: [u8; 32]) -> Vec<Effect> {
        if self.stage != Stage::Running {
            return vec![];
        }
        self.stage = Stage::Finished;
        vec![Effect::Send(FromWorker::Finished { step: self.step, digest })]
    }

    /// A training or hold round ended; `offers` are the epochs that the active members offered.
    pub fn round_done(&mut self, round: &Task, offers: &[u64]) {
        if *round == Task::Train {
            self.step += 1;
        }
        let highest = offers.iter().copied().max().unwrap_or(0);
        let same = offers.iter().all(|o| *o == highest);
        let agreed = same && highest > self.membership.epoch && self.stage == Stage::Running;
        self.agreed = agreed.then_some(highest);
        if *round == Task::Hold && self.agreed.is_none() {
            self.hold_floor = highest;
        }
    }

    /// The reduced loss or gradient of the step is not finite: nothing was applied.
    pub fn not_finite(&mut self, what: String) -> Vec<Effect> {
        self.halted = true;
        vec![Effect::Send(FromWorker::NotFinite { step: self.step, what })]
    }

    /// A task failed for want of a peer, or was interrupted. Stale failures are ignored.
    pub fn failed(&mut self, epoch: u64, peer: Option<WorkerId>, why: String) -> Vec<Effect> {
        if self.membership.epoch != epoch || !matches!(self.stage, Stage::Running | Stage::Joining) {
            return vec![];
        }
        self.broken(peer, why)
    }

    fn broken(&mut self, peer: Option<WorkerId>, why: String) -> Vec<Effect> {
        let lost = FromWorker::Lost { epoch: self.membership.epoch, step: self.step, peer, why };
        // A shadow that holds everything may be a member by now, only it does not know it yet.
        self.stage = if self.has_state { Stage::Broken } else { Stage::Standby };
        self.prepared.clear();
        self.agreed = None;
        if self.connected { vec![Effect::Send(lost)] } else { vec![] }
    }
}
