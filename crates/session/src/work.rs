//! How much a job trains until it reaches a loss, by the curve of an earlier run.

use std::collections::BTreeMap;
use std::path::Path;

use bellwether_core::InputError;
use bellwether_core::job::Job;
use bellwether_core::profile::Profile;
use bellwether_core::record::StepRecord;
use bellwether_model::convergence::{CurveFit, Observation};
use bellwether_runtime::metrics;
use bellwether_runtime::run_dir::RunDir;

/// Points of a curve that are fitted: means of as many equal phases.
const POINTS: usize = 200;

/// What the curve of an earlier run says of a target loss.
#[derive(Debug, Clone)]
pub struct WorkToLoss {
    /// Steps of the profile's batch until the loss has come down.
    pub steps: f64,
    /// Their 95 % interval; `None` above if the curve does not show that it is ever reached.
    pub interval: (f64, Option<f64>),
    /// Steps for which the curve was seen.
    pub seen: f64,
    /// The run's mean gradient noise scale in samples, where it was measured.
    pub noise_scale: Option<f64>,
    /// The run's job, where it is known.
    pub job: Option<Job>,
}

/// A curve does not say how much work a target loss takes.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// The curve cannot be read or fitted, or is of another batch.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The curve never comes down to the target.
    #[error("the curve comes down to {least:.4} and no further")]
    OutOfReach {
        /// Where it ends.
        least: f64,
    },
}

/// Reads the curve in the file `metrics` and extends it to the loss `target`.
///
/// # Errors
///
/// See [`WorkError`].
pub fn to_loss(target: f64, metrics: &Path, profile: &Profile) -> Result<WorkToLoss, WorkError> {
    let place = metrics.display().to_string();
    let job = metrics.parent().and_then(|folder| RunDir::at(folder).job().ok());
    check_batch(job.as_ref(), &place, profile)?;
    let steps = metrics::read_file(metrics).map_err(|error| {
        InputError::new(&place, format!("the loss curve cannot be read: {error}")).hint("name a run")
    })?;
    let (points, noise_scale) = curve(steps);
    // A loss that an optimizer measures need not be a probability, but no loss that we train goes below 0.
    let fit = CurveFit::fit(&points, 0.0)
        .map_err(|error| InputError { place: format!("{place}: {}", error.place), ..error })?;
    let seen = points.last().map_or(0.0, |point| point.progress);
    let Some(reached) = fit.progress_to(target) else {
        return Err(WorkError::OutOfReach { least: fit.curve().asymptote });
    };
    let interval = (reached.low, reached.high);
    Ok(WorkToLoss { steps: reached.progress, interval, seen, noise_scale, job })
}

/// A curve of another batch says nothing of this job's steps.
fn check_batch(job: Option<&Job>, place: &str, profile: &Profile) -> Result<(), InputError> {
    let Some(job) = job.filter(|job| job.batch.size != profile.batch) else { return Ok(()) };
    let what = format!(
        "this run trained with batches of {}, and the profile is of batches of {}",
        job.batch.size, profile.batch
    );
    let hint = "take the curve of a run with the same batch, or profile the job with the run's batch";
    Err(InputError::new(place, what).hint(hint))
}

/// Means of equal phases of the losses, where progress is steps that are done, and the mean of the noise scales that
/// were measured. Of the losses of a step that was done again the last counts.
fn curve(steps: impl Iterator<Item = StepRecord>) -> (Vec<Observation>, Option<f64>) {
    let mut losses = BTreeMap::new();
    let mut noise_scales = Vec::new();
    for step in steps {
        let Some(loss) = step.loss else { continue };
        losses.insert(step.step, loss);
        noise_scales.extend(step.noise_scale.filter(|scale| scale.is_finite() && *scale >= 0.0));
    }
    let noise_scale =
        (!noise_scales.is_empty()).then(|| noise_scales.iter().sum::<f64>() / noise_scales.len() as f64);
    let losses: Vec<(u64, f64)> = losses.into_iter().collect();
    let phase = losses.len().div_ceil(POINTS).max(1);
    let mean = |part: &[(u64, f64)]| {
        let count = part.len() as f64;
        let progress = part.iter().map(|(step, _)| *step as f64 + 1.0).sum::<f64>() / count;
        Observation { progress, loss: part.iter().map(|(_, loss)| loss).sum::<f64>() / count }
    };
    (losses.chunks(phase).map(mean).collect(), noise_scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_thinned_to_means() {
        let step = |step: u32| StepRecord {
            step: step.into(),
            loss: Some(f64::from(1000 - step)),
            noise_scale: step.is_multiple_of(2).then(|| f64::from(step)),
            ..StepRecord::default()
        };
        let unknown = StepRecord { step: 1000, ..StepRecord::default() };
        let (points, noise_scale) = curve((0..1000).map(step).chain([unknown]));
        assert_eq!((points.len(), noise_scale), (POINTS, Some(499.0)));
        assert_eq!((points[0].progress, points[0].loss), (3.0, 998.0));
    }
}
