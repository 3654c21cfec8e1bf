//! Runs a job with other batches for a moment, on one worker, and keeps what a micro-batch takes by its size.

use std::collections::BTreeMap;

use bellwether_core::InputError;
use bellwether_core::job::CheckedJob;
use bellwether_core::profile::MeasuredBatch;
use bellwether_core::record::StepRecord;

use super::How;
use super::trace::{Trained, train};
use bellwether_des::statistics::percentile;

use crate::error::RunError;
use crate::metrics::WARM_UP_STEPS;
use crate::{Note, Observe, Progress, Spawn, WorkloadBuilder};

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
    (workload, training_samples): (&WorkloadBuilder, u64),
    how: &How,
    observe: &mut Observe<'_>,
) -> Result<Vec<MeasuredBatch>, RunError> {
    let mut batches = how.batches.clone();
    batches.push(original.batch.size);
    batches.sort_unstable();
    batches.dedup();
    let steps = how.steps.div_ceil(ROUNDS);
    let mut taken: BTreeMap<u64, Vec<Round>> = BTreeMap::new();
    for round in 0..ROUNDS {
        for place in 0..batches.len() {
            let batch = batches[if round % 2 == 0 { place } else { batches.len() - 1 - place }];
            observe(Progress::Note(Note::OneBatch { batch, steps }));
            let job = original.clone().edit(|job| job.batch.size = batch)?;
            // A run evaluates at its end, which takes memory; what a micro-batch takes is not changed by it.
            let all = WARM_UP_STEPS as u64 + steps;
            let evaluated = WARM_UP_STEPS as u64 + steps.div_ceil(2);
            let trained = train(&job, workload, (how, observe), all, evaluated)?;
            taken.entry(batch).or_default().push(Round::of(
                &trained,
                steps,
                training_samples.div_ceil(batch),
            ));
        }
    }
    let nodes = u64::from(original.batch.virtual_nodes);
    // Threads of this process have no memory of their own.
    let apart = matches!(how.spawn, Spawn::Processes(_) | Spawn::Slurm(..));
    Ok(taken.into_iter().filter_map(|(batch, rounds)| summary(batch / nodes, &rounds, apart)).collect())
}

/// What a batch took in one round.
#[derive(Debug, Default)]
struct Round {
    /// Seconds of each virtual node in the steps that count.
    nodes_s: Vec<f64>,
    peak_resident_bytes: Option<u64>,
}

impl Round {
    /// The last step of an epoch, which has `epoch_steps`, may have fewer samples, and does not count.
    fn of(trained: &Trained, steps: u64, epoch_steps: u64) -> Round {
        let is_whole = |step: &&StepRecord| epoch_steps < 2 || !(step.step + 1).is_multiple_of(epoch_steps);
        let counted = trained.steps.iter().skip(WARM_UP_STEPS).take(steps as usize).filter(is_whole);
        let nodes_s = counted.flat_map(|step| step.nodes_s.iter().copied()).collect();
        Round { nodes_s, peak_resident_bytes: trained.peak_resident_bytes }
    }
}

/// What micro-batches of `samples` took in all rounds; memory only of workers that are `apart`.
fn summary(samples: u64, rounds: &[Round], apart: bool) -> Option<MeasuredBatch> {
    let compute_s = calm(rounds.iter().flat_map(|round| round.nodes_s.iter().copied()).collect())?;
    let all: Vec<f64> = rounds.iter().filter_map(|round| calm(round.nodes_s.clone())).collect();
    let count = all.len() as f64;
    let mean_s = all.iter().sum::<f64>() / count;
    let squares: f64 = all.iter().map(|calm_s| (calm_s - mean_s).powi(2)).sum();
    // A single round says nothing of others.
    let error = if count > 1.0 { (squares / (count - 1.0) / count).sqrt() / mean_s } else { 0.0 };
    let peaks = rounds.iter().filter_map(|round| round.peak_resident_bytes);
    let peak_resident_bytes = peaks.max().filter(|_| apart);
    Some(MeasuredBatch { samples, compute_s, error, peak_resident_bytes })
}

fn calm(mut seconds: Vec<f64>) -> Option<f64> {
    seconds.sort_by(f64::total_cmp);
    percentile(&seconds, CALM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_steps_at_the_end_of_an_epoch_do_not_count() {
        let step = |step: u64| StepRecord { step, nodes_s: vec![step as f64], ..StepRecord::default() };
        let trained = Trained { steps: (0..18).map(step).collect(), peak_resident_bytes: None };
        assert_eq!(Round::of(&trained, 8, 3).nodes_s, [10.0, 12.0, 13.0, 15.0, 16.0]);
        assert_eq!(Round::of(&trained, 2, 1).nodes_s, [10.0, 11.0]);
    }

    #[test]
    fn rounds_that_differ_say_how_exact_they_are() {
        let round =
            |nodes_s: &[f64], peak| Round { nodes_s: nodes_s.to_vec(), peak_resident_bytes: Some(peak) };
        let rounds = [round(&[1.0, 1.0, 9.0], 5), round(&[3.0, 3.0, 3.0], 7)];
        let found = summary(8, &rounds, true).expect("two rounds");
        // 1 s and 3 s in the calm quarter of each: their mean is 2, and its standard error 1.
        let peak_resident_bytes = Some(7);
        assert_eq!(found, MeasuredBatch { samples: 8, compute_s: 1.5, error: 0.5, peak_resident_bytes });
        assert_eq!(summary(8, &rounds, false).expect("two rounds").peak_resident_bytes, None);
        assert_eq!(summary(8, &[Round::default()], true), None);
    }
}
