//! The last word of a coordinator, which Kubernetes keeps with the pod.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use bellwether_core::record::{EarlyEnd, RunFailure, RunOutcome};
use bellwether_runtime::journal::{Ending, RunHistory};
use serde::{Deserialize, Serialize};

/// Bytes that Kubernetes keeps.
const BYTES_MAX: usize = 4096;

/// Bytes of a sentence where all of them would be too many.
const SENTENCE_BYTES: usize = 800;

/// How a run ended: JSON in the termination message of its coordinator's pod.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Final {
    /// `finished`, `stopped`, `failed` or `broken`.
    pub outcome: String,
    /// Committed steps.
    #[serde(default)]
    pub step: u64,
    /// Digest of parameters, optimizer and state; absent when no worker could tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// When, in seconds since the Unix epoch.
    pub unix_s: f64,
    /// The verdict that ended the run before the last step of its job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_early: Option<EarlyEnd>,
    /// Why, in a sentence; empty unless it failed. A long one is cut.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

impl Final {
    /// How the run ended; a word that says nothing known counts as a failure.
    pub fn outcome(&self) -> RunOutcome {
        let Final { outcome, why, .. } = self;
        let outcome = format!("{outcome}: {why}").parse::<RunOutcome>();
        outcome.unwrap_or_else(|error| RunOutcome::Failed(RunFailure::Other(error.to_string())))
    }

    /// What the journal says last.
    pub fn of(history: &RunHistory, ending: &Ending) -> Final {
        let Ending { outcome, step, digest, unix_s, .. } = ending.clone();
        let ended_early = history.ended_early().filter(|end| end.step == step).cloned();
        Final { outcome: outcome.word().into(), step, digest, unix_s, ended_early, why: outcome.reason() }
    }

    /// Reads a termination message; `None` where it is none of ours.
    pub fn read(text: &str) -> Option<Final> {
        let read: Final = serde_json::from_str(text).ok()?;
        ["finished", "stopped", "failed", "broken"].contains(&read.outcome.as_str()).then_some(read)
    }

    /// Whether the pod did what it was for.
    pub(super) fn is_success(&self) -> bool {
        matches!(self.outcome(), RunOutcome::Finished | RunOutcome::Stopped)
    }

    /// Writes it as a termination message.
    ///
    /// # Errors
    ///
    /// Returns the file system's error.
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        // The file is there already, and belongs to the container's runtime: it is not replaced, but filled.
        File::create(path)?.write_all(self.text().as_bytes())
    }

    fn text(&self) -> String {
        let whole = serde_json::to_string(self).unwrap_or_default();
        if whole.len() <= BYTES_MAX {
            return whole;
        }
        let mut short = self.clone();
        cut(&mut short.why);
        if let Some(early) = &mut short.ended_early {
            cut(&mut early.reason);
        }
        serde_json::to_string(&short).unwrap_or_default()
    }
}

/// Shortens a sentence, and leaves no letter in it that takes more than two bytes for each of its own.
fn cut(sentence: &mut String) {
    let plain: String = sentence.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    *sentence = plain;
    if sentence.len() > SENTENCE_BYTES {
        sentence.truncate(sentence.floor_char_boundary(SENTENCE_BYTES));
        sentence.push('…');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(outcome: RunOutcome) -> Final {
        let ending =
            Ending { outcome, step: 7, digest: Some("ab".repeat(32)), unix_s: 1.5, limit: None, by: None };
        Final::of(&RunHistory::default(), &ending)
    }

    #[test]
    fn it_is_read_as_it_was_written() {
        for outcome in [
            RunOutcome::Finished,
            RunOutcome::Stopped,
            RunOutcome::Failed("no worker came".into()),
            RunOutcome::Broken("digests differ: a, b".into()),
        ] {
            let last = last(outcome.clone());
            assert_eq!(Final::read(&last.text()), Some(last.clone()));
            assert_eq!(last.outcome(), outcome);
            let good = matches!(outcome, RunOutcome::Finished | RunOutcome::Stopped);
            assert_eq!(last.is_success(), good);
        }
        assert_eq!(Final::read("Killed"), None);
        assert_eq!(Final::read("{\"outcome\":\"tired\",\"step\":1,\"unix_s\":1}"), None);
    }

    #[test]
    fn it_fits_whatever_was_said() {
        let letters = ["x", "\u{1}", "\"", "€", "\n"];
        for letter in letters {
            let last = Final {
                ended_early: Some(EarlyEnd { step: 7, reason: letter.repeat(9000) }),
                ..last(RunOutcome::Failed(letter.repeat(9000).as_str().into()))
            };
            let text = last.text();
            assert!(text.len() <= BYTES_MAX, "{letter:?}: {}", text.len());
            assert_eq!(Final::read(&text).map(|read| read.step), Some(7), "{letter:?}");
        }
    }
}
