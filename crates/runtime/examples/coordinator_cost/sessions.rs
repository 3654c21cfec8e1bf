//! A coordinator in a process of its own, with a session for each worker.

use std::collections::BTreeMap;
use std::io;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use bellwether_core::parse;
use bellwether_core::plan::Synchronisation;
use bellwether_runtime::channel::{AsyncStream, ConnectionKind, Hello, Stream, dial};
use bellwether_runtime::control::generated::membership_client::MembershipClient;
use bellwether_runtime::control::{Token, convert, generated as wire};
use bellwether_runtime::coordinator::{self, MeasureLinks, Options};
use bellwether_runtime::membership::{FromWorker, Report, ToWorker, WorkerId, reporting};
use bellwether_runtime::run_dir::RunDir;
use hyper_util::rt::TokioIo;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::codegen::http::Uri;
use tonic::transport::Endpoint;

use super::workers::{NODES_EACH, heartbeat, report, workload};
use super::{FIRST_STEPS, Row, STEPS, rounded};

/// The first argument of the process that coordinates.
pub(super) const COORDINATE: &str = "coordinate";

/// Time between two looks at what the coordinator says, and at whose heart is to beat.
const LOOK: Duration = Duration::from_millis(10);

/// The thread that reads all sessions.
const PLANE: &str = "control-plane";

/// The thread that decides; the system names it as the program.
const MAIN: &str = "main";

fn job(workers: u64) -> String {
    let nodes = workers * u64::from(NODES_EACH);
    format!(
        "name='x'\nsteps=1000000\nworkers=1\n[model]\nkind='synthetic'\nstep_time='1ms'\nparameters='4KiB'\n\
         [data]\nkind='indices'\nsamples=1048576\n[batch]\nsize={nodes}\nvirtual_nodes={nodes}\n\
         [optimizer]\nkind='sgd'\nlearning_rate=0.1"
    )
}

/// The process that coordinates the run in this folder; it ends when it is killed.
pub(super) fn coordinate(folder: &str) {
    let run = RunDir::open(folder).expect("a run");
    let job = parse::job(&std::fs::read_to_string(run.path.join("job.text")).expect("a job"), "", &[]);
    let job = job.expect("a good job file");
    let workers = job.batch.virtual_nodes / NODES_EACH;
    let options = Options {
        job,
        run: "x-1".into(),
        folder: run.path.clone(),
        token: run.token().expect("a token"),
        listen: ([127, 0, 0, 1], 0).into(),
        data_listen: ([127, 0, 0, 1], 0).into(),
        workers,
        min_workers: workers,
        max_workers: workers,
        schedule: Vec::new(),
        spawn: None,
        spawn_server: None,
        synchronisation: Synchronisation::default(),
        workload: None,
        initial_weights: None,
        offers_checkpoints: false,
        heartbeat_timeout: Duration::from_secs(30),
        grace: Duration::from_secs(4),
        last_checkpoint_wait: Duration::from_secs(300),
        accept_other_data: false,
        plain_transport: None,
        expected_step_s: None,
        replaces_alone: false,
        measure_links: MeasureLinks::Never,
        speeds: BTreeMap::new(),
        director: None,
    };
    coordinator::run(options, &mut |_| {}).expect("it can begin");
}

/// Ends the coordinator with the measurement.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended, which is as well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(super) fn measure(workers: u64, step_s: f64) -> Row {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let text = job(workers);
    let job = parse::job(&text, "", &[]).expect("a good job file");
    let run = RunDir::create(folder.path().join("x-1"), &job, false).expect("a folder");
    std::fs::write(run.path.join("job.text"), text).expect("room on the disk");
    let program = std::env::current_exe().expect("this program");
    let child = Command::new(program).arg(COORDINATE).arg(&run.path).spawn().expect("a process");
    let process = Process(child);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let pid = process.0.id();
    let steps = runtime.block_on(Workers::train(&run, workers, step_s, || times(pid)));
    // Not in every step all workers report.
    let mean = |of: &dyn Fn(&BTreeMap<String, f64>) -> f64| steps.iter().map(of).sum::<f64>() / STEPS as f64;
    let of = |name: &str| mean(&|step| step.get(name).copied().unwrap_or(0.0));
    let mut row = Row::new();
    row.insert("main thread, ms per step".into(), rounded(of(MAIN)));
    row.insert("sessions' thread, ms per step".into(), rounded(of(PLANE)));
    row.insert("all threads, ms per step".into(), rounded(mean(&|step| step.values().sum())));
    row
}

