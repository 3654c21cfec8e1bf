//! The local engine: a [`Backend`] whose jobs are processes of this machine.
//!
//! One thread does everything in order: it takes in what clients ask and what processes report, writes it down, and only
//! then answers, gives orders, and asks the policy. It never waits for a process: what is wanted of one is said again until
//! it is so.

mod orders;
mod publish;
mod reports;
mod requests;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bellwether_core::InputError;
use bellwether_core::cluster::JobId;
use bellwether_core::job::Job;
use bellwether_core::policy::{Action, Backend, Decision, Fault, Moment};
use bellwether_runtime::journal;
use bellwether_sched::drive::drive;
use bellwether_sched::policy;
use tokio::sync::{mpsc, oneshot, watch};

use crate::crew::{Crew, Report};
use crate::ledger::{Entry, LedgerFile, Line, Outcome, Progress};
use crate::machine::Machine;
use crate::request::{Asked, Desk, Refusal, Reply};
use crate::snapshot::Snapshot;
use crate::state::State;
use publish::Publisher;

/// Wishes and reports that are taken in before what they change is written down.
const BATCH: usize = 256;

/// The longest time between two looks at what is due.
const TICK: Duration = Duration::from_millis(50);

/// Makes the folder of a job's run, or finds it; says where it is.
pub type Prepare = Box<dyn Fn(&str, &Job) -> Result<PathBuf, String> + Send>;

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
    /// Seconds of the daemon's clock in a real second: 1 for a ledger that begins where nothing is said; as for slots.
    pub time_scale: Option<f64>,
    /// How often a job is tried again after its processes failed.
    pub retries: u32,
    /// Makes the folder of a run.
    pub prepare: Prepare,
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
    /// What the crew was told last, if it has processes: workers and speed.
    order: Option<(u32, f64)>,
    /// No new processes before this time.
    not_before: Option<Instant>,
    /// Committed steps, as heard last.
    step: Option<u64>,
    loss: Option<f64>,
    /// When its processes ended last, in seconds since the Unix epoch.
    ended_unix_s: Option<f64>,
    /// Samples per second in real time.
    examples_per_s: Option<f64>,
    /// Since when it has its workers.
    training_since: Option<Instant>,
    /// How often steps were learnt from, and when the next are.
    lessons: u32,
    next_lesson: Option<Instant>,
}

/// The jobs of one machine.
pub struct Engine<C> {
    state: State,
    file: LedgerFile,
    options: Options,
    crew: C,
    /// For faults that show before the crew is asked.
    faults: mpsc::UnboundedSender<Report>,
    live: BTreeMap<JobId, Live>,
    requests: mpsc::UnboundedReceiver<Asked>,
    reports: mpsc::UnboundedReceiver<Report>,
    /// What came in while the engine waited.
    came: (Option<Asked>, Option<Report>),
    stop: watch::Receiver<bool>,
    answers: Vec<Answer>,
    publisher: Publisher,
    /// Which policy asks: see [`State::policies`].
    policies: u64,
    asked: Option<Instant>,
    /// When the last line was written, or the ledger opened.
    written: Instant,
    runtime: tokio::runtime::Runtime,
}

/// An answer that waits until what it says is on disk.
struct Answer {
    to: oneshot::Sender<Result<Reply, Refusal>>,
    what: Granted,
}

/// What was granted.
enum Granted {
    Job { job: JobId, created: bool },
    Policy,
}

/// The ends of the channels to an engine.
pub struct Ends {
    /// For clients.
    pub desk: Desk,
    /// For the crew.
    pub reports: mpsc::UnboundedSender<Report>,
    /// Set to true it ends the engine; processes go on.
    pub stop: watch::Sender<bool>,
}

