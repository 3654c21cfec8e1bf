//! What a run's journal tells of the run: one fold over its lines, for all readers.
//!
//! The fold takes memory for workers, checkpoints and data sets, not for lines.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;

use bellwether_core::job::StopLimit;
use bellwether_core::record::{EarlyEnd, Event, Line, RunOutcome};
use serde::{Deserialize, Serialize};

use super::now_s;
use super::reader::{Damage, Entry};
use crate::membership::WorkerId;
use crate::membership::coordinator::Resumed;

/// More memberships than one coordinator proposes between two that begin.
const PROPOSALS_MAX: u64 = 1000;

/// More workers than lines that cannot be read, or are missing, have named.
const NUMBERS_SKIPPED: u64 = 1000;

/// Checkpoints that are remembered: a run goes back to one of the last, if to any.
const CHECKPOINTS_MAX: usize = 64;

/// Processes that are remembered. Of a run that started more than these, the oldest have long ended.
const PROCESSES_MAX: usize = 1 << 12;

/// What a run's journal tells.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunHistory {
    /// Lines of the journal.
    lines: u64,
    /// Those of them that cannot be read.
    pub damage: Damage,
    /// When its first line was written, in seconds since the Unix epoch; absent where there is none.
    pub began_unix_s: Option<f64>,
    /// Seconds that coordinators lived whose successors began, and when the last one began and wrote last.
    lived_s: f64,
    life_s: (f64, f64),
    /// The run's random name.
    pub id: Option<String>,
    /// Process of the last coordinator that began.
    pub process: Option<u32>,
    /// How that coordinator ended, if it said so.
    pub ending: Option<Ending>,
    /// What is trained, as was said last.
    pub task: Option<Task>,
    /// Kernel classes that the run was trained with.
    pub kernel_classes: BTreeSet<String>,
    /// Workers of the membership that the last coordinator began last; 0 before the first.
    pub workers: u32,
    /// Since when there are as many, in seconds since the Unix epoch.
    pub workers_since_unix_s: f64,
    /// The number of workers that was asked for last while the run went on.
    pub scaled_to: Option<u32>,
    /// The last evaluation.
    pub evaluation: Option<Evaluation>,
    /// The limit of its job that the run reached under the last coordinator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    limit: Option<StopLimit>,
    /// Who asked for the run's end last under the last coordinator, or why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stopped_by: Option<String>,
    /// Why connections between machines are not encrypted, where that was said.
    pub plain_transport: Option<String>,
    /// What the next coordinator must know, unless lines cannot be read.
    resumed: Resumed,
    /// The last checkpoints by step, the newest last.
    checkpoints: VecDeque<(u64, String)>,
    /// Processes of workers and servers that were started on this machine; 0 where it is not known.
    processes: BTreeMap<WorkerId, u32>,
}

/// A coordinator's last word.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ending {
    /// How the run ended.
    #[serde(with = "outcome")]
    pub outcome: RunOutcome,
    /// Committed steps.
    pub step: u64,
    /// Digest of parameters, optimizer and state; absent when no worker could tell.
    pub digest: Option<String>,
    /// When, in seconds since the Unix epoch.
    pub unix_s: f64,
    /// The limit of its job for which it was stopped, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<StopLimit>,
    /// Who asked for its end, or why, where somebody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// What a run trains.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Kernel class of the workers.
    pub fingerprint: String,
    /// Samples of an epoch.
    pub training_samples: u64,
    /// Held-out samples.
    pub held_out_samples: u64,
    /// Parameters of the model.
    pub parameters: u64,
    /// Steps of the whole run.
    pub total_steps: u64,
    /// Samples of a full step.
    pub batch: u64,
    /// Virtual nodes.
    pub virtual_nodes: u32,
}

/// How good the model was on held-out samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Committed steps then.
    #[serde(default)]
    pub step: u64,
    /// Mean loss.
    pub loss: f64,
    /// Right predictions, as a share; absent where it does not apply.
    pub accuracy: Option<f64>,
}

impl RunHistory {
    /// Takes in what stands next in the journal.
    pub fn take(&mut self, entry: Entry) {
        match entry {
            Entry::Line(line) => self.take_line(&line),
            Entry::Unreadable(unreadable) => {
                self.lines += 1;
                self.damage.take(unreadable);
            }
        }
    }

