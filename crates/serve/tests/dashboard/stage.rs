//! The true HTTP API over an engine that plays: it notes every wish, grants most, and shows what a test puts on stage.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use bellwether_core::InputError;
use bellwether_serve::api::{ApiOptions, Doors, Security, Serving, Sessions, serve};
use bellwether_serve::ledger::Task;
use bellwether_serve::request::{EngineHandle, Pending, Refusal, RefusalKind, Reply, Request};
use bellwether_serve::secret::Secret;
use bellwether_serve::snapshot::{
    ActionState, ClusterState, DecisionState, JobOutlook, JobState, NodeState, Phase, Snapshot, Span, Times,
};
use serde_json::json;
use tokio::sync::{mpsc, watch};

/// Slots of the cluster.
const SLOTS: u32 = 4;

/// A name that would be a picture with a script if it were taken for markup.
pub(crate) const EVIL: &str = "<img src=x onerror=document.title=1>";

/// Seconds since the Unix epoch.
pub(crate) fn now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

/// The daemon, as far as a browser can see.
pub(crate) struct Stage {
    serving: Option<Serving>,
    address: SocketAddr,
    sessions: Arc<Sessions>,
    engine: EngineHandle,
    shown: Arc<Shown>,
    folder: tempfile::TempDir,
}

/// What is shown, and what was asked.
struct Shown {
    snapshots: watch::Sender<Arc<Snapshot>>,
    wishes: Mutex<Vec<Request>>,
}

impl Stage {
    /// A daemon without jobs.
    pub(crate) fn empty() -> Stage {
        let (requests, mut asked) = mpsc::unbounded_channel::<Pending>();
        let first = Snapshot { version: 1, cluster: Arc::new(cluster()), ..Snapshot::default() };
        let (sender, snapshots) = watch::channel(Arc::new(first));
        let shown = Arc::new(Shown { snapshots: sender, wishes: Mutex::default() });
        let engine = shown.clone();
        std::thread::spawn(move || {
            while let Some((request, answer)) = asked.blocking_recv() {
                let _ = answer.send(engine.grant(request));
            }
        });
        let sessions = Arc::default();
        let address = "127.0.0.1:0".parse().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut stage = Stage {
            serving: None,
            address,
            sessions,
            engine: EngineHandle { requests, snapshots },
            shown,
            folder,
        };
        stage.serve();
        stage
    }

    /// A daemon with five jobs in the middle of their work.
    pub(crate) fn five() -> Stage {
        let stage = Stage::empty();
        let now = now_s();
        let jobs = five_jobs(now, stage.folder.path());
        for job in &jobs {
            write_run(job, now);
        }
        stage.publish(|snapshot| {
            for job in jobs {
                add(snapshot, job);
            }
            snapshot.spans = Arc::new(spans(now));
            snapshot.decisions = Arc::new(decisions(now));
            let cluster = Arc::make_mut(&mut snapshot.cluster);
            cluster.free = 0;
            Arc::make_mut(&mut cluster.nodes)[0].slots =
                ["digits-wide", "digits-wide", "transformer", "resnet-lr3"]
                    .map(|name| Some(name.to_owned()))
                    .into();
        });
        stage
    }

    /// The same daemon with this many more jobs, most of which wait.
    pub(crate) fn with_more(count: usize) -> Stage {
        let stage = Stage::five();
        let folder = stage.folder.path().to_owned();
        stage.publish(|snapshot| {
            for number in 0..count {
                let mut job = job(&format!("sweep-{number:04}"), &folder);
                if number % 9 == 0 {
                    (job.state, job.started_s, job.ended_s) =
                        (Phase::Finished, Some(job.submitted_s), Some(now_s() - 60.0));
                    job.step = job.total_steps;
                } else {
                    job.why = "waits for 1 slot".into();
                }
                add(snapshot, job);
            }
        });
        stage
    }