impl<C: Crew> Engine<C> {
    /// Opens the ledger, and takes up what it says. `crew` is made with the channel for its reports.
    ///
    /// # Errors
    ///
    /// A ledger that cannot be read; a policy that is not there.
    pub fn open(
        options: Options,
        crew: impl FnOnce(mpsc::UnboundedSender<Report>) -> C,
    ) -> Result<(Engine<C>, Ends), EngineError> {
        let mut state = None::<State>;
        let file = LedgerFile::open(&options.ledger, |line| {
            match &mut state {
                Some(state) => state.apply(&line)?,
                None => state = Some(State::open(&line)?),
            }
            Ok(())
        });
        let wrong = |source| EngineError::Ledger { path: options.ledger.clone(), source };
        let mut file = file.map_err(wrong)?;
        let is_new = state.is_none();
        let state = match state {
            Some(state) => state,
            None => {
                let line = Line { time_s: 0.0, entry: opened(&options)? };
                file.add(&line, true).map_err(wrong)?;
                State::open(&line).map_err(|what| wrong(io::Error::other(what)))?
            }
        };
        same_world(&options, &state)?;
        let (asked, requests) = mpsc::unbounded_channel();
        let (reporter, reports) = mpsc::unbounded_channel();
        let (stopper, stop) = watch::channel(false);
        let (sender, snapshots) = watch::channel(Arc::new(Snapshot::default()));
        let mut engine = Engine {
            publisher: Publisher::new(sender, options.folder.clone()),
            crew: crew(reporter.clone()),
            faults: reporter.clone(),
            live: BTreeMap::new(),
            answers: Vec::new(),
            policies: 0,
            asked: None,
            written: Instant::now(),
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build()
                .map_err(EngineError::System)?,
            state,
            file,
            options,
            requests,
            reports,
            came: (None, None),
            stop,
        };
        engine.take_up(is_new)?;
        let desk = Desk { requests: asked, snapshots };
        Ok((engine, Ends { desk, reports: reporter, stop: stopper }))
    }

    /// A daemon begins: who decides, and which processes are there already?
    fn take_up(&mut self, is_new: bool) -> Result<(), EngineError> {
        let chosen = self.options.policy.clone();
        if chosen.is_none() && self.state.policy.is_empty() {
            let error = InputError::new("--policy", "no policy decides");
            return Err(error.hint("`bellwether policies` lists them").into());
        }
        policy::parse(chosen.as_ref().unwrap_or(&self.state.policy))?;
        if !is_new {
            let version = env!("CARGO_PKG_VERSION").into();
            self.write(Entry::Reopened { version, process: std::process::id() })?;
        }
        if let Some(policy) = chosen.filter(|policy| *policy != self.state.policy) {
            self.write(Entry::PolicyChosen { policy, by: "command line".into() })?;
        }
        self.commit()?;
        self.adopt()?;
        self.give_orders()?;
        self.commit()?;
        self.state.touched.extend(self.state.jobs.keys());
        self.publish();
        Ok(())
    }

    /// The policy that decides, the slots, and how many jobs have not ended.
    pub fn summary(&self) -> (String, u32, usize) {
        let open = self.state.jobs.values().filter(|record| record.end.is_none()).count();
        (self.state.policy.clone(), self.state.view.devices(None), open)
    }

    /// Lets policies decide until somebody stops the daemon. Processes go on after it.
    ///
    /// # Errors
    ///
    /// A policy that breaks a law, a ledger that cannot be written: the daemon cannot go on, jobs do.
    pub fn run(mut self) -> Result<(), EngineError> {
        while !*self.stop.borrow() {
            let (_, mut policy) = policy::parse(&self.state.policy)?;
            self.policies = self.state.policies;
            let belief = self.state.belief.clone();
            drive(policy.as_mut(), &mut self, &belief)?;
        }
        Ok(())
    }

