//! A real run in a folder of its own: started, watched through its journal, killed, taken up again.

use std::fmt::Display;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use bellwether_core::record::{Event, Line, StepRecord, Summary, UnitRecord};
use bellwether_runtime::control::client::Control;
use bellwether_runtime::journal::Tail;
use bellwether_runtime::metrics;
use bellwether_runtime::run_dir::{Endpoint, RunDir};
use rustix::process::{Pid, Signal, kill_process};

use crate::failure::Failure;
use crate::folder::Folder;
use crate::programs::bellwether;

/// Time between two looks into the journal.
const LOOK: Duration = Duration::from_millis(2);

/// What is waited for never takes this long, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Nor does a whole run.
const PATIENCE_TO_THE_END: Duration = Duration::from_secs(900);

/// What a run prints at its end.
const TOLD: &str = "summary.json";

/// The membership in force.
#[derive(Debug, Clone, Default)]
pub(super) struct Members {
    pub(super) step: u64,
    pub(super) active: Vec<u64>,
    pub(super) shadows: Vec<u64>,
}

/// A run that ended by itself.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) summary: Summary,
    pub(super) lines: Vec<Line>,
}

/// A run of `bellwether`.
#[derive(Debug)]
pub(super) struct Trial {
    folder: Folder,
    child: Child,
    tail: Tail,
    lines: Vec<Line>,
    committed: u64,
    members: Members,
}

impl Trial {
    /// Starts a run of the job in `text` and waits until it trains.
    pub(super) fn start(text: &str, workers: u32) -> Result<Trial, Failure> {
        let mut trial = Trial::launch(Folder::new("bench")?, text, workers)?;
        trial.settle(workers as usize, 3)?;
        Ok(trial)
    }

    /// Starts a run in `folder`.
    pub(super) fn launch(folder: Folder, text: &str, workers: u32) -> Result<Trial, Failure> {
        Trial::launch_at(folder, text, workers, |command| command)
    }

    /// Starts a run in `folder`; `place` puts its command where it is to run.
    pub(super) fn launch_at(
        folder: Folder,
        text: &str,
        workers: impl Display,
        place: impl FnOnce(Command) -> Command,
    ) -> Result<Trial, Failure> {
        let job = folder.write("job.toml", text)?;
        let mut command = bellwether()?;
        command.arg("run").arg(job).args(["--workers", &workers.to_string()]);
        let child = spawn(place(command), &folder)?;
        let tail = RunDir::at(run_dir(&folder)).follow_journal();
        let members = Members::default();
        Ok(Trial { folder, child, tail, lines: Vec::new(), committed: 0, members })
    }

    /// Where workers join, and the file with the token.
    pub(super) fn door(&mut self) -> Result<(String, String), Failure> {
        let token = self.run_dir().token_file();
        let endpoint = self.wait("the endpoint", Trial::endpoint)?;
        Ok((endpoint.control.to_string(), token.display().to_string()))
    }

    /// Where the coordinator was reached last, as it wrote it down.
    pub(super) fn endpoint(&self) -> Option<Endpoint> {
        self.run_dir().endpoint()
    }

    /// The run's own folder.
    pub(super) fn run_dir(&self) -> RunDir {
        RunDir::at(run_dir(&self.folder))
    }

    /// The folder of all that belongs to it; every process of the run names it.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn state_dir(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// The folder stays when this is over.
    pub(super) fn keep(&mut self) {
        self.folder.keep();
    }

    /// The coordinator's process.
    pub(super) fn coordinator(&self) -> u32 {
        self.child.id()
    }

