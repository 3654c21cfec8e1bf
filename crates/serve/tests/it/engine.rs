//! The engine with processes that are played: what it wants of them, what clients see, and that a daemon that comes
//! back takes everything up.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bellwether_core::cluster::JobId;
use bellwether_core::job::{CheckedJob, WorkerRange};
use bellwether_core::parse;
use bellwether_core::record::{Event, RunFailure, RunOutcome, StepRecord};
use bellwether_runtime::journal::Journal;
use bellwether_sched::policy::{About, fifo};
use bellwether_sched::registry::Registry;
use bellwether_serve::clock::{Clock, Inbox, SystemClock};
use bellwether_serve::engine::{Channels, Engine, EngineError, Options};
use bellwether_serve::ledger::{Entry, FileStore, Keep, Store, Task, read};
use bellwether_serve::machine::Machine;
use bellwether_serve::request::{Refusal, RefusalKind, Reply, Request, Submission};
use bellwether_serve::runner::{JobRunner, Processes, Report, Wanted};
use bellwether_serve::snapshot::{ClusterState, JobState, Phase};
use bellwether_serve::state::{LineError, State};
use bellwether_session::machines::ProviderKind;
use tokio::sync::mpsc;

/// What the engine wanted last of each job, and all that it ever wanted.
#[derive(Debug, Default)]
struct Wishes {
    last: BTreeMap<JobId, Wanted>,
    all: Vec<Wanted>,
    released: Vec<std::path::PathBuf>,
}

/// Processes that do nothing by themselves.
struct Played(Arc<Mutex<Wishes>>);

impl JobRunner for Played {
    fn want(&mut self, wanted: Wanted) {
        let mut wishes = self.0.lock().expect("no thread panics with it");
        wishes.all.push(wanted.clone());
        wishes.last.insert(wanted.job, wanted);
    }

    fn release(&mut self, runs: Vec<std::path::PathBuf>) {
        self.0.lock().expect("no thread panics with it").released.extend(runs);
    }
}

/// A daemon in a thread.
pub(crate) struct Daemon {
    ends: Channels,
    wishes: Arc<Mutex<Wishes>>,
    thread: std::thread::JoinHandle<Result<(), EngineError>>,
    runtime: tokio::runtime::Runtime,
}

/// A clock that is set by hand: time since some moment, and what the machine believes, in seconds since the Unix epoch.
#[derive(Clone)]
struct SetClock(Arc<Mutex<(Duration, f64)>>);

impl SetClock {
    fn set(&self, elapsed_s: u64, unix_s: f64) {
        *self.0.lock().expect("no thread panics with it") = (Duration::from_secs(elapsed_s), unix_s);
    }
}

impl Clock for SetClock {
    fn elapsed(&self) -> Duration {
        self.0.lock().expect("no thread panics with it").0
    }

    fn unix_s(&self) -> f64 {
        self.0.lock().expect("no thread panics with it").1
    }

    fn wait(&mut self, _inbox: &mut Inbox, _patience: Duration) {
        self.pause(Duration::from_millis(1));
    }

