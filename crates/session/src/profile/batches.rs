//! Runs a job with other batches for a moment, on one worker, and keeps what a micro-batch takes by its size.

use std::collections::BTreeMap;

use bellwether_core::InputError;
use bellwether_core::job::CheckedJob;
use bellwether_core::profile::MeasuredBatch;

use super::How;
use super::trace::{Trained, train};
use bellwether_des::statistics::percentile;

use crate::error::RunError;
use crate::metrics::WARM_UP_STEPS;
use crate::{Note, Observe, Progress, WorkloadBuilder};

/// Times that each batch has its turn. The second round goes backwards: what drifts while it is measured, as a machine
/// that others use, then drifts for all batches.
const ROUNDS: u64 = 2;

/// Others that use the machine only make a micro-batch longer: the lower quartile is nearer to what it takes by itself
/// than the mean or the median.
const CALM: f64 = 0.25;

/// Sizes of a batch that may be measured, beside the job's own.
pub const BATCHES_MAX: usize = 16;

/// Refuses batches that the job cannot have.
///
/// # Errors
///
/// Returns the first of them, as the option `--batches`.
pub(super) fn check(job: &CheckedJob, batches: &[u64]) -> Result<(), InputError> {
    let wrong = |what: String, hint: &str| Err(InputError::new("--batches", what).hint(hint));
    if batches.len() > BATCHES_MAX {
        let what = format!("{} batches would be measured for a long time", batches.len());
        return wrong(what, &format!("three or four say enough; ask for {BATCHES_MAX} at most"));
    }
    if batches.iter().all(|batch| *batch == job.batch.size) {
        let what = format!("{} is the batch of the job, which is measured anyway", job.batch.size);
        return wrong(what, "name smaller and larger ones: the time of others lies between them");
    }
    let nodes = job.batch.virtual_nodes;
    if let Some(batch) = batches.iter().find(|batch| **batch == 0 || *batch % u64::from(nodes) != 0) {
        let what = format!("a batch of {batch} cannot be cut into the job's {nodes} virtual nodes");
        return wrong(what, &format!("name multiples of {nodes}, as for batch.size"));
    }
    Ok(())
}

/// Trains the job with each of `batches` and its own, and keeps what a micro-batch took.
///
/// # Errors
///
/// Returns what keeps it from being trained with one of them.
pub(super) fn measure(
    original: &CheckedJob,
    workload: &WorkloadBuilder,
    how: &How,
    observe: &mut Observe<'_>,
) -> Result<Vec<MeasuredBatch>, RunError> {
    let mut batches = how.batches.clone();
    batches.push(original.batch.size);
    batches.sort_unstable();
    batches.dedup();
    let steps = how.steps.div_ceil(ROUNDS);
    let mut taken_s: BTreeMap<u64, Vec<Vec<f64>>> = BTreeMap::new();
    for round in 0..ROUNDS {
        for place in 0..batches.len() {
            let batch = batches[if round % 2 == 0 { place } else { batches.len() - 1 - place }];
            observe(Progress::Note(Note::OneBatch { batch, steps }));
            let job = original.clone().edit(|job| job.batch.size = batch)?;
            let trained = train(&job, workload, &how.spawn, WARM_UP_STEPS as u64 + steps)?;
            taken_s.entry(batch).or_default().push(nodes_s(&trained, steps));
        }
    }
    let nodes = u64::from(original.batch.virtual_nodes);
    Ok(taken_s.into_iter().filter_map(|(batch, rounds)| summary(batch / nodes, &rounds)).collect())
}

/// Seconds of each virtual node in the steps that count.
fn nodes_s(trained: &Trained, steps: u64) -> Vec<f64> {
    let counted = trained.steps.iter().skip(WARM_UP_STEPS).take(steps as usize);
    counted.flat_map(|step| step.nodes_s.iter().copied()).collect()
}

/// What micro-batches of `samples` took in all rounds.
fn summary(samples: u64, rounds: &[Vec<f64>]) -> Option<MeasuredBatch> {
    let compute_s = calm(rounds.concat())?;
    let all: Vec<f64> = rounds.iter().filter_map(|round_s| calm(round_s.clone())).collect();
    let count = all.len() as f64;
    let mean_s = all.iter().sum::<f64>() / count;
    let squares: f64 = all.iter().map(|calm_s| (calm_s - mean_s).powi(2)).sum();
    // A single round says nothing of others.
    let error = if count > 1.0 { (squares / (count - 1.0) / count).sqrt() / mean_s } else { 0.0 };
    Some(MeasuredBatch { samples, compute_s, error })
}

fn calm(mut seconds: Vec<f64>) -> Option<f64> {
    seconds.sort_by(f64::total_cmp);
    percentile(&seconds, CALM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_that_differ_say_how_exact_they_are() {
        let found = summary(8, &[vec![1.0, 1.0, 9.0], vec![3.0, 3.0, 3.0]]).expect("two rounds");
        // 1 s and 3 s in the calm quarter of each: their mean is 2, and its standard error 1.
        assert_eq!(found, MeasuredBatch { samples: 8, compute_s: 1.5, error: 0.5 });
        assert_eq!(summary(8, &[vec![], vec![]]), None);
    }
}
