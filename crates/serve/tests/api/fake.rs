//! An engine that only keeps a table, behind the seam of the true one.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};

use bellwether_core::InputError;
use bellwether_core::job::{Data, Job, WorkerRange};
use bellwether_sched::registry::Registry;
use bellwether_serve::api::{ApiOptions, Doors, Security, Serving, Sessions, serve};
use bellwether_serve::ledger::Task;
use bellwether_serve::request::{EngineHandle, Pending, Refusal, RefusalKind, Reply, Request, Submission};
use bellwether_serve::secret::Secret;
use bellwether_serve::snapshot::{ClusterState, DecisionState, JobState, NodeState, Phase, Snapshot, Span};
use tokio::sync::{mpsc, watch};

pub(crate) const SLOTS: u32 = 4;

/// Samples of a task whose data cannot be loaded.
pub(crate) const UNDESCRIBABLE: u64 = 13;

/// Samples of a task that shows a fault of ours.
pub(crate) const PANICKING: u64 = 14;

/// Samples of a task that takes as long to describe as the server's [`Gate`] is closed.
pub(crate) const SLOW: u64 = 15;

/// A request that describes slow tasks waits here.
#[derive(Default)]
pub(crate) struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
    /// Those who are waiting, and the most that ever were.
    waiting: Mutex<(u32, u32)>,
}

impl Gate {
    fn pass(&self) {
        {
            let mut waiting = self.waiting.lock().unwrap();
            *waiting = (waiting.0 + 1, waiting.1.max(waiting.0 + 1));
        }
        drop(self.opened.wait_while(self.open.lock().unwrap(), |open| !*open).unwrap());
        self.waiting.lock().unwrap().0 -= 1;
    }

    pub(crate) fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    /// Those who are waiting, and the most that ever were.
    pub(crate) fn waiting(&self) -> (u32, u32) {
        *self.waiting.lock().unwrap()
    }
}

/// An API over an engine that only keeps a table.
pub(crate) struct Server {
    pub(crate) serving: Option<Serving>,
    pub(crate) token: String,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) gate: Arc<Gate>,
    table: Arc<Mutex<Table>>,
}

struct Table {
    folder: PathBuf,
    keys: BTreeMap<String, String>,
    snapshots: watch::Sender<Arc<Snapshot>>,
    /// Wishes that were granted.
    granted: u64,
}

impl Server {
    /// One that takes its token on a port.
    pub(crate) fn start() -> Server {
        Server::secured_by(Security::Elsewhere)
    }

    pub(crate) fn secured_by(security: Security) -> Server {
        Server::changed_by(security, None)
    }

    /// One whose jobs are changed elsewhere, in this way.
    pub(crate) fn changed_by(security: Security, changed_by: Option<String>) -> Server {
        let folder = tempfile::tempdir().unwrap();
        let (requests, mut asked) = mpsc::unbounded_channel::<Pending>();
        let cluster = ClusterState {
            version: "0.1.0".into(),
            policy: "fifo".into(),
            slots: SLOTS,
            free: SLOTS,
            nodes: Arc::new(vec![NodeState {
                name: String::new(),
                down: None,
                device_type: "cpu".into(),
                speed: 1.0,
                slots: vec![None; SLOTS as usize],
                taken: 0,
            }]),
            time_scale: 1.0,
            ..ClusterState::default()
        };
        let first = Snapshot { version: 1, cluster: Arc::new(cluster), ..Snapshot::default() };
        let (sender, snapshots) = watch::channel(Arc::new(first));
        let table =
            Table { folder: folder.path().into(), keys: BTreeMap::new(), snapshots: sender, granted: 0 };
        let table = Arc::new(Mutex::new(table));
        let engine = table.clone();
        std::thread::spawn(move || {
            while let Some((request, answer)) = asked.blocking_recv() {
                let _ = answer.send(engine.lock().unwrap().grant(request));
            }
        });
        let token = Secret::parse(&"5a".repeat(32)).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let gate = Arc::<Gate>::default();
        let slow = gate.clone();
        let describe = move |job: &Job| match job.data {
            Data::Indices { samples: SLOW, .. } => {
                slow.pass();
                Ok(Task { training_samples: SLOW, bytes: 4096 })
            }
            Data::Indices { samples: UNDESCRIBABLE, .. } => {
                Err(InputError::new("data", "the file is not there").hint("put it there"))
            }
            Data::Indices { samples: PANICKING, .. } => panic!("a fault of ours"),
            _ => Ok(Task { training_samples: 1000, bytes: 4096 }),
        };
        let options = ApiOptions {
            users: Arc::default(),
            token: token.clone(),
            sessions: Arc::new(Sessions::default()),
            describe: Arc::new(describe),
            registry: Registry::built_in(),
            changed_by,
        };
        let socket = UnixListener::bind(folder.path().join("socket")).unwrap();
        let doors = Doors { socket: Some(socket), web: listener, security };
        let serving = serve(doors, EngineHandle { requests, snapshots }, options).unwrap();
        Server { serving: Some(serving), token: token.to_text(), folder, gate, table }
    }