    fn pause(&mut self, _time: Duration) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl Daemon {
    pub(crate) fn start(folder: &Path, policy: Option<&str>, slots: u32) -> Daemon {
        Daemon::start_with(
            SystemClock::new().expect("the system gives what is needed"),
            folder,
            policy,
            slots,
        )
    }

    fn start_with(
        clock: impl Clock + Send + 'static,
        folder: &Path,
        policy: Option<&str>,
        slots: u32,
    ) -> Daemon {
        let store = Box::new(FileStore::new(folder.join("ledger.jsonl")));
        Daemon::start_on(clock, store, folder, policy, slots)
    }

    fn start_on(
        clock: impl Clock + Send + 'static,
        store: Box<dyn Store>,
        folder: &Path,
        policy: Option<&str>,
        slots: u32,
    ) -> Daemon {
        Daemon::start_as(options(folder, policy, slots), clock, store)
    }

    pub(crate) fn start_as(
        options: Options,
        clock: impl Clock + Send + 'static,
        store: Box<dyn Store>,
    ) -> Daemon {
        let wishes = Arc::new(Mutex::new(Wishes::default()));
        let runner = Played(wishes.clone());
        let opened = Engine::open_with(options, clock, store, |_: mpsc::UnboundedSender<Report>| runner);
        let (engine, ends) = opened.expect("the ledger can be opened");
        let thread = std::thread::spawn(move || engine.run());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Daemon { ends, wishes, thread, runtime: runtime.expect("an event loop") }
    }

    pub(crate) fn ask(&self, request: Request) -> Result<Reply, Refusal> {
        self.runtime.block_on(self.ends.engine.ask(request))
    }

    pub(crate) fn submit(&self, name: &str, workers: &str) -> Result<Arc<JobState>, Refusal> {
        let reply = self.ask(Request::Submit(Box::new(submission(name, workers))))?;
        let Reply::Job { job, .. } = reply else { panic!("a submission is answered with a job") };
        Ok(job)
    }

    pub(crate) fn report(&self, report: Report) {
        self.ends.reports.send(report).expect("the engine lives");
    }

    pub(crate) fn job(&self, name: &str) -> Arc<JobState> {
        self.ends.engine.now().jobs.get(name).cloned().expect("the job is there")
    }

    pub(crate) fn wanted(&self, job: u32) -> Option<u32> {
        let wishes = self.wishes.lock().expect("no thread panics with it");
        wishes.last.get(&JobId(job)).map(|wanted| wanted.workers)
    }

    /// Where a job's pods should be.
    pub(crate) fn places(&self, job: u32) -> BTreeMap<String, u32> {
        let wishes = self.wishes.lock().expect("no thread panics with it");
        wishes.last.get(&JobId(job)).and_then(|wanted| wanted.places.clone()).unwrap_or_default()
    }

    /// Who gives the machines of a job, and where it listens.
    pub(crate) fn asked_of(&self, job: u32) -> Option<(ProviderKind, Option<std::net::SocketAddr>)> {
        let wishes = self.wishes.lock().expect("no thread panics with it");
        wishes.last.get(&JobId(job)).and_then(|wanted| wanted.provision)
    }

    /// Runs that were to give back what they hold.
    pub(crate) fn released(&self) -> Vec<std::path::PathBuf> {
        self.wishes.lock().expect("no thread panics with it").released.clone()
    }

    pub(crate) fn wishes(&self) -> usize {
        self.wishes.lock().expect("no thread panics with it").all.len()
    }

    /// Waits for what must come.
    pub(crate) fn until(&self, what: &str, is_so: impl Fn(&Daemon) -> bool) {
        let since = Instant::now();
        while !is_so(self) {
            assert!(since.elapsed() < Duration::from_secs(10), "{what}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub(crate) fn end(&self, job: u32, outcome: RunOutcome, step: u64) {
        let (job, digest) = (JobId(job), Some("d1".into()));
        self.report(Report::Ended {
            job,
            outcome,
            ended_early: None,
            step,
            digest,
            unix_s: 0.0,
            limit: None,
            by: None,
        });
    }

    pub(crate) fn finish(&self, job: u32) {
        self.end(job, RunOutcome::Finished, 100);
    }

    pub(crate) fn trains(&self, job: u32, workers: u32) {
        self.report(Report::Training { job: JobId(job), workers, unix_s: 0.0 });
        self.report(Report::Settled { job: JobId(job), workers });
    }

    /// What clients see that each job is doing.
    pub(crate) fn phases(&self) -> BTreeMap<String, Phase> {
        self.ends.engine.now().jobs.iter().map(|(name, job)| (name.clone(), job.state)).collect()
    }

    /// The slots and who decides.
    pub(crate) fn cluster(&self) -> Arc<ClusterState> {
        self.ends.engine.now().cluster.clone()
    }

    /// The policy that decides.
    pub(crate) fn policy(&self) -> String {
        self.cluster().policy.clone()
    }

    pub(crate) fn stop(self) {
        self.ends.stop.send_replace(true);
        self.thread.join().expect("the engine does not panic").expect("and ends as it should");
    }
}

pub(crate) fn options(folder: &Path, policy: Option<&str>, slots: u32) -> Options {
    Options {
        folder: folder.into(),
        ledger: folder.join("ledger.jsonl"),
        machine: Some(Machine::slots(slots)),
        policy: policy.map(Into::into),
        queues: None,
        registry: Registry::built_in(),
        time_scale: None,
        retries: 2,
        remaining: None,
        compact_at: u64::MAX,
        outlook: None,
        tell: Box::new(|_| {}),
        prepare: {
            let folder = folder.to_path_buf();
            Box::new(move |submitted, _| Ok(folder.join(&submitted.name)))
        },
    }
}

fn job(name: &str) -> CheckedJob {
    let text = format!(
        "name = \"{name}\"\nsteps = 100\n[model]\nkind = \"synthetic\"\nstep_time = \"10ms\"\nparameters = \"1KiB\"\n\
         [data]\nkind = \"indices\"\nsamples = 800\n[batch]\nsize = 8\nvirtual_nodes = 8\n\
         [optimizer]\nkind = \"sgd\"\nlearning_rate = 0.1\n"
    );
    parse::job(&text, "test", &[]).expect("a job")
}

pub(crate) fn submission(name: &str, workers: &str) -> Submission {
    Submission {
        job: job("test"),
        name: Some(name.into()),
        workers: Some(workers.parse::<WorkerRange>().expect("a range")),
        weight: 1.0,
        deadline_s: None,
        task: Task { training_samples: 800, bytes: 1024 },
        profile: None,
        rates: Vec::new(),
        protocols: Vec::new(),
        servers: None,
        profile_first: false,
        key: None,
        queue: None,
        user: None,
        provision: None,
    }
}

#[test]
fn jobs_start_resize_and_end_as_the_policy_decides() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), Some("wfs"), 4);
    assert_eq!(daemon.submit("a", "1..4").unwrap().state, Phase::Queued);
    daemon.until("the first job gets all", |d| d.wanted(0) == Some(4));
    daemon.trains(0, 4);
    daemon.until("it trains", |d| d.job("a").state == Phase::Running);
    daemon.submit("b", "1..4").unwrap();
    daemon.until("the first job shrinks", |d| d.wanted(0) == Some(2));
    // The other starts only when slots are free.
    std::thread::sleep(Duration::from_millis(60));
    assert_eq!(daemon.wanted(1), None);
    daemon.trains(0, 2);
    daemon.until("then the second starts", |d| d.wanted(1) == Some(2));
    daemon.trains(1, 2);
    daemon.finish(0);
    daemon.until("who remains grows", |d| d.wanted(1) == Some(4));
    daemon.until("clients see the end", |d| d.job("a").state == Phase::Finished);
    assert_eq!(daemon.job("a").digest.as_deref(), Some("d1"));
    daemon.finish(1);
    daemon.until("all is over", |d| d.job("b").state == Phase::Finished);
    daemon.until("all is free", |d| d.ends.engine.now().cluster.free == 4);
    daemon.stop();
}

