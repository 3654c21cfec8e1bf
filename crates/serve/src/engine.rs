//! The local engine: a [`Backend`] whose jobs are processes of this machine.
//!
//! One thread does everything in order: it takes in what clients ask and what processes report, writes it down, and
//! only then answers, gives orders, and asks the policy. It never waits for a process: what is wanted of one is said
//! again until it is so.

mod begin;
mod compact;
mod elsewhere;
mod nodes;
mod orders;
mod outlook;
mod profiled;
mod publish;
mod queues;
mod reports;
mod requests;
mod take_over;
mod ways;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bellwether_core::InputError;
use bellwether_core::cluster::JobId;
use bellwether_core::knowledge::Knowledge;
use bellwether_core::policy::{Action, Backend, Decision, Fault, PolicyInput};
use bellwether_core::prediction::StepModel;
use bellwether_core::queue::QueuesFile;
use bellwether_sched::drive::drive;
use tokio::sync::{mpsc, oneshot, watch};

use crate::clock::{Clock, Inbox, SystemClock};
use crate::ledger::{Compaction, Damage, Entry, FileStore, LedgerFile, Line, Outcome, Store, Submitted};
use crate::machine::{Machine, SlurmJobs};
use crate::outlook::Outlook;
use crate::request::{EngineHandle, Refusal, RefusalKind, Reply};
use crate::runner::{JobRunner, Report};
use crate::snapshot::{JobOutlook, Snapshot};
use crate::state::{RESTORING, State};
use outlook::Lookout;
use publish::Publisher;
pub use take_over::Running;

/// Wishes and reports that are taken in before what they change is written down.
const BATCH: usize = 256;

/// The longest time between two looks at what is due.
const TICK: Duration = Duration::from_millis(50);

/// The policy of a daemon that was given none: every job makes progress, and no remaining time has to be known.
const DEFAULT_POLICY: &str = "fair";

/// A machine's clock that differs by more, in seconds, from what it should show has been set.
const CLOCK_TOLERANCE_S: f64 = 1.0;

/// The shortest time between two looks at it: a clock that is set all the time shall not fill the ledger.
const CLOCK_PERIOD: Duration = Duration::from_secs(10);

/// Makes the folder of a job's run, or finds it; says where it is. On a cluster it holds how workers are submitted.
pub type Prepare = Box<dyn Fn(&Submitted, Option<&SlurmJobs>) -> Result<PathBuf, String> + Send>;

/// Takes a sentence for the daemon's owner.
pub type Tell = Box<dyn Fn(&str) + Send>;

/// How a daemon works.
pub struct Options {
    /// The folder of all runs.
    pub folder: PathBuf,
    /// The ledger's file.
    pub ledger: PathBuf,
    /// The slots: needed for a ledger that begins; one that goes on has its own, and no others may be named.
    pub machine: Option<Machine>,
    /// The policy that decides from now on; `None` for the one that decided before.
    pub policy: Option<String>,
    /// What policies are told of the work that remains, from now on: the mean over how jobs of the kind ended so far,
    /// or all that a job's author declared. `None` for what they were told before; of a ledger that begins the mean.
    pub remaining: Option<Knowledge>,
    /// The queues that divide the slots from now on; `None` for those of before.
    pub queues: Option<QueuesFile>,
    /// Seconds of the daemon's clock in a real second: 1 for a ledger that begins where nothing is said; as for slots.
    pub time_scale: Option<f64>,
    /// The policies that can be named.
    pub registry: bellwether_sched::registry::Registry,
    /// How often a job is tried again after its processes failed.
    pub retries: u32,
    /// The ledger is compacted when it has this many bytes, and four times as many as after the last time.
    pub compact_at: u64,
    /// Makes the folder of a run.
    pub prepare: Prepare,
    /// What foresees when jobs start and end, if anything does.
    pub outlook: Option<Box<dyn Outlook>>,
    /// Is told what the daemon's owner should know of it while it runs, in a sentence.
    pub tell: Tell,
}

