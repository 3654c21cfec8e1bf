//! Which membership comes next: the coordinator's half of the protocol, as a pure state machine.
//!
//! The shell ([`crate::coordinator`]) feeds [`Coordinator::handle`] with events and carries out the
//! actions. After every event the machine compares the workers it has with the workers that are wanted
//! and proposes the next membership; nothing else starts a change. What members say in every step, and all the time, is
//! taken in at once, and looked at together: with the next event that is news, or once some time has passed.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bellwether_core::record::{Event as Journal, RunFailure};

use super::{
    EvaluationRecord, FromWorker, Load, Membership, Mismatch, Reason, Report, ToWorker, WorkerId,
    WorkloadDescription,
};

mod applied;
mod asynchronous;
mod attendance;
mod commit;
mod damaged;
mod end;
mod holders;
mod interface;
mod last_checkpoint;
mod looks;
mod mismatch;
mod periodic;
mod plan;
mod progress;
mod recovery;
mod resumed;
mod seats;
mod sense;
mod starts;
mod stuck;
mod user_failure;
mod verdicts;
mod watch;

use applied::Applied;
use asynchronous::Asynchronous;
pub use attendance::Stage;
use attendance::{Kept, Worker};
pub use end::End;
pub use interface::{Action, Config, Event};
use last_checkpoint::LastCheckpoint;
pub use last_checkpoint::WAITS_FOR_CHECKPOINT;
use periodic::Periodic;
pub use progress::Progress;
use recovery::Ready;
pub use resumed::Resumed;
use seats::Seats;
use starts::Starts;
use user_failure::UserFailure;
use verdicts::Verdicts;
use watch::Watch;

/// A membership that was sent with `Prepare` and may be in force without our knowing.
#[derive(Debug, Clone)]
struct Proposal {
    membership: Seats,
    reason: Reason,
    /// When it was sent.
    since_s: f64,
    /// Newest incarnation at that time.
    incarnation: u64,
}

#[derive(Debug, Clone, PartialEq)]
enum Lifecycle {
    /// Too few workers have state to form a membership.
    Gathering {
        /// Until when workers of an earlier coordinator are waited for.
        grace_until_s: f64,
    },
    /// A recovery was sent; these are ready, with their steps.
    Recovering {
        /// The recovery was sent with this.
        load: Option<Load>,
        /// Who formed it.
        ready: BTreeMap<WorkerId, Ready>,
    },
    /// Steps are being done.
    Running,
    /// Units are being done, one by one.
    Asynchronous,
    /// Over.
    Ended,
}

/// The coordinator of one run.
#[derive(Debug, Clone)]
pub struct Coordinator {
    config: Config,
    now_s: f64,
    lifecycle: Lifecycle,
    workers: BTreeMap<WorkerId, Worker>,
    last_worker: WorkerId,
    last_epoch: u64,
    current: Seats,
    /// How far its active members are, unless that has to be counted.
    applied: Option<Applied>,
    /// Sent with `Prepare`, not known to be adopted, oldest first. The members may adopt any of them, and a
    /// later one after an earlier one.
    proposed: Vec<Proposal>,
    /// The newest session or failure to join.
    incarnations: u64,
    /// Workers that were told to go, by the process that was.
    dismissed: BTreeMap<WorkerId, u64>,
    /// Numbers given to workers that no spawner has started for us, until they attach.
    by_hand: BTreeSet<WorkerId>,
    /// Workers that went away with a state, and may come back with it. Every member of the last committed step is among
    /// them, or here, or dead.
    strays: BTreeSet<WorkerId>,
    /// The membership that began last.
    begun: u64,
    /// The boundary at which it began.
    begun_step: u64,
    /// The last recovery.
    formed: u64,
    /// Nothing was formed yet since this coordinator took over from one that died.
    taking_over: bool,
    /// Who was to receive the last result at the last start; empty once a step was committed since.
    lagging: Vec<WorkerId>,
    /// Why the recovery under way was begun.
    recovery_reason: Reason,
    wanted: u32,
    /// Steps that each update is to cover.
    accumulation: u32,
    /// Whether this coordinator was asked for that.
    batch_asked: bool,
    schedule: VecDeque<(u64, u32)>,
    /// Members that leave as soon as others have come for them.
    replacing: BTreeSet<WorkerId>,
    /// Workers that were asked to go while no membership was in force, and whether another is to take the place:
    /// theirs may be the only state.
    parting: BTreeMap<WorkerId, bool>,
    workload: Option<WorkloadDescription>,
    asynchronous: Asynchronous,
    /// Members that pause while all wait for all.
    paused: BTreeSet<WorkerId>,
    /// States after these steps are at the coordinator.
    received: BTreeSet<u64>,
    /// Of these, those that are being written.
    writing: BTreeSet<u64>,
    total_steps: Option<u64>,
    progress: Progress,
    checkpoint: Option<u64>,
    /// Checkpoints of these steps are written.
    settled: BTreeSet<u64>,
    /// What the members, who are done, hold until it is written.
    last_checkpoint: LastCheckpoint,
    periodic: Periodic,
    verdicts: Verdicts,
    stopping: bool,
    failure: Option<RunFailure>,
    /// The loss was not finite: the state that led there is not written.
    diverged: bool,
    /// The last step that was not applied because of a mismatch.
    mismatch: Option<Mismatch>,
    /// Workers that were found to compute wrong gradients: they may not come back.
    quarantined: BTreeSet<WorkerId>,
    barren_crashes: u32,
    /// The furthest step that was ever committed, also where it was taken back.
    furthest: u64,
    /// Whether a step was committed since this coordinator began.
    has_committed: bool,
    user_failures: Vec<UserFailure>,
    starts: Starts,
    formation_failures: u32,
    /// A connection broke; unless a crash explains it by then, all members form again.
    suspect_at_s: Option<f64>,
    suspicion: String,
    /// The longest time that a newcomer took to receive the state.
    slowest_transfer_s: Option<f64>,
    /// When the current number of workers was asked for.
    wanted_since_s: f64,
    watch: Watch,
    /// When all workers were looked at.
    looked_s: f64,
    /// Something happened since but that time passed and members told how far they are.
    has_news: bool,
    actions: Vec<Action>,
}

