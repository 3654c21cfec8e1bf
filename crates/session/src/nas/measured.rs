//! Measures some architectures, and keeps what was measured for a search that is begun again.

use std::fs;
use std::path::Path;

use bellwether_core::InputError;
use bellwether_core::job::{Cell, CheckedJob, Job};
use bellwether_core::nas::DeviceOptions;
use bellwether_runtime::checkpoint::write_atomically;
use bellwether_runtime::workload::Workload;
use serde::{Deserialize, Serialize};

use super::NasError;
use super::devices::{Measured, measure_one, to_measure};
use crate::error::at;
use crate::{Spawn, kind};

/// What was measured, and of what.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    /// What a worker of the supernet computes.
    computation: String,
    workers: u32,
    steps: u64,
    measured: Vec<Measured>,
}

/// Measures as many architectures as the device options say, or what is left of them: `file` keeps each one.
///
/// # Errors
///
/// Returns what keeps one from being trained; a file that cannot be written.
pub fn measure_all(
    (job, cell): (&CheckedJob, &Cell),
    (device, workers): (&DeviceOptions, u32),
    spawn: &Spawn,
    build: impl Fn(&Job) -> Result<Box<dyn Workload>, InputError> + Send + Sync + Clone + 'static,
    file: &Path,
    tell: &mut dyn FnMut(usize, &Measured),
) -> Result<Vec<Measured>, NasError> {
    let (computation, steps) = (kind::computation(job), device.steps);
    let known: Kept =
        fs::read(file).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
    let is_same = (&known.computation, known.workers, known.steps) == (&computation, workers, steps);
    let mut kept = Kept { computation, workers, steps, measured: Vec::new() };
    for (number, architecture) in to_measure(cell, device.measured, job.seed).into_iter().enumerate() {
        let before = known.measured.iter().find(|one| is_same && one.architecture == architecture);
        // Threads do not tell the memory, and workers that are processes do.
        let before = before.filter(|one| one.peak_bytes.is_some() != matches!(spawn, Spawn::Threads));
        let one = match before {
            Some(before) => before.clone(),
            None => measure_one(job, &architecture, (workers, steps), spawn, build.clone())?,
        };
        tell(number, &one);
        kept.measured.push(one);
        let text = serde_json::to_vec_pretty(&kept).map_err(|error| at(file.display().to_string(), error))?;
        write_atomically(&file.with_extension("part"), file, &text)
            .map_err(|error| at(file.display().to_string(), error))?;
    }
    Ok(kept.measured)
}
