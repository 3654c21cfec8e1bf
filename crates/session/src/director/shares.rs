//! Shares that follow what the workers take: tells `sched` what the steps took, and the coordinator who is to have how
//! many virtual nodes, or to leave.

use bellwether_core::record::{Decision, Event};
use bellwether_core::words::count;
use bellwether_runtime::coordinator::{Director, DirectorCommand, RunEvent, RunStatus};
use bellwether_runtime::membership::WorkerId;
use bellwether_sched::shares::{Action, Advice, Limits, Observation, Shares, Step};

use super::windows::{Expected, Window, Windows};

/// Whose name stands in the journal.
const BY: &str = "shares";

/// Windows after a change until what it gave is told.
const TOLD_AFTER: usize = 8;

/// How the workers of a run share its virtual nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// Evenly, or by the speeds that are known before the run begins.
    Equal,
    /// By what each worker takes, as measured while the run goes on.
    Measured,
}

/// Moves virtual nodes between workers.
pub(crate) struct ShareDirector {
    shares: Shares,
    windows: Windows,
    /// Samples of a step.
    batch: u64,
    /// Fewest workers that are to stay.
    fewest: usize,
    /// Seconds of a step that were expected of the last change, its shares, and the steps since.
    expected: Option<(f64, Vec<(WorkerId, u32)>)>,
    since_s: Vec<f64>,
}

impl ShareDirector {
    /// Of a job with these samples in a step and these bytes in a gradient. At least `fewest` workers stay.
    pub(crate) fn new(batch: u64, gradient_bytes: u64, fewest: usize) -> ShareDirector {
        ShareDirector {
            shares: Shares::new(Limits::default(), gradient_bytes).expect("the default limits are valid"),
            windows: Windows::new(Expected::SameTime, 2),
            batch,
            fewest,
            expected: None,
            since_s: Vec::new(),
        }
    }

    /// The window as one step of the mean length.
    fn step(&self, window: &Window) -> Option<Step> {
        let mut step = Step { workers: Vec::new(), step_s: 0.0, update_s: 0.0 };
        for (worker, share) in self.windows.shares() {
            let done = window.get(worker)?;
            let times = done.virtual_nodes as f64 / f64::from((*share).max(1));
            step.workers.push(Observation {
                worker: *worker,
                virtual_nodes: *share,
                compute_s: done.compute_s / times,
            });
            step.step_s = step.step_s.max(done.duration_s / times);
            step.update_s = step.update_s.max(done.update_s / times);
        }
        Some(step)
    }

    fn examples_per_s(&self, step_s: f64) -> f64 {
        self.batch as f64 / step_s
    }

    /// What the last change gave, once it is known.
    fn outcome(&mut self, step: &Step) -> Option<String> {
        let (expected_s, shares) = self.expected.as_ref()?;
        if self.windows.shares() != shares {
            return None;
        }
        self.since_s.push(step.step_s);
        if self.since_s.len() < TOLD_AFTER {
            return None;
        }
        self.since_s.sort_by(f64::total_cmp);
        let measured_s = self.since_s[self.since_s.len() / 2];
        let reason = format!(
            "{:.0} samples/s since then, {:.0} were expected",
            self.examples_per_s(measured_s),
            self.examples_per_s(*expected_s)
        );
        self.expected = None;
        Some(reason)
    }

    fn carry_out(&mut self, advice: &Advice, step: u64) -> Vec<DirectorCommand> {
        let workers = advice.counts.len() as u32;
        let used = workers - advice.left_out().count() as u32;
        let reason = self.reason(advice);
        let target = if advice.action == Action::LeaveOut { used } else { workers };
        let mut commands = vec![note(step, workers, target, reason)];
        if advice.action == Action::Told {
            return commands;
        }
        commands.extend(advice.left_out().map(DirectorCommand::LeaveOut));
        let stay: Vec<(WorkerId, u32)> =
            advice.counts.iter().copied().filter(|(_, count)| *count > 0).collect();
        let mean = stay.iter().map(|(_, count)| f64::from(*count)).sum::<f64>() / f64::from(used.max(1));
        // A newcomer, whose speed is not known, has the mean share.
        let speeds = stay.iter().map(|(worker, count)| (*worker, f64::from(*count) / mean)).collect();
        commands.push(DirectorCommand::Share(speeds));
        self.expected = Some((advice.expected_s, stay));
        self.since_s.clear();
        commands
    }

    fn reason(&self, advice: &Advice) -> String {
        let [now, all, then] =
            [advice.step_s, advice.all_s, advice.expected_s].map(|step_s| self.examples_per_s(step_s));
        let nodes: Vec<String> = advice.counts.iter().map(|(_, count)| count.to_string()).collect();
        let slow: Vec<String> = advice.left_out().map(|worker| worker.to_string()).collect();
        let without = format!(
            "without worker {} {then:.0} samples/s are expected, and {all:.0} with all {}",
            slow.join(", "),
            count(advice.counts.len(), "worker")
        );
        match advice.action {
            Action::Share => format!(
                "virtual nodes {} by what each worker takes: {then:.0} samples/s are expected, {now:.0} are measured",
                nodes.join(", ")
            ),
            Action::LeaveOut => without,
            Action::Told => format!("{without}; the run is to have no fewer"),
        }
    }
}

fn note(step: u64, workers: u32, target: u32, reason: String) -> DirectorCommand {
    DirectorCommand::Note(Event::Decided(Decision { by: BY.into(), step, workers, target, reason }))
}

impl Director for ShareDirector {
    fn direct(&mut self, seen: RunEvent<'_>, now: &RunStatus<'_>) -> Vec<DirectorCommand> {
        if let RunEvent::Journal(Event::LinkMeasured {
            worker, bandwidth_bytes_per_s, shared_memory, ..
        }) = seen
        {
            let bandwidth = shared_memory.map_or(*bandwidth_bytes_per_s, |link| link.bandwidth_bytes_per_s);
            self.shares.link(*worker, bandwidth);
        }
        let mut commands = Vec::new();
        for window in self.windows.complete(seen) {
            // While others receive the state, and before a change is made, steps tell nothing of those to come.
            if !now.membership.shadows.is_empty() {
                continue;
            }
            let Some(step) = self.step(&window) else { continue };
            let workers = step.workers.len() as u32;
            commands.extend(self.outcome(&step).map(|reason| note(now.step, workers, workers, reason)));
            if let Some(advice) = self.shares.observe(&step, self.fewest) {
                commands.extend(self.carry_out(&advice, now.step));
            }
        }
        commands
    }
}