/// Starts that fail in a row before a run makes do with the workers that it has; without any it ends, if no worker has
/// trained yet.
const MAX_BOOT_FAILURES: u32 = 3;

/// Starts that fail in a row, half a minute in all, before a run ends that has trained and lost all workers.
const MAX_REBOOT_FAILURES: u32 = 8;

/// Workers wanted after so much of the run, and the changes that are scheduled for later.
fn due_after(committed: u64, config: &Config) -> (u32, VecDeque<(u64, u32)>) {
    let mut schedule: VecDeque<(u64, u32)> = config.schedule.clone().into();
    let mut wanted = config.wanted;
    while let Some((_, workers)) = schedule.pop_front_if(|(step, _)| *step <= committed && *step > 0) {
        wanted = workers;
    }
    (wanted, schedule)
}

impl Coordinator {
    /// A coordinator at time `now_s`, before any worker attached.
    pub fn new(config: Config, now_s: f64) -> Self {
        let resumed = config.resumed.clone().unwrap_or_default();
        let grace_s = if resumed.active.is_empty() { 0.0 } else { config.reattach_grace_s };
        let (wanted, schedule) = due_after(resumed.committed, &config);
        Coordinator {
            now_s,
            lifecycle: Lifecycle::Gathering { grace_until_s: now_s + grace_s },
            workers: BTreeMap::new(),
            last_worker: resumed.last_worker,
            last_epoch: resumed.epoch,
            current: Seats::default(),
            applied: None,
            proposed: Vec::new(),
            incarnations: 0,
            dismissed: BTreeMap::new(),
            by_hand: BTreeSet::new(),
            taking_over: !resumed.active.is_empty(),
            lagging: Vec::new(),
            strays: resumed.active.into_iter().filter(|id| !resumed.quarantined.contains(id)).collect(),
            mismatch: None,
            quarantined: resumed.quarantined,
            begun: 0,
            begun_step: 0,
            formed: 0,
            recovery_reason: Reason::Formed,
            wanted: wanted.min(config.virtual_nodes),
            accumulation: resumed.accumulation.clamp(1, config.max_accumulation.max(1)),
            batch_asked: false,
            schedule,
            replacing: BTreeSet::new(),
            parting: BTreeMap::new(),
            workload: config.workload.clone(),
            asynchronous: Asynchronous::new(
                config.synchronisation.clone(),
                config.units_per_step.max(1),
                resumed.committed,
            ),
            paused: BTreeSet::new(),
            received: BTreeSet::new(),
            writing: BTreeSet::new(),
            total_steps: None,
            progress: Progress::new(resumed.committed, resumed.evaluated),
            checkpoint: config.checkpoint,
            settled: BTreeSet::new(),
            last_checkpoint: LastCheckpoint::default(),
            periodic: Periodic::default(),
            verdicts: Verdicts::resumed(resumed.decided, resumed.ended_early),
            stopping: false,
            failure: None,
            diverged: false,
            barren_crashes: 0,
            furthest: 0,
            has_committed: false,
            user_failures: Vec::new(),
            starts: Starts::default(),
            formation_failures: 0,
            suspect_at_s: None,
            suspicion: String::new(),
            slowest_transfer_s: None,
            wanted_since_s: now_s,
            watch: Watch::default(),
            looked_s: now_s,
            has_news: true,
            actions: Vec::new(),
            config,
        }
    }

