//! The ledger of a sweep: every fact and every decision, one JSON line each, on disk before it has consequences.

use std::fs::File;
use std::io;
use std::path::Path;

use bellwether_core::sweep::{Budget, SweepFile};
use bellwether_runtime::append::Appender;
use bellwether_sched::search::{Decision, Plan};
use serde::{Deserialize, Serialize};

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Seconds that the sweep has been at work; they pass only while its process lives.
    pub time_s: f64,
    /// What became known.
    #[serde(flatten)]
    pub entry: Entry,
}

/// How a trial's job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It was trained to its end.
    Finished,
    /// It cannot be trained.
    Failed,
    /// It was ended before, as decided.
    Stopped,
}

/// What became known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub enum Entry {
    /// The sweep begins; its first line.
    Opened {
        /// Version of the program.
        version: String,
        /// Random name of the sweep.
        id: String,
        /// When, in seconds since the Unix epoch.
        unix_s: f64,
        /// What its author wrote.
        file: Box<SweepFile>,
        /// What follows from it and from the job.
        plan: Box<Plan>,
        /// Digest of the job without the varied keys.
        base: String,
        /// Slots for workers.
        slots: u32,
        /// Seconds and worker-hours that were predicted, where they were.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        predicted: Option<Predicted>,
    },
    /// It goes on in another process.
    Resumed {
        /// When, in seconds since the Unix epoch.
        unix_s: f64,
        /// What it may cost from now on, all in all.
        budget: Budget,
        /// Trials that train at the same time from now on.
        concurrent: u32,
    },
    /// What is done next.
    Decided {
        /// The decision.
        #[serde(flatten)]
        decision: Decision,
    },
    /// A trial is a job of the engine.
    Started {
        /// The trial.
        trial: u64,
        /// Name of the job.
        job: String,
        /// Steps of a unit of length.
        unit_steps: u64,
        /// Steps of the whole trial.
        total_steps: u64,
    },
    /// A trial was evaluated.
    Reported {
        /// The trial.
        trial: u64,
        /// Steps that it had done.
        step: u64,
        /// The same in units of length.
        at: u64,
        /// The metric; absent where it was not finite.
        figure: Option<f64>,
    },
    /// A trial's job has ended.
    Ended {
        /// The trial.
        trial: u64,
        /// How.
        outcome: Outcome,
        /// Why, where that is known.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        why: String,
        /// Steps that it had done.
        step: u64,
        /// Digest of what was trained.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digest: Option<String>,
        /// Seconds of all its workers together.
        worker_s: f64,
    },
    /// All trials wait, each with a checkpoint: a limit was reached, or somebody stopped the sweep.
    Halted {
        /// Why.
        why: String,
    },
    /// Every trial has ended, and no more begin.
    Over {
        /// The best trial.
        winner: Option<u64>,
        /// Seconds of all workers together.
        worker_s: f64,
    },
}

/// What a sweep was predicted to come to.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Predicted {
    /// Seconds.
    pub seconds: f64,
    /// Seconds of all workers together.
    pub worker_s: f64,
}

/// The ledger's file.
pub(super) struct LedgerFile {
    appender: Appender,
    file: File,
}

impl LedgerFile {
    /// Opens the file, or makes it. A line that a crash cut short is removed.
    pub(super) fn open(path: &Path) -> io::Result<LedgerFile> {
        let appender = Appender::open(path)?;
        let file = appender.again()?;
        Ok(LedgerFile { appender, file })
    }

    /// Adds a line; it is on disk when this returns.
    pub(super) fn add(&mut self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.appender.append(&text)?;
        self.file.sync_data()
    }
}

/// The lines of a ledger; a line that a crash cut short is not one. `None` where there is no ledger.
///
/// # Errors
///
/// Returns the file system's error, and one for a line that cannot be read, with its number.
pub fn read(path: &Path) -> io::Result<Option<Vec<Line>>> {
    let bytes = match std::fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        bytes => bytes?,
    };
    parse(&bytes).map(|lines| Some(lines).filter(|lines| !lines.is_empty()))
}

/// The lines in these bytes.
///
/// # Errors
///
/// Returns an error for a line that cannot be read, with its number.
pub fn parse(bytes: &[u8]) -> io::Result<Vec<Line>> {
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let lines = bytes[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let wrong = |number: usize, error: serde_json::Error| {
        io::Error::new(io::ErrorKind::InvalidData, format!("line {}: {error}", number + 1))
    };
    lines
        .enumerate()
        .map(|(number, line)| serde_json::from_slice(line).map_err(|error| wrong(number, error)))
        .collect()
}

#[cfg(test)]
mod tests;
