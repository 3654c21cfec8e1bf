//! A run as lists show it: its state in the words that a daemon has for its jobs, and how far it is.

use bellwether_core::record::RunOutcome;
use serde::{Serialize, Serializer};

use crate::control::client::Control;
use crate::control::{Status, WorkerStatus};
use crate::journal::RunHistory;
use crate::metrics;
use crate::run_dir::RunDir;

/// What a run is doing. A daemon has the same words for its jobs, but for [`Lost`](RunState::Lost): it starts another
/// coordinator where one is lost.
///
/// ```text
/// starting ──► running ──► stopping ──► suspended ──► (resumed) starting
///                 │                                        ▲
///                 ├──► finished        failed ─────────────┤
///                 └──► lost ───────────────────────────────┘
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunState {
    /// Its coordinator gathers workers.
    Starting,
    /// It trains.
    Running,
    /// It leaves a checkpoint and ends.
    Stopping,
    /// It was stopped, and waits until it is resumed.
    Suspended,
    /// Its coordinator died. Its workers may wait for another one.
    Lost,
    /// All steps are done.
    Finished,
    /// It failed.
    Failed,
}

impl RunState {
    /// All of them.
    pub const ALL: [RunState; 7] = [
        RunState::Starting,
        RunState::Running,
        RunState::Stopping,
        RunState::Suspended,
        RunState::Lost,
        RunState::Finished,
        RunState::Failed,
    ];

    /// Its name, as it stands in JSON.
    pub fn name(self) -> &'static str {
        match self {
            RunState::Starting => "starting",
            RunState::Running => "running",
            RunState::Stopping => "stopping",
            RunState::Suspended => "suspended",
            RunState::Lost => "lost",
            RunState::Finished => "finished",
            RunState::Failed => "failed",
        }
    }

    /// Whether it is over.
    pub fn has_ended(self) -> bool {
        matches!(self, RunState::Finished | RunState::Failed)
    }

    /// Whether a coordinator is at work.
    pub fn is_active(self) -> bool {
        matches!(self, RunState::Starting | RunState::Running | RunState::Stopping)
    }

    /// As the coordinator calls what it does.
    fn of_phase(phase: &str) -> RunState {
        match phase {
            // Before it has looked at itself a coordinator says nothing.
            "gathering workers" | "" => RunState::Starting,
            "stopping" | "ended" => RunState::Stopping,
            _ => RunState::Running,
        }
    }

    /// Of a run whose coordinator does not answer; `is_alive` if one is at work all the same.
    fn of_history(history: &RunHistory, is_alive: bool) -> RunState {
        match history.outcome() {
            // One that stands still does not answer.
            None if is_alive && history.process.is_some() => RunState::Running,
            _ if is_alive => RunState::Starting,
            Some(RunOutcome::Finished) => RunState::Finished,
            Some(RunOutcome::Stopped) => RunState::Suspended,
            Some(RunOutcome::Failed(_) | RunOutcome::Broken(_)) => RunState::Failed,
            None => RunState::Lost,
        }
    }
}

impl Serialize for RunState {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

/// What is known of a run at a moment.
#[derive(Debug, Clone, Serialize)]
pub struct RunView {
    /// Its name.
    pub run: String,
    /// What it is doing.
    pub state: RunState,
    /// The same in the words of its coordinator, where one answers.
    pub phase: Option<String>,
    /// Committed steps.
    pub step: u64,
    /// Steps of the whole run, once known.
    pub total_steps: Option<u64>,
    /// Training loss of the last step.
    pub loss: Option<f64>,
    /// Samples per second, while it trains.
    pub examples_per_s: Option<f64>,
    /// Workers that train now.
    pub workers: u32,
    /// All workers that are there, as the coordinator sees them; lists leave them out.
    #[serde(skip)]
    pub members: Vec<WorkerStatus>,
    /// Seconds since it began; absent where it never did.
    pub age_s: Option<f64>,
}

impl RunView {
    /// Looks at a run: asks its coordinator, and reads its files where none answers.
    pub fn of(run: &RunDir) -> RunView {
        // A run whose journal cannot be read is still a run.
        let history = run.history().unwrap_or_default();
        match status(run) {
            Some(status) => RunView::live(run, &history, status),
            None => RunView::read(run, &history),
        }
    }

