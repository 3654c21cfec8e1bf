//! A worker process: carries out what [`Member`] says.
//!
//! Three kinds of threads: the main thread computes, reduces and updates; the session thread speaks with
//! the coordinator (`session`); short-lived ones make connections ahead of a planned change and stream
//! state to newcomers and checkpoints. Only the main thread changes the protocol's state.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bellwether_core::job::{CheckedJob, Job};

use crate::channel::Listener;
use crate::collective::{Waker, wake_pair};
use crate::control::{Token, generated::Welcome};
use crate::membership::member::{Effect, Member, Rules, Task};
use crate::membership::{Activity, FromWorker, StepRecord, SwitchRecord, ToWorker, WorkloadDescription};
use crate::notice::Listening;
use crate::optimizer::Optimizer;
use crate::progress::Progress;
use crate::rounds::Rounds;
use crate::run_dir::CoordinatorAddress;
use crate::workload::{Workload, WorkloadError};
use asynchronous::{Asynchronous, Units};
use engine::{Engine, Fault, Round};
use incoming::Incoming;
use links::{Connector, Preparation};
use mismatch::Doubt;
use session::{Connection, Event, Identity};
use slices::Slices;
use warm::warm;

mod asynchronous;
mod change;
mod engine;
mod evaluate;
mod incoming;
mod leash;
pub(crate) mod links;
mod mismatch;
mod report;
pub(crate) mod session;
mod slices;
mod streams;
mod warm;

pub use leash::{Leash, Leashed, leash, leave_on_signals};
use report::{Reporter, record};
pub use warm::{BUILDING, IMPORTING, Stages};

/// How a worker is started.
#[derive(Debug, Clone)]
pub struct Options {
    /// The coordinator's control plane.
    pub coordinator: CoordinatorAddress,
    /// The run's token.
    pub token: Token,
    /// The worker's number; 0 asks the coordinator for one.
    pub worker: u64,
    /// Where the data plane listens; peers must be able to reach it.
    pub listen: SocketAddr,
    /// How long the worker keeps its state and waits when the coordinator is gone.
    pub orphan_timeout: Duration,
    /// Who may say that this server will be taken away.
    pub notices: Listening,
    /// Of a worker on a thread of its starter's process: how it is told to go. Without one it is a process,
    /// and SIGTERM asks it to leave.
    pub leashed: Option<Leashed>,
}

/// A worker ended before its run did.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The coordinator did not let it in, or let it go with a reproach.
    #[error("{0}")]
    Refused(String),
    /// No coordinator answers (any more).
    #[error("{0}")]
    Orphaned(String),
    /// The system does not give what is needed.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The job cannot be trained here: its description, its data, or the workload.
    #[error("{0}")]
    Task(String),
}

pub(crate) fn system(what: &'static str) -> impl Fn(std::io::Error) -> WorkerError {
    move |source| WorkerError::System { what, source }
}