#[test]
fn what_a_busy_machine_taught_is_said_with_the_prediction() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), Some("fifo"), 2);
    daemon.submit("a", "2").unwrap();
    daemon.until("a starts", |d| d.wanted(0) == Some(2));
    daemon.trains(0, 2);
    let step =
        StepRecord { duration_s: 0.1, nodes_s: vec![0.02; 4], exchange_s: 0.01, ..StepRecord::default() };
    let (steps, processor_wait) = (vec![step; 20], Some(0.5));
    daemon.report(Report::Steps { job: JobId(0), workers: 2, speed: 1.0, steps, processor_wait });
    let says =
        |d: &Daemon, words: &str| d.job("a").predicted_beyond.as_ref().is_some_and(|why| why.contains(words));
    daemon.until("it is said", |d| says(d, "50 % of that time"));
    let (low, high) = (daemon.job("a").predicted_low.unwrap(), daemon.job("a").predicted_high.unwrap());
    assert!(low < 80.0 / 1.49 && high > 80.0 * 1.49, "{low} to {high}");
    daemon.finish(0);
    daemon.stop();
}

#[test]
fn a_job_that_switches_protocols_is_another_kind_from_then_on() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), Some("fifo"), 4);
    let mut wanted = submission("a", "2");
    wanted.job = wanted.job.edit(|job| job.sync.policy = "switch:0.5".parse().unwrap()).unwrap();
    daemon.ask(Request::Submit(Box::new(wanted))).unwrap();
    daemon.until("a starts", |d| d.wanted(0) == Some(2));
    daemon.trains(0, 2);
    let units = |step: u64, duration_s: f64| StepRecord {
        step,
        duration_s,
        unit_count: 8,
        workers: 2,
        ..StepRecord::default()
    };
    let synchronous = |step: u64| StepRecord { unit_count: 0, nodes_s: vec![0.02; 4], ..units(step, 0.1) };
    let tell = |steps: Vec<StepRecord>| {
        daemon.report(Report::Steps { job: JobId(0), workers: 2, speed: 1.0, steps, processor_wait: None });
    };
    tell((20..40).map(synchronous).collect());
    daemon.until("it is predicted by its steps", |d| {
        d.job("a").predicted_examples_per_s.is_some_and(|rate| (rate - 80.0).abs() < 0.1)
    });
    // A lesson across the switch teaches two kinds.
    daemon.report(Report::Progress {
        job: JobId(0),
        step: 70,
        since: Duration::ZERO,
        loss: None,
        examples_per_s: Some(160.0),
    });
    std::thread::sleep(Duration::from_millis(1100));
    tell((45..50).map(synchronous).chain((50..70).map(|step| units(step, 0.05))).collect());
    daemon.until("what follows is predicted by what follows", |d| {
        d.job("a").predicted_examples_per_s.is_some_and(|rate| (rate - 160.0).abs() < 0.1)
    });
    daemon.finish(0);
    daemon.stop();
}