    /// Takes in the next line.
    pub fn take_line(&mut self, line: &Line) {
        self.take_time(line);
        self.take_members(line);
        match &line.event {
            Event::RunIdentity { id } => self.id = Some(id.clone()),
            Event::PlainTransport { reason } => self.plain_transport = Some(reason.clone()),
            Event::TaskKnown {
                fingerprint,
                training_samples,
                held_out_samples,
                parameters,
                total_steps,
                batch,
                virtual_nodes,
            } => {
                self.kernel_classes.insert(fingerprint.clone());
                self.task = Some(Task {
                    fingerprint: fingerprint.clone(),
                    training_samples: *training_samples,
                    held_out_samples: *held_out_samples,
                    parameters: *parameters,
                    total_steps: *total_steps,
                    batch: *batch,
                    virtual_nodes: *virtual_nodes,
                });
            }
            Event::LimitReached { limit, .. } => self.limit = Some(*limit),
            Event::StopRequested { by } => self.stopped_by = Some(by.clone()),
            Event::ScaleRequested { workers, .. } => self.scaled_to = Some(*workers),
            Event::Committed { last, .. } => self.resumed.committed = last + 1,
            Event::RolledBack { to } => {
                self.resumed.committed = *to;
                self.resumed.evaluated = self.resumed.evaluated.filter(|step| step <= to);
            }
            Event::Evaluated { step, loss, accuracy } => {
                self.evaluation = Some(Evaluation { step: *step, loss: *loss, accuracy: *accuracy });
                self.resumed.evaluated = Some(*step);
            }
            Event::Verdict { step, ends } => {
                self.resumed.decided = self.resumed.decided.max(*step);
                if let Some(reason) = ends {
                    self.resumed.ended_early = Some(EarlyEnd { step: *step, reason: reason.clone() });
                }
            }
            Event::Checkpointed { step, path, .. } => {
                self.checkpoints.retain(|(known, _)| known != step);
                self.checkpoints.push_back((*step, path.clone()));
                if self.checkpoints.len() > CHECKPOINTS_MAX {
                    self.checkpoints.pop_front();
                }
            }
            Event::Ended { step, outcome, params_digest } => {
                let (outcome, digest) = (outcome.clone(), params_digest.clone());
                let (step, unix_s, limit) = (*step, line.time_s, self.limit);
                let by = self.stopped_by.clone();
                self.ending = Some(Ending { outcome, step, digest, unix_s, limit, by });
            }
            _ => {}
        }
    }

    fn take_time(&mut self, line: &Line) {
        self.lines += 1;
        let is_first = self.began_unix_s.is_none();
        self.began_unix_s.get_or_insert(line.time_s);
        if is_first || matches!(line.event, Event::CoordinatorStarted { .. }) {
            self.lived_s += self.last_life_s();
            self.life_s.0 = line.time_s;
        }
        self.life_s.1 = line.time_s;
    }

    /// Who takes part, and which numbers are given away.
    fn take_members(&mut self, line: &Line) {
        let resumed = &mut self.resumed;
        match &line.event {
            Event::CoordinatorStarted { process, .. } => {
                // Only memberships that began are in the journal; the numbers of those proposed stay theirs.
                resumed.epoch += PROPOSALS_MAX;
                (self.process, self.workers, self.ending) = (Some(*process), 0, None);
                (self.limit, self.stopped_by) = (None, None);
            }
            Event::Membership { epoch, workers, shadows, accumulation, .. } => {
                resumed.accumulation = *accumulation;
                resumed.epoch = resumed.epoch.max(*epoch);
                resumed.active.clone_from(workers);
                let newest = workers.iter().chain(shadows).copied().max().unwrap_or(0);
                resumed.last_worker = resumed.last_worker.max(newest);
                let count = workers.len() as u32;
                if count != self.workers {
                    (self.workers, self.workers_since_unix_s) = (count, line.time_s);
                }
            }
            Event::WorkerStarted { worker: number } | Event::ServerStarted { server: number } => {
                resumed.last_worker = resumed.last_worker.max(*number);
                self.processes.insert(*number, 0);
                if self.processes.len() > PROCESSES_MAX {
                    self.processes.pop_first();
                }
            }
            Event::WorkerAttached { worker: number, process, .. }
            | Event::ServerAttached { server: number, process, .. } => {
                resumed.last_worker = resumed.last_worker.max(*number);
                // A worker that joined by hand may be on another machine, and is not ours to end.
                self.processes.entry(*number).and_modify(|known| *known = *process);
            }
            Event::Restored { .. } => {
                // Lines that are missing may have given numbers away, too.
                resumed.epoch += PROPOSALS_MAX;
                resumed.last_worker += NUMBERS_SKIPPED;
            }
            Event::Quarantined { worker, .. } => drop(resumed.quarantined.insert(*worker)),
            Event::Ended { .. } => resumed.active.clear(),
            _ => {}
        }
    }

