//! A run on which faults fall, and what is asked of it at its end.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bellwether_core::record::{Event, Line, RunOutcome};
use rustix::process::Signal;

use super::disk::Disk;
use super::ending::gate;
use super::processes::{Role, break_connections, living, of, signal};
use super::schedule::{Blow, Fault, Schedule};
use crate::failure::Failure;
use crate::folder::Folder;
use crate::programs::bellwether;
use crate::trial::Trial;

/// Silence and grace, short so that a schedule is.
const LIMITS: [&str; 4] = ["--heartbeat-timeout", "2s", "--grace", "2s"];

/// Time in which every process of a run has to be gone after its end.
const LEAVING: Duration = Duration::from_secs(30);

/// Time in which a verb must answer.
const ANSWER: Duration = Duration::from_secs(20);

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(10);

/// Why a schedule failed; several things may be wrong.
pub(super) type Problem = String;

/// A run under way.
pub(super) struct Subject {
    /// The run's own, where it has one; it goes before the folder that it lies in.
    disk: Option<Disk>,
    trial: Trial,
    /// Nothing may stand still for longer.
    patience: Duration,
    /// Workers that joined by hand.
    hands: Vec<Child>,
}

/// What became of a schedule.
#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) problems: Vec<Problem>,
    /// Longest time between two committed steps, in seconds.
    pub(super) longest_pause_s: f64,
    /// How often steps were done again.
    pub(super) rolled_back: usize,
}

impl Subject {
    pub(super) fn start(schedule: &Schedule, patience: Duration) -> Result<Subject, Failure> {
        let _gate = gate();
        let folder = Folder::new(&format!("chaos-{}", schedule.seed))?;
        let place = |mut command: Command| {
            let checkpoints = format!("checkpoint.every_steps={}", schedule.checkpoint_every);
            command.args(["--set", &checkpoints]).args(LIMITS);
            command
        };
        let text = schedule.case.text(false);
        let disk = schedule.needs_disk().then(|| Disk::mount(&folder.path().join("state"))).transpose()?;
        let trial = Trial::launch_at(folder, &text, schedule.workers, place)?;
        Ok(Subject { disk, trial, patience, hands: Vec::new() })
    }

    /// Lets all faults fall, waits for the end, and looks at what is left.
    pub(super) fn suffer(mut self, schedule: &Schedule, digest: &str) -> Result<Verdict, Failure> {
        self.trial.door()?;
        let mut problems = Vec::new();
        for blow in &schedule.blows {
            std::thread::sleep(blow.after);
            if self.is_finished()? {
                break;
            }
            if let Err(problem) = self.carry_out(blow)? {
                problems.push(format!("{}: {problem}", blow.fault));
                break;
            }
        }
        if problems.is_empty() {
            problems.extend(self.outcome(digest)?.err());
        }
        if problems.is_empty() {
            problems.extend(self.audit()?.err());
            problems.extend(self.left_over().err());
        }
        let lines = self.trial.since(0);
        let commits: Vec<f64> = lines
            .iter()
            .filter(|line| matches!(line.event, Event::Committed { .. }))
            .map(|line| line.time_s)
            .collect();
        let longest_pause_s = commits.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
        let rolled_back = lines.iter().filter(|line| matches!(line.event, Event::RolledBack { .. })).count();
        if lines.iter().any(|line| matches!(line.event, Event::Mismatched(_))) {
            problems.push("a mismatch where nothing was corrupt".into());
        }
        if !problems.is_empty() {
            if let Some(disk) = &self.disk {
                disk.copy_to(&self.trial.folder().join("kept"));
            }
            self.trial.keep();
            problems.push(format!("its files are in {}", self.trial.folder().display()));
        }
        Ok(Verdict { problems, longest_pause_s, rolled_back })
    }

    /// `lot` chooses this many of them.
    fn choose(&self, role: Role, count: u64, lot: u64) -> Vec<u32> {
        let mut choices = of(self.trial.folder(), role);
        let mut chosen = Vec::new();
        for draw in 0..count {
            if !choices.is_empty() {
                let place = (lot >> (8 * draw)) as usize % choices.len();
                chosen.push(choices.remove(place));
            }
        }
        chosen
    }

