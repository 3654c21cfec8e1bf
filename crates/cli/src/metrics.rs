//! What a run's steps took, as its `metrics.jsonl` tells.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde::Deserialize;

/// Steps at the beginning that do not count: memory and caches are cold.
pub(crate) const WARM_UP_STEPS: usize = 10;

/// One committed step, as the slowest of its workers saw it.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct StepLine {
    pub(crate) step: u64,
    pub(crate) duration_s: f64,
    pub(crate) compute_s: f64,
    #[serde(default)]
    pub(crate) exchange_s: f64,
    #[serde(default)]
    pub(crate) update_s: f64,
    #[serde(default)]
    pub(crate) nodes_s: Vec<f64>,
    pub(crate) workers: u32,
    #[serde(default)]
    pub(crate) shadows: u32,
    /// Steps that the update covered.
    #[serde(default = "one")]
    pub(crate) accumulation: u32,
}

fn one() -> u32 {
    1
}

/// The steps of the run in `folder`, in the order in which they were committed; none where there is no file. A line
/// that is cut off, as the last one may be, is left out.
pub(crate) fn read(folder: &Path) -> impl Iterator<Item = StepLine> {
    let file = File::open(folder.join("metrics.jsonl")).ok();
    let lines = file.into_iter().flat_map(|file| BufReader::new(file).lines().map_while(Result::ok));
    lines.filter_map(|line| serde_json::from_str(&line).ok())
}
