//! The journal of a run: JSON lines, appended as things happen, read back by a coordinator that restarts.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use bellwether_core::record::{Event, Line};

use crate::membership::coordinator::Resumed;
use crate::order::SampleOrder;

/// Seconds since the Unix epoch: the clock of a journal's lines.
pub fn now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// An open journal.
#[derive(Debug)]
pub struct Journal {
    file: File,
}

impl Journal {
    /// Opens `path` for appending. A last line that a crash cut short is removed.
    ///
    /// # Errors
    ///
    /// As the file system says.
    pub fn open(path: &Path) -> io::Result<Journal> {
        if let Ok(content) = std::fs::read(path)
            && content.last().is_some_and(|b| *b != b'\n')
        {
            let whole = content.iter().rposition(|b| *b == b'\n').map_or(0, |p| p + 1);
            OpenOptions::new().write(true).open(path)?.set_len(whole as u64)?;
        }
        Ok(Journal { file: OpenOptions::new().create(true).append(true).open(path)? })
    }

    /// Appends an event with the time at which it happened.
    ///
    /// # Errors
    ///
    /// As the file system says; the run goes on without the line.
    pub fn write(&mut self, time_s: f64, event: &Event) -> io::Result<()> {
        let mut text = serde_json::to_string(&Line { time_s, event: event.clone() })?;
        text.push('\n');
        // One write call: a line is never interleaved, and only a dying machine cuts it.
        self.file.write_all(text.as_bytes())
    }
}

/// Reads all lines of a journal.
///
/// # Errors
///
/// As the file system says, and for a line that is not an event (with its number); a last line without
/// its end is ignored.
pub fn read(path: &Path) -> io::Result<Vec<Line>> {
    let mut reader = BufReader::new(File::open(path)?);
    let (mut lines, mut text, mut number) = (Vec::new(), String::new(), 0);
    loop {
        text.clear();
        number += 1;
        if reader.read_line(&mut text)? == 0 || !text.ends_with('\n') {
            return Ok(lines);
        }
        let line = serde_json::from_str(&text).map_err(|error| {
            io::Error::new(io::ErrorKind::InvalidData, format!("line {number} is not an event: {error}"))
        })?;
        lines.push(line);
    }
}

/// Follows a journal that grows.
#[derive(Debug)]
pub struct Tail(crate::tail::Tail);

impl Tail {
    /// From the first line of the run in `folder` on; the file may not be there yet.
    pub fn new(folder: &Path) -> Tail {
        Tail(crate::tail::Tail::new(folder.join("journal.jsonl")))
    }

    /// See [`crate::tail::Tail::skip_to_last`].
    ///
    /// # Errors
    ///
    /// As the file system says.
    pub fn skip_to_last(&mut self, lines: usize) -> io::Result<()> {
        self.0.skip_to_last(lines)
    }

    /// Lines that were added, a chunk of them at most; none when there are no more. What is no event that this release
    /// knows is left out.
    ///
    /// # Errors
    ///
    /// As the file system says.
    pub fn read(&mut self) -> io::Result<Vec<Line>> {
        self.0.values()
    }
}

/// More memberships than one coordinator proposes between two that begin.
const PROPOSALS_MAX: u64 = 1000;

/// What a restarted coordinator must know.
pub fn resumed(lines: &[Line]) -> Resumed {
    let mut resumed = Resumed::default();
    for line in lines {
        match &line.event {
            Event::Membership { epoch, workers, shadows, accumulation, .. } => {
                resumed.accumulation = *accumulation;
                resumed.epoch = resumed.epoch.max(*epoch);
                resumed.active = workers.clone();
                let newest = workers.iter().chain(shadows).copied().max().unwrap_or(0);
                resumed.last_worker = resumed.last_worker.max(newest);
            }
            Event::WorkerStarted { worker: number }
            | Event::WorkerAttached { worker: number, .. }
            | Event::ServerStarted { server: number }
            | Event::ServerAttached { server: number, .. } => {
                resumed.last_worker = resumed.last_worker.max(*number);
            }
            // Only memberships that began are in the journal; the numbers of those proposed stay theirs.
            Event::CoordinatorStarted { .. } => resumed.epoch += PROPOSALS_MAX,
            Event::Committed { last, .. } => resumed.committed = last + 1,
            Event::RolledBack { to } => resumed.committed = *to,
            Event::Ended { .. } => resumed.active.clear(),
            _ => {}
        }
    }
    resumed
}

/// Which committed step each sample of each epoch is in, proven from the journal alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ledger {
    /// Committed steps, each exactly once and without a gap.
    pub steps: u64,
    /// Samples in them.
    pub samples: u64,
    /// Whole epochs among them.
    pub epochs: u64,
}

/// Checks the exactly-once ledger: every committed step follows the one before, and in every epoch (the
/// last one may be unfinished) no sample index is in two micro-batches, and none is missing.
///
/// # Errors
///
/// The first violation, as a sentence.
pub fn ledger(lines: &[Line], order: SampleOrder) -> Result<Ledger, String> {
    let mut steps = 0;
    for line in lines {
        match line.event {
            Event::Committed { first, last, .. } => {
                if first != steps || last < first {
                    return Err(format!("steps {first}…{last} were committed when {steps} steps were done"));
                }
                steps = last + 1;
            }
            Event::RolledBack { to } if to <= steps => steps = to,
            Event::RolledBack { to } => return Err(format!("rolled back to {to} with {steps} steps done")),
            _ => {}
        }
    }
    let (mut samples, mut micro_batch) = (0, Vec::new());
    let mut seen = vec![u64::MAX; usize::try_from(order.samples).map_err(|e| e.to_string())?];
    for step in 0..steps {
        let (epoch, _) = order.positions(step);
        for node in 0..order.virtual_nodes {
            order.micro_batch(step, node, &mut micro_batch);
            for sample in &micro_batch {
                if std::mem::replace(&mut seen[*sample as usize], epoch) == epoch {
                    return Err(format!("sample {sample} is twice in epoch {epoch}"));
                }
                samples += 1;
            }
        }
        let epoch_ends = (step + 1) % order.steps_per_epoch() == 0;
        if epoch_ends && let Some(missing) = seen.iter().position(|e| *e != epoch) {
            return Err(format!("sample {missing} is missing in epoch {epoch}"));
        }
    }
    Ok(Ledger { steps, samples, epochs: steps / order.steps_per_epoch() })
}
