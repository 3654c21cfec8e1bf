//! What a run's journal says of it when nobody coordinates it.

use std::path::PathBuf;

use bellwether_core::record::{Event, Line, RunOutcome};
use bellwether_runtime::{journal, metrics};

use crate::failure::Failure;
use crate::runs::RunDir;

/// How a coordinator left its run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Left {
    /// It said how the run ended.
    Ended(RunOutcome),
    /// Without a word.
    Gone,
}

/// The past of a run.
#[derive(Debug, Default)]
pub(crate) struct History {
    lines: Vec<Line>,
}

impl History {
    /// Reads the journal; a run without one has no past.
    pub(crate) fn read(run: &RunDir) -> Result<History, Failure> {
        let path = run.journal_file();
        match journal::read(&path) {
            Ok(lines) => Ok(History { lines }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(History::default()),
            Err(error) => Err(Failure::at(path.display().to_string(), error)),
        }
    }

    fn last<T>(&self, pick: impl Fn(&Event) -> Option<T>) -> Option<T> {
        self.lines.iter().rev().find_map(|line| pick(&line.event))
    }

    /// How its last coordinator left it; none of a run that never began.
    pub(crate) fn left(&self) -> Option<Left> {
        self.last(|event| match event {
            Event::Ended { outcome, .. } => Some(Left::Ended(outcome.clone())),
            Event::CoordinatorStarted { .. } => Some(Left::Gone),
            _ => None,
        })
    }

    /// How the run ended or was left, in a word or two.
    pub(crate) fn state(&self) -> &'static str {
        match self.left() {
            Some(Left::Ended(outcome)) => outcome.word(),
            Some(Left::Gone) => "coordinator gone",
            None => "new",
        }
    }

    /// Whether all steps are done.
    pub(crate) fn is_finished(&self) -> bool {
        self.left() == Some(Left::Ended(RunOutcome::Finished))
    }

    /// Committed steps.
    pub(crate) fn committed(&self) -> u64 {
        journal::resumed(&self.lines).committed
    }

    /// The file of the state after all committed steps, if it was written.
    pub(crate) fn last_checkpoint(&self) -> Option<PathBuf> {
        let committed = self.committed();
        self.last(|event| match event {
            Event::Checkpointed { step, path, .. } if *step == committed => Some(path.into()),
            _ => None,
        })
    }

    /// Steps of the whole run, once known.
    pub(crate) fn total_steps(&self) -> Option<u64> {
        self.last(|event| match event {
            Event::TaskKnown { total_steps, .. } => Some(*total_steps),
            _ => None,
        })
    }

    /// The number of workers that somebody asked for last while the run went on.
    pub(crate) fn scaled_to(&self) -> Option<u32> {
        self.last(|event| match event {
            Event::ScaleRequested { workers, .. } => Some(*workers),
            _ => None,
        })
    }

    /// Seconds since the run began.
    pub(crate) fn age_s(&self) -> Option<f64> {
        Some((journal::now_s() - self.lines.first()?.time_s).max(0.0))
    }
}

/// Training loss of the last committed step, from the end of the run's metrics.
pub(crate) fn last_loss(run: &RunDir) -> Option<f64> {
    metrics::last(&run.path)?.loss
}
