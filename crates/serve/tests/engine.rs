//! The engine with processes that are played: what it wants of them, what clients see, and that a daemon that comes back
//! takes everything up.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bellwether_core::cluster::JobId;
use bellwether_core::job::{Job, WorkerRange};
use bellwether_core::parse;
use bellwether_serve::crew::{Crew, End, Report, Wanted};
use bellwether_serve::engine::{Ends, Engine, EngineError, Options};
use bellwether_serve::ledger::{Entry, Task, read};
use bellwether_serve::machine::Machine;
use bellwether_serve::request::{Refusal, RefusalKind, Reply, Request, Submission};
use bellwether_serve::snapshot::{JobState, Phase};
use bellwether_serve::state::State;
use tokio::sync::mpsc;

/// What the engine wanted last of each job, and all that it ever wanted.
#[derive(Debug, Default)]
struct Wishes {
    last: BTreeMap<JobId, Wanted>,
    all: Vec<Wanted>,
}

/// Processes that do nothing by themselves.
struct Played(Arc<Mutex<Wishes>>);

impl Crew for Played {
    fn want(&mut self, wanted: Wanted) {
        let mut wishes = self.0.lock().expect("no thread panics with it");
        wishes.all.push(wanted.clone());
        wishes.last.insert(wanted.job, wanted);
    }
}

/// A daemon in a thread.
struct Daemon {
    ends: Ends,
    wishes: Arc<Mutex<Wishes>>,
    thread: std::thread::JoinHandle<Result<(), EngineError>>,
    runtime: tokio::runtime::Runtime,
}

impl Daemon {
    fn start(folder: &Path, policy: Option<&str>, slots: u32) -> Daemon {
        let wishes = Arc::new(Mutex::new(Wishes::default()));
        let options = Options {
            folder: folder.into(),
            ledger: folder.join("ledger.jsonl"),
            machine: Some(Machine::slots(slots)),
            policy: policy.map(Into::into),
            time_scale: None,
            retries: 2,
            prepare: {
                let folder = folder.to_path_buf();
                Box::new(move |name, _| Ok(folder.join(name)))
            },
        };
        let crew = Played(wishes.clone());
        let opened = Engine::open(options, |_: mpsc::UnboundedSender<Report>| crew);
        let (engine, ends) = opened.expect("the ledger can be opened");
        let thread = std::thread::spawn(move || engine.run());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Daemon { ends, wishes, thread, runtime: runtime.expect("an event loop") }
    }

    fn ask(&self, request: Request) -> Result<Reply, Refusal> {
        self.runtime.block_on(self.ends.desk.ask(request))
    }

    fn submit(&self, name: &str, workers: &str) -> Result<Arc<JobState>, Refusal> {
        let reply = self.ask(Request::Submit(Box::new(submission(name, workers))))?;
        let Reply::Job { job, .. } = reply else { panic!("a submission is answered with a job") };
        Ok(job)
    }

    fn report(&self, report: Report) {
        self.ends.reports.send(report).expect("the engine lives");
    }

    fn job(&self, name: &str) -> Arc<JobState> {
        self.ends.desk.now().jobs.get(name).cloned().expect("the job is there")
    }

    fn wanted(&self, job: u32) -> Option<u32> {
        let wishes = self.wishes.lock().expect("no thread panics with it");
        wishes.last.get(&JobId(job)).map(|wanted| wanted.workers)
    }

    fn wishes(&self) -> usize {
        self.wishes.lock().expect("no thread panics with it").all.len()
    }