#[test]
fn bad_wishes_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), Some("srtf"), 2);
    daemon.submit("a", "1").unwrap();
    let kind = |request| daemon.ask(request).unwrap_err().kind;
    assert_eq!(daemon.submit("a", "1").unwrap_err().kind, RefusalKind::Conflict);
    assert_eq!(daemon.submit("wide", "3..8").unwrap_err().kind, RefusalKind::Invalid);
    assert_eq!(daemon.submit("../etc", "1").unwrap_err().kind, RefusalKind::Invalid);
    assert_eq!(daemon.submit("many", "1..9").unwrap_err().kind, RefusalKind::Invalid);
    assert_eq!(kind(Request::Suspend { job: "b".into(), by: "its user".into() }), RefusalKind::Unknown);
    assert_eq!(kind(Request::Choose { policy: "fivo".into(), by: "its user".into() }), RefusalKind::Invalid);
    let text = std::fs::read_to_string(folder.path().join("ledger.jsonl")).unwrap();
    assert_eq!(text.matches("\"submitted\"").count(), 1);
    let twice = Submission { key: Some("k".into()), name: None, ..submission("x", "1") };
    let first = daemon.ask(Request::Submit(Box::new(twice.clone()))).unwrap();
    let again = daemon.ask(Request::Submit(Box::new(twice))).unwrap();
    let (Reply::Job { job: first, created: true }, Reply::Job { job: again, created: false }) =
        (first, again)
    else {
        panic!("the second is the first")
    };
    assert_eq!((first.name.as_str(), again.name.as_str()), ("test-1", "test-1"));
    daemon.stop();
}

#[test]
fn a_policy_of_ones_own_decides_and_is_offered() {
    let about = About { name: "mine", ..fifo::STRICT };
    let mut registry = Registry::built_in();
    registry.register(about).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let own = Options { registry, ..options(folder.path(), Some("mine"), 2) };
    let store = Box::new(FileStore::new(own.ledger.clone()));
    let daemon = Daemon::start_as(own, SystemClock::new().unwrap(), store);
    daemon.submit("a", "2").unwrap();
    daemon.until("it starts", |d| d.wanted(0) == Some(2));
    let chosen =
        |policy: &str| daemon.ask(Request::Choose { policy: policy.into(), by: "its user".into() }).is_ok();
    assert!(chosen("srtf") && chosen("mine") && !chosen("another"));
    daemon.stop();
    // A daemon that does not know it refuses to begin.
    let unknown = Options { machine: None, ..options(folder.path(), None, 2) };
    let error = Engine::open(unknown, |_| Played(Arc::default())).err().unwrap();
    assert!(error.to_string().contains("`mine`"), "{error}");
}

#[test]
fn a_failing_job_is_tried_again_and_then_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), Some("fifo"), 2);
    daemon.submit("a", "2").unwrap();
    for tries in 1..=3 {
        daemon.until("it is tried", |d| d.wishes() == tries);
        daemon.report(Report::Lost { job: JobId(0), why: "no such file: x.csv".into() });
    }
    daemon.until("it is given up", |d| d.job("a").state == Phase::Failed);
    assert_eq!(daemon.job("a").why, "no such file: x.csv");
    daemon.until("its slots are free", |d| d.ends.engine.now().cluster.free == 2);
    daemon.stop();
}

