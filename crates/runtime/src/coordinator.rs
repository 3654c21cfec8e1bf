//! The coordinator of one run: carries out what [`membership::coordinator`](crate::membership::coordinator)
//! decides, keeps the journal, and writes the checkpoints.
//!
//! A run is a folder, see [`run_dir`](crate::run_dir). A coordinator that finds a journal there goes on where it ends.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bellwether_core::job::{CheckedJob, Job};
use bellwether_core::plan::Synchronisation;
use bellwether_core::record::{Event as Journaled, RunOutcome, Summary};

use crate::checkpoint::CheckpointError;
use crate::control::server::{Input, Outgoing, envelope};
use crate::control::{Status, Token};
use crate::membership::coordinator::{Action, Config, Coordinator, End, Event, Resumed};
use crate::membership::{WorkerId, WorkloadDescription};
use crate::objects::StoreError;
use crate::optimizer::Optimizer;
use crate::order::SampleOrder;
use crate::run_dir::leftovers::{Leftover, Leftovers};
use crate::run_dir::{RunDir, RunDirError};
use data_planes::Planes;
use lines::Lines;
use observer::Observer;
use past::Past;
use processes::Leaving;
use slices::Slices;
use turns::Incoming;

mod batch;
mod checkpoints;
mod collection;
mod data_planes;
mod director;
mod inputs;
mod lines;
mod metrics;
mod observer;
mod past;
mod processes;
mod restore;
mod shared_state;
mod slices;
mod spawn;
mod status;
mod summary;
mod turns;

pub use crate::run_dir::Endpoint;
pub use batch::BatchPlan;
pub use data_planes::MeasureLinks;
pub use director::{Command as DirectorCommand, Director, RunEvent, RunStatus};
pub use spawn::{Spawn, Spawned};
pub use status::STANDBY;

/// Refusals that are written to the journal in one period.
const REFUSALS_MAX: u32 = 50;

/// See [`REFUSALS_MAX`].
const REFUSAL_PERIOD: Duration = Duration::from_secs(10);

/// How a run is coordinated.
pub struct Options {
    /// The job.
    pub job: CheckedJob,
    /// Name of the run, for people.
    pub run: String,
    /// The run's folder; it exists.
    pub folder: PathBuf,
    /// The run's token.
    pub token: Token,
    /// Where the control plane listens. A restarted coordinator must listen where its workers look.
    pub listen: SocketAddr,
    /// Where the data plane listens, for checkpoints.
    pub data_listen: SocketAddr,
    /// Workers at the start.
    pub workers: u32,
    /// Fewest workers to begin with while the others wait for machines.
    pub min_workers: u32,
    /// Most workers that those who join by hand may raise the number to.
    pub max_workers: u32,
    /// Scheduled changes of the number of workers, by step.
    pub schedule: Vec<(u64, u32)>,
    /// How to start workers; without it all join by hand.
    pub spawn: Option<Spawn>,
    /// How to start parameter servers; without it all join by hand.
    pub spawn_server: Option<Spawn>,
    /// Who waits for whom, and since when.
    pub synchronisation: Synchronisation,
    /// What the workload is on this machine, when known: workers are held to it. Its kernel class may be empty: then it
    /// is that of the first worker.
    pub workload: Option<WorkloadDescription>,
    /// File with the parameters and then the model state that training begins from, little-endian `f32` in the order of
    /// the layout; without it workers begin from the job's seed.
    pub initial_weights: Option<PathBuf>,
    /// Whether the checkpoints of each evaluation are also put where the script that trains finds and removes them
    /// ([`RunDir::offered_checkpoints`]).
    pub offers_checkpoints: bool,
    /// Silence after which a worker counts as lost.
    pub heartbeat_timeout: Duration,
    /// How long a lost worker that may hold the only state is waited for.
    pub grace: Duration,
    /// How long the workers hold the state when the last checkpoint cannot be written.
    pub last_checkpoint_wait: Duration,
    /// Whether to go on though data or kernels are not those that the run was trained with.
    pub accept_other_data: bool,
    /// Why connections between machines are not encrypted, where the user asks for that; the token says so, too.
    pub plain_transport: Option<String>,
    /// Seconds that a model predicts of a step.
    pub expected_step_s: Option<f64>,
    /// Whether a late worker is replaced even if the run cannot go on without it.
    pub replaces_alone: bool,
    /// Which workers measure their link to the data plane before they train.
    pub measure_links: MeasureLinks,
    /// How fast workers compute, relative to each other: they share the virtual nodes by it. Those that are not named
    /// are taken for 1.
    pub speeds: BTreeMap<WorkerId, f64>,
    /// Who steers the run while it goes on.
    pub director: Option<Box<dyn Director>>,
}