    /// Waits for what must come.
    fn until(&self, what: &str, is_so: impl Fn(&Daemon) -> bool) {
        let since = Instant::now();
        while !is_so(self) {
            assert!(since.elapsed() < Duration::from_secs(10), "{what}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn end(&self, job: u32, end: End, step: u64) {
        let (job, digest, why) = (JobId(job), Some("d1".into()), String::new());
        self.report(Report::Ended { job, end, why, step, digest, unix_s: 0.0 });
    }

    fn finish(&self, job: u32) {
        self.end(job, End::Finished, 100);
    }

    fn trains(&self, job: u32, workers: u32) {
        self.report(Report::Training { job: JobId(job), workers, unix_s: 0.0 });
    }

    fn stop(self) {
        self.ends.stop.send_replace(true);
        self.thread.join().expect("the engine does not panic").expect("and ends as it should");
    }
}

fn job(name: &str) -> Job {
    let text = format!(
        "name = \"{name}\"\nsteps = 100\n[model]\nkind = \"synthetic\"\nstep_time = \"10ms\"\nparameters = \"1KiB\"\n\
         [data]\nkind = \"indices\"\nsamples = 800\n[batch]\nsize = 8\nvirtual_nodes = 8\n\
         [optimizer]\nkind = \"sgd\"\nlearning_rate = 0.1\n"
    );
    parse::job(&text, "test", &[]).expect("a job")
}

fn submission(name: &str, workers: &str) -> Submission {
    Submission {
        job: job("test"),
        name: Some(name.into()),
        workers: Some(workers.parse::<WorkerRange>().expect("a range")),
        weight: 1.0,
        deadline_s: None,
        task: Task { training_samples: 800, bytes: 1024 },
        key: None,
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
    daemon.until("all is free", |d| d.ends.desk.now().cluster.free == 4);
    daemon.stop();
}

#[test]
fn users_suspend_resume_cancel_and_change_limits() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), Some("fifo"), 2);
    daemon.submit("a", "2").unwrap();
    daemon.submit("b", "1..2").unwrap();
    daemon.until("a starts", |d| d.wanted(0) == Some(2));
    daemon.trains(0, 2);
    daemon.until("it trains", |d| d.job("a").state == Phase::Running);
    let a = || "a".to_owned();
    daemon.ask(Request::Suspend { job: a() }).unwrap();
    daemon.until("a leaves", |d| d.wanted(0) == Some(0));
    daemon.until("clients see that", |d| d.job("a").state == Phase::Stopping);
    assert_eq!(daemon.wanted(1), None, "b waits until a's processes are gone");
    daemon.end(0, End::Stopped, 40);
    daemon.until("b starts then", |d| d.wanted(1) == Some(2));
    daemon.until("a is suspended", |d| d.job("a").state == Phase::Suspended && d.job("a").step == 40);
    daemon.ask(Request::Resume { job: a() }).unwrap();
    daemon.until("a waits behind b", |d| d.job("a").state == Phase::Queued);
    let workers = Some(WorkerRange { min: 1, max: 1 });
    daemon.ask(Request::Limit { job: "b".into(), workers, weight: None }).unwrap();
    assert_eq!(daemon.job("b").max_workers, 1);
    daemon.ask(Request::Cancel { job: "b".into() }).unwrap();
    daemon.until("b leaves", |d| d.wanted(1) == Some(0));
    daemon.end(1, End::Stopped, 3);
    daemon.until("b is gone, and a goes on", |d| d.wanted(0) == Some(2));
    daemon.until("b was cancelled", |d| d.job("b").state == Phase::Cancelled);
    daemon.finish(0);
    daemon.until("a is done", |d| d.job("a").state == Phase::Finished);
    let refusal = daemon.ask(Request::Suspend { job: a() }).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Conflict);
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
    assert_eq!(kind(Request::Suspend { job: "b".into() }), RefusalKind::Unknown);
    assert_eq!(kind(Request::Choose { policy: "fivo".into() }), RefusalKind::Invalid);
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
    daemon.until("its slots are free", |d| d.ends.desk.now().cluster.free == 2);
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
    daemon.ask(Request::Choose { policy: "priority".into() }).unwrap();
    daemon.stop();
    // The daemon died in the middle of a line.
    let ledger = folder.path().join("ledger.jsonl");
    let mut text = std::fs::read(&ledger).unwrap();
    text.extend_from_slice(b"{\"time_s\":99,\"entry\":\"sub");
    std::fs::write(&ledger, text).unwrap();

    let daemon = Daemon::start(folder.path(), None, 2);
    assert_eq!(daemon.ends.desk.now().cluster.policy, "priority");
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
        Ok(())
    };
    read(&ledger, each).unwrap();
    assert!(moments > 3 && state.is_some_and(|state| state.jobs.len() == 3));
}
