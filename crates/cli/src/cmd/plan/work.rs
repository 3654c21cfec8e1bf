//! How much there is to train: steps, epochs, or down to a loss by the curve of an earlier run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bellwether_core::InputError;
use bellwether_core::job::Job;
use bellwether_core::profile::Profile;
use bellwether_core::record::StepRecord;
use bellwether_model::convergence::{CurveFit, Observation};
use bellwether_runtime::metrics;
use clap::Args;

use crate::failure::Failure;
use crate::runs::{RunDir, StateDir};

/// Points of a curve that are fitted: means of as many equal phases.
const POINTS: usize = 200;

#[derive(Debug, Args)]
pub(super) struct WorkArguments {
    /// Train so many steps of the profile's batch
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with_all = ["epochs", "target_loss"])]
    steps: Option<u64>,
    /// Train so many passes over the samples
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "target_loss", requires = "samples")]
    epochs: Option<u64>,
    /// Training samples of a pass
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    samples: Option<u64>,
    /// Train until the training loss has come down to this, by the curve of an earlier run
    #[arg(long, value_name = "LOSS", requires = "curve")]
    target_loss: Option<f64>,
    /// The earlier run: its name, its folder, or its metrics.jsonl
    #[arg(long, value_name = "RUN", requires = "target_loss")]
    curve: Option<PathBuf>,
}

/// How much, and what should be known of it.
pub(super) struct Work {
    /// Samples to train on, each counted as often as it is seen.
    pub(super) samples: f64,
    pub(super) remark: Option<String>,
    /// What the run of the loss curve says of staleness, where the work is what a target loss takes.
    pub(super) earlier: Option<Earlier>,
}

/// An earlier run.
pub(super) struct Earlier {
    /// Its mean gradient noise scale in samples, where it was measured.
    pub(super) noise_scale: Option<f64>,
    /// Its job, where that is known.
    pub(super) job: Option<Job>,
}

pub(super) fn samples(arguments: &WorkArguments, profile: &Profile) -> Result<Work, Failure> {
    let batch = profile.batch as f64;
    let plain = |samples: f64| Ok(Work { samples, remark: None, earlier: None });
    match (arguments, arguments.samples) {
        (WorkArguments { steps: Some(steps), .. }, _) => plain(*steps as f64 * batch),
        // An epoch ends with a short step.
        (WorkArguments { epochs: Some(epochs), .. }, Some(samples)) => plain(*epochs as f64 * samples as f64),
        (WorkArguments { target_loss: Some(target), curve: Some(run), .. }, _) => {
            let path = metrics_of(run)?;
            to_loss(*target, &path, profile)
        }
        _ => Err(InputError::new("plan", "nothing says how long the job trains")
            .hint("say --steps N, --epochs N --samples N, or --target-loss LOSS --curve RUN")
            .into()),
    }
}

/// The metrics of a run that is named in one of three ways.
fn metrics_of(run: &Path) -> Result<PathBuf, Failure> {
    if run.is_file() {
        return Ok(run.to_path_buf());
    }
    let inside = RunDir::at(run).metrics_file();
    if inside.is_file() {
        return Ok(inside);
    }
    Ok(StateDir::find(None)?.run(&run.display().to_string())?.metrics_file())
}

/// Samples until the loss has come down, where it does.
fn to_loss(target: f64, path: &Path, profile: &Profile) -> Result<Work, Failure> {
    let place = path.display().to_string();
    check_batch(path, profile)?;
    let steps = metrics::read_file(path).map_err(|e| {
        InputError::new(&place, format!("the loss curve cannot be read: {e}")).hint("name a run")
    })?;
    let (points, noise_scale) = curve(steps);
    // A loss that an optimizer measures is no probability, but none that we train goes below 0.
    let fit = CurveFit::fit(&points, 0.0)
        .map_err(|e| InputError { place: format!("{place}: {}", e.place), ..e })?;
    let last = points.last().map_or(0.0, |point| point.progress);
    let Some(reached) = fit.progress_to(target) else {
        let least = fit.curve().asymptote;
        return Err(Failure::No(format!(
            "the loss of {target} is out of reach: the curve of {place} comes down to {least:.4} and no further\n  \
             hint: ask for a larger loss, or train the job with another learning rate and take its curve"
        )));
    };
    let (steps, low) = (reached.progress, reached.low);
    let range = match reached.high {
        Some(high) => format!("95 % interval {low:.0} to {high:.0}"),
        None => format!("at least {low:.0}, and it may never be reached: the curve does not show enough"),
    };
    let remark = format!(
        "a loss of {target} is expected after {steps:.0} steps ({range}); the curve was seen for {last:.0}"
    );
    let earlier = Earlier { noise_scale, job: job_of(path) };
    let samples = steps.max(1.0).ceil() * profile.batch as f64;
    Ok(Work { samples, remark: Some(remark), earlier: Some(earlier) })
}

/// A curve of another batch says nothing of this job's steps.
fn check_batch(metrics: &Path, profile: &Profile) -> Result<(), Failure> {
    let Some(job) = job_of(metrics) else { return Ok(()) };
    if job.batch.size == profile.batch {
        return Ok(());
    }
    let what = format!(
        "this run trained with batches of {}, and the profile is of batches of {}",
        job.batch.size, profile.batch
    );
    let hint = "take the curve of a run with the same batch, or profile the job with the run's batch";
    Err(InputError::new(metrics.display().to_string(), what).hint(hint).into())
}

/// The job beside the metrics of its run.
fn job_of(metrics: &Path) -> Option<Job> {
    RunDir::at(metrics.parent()?).job().ok()
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