/// Milliseconds that the threads of a process have had of the processor, by their names.
fn times(process: u32) -> BTreeMap<String, f64> {
    let mut times = BTreeMap::new();
    for task in std::fs::read_dir(format!("/proc/{process}/task")).expect("it lives").flatten() {
        let read = |file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let ns = read("schedstat").split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0);
        let is_main = task.file_name().to_string_lossy() == process.to_string();
        let name = if is_main { MAIN.into() } else { read("comm").trim().to_owned() };
        *times.entry(name).or_default() += ns / 1e6;
    }
    times
}

/// What a session says, and whose it is.
type Heard = (usize, ToWorker);

struct Workers {
    said: Vec<UnboundedSender<wire::FromWorker>>,
    heard: UnboundedReceiver<Heard>,
    /// Their numbers.
    numbers: Vec<WorkerId>,
    epoch: u64,
    step: u64,
    /// Steps that were reported, and when.
    reported: u64,
    sent: Instant,
    began: Instant,
    /// How many hearts have beaten, all together.
    beats: u64,
}

impl Workers {
    /// Opens the sessions and trains; what each step took, as `look` tells.
    async fn train(
        run: &RunDir,
        workers: u64,
        step_s: f64,
        look: impl Fn() -> BTreeMap<String, f64>,
    ) -> Vec<BTreeMap<String, f64>> {
        let mut all = Workers::attach(run, workers).await;
        all.form().await;
        let mut steps = Vec::new();
        let mut before = look();
        for step in 0..FIRST_STEPS + STEPS {
            let until = Instant::now() + Duration::from_secs_f64(step_s);
            while Instant::now() < until {
                tokio::time::sleep(LOOK.min(until - Instant::now())).await;
                all.live();
            }
            all.step += 1;
            all.report_if_due(step_s);
            let after = look();
            if step >= FIRST_STEPS {
                let spent = |(name, ms): (&String, &f64)| {
                    (name.clone(), ms - before.get(name).copied().unwrap_or(0.0))
                };
                steps.push(after.iter().map(spent).collect());
            }
            before = after;
        }
        steps
    }

    async fn attach(run: &RunDir, workers: u64) -> Workers {
        let token = run.token().expect("a token");
        let endpoint = loop {
            if let Some(endpoint) = run.endpoint() {
                break endpoint;
            }
            tokio::time::sleep(LOOK).await;
        };
        let (voice, heard) = unbounded_channel();
        let (mut said, mut numbers) = (Vec::new(), Vec::new());
        for place in 0..workers as usize {
            let stream = connect(endpoint.control, &token, place as u64);
            let (outgoing, number) = session(stream, place, voice.clone()).await;
            said.push(outgoing);
            numbers.push(number);
        }
        let now = Instant::now();
        Workers { said, heard, numbers, epoch: 0, step: 0, reported: 0, sent: now, began: now, beats: 0 }
    }

    fn say(&self, place: usize, message: &FromWorker) {
        self.said[place].send(convert::write_from_worker(message)).expect("the session is open");
    }