    /// How the coordinator ended, if it did.
    pub(super) fn ended_with(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// What the coordinator said on stderr.
    pub(super) fn said(&self) -> String {
        fs::read_to_string(self.folder.path().join("said")).unwrap_or_default()
    }

    /// Size of the record of steps.
    pub(super) fn metrics_bytes(&self) -> u64 {
        fs::metadata(self.run_dir().metrics_file()).map_or(0, |data| data.len())
    }

    /// Reads what the journal has gained.
    fn look(&mut self) -> Result<(), Failure> {
        let added = self.tail.read().map_err(|e| Failure::at("journal", e))?;
        for line in added {
            match &line.event {
                Event::Committed { last, .. } => self.committed = last + 1,
                Event::RolledBack { to } => self.committed = *to,
                Event::Membership { step, workers, shadows, .. } => {
                    self.members = Members { step: *step, active: workers.clone(), shadows: shadows.clone() };
                }
                _ => {}
            }
            self.lines.push(line);
        }
        Ok(())
    }

    /// Follows the journal until `found` sees in it what it looks for.
    pub(super) fn wait<T>(
        &mut self,
        what: &str,
        found: impl FnMut(&Trial) -> Option<T>,
    ) -> Result<T, Failure> {
        self.wait_up_to(PATIENCE, what, found)
    }

    fn wait_up_to<T>(
        &mut self,
        patience: Duration,
        what: &str,
        mut found: impl FnMut(&Trial) -> Option<T>,
    ) -> Result<T, Failure> {
        let deadline = Instant::now() + patience;
        loop {
            let ended = matches!(self.child.try_wait(), Ok(Some(_)));
            self.look()?;
            if let Some(found) = found(self) {
                return Ok(found);
            }
            if ended || Instant::now() > deadline {
                let said = self.said();
                let why = if ended { "the run ended" } else { "the run took too long" };
                return Err(Failure::at("bench", format!("{why} while waiting for {what}: {}", said.trim())));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Waits until exactly this many workers train, and have done so for some steps.
    pub(super) fn settle(&mut self, workers: usize, steps: u64) -> Result<(), Failure> {
        self.wait(&format!("{workers} workers"), |trial| {
            let Members { step, active, shadows } = &trial.members;
            (active.len() == workers && shadows.is_empty() && trial.committed >= step + steps).then_some(())
        })
    }

    /// A place in the journal: all lines so far.
    pub(super) fn mark(&mut self) -> Result<usize, Failure> {
        self.look()?;
        Ok(self.lines.len())
    }

    /// Lines of the journal from a mark on.
    pub(super) fn since(&self, mark: usize) -> &[Line] {
        &self.lines[mark..]
    }

    pub(super) fn committed(&self) -> u64 {
        self.committed
    }

    pub(super) fn members(&self) -> &Members {
        &self.members
    }

    /// The process of a worker that has attached.
    pub(super) fn process(&self, worker: u64) -> Option<u32> {
        self.lines.iter().rev().find_map(|line| match &line.event {
            Event::WorkerAttached { worker: who, process, .. } if *who == worker => Some(*process),
            _ => None,
        })
    }

    /// Ends a worker without a warning.
    pub(super) fn kill(&self, worker: u64) {
        if let Some(process) = self.process(worker) {
            kill(process);
        }
    }

    /// Ends the coordinator without a warning; its workers stay.
    pub(super) fn kill_coordinator(&mut self) {
        // It cannot have ended before it was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts another coordinator for the same run.
    pub(super) fn resume(&mut self) -> Result<(), Failure> {
        self.resume_with(&[])
    }

    /// The same with more arguments.
    pub(super) fn resume_with(&mut self, more: &[&str]) -> Result<(), Failure> {
        let mut command = bellwether()?;
        command.args(["run", "--resume", "bench-1"]).args(more);
        self.child = spawn(command, &self.folder)?;
        Ok(())
    }

    /// A client of the run's control plane.
    pub(super) fn control(&self) -> Result<Control, Failure> {
        let run = self.run_dir();
        let endpoint = run.endpoint().ok_or_else(|| Failure::at("bench", "the run has no endpoint"))?;
        let token = run.token().map_err(|e| Failure::at("bench", e))?;
        Control::connect(&endpoint.control.to_string(), &token).map_err(|e| Failure::at("bench", e))
    }

    /// The steps that all workers did together and that were committed so far, as a worker timed them.
    pub(super) fn steps(&self) -> Vec<StepRecord> {
        metrics::read(&self.run_dir().path).filter(|step| !step.is_asynchronous()).collect()
    }

    /// Waits for the run to end by itself; returns all that it told.
    pub(super) fn outcome(&mut self) -> Result<Outcome, Failure> {
        self.ended()?;
        let told = fs::read_to_string(self.folder.path().join(TOLD)).map_err(|e| Failure::at("bench", e))?;
        let summary = serde_json::from_str(&told).map_err(|e| Failure::at("the run's summary", e))?;
        Ok(Outcome { summary, lines: std::mem::take(&mut self.lines) })
    }

    /// The same of steps that were done unit by unit; of those after the first thousand a sample.
    pub(super) fn units(&self) -> Vec<UnitRecord> {
        metrics::read(&self.run_dir().path).flat_map(|line| line.units).collect()
    }

    /// Waits for the run to end by itself; returns its steps and gives its folder back.
    pub(super) fn finish(mut self) -> Result<Vec<StepRecord>, Failure> {
        self.ended()?;
        Ok(self.steps())
    }

    fn ended(&mut self) -> Result<(), Failure> {
        self.wait_up_to(PATIENCE_TO_THE_END, "the end", |trial| {
            trial.lines.iter().rev().find(|line| matches!(line.event, Event::Ended { .. })).map(|_| ())
        })?;
        let _ = self.child.wait();
        Ok(())
    }
}

fn run_dir(folder: &Folder) -> PathBuf {
    folder.path().join("state/bench-1")
}

fn spawn(mut command: Command, folder: &Folder) -> Result<Child, Failure> {
    let file = |name: &str| File::create(folder.path().join(name)).map_err(|e| Failure::at("bench", e));
    let (said, told) = (file("said")?, file(TOLD)?);
    let state = folder.path().join("state");
    command.arg("--state-dir").arg(state).args(["--format", "json"]).stdout(told).stderr(said);
    command.spawn().map_err(|e| Failure::at("bellwether", e))
}

fn kill(process: u32) {
    if let Some(pid) = i32::try_from(process).ok().and_then(Pid::from_raw) {
        // One that has ended needs no killing.
        let _ = kill_process(pid, Signal::KILL);
    }
}

impl Drop for Trial {
    /// Coordinator first, so that it starts no more workers; those that have not attached end by themselves.
    fn drop(&mut self) {
        let over = matches!(self.child.try_wait(), Ok(Some(status)) if status.success());
        if over {
            return;
        }
        self.kill_coordinator();
        let _ = self.look();
        let workers: Vec<u64> = self
            .lines
            .iter()
            .filter_map(|line| match &line.event {
                Event::WorkerAttached { worker, .. } => Some(*worker),
                _ => None,
            })
            .collect();
        let gone = |worker: &u64| !is_worker(self.process(*worker).unwrap_or(0), self.folder.path());
        workers.iter().filter(|worker| !gone(worker)).for_each(|worker| self.kill(*worker));
    }
}

/// Whether this process still is a worker of the run in `folder`: its number may have been given away again.
fn is_worker(process: u32, folder: &Path) -> bool {
    let command = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&command).contains(&*folder.to_string_lossy())
}

/// The largest resident memory that a process had, where the system tells.
pub(super) fn peak_resident_bytes(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches("kB").trim().parse::<u64>().ok().map(|kib| kib * 1024)
}