/// Why a daemon ended that should not have.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The ledger cannot be read or written.
    #[error("the ledger {path}: {source}")]
    Ledger {
        /// Its file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A policy that is not there; slots or a clock that are not those of the ledger.
    #[error(transparent)]
    Input(#[from] InputError),
    /// A policy broke a law, or the world failed.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The system does not give what is needed.
    #[error("no event loop: {0}")]
    System(io::Error),
}

/// What the engine knows of a job's processes beside what is in the ledger.
#[derive(Debug, Default)]
struct Live {
    /// What the runner was told last, if it has processes: workers and speed.
    order: Option<(u32, f64)>,
    /// Whether no more processes are there since then.
    settled: bool,
    /// No new processes before this time.
    not_before: Option<Duration>,
    /// Committed steps, as heard last, and when the last of them was.
    step: Option<u64>,
    step_at: Duration,
    loss: Option<f64>,
    /// When its processes ended last, in seconds since the Unix epoch.
    ended_unix_s: Option<f64>,
    /// Samples per second in real time.
    examples_per_s: Option<f64>,
    /// Since when it has its workers.
    training_since: Option<Duration>,
    /// How often steps were learnt from, and when the next are.
    lessons: u32,
    next_lesson: Option<Duration>,
}

/// The jobs of one machine. Times without a unit in their names are those of its [`Clock`].
pub struct Engine<C, T = SystemClock> {
    state: State,
    file: LedgerFile,
    options: Options,
    runner: C,
    /// For faults that show before the runner is asked.
    faults: mpsc::UnboundedSender<Report>,
    live: BTreeMap<JobId, Live>,
    /// Jobs of which processes were told something, and not heard that they are gone.
    ordered: BTreeSet<JobId>,
    clock: T,
    inbox: Inbox,
    answers: Vec<Answer>,
    publisher: Publisher,
    /// Who looks ahead, and what was foreseen of each job.
    lookout: Option<Lookout>,
    outlooks: BTreeMap<JobId, JobOutlook>,
    /// How often a policy was asked.
    moments: u64,
    /// Which policy asks: see [`State::policies`].
    policies: u64,
    asked: Option<Duration>,
    /// When the ledger was opened, on its own clock and on that of the machine.
    opened: (f64, Duration),
    /// When the machine's clock was looked at last.
    clock_seen: Duration,
    damage: Option<Damage>,
    /// What became of the last attempt to compact the ledger.
    compaction: Option<Result<Compaction, String>>,
    /// Whether a disk that is full is waited for: not by a daemon that only begins.
    is_patient: bool,
}

/// An answer that waits until what it says is on disk.
struct Answer {
    to: oneshot::Sender<Result<Reply, Refusal>>,
    what: Accepted,
}

/// What was granted.
enum Accepted {
    Job { job: JobId, created: bool },
    Policy,
    Queues,
    Description(JobId),
}

/// The ends of the channels to an engine.
pub struct Channels {
    /// For clients.
    pub engine: EngineHandle,
    /// For the runner.
    pub reports: mpsc::UnboundedSender<Report>,
    /// Set to true it ends the engine; processes go on.
    pub stop: watch::Sender<bool>,
}

impl<C: JobRunner> Engine<C> {
    /// Opens the ledger, and takes up what it says. `runner` is made with the channel for its reports.
    ///
    /// # Errors
    ///
    /// Returns an error if the ledger cannot be read or the policy does not exist.
    pub fn open(
        options: Options,
        runner: impl FnOnce(mpsc::UnboundedSender<Report>) -> C,
    ) -> Result<(Engine<C>, Channels), EngineError> {
        let clock = SystemClock::new().map_err(EngineError::System)?;
        let store = FileStore::new(options.ledger.clone());
        Engine::open_with(options, clock, Box::new(store), runner)
    }
}

impl<C: JobRunner, T: Clock> Engine<C, T> {
    /// The same with any clock, and with anything that keeps the ledger.
    ///
    /// # Errors
    ///
    /// Same errors as [`open`](Engine::open).
    pub fn open_with(
        mut options: Options,
        clock: T,
        store: Box<dyn Store>,
        runner: impl FnOnce(mpsc::UnboundedSender<Report>) -> C,
    ) -> Result<(Engine<C, T>, Channels), EngineError> {
        let wrong = |source| EngineError::Ledger { path: options.ledger.clone(), source };
        let (mut file, state, damage) =
            LedgerFile::open(store, options.compact_at, State::fold).map_err(wrong)?;
        if state.as_ref().is_some_and(|state| state.is_restoring) {
            return Err(wrong(io::Error::other(RESTORING)));
        }
        let is_new = state.is_none();
        let state = match state {
            Some(state) => state,
            None => {
                let line = Line { time_s: 0.0, entry: begin::opened(&options, clock.unix_s()) };
                file.add(&line, true).and_then(|()| file.commit()).map_err(wrong)?;
                State::open(&line).map_err(|what| wrong(io::Error::other(what)))?
            }
        };
        begin::same_world(&options, &state)?;
        let (asked, requests) = mpsc::unbounded_channel();
        let (reporter, reports) = mpsc::unbounded_channel();
        let (stopper, stop) = watch::channel(false);
        let (sender, snapshots) = watch::channel(Arc::new(Snapshot::default()));
        // Over a restart the machine's clock tells how much time has passed, but it never goes back.
        let since_s = ((clock.unix_s() - state.unix_s) * state.time_scale).max(state.now_s);
        let now = clock.elapsed();
        let mut engine = Engine {
            publisher: Publisher::new(sender, options.folder.clone()),
            lookout: options.outlook.take().map(|outlook| Lookout::start(outlook, reporter.clone())),
            outlooks: BTreeMap::new(),
            moments: 0,
            runner: runner(reporter.clone()),
            faults: reporter.clone(),
            live: BTreeMap::new(),
            ordered: BTreeSet::new(),
            answers: Vec::new(),
            policies: 0,
            asked: None,
            opened: (since_s, now),
            clock_seen: now,
            damage,
            compaction: None,
            is_patient: false,
            clock,
            state,
            file,
            options,
            inbox: Inbox::new(requests, reports, stop),
        };
        engine.take_up(is_new)?;
        let handle = EngineHandle { requests: asked, snapshots };
        Ok((engine, Channels { engine: handle, reports: reporter, stop: stopper }))
    }

    /// The policy that decides, the slots, and how many jobs have not ended.
    pub fn summary(&self) -> (String, u32, usize) {
        let open = self.state.jobs.values().filter(|record| record.end.is_none()).count();
        (self.state.policy.clone(), self.state.view.devices(None), open)
    }

    /// How workers are submitted, where slots are those of a cluster.
    pub fn slurm(&self) -> Option<&SlurmJobs> {
        self.state.machine.slurm.as_ref()
    }

    /// What the ledger had lost when it was opened.
    pub fn damage(&self) -> Option<&Damage> {
        self.damage.as_ref()
    }

    /// What became of the last attempt to compact the ledger: why it failed, if it did.
    pub fn compaction(&self) -> Option<&Result<Compaction, String>> {
        self.compaction.as_ref()
    }

    /// Lets policies decide until the daemon is stopped. Processes go on after it.
    ///
    /// # Errors
    ///
    /// Returns an error if a policy breaks a law or the ledger cannot be written. Jobs go on without the daemon.
    pub fn run(mut self) -> Result<(), EngineError> {
        self.is_patient = true;
        while !self.inbox.is_stopping() {
            let mut policy = self.state.deciding().fresh(&self.options.registry)?;
            self.policies = self.state.policies;
            let belief = self.state.belief.clone();
            drive(policy.as_mut(), &mut self, &belief)?;
        }
        Ok(())
    }

    /// Seconds on the daemon's clock: they pass as time passes, however the machine's clock is set meanwhile.
    fn now_s(&self) -> f64 {
        let passed_s = self.clock.elapsed().saturating_sub(self.opened.1).as_secs_f64();
        (self.opened.0 + passed_s * self.state.time_scale).max(self.state.now_s)
    }

    /// Where the machine's clock was set, from now on the daemon's clock is read as the new one.
    fn correct_clock(&mut self) -> Result<(), Fault> {
        self.clock_seen = self.clock.elapsed();
        let by_s = self.clock.unix_s() - self.state.unix_s(self.now_s());
        if by_s.abs() <= CLOCK_TOLERANCE_S {
            return Ok(());
        }
        self.write(Entry::ClockCorrected { unix_s: self.state.unix_s + by_s, by_s })
    }

    /// Lets a fact be true, and writes it down.
    fn write(&mut self, entry: Entry) -> Result<(), Fault> {
        let must_last = matches!(
            entry,
            Entry::Submitted(_)
                | Entry::Limited { .. }
                | Entry::Suspended { .. }
                | Entry::Resumed { .. }
                | Entry::Cancelled { .. }
                | Entry::Obtaining { .. }
                | Entry::PolicyChosen { .. }
                | Entry::RemainingChosen { .. }
                | Entry::QueuesChosen { .. }
                | Entry::Ended { .. }
        );
        let line = Line { time_s: self.now_s(), entry };
        // What cannot be true, as a decision that breaks a law, is never written.
        self.state.apply(&line).map_err(|error| Fault::Broken(error.to_string()))?;
        self.file.add(&line, must_last).map_err(|error| self.unwritten(&error))
    }

    fn unwritten(&self, error: &io::Error) -> Fault {
        Fault::World(format!("{} cannot be written: {error}", self.options.ledger.display()))
    }

    /// What was written down is on disk; then those who asked hear of it.
    fn commit(&mut self) -> Result<(), Fault> {
        while let Err(error) = self.file.commit() {
            let is_full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
            if !is_full || !self.is_patient || self.inbox.is_stopping() {
                return Err(self.unwritten(&error));
            }
            self.await_room(&error);
        }
        Ok(())
    }

    /// Waits while the disk is full: clients that ask for something are told so, and jobs go on by themselves.
    fn await_room(&mut self, error: &io::Error) {
        let refusal = |what: &str| {
            let error =
                InputError::new(self.options.ledger.display().to_string(), format!("{what}: {error}"));
            Err(Refusal { kind: RefusalKind::Unavailable, error: error.hint("make room on its disk") })
        };
        // The client may be gone.
        for Answer { to, .. } in std::mem::take(&mut self.answers) {
            drop(to.send(refusal("what you asked for is done once it can be written")));
        }
        self.clock.pause(TICK);
        while let Some((_, to)) = self.inbox.request() {
            drop(to.send(refusal("it cannot be written, so nothing was done")));
        }
    }

    /// Takes in all that is there, up to a bound.
    fn take_in(&mut self) -> Result<(), Fault> {
        for _ in 0..BATCH {
            let Some(report) = self.inbox.report() else { break };
            self.report(report)?;
        }
        for _ in 0..BATCH {
            let Some((request, to)) = self.inbox.request() else { break };
            match self.request(request)? {
                Ok(what) => self.answers.push(Answer { to, what }),
                // The client may be gone.
                Err(refusal) => drop(to.send(Err(refusal))),
            }
        }
        Ok(())
    }

    fn answer(&mut self) {
        for Answer { to, what } in std::mem::take(&mut self.answers) {
            let reply = match what {
                Accepted::Policy => Some(Reply::Policy(self.state.policy.clone())),
                Accepted::Description(job) => {
                    let record = self.state.jobs.get(&job);
                    record.map(|record| Reply::Description(Box::new(record.submitted.job.clone())))
                }
                Accepted::Queues => {
                    Some(Reply::Queues(self.state.queues_file().map(|file| (**file).clone())))
                }
                Accepted::Job { job, created } => {
                    self.publisher.job(&self.state, job).map(|job| Reply::Job { job, created })
                }
            };
            if let Some(reply) = reply {
                // The client may be gone.
                let _ = to.send(Ok(reply));
            }
        }
    }

    /// Waits until something comes in, or until `wakeup_s` on the daemon's clock, or for a tick.
    fn wait(&mut self, wakeup_s: Option<f64>) {
        let mut patience = self.publish_patience().min(TICK);
        if let Some(wakeup_s) = wakeup_s {
            let real_s = (wakeup_s - self.now_s()) / self.state.time_scale;
            patience = patience.min(Duration::from_secs_f64(real_s.clamp(0.0, 1.0)));
        }
        self.clock.wait(&mut self.inbox, patience);
    }
}

impl<C: JobRunner, T: Clock> Backend for Engine<C, T> {
    fn next<'a>(
        &'a mut self,
        wakeup_s: Option<f64>,
        model: &'a dyn StepModel,
    ) -> Result<Option<PolicyInput<'a>>, Fault> {
        loop {
            // One moment for all: what is corrected now is shown now.
            let now = self.clock.elapsed();
            self.take_in()?;
            if now.saturating_sub(self.clock_seen) >= CLOCK_PERIOD {
                self.correct_clock()?;
            }
            // What went with a node is decided again before processes are told anything.
            if self.state.changes.lost.is_empty() {
                self.give_orders()?;
            }
            self.commit()?;
            self.look_ahead();
            self.publish(now);
            self.answer();
            self.compact_if_due()?;
            if self.inbox.is_stopping() || self.policies != self.state.policies {
                return Ok(None);
            }
            let is_due = wakeup_s.is_some_and(|wakeup_s| wakeup_s <= self.now_s());
            if is_due || !self.state.changes.is_empty() {
                break;
            }
            self.wait(wakeup_s);
        }
        self.write(Entry::Moment { progress: self.progress() })?;
        self.asked = Some(self.clock.elapsed());
        self.moments += 1;
        let State { now_s, view, changes, .. } = &self.state;
        Ok(Some(PolicyInput { now_s: *now_s, view, changes, model }))
    }

    fn apply(&mut self, decision: Decision) -> Result<(), Fault> {
        let now = self.clock.elapsed();
        let deciding_s = self.asked.take().map_or(0.0, |asked| now.saturating_sub(asked).as_secs_f64());
        let refused = refusals(&decision);
        self.write(Entry::Decided { decision, deciding_s })?;
        for (job, why) in refused {
            self.end(job, Outcome::Refused, why, self.step(job), None)?;
        }
        Ok(())
    }
}

fn refusals(decision: &Decision) -> Vec<(JobId, String)> {
    let refused = decision.actions.iter().filter_map(|action| match action {
        Action::Refuse { job, why } => Some((*job, why.clone())),
        Action::Allocate { .. } => None,
    });
    refused.collect()
}