#[test]
fn a_kill_by_policy_is_no_failure_of_the_job() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), Some("fifo"), 2);
    daemon.submit("a", "2").unwrap();
    let killed = || Report::Lost { job: JobId(0), why: "it did not leave within 30 s and was killed".into() };
    // More often than a job may fail.
    for _ in 0..4 {
        daemon.until("it starts", |d| d.wanted(0) == Some(2));
        daemon.trains(0, 2);
        daemon.until("it trains", |d| d.job("a").state == Phase::Running);
        daemon.ask(Request::Suspend { job: "a".into(), by: "its user".into() }).unwrap();
        daemon.until("it should leave", |d| d.wanted(0) == Some(0));
        daemon.report(killed());
        daemon.until("it is suspended", |d| d.job("a").state == Phase::Suspended);
        let job = daemon.job("a");
        assert_eq!(job.failures, 0);
        assert!(job.why.contains("suspended by its user") && job.why.contains("was killed"), "{}", job.why);
        daemon.ask(Request::Resume { job: "a".into() }).unwrap();
    }
    daemon.until("it starts once more", |d| d.wanted(0) == Some(2));
    // One that was not told to leave failed.
    daemon.report(killed());
    daemon.until("that counts", |d| d.job("a").failures == 1);
    daemon.until("it is tried again", |d| d.wishes() == 10);
    daemon.ask(Request::Cancel { job: "a".into() }).unwrap();
    daemon.until("it should leave", |d| d.wanted(0) == Some(0));
    daemon.report(killed());
    daemon.until("it was cancelled", |d| d.job("a").state == Phase::Cancelled);
    daemon.stop();
}

#[test]
fn a_daemon_that_comes_back_takes_everything_up() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), Some("fifo_skip"), 2);
    daemon.submit("a", "1").unwrap();
    daemon.until("a runs", |d| d.wanted(0) == Some(1));
    daemon.submit("wide", "2").unwrap();
    daemon.submit("c", "1").unwrap();
    daemon.until("two run", |d| d.wanted(2) == Some(1));
    daemon.trains(0, 1);
    daemon.ask(Request::Choose { policy: "priority".into(), by: "its user".into() }).unwrap();
    daemon.stop();
    // The daemon died in the middle of a line.
    let ledger = folder.path().join("ledger.jsonl");
    let mut text = std::fs::read(&ledger).unwrap();
    text.extend_from_slice(b"{\"time_s\":99,\"entry\":\"sub");
    std::fs::write(&ledger, text).unwrap();

    let daemon = Daemon::start(folder.path(), None, 2);
    assert_eq!(daemon.ends.engine.now().cluster.policy, "priority");
    daemon.until("processes are taken over", |d| d.wanted(0) == Some(1) && d.wanted(2) == Some(1));
    assert_eq!(daemon.wanted(1), None);
    daemon.finish(2);
    daemon.finish(0);
    daemon.until("who waited starts", |d| d.wanted(1) == Some(2));
    daemon.stop();
    let (mut state, mut moments) = (None::<State>, 0);
    let each = |line: bellwether_serve::ledger::Line| {
        moments += u32::from(matches!(line.entry, Entry::Moment { .. }));
        match &mut state {
            None => state = Some(State::open(&line)?),
            Some(state) => state.apply(&line)?,
        }
        Ok::<_, LineError>(())
    };
    read(&ledger, each).unwrap();
    assert!(moments > 3 && state.is_some_and(|state| state.jobs.len() == 3));
}

/// Entries of a ledger with their times.
fn lines(folder: &Path) -> Vec<(f64, Entry)> {
    let mut lines = Vec::new();
    let each = |line: bellwether_serve::ledger::Line| {
        lines.push((line.time_s, line.entry));
        Ok::<_, LineError>(())
    };
    read(&folder.join("ledger.jsonl"), each).expect("the ledger is possible");
    lines
}

