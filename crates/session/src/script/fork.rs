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

use bellwether_runtime::coordinator::Spawned;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};
use serde::Deserialize;

use super::{WorkerOptions, prepare};

/// A process from which workers are forked. Dropping it ends it; its workers go on.
#[derive(Debug)]
pub(crate) struct ForkServer {
    child: Child,
    requests: ChildStdin,
    workers: Arc<Mutex<Workers>>,
    last: u64,
}

/// What is known of each worker that was asked for.
type Workers = BTreeMap<u64, Worker>;

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
struct Answer {
    id: u64,
    process: Option<i32>,
    ended: Option<i32>,
}

impl ForkServer {
    /// Starts one that imports `modules`; what it says goes to `log`. `token_file` is how it is recognised as a process
    /// of its run.
    pub(crate) fn start(
        python: &Path,
        modules: &[String],
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
        let workers = Arc::default();
        let heard = Arc::clone(&workers);
        thread::Builder::new().name("fork-server".into()).spawn(move || hear(answers, &heard))?;
        Ok(ForkServer { child, requests, workers, last: 0 })
    }

    /// Whether it can be asked for workers.
    pub(crate) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
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
        lock(&self.workers).insert(self.last, Worker::default());
        writeln!(self.requests, "{request}")?;
        Ok(Box::new(Forked { number: self.last, workers: Arc::clone(&self.workers) }))
    }
}

impl Drop for ForkServer {
    fn drop(&mut self) {
        // It holds nothing, and its workers are not its own.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lock(workers: &Mutex<Workers>) -> MutexGuard<'_, Workers> {
    workers.lock().expect("no holder of this lock panics")
}

/// Takes note of what the fork server says, until it is gone.
fn hear(answers: ChildStdout, workers: &Mutex<Workers>) {
    for line in BufReader::new(answers).lines().map_while(Result::ok) {
        let Ok(Answer { id, process, ended }) = serde_json::from_str(&line) else { continue };
        let mut workers = lock(workers);
        let Some(worker) = workers.get_mut(&id) else { continue };
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
    for worker in lock(workers).values_mut().filter(|worker| worker.process.is_none()) {
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
    workers: Arc<Mutex<Workers>>,
}

impl Forked {
    fn with<T>(&self, act: impl FnOnce(&mut Worker) -> T) -> T {
        act(lock(&self.workers).entry(self.number).or_default())
    }
}

impl Spawned for Forked {
    fn ended(&mut self) -> Option<String> {
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