    pub(crate) fn address(&self) -> std::net::SocketAddr {
        self.serving.as_ref().unwrap().address()
    }

    pub(crate) fn granted(&self) -> u64 {
        self.table.lock().unwrap().granted
    }

    pub(crate) fn now(&self) -> Arc<Snapshot> {
        self.table.lock().unwrap().snapshots.borrow().clone()
    }

    /// Changes what clients see.
    pub(crate) fn publish(&self, change: impl FnOnce(&mut Snapshot)) {
        self.table.lock().unwrap().publish(change);
    }

    /// Puts `count` queued jobs into the table, named `x-0` and so on.
    pub(crate) fn fill(&self, count: usize) {
        let mut table = self.table.lock().unwrap();
        let folder = table.folder.clone();
        table.publish(|snapshot| {
            for number in 0..count {
                let job = job(&format!("x-{number}"), &folder);
                snapshot.order.push_back_mut(job.name.clone());
                snapshot.jobs.insert_mut(job.name.clone(), Arc::new(job));
            }
        });
    }

    /// Puts a job into another state.
    pub(crate) fn set(&self, name: &str, state: Phase) {
        self.publish(|snapshot| Arc::make_mut(snapshot.jobs.get_mut(name).unwrap()).state = state);
    }

    /// The folder of a job's run, made if it is not there.
    pub(crate) fn run(&self, name: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    }
}

pub(crate) fn job(name: &str, folder: &Path) -> JobState {
    JobState {
        queue: None,
        user: None,
        provider: None,
        name: name.into(),
        state: Phase::Queued,
        why: String::new(),
        submitted_s: 1e9,
        started_s: None,
        ended_s: None,
        expected_end_s: None,
        outlook: None,
        deadline_s: None,
        weight: 1.0,
        min_workers: 1,
        max_workers: 2,
        workers: 0,
        target_workers: 0,
        servers: 0,
        fits: Vec::new(),
        ways: Vec::new(),
        step: 0,
        total_steps: 100,
        loss: None,
        examples_per_s: None,
        predicted_examples_per_s: Some(10.0),
        predicted_low: Some(5.0),
        predicted_high: Some(15.0),
        predicted_beyond: None,
        preemptions: 0,
        failures: 0,
        worker_s: 0.0,
        digest: None,
        run_dir: folder.join(name),
    }
}

pub(crate) fn decision(number: u64) -> DecisionState {
    DecisionState {
        number,
        time_s: 1e9,
        policy: "fifo".into(),
        reason: "a job came".into(),
        actions: Vec::new(),
        deciding_s: 1e-4,
    }
}

pub(crate) fn span(job: &str, slot: u32, start_s: f64, end_s: Option<f64>) -> Span {
    Span { job: job.into(), node: 0, slot, start_s, end_s }
}

fn refuse(kind: RefusalKind, what: String) -> Refusal {
    Refusal { kind, error: InputError::new("job", what).hint("ask for something else") }
}

impl Table {
    fn publish(&mut self, change: impl FnOnce(&mut Snapshot)) {
        let mut now = (**self.snapshots.borrow()).clone();
        change(&mut now);
        now.version += 1;
        let mut counts = BTreeMap::new();
        for job in now.jobs.values() {
            *counts.entry(job.state).or_insert(0) += 1;
        }
        Arc::make_mut(&mut now.cluster).jobs = counts;
        self.snapshots.send_replace(Arc::new(now));
    }