    /// Tells the length of the run, which depends on the data.
    pub fn set_total_steps(&mut self, steps: u64) {
        self.total_steps = Some(steps);
        self.has_news = true;
    }

    /// Holds workers to this description.
    pub fn expect_workload(&mut self, workload: WorkloadDescription) {
        self.workload.get_or_insert(workload);
    }

    /// Tells the step of the newest usable checkpoint, known once the layout is.
    pub fn set_checkpoint(&mut self, step: Option<u64>) {
        self.checkpoint = step;
        self.has_news = true;
    }

    /// Tells the steps of checkpoints that may be tried where the newest turns out to be damaged, the newest first.
    pub fn set_older_checkpoints(&mut self, steps: Vec<u64>) {
        self.last_checkpoint.older = steps;
    }

    /// A number for a worker that has none.
    pub fn new_worker(&mut self) -> WorkerId {
        let worker = self.next_worker();
        self.by_hand.insert(worker);
        worker
    }

    fn next_worker(&mut self) -> WorkerId {
        self.last_worker += 1;
        self.last_worker
    }

    fn next_incarnation(&mut self) -> u64 {
        self.incarnations += 1;
        self.incarnations
    }

    /// What has been done so far.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// The membership in force.
    pub fn membership(&self) -> &Membership {
        &self.current
    }

    /// Workers wanted.
    pub fn wanted(&self) -> u32 {
        self.wanted
    }

    /// What the first worker said about the task.
    pub fn workload(&self) -> Option<&WorkloadDescription> {
        self.workload.as_ref()
    }

