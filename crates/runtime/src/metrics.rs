//! What a run's steps took, as its `metrics.jsonl` tells.

use std::fs::File;
use std::io::{BufRead, BufReader, Result};
use std::path::Path;

use serde::Deserialize;

use crate::membership::{UnitRecord, WorkerId};
use crate::run_dir::METRICS;

/// One committed step, as the slowest of its workers saw it.
#[derive(Debug, Clone, Deserialize)]
pub struct StepLine {
    /// Its number.
    pub step: u64,
    /// Mean training loss; absent where it is no number.
    #[serde(default)]
    pub loss: Option<f64>,
    /// Seconds from boundary to boundary.
    pub duration_s: f64,
    /// Seconds of computing.
    pub compute_s: f64,
    /// Seconds of the exchange, without waiting for slower workers.
    #[serde(default)]
    pub exchange_s: f64,
    /// Seconds of the update.
    #[serde(default)]
    pub update_s: f64,
    /// Seconds of each virtual node of the slowest worker.
    #[serde(default)]
    pub nodes_s: Vec<f64>,
    /// Active workers.
    pub workers: u32,
    /// Workers that received state meanwhile.
    #[serde(default)]
    pub shadows: u32,
    /// Steps that the update covered.
    #[serde(default = "one")]
    pub accumulation: u32,
    /// The units of a step that was done one by one; none of other steps.
    #[serde(default)]
    pub units: Vec<UnitLine>,
}

/// One unit, and who did it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct UnitLine {
    /// The worker.
    pub worker: WorkerId,
    /// The rest.
    #[serde(flatten)]
    pub record: UnitRecord,
}

fn one() -> u32 {
    1
}

/// The steps of the run in `folder`, in the order in which they were committed; none where there is no file. A line
/// that is cut off, as the last one may be, or damaged is left out.
pub fn read(folder: &Path) -> impl Iterator<Item = StepLine> {
    let file = File::open(folder.join(METRICS)).ok();
    let lines = file.into_iter().flat_map(|file| BufReader::new(file).split(b'\n').map_while(Result::ok));
    lines.filter_map(|line| serde_json::from_slice(&line).ok())
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
    /// As the file system says.
    pub fn skip(&mut self, bytes: u64) -> Result<()> {
        self.0.skip(bytes)
    }

    /// Steps that were added, a chunk of them at most; none when there are no more. Lines that are no steps are left out.
    ///
    /// # Errors
    ///
    /// As the file system says.
    pub fn read(&mut self) -> Result<Vec<StepLine>> {
        self.0.values()
    }
}