    /// All form the first membership.
    async fn form(&mut self) {
        (0..self.said.len()).for_each(|place| self.say(place, &FromWorker::Warmed(workload())));
        let mut started = 0;
        while started < self.said.len() {
            match self.heard.recv().await.expect("the coordinator lives") {
                (place, ToWorker::Recover { membership, .. }) => {
                    self.epoch = membership.epoch;
                    self.say(
                        place,
                        &FromWorker::Ready { epoch: self.epoch, step: 0, last: 0, trained: (0, 0) },
                    );
                }
                (_, ToWorker::Start { .. }) => started += 1,
                (place, ToWorker::Inquire { .. }) => self.say(place, &heartbeat(self.epoch, 0)),
                (_, other) => panic!("{other:?}"),
            }
        }
    }

    /// All report the steps since the last time, as often as workers do.
    fn report_if_due(&mut self, step_s: f64) {
        if self.sent.elapsed() < reporting::period(self.said.len()) {
            return;
        }
        self.sent = Instant::now();
        let steps = self.reported + 1..=self.step;
        self.reported = self.step;
        for place in 0..self.said.len() {
            let records = steps.clone().flat_map(|step| {
                report(self.numbers[place], &self.numbers, (self.epoch, step), step_s).steps
            });
            let told =
                Report { epoch: self.epoch, step: self.step, steps: records.collect(), ..Report::default() };
            self.say(place, &FromWorker::Report(told));
        }
    }

    /// Hearts beat once a second, one after another; questions are answered.
    fn live(&mut self) {
        let count = self.said.len();
        let due = (self.began.elapsed().as_secs_f64() * count as f64) as u64;
        // Not those of the time in which the sessions were opened.
        self.beats = self.beats.max(due.saturating_sub(count as u64));
        while self.beats < due {
            self.say((self.beats % count as u64) as usize, &heartbeat(self.epoch, self.step));
            self.beats += 1;
        }
        while let Ok((place, message)) = self.heard.try_recv() {
            match message {
                ToWorker::Inquire { .. } => self.say(place, &heartbeat(self.epoch, self.step)),
                other => panic!("{other:?}"),
            }
        }
    }
}

fn connect(address: std::net::SocketAddr, token: &Token, epoch: u64) -> Stream {
    let hello = Hello { kind: ConnectionKind::Control, worker: 0, epoch: epoch + 1, to: None };
    dial(address, &hello, token, Instant::now() + Duration::from_secs(10)).expect("the coordinator listens")
}

/// Opens a worker's session; whatever it says goes to `voice`.
async fn session(
    stream: Stream,
    place: usize,
    voice: UnboundedSender<Heard>,
) -> (UnboundedSender<wire::FromWorker>, WorkerId) {
    let mut dialed = Some(stream);
    let connector = tower::service_fn(move |_: Uri| {
        let stream = dialed.take();
        async move { AsyncStream::new(stream.ok_or(io::ErrorKind::NotConnected)?).map(TokioIo::new) }
    });
    let channel = Endpoint::from_static("http://coordinator").connect_with_connector(connector).await;
    let mut client = MembershipClient::new(channel.expect("a connection"));
    let (outgoing, receiver) = unbounded_channel();
    let attach = wire::Attach {
        address: format!("10.0.{}.{}:41234", place / 256, place % 256),
        process: 1,
        instance: place as u64 + 1,
        ..wire::Attach::default()
    };
    let first = wire::FromWorker { body: Some(wire::from_worker::Body::Attach(attach)) };
    outgoing.send(first).expect("the session is open");
    let response = client.session(UnboundedReceiverStream::new(receiver)).await.expect("a session");
    let mut incoming = response.into_inner();
    let number = match incoming.next().await {
        Some(Ok(wire::ToWorker { body: Some(wire::to_worker::Body::Welcome(welcome)) })) => welcome.worker,
        other => panic!("{other:?}"),
    };
    tokio::spawn(async move {
        // The client's connection lasts as long as the client.
        let _client = client;
        while let Some(Ok(message)) = incoming.next().await {
            let message = convert::read_to_worker(message).expect("it makes sense");
            if voice.send((place, message)).is_err() {
                return;
            }
        }
    });
    (outgoing, number)
}
