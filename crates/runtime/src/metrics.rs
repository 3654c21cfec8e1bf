//! What a run's steps took, as its `metrics.jsonl` tells.

use std::fs::File;
use std::io::{BufRead, BufReader, Result};
use std::path::Path;

use bellwether_core::record::StepRecord;

use crate::run_dir::METRICS;

/// Bytes at the end of the file in which the last step is looked for.
const LAST_BYTES: u64 = 1 << 16;

/// The steps of the run in `folder`, in the order in which they were committed; none where there is no file. A line
/// that is cut off, as the last one may be, or damaged is left out.
pub fn read(folder: &Path) -> impl Iterator<Item = StepRecord> {
    read_file(&folder.join(METRICS)).into_iter().flatten()
}

/// The same from a file of any name, one line after another.
///
/// # Errors
///
/// Returns an error if it cannot be opened. Where it cannot be read on, it ends.
pub fn read_file(path: &Path) -> Result<impl Iterator<Item = StepRecord> + use<>> {
    let lines = BufReader::new(File::open(path)?).split(b'\n').map_while(Result::ok);
    Ok(lines.filter_map(|line| serde_json::from_slice(&line).ok()))
}

/// The last step of the run in `folder` that is there whole; none where there is none in the last 64 KiB, or no file.
pub fn last(folder: &Path) -> Option<StepRecord> {
    let mut tail = Tail::new(folder);
    tail.skip(LAST_BYTES).ok()?;
    let mut last = None;
    while let Some(step) = tail.read().ok()?.pop() {
        last = Some(step);
    }
    last
}

/// Follows the steps of a run while they are committed.
#[derive(Debug)]
pub struct Tail(crate::tail::Tail);

impl Tail {
    /// From the first step of the run in `folder` on; the file may not be there yet.
    pub fn new(folder: &Path) -> Tail {
        Tail(crate::tail::Tail::new(folder.join(METRICS)))
    }

    /// Leaves out what was written until now but for the last `bytes`.
    ///
    /// # Errors
    ///
    /// Returns the file system's error.
    pub fn skip(&mut self, bytes: u64) -> Result<()> {
        self.0.skip(bytes)
    }

    /// Steps that were added, a chunk of them at most; empty when there are no more. Lines that do not hold steps are
    /// left out.
    ///
    /// # Errors
    ///
    /// Returns the file system's error.
    pub fn read(&mut self) -> Result<Vec<StepRecord>> {
        self.0.values()
    }
}