/// What an observer of the run is shown.
#[derive(Debug)]
pub enum Observation<'a> {
    /// A line was written to the journal.
    Journal(&'a Journaled),
    /// The state of things, at most ten times a second.
    Status(&'a Status),
}

/// The run could not be coordinated at all.
#[derive(Debug, thiserror::Error)]
pub enum CoordinatorError {
    /// The system does not give what is needed.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// Another coordinator is at work on this run.
    #[error("another coordinator is at work on the run in {0}")]
    Busy(PathBuf),
    /// The first worker trains something else than what was declared.
    #[error(
        "a worker built another model, or has other data, than the process that declared the job: names or shapes of \
         tensors, or numbers of samples differ"
    )]
    OtherWorkload,
    /// Going on would mix two jobs.
    #[error("{what} was trained with other data or other kernels\n  before: {before}\n  now:    {now}")]
    OtherData {
        /// What is to be taken up.
        what: String,
        /// What it was trained with.
        before: String,
        /// What there is now.
        now: String,
    },
    /// The token asks for connections that are not encrypted, and no reason was given.
    #[error(
        "the run's token asks for connections without encryption, and neither the journal nor anybody says why"
    )]
    NoReason,
    /// A file of the run's folder cannot be used.
    #[error("cannot {verb} {source}")]
    RunDir {
        /// What was tried: `read` or `write`.
        verb: &'static str,
        /// Which file, and why it failed.
        source: RunDirError,
    },
    /// The checkpoints present cannot be used for this job.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The place for checkpoints in slices cannot be used.
    #[error("checkpoint.url: {0}")]
    Store(#[from] StoreError),
    /// No checkpoint in slices is written while the workers do not all wait for all.
    #[error(
        "checkpoint.url: the run is to be trained with servers or asynchronous phases, of which there are no slices"
    )]
    NoSlices,
}