    fn carry_out(&mut self, blow: &Blow) -> Result<Result<(), Problem>, Failure> {
        let lot = blow.lot;
        match &blow.fault {
            Fault::Kill(count) => self.kill(Role::Worker, *count, lot),
            Fault::KillServer => self.kill(Role::Server, 1, lot),
            Fault::Halt(count, time) => halt(&self.choose(Role::Worker, *count, lot), *time),
            Fault::HaltCoordinator(time) => halt(&[self.trial.coordinator()], *time),
            Fault::KillCoordinator(count, time) => {
                self.trial.kill_coordinator();
                self.kill(Role::Worker, *count, lot);
                std::thread::sleep(*time);
                self.resume()?;
            }
            Fault::KillAll(time) => {
                self.trial.kill_coordinator();
                living(self.trial.folder()).iter().for_each(|(process, _)| signal(*process, Signal::KILL));
                std::thread::sleep(*time);
                self.resume()?;
            }
            Fault::Leave => {
                self.choose(Role::Worker, 1, lot).iter().for_each(|process| signal(*process, Signal::TERM));
            }
            Fault::Scale(counts) => {
                for count in counts {
                    if let Err(problem) = self.verb(&["scale", "bench-1", "--workers", &count.to_string()])? {
                        return Ok(Err(problem));
                    }
                }
            }
            Fault::Join => self.join()?,
            Fault::JoinAndDie(time) => {
                self.join()?;
                std::thread::sleep(*time);
                if let Some(hand) = self.hands.last_mut() {
                    let _ = hand.kill();
                }
            }
            Fault::BreakSessions(count) => {
                if let Some(endpoint) = self.trial.endpoint() {
                    for process in self.choose(Role::Worker, *count, lot) {
                        break_connections(process, endpoint.control);
                    }
                }
            }
            Fault::Stop => return self.stop(),
            Fault::FillDisk(time) => {
                if let Some(disk) = &self.disk {
                    disk.fill(*time);
                }
            }
        }
        Ok(Ok(()))
    }

    fn kill(&self, role: Role, count: u64, lot: u64) {
        self.choose(role, count, lot).iter().for_each(|process| signal(*process, Signal::KILL));
    }

    /// Takes the run up again, unless it is over.
    fn resume(&mut self) -> Result<(), Failure> {
        if !self.is_finished()? {
            let _gate = gate();
            self.trial.resume_with(&LIMITS)?;
        }
        Ok(())
    }

    /// Whether the journal says so. The coordinator may not have ended yet, or never will if it was killed just then.
    fn is_finished(&mut self) -> Result<bool, Failure> {
        self.trial.mark()?;
        Ok(self.digest().is_some())
    }

    fn digest(&self) -> Option<String> {
        self.trial.since(0).iter().rev().find_map(|line| match &line.event {
            Event::Ended { outcome: RunOutcome::Finished, params_digest, .. } => params_digest.clone(),
            _ => None,
        })
    }

