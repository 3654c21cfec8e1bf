//! How much a job trains until it reaches a loss, by the curve of an earlier run.

use std::collections::BTreeMap;
use std::path::Path;

use bellwether_core::InputError;
use bellwether_core::job::Job;
use bellwether_core::profile::Profile;
use bellwether_core::record::StepRecord;
use bellwether_model::convergence::{Break, CurveFit, Observation, Trend};
use bellwether_runtime::metrics;
use bellwether_runtime::run_dir::RunDir;

/// Points of a curve that are fitted: means of as many equal phases.
const POINTS: usize = 200;

/// What the curve of an earlier run says of a target loss.
#[derive(Debug, Clone, Default)]
pub struct WorkToLoss {
    /// Steps of the profile's batch until the loss has come down.
    pub steps: f64,
    /// Their 95 % interval; `None` above if the curve does not show that it is ever reached.
    pub interval: (f64, Option<f64>),
    /// Whether the curve came down to it already, after `steps`.
    pub reached: bool,
    /// Steps for which the curve was seen.
    pub seen: f64,
    /// Where the curve stopped following its form, in steps: a fall of the learning rate, for example.
    pub breaks: Vec<Break>,
    /// Steps after what was seen at which the run's learning rate falls; the curve does not know what that does.
    pub falls_ahead: Vec<u64>,
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
    /// The curve rises, and was above the target all the time.
    #[error("the loss rises from {lowest:.4} at step {since:.0} to {last:.4}: it diverges")]
    Diverges {
        /// Step of the lowest loss, smoothed.
        since: f64,
        /// That loss.
        lowest: f64,
        /// The last loss, smoothed.
        last: f64,
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
    extend(target, &place, &points, WorkToLoss { noise_scale, job, ..WorkToLoss::default() })
}

/// Extends the curve `points` of the file `place` to the loss `target`; of `known` the run's job and noise count.
fn extend(
    target: f64,
    place: &str,
    points: &[Observation],
    known: WorkToLoss,
) -> Result<WorkToLoss, WorkError> {
    let falls = known.job.as_ref().map(|job| job.schedule.falls()).unwrap_or_default();
    // After as many steps the rate of the next one is lower.
    let done: Vec<f64> = falls.iter().map(|step| *step as f64).collect();
    // A loss that an optimizer measures need not be a probability, but no loss that we train goes below 0.
    let fit = CurveFit::fit_with_falls(points, 0.0, &done)
        .map_err(|error| InputError { place: format!("{place}: {}", error.place), ..error })?;
    let seen = points.last().map_or(0.0, |point| point.progress);
    let Some(found) = fit.progress_to(target) else {
        return Err(match fit.trend() {
            Trend::Diverges { since, lowest, last } => WorkError::Diverges { since, lowest, last },
            Trend::Falls => WorkError::OutOfReach { least: fit.least() },
        });
    };
    Ok(WorkToLoss {
        steps: found.progress,
        interval: (found.low, found.high),
        reached: found.reached,
        seen,
        breaks: fit.breaks().to_vec(),
        falls_ahead: falls.into_iter().filter(|step| *step as f64 >= seen).collect(),
        ..known
    })
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

    /// Steps of a run whose loss falls to `after` of what it was at step 300, and from there rises by `slope` a step.
    fn loss(target: f64, after: f64, slope: f64) -> Result<WorkToLoss, WorkError> {
        let step = |step: u32| {
            let fallen = if step < 300 { 1.0 } else { after };
            let jitter = f64::from(step * 7919 % 101) * 1e-4;
            let loss = fallen * (0.2 + 2.0 / (1.0 + f64::from(step) / 20.0)) + jitter;
            let loss = loss + slope * f64::from(step.saturating_sub(300));
            StepRecord { step: step.into(), loss: Some(loss), ..StepRecord::default() }
        };
        let (points, _) = curve((0..600).map(step));
        extend(target, "metrics.jsonl", &points, WorkToLoss::default())
    }

    #[test]
    fn a_loss_that_the_curve_passed_is_reached() {
        // 0.325 before step 300, 0.162 after it, 0.132 at the end.
        let passed = loss(0.17, 0.5, 0.0).expect("it was passed");
        assert!(passed.reached && (295.0..=315.0).contains(&passed.steps), "{passed:?}");
        assert!(passed.interval.0 < passed.steps && passed.interval.1 == Some(passed.steps), "{passed:?}");
        assert!((passed.breaks[0].progress - 300.0).abs() < 10.0, "{passed:?}");
        let ahead = loss(0.13, 0.5, 0.0).expect("it comes down to 0.1");
        assert!(!ahead.reached && ahead.steps > 600.0, "{ahead:?}");
        let never = loss(0.01, 0.5, 0.0).expect_err("it comes down to 0.1");
        assert!(matches!(never, WorkError::OutOfReach { least } if least > 0.02), "{never}");
    }

    #[test]
    fn a_loss_that_rises_is_said_to() {
        assert!(loss(0.34, 1.0, 0.005).is_ok_and(|passed| passed.reached));
        let error = loss(0.1, 1.0, 0.005).expect_err("it rises");
        assert!(
            matches!(error, WorkError::Diverges { since, .. } if (250.0..350.0).contains(&since)),
            "{error}"
        );
        assert!(error.to_string().ends_with(": it diverges"), "{error}");
    }

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