    /// What a restarted coordinator must know; nothing of a run that had not begun.
    pub fn resumed(&self) -> Option<Resumed> {
        let mut resumed = self.resumed.clone();
        if self.damage.lines > 0 {
            // They may have given numbers away, which are never given twice.
            resumed.epoch += PROPOSALS_MAX;
            resumed.last_worker += NUMBERS_SKIPPED;
        }
        (self.lines > 0).then_some(resumed)
    }

    /// Lines of the journal.
    pub(super) fn lines(&self) -> u64 {
        self.lines
    }

    /// The number of lines they were: behind a part of a line, another may stand in the same.
    pub(super) fn set_lines(&mut self, lines: u64) {
        self.lines = lines;
    }

    /// Committed steps.
    pub fn committed(&self) -> u64 {
        self.resumed.committed
    }

    /// The verdict that ends the run before the last step of its job.
    pub fn ended_early(&self) -> Option<&EarlyEnd> {
        self.resumed.ended_early.as_ref()
    }

    /// How the run ended or was left, in a word or two.
    pub fn state(&self) -> &'static str {
        match (&self.ending, self.process) {
            (Some(ending), _) => ending.outcome.word(),
            (None, Some(_)) => "coordinator gone",
            (None, None) => "new",
        }
    }

    /// How the last coordinator said that the run ended; nothing where it did not.
    pub fn outcome(&self) -> Option<&RunOutcome> {
        self.ending.as_ref().map(|ending| &ending.outcome)
    }

    /// Steps of the whole run, once known.
    pub fn total_steps(&self) -> Option<u64> {
        self.task.as_ref().map(|task| task.total_steps)
    }

    /// The file of the state after all committed steps, if it was written.
    pub fn last_checkpoint(&self) -> Option<PathBuf> {
        let committed = self.committed();
        let found = self.checkpoints.iter().rev().find(|(step, _)| *step == committed);
        found.map(|(_, path)| path.into())
    }

    /// The newest checkpoint: its step and its file.
    pub fn newest_checkpoint(&self) -> Option<(u64, PathBuf)> {
        self.checkpoints.back().map(|(step, path)| (*step, path.into()))
    }

    /// Seconds since the run began.
    pub fn age_s(&self) -> Option<f64> {
        Some((now_s() - self.began_unix_s?).max(0.0))
    }

    /// Seconds that coordinators of the run lived, as their lines tell.
    pub fn lived_s(&self) -> f64 {
        self.lived_s + self.last_life_s()
    }

    fn last_life_s(&self) -> f64 {
        (self.life_s.1 - self.life_s.0).max(0.0)
    }

    /// Processes of workers and servers that were started on this machine, by their number.
    pub fn processes(&self) -> impl Iterator<Item = (WorkerId, u32)> {
        self.processes
            .iter()
            .filter(|(_, process)| **process != 0)
            .map(|(number, process)| (*number, *process))
    }

    /// What the last coordinator said counts no more: the next one was started.
    pub fn expect_coordinator(&mut self) {
        (self.workers, self.ending) = (0, None);
    }
}

impl<'l> FromIterator<&'l Line> for RunHistory {
    fn from_iter<I: IntoIterator<Item = &'l Line>>(lines: I) -> RunHistory {
        let mut history = RunHistory::default();
        lines.into_iter().for_each(|line| history.take_line(line));
        history
    }
}