    fn grant(&mut self, request: Request) -> Result<Reply, Refusal> {
        let reply = match request {
            Request::Submit(submission) => self.submit(*submission),
            Request::Limit { job, workers, weight } => {
                if workers.is_some_and(|workers| workers.min > SLOTS) {
                    return Err(refuse(RefusalKind::Invalid, "it is wider than the machine".into()));
                }
                self.change(&job, |job| {
                    if let Some(WorkerRange { min, max }) = workers {
                        (job.min_workers, job.max_workers) = (min, max);
                    }
                    job.weight = weight.unwrap_or(job.weight);
                    Ok(())
                })
            }
            Request::Suspend { job, .. } => self.change(&job, |job| {
                job.state = Phase::Suspended;
                Ok(())
            }),
            Request::Resume { job } => self.change(&job, |job| {
                let waits = std::mem::replace(&mut job.state, Phase::Queued) == Phase::Suspended;
                waits.then_some(()).ok_or_else(|| refuse(RefusalKind::Conflict, "it is not suspended".into()))
            }),
            Request::Cancel { job } => self.change(&job, |job| {
                job.state = Phase::Cancelled;
                Ok(())
            }),
            Request::Describe { job: name } => {
                let known = self.snapshots.borrow().jobs.contains_key(&name);
                let error = || refuse(RefusalKind::Unknown, format!("there is no job `{name}`"));
                let job = serde_json::from_value(crate::client::job(&name)).expect("a job file");
                known.then(|| Reply::Description(Box::new(job))).ok_or_else(error)
            }
            Request::Divide { queues, .. } => {
                self.publish(|now| now.queues = queues.clone().map(Arc::new));
                Ok(Reply::Queues(queues))
            }
            Request::Choose { policy, .. } => {
                let parsed = Registry::built_in().parse(&policy);
                parsed.map_err(|error| Refusal { kind: RefusalKind::Invalid, error })?;
                self.publish(|now| Arc::make_mut(&mut now.cluster).policy.clone_from(&policy));
                Ok(Reply::Policy(policy))
            }
        }?;
        self.granted += 1;
        Ok(reply)
    }

    fn submit(&mut self, asked: Submission) -> Result<Reply, Refusal> {
        let now = self.snapshots.borrow().clone();
        if let Some(name) = asked.key.as_ref().and_then(|key| self.keys.get(key)) {
            return Ok(Reply::Job { job: now.jobs[name].clone(), created: false });
        }
        let workers = asked.workers.unwrap_or(asked.job.workers);
        if workers.min > SLOTS {
            return Err(refuse(RefusalKind::Invalid, "it is wider than the machine".into()));
        }
        let name = asked.name.unwrap_or_else(|| format!("{}-{}", asked.job.name, now.order.len() + 1));
        if now.jobs.contains_key(&name) {
            return Err(refuse(RefusalKind::Conflict, format!("the name `{name}` is taken")));
        }
        assert_eq!(asked.task.training_samples, 1000);
        let mut job = job(&name, &self.folder);
        (job.queue, job.user) = (asked.queue, asked.user);
        (job.min_workers, job.max_workers, job.weight) = (workers.min, workers.max, asked.weight);
        job.deadline_s = asked.deadline_s.map(|deadline_s| 1e9 + deadline_s);
        let job = Arc::new(job);
        self.publish(|now| {
            now.order.push_back_mut(name.clone());
            now.jobs.insert_mut(name.clone(), job.clone());
        });
        self.keys.extend(asked.key.map(|key| (key, name)));
        Ok(Reply::Job { job, created: true })
    }

    fn change(
        &mut self,
        name: &str,
        change: impl FnOnce(&mut JobState) -> Result<(), Refusal>,
    ) -> Result<Reply, Refusal> {
        let unknown = || refuse(RefusalKind::Unknown, format!("there is no job `{name}`"));
        let mut job = (**self.snapshots.borrow().jobs.get(name).ok_or_else(unknown)?).clone();
        if job.state.has_ended() {
            return Err(refuse(RefusalKind::Conflict, format!("`{name}` has ended")));
        }
        change(&mut job)?;
        let job = Arc::new(job);
        self.publish(|now| {
            now.jobs.insert_mut(name.to_owned(), job.clone());
        });
        Ok(Reply::Job { job, created: false })
    }
}
