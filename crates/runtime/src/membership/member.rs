//! What one worker does next: the worker's half of the membership protocol, as a pure state machine.
//!
//! The shell ([`crate::worker`]) asks [`Member::next_task`], carries the task out, and tells the result;
//! messages that arrive meanwhile are handed over at the next safe point, or interrupt a collective.

use super::{FromWorker, Load, Membership, Mismatch, Offer, ToWorker, Verdict, WorkerId};
use crate::rounds::Rounds;

mod asynchronous;
mod periodic;
mod recovery;
mod task;
mod verdicts;

use asynchronous::Asynchronous;
pub use task::{Effect, Rules, Task};
use verdicts::Verdicts;

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
    /// Computes units, one by one.
    Asynchronous,
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
    /// The last recovery that this worker was told of: what was planned before it is void.
    overtaken: u64,
    /// Later memberships whose connections stand, oldest first.
    prepared: Vec<Membership>,
    /// Applied steps.
    step: u64,
    /// Steps of the update under way.
    update: u64,
    /// Steps of the last result applied to the state held; 0 when the state came as it is.
    last: u64,
    /// The last membership in which the state was trained, and the steps that its updates covered.
    trained: (u64, u32),
    /// The membership for which the state was loaded, if it was.
    loaded: u64,
    /// Whether the whole state after `step` steps is here.
    has_state: bool,
    /// The epoch all members agreed on in the last round.
    agreed: Option<u64>,
    /// What this worker offered in the round under way.
    offered: u64,
    /// Highest epoch seen in a round that did not agree: hold again only with at least this.
    hold_floor: u64,
    verdicts: Verdicts,
    catch_up: Option<Task>,
    evaluated_at: Option<u64>,
    checkpointed_at: Option<u64>,
    /// The boundary at which all members write their slices, as they agreed.
    slices_at: Option<u64>,
    /// Whether slices of an earlier checkpoint are still on their way.
    uploading: bool,
    /// The phase that is trained without a membership.
    asynchronous: Asynchronous,
    /// Nothing more is trained: the loss was not finite.
    halted: bool,
    /// It was because a loss was not finite.
    diverged: bool,
    /// The coordinator asked for the state after the step, at the next boundary or once more.
    send_again: bool,
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
            overtaken: 0,
            prepared: Vec::new(),
            step: 0,
            update: 1,
            last: 0,
            trained: (0, 0),
            loaded: 0,
            has_state: false,
            agreed: None,
            offered: 0,
            hold_floor: 0,
            verdicts: Verdicts::default(),
            catch_up: None,
            evaluated_at: None,
            checkpointed_at: None,
            slices_at: None,
            uploading: false,
            asynchronous: Asynchronous::default(),
            halted: false,
            diverged: false,
            send_again: false,
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

    /// The membership in which the state held was trained, or else loaded, and its applied steps: for a coordinator
    /// that came back. Memberships that were formed since and never began have changed nothing.
    pub fn held(&self) -> Option<(u64, u64)> {
        let epoch = if self.trained.0 > 0 { self.trained.0 } else { self.loaded };
        self.has_state.then_some((epoch, self.step))
    }

    /// Whether the worker is an active member at present.
    pub fn is_active(&self) -> bool {
        self.stage == Stage::Running && self.membership.rank(self.id).is_some()
    }

    /// Whether the worker is a shadow at present.
    pub fn is_shadow(&self) -> bool {
        matches!(self.stage, Stage::Running | Stage::Joining) && self.membership.shadows(self.id)
    }

    /// What to offer in the header of the round under way, at the boundary that follows it.
    pub fn offer(&mut self, round: &Task) -> Offer {
        self.update = if *round == Task::Train { self.next_update() } else { 0 };
        let boundary = self.step.saturating_add(self.update);
        self.offered = self
            .prepared
            .iter()
            .rev()
            .find(|m| m.epoch > self.membership.epoch)
            .filter(|m| m.from_step <= boundary)
            .map_or(self.membership.epoch, |m| m.epoch);
        let checkpoint = self.proposed_checkpoint(boundary);
        Offer { epoch: self.offered, decided: self.verdicts.heard(), checkpoint }
    }

    /// Steps that the update of the round covers whose epoch was offered last.
    pub fn update(&self) -> u64 {
        self.update
    }

    /// Steps of the next update: what all members know decides it.
    fn next_update(&self) -> u64 {
        let fixed = self.rules.batches.as_ref().and_then(|batches| batches.scheduled(self.step));
        let steps = u64::from(fixed.unwrap_or(self.membership.accumulation).max(1));
        let steps =
            self.rules.rounds.as_ref().and_then(|rounds| rounds.local_steps(self.step)).unwrap_or(steps);
        steps.min(self.rules.total_steps.saturating_sub(self.step)).max(1)
    }

    /// Most steps that the update before this boundary may have covered.
    fn reach(&self) -> u64 {
        let fixed =
            self.rules.batches.iter().flat_map(|batches| &batches.schedule).map(|(_, factor)| *factor);
        let most = fixed.max().unwrap_or(self.membership.accumulation).max(1);
        u64::from(most.max(self.rules.rounds.as_ref().map_or(1, Rounds::longest)))
    }

    /// What to do now.
    pub fn next_task(&self) -> Task {
        match &self.stage {
            Stage::Dismissed { reason, refused } => Task::Exit { reason: reason.clone(), refused: *refused },
            Stage::Gone => Task::Leave,
            _ if !self.connected => Task::Wait,
            Stage::Forming(load) => Task::Form { membership: self.membership.clone(), load: *load },
            Stage::Running => self.boundary(),
            Stage::Asynchronous => self.asynchronous.next_task(),
            // A newcomer follows the latest plan; the members may still be at an earlier one. A worker that is asked in
            // as a newcomer has been given up as a member.
            Stage::Standby | Stage::Joining | Stage::Broken => match self.prepared.last() {
                Some(next) if next.shadows(self.id) => Task::Switch(next.clone()),
                _ if self.stage == Stage::Joining => Task::BeginShadow,
                _ => Task::Wait,
            },
            Stage::Finished if self.send_again => Task::Checkpoint,
            Stage::Ready | Stage::Finished => Task::Wait,
        }
    }

    fn boundary(&self) -> Task {
        if let Some(task) = &self.catch_up {
            return task.clone();
        }
        if self.halted || self.membership.stop {
            return self.end();
        }
        let over = self.step >= self.rules.total_steps;
        let last = over && self.evaluated_at != Some(self.step);
        if last || self.is_due(self.rules.evaluate_every, self.evaluated_at) {
            return Task::Evaluate;
        }
        if !over && self.is_checkpoint_due() {
            return Task::Checkpoint;
        }
        if over {
            return self.end();
        }
        if let Some(epoch) = self.agreed {
            return match self.prepared.iter().find(|m| m.epoch == epoch) {
                Some(next) => Task::Switch(next.clone()),
                // A shadow need not have prepared what the members agreed on: it waits to be asked again.
                None => match self.prepared.last() {
                    Some(next) if next.shadows(self.id) && next.epoch > epoch => Task::Switch(next.clone()),
                    _ => Task::Wait,
                },
            };
        }
        if self.holds() {
            return if self.may_confer() { Task::Hold } else { Task::Wait };
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
                if self.is_news(&next) {
                    vec![Effect::Prepare(next)]
                } else {
                    vec![]
                }
            }
            // A worker that has left is on its way out.
            ToWorker::Recover { .. } if matches!(self.stage, Stage::Gone | Stage::Dismissed { .. }) => vec![],
            ToWorker::Recover { membership, load, keep } => {
                self.recover(membership, load, keep);
                vec![Effect::Interrupt]
            }
            ToWorker::Start { epoch, step, behind, source, accumulation } => {
                if self.stage == Stage::Ready && self.membership.epoch == epoch {
                    if step < self.step {
                        // No worker goes back: a coordinator that knows no more than this is asked for another
                        // membership.
                        let why = format!("it was told to go on from step {step} and holds {}", self.step);
                        return self.broken(None, why);
                    }
                    let lacks = behind.contains(&self.id);
                    let from = if lacks { self.step } else { step.saturating_sub(self.last) };
                    let concerned = lacks || self.id == source && !behind.is_empty() || self.rules.sharded;
                    self.catch_up = concerned.then_some(Task::CatchUp { source, behind, from, to: step });
                    self.stage = Stage::Running;
                    self.membership.accumulation = accumulation;
                    self.trained = (epoch, accumulation);
                    // What was evaluated or sent before the crash may be lost: do it again. So is a step that was not
                    // finite, because not all members may have seen it.
                    self.evaluated_at = None;
                    self.checkpointed_at = None;
                    self.slices_at = None;
                    self.halted = false;
                    self.hold_floor = 0;
                }
                vec![]
            }
            ToWorker::Phase(_) if matches!(self.stage, Stage::Gone | Stage::Dismissed { .. }) => vec![],
            ToWorker::Phase(phase) => self.begin_asynchronous(phase),
            ToWorker::Grant { epoch, units } => {
                self.asynchronous.grant(epoch, &units);
                vec![]
            }
            ToWorker::EvaluateAlone { epoch, step } => {
                self.asynchronous.ask_evaluation(epoch, step);
                vec![]
            }
            ToWorker::HandOver { epoch, step } => {
                self.asynchronous.ask_hand_over(epoch, step);
                vec![]
            }
            ToWorker::SendCheckpoint { epoch, step } => {
                self.send_checkpoint(epoch, step);
                vec![]
            }
            ToWorker::GoOn { step } => {
                self.verdicts.hear(step);
                vec![]
            }
            // For servers; the session answers where the worker stands.
            ToWorker::Serve(_) | ToWorker::Inquire { .. } => vec![],
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
        self.verdicts = Verdicts::default();
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
                if self.is_news(&membership) && self.connected {
                    self.prepared.push(membership);
                    self.prepared.sort_by_key(|m| m.epoch);
                }
                vec![]
            }
            // No worker waits for what was overtaken.
            Err(_) if !self.is_news(&membership) => vec![],
            Err((peer, why)) => vec![Effect::Send(FromWorker::Lost {
                epoch: membership.epoch,
                step: self.step,
                peer: Some(peer),
                why,
            })],
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
        if !possible || !self.is_news(&membership) {
            return;
        }
        self.prepared.retain(|m| m.epoch > membership.epoch);
        self.agreed = None;
        self.hold_floor = 0;
        self.verdicts.begin(membership.decided);
        self.trained = (membership.epoch, membership.accumulation);
        // What was due at this boundary came before, whatever the updates of the new membership cover.
        self.evaluated_at = Some(self.step);
        self.slices_at = None;
        if newcomer {
            self.stage = Stage::Joining;
            self.has_state = false;
            self.catch_up = None;
            self.halted = false;
        } else if membership.paused.contains(&self.id) {
            self.stage = Stage::Standby;
            self.has_state = false;
        } else if !membership.contains(self.id) {
            self.stage = Stage::Gone;
        }
        self.membership = membership;
    }

    /// The sources told the shadow at which boundary they began.
    pub fn shadow_began(&mut self, step: u64) {
        if self.stage == Stage::Joining {
            self.stage = Stage::Running;
            (self.step, self.last) = (step, 0);
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
        if let Some(Task::CatchUp { behind, to, .. }) = self.catch_up.take()
            && behind.contains(&self.id)
        {
            self.last = to.saturating_sub(self.step);
            self.step = self.step.max(to);
        }
    }

    /// [`Task::Finish`] was carried out.
    pub fn finished(&mut self, digest: [u8; 32]) -> Vec<Effect> {
        if self.stage != Stage::Running {
            return vec![];
        }
        self.stage = Stage::Finished;
        self.send_again = false;
        vec![Effect::Send(FromWorker::Finished { step: self.step, digest })]
    }

    /// A training or hold round ended; `offers` are those of the active members.
    pub fn round_done(&mut self, round: &Task, offers: &[Offer]) {
        if *round == Task::Train {
            self.step = self.step.saturating_add(self.update);
            self.last = self.update;
        }
        let highest = offers.iter().map(|offer| offer.epoch).max().unwrap_or(0);
        let same = offers.iter().all(|offer| offer.epoch == highest);
        let agreed = same && highest > self.membership.epoch && self.stage == Stage::Running;
        self.agreed = agreed.then_some(highest);
        if *round == Task::Hold && self.agreed.is_none() {
            self.hold_floor = highest;
        }
        self.agree_on_checkpoint(offers);
        self.verdicts.confer(offers, self.step);
    }

    /// The reduced loss or gradient of the step is not finite: nothing was applied.
    pub fn not_finite(&mut self, what: String) -> Vec<Effect> {
        (self.halted, self.diverged) = (true, true);
        vec![Effect::Send(FromWorker::NotFinite { step: self.step, what })]
    }

    /// Two workers computed a virtual node of the step differently: nothing was applied. Where one of them is known to
    /// be wrong, the others wait for a membership without it; otherwise nothing more is trained.
    pub fn mismatched(&mut self, mismatch: &Mismatch) -> Vec<Effect> {
        // The sums of the step have replaced the last result, which all members have.
        self.last = 0;
        if self.stage != Stage::Running {
            // It was told to go meanwhile, or to form another membership.
            return vec![];
        }
        match mismatch.verdict {
            Verdict::Wrong { worker, .. } => {
                self.broken(None, format!("worker {worker} computes wrong gradients"))
            }
            Verdict::Awaited | Verdict::Open => {
                (self.halted, self.diverged) = (true, false);
                vec![]
            }
        }
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