    fn live(run: &RunDir, history: &RunHistory, status: Status) -> RunView {
        RunView {
            run: run.name.clone(),
            state: RunState::of_phase(&status.lifecycle),
            step: status.step,
            total_steps: Some(status.total_steps).filter(|steps| *steps > 0),
            loss: Some(status.loss).filter(|loss| loss.is_finite() && status.step > 0),
            examples_per_s: Some(status.examples_per_s).filter(|rate| *rate > 0.0),
            workers: status.workers,
            members: status.members,
            age_s: history.age_s(),
            phase: Some(status.lifecycle),
        }
    }

    fn read(run: &RunDir, history: &RunHistory) -> RunView {
        RunView {
            run: run.name.clone(),
            state: RunState::of_history(history, run.is_alive().unwrap_or(false)),
            phase: None,
            step: history.committed(),
            total_steps: history.total_steps(),
            loss: metrics::last(&run.path).and_then(|step| step.loss),
            examples_per_s: None,
            workers: 0,
            members: Vec::new(),
            age_s: history.age_s(),
        }
    }
}

/// What the coordinator of a run says; nothing where none answers.
fn status(run: &RunDir) -> Option<Status> {
    let endpoint = run.endpoint()?;
    Control::connect(&endpoint.control.to_string(), &run.token().ok()?).ok()?.status().ok()
}

/// Puts what is listed in order, the newest last, and leaves out all that has ended but for the newest `ended_max`.
/// Says how many were left out.
///
/// `about` gives the age in seconds, where it is known, and whether it has ended.
///
/// ```
/// use bellwether_runtime::listing::newest;
/// let all = vec![("new", 1.0, true), ("old", 9.0, true), ("runs", 7.0, false)];
/// let (shown, hidden) = newest(all, 1, |(_, age_s, ended)| (Some(*age_s), *ended));
/// assert_eq!((shown.iter().map(|(name, ..)| *name).collect::<Vec<_>>(), hidden), (vec!["runs", "new"], 1));
/// ```
pub fn newest<T>(
    mut all: Vec<T>,
    ended_max: usize,
    about: impl Fn(&T) -> (Option<f64>, bool),
) -> (Vec<T>, usize) {
    // What never began may begin any moment.
    let age_s = |one: &T| about(one).0.unwrap_or(0.0);
    all.sort_by(|a, b| age_s(b).total_cmp(&age_s(a)));
    let ended = all.iter().filter(|one| about(one).1).count();
    let hidden = ended.saturating_sub(ended_max);
    let mut left = hidden;
    all.retain(|one| {
        let goes = left > 0 && about(one).1;
        left -= usize::from(goes);
        !goes
    });
    (all, hidden)
}

#[cfg(test)]
mod tests {
    use bellwether_core::record::{Event, Line, RunFailure};

    use super::*;

    #[test]
    fn a_state_follows_from_the_journal_and_the_lock() {
        let began = Event::CoordinatorStarted { process: 1, version: String::new(), resumed: false };
        let of = |events: Vec<Event>, is_alive| {
            let lines: Vec<Line> = events.into_iter().map(|event| Line { time_s: 1.0, event }).collect();
            RunState::of_history(&lines.iter().collect(), is_alive).name()
        };
        let ended = |outcome| Event::Ended { step: 1, outcome, params_digest: None };
        assert_eq!(of(vec![], false), "lost");
        assert_eq!(of(vec![], true), "starting");
        assert_eq!(of(vec![began.clone()], false), "lost");
        assert_eq!(of(vec![began.clone()], true), "running");
        assert_eq!(of(vec![began.clone(), ended(RunOutcome::Finished)], false), "finished");
        assert_eq!(of(vec![began.clone(), ended(RunOutcome::Stopped)], false), "suspended");
        let failed = ended(RunOutcome::Failed(RunFailure::Other("why".into())));
        assert_eq!(of(vec![began.clone(), failed], false), "failed");
        assert_eq!(of(vec![began.clone(), ended(RunOutcome::Stopped), began], false), "lost");
        assert_eq!(RunState::of_phase("training"), RunState::Running);
        assert_eq!(RunState::of_phase("gathering workers"), RunState::Starting);
    }
}
