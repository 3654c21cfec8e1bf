//! Workers of a script that are forked from a process which has imported what the script imports: they compute within
//! a moment, where a fresh interpreter imports a framework for seconds.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use bellwether_runtime::coordinator::Spawned;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};
use serde::Deserialize;

use super::{WorkerOptions, prepare};

/// A process from which workers are forked. Dropping it ends it; its workers go on.
#[derive(Debug)]
pub(crate) struct ForkServer {
    child: Child,
    requests: ChildStdin,
    heard: Arc<Mutex<Heard>>,
    last: u64,
}

/// What the process has told.
#[derive(Debug)]
struct Heard {
    /// Each worker that was asked for.
    workers: BTreeMap<u64, Worker>,
    /// What it imports before it forks the first one, while it does.
    importing: Option<String>,
    /// Until when all of that must be imported.
    until: Instant,
    allowance: Duration,
}

impl Heard {
    /// Why no worker will come from this process, if it imports without end.
    fn stuck(&self) -> Option<String> {
        let module = self.importing.as_ref().filter(|_| Instant::now() > self.until)?;
        let allowance_s = self.allowance.as_secs_f64();
        Some(format!("the process that forks workers was still importing {module} after {allowance_s} s"))
    }
}

#[derive(Debug, Default)]
struct Worker {
    /// Whatever number its process has later, this is of it.
    process: Option<OwnedFd>,
    /// It leads a group of its own, with what its script has started.
    group: Option<Pid>,
    ended: Option<String>,
    /// It was to be killed before it was there.
    unwanted: bool,
}

/// A line that the fork server writes.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Answer {
    Worker { id: u64, process: Option<i32>, ended: Option<i32> },
    Import { importing: Option<String> },
}

impl ForkServer {
    /// Starts one that imports `modules` within this time; what it says goes to `log`. `token_file` is how it is
    /// recognised as a process of its run.
    pub(crate) fn start(
        python: &Path,
        (modules, allowance): (&[String], Duration),
        environment: &BTreeMap<String, String>,
        token_file: &Path,
        log: File,
    ) -> io::Result<ForkServer> {
        let mut command = Command::new(python);
        command.args(["-m", "bellwether._fork"]);
        prepare(&mut command);
        command.envs(environment);
        let options = WorkerOptions::of_fork_server(token_file);
        command.env(options.variable().0, options.variable().1);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).process_group(0);
        let mut child = command.spawn()?;
        let missing = || io::Error::other("a pipe is missing");
        let (mut requests, answers) =
            (child.stdin.take().ok_or_else(missing)?, child.stdout.take().ok_or_else(missing)?);
        writeln!(requests, "{}", serde_json::json!({ "import": modules }))?;
        let heard = Arc::new(Mutex::new(Heard {
            workers: BTreeMap::new(),
            importing: Some("what the script imports".into()),
            until: Instant::now() + allowance,
            allowance,
        }));
        let listener = Arc::clone(&heard);
        thread::Builder::new().name("fork-server".into()).spawn(move || hear(answers, &listener))?;
        Ok(ForkServer { child, requests, heard, last: 0 })
    }

    /// Whether it can be asked for workers.
    pub(crate) fn is_usable(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None)) && lock(&self.heard).stuck().is_none()
    }

    /// Asks for a worker that runs this command line with these variables.
    pub(crate) fn fork(
        &mut self,
        command: &[String],
        environment: impl IntoIterator<Item = (&'static str, String)>,
        log: &Path,
    ) -> io::Result<Box<dyn Spawned>> {
        self.last += 1;
        let environment: BTreeMap<_, _> = environment.into_iter().collect();
        let request = serde_json::json!({ "id": self.last, "command": command, "environment": environment, "log": log });
        lock(&self.heard).workers.insert(self.last, Worker::default());
        writeln!(self.requests, "{request}")?;
        Ok(Box::new(Forked { number: self.last, heard: Arc::clone(&self.heard) }))
    }
}

impl Drop for ForkServer {
    fn drop(&mut self) {
        // It holds nothing, and its workers are not its own.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lock(heard: &Mutex<Heard>) -> MutexGuard<'_, Heard> {
    heard.lock().expect("no holder of this lock panics")
}

/// Takes note of what the fork server says, until it is gone.
fn hear(answers: ChildStdout, heard: &Mutex<Heard>) {
    for line in BufReader::new(answers).lines().map_while(Result::ok) {
        let Ok(answer) = serde_json::from_str(&line) else { continue };
        let mut heard = lock(heard);
        let (id, process, ended) = match answer {
            Answer::Worker { id, process, ended } => (id, process, ended),
            Answer::Import { importing } => {
                heard.importing = importing;
                continue;
            }
        };
        let Some(worker) = heard.workers.get_mut(&id) else { continue };
        if let Some(pid) = process.and_then(Pid::from_raw) {
            worker.process = pidfd_open(pid, PidfdFlags::empty()).ok();
            worker.group = Some(pid);
            if worker.unwanted {
                worker.signal(Signal::KILL);
            }
        }
        if let Some(status) = ended {
            let status = ExitStatus::from_raw(status);
            worker.ended = Some(format!("its process ended ({status})"));
        }
    }
    for worker in lock(heard).workers.values_mut().filter(|worker| worker.process.is_none()) {
        worker.ended.get_or_insert_with(|| "the process that forks workers is gone".into());
    }
}

impl Worker {
    fn signal(&self, signal: Signal) {
        if let Some(process) = &self.process {
            // One that has ended needs no signal.
            let _ = pidfd_send_signal(process, signal);
        }
    }

    /// Ends what its script has started and left behind.
    fn sweep(&mut self) {
        if let Some(group) = self.group.take() {
            // Mostly there is none.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }

    /// Whether its process has ended, also where the fork server cannot say so any more.
    fn has_ended(&self) -> bool {
        self.process.as_ref().is_some_and(super::lead::has_ended)
    }
}

/// A worker that was asked for.
struct Forked {
    number: u64,
    heard: Arc<Mutex<Heard>>,
}

impl Forked {
    fn with<T>(&self, act: impl FnOnce(&mut Worker) -> T) -> T {
        act(lock(&self.heard).workers.entry(self.number).or_default())
    }
}

impl Spawned for Forked {
    fn is_awaited(&mut self) -> bool {
        let heard = lock(&self.heard);
        heard.importing.is_some() && heard.stuck().is_none()
    }

    fn ended(&mut self) -> Option<String> {
        if let Some(stuck) = lock(&self.heard).stuck() {
            return Some(stuck);
        }
        self.with(|worker| {
            let silent = worker.has_ended().then(|| "its process ended".to_string());
            let ended = worker.ended.clone().or(silent);
            if ended.is_some() {
                worker.sweep();
            }
            ended
        })
    }

    fn warn(&mut self) {
        self.with(|worker| worker.signal(Signal::TERM));
    }

    fn kill(&mut self) {
        self.with(|worker| {
            worker.unwanted = true;
            worker.signal(Signal::KILL);
        });
    }

    fn end(&mut self) {
        self.kill();
        self.with(Worker::sweep);
    }
}
