//! How much there is to train: steps, epochs, or down to a loss by the curve of an earlier run.

use std::path::{Path, PathBuf};

use bellwether_core::InputError;
use bellwether_core::profile::Profile;
use bellwether_model::convergence::{Break, BreakReason};
use bellwether_runtime::run_dir::{RunDir, RunDirError, StateDir};
use bellwether_session::work::{WorkError, WorkToLoss, to_loss};

use crate::Refusal;
use crate::options::Options;

/// How much there is to train, as it is asked; one of the three ways is said.
#[derive(Debug, Clone, Default)]
pub struct Work {
    /// Steps of the batch.
    pub steps: Option<u64>,
    /// Passes over the samples.
    pub epochs: Option<u64>,
    /// Training samples of a pass.
    pub samples: Option<u64>,
    /// The training loss to come down to, by the curve of an earlier run.
    pub target_loss: Option<f64>,
    /// The earlier run: its name, its folder, or its metrics.jsonl.
    pub curve: Option<PathBuf>,
}

/// How much there is to train.
pub(super) struct Amount {
    /// Samples to train on, each counted as often as it is seen.
    pub(super) samples: f64,
    /// What an earlier run says, where the work is what a target loss takes.
    pub(super) earlier: Option<WorkToLoss>,
}

impl Work {
    pub(super) fn of(options: &mut Options) -> Result<Work, InputError> {
        options.exclusive(&["steps", "epochs", "target_loss"])?;
        Ok(Work {
            steps: options.whole("steps", 1..=u64::MAX)?,
            epochs: options.whole("epochs", 1..=u64::MAX)?,
            samples: options.whole("samples", 1..=u64::MAX)?,
            target_loss: options.number("target_loss")?,
            curve: options.text("curve").map(PathBuf::from),
        })
    }

    pub(super) fn samples(
        &self,
        profile: &Profile,
        batch: u64,
        note: &mut dyn FnMut(String),
    ) -> Result<Amount, Refusal> {
        let batch = batch as f64;
        match (self, self.samples) {
            (Work { steps: Some(steps), .. }, _) => {
                Ok(Amount { samples: *steps as f64 * batch, earlier: None })
            }
            // An epoch ends with a short step.
            (Work { epochs: Some(epochs), .. }, Some(samples)) => {
                Ok(Amount { samples: *epochs as f64 * samples as f64, earlier: None })
            }
            (Work { target_loss: Some(target), curve: Some(run), .. }, _) => {
                let earlier = earlier(*target, &metrics_of(run)?, profile)?;
                note(expected(*target, &earlier));
                on_the_way(&earlier).into_iter().for_each(&mut *note);
                Ok(Amount { samples: earlier.steps.max(1.0).ceil() * batch, earlier: Some(earlier) })
            }
            _ => Err(InputError::new("plan", "nothing says how long the job trains")
                .hint("say --steps N, --epochs N --samples N, or --target-loss LOSS --curve RUN")
                .into()),
        }
    }
}

fn earlier(target: f64, metrics: &Path, profile: &Profile) -> Result<WorkToLoss, Refusal> {
    to_loss(target, metrics, profile).map_err(|error| match error {
        WorkError::Input(error) => error.into(),
        WorkError::OutOfReach { least } => Refusal::No(format!(
            "the loss of {target} is out of reach: the curve of {} comes down to {least:.4} and no further\n  \
             hint: ask for a larger loss, or train the job with another learning rate and take its curve",
            metrics.display()
        )),
        WorkError::Diverges { .. } => Refusal::No(format!(
            "the loss of {target} is out of reach: in {} {error}\n  hint: train the job with a smaller learning rate \
             and take its curve",
            metrics.display()
        )),
    })
}

fn expected(target: f64, earlier: &WorkToLoss) -> String {
    let WorkToLoss { steps, interval: (low, high), seen, .. } = earlier;
    if earlier.reached {
        return format!(
            "a loss of {target} was reached after {steps:.0} steps, and not yet after {low:.0}; the curve was seen for \
             {seen:.0}"
        );
    }
    let range = match high {
        Some(high) => format!("95 % interval {low:.0} to {high:.0}"),
        None => format!("at least {low:.0}, and it may never be reached: the curve does not show enough"),
    };
    format!(
        "a loss of {target} is expected after {steps:.0} steps ({range}); the curve was seen for {seen:.0}"
    )
}

/// What happened to the curve on the way, and what will, where an expectation rests on it.
fn on_the_way(earlier: &WorkToLoss) -> Vec<String> {
    if earlier.reached {
        return Vec::new();
    }
    let broken = |broken: &Break| {
        let at = format!("the curve breaks after step {:.0}", broken.progress);
        match broken.reason {
            BreakReason::KnownFall => format!("{at}, where the job lets the learning rate fall"),
            BreakReason::Run { points, probability } => format!(
                "{at}: {points} points in a row lie on one side of any smooth curve (probability {:.2} %)",
                (100.0 * probability).max(0.01)
            ),
        }
    };
    let ahead = earlier.falls_ahead.first().map(|step| {
        format!("the learning rate falls at step {step}, after what was seen: what that does is not in the figures")
    });
    earlier.breaks.iter().map(broken).chain(ahead).collect()
}

/// The metrics of a run that is named in one of three ways.
fn metrics_of(run: &Path) -> Result<PathBuf, RunDirError> {
    if run.is_file() {
        return Ok(run.to_path_buf());
    }
    let inside = RunDir::at(run).metrics_file();
    if inside.is_file() {
        return Ok(inside);
    }
    Ok(StateDir::find(None)?.run(&run.display().to_string())?.metrics_file())
}