    /// Waits until the present coordinator has begun: a program that is interrupted while it starts dies of it, and
    /// nothing is lost.
    fn wait_for_the_coordinator(&mut self) -> Result<(), Failure> {
        let until = Instant::now() + ANSWER;
        while Instant::now() < until {
            self.trial.mark()?;
            let coordinator = u64::from(self.trial.coordinator());
            let begins = |line: &Line| match line.event {
                Event::CoordinatorStarted { process, .. } => u64::from(process) == coordinator,
                _ => false,
            };
            if self.trial.since(0).iter().any(begins) {
                break;
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    fn stop(&mut self) -> Result<Result<(), Problem>, Failure> {
        self.wait_for_the_coordinator()?;
        signal(self.trial.coordinator(), Signal::INT);
        if let Err(problem) = self.wait()? {
            return Ok(Err(problem));
        }
        self.resume()?;
        Ok(Ok(()))
    }

    fn join(&mut self) -> Result<(), Failure> {
        let Some(endpoint) = self.trial.endpoint() else { return Ok(()) };
        let _gate = gate();
        let mut command = bellwether()?;
        command.args(["worker", "--join", &endpoint.control.to_string(), "--token-file"]);
        command.arg(self.trial.run_dir().token_file()).stderr(Stdio::null());
        self.hands.push(command.spawn().map_err(|e| Failure::at("bellwether", e))?);
        Ok(())
    }

    /// A verb that steers the run. It may say no: the coordinator may be away just then; but it has to answer.
    fn verb(&self, arguments: &[&str]) -> Result<Result<(), Problem>, Failure> {
        let mut command = bellwether()?;
        command.args(arguments).arg("--state-dir").arg(self.trial.state_dir()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|e| Failure::at("bellwether", e))?;
        let until = Instant::now() + ANSWER;
        while matches!(child.try_wait(), Ok(None)) {
            if Instant::now() > until {
                let _ = child.kill();
                let _ = child.wait();
                return Ok(Err(format!("`{}` does not answer", arguments.join(" "))));
            }
            std::thread::sleep(LOOK);
        }
        Ok(Ok(()))
    }

    /// Waits for the coordinator to end well, as long as anything happens.
    fn wait(&mut self) -> Result<Result<(), Problem>, Failure> {
        let (mut seen, mut since) = (0, Instant::now());
        loop {
            let now = self.trial.mark()? as u64 + self.trial.metrics_bytes();
            if now != seen {
                (seen, since) = (now, Instant::now());
            }
            if let Some(status) = self.trial.ended_with() {
                let said = || self.trial.said().lines().last().unwrap_or_default().to_string();
                // As it was asked to: finished, or interrupted.
                let is_well = matches!(status.code(), Some(0 | 130));
                return Ok(if is_well { Ok(()) } else { Err(format!("{status}: {}", said())) });
            }
            if since.elapsed() > self.patience {
                return Ok(Err(format!("a hang: nothing happened for {:?}", self.patience)));
            }
            std::thread::sleep(LOOK);
        }
    }

    fn outcome(&mut self, digest: &str) -> Result<Result<(), Problem>, Failure> {
        if self.trial.ended_with().is_none()
            && let Err(problem) = self.wait()?
        {
            return Ok(Err(problem));
        }
        self.trial.mark()?;
        Ok(match self.digest() {
            Some(found) if found == digest => Ok(()),
            Some(found) => Err(format!("the digest is {found}, not {digest}")),
            None => Err(format!("the run did not finish: {}", self.trial.said().trim())),
        })
    }

    fn audit(&self) -> Result<Result<(), Problem>, Failure> {
        let mut command = bellwether()?;
        command.args(["audit", "bench-1", "--state-dir"]).arg(self.trial.state_dir());
        let output = command.stderr(Stdio::piped()).output().map_err(|e| Failure::at("bellwether", e))?;
        let said = String::from_utf8_lossy(&output.stderr);
        Ok(if output.status.success() { Ok(()) } else { Err(format!("audit: {}", said.trim())) })
    }

    fn left_over(&mut self) -> Result<(), Problem> {
        let until = Instant::now() + LEAVING;
        loop {
            // Those that joined by hand are waited for.
            self.hands.retain_mut(|hand| matches!(hand.try_wait(), Ok(None)));
            let left = living(self.trial.folder());
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(format!("left over: {left:?}"));
            }
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for Subject {
    /// Nothing remains of the run, whatever became of it.
    fn drop(&mut self) {
        self.trial.kill_coordinator();
        living(self.trial.folder()).iter().for_each(|(process, _)| signal(*process, Signal::KILL));
        for hand in &mut self.hands {
            let _ = hand.kill();
            let _ = hand.wait();
        }
    }
}

/// Lets processes stand still for a time.
fn halt(processes: &[u32], time: Duration) {
    processes.iter().for_each(|process| signal(*process, Signal::STOP));
    std::thread::sleep(time);
    processes.iter().for_each(|process| signal(*process, Signal::CONT));
}
