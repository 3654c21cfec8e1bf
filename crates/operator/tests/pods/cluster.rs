//! An operator's exchange in this process, and pods as processes of their own.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bellwether_core::job::CheckedJob;
use bellwether_core::record::Event;
use bellwether_operator::exchange::{Desk, Exchange, JobSide, News, Wish, routes, serve, token_of};
use bellwether_operator::pod::Final;
use bellwether_runtime::journal::{self, RunHistory};
use bellwether_runtime::run_dir::{RunDir, StateDir};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tempfile::TempDir;

/// The uid of the only job.
pub(crate) const UID: &str = "c0ffee-1";

/// The name of its run.
pub(crate) const RUN: &str = "ns.digits-1";

const MASTER: [u8; 32] = [5; 32];

/// Nothing takes this long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// The operator's program.
const PROGRAM: &str = env!("CARGO_BIN_EXE_bellwether-operator");

/// The command.
pub(crate) fn bellwether() -> PathBuf {
    let command = Path::new(PROGRAM).with_file_name("bellwether");
    assert!(command.is_file(), "`cargo build --release -p bellwether-cli` makes {}", command.display());
    command
}

/// Waits until `check` gives something.
pub(crate) fn wait_for<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(Instant::now() < until, "waited {PATIENCE:?} in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// One job, its operator and its pods. The end of it is the end of its processes.
pub(crate) struct Cluster {
    pub(crate) folder: TempDir,
    pub(crate) desk: Desk,
    pub(crate) news: Receiver<(String, News)>,
    url: String,
    leads: Arc<Mutex<Option<String>>>,
    /// The port of coordinators.
    port: u16,
    wish: Mutex<Wish>,
}

struct OneJob {
    run: RunDir,
    leads: Arc<Mutex<Option<String>>>,
}

impl Exchange for OneJob {
    fn lookup(&self, uid: &str) -> Option<JobSide> {
        let coordinator = self.leads.lock().unwrap().clone();
        (uid == UID).then(|| JobSide { token: token_of(&MASTER, UID), run: self.run.clone(), coordinator })
    }
}

impl Cluster {
    /// With the job whose file has this text.
    pub(crate) fn new(job: &str) -> Cluster {
        let folder = tempfile::tempdir().unwrap();
        let cluster = Cluster::of(folder);
        cluster.take(&cluster.checked(job));
        cluster
    }

    /// Without a job.
    pub(crate) fn of(folder: TempDir) -> Cluster {
        let leads = Arc::default();
        let copies = StateDir::find(Some(folder.path().join("operator"))).unwrap();
        let job = OneJob { run: copies.named(RUN), leads: Arc::clone(&leads) };
        let (tell, news) = channel();
        let desk = Desk::new(move |uid, news| drop(tell.send((uid.into(), news))));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let routes = routes(Arc::new(job), desk.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        // It ends with the tests.
        std::thread::spawn(move || {
            let listener = {
                let _entered = runtime.enter();
                tokio::net::TcpListener::from_std(listener).unwrap()
            };
            runtime.block_on(serve(listener, routes))
        });
        let port = TcpListener::bind("127.0.1.1:0").unwrap().local_addr().unwrap().port();
        let secrets = folder.path().join("secrets");
        fs::create_dir_all(&secrets).unwrap();
        RunDir::at(secrets).take_token(&token_of(&MASTER, UID)).unwrap();
        Cluster { folder, desk, news, url, leads, port, wish: Mutex::default() }
    }

    /// The job whose file has this text.
    pub(crate) fn checked(&self, text: &str) -> CheckedJob {
        bellwether_core::parse::job(text, "job.toml", &[]).unwrap()
    }

    /// Tells pods that are started from now on that this is the job.
    pub(crate) fn tell(&self, job: &CheckedJob) {
        let text = serde_json::to_vec(&**job).unwrap();
        fs::write(RunDir::at(self.path("secrets")).job_file(), text).unwrap();
    }

    fn take(&self, job: &CheckedJob) {
        self.tell(job);
        let copies = StateDir::find(Some(self.path("operator"))).unwrap();
        copies.create_named(RUN, job).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The operator's copy of the run.
    pub(crate) fn copy(&self) -> RunDir {
        RunDir::at(self.path("operator").join(RUN))
    }

    /// The run's folder in a coordinator's pod.
    pub(crate) fn run_in(&self, pod: &str) -> RunDir {
        RunDir::at(self.path("pods").join(pod).join(RUN))
    }

    pub(crate) fn change_wish(&self, change: impl FnOnce(&mut Wish)) {
        let mut wish = self.wish.lock().unwrap();
        change(&mut wish);
        self.desk.set_wish(UID, wish.clone());
    }

    /// Lets this pod lead the run, at this address.
    pub(crate) fn appoint(&self, pod: &str, address: &str) {
        *self.leads.lock().unwrap() = Some(pod.into());
        let address = SocketAddr::new(address.parse().unwrap(), self.port);
        self.change_wish(|wish| wish.coordinator = Some(address));
    }

    /// Starts a pod.
    pub(crate) fn start(&self, pod: &str, address: &str, words: &[&str], more: &[(&str, &str)]) -> Pod<'_> {
        let address: IpAddr = address.parse().unwrap();
        let folder = self.path("pods").join(pod);
        fs::create_dir_all(&folder).unwrap();
        let log = |name: &str| File::options().create(true).append(true).open(folder.join(name)).unwrap();
        let mut command = Command::new(PROGRAM);
        command.arg("pod").args(words).stdin(Stdio::null()).stdout(log("out")).stderr(log("err"));
        let told = BTreeMap::from([
            ("BELLWETHER_OPERATOR_URL", self.url.clone()),
            ("BELLWETHER_JOB_UID", UID.into()),
            ("BELLWETHER_RUN", RUN.into()),
            ("BELLWETHER_POD", pod.into()),
            ("BELLWETHER_POD_IP", address.to_string()),
            ("BELLWETHER_SECRETS", self.path("secrets").display().to_string()),
            ("BELLWETHER_STATE", folder.display().to_string()),
            ("BELLWETHER_PORT", self.port.to_string()),
            ("BELLWETHER_WORKERS", "1..4".into()),
            ("BELLWETHER_TERMINATION_LOG", folder.join("last").display().to_string()),
            ("BELLWETHER_COMMAND", bellwether().display().to_string()),
        ]);
        // What ends a container ends all of its processes.
        command.envs(told).envs(more.iter().copied()).process_group(0);
        Pod { cluster: self, name: pod.into(), child: command.spawn().unwrap() }
    }

    /// Starts a coordinator that leads.
    pub(crate) fn lead(&self, pod: &str, address: &str) -> Pod<'_> {
        self.appoint(pod, address);
        self.start(pod, address, &["coordinator"], &[])
    }

    /// Starts a worker.
    pub(crate) fn worker(&self, number: u8) -> Pod<'_> {
        self.start(&format!("worker-{number}"), &format!("127.0.0.{}", 10 + number), &["worker"], &[])
    }

    /// What the operator's copy tells.
    pub(crate) fn history(&self) -> RunHistory {
        self.copy().history().unwrap()
    }

    /// All that it tells.
    pub(crate) fn events(&self) -> Vec<Event> {
        let lines = journal::read(&self.copy().journal_file()).unwrap_or_default();
        lines.into_iter().map(|line| line.event).collect()
    }

    /// Waits until the copy tells of as many workers, and of a step from this one on.
    pub(crate) fn reach(&self, workers: u32, step: u64) -> u64 {
        wait_for(&format!("{workers} workers at step {step}"), || {
            let history = self.history();
            assert!(history.ending.is_none(), "it ends at step {} already", history.committed());
            (history.workers == workers && history.committed() >= step).then(|| history.committed())
        })
    }

    /// The digest of an undisturbed run of the job.
    pub(crate) fn plain_digest(&self) -> String {
        let mut command = Command::new(bellwether());
        command.arg("run").arg(self.path("operator").join(RUN)).args([
            "--workers=1",
            "--format=json",
            "--quiet",
        ]);
        command.arg("--state-dir").arg(self.path("plain")).args(["--set", "checkpoint.every=0s"]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        summary["params_digest"].as_str().unwrap().to_owned()
    }

    /// Proves the ledger from the operator's copy.
    pub(crate) fn audit(&self) {
        let mut command = Command::new(bellwether());
        command.args(["audit", RUN, "--state-dir"]).arg(self.path("operator"));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// A pod that runs. It is killed when it is dropped.
pub(crate) struct Pod<'c> {
    cluster: &'c Cluster,
    name: String,
    child: Child,
}

impl Pod<'_> {
    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Sends a signal to its first process, as Kubernetes does.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Kills all of its processes at once, as the loss of its node would.
    pub(crate) fn kill(&mut self) {
        // Those that have ended do not mind.
        let _ = kill_process_group(self.pid(), Signal::KILL);
        let endpoint = self.cluster.run_in(&self.name).endpoint();
        if let Some(lead) = endpoint.and_then(|endpoint| Pid::from_raw(endpoint.process as i32)) {
            let words = fs::read(format!("/proc/{}/cmdline", lead.as_raw_nonzero())).unwrap_or_default();
            let folder = self.cluster.folder.path().display().to_string();
            if String::from_utf8_lossy(&words).contains(&folder) {
                let _ = kill_process(lead, Signal::KILL);
            }
        }
        let _ = self.child.wait();
    }

    /// How it ended.
    pub(crate) fn ended(mut self) -> ExitStatus {
        wait_for(&format!("the end of {}", self.name), || self.child.try_wait().unwrap())
    }

    /// Its exit code.
    pub(crate) fn code(self) -> Option<i32> {
        self.ended().code()
    }

    /// What it has printed.
    pub(crate) fn printed(&self, stream: &str) -> String {
        let path = self.cluster.path("pods").join(&self.name).join(stream);
        fs::read_to_string(path).unwrap_or_default()
    }

    /// Its last word.
    pub(crate) fn last_word(&self) -> Option<Final> {
        Final::read(&self.printed("last"))
    }
}

impl Drop for Pod<'_> {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("── {}\n{}{}", self.name, self.printed("out"), self.printed("err"));
        }
    }
}