fn system(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> CoordinatorError {
    let what = what.into();
    move |source| CoordinatorError::System { what, source }
}

/// Coordinates a run until it ends. `observe` is called on a thread of its own: however long it takes, the run goes on.
///
/// # Errors
///
/// Returns an error if the run cannot begin. What goes wrong later is in the summary's outcome.
pub fn run(
    options: Options,
    observe: &mut (dyn FnMut(Observation<'_>) + Send),
) -> Result<(Summary, RunOutcome), CoordinatorError> {
    let lock = RunDir::at(&options.folder).lock().map_err(system("lock the run's folder"))?;
    let Some(_lock) = lock else { return Err(CoordinatorError::Busy(options.folder)) };
    std::thread::scope(|scope| {
        let (observer, lines) = observer::observer();
        std::thread::Builder::new()
            .name("observer".into())
            .spawn_scoped(scope, move || lines.show(observe))
            .map_err(system("start a thread"))?;
        let mut run = Run::open(options, observer)?;
        run.begin()?;
        let end = run.work();
        let how = end.how.clone();
        Ok((run.close(end), how))
    })
}

struct Session {
    id: u64,
    outgoing: Outgoing,
}

struct Run {
    options: Options,
    observer: Observer,
    machine: Coordinator,
    lines: Lines,
    dir: RunDir,
    journal_path: PathBuf,
    planes: Planes,
    /// Checkpoints that the workers write themselves.
    slices: Option<Slices>,
    sessions: BTreeMap<WorkerId, Session>,
    workers_by_session: BTreeMap<u64, WorkerId>,
    /// Members and shadows from each boundary on; the last few, for the records that are yet to come.
    sizes: Vec<(u64, usize, usize)>,
    /// What carried each worker's last exchange to its peers.
    links: BTreeMap<WorkerId, status::Links>,
    /// What each worker computes with, where the run is open to any kernel class.
    classes: BTreeMap<WorkerId, String>,
    /// Updates that were written down.
    updates: u64,
    children: BTreeMap<WorkerId, Box<dyn Spawned>>,
    leaving: Vec<Leaving>,
    /// Whom earlier coordinators of this run started.
    leftovers: Leftovers,
    began: Instant,
    /// Everything that came before this instant was taken in.
    seen: Instant,
    ticked: Instant,
    /// When the first membership began, with the steps that were done then.
    training_since: Option<(Instant, u64)>,
    order: Option<SampleOrder>,
    resumed: bool,
    past: Past,
    shown: Instant,
    /// Strangers sent away in the present period.
    refusals: u32,
    refusals_since: Instant,
    end: Option<End>,
    last_checkpoint: Option<String>,
    /// What the director asked for and was not done yet.
    commands: VecDeque<DirectorCommand>,
    batches: batch::Batches,
}

/// Most steps that an update may cover.
fn max_accumulation(job: &Job) -> u32 {
    let goodput = job.mode.goodput();
    goodput.map_or(job.sync.steps_per_round(), |goodput| goodput.max_accumulation(job.batch.size))
}

/// Seconds that a worker's process may take until it opens a session, once it can be started. What it does then says
/// itself how long it may take.
const BOOT_TIMEOUT_S: f64 = 120.0;

fn config(options: &Options, resumed: Option<Resumed>) -> Config {
    Config {
        virtual_nodes: options.job.batch.virtual_nodes,
        wanted: options.workers,
        min_workers: options.min_workers,
        max_workers: options.max_workers,
        schedule: options.schedule.clone(),
        spawns: options.spawn.is_some(),
        speeds: options.speeds.clone(),
        heartbeat_timeout_s: options.heartbeat_timeout.as_secs_f64(),
        max_accumulation: max_accumulation(&options.job),
        synchronisation: options.synchronisation.clone(),
        units_per_step: u64::from(options.job.batch.virtual_nodes / options.job.sync.nodes_per_update.max(1)),
        evaluate_every: options.job.evaluation.every_steps,
        checkpoint_every: options.job.checkpoint.every_steps,
        slices: options.job.checkpoint.url.is_some(),
        sharded: options.job.sharding.is_some(),
        verdict_every: options.job.verdict_every(),
        verdict_needs_state: !options.job.stop.by_results(),
        checkpoint_period_s: options.job.checkpoint.every.get(),
        last_checkpoint_wait_s: options.last_checkpoint_wait.as_secs_f64(),
        boot_timeout_s: BOOT_TIMEOUT_S,
        reattach_grace_s: options.grace.as_secs_f64(),
        max_barren_crashes: 20,
        expected_step_s: options.expected_step_s,
        replaces_alone: options.replaces_alone,
        resumed,
        checkpoint: None,
        workload: None,
    }
}

impl Run {
    fn open(mut options: Options, observer: Observer) -> Result<Self, CoordinatorError> {
        if options.job.is_open_to_any_class() {
            options.workload = options.workload.map(WorkloadDescription::of_any_class);
        }
        let dir = RunDir::at(&options.folder);
        let journal_path = dir.journal_file();
        let history = dir.history().map_err(|source| CoordinatorError::RunDir { verb: "read", source })?;
        let past = Past::read(&options, &history)?;
        let resumed = past.resumed.clone();
        let planes = Planes::open(&options, past.store.clone())?;
        let run_id = past.id.clone().unwrap_or_default();
        let told = planes.told.clone();
        let slices = past.shelf.clone().map(|shelf| Slices::new(shelf, past.origin.clone(), run_id, told));
        let (leftovers, damage) = (Leftovers::of(&history), history.damage.clone());
        let lines = Lines::open(&dir, history)
            .map_err(system(format!("open the records in {}", options.folder.display())))?;
        let mut run = Run {
            machine: Coordinator::new(config(&options, resumed.clone()), 0.0),
            lines,
            dir,
            journal_path,
            planes,
            slices,
            sessions: BTreeMap::new(),
            workers_by_session: BTreeMap::new(),
            children: BTreeMap::new(),
            leaving: Vec::new(),
            leftovers,
            sizes: Vec::new(),
            links: BTreeMap::new(),
            classes: BTreeMap::new(),
            updates: 0,
            began: Instant::now(),
            seen: Instant::now(),
            ticked: Instant::now(),
            training_since: None,
            order: None,
            resumed: resumed.is_some(),
            past,
            shown: Instant::now(),
            refusals: 0,
            refusals_since: Instant::now(),
            end: None,
            last_checkpoint: None,
            commands: VecDeque::new(),
            batches: batch::Batches::new(&options.job, resumed.as_ref().map_or(1, |r| r.accumulation)),
            options,
            observer,
        };
        run.tell_damage(&damage);
        Ok(run)
    }

    fn begin(&mut self) -> Result<(), CoordinatorError> {
        let endpoint = Endpoint {
            control: self.planes.server.address(),
            data: self.planes.data.local_addr(),
            process: std::process::id(),
        };
        let kept = self.dir.keep_endpoint(&endpoint);
        kept.map_err(|source| CoordinatorError::RunDir { verb: "write", source })?;
        self.write(&Journaled::CoordinatorStarted {
            process: std::process::id(),
            version: env!("CARGO_PKG_VERSION").into(),
            resumed: self.resumed,
        });
        self.tell_past();
        if let Some(workload) = self.options.workload.clone().filter(|known| !known.fingerprint.is_empty()) {
            self.learn(&workload)?;
        }
        self.handle(Event::Tick);
        Ok(())
    }

    /// The first worker says what the workload is.
    fn learn_from_worker(&mut self, workload: &WorkloadDescription) -> Result<(), CoordinatorError> {
        if let Some(declared) = &self.options.workload {
            let said = WorkloadDescription { fingerprint: String::new(), ..workload.clone() };
            if *declared != said {
                return Err(CoordinatorError::OtherWorkload);
            }
        }
        if let Some((before, now)) = self.past.accept(workload, self.options.accept_other_data)? {
            self.write(&Journaled::OtherDataAccepted { before, now });
        }
        self.learn(workload)
    }

    /// The size of the task is known: everything that depends on it is set.
    fn learn(&mut self, workload: &WorkloadDescription) -> Result<(), CoordinatorError> {
        let job = &self.options.job;
        let total_steps = job.total_steps(workload.training_samples);
        let order = SampleOrder::of(job, workload.training_samples);
        let optimizer = Optimizer::new(job, total_steps);
        let slots: Vec<String> = optimizer.slots().into_iter().map(String::from).collect();
        self.machine.set_total_steps(total_steps);
        self.machine.expect_workload(workload.clone());
        self.order = Some(order);
        if let Some(slices) = &mut self.slices {
            slices.learn(workload.clone(), Vec::clone(&slots));
        }
        self.planes.checkpoints.learn(workload.clone(), slots, self.options.job.sharding.is_some());
        let known = Journaled::TaskKnown {
            fingerprint: workload.fingerprint.clone(),
            training_samples: order.samples,
            held_out_samples: workload.held_out_samples,
            parameters: workload.layout.parameter_count() as u64,
            total_steps,
            batch: order.batch,
            virtual_nodes: order.virtual_nodes,
        };
        self.write(&known);
        self.find_checkpoint(workload)
    }

    fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send(worker, message) => {
                    if let Some(session) = self.sessions.get(&worker) {
                        // A closed session is on its way as an input of its own.
                        let _ = session.outgoing.send(Ok(envelope(&message)));
                    }
                }
                Action::Spawn(worker) => self.spawn(worker, false),
                Action::SpawnServer(server) => self.spawn(server, true),
                Action::Collect { step, holders } => {
                    let sharded = self.machine.shards() > 0;
                    self.planes.checkpoints.collect(step, holders, sharded);
                }
                Action::Close(worker) => self.release(worker),
                Action::Journal(event) => self.write(&event),
                Action::Committed(records) => self.committed(records),
                Action::End(end) => self.end = Some(end),
            }
        }
    }

    /// Waits for the workers to end, and tells the result.
    fn close(mut self, end: End) -> Summary {
        // Who has not come yet would wait for an answer that does not come any more.
        let late = |worker: &WorkerId| self.machine.is_to_come(*worker);
        self.children.extract_if(.., |worker, _| late(worker)).for_each(|(_, mut child)| child.end());
        self.sessions.clear();
        self.take_last_checkpoints();
        let patience = Instant::now() + Duration::from_secs(3);
        // Workers that joined by hand have no process of ours to wait for: until their sessions are closed, they may
        // not have heard that the run is over, and would wait for another coordinator.
        let folder = self.options.folder.clone();
        let runs = |run: &mut Self| {
            run.processes().any(|child| child.is_waited_for() && child.ended().is_none())
                || !run.workers_by_session.is_empty()
                || !run.leftovers.alive(&folder).is_empty()
        };
        while Instant::now() < patience && runs(&mut self) {
            let heard = self.planes.incoming.recv_timeout(Duration::from_millis(5));
            if let Ok((_, Incoming::Control(Input::Closed(session, _)))) = heard {
                self.workers_by_session.remove(&session);
            }
        }
        for child in self.processes() {
            child.end();
        }
        self.leftovers.alive(&folder).iter().for_each(Leftover::kill);
        self.close_lines();
        let status = self.current_status();
        self.observer.status(&status);
        self.dir.remove_endpoint();
        self.summary(&end)
    }
}