#[test]
fn a_clock_that_is_set_moves_no_time() {
    const SINCE_S: f64 = 1.7e9;
    let folder = tempfile::tempdir().unwrap();
    let clock = SetClock(Arc::new(Mutex::new((Duration::from_secs(500), SINCE_S))));
    let daemon = Daemon::start_with(clock.clone(), folder.path(), Some("fifo"), 2);
    daemon.submit("a", "1").unwrap();
    let since_s = |daemon: &Daemon| daemon.ends.engine.now().cluster.since_s;
    assert_eq!((since_s(&daemon), daemon.job("a").submitted_s), (SINCE_S, SINCE_S));
    // An hour forward while 20 s pass: the clock was set.
    clock.set(520, SINCE_S + 3620.0);
    daemon.until("times are read again", |d| since_s(d) == SINCE_S + 3600.0);
    assert_eq!(daemon.job("a").submitted_s, SINCE_S + 3600.0, "it is 20 s ago");
    daemon.submit("b", "1").unwrap();
    // And back again.
    clock.set(540, SINCE_S + 40.0);
    daemon.until("times are read again", |d| since_s(d) == SINCE_S);
    daemon.submit("c", "1").unwrap();
    daemon.stop();
    // The next daemon finds a clock that was set back, on a machine that was restarted: time goes on.
    clock.set(3, SINCE_S - 1000.0);
    let daemon = Daemon::start_with(clock.clone(), folder.path(), None, 2);
    daemon.submit("d", "1").unwrap();
    assert_eq!(daemon.job("d").submitted_s, SINCE_S - 1000.0);
    daemon.stop();
    // And one that is later: for that long no daemon looked.
    clock.set(5, SINCE_S - 900.0);
    let daemon = Daemon::start_with(clock, folder.path(), None, 2);
    daemon.submit("e", "1").unwrap();
    daemon.stop();
    let lines = lines(folder.path());
    let submitted = lines.iter().filter(|(_, entry)| matches!(entry, Entry::Submitted(_)));
    let submitted: Vec<f64> = submitted.map(|(time_s, _)| *time_s).collect();
    assert_eq!(submitted, [0.0, 20.0, 40.0, 40.0, 140.0]);
    let corrected = lines.iter().filter_map(|(_, entry)| match entry {
        Entry::ClockCorrected { by_s, .. } => Some(*by_s),
        _ => None,
    });
    assert_eq!(corrected.collect::<Vec<f64>>(), [3600.0, -3600.0, -1040.0]);
}

/// A file on a disk that is full when it is told so.
struct FullStore {
    file: FileStore,
    full: Arc<AtomicBool>,
}

impl Store for FullStore {
    fn read(&mut self) -> io::Result<Box<dyn Read>> {
        self.file.read()
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.file.cut(bytes)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.full.load(Ordering::Relaxed) {
            // A part finds room.
            self.file.append(&bytes[..bytes.len() / 2])?;
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.file.append(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }

    fn replace(&mut self, bytes: &[u8], keep: Keep) -> io::Result<String> {
        self.file.replace(bytes, keep)
    }
}

#[test]
fn a_full_disk_is_waited_for_and_costs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let full = Arc::new(AtomicBool::new(false));
    let store = FullStore { file: FileStore::new(folder.path().join("ledger.jsonl")), full: full.clone() };
    let clock = SystemClock::new().unwrap();
    let daemon = Daemon::start_on(clock, Box::new(store), folder.path(), Some("fifo_skip"), 2);
    daemon.submit("a", "1").unwrap();
    daemon.until("it starts", |d| d.wanted(0) == Some(1));
    full.store(true, Ordering::Relaxed);
    let keyed = Submission { key: Some("k".into()), ..submission("b", "1") };
    for _ in 0..3 {
        let refusal = daemon.ask(Request::Submit(Box::new(keyed.clone()))).unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::Unavailable);
        assert!(refusal.error.to_string().contains("ledger.jsonl"), "{}", refusal.error);
    }
    // What is reported meanwhile is taken in later.
    daemon.trains(0, 1);
    daemon.finish(0);
    assert_eq!(daemon.wishes(), 1, "nothing begins that is not written");
    full.store(false, Ordering::Relaxed);
    daemon.until("what was asked for is done", |d| d.wanted(1) == Some(1));
    daemon.until("nothing is lost", |d| d.job("a").state == Phase::Finished);
    let again = daemon.ask(Request::Submit(Box::new(keyed))).unwrap();
    assert!(matches!(again, Reply::Job { created: false, .. }), "once");
    daemon.finish(1);
    daemon.until("all goes on", |d| d.job("b").state == Phase::Finished);
    daemon.stop();
    assert!(lines_are_possible(folder.path()));
    // A daemon that is to end does not wait for room; what was acknowledged is there.
    full.store(true, Ordering::Relaxed);
    let store = FullStore { file: FileStore::new(folder.path().join("ledger.jsonl")), full };
    let opened = Engine::open_with(
        options(folder.path(), None, 2),
        SystemClock::new().unwrap(),
        Box::new(store),
        |_| Played(Arc::default()),
    );
    assert!(opened.is_err(), "a daemon that cannot write does not begin");
    assert!(lines_are_possible(folder.path()));
}

