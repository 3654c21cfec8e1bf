//! How a run ended.

use std::fmt;
use std::str::FromStr;

use crate::error::ParseError;

/// How a run ended.
///
/// Its text is that of a journal: `finished`, `stopped`, `failed: REASON` or `broken: REASON`.
///
/// ```
/// use bellwether_core::record::{RunFailure, RunOutcome};
/// let text = "failed: the loss is NaN at step 3; the step was not committed";
/// let outcome: RunOutcome = text.parse().unwrap();
/// let what = "the loss is NaN".to_string();
/// assert_eq!(outcome, RunOutcome::Failed(RunFailure::Diverged { what, step: 3 }));
/// assert_eq!((outcome.word(), outcome.to_string().as_str()), ("failed", text));
/// assert!("tired".parse::<RunOutcome>().is_err());
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum RunOutcome {
    /// All steps are done.
    Finished,
    /// It was asked to stop; it can be resumed.
    Stopped,
    /// It cannot go on.
    Failed(RunFailure),
    /// Workers disagree about the result, as this sentence says: a bug of ours.
    Broken(String),
}

/// Why a run cannot go on. Shown, it is a sentence.
#[derive(Debug, Clone, PartialEq)]
pub enum RunFailure {
    /// Training ended in numbers that are not finite; the same steps give the same numbers again.
    Diverged {
        /// What is not finite.
        what: String,
        /// The step that was not committed for it.
        step: u64,
    },
    /// The state after the last step could not be saved.
    Unsaved {
        /// Steps of that state.
        step: u64,
        /// Seconds that the workers held it; `None` where the user asked for an end before.
        waited_s: Option<f64>,
        /// Why its checkpoint could not be written.
        why: String,
    },
    /// For any other reason, in a sentence.
    Other(String),
}

impl RunOutcome {
    /// It in a word.
    pub fn word(&self) -> &'static str {
        match self {
            RunOutcome::Finished => "finished",
            RunOutcome::Stopped => "stopped",
            RunOutcome::Failed(_) => "failed",
            RunOutcome::Broken(_) => "broken",
        }
    }

    /// The same in the words of summaries, `finished`, `stopped` or `failed`: a reader cannot go on after a bug of ours
    /// either, and the reason says that it is one.
    pub fn summary_word(&self) -> &'static str {
        match self {
            RunOutcome::Broken(_) => "failed",
            how => how.word(),
        }
    }

    /// Why, in a sentence; empty unless it failed.
    pub fn reason(&self) -> String {
        match self {
            RunOutcome::Finished | RunOutcome::Stopped => String::new(),
            RunOutcome::Failed(failure) => failure.to_string(),
            RunOutcome::Broken(reason) => reason.clone(),
        }
    }

    /// Whether its numbers ended, so that it would fail the same way again.
    pub fn has_diverged(&self) -> bool {
        matches!(self, RunOutcome::Failed(RunFailure::Diverged { .. }))
    }
}

impl fmt::Display for RunOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, reason) = (self.word(), self.reason());
        if reason.is_empty() { f.write_str(word) } else { write!(f, "{word}: {reason}") }
    }
}

impl FromStr for RunOutcome {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<RunOutcome, ParseError> {
        let (word, reason) = text.split_once(": ").unwrap_or((text, ""));
        Ok(match word {
            "finished" => RunOutcome::Finished,
            "stopped" => RunOutcome::Stopped,
            "failed" => RunOutcome::Failed(reason.into()),
            "broken" => RunOutcome::Broken(reason.into()),
            _ => {
                return Err(ParseError::new("outcome", word, "finished, stopped, failed or broken"));
            }
        })
    }
}

const NOT_COMMITTED: &str = "; the step was not committed";
const LAST_CHECKPOINT: &str = "the checkpoint of the last step, ";
const NOT_WRITTEN: &str = ", could not be written ";
const ASKED: &str = "until somebody asked for an end";

impl fmt::Display for RunFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunFailure::Diverged { what, step } => write!(f, "{what} at step {step}{NOT_COMMITTED}"),
            RunFailure::Unsaved { step, waited_s, why } => {
                write!(f, "{LAST_CHECKPOINT}{step}{NOT_WRITTEN}")?;
                match waited_s {
                    Some(seconds) => write!(f, "within {seconds:.0} s: {why}"),
                    None => write!(f, "{ASKED}: {why}"),
                }
            }
            RunFailure::Other(reason) => f.write_str(reason),
        }
    }
}

impl From<&str> for RunFailure {
    /// What the sentence says, as far as it is one of ours. It is shown as the same sentence again.
    fn from(sentence: &str) -> RunFailure {
        let known = diverged(sentence).or_else(|| unsaved(sentence));
        let known = known.filter(|failure| failure.to_string() == sentence);
        known.unwrap_or_else(|| RunFailure::Other(sentence.into()))
    }
}

fn diverged(sentence: &str) -> Option<RunFailure> {
    let (what, step) = sentence.strip_suffix(NOT_COMMITTED)?.rsplit_once(" at step ")?;
    Some(RunFailure::Diverged { what: what.into(), step: step.parse().ok()? })
}

fn unsaved(sentence: &str) -> Option<RunFailure> {
    let (step, rest) = sentence.strip_prefix(LAST_CHECKPOINT)?.split_once(NOT_WRITTEN)?;
    let (until, why) = rest.split_once(": ")?;
    let waited_s = match until {
        ASKED => None,
        _ => Some(until.strip_prefix("within ")?.strip_suffix(" s")?.parse().ok()?),
    };
    Some(RunFailure::Unsaved { step: step.parse().ok()?, waited_s, why: why.into() })
}