    /// An address that opens the page, once.
    pub(crate) fn url(&self) -> String {
        format!("{}#code={}", self.bare_url(), self.sessions.code().unwrap())
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address without the code.
    pub(crate) fn bare_url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Another process in the daemon's place: it knows no session of the old one.
    pub(crate) fn restart(&mut self) {
        self.stop();
        self.sessions = Arc::default();
        self.serve();
    }

    /// Ends the server, not what it shows.
    pub(crate) fn stop(&mut self) {
        self.serving = None;
    }

    /// Starts it, where it was before.
    pub(crate) fn serve(&mut self) {
        let listener = TcpListener::bind(self.address).unwrap();
        let describe = Arc::new(|_: &_| Ok(Task { training_samples: 1, bytes: 1 }));
        let token = Secret::parse(&"5a".repeat(32)).unwrap();
        let registry = bellwether_sched::registry::Registry::built_in();
        let (users, sessions, changed_by) = (Arc::default(), self.sessions.clone(), None);
        let options = ApiOptions { token, users, sessions, describe, registry, changed_by };
        let doors = Doors { socket: None, web: listener, security: Security::Sessions };
        let serving = serve(doors, self.engine.clone(), options).unwrap();
        self.address = serving.address();
        self.serving = Some(serving);
    }

    /// What was asked since this was last called.
    pub(crate) fn wishes(&self) -> Vec<Request> {
        std::mem::take(&mut self.shown.wishes.lock().unwrap())
    }

    /// Changes what clients see.
    pub(crate) fn publish(&self, change: impl FnOnce(&mut Snapshot)) {
        self.shown.publish(change);
    }

    /// Changes a job.
    pub(crate) fn change(&self, name: &str, change: impl FnOnce(&mut JobState)) {
        self.publish(|snapshot| change(Arc::make_mut(snapshot.jobs.get_mut(name).unwrap())));
    }

    /// Accepts a job.
    pub(crate) fn accept(&self, name: &str) {
        let job = job(name, self.folder.path());
        self.publish(|snapshot| add(snapshot, job));
    }

    /// Writes a line into a log of a job's worker.
    pub(crate) fn log(&self, name: &str, line: &str) {
        let path = self.shown.snapshots.borrow().jobs[name].run_dir.join("worker-1.log");
        let text = fs::read_to_string(&path).unwrap_or_default();
        fs::write(path, format!("{text}{line}\n")).unwrap();
    }
}

impl Shown {
    fn publish(&self, change: impl FnOnce(&mut Snapshot)) {
        self.snapshots.send_modify(|snapshot| {
            let mut next = (**snapshot).clone();
            change(&mut next);
            next.version += 1;
            let mut counts = std::collections::BTreeMap::new();
            for job in next.jobs.values() {
                *counts.entry(job.state).or_insert(0) += 1;
            }
            Arc::make_mut(&mut next.cluster).jobs = counts;
            *snapshot = Arc::new(next);
        });
    }