impl Resumed {
    /// Of a run whose journal is gone: numbers that it may have given away are not given again.
    pub(crate) fn of_lost_journal() -> Resumed {
        Resumed { epoch: PROPOSALS_MAX * NUMBERS_SKIPPED, last_worker: NUMBERS_SKIPPED, ..Resumed::default() }
    }
}

/// An outcome as its text.
mod outcome {
    use bellwether_core::record::RunOutcome;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(outcome: &RunOutcome, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(outcome)
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<RunOutcome, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(events: Vec<Event>) -> RunHistory {
        let line = |(event, second): (Event, u32)| Line { time_s: f64::from(second), event };
        let lines: Vec<Line> = events.into_iter().zip(1..).map(line).collect();
        lines.iter().collect()
    }

    fn began(process: u32) -> Event {
        Event::CoordinatorStarted { process, version: String::new(), resumed: false }
    }

    fn ended(outcome: RunOutcome) -> Event {
        Event::Ended { step: 7, outcome, params_digest: None }
    }

    fn checkpointed(step: u64) -> Event {
        Event::Checkpointed { step, path: format!("at-{step}"), bytes: 1, seconds: 0.0, stall_s: None }
    }

    fn committed(first: u64, last: u64) -> Event {
        Event::Committed { first, last, accumulation: 1 }
    }

    #[test]
    fn an_end_counts_until_the_next_coordinator() {
        let history = told(vec![began(1), ended(RunOutcome::Broken("why".into()))]);
        assert_eq!((history.outcome(), history.state()), (Some(&RunOutcome::Broken("why".into())), "broken"));
        assert_eq!(history.ending.map(|ending| ending.unix_s), Some(2.0));
        let history = told(vec![began(1), ended(RunOutcome::Stopped), began(2)]);
        assert_eq!(
            (history.outcome(), history.process, history.state()),
            (None, Some(2), "coordinator gone")
        );
        assert_eq!(RunHistory::default().state(), "new");
    }

    #[test]
    fn workers_count_since_they_changed() {
        let members = |workers: &[u64], shadows: &[u64]| Event::Membership {
            epoch: 1,
            step: 0,
            workers: workers.to_vec(),
            bounds: Vec::new(),
            shadows: shadows.to_vec(),
            accumulation: 1,
            reason: String::new(),
        };
        let history = told(vec![began(1), members(&[1], &[]), members(&[1], &[2]), members(&[1, 2], &[])]);
        assert_eq!((history.workers, history.workers_since_unix_s), (2, 4.0));
        assert_eq!(told(vec![began(1), members(&[1], &[]), began(2)]).workers, 0);
    }

    #[test]
    fn time_between_two_coordinators_does_not_count() {
        let at = |time_s, event| Line { time_s, event };
        let lines = [
            at(10.0, began(1)),
            at(13.0, Event::RolledBack { to: 0 }),
            at(100.0, began(2)),
            at(102.0, ended(RunOutcome::Finished)),
        ];
        let history: RunHistory = lines.iter().collect();
        assert!((history.lived_s() - 5.0).abs() < 1e-9);
        assert!(RunHistory::default().lived_s() == 0.0);
    }

    #[test]
    fn the_last_checkpoint_is_that_of_all_committed_steps() {
        let mut events = vec![committed(0, 3), checkpointed(4), committed(4, 8), checkpointed(9)];
        assert_eq!(told(events.clone()).last_checkpoint(), Some("at-9".into()));
        events.push(committed(9, 9));
        assert_eq!(told(events.clone()).last_checkpoint(), None);
        events.push(Event::RolledBack { to: 4 });
        assert_eq!(told(events.clone()).last_checkpoint(), Some("at-4".into()));
        events.extend((0..1000).map(checkpointed));
        assert!(told(events).checkpoints.len() <= CHECKPOINTS_MAX);
    }

    #[test]
    fn it_is_the_same_when_it_is_read_back() {
        let worker = Event::WorkerStarted { worker: 3 };
        let history = told(vec![began(1), worker, checkpointed(4), ended(RunOutcome::Finished)]);
        let text = serde_json::to_string(&history).unwrap();
        assert_eq!(serde_json::from_str::<RunHistory>(&text).unwrap(), history);
    }
}