    /// Seconds on the daemon's clock; they never go back, and go on where the machine's clock was set back.
    fn now_s(&self) -> f64 {
        let least_s = self.state.now_s + self.written.elapsed().as_secs_f64() * self.state.time_scale;
        ((journal::now_s() - self.state.unix_s) * self.state.time_scale).max(least_s)
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
                | Entry::PolicyChosen { .. }
                | Entry::Ended { .. }
        );
        let line = Line { time_s: self.now_s(), entry };
        self.written = Instant::now();
        // What cannot be true, as a decision that breaks a law, is never written.
        self.state.apply(&line).map_err(Fault::Broken)?;
        self.file.add(&line, must_last).map_err(|error| self.unwritten(&error))
    }

    fn unwritten(&self, error: &io::Error) -> Fault {
        Fault::World(format!("{} cannot be written: {error}", self.options.ledger.display()))
    }

    /// What was written down is on disk; then those who asked hear of it.
    fn commit(&mut self) -> Result<(), Fault> {
        self.file.commit().map_err(|error| self.unwritten(&error))
    }

    /// Takes in all that is there, up to a bound.
    fn take_in(&mut self) -> Result<(), Fault> {
        let (mut asked, mut reported) = std::mem::take(&mut self.came);
        for _ in 0..BATCH {
            let Some(report) = reported.take().or_else(|| self.reports.try_recv().ok()) else { break };
            self.report(report)?;
        }
        for _ in 0..BATCH {
            let Some((request, to)) = asked.take().or_else(|| self.requests.try_recv().ok()) else { break };
            match self.request(request)? {
                Ok(what) => self.answers.push(Answer { to, what }),
                // Whoever asked may be gone.
                Err(refusal) => drop(to.send(Err(refusal))),
            }
        }
        Ok(())
    }

    fn answer(&mut self) {
        for Answer { to, what } in std::mem::take(&mut self.answers) {
            let reply = match what {
                Granted::Policy => Some(Reply::Policy(self.state.policy.clone())),
                Granted::Job { job, created } => {
                    self.publisher.job(&self.state, job).map(|job| Reply::Job { job, created })
                }
            };
            if let Some(reply) = reply {
                // Whoever asked may be gone.
                let _ = to.send(Ok(reply));
            }
        }
    }

    /// Waits until something comes in, or until `wakeup_s` on the daemon's clock, or for a tick.
    fn wait(&mut self, wakeup_s: Option<f64>) {
        let mut patience = self.publisher.patience().min(TICK);
        if let Some(wakeup_s) = wakeup_s {
            let real_s = (wakeup_s - self.now_s()) / self.state.time_scale;
            patience = patience.min(Duration::from_secs_f64(real_s.clamp(0.0, 1.0)));
        }
        let Engine { runtime, requests, reports, came, stop, .. } = self;
        let (asked, reported) = came;
        runtime.block_on(async {
            tokio::select! {
                Some(request) = requests.recv() => *asked = Some(request),
                Some(report) = reports.recv() => *reported = Some(report),
                Ok(()) = stop.changed() => {}
                () = tokio::time::sleep(patience) => {}
            }
        });
    }

    /// How far the running jobs are, for the policy.
    fn progress(&self) -> Vec<Progress> {
        let scale = self.state.time_scale;
        let running = self.state.view.jobs.iter().filter(|(_, seen)| seen.is_running());
        let progress = running.filter_map(|(id, _)| {
            let (live, record) = (self.live.get(id)?, self.state.jobs.get(id)?);
            let done = live.step? as f64 * record.submitted.job.batch.size as f64;
            let rate = live.examples_per_s.filter(|_| record.training > 0).map(|rate| rate / scale);
            (record.training > 0).then_some(Progress { job: *id, done, rate })
        });
        progress.collect()
    }
}

impl<C: Crew> Backend for Engine<C> {
    fn next(&mut self, wakeup_s: Option<f64>) -> Result<Option<Moment<'_>>, Fault> {
        loop {
            self.take_in()?;
            self.give_orders()?;
            self.commit()?;
            self.publish();
            self.answer();
            if *self.stop.borrow() || self.policies != self.state.policies {
                return Ok(None);
            }
            let is_due = wakeup_s.is_some_and(|wakeup_s| wakeup_s <= self.now_s());
            if is_due || !self.state.changes.is_empty() {
                break;
            }
            self.wait(wakeup_s);
        }
        let progress = self.progress();
        self.write(Entry::Moment { progress })?;
        self.asked = Some(Instant::now());
        let State { now_s, view, changes, .. } = &self.state;
        Ok(Some(Moment { now_s: *now_s, view, changes }))
    }

    fn apply(&mut self, decision: Decision) -> Result<(), Fault> {
        let deciding_s = self.asked.take().map_or(0.0, |asked| asked.elapsed().as_secs_f64());
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

fn opened(options: &Options) -> Result<Entry, InputError> {
    let missing = || {
        let error = InputError::new("--slots", "a daemon that begins needs to know the slots");
        error.hint("for example `bellwether serve --policy srtf --slots 4`")
    };
    Ok(Entry::Opened {
        version: env!("CARGO_PKG_VERSION").into(),
        unix_s: journal::now_s(),
        time_scale: options.time_scale.unwrap_or(1.0),
        machine: options.machine.clone().ok_or_else(missing)?,
    })
}

/// Slots and clock are part of the ledger.
fn same_world(options: &Options, state: &State) -> Result<(), InputError> {
    let other = |place, what: &str| {
        let error =
            InputError::new(place, format!("the ledger of this state directory was begun with {what}"));
        Err(error.hint(format!("leave {place} out to go on as before; --state-dir begins anew elsewhere")))
    };
    if options.machine.as_ref().is_some_and(|machine| *machine != state.machine) {
        return other("--slots", "other slots");
    }
    if options.time_scale.is_some_and(|scale| scale != state.time_scale) {
        return other("--time-scale", "another clock");
    }
    Ok(())
}