    fn grant(&self, request: Request) -> Result<Reply, Refusal> {
        // The page asks that of every job that is opened.
        if !matches!(request, Request::Describe { .. }) {
            self.wishes.lock().unwrap().push(request.clone());
        }
        let (name, state) = match request {
            Request::Choose { policy, .. } => {
                self.publish(|snapshot| Arc::make_mut(&mut snapshot.cluster).policy = policy.clone());
                return Ok(Reply::Policy(policy));
            }
            Request::Suspend { job, .. } => (job, Phase::Suspended),
            Request::Resume { job } => (job, Phase::Queued),
            Request::Cancel { job } => (job, Phase::Cancelled),
            Request::Describe { job } => {
                let text = include_str!("../../../../examples/digits.toml");
                let rate = if job == "digits-1" { "0.5" } else { "0.1" };
                let set = [("optimizer.learning_rate".to_owned(), rate.to_owned())];
                let job = bellwether_core::parse::job(text, "digits.toml", &set).unwrap();
                return Ok(Reply::Description(Box::new(job.into_job())));
            }
            Request::Submit(_) | Request::Limit { .. } | Request::Divide { .. } => {
                let error = InputError::new("workers", "it is wider than the machine").hint("give 4 at most");
                return Err(Refusal { kind: RefusalKind::Invalid, error });
            }
        };
        self.publish(|snapshot| {
            let job = Arc::make_mut(snapshot.jobs.get_mut(&name).unwrap());
            (job.state, job.workers, job.target_workers) = (state, 0, 0);
            job.ended_s = state.has_ended().then(now_s);
        });
        Ok(Reply::Job { job: self.snapshots.borrow().jobs[&name].clone(), created: false })
    }
}

fn add(snapshot: &mut Snapshot, job: JobState) {
    snapshot.order.push_back_mut(job.name.clone());
    snapshot.jobs.insert_mut(job.name.clone(), Arc::new(job));
}

fn cluster() -> ClusterState {
    let node = NodeState {
        name: String::new(),
        down: None,
        device_type: "cpu".into(),
        speed: 1.0,
        slots: vec![None; SLOTS as usize],
        taken: 0,
    };
    ClusterState {
        version: "0.1.0".into(),
        since_s: now_s() - 1500.0,
        time_scale: 1.0,
        policy: "wfs".into(),
        nodes: Arc::new(vec![node]),
        slots: SLOTS,
        free: SLOTS,
        utilization: 0.87,
        ..ClusterState::default()
    }
}

/// A job that waits.
fn job(name: &str, folder: &Path) -> JobState {
    JobState {
        provider: None,
        queue: None,
        user: None,
        name: name.into(),
        state: Phase::Queued,
        why: String::new(),
        submitted_s: now_s() - 240.0,
        started_s: None,
        ended_s: None,
        expected_end_s: None,
        outlook: None,
        deadline_s: None,
        weight: 1.0,
        min_workers: 1,
        max_workers: 4,
        workers: 0,
        target_workers: 0,
        servers: 0,
        fits: Vec::new(),
        ways: Vec::new(),
        step: 0,
        total_steps: 5000,
        loss: None,
        examples_per_s: None,
        predicted_examples_per_s: None,
        predicted_low: None,
        predicted_high: None,
        predicted_beyond: None,
        preemptions: 0,
        failures: 0,
        worker_s: 0.0,
        digest: None,
        // Whatever it is called, its folder is in ours.
        run_dir: folder.join(name.replace(|letter: char| !letter.is_alphanumeric(), "-")),
    }
}

fn five_jobs(now: f64, folder: &Path) -> Vec<JobState> {
    let base = |name: &str, age_s: f64, step, total_steps| JobState {
        submitted_s: now - age_s,
        started_s: (step > 0).then_some(now - age_s + 4.0),
        step,
        total_steps,
        loss: (step > 0).then(|| loss(step)),
        worker_s: age_s * 1.4,
        ..job(name, folder)
    };
    let running =
        |job: JobState, workers, target_workers, measured: f64, predicted: f64, left_s: f64| JobState {
            state: Phase::Running,
            workers,
            target_workers,
            examples_per_s: Some(measured),
            predicted_examples_per_s: Some(predicted),
            predicted_low: Some(0.91 * predicted),
            predicted_high: Some(1.09 * predicted),
            predicted_beyond: None,
            expected_end_s: Some(now + left_s),
            ..job
        };
    let wide = running(base("digits-wide", 1310.0, 3120, 5000), 2, 2, 1893.0, 1968.0, 640.0);
    let wide = JobState { deadline_s: Some(now + 1530.0), preemptions: 1, ..wide };
    let transformer = running(base("transformer", 960.0, 410, 1200), 1, 2, 212.0, 395.0, 1475.0);
    let transformer = JobState { deadline_s: Some(now + 900.0), weight: 2.0, ..transformer };
    let resnet = running(base("resnet-lr3", 610.0, 660, 2400), 1, 1, 96.4, 94.1, 2910.0);
    let times = |low_s: f64, middle_s: f64, high_s: f64| Times {
        low_s: now + low_s,
        middle_s: Some(now + middle_s),
        high_s: Some(now + high_s),
    };
    let outlook = JobOutlook {
        waits_for: "it needs 1 slot, and none is free".into(),
        ahead: 0,
        ahead_names: Vec::new(),
        start: Some(times(570.5, 640.5, 700.5)),
        end: Some(times(3000.5, 3660.5, 4200.5)),
    };
    let waiting = JobState { outlook: Some(outlook), ..base("convnet-small", 95.0, 0, 3000) };
    let finished = JobState {
        state: Phase::Finished,
        ended_s: Some(now - 185.0),
        deadline_s: Some(now - 240.0),
        digest: Some("062db9dc2ab05fd12864e88fc1a1d61aab8baa12a55242a2144c010c1fdd5748".into()),
        ..base("digits-1", 1440.0, 920, 920)
    };
    vec![finished, wide, transformer, resnet, waiting]
}

fn loss(step: u64) -> f64 {
    0.14 + 2.2 * (-(step as f64) / 900.0).exp()
}

/// The folder of a run as its coordinator leaves it.
fn write_run(job: &JobState, now: f64) {
    let folder = &job.run_dir;
    fs::create_dir_all(folder).unwrap();
    let description =
        bellwether_core::parse::job(include_str!("../../../../examples/digits.toml"), "digits.toml", &[])
            .unwrap();
    fs::write(folder.join("job.json"), serde_json::to_string(&description).unwrap()).unwrap();
    let Some(started_s) = job.started_s else { return };
    let end = job.ended_s.unwrap_or(now);
    let (mut metrics, mut journal) = (String::new(), String::new());
    let mut line = |time_s: f64, event: serde_json::Value| {
        let mut event = event;
        event["time_s"] = time_s.into();
        journal += &format!("{event}\n");
    };
    line(
        started_s,
        json!({ "event": "coordinator_started", "process": 4711, "version": "0.1.0", "resumed": false }),
    );
    line(started_s + 0.4, json!({ "event": "worker_started", "worker": 1 }));
    let records = 300;
    for number in 0..records {
        let share = f64::from(number) / f64::from(records);
        let step = (share * job.step as f64) as u64;
        let workers = if share < 0.3 {
            1
        } else if share < 0.62 {
            3
        } else {
            job.workers.max(1)
        };
        // A wave instead of chance: the same picture every time.
        let wave = 1.0 + 0.03 * (f64::from(number) * 1.7).sin() + 0.02 * (f64::from(number) * 0.61).cos();
        let speed =
            job.examples_per_s.unwrap_or(1500.0) * f64::from(workers) / f64::from(job.workers.max(1)) * wave;
        let time_s = started_s + share * (end - started_s);
        let record = json!({
            "step": step, "loss": loss(step) * wave, "duration_s": 64.0 / speed, "compute_s": 48.0 / speed, "workers": workers,
        });
        metrics += &format!("{record}\n");
        line(time_s, json!({ "event": "committed", "first": step, "last": step }));
        if number % 50 == 49 {
            line(
                time_s,
                json!({ "event": "evaluated", "step": step, "loss": 1.15 * loss(step), "accuracy": 0.9 }),
            );
            line(
                time_s,
                json!({ "event": "checkpointed", "step": step, "path": "checkpoints", "bytes": 408064, "seconds": 0.006 }),
            );
        }
    }
    fs::write(folder.join("metrics.jsonl"), metrics).unwrap();
    fs::write(folder.join("journal.jsonl"), journal).unwrap();
}

fn spans(now: f64) -> Vec<Span> {
    let held = [
        ("digits-1", 0, 1436.0, 900.0),
        ("digits-wide", 0, 900.0, 0.0),
        ("digits-1", 1, 1436.0, 1306.0),
        ("digits-wide", 1, 1306.0, 420.0),
        ("resnet-lr3", 1, 418.0, 190.0),
        ("digits-wide", 1, 182.0, 0.0),
        ("digits-1", 2, 1300.0, 956.0),
        ("transformer", 2, 956.0, 0.0),
        ("digits-1", 3, 1100.0, 606.0),
        ("resnet-lr3", 3, 604.0, 240.0),
        ("digits-1", 3, 238.0, 185.0),
        ("resnet-lr3", 3, 181.0, 0.0),
    ];
    let span = |(job, slot, from, to): &(&str, u32, f64, f64)| Span {
        job: (*job).into(),
        node: 0,
        slot: *slot,
        start_s: now - from,
        end_s: (*to > 0.0).then_some(now - to),
    };
    held.iter().map(span).collect()
}

fn decisions(now: f64) -> Vec<DecisionState> {
    let action = |job: &str, from, to, expected: f64, measured: Option<f64>| ActionState {
        job: job.into(),
        from,
        to,
        refused: None,
        expected_examples_per_s: Some(expected),
        measured_examples_per_s: measured,
        took_s: measured.map(|_| 1.3),
    };
    let decision = |number, age_s: f64, reason: &str, actions| DecisionState {
        number,
        time_s: now - age_s,
        policy: "wfs".into(),
        reason: reason.into(),
        actions,
        deciding_s: 0.00031,
    };
    vec![
        decision(
            1,
            960.0,
            "transformer came: shares are 1 to 2",
            vec![
                action("digits-1", 3, 2, 1400.0, Some(1368.0)),
                action("transformer", 0, 1, 205.0, Some(212.0)),
            ],
        ),
        decision(
            2,
            610.0,
            "resnet-lr3 came: 4 slots for 4 jobs of weights 1, 1, 2, 1",
            vec![action("digits-1", 2, 1, 740.0, Some(722.0)), action("resnet-lr3", 0, 1, 94.1, Some(96.4))],
        ),
        decision(
            3,
            183.0,
            "digits-1 has finished: its slot goes to digits-wide, the furthest below its share",
            vec![action("digits-wide", 1, 2, 1968.0, Some(1893.0))],
        ),
        decision(
            4,
            6.0,
            "transformer is at risk of missing its deadline, and is the furthest below its share",
            vec![
                action("transformer", 1, 2, 395.0, None),
                ActionState {
                    refused: Some("it may have 1 worker at most".into()),
                    ..action("convnet-small", 0, 2, 0.0, None)
                },
            ],
        ),
    ]
}