/// Runs a worker until its run ends, it is asked to leave, or it cannot go on.
///
/// `build` makes the workload from the job as the coordinator tells it, and says in which stage it is.
///
/// # Errors
///
/// See [`WorkerError`].
pub fn run<E: Into<WorkloadError>>(
    options: Options,
    build: impl FnOnce(&Job, &Stages<'_>) -> Result<Box<dyn Workload>, E>,
) -> Result<(), WorkerError> {
    // The coordinator logs dialers without the token; a worker only shuts the door.
    let listener = Listener::bind(options.listen, &options.token, Arc::new(|_| {}))
        .map_err(system("listen for peers"))?;
    let pair = || wake_pair().map_err(system("make a waker"));
    let ((waker, wake), fed) = (pair()?, pair()?);
    let progress = Arc::new(Progress::default());
    progress.computes_here();
    let connection = connect(&options, &listener, waker, &progress)?;
    let welcome = welcomed(&connection)?;
    listener.set_number(welcome.worker);
    let job: CheckedJob = serde_json::from_str(&welcome.job)
        .map_err(|e| WorkerError::Task(format!("the coordinator's job cannot be read: {e}")))?;
    let fail = |error: WorkloadError| {
        let what = error.to_string();
        // The coordinator is to know in which stage it failed.
        connection.say(FromWorker::At(progress.position().0));
        connection.say(failure(error, (0, 0)));
        WorkerError::Task(what)
    };
    let connector = Connector { me: welcome.worker, token: options.token.clone(), inbox: listener.inbox() };
    // Before there is anything to compute, so that nothing disturbs it.
    if let Some(link) = measured_link(&connector, &welcome).map_err(fail)? {
        connection.say(link);
    }
    let slices = Slices::open(&welcome)
        .map_err(|error| fail(WorkloadError::new(format!("{error}; {}", error.hint()))))?;
    let stages = Stages::new(&progress, &connection.mailbox);
    let new = |workload| Engine::new(workload, &job, &options.token, welcome.worker, (wake, fed));
    let engine = warm(&job, &stages, build, new);
    let mut engine = match (engine, stages.farewell()) {
        (Ok(engine), _) => engine,
        // Whatever kept it from being ready, it is not waited for.
        (Err(_), Some((false, _))) => return Ok(()),
        (Err(_), Some((true, why))) => return Err(WorkerError::Refused(why)),
        (Err(error), None) => return Err(fail(error)),
    };
    connection.say(stages.took());
    engine.alternates = welcome.alternates;
    let description = WorkloadDescription::of(engine.workload.as_ref());
    connection.introduce(|identity| identity.workload = Some(description.clone()));
    connection.say(FromWorker::Warmed(description));
    let rules = rules(&job, engine.order.samples, slices.is_some());
    let worker = Worker {
        unit_rule: Optimizer::of_units(&job, rules.total_steps),
        member: Member::new(welcome.worker, rules),
        engine,
        connection,
        connector,
        data_address: welcome.data_address,
        prepared: Vec::new(),
        incoming: None,
        slices,
        uploads: Vec::new(),
        reporter: Reporter::new(),
        switch: None,
        boundary: Instant::now(),
        units: Units::new(&job),
        asynchronous: None,
        orphaned: false,
        doubt: Doubt::of(&job),
    };
    worker.run()
}

/// What a worker says of its link to the coordinator, where it is to measure that; a profile cannot do without.
fn measured_link(connector: &Connector, welcome: &Welcome) -> Result<Option<FromWorker>, WorkloadError> {
    if !welcome.measure_link {
        return Ok(None);
    }
    match connector.probe(&welcome.data_address) {
        Ok(link) => Ok(Some(link)),
        Err(why) if welcome.alternates => {
            Err(WorkloadError::new(format!("the link cannot be measured: {why}")))
        }
        Err(_) => Ok(None),
    }
}

/// Opens the session of a worker that peers reach at `listener`.
fn connect(
    options: &Options,
    listener: &Listener,
    waker: Waker,
    progress: &Arc<Progress>,
) -> Result<Connection, WorkerError> {
    let identity = Identity {
        worker: options.worker,
        address: listener.local_addr().to_string(),
        ..Identity::default()
    };
    Connection::start(
        options.coordinator.clone(),
        options.token.clone(),
        identity,
        (options.orphan_timeout, options.leashed.clone()),
        &options.notices,
        waker,
        Arc::clone(progress),
    )
    .map_err(system("start the session"))
}

/// What of the job decides what happens at a boundary.
fn rules(job: &Job, samples: u64, slices: bool) -> Rules {
    Rules {
        total_steps: job.total_steps(samples),
        evaluate_every: job.evaluation.every_steps,
        checkpoint_every: job.checkpoint.every_steps,
        slices: slices || job.sharding.is_some(),
        sharded: job.sharding.is_some(),
        verdict_every: job.verdict_every(),
        rounds: Rounds::of(job, job.total_steps(samples)),
        batches: job.mode.goodput().filter(|goodput| !goodput.schedule.is_empty()).cloned(),
    }
}

/// What the coordinator hears of a failed workload; the user's code failed at this step and virtual node.
fn failure(error: WorkloadError, (step, node): (u64, u32)) -> FromWorker {
    match error.is_user {
        true => FromWorker::UserFailed { what: error.what, step, node },
        false => FromWorker::Failed { what: error.what },
    }
}

/// Waits until the coordinator lets this worker in.
pub(crate) fn welcomed(connection: &Connection) -> Result<Welcome, WorkerError> {
    loop {
        connection.mailbox.wait(Duration::from_secs(1));
        match connection.mailbox.take_first() {
            Some(Event::Welcome(welcome)) => return Ok(welcome),
            Some(Event::Over { why, refused: true }) => return Err(WorkerError::Refused(why)),
            Some(Event::Over { why, .. }) => return Err(WorkerError::Orphaned(why)),
            _ => {}
        }
    }
}

struct Worker {
    member: Member,
    engine: Engine,
    connection: Connection,
    connector: Connector,
    data_address: String,
    /// Connections and memory for memberships that may begin.
    prepared: Vec<(u64, Preparation)>,
    incoming: Option<Arc<Incoming>>,
    /// Where slices of checkpoints are written, unless the coordinator writes them whole.
    slices: Option<Slices>,
    /// Parts of a checkpoint on their way to the coordinator.
    uploads: Vec<JoinHandle<()>>,
    reporter: Reporter,
    /// A switch that happened at this boundary, and whether this worker computed before it.
    switch: Option<(u64, bool)>,
    /// When the last step ended.
    boundary: Instant,
    /// How steps are cut into units, and what updates of single units are.
    units: Units,
    unit_rule: Optimizer,
    /// The phase that is trained without a membership.
    asynchronous: Option<Asynchronous>,
    /// No coordinator answers any more.
    orphaned: bool,
    doubt: Doubt,
}

impl Worker {
    fn run(mut self) -> Result<(), WorkerError> {
        loop {
            self.listen();
            let task = self.member.next_task();
            self.stand(&task);
            match &task {
                Task::Wait => {
                    // The coordinator may have to hear of a switch, or of the last step, before it ends this wait.
                    let awaited = self.reporter.is_urgent() || self.reporter.has_steps();
                    if awaited && (self.member.is_active() || self.member.is_shadow()) {
                        self.flush();
                    }
                    let began = Instant::now();
                    self.connection.mailbox.wait(Duration::from_millis(100));
                    if self.member.awaits_verdict() {
                        self.boundary += began.elapsed();
                    }
                }
                Task::Form { membership, load } => self.form(membership, *load),
                Task::BeginShadow => self.begin_shadow(),
                Task::CatchUp { source, behind, from, to } => self.catch_up(*source, behind, *from..*to),
                Task::Evaluate => self.evaluate(&task),
                Task::Checkpoint => self.checkpoint(),
                Task::Switch(membership) => self.switch(membership),
                Task::Hold => self.hold(&task),
                Task::Train => self.train(&task),
                Task::Finish => self.finish(),
                Task::Unit(unit) => self.unit(*unit),
                Task::EvaluateAlone(step) => self.evaluate_alone(*step),
                Task::HandOver(step) => self.hand_over(*step),
                Task::Idle => self.idle(),
                Task::Leave => {
                    let (epoch, step) = (self.member.membership().epoch, self.member.step());
                    self.finish_slices();
                    self.flush();
                    self.connection.say(FromWorker::Left { epoch, step });
                    return Ok(());
                }
                Task::Exit { reason, refused: true } => return Err(WorkerError::Refused(reason.clone())),
                Task::Exit { reason, .. } if self.orphaned => {
                    return Err(WorkerError::Orphaned(reason.clone()));
                }
                Task::Exit { .. } => return Ok(()),
            }
        }
    }

    /// Notes what this thread is about to do. What has parts notes each of them itself, and only them: what
    /// leads to the first takes no time, and would pass for how long they take.
    fn stand(&self, task: &Task) {
        let activity = match task {
            Task::Train | Task::Evaluate => return,
            Task::Wait | Task::BeginShadow | Task::Idle | Task::Leave | Task::Exit { .. } => Activity::Idle,
            Task::Form { .. } | Task::Switch(_) => Activity::Forming,
            Task::CatchUp { .. } | Task::Hold => Activity::Exchanging,
            Task::EvaluateAlone(_) => Activity::Evaluating,
            Task::Checkpoint | Task::Finish | Task::HandOver(_) => Activity::Checkpointing,
            Task::Unit(_) => Activity::Computing,
        };
        self.engine.stand(activity, self.member.membership().epoch, self.member.step());
    }

    /// Hands everything that arrived to the state machine.
    fn listen(&mut self) {
        self.engine.drain_wakes();
        for shadow in self.engine.newly_dead_shadows() {
            let epoch = self.member.membership().epoch;
            self.connection.say(FromWorker::ShadowLost { epoch, shadow });
        }
        for event in self.connection.mailbox.take() {
            let effects = match event {
                Event::Message(message) => {
                    if matches!(message, ToWorker::Recover { .. }) {
                        self.flush();
                    }
                    self.member.message(message)
                }
                Event::Disconnected => {
                    self.leave_asynchronous();
                    self.member.disconnected()
                }
                Event::Reconnected(data_address) => {
                    self.data_address = data_address;
                    self.member.reconnected();
                    self.reporter.resend();
                    self.tell_mismatch();
                    vec![]
                }
                Event::Prepared(membership, Ok(preparation)) => {
                    self.prepared.push((membership.epoch, preparation));
                    self.member.prepared(membership, Ok(()))
                }
                Event::Prepared(membership, Err(fault)) => self.member.prepared(membership, Err(fault)),
                Event::Stream => self.check_stream(),
                Event::Over { why, refused } => {
                    self.orphaned = !refused;
                    self.member.message(ToWorker::Bye { reason: why, refused })
                }
                Event::Welcome(_) => vec![],
            };
            self.carry_out(effects);
        }
        if !self.member.is_shadow()
            && let Some(incoming) = self.incoming.take()
        {
            incoming.close();
        }
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                // The main thread is here, so nothing runs that could be interrupted.
                Effect::Interrupt => {}
                Effect::Send(message) => self.connection.say(message),
                Effect::Prepare(membership) => self.prepare(membership),
            }
        }
        self.note_held();
    }

    /// Keeps what the session would say to a coordinator that came back.
    fn note_held(&self) {
        let held = self.member.held();
        self.connection.introduce(|identity| identity.held = held);
    }

    fn train(&mut self, task: &Task) {
        if let Some((epoch, survivor)) = self.switch.take() {
            let stall_s = if survivor { self.boundary.elapsed().as_secs_f64() } else { 0.0 };
            self.reporter.switched(SwitchRecord { epoch, step: self.member.step(), stall_s });
            // The coordinator should not have to wait for the step to know who is a member.
            self.flush();
        }
        self.look_at_slices();
        let (step, offer) = (self.member.step(), self.member.offer(task));
        let steps = step..step + self.member.update();
        let mailbox = Arc::clone(&self.connection.mailbox);
        match self.engine.train(steps.clone(), offer, self.incoming.as_deref(), &|| mailbox.urgent()) {
            Ok(round) => {
                self.member.round_done(task, &round.offers);
                self.doubt.is_over();
                let duration = self.boundary.elapsed();
                let duration_s = duration.as_secs_f64();
                self.boundary = Instant::now();
                self.engine.expect_step(duration);
                let Round { applied, times, .. } = round;
                let record = StepRecord { duration_s, ..record(&steps, &applied, times) };
                if self.member.is_active() {
                    self.reporter.step(record);
                }
                self.note_held();
                if !applied.is_finite {
                    let effects = self.member.not_finite("the updated state is not finite".into());
                    self.carry_out(effects);
                }
                let effects = self.check_stream();
                self.carry_out(effects);
                let (membership, step) = (self.member.membership(), self.member.step());
                self.reporter.flush_if_due(&self.connection, membership, step);
            }
            Err(fault) => self.fault(fault),
        }
    }

    fn hold(&mut self, task: &Task) {
        self.flush();
        let (began, waits) = (Instant::now(), self.member.awaits_verdict());
        self.look_at_slices();
        let (step, offer) = (self.member.step(), self.member.offer(task));
        match self.engine.hold(step, offer) {
            Ok(offers) => self.member.round_done(task, &offers),
            Err(fault) => self.fault(fault),
        }
        if waits {
            self.boundary += began.elapsed();
        }
    }

    fn fault(&mut self, fault: Fault) {
        let epoch = self.member.membership().epoch;
        let effects = match fault {
            Fault::Collective(peer, why) => {
                self.flush();
                self.member.failed(epoch, peer, why)
            }
            Fault::NotFinite(what) => self.member.not_finite(what),
            Fault::Mismatch(found) => return self.mismatched(&found),
            Fault::Lacking { shard } => {
                self.connection.say(FromWorker::Lacking { epoch, shard });
                self.member.failed(epoch, None, format!("virtual shard {shard} is lost"))
            }
            Fault::Workload(error, at) => {
                let reason = error.to_string();
                self.connection.say(failure(error, at.unwrap_or((self.member.step(), 0))));
                self.member.message(ToWorker::Bye { reason, refused: true })
            }
        };
        self.carry_out(effects);
    }

    fn finish(&mut self) {
        if !self.member.has_diverged() {
            self.last_checkpoint();
        }
        self.finish_upload();
        self.flush();
        match self.engine.digest(self.member.step()) {
            Ok(digest) => {
                let effects = self.member.finished(digest);
                self.carry_out(effects);
            }
            Err(fault) => self.fault(fault),
        }
    }

    fn flush(&mut self) {
        let (epoch, step) = (self.member.membership().epoch, self.member.step());
        self.reporter.flush(&self.connection, epoch, step);
    }
}