#[test]
fn slots_are_free_when_processes_have_left_and_not_before() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), Some("wfs"), 4);
    let trains = |workers| daemon.report(Report::Training { job: JobId(0), workers, unix_s: 0.0 });
    daemon.submit("a", "1..4").unwrap();
    daemon.until("it gets all", |d| d.wanted(0) == Some(4));
    // Two of four train so far, the others start, when it is to be two.
    trains(2);
    daemon.until("it trains", |d| d.job("a").workers == 2);
    daemon.submit("b", "1..4").unwrap();
    daemon.until("it shrinks", |d| d.wanted(0) == Some(2));
    trains(2);
    daemon.report(Report::Settled { job: JobId(0), workers: 4 });
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!((daemon.wanted(1), daemon.ends.engine.now().cluster.free), (None, 0));
    daemon.report(Report::Settled { job: JobId(0), workers: 2 });
    daemon.until("then the others start", |d| d.wanted(1) == Some(2));
    daemon.stop();
}

/// A failure of a run.
fn failure() -> RunOutcome {
    RunOutcome::Failed(RunFailure::Other("no worker comes up".into()))
}

#[test]
fn a_failure_that_is_known_is_told_to_the_one_that_starts_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), Some("fifo"), 2);
    daemon.submit("a", "2").unwrap();
    daemon.until("it starts", |d| d.wanted(0) == Some(2));
    let (job, outcome, step, unix_s) = (JobId(0), failure(), 5, 7.0);
    daemon.report(Report::Ended {
        job,
        outcome,
        ended_early: None,
        step,
        digest: None,
        unix_s,
        limit: None,
        by: None,
    });
    daemon.until("it is tried again", |d| d.wishes() == 2);
    let known = |daemon: &Daemon| daemon.wishes.lock().unwrap().last[&JobId(0)].known_end_unix_s;
    assert_eq!(known(&daemon), Some(7.0));
    daemon.stop();
    // The next daemon knows of it too, so it is not counted twice.
    let daemon = Daemon::start(folder.path(), None, 2);
    daemon.until("it is taken up", |d| d.wanted(0) == Some(2));
    assert_eq!((known(&daemon), daemon.job("a").failures), (Some(7.0), 1));
    daemon.stop();
}