    /// A word or two for what is going on.
    pub fn lifecycle(&self) -> Cow<'static, str> {
        let word = match self.lifecycle {
            Lifecycle::Gathering { .. } => "gathering workers",
            Lifecycle::Recovering { .. } => "recovering",
            Lifecycle::Running if self.last_checkpoint.is_overdue() => WAITS_FOR_CHECKPOINT,
            Lifecycle::Running if self.stopping || self.ends_here() => "stopping",
            Lifecycle::Running | Lifecycle::Asynchronous => match self.awaited_verdict() {
                Some(step) if self.config.verdict_needs_state => {
                    return format!("waiting for the lead's verdict after step {step}").into();
                }
                Some(_) | None => "training",
            },
            Lifecycle::Ended => "ended",
        };
        word.into()
    }

    /// Number, stage, address, process and applied steps of each worker.
    pub fn workers(&self) -> impl Iterator<Item = (WorkerId, Stage, &str, u32, u64)> {
        self.workers.iter().map(|(id, w)| (*id, w.stage, w.address.as_str(), w.process, w.step))
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Attached { worker, address, process, instance, waited_s, held, workload } => {
                self.attached(worker, address, (process, instance), held, workload);
                self.workers.entry(worker).and_modify(|w| w.heard_s += waited_s);
            }
            Event::ServerAttached { server, address, process, instance, waited_s } => {
                self.server_attached(server, address, (process, instance), waited_s);
            }
            Event::Said(worker, message) if self.is_server(worker) => self.server_said(worker, message),
            Event::Said(worker, message) => {
                if self.workers.contains_key(&worker) {
                    self.heard(worker);
                    match self.nonsense(&message) {
                        Some(what) => self.expel(worker, &format!("it said what cannot be: {what}")),
                        None => self.said(worker, message),
                    }
                }
            }
            Event::Gone(server, why) if self.is_server(server) => self.server_gone(server, &why),
            Event::Gone(worker, why) => self.gone(worker, &why),
            Event::Ended(worker) => self.ended(worker),
            Event::Scale(workers) => self.want(workers),
            Event::Replace(worker) => self.replace(worker),
            Event::LeaveOut(worker) => self.leave_out(worker),
            Event::Relieve(worker) => self.relieve(worker),
            Event::Revoked(worker) => {
                self.workers.entry(worker).and_modify(|w| w.revoked = true);
            }
            Event::Speeds(speeds) => self.config.speeds = speeds,
            Event::Accumulate(steps) => {
                self.accumulation = steps.clamp(1, self.config.max_accumulation.max(1));
                self.batch_asked = true;
            }
            Event::Protocol(at_step, protocol) => self.ask_protocol(at_step, protocol),
            Event::Pause(worker) => self.pause(worker),
            Event::Unpause => self.unpause(),
            Event::Verdict(step, ends) => self.decide(step, ends),
            Event::Stop => {
                self.stopping = true;
                self.last_checkpoint.stop_asked();
            }
            Event::Received(step) => self.state_received(step),
            Event::Collected(step, result) => self.collected(step, &result),
            Event::Checkpoint(step, result) => self.checkpoint_came(step, result),
            Event::Tick => {}
        }
    }

    fn want(&mut self, workers: u32) {
        self.wanted = workers.clamp(1, self.config.virtual_nodes);
        self.wanted_since_s = self.now_s;
        self.starts.restart();
    }

    fn said(&mut self, worker: WorkerId, message: FromWorker) {
        match message {
            FromWorker::Heartbeat => {}
            FromWorker::At(position) => self.stands(worker, position),
            FromWorker::Booted(stages) => self.booted(worker, stages),
            FromWorker::Warmed(workload) => self.warmed(worker, workload),
            FromWorker::LinkMeasured { network, shared_memory } => {
                self.link_measured(worker, network, shared_memory);
            }
            FromWorker::Ready { epoch, step, last, trained } => {
                self.ready(worker, epoch, Ready { step, last, trained });
            }
            FromWorker::Lacking { epoch, shard } => self.lacking(epoch, shard),
            FromWorker::Report(report) => self.reported(worker, report),
            FromWorker::CaughtUp { epoch, step } => {
                // It can only be complete because the sources have begun.
                let current = self.adopted(epoch, step);
                // What it says may have begun a membership without it.
                let Some(entry) = self.workers.get_mut(&worker) else { return };
                if current && entry.stage == Stage::Shadow {
                    let seconds = self.now_s - entry.started_s;
                    (entry.stage, entry.step, entry.epoch) = (Stage::CaughtUp, step, epoch);
                    (entry.kept, entry.given_up) = (Kept::AtLeast, 0);
                    self.note_transfer(seconds);
                }
            }
            FromWorker::ShadowLost { epoch, shadow } => self.shadow_lost(worker, epoch, shadow),
            FromWorker::Leave { replace } => self.asked_to_leave(worker, replace),
            FromWorker::Left { epoch, step } => {
                self.adopted(epoch, step);
                self.left(worker);
            }
            FromWorker::Lost { epoch, step, peer, why } => self.lost(worker, (epoch, step), peer, &why),
            FromWorker::Failed { what } => {
                self.journal(Journal::Warning { message: format!("worker {worker} cannot go on: {what}") });
                self.gone(worker, &what);
            }
            FromWorker::UserFailed { what, step, node } => self.user_failed(worker, what, step, node),
            FromWorker::NotFinite { step, what } => {
                self.diverged |= self.failure.is_none();
                self.failure.get_or_insert(RunFailure::Diverged { what, step });
            }
            FromWorker::Mismatched(mismatch) => self.mismatched(mismatch),
            FromWorker::CheckpointFailed { step, why } => {
                self.journal(Journal::CheckpointFailed { step, reason: format!("worker {worker}: {why}") });
                self.checkpoint_failed(step, why);
            }
            FromWorker::CheckpointDamaged { step, why } => self.checkpoint_damaged(worker, step, &why),
            FromWorker::Units { epoch, done, want } => self.units(worker, epoch, done, want),
            // Its own session tells whether it is gone; the worker is told of another when there is one.
            FromWorker::ServerLost { .. } | FromWorker::Serving { .. } | FromWorker::ServerReport(_) => {}
            // The shell puts the manifest together.
            FromWorker::SlicesWritten(_) => {}
            FromWorker::Finished { step, digest } => {
                // While a recovery is under way this can only be about what was before.
                if self.lifecycle == Lifecycle::Running
                    && let Some(entry) = self.workers.get_mut(&worker)
                {
                    entry.step = entry.step.max(step);
                    entry.finished = Some((step, digest));
                }
            }
        }
    }

    fn send(&mut self, worker: WorkerId, message: ToWorker) {
        self.actions.push(Action::Send(worker, message));
    }

    fn close(&mut self, worker: WorkerId) {
        if self.workers.remove(&worker).is_some() {
            self.actions.push(Action::Close(worker));
        }
    }

    fn journal(&mut self, event: Journal) {
        self.actions.push(Action::Journal(event));
    }

    /// The last evaluation.
    pub fn evaluation(&self) -> Option<EvaluationRecord> {
        self.progress.evaluation
    }
}