#[test]
fn a_failure_is_told_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::open(&folder.path().join("journal.jsonl")).unwrap();
    let began = Event::CoordinatorStarted { process: 1, version: String::new(), resumed: false };
    journal.write(100.0, &began).unwrap();
    journal.write(200.0, &Event::Ended { step: 7, outcome: failure(), params_digest: None }).unwrap();
    // What the runner of a daemon says that wants nothing of the run but that it leaves.
    let told = |known_end_unix_s| {
        let (tell, told) = std::sync::mpsc::channel();
        let mut runner = Processes::new("/no/such/program".into(), move |report| drop(tell.send(report)));
        let run = folder.path().to_path_buf();
        runner.want(Wanted {
            provision: None,
            job: JobId(1),
            run,
            workers: 0,
            servers: 0,
            speed: 1.0,
            places: None,
            profiles: false,
            begins: true,
            known_end_unix_s,
        });
        match told.recv_timeout(Duration::from_secs(30)) {
            Ok(Report::Ended { outcome, step: 7, .. }) => outcome,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(told(None), failure());
    assert_eq!(told(Some(100.0)), failure(), "it went on after that end, and failed then");
    assert_eq!(told(Some(200.0)), RunOutcome::Stopped, "that it failed is known");
}

/// A ledger with a job that trains, one that waits and one that has ended.
fn a_ledger(folder: &Path) -> String {
    let daemon = Daemon::start(folder, Some("fifo_skip"), 2);
    daemon.submit("done", "1").unwrap();
    daemon.until("it starts", |d| d.wanted(0) == Some(1));
    daemon.finish(0);
    daemon.until("it ends", |d| d.job("done").state == Phase::Finished);
    daemon.submit("a", "2").unwrap();
    daemon.until("it starts", |d| d.wanted(1) == Some(2));
    daemon.trains(1, 2);
    daemon.until("it trains", |d| d.job("a").state == Phase::Running);
    daemon.submit("b", "1").unwrap();
    daemon.stop();
    std::fs::read_to_string(folder.join("ledger.jsonl")).unwrap()
}

#[test]
fn a_damaged_line_in_the_ledger_costs_that_line() {
    let folder = tempfile::tempdir().unwrap();
    let text = a_ledger(folder.path());
    let ledger = folder.path().join("ledger.jsonl");
    let lines: Vec<&str> = text.lines().collect();
    for place in 1..lines.len() {
        let without = [&lines[..place], &lines[place + 1..]].concat().join("\n");
        let half = &lines[place][..lines[place].len() / 2];
        let torn = [&lines[..place], &[half], &lines[place + 1..]].concat().join("\n");
        let glued =
            [&lines[..place], &[&format!("{half}{}", lines[place])], &lines[place + 1..]].concat().join("\n");
        for damaged in [without, torn, glued] {
            std::fs::write(&ledger, format!("{damaged}\n")).unwrap();
            // A ledger that lost the choice of a policy does not know who decides.
            let daemon = Daemon::start(folder.path(), Some("fifo_skip"), 2);
            let jobs = daemon.ends.engine.now().jobs.clone();
            let lost = (3 - jobs.size(), lines[place].contains("\"submitted\""));
            assert!(matches!(lost, (0, _) | (1, true)), "line {place}: {:?}", jobs.keys());
            let repaired = std::fs::read_to_string(&ledger).unwrap().contains("\"repaired\"");
            for (name, job) in jobs.iter().filter(|(_, job)| repaired && !job.state.has_ended()) {
                let number = ["done", "a", "b"].iter().position(|known| known == name).unwrap() as u32;
                assert_eq!(daemon.wanted(number), Some(0), "line {place}: {name} was {:?}", job.state);
            }
            // No job starts before all processes are gone that may be there.
            let wanted = daemon.wishes.lock().unwrap().all.iter().map(|wanted| wanted.workers).max();
            assert!(!repaired || wanted.is_none_or(|workers| workers == 0), "line {place}: {wanted:?}");
            let seen = Cell::new(0);
            daemon.until("a trains in the end", |d| {
                // All who should leave do, once each. Where `b` has left before `a`, it comes first, and is soon done.
                let wishes = d.wishes.lock().unwrap().all.clone();
                for wanted in wishes.iter().skip(seen.replace(wishes.len())) {
                    match (wanted.job.0, wanted.workers) {
                        (0, 0) | (2, 1) => d.end(wanted.job.0, RunOutcome::Finished, 100),
                        (number, 0) => d.end(number, RunOutcome::Stopped, 100),
                        _ => {}
                    }
                }
                d.wanted(1) == Some(2) || !jobs.contains_key("a")
            });
            daemon.stop();
            assert!(lines_are_possible(folder.path()), "line {place}");
        }
    }
    // As it was it is kept, each time.
    assert_eq!(
        std::fs::read_to_string(folder.path().join("ledger.jsonl.damaged-1")).unwrap().lines().next(),
        Some(lines[0])
    );
    // Without its first line it is nothing.
    std::fs::write(&ledger, lines[1..].join("\n") + "\n").unwrap();
    let options = options(folder.path(), Some("fifo"), 2);
    let Err(error) = Engine::open(options, |_| Played(Arc::default())) else { panic!("it has no slots") };
    assert!(error.to_string().contains("run --resume"), "{error}");
}

fn lines_are_possible(folder: &Path) -> bool {
    let mut state = None;
    read(&folder.join("ledger.jsonl"), |line| State::fold(&mut state, &line)).is_ok()
}
