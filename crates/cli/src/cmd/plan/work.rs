//! How much there is to train: steps, epochs, or down to a loss by the curve of an earlier run.

use std::path::{Path, PathBuf};

use bellwether_core::InputError;
use bellwether_core::profile::Profile;
use bellwether_session::work::{WorkError, WorkToLoss, to_loss};
use clap::Args;

use crate::failure::Failure;
use crate::printer::Printer;
use crate::runs::{RunDir, StateDir};

#[derive(Debug, Args)]
pub(super) struct WorkArguments {
    /// Train this many steps of the profile's batch
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with_all = ["epochs", "target_loss"])]
    steps: Option<u64>,
    /// Train this many passes over the samples
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

/// How much there is to train.
pub(super) struct Work {
    /// Samples to train on, each counted as often as it is seen.
    pub(super) samples: f64,
    /// What an earlier run says, where the work is what a target loss takes.
    pub(super) earlier: Option<WorkToLoss>,
}

pub(super) fn samples(
    arguments: &WorkArguments,
    profile: &Profile,
    printer: &Printer,
) -> Result<Work, Failure> {
    let batch = profile.batch as f64;
    match (arguments, arguments.samples) {
        (WorkArguments { steps: Some(steps), .. }, _) => {
            Ok(Work { samples: *steps as f64 * batch, earlier: None })
        }
        // An epoch ends with a short step.
        (WorkArguments { epochs: Some(epochs), .. }, Some(samples)) => {
            Ok(Work { samples: *epochs as f64 * samples as f64, earlier: None })
        }
        (WorkArguments { target_loss: Some(target), curve: Some(run), .. }, _) => {
            let path = metrics_of(run)?;
            let earlier = to_loss(*target, &path, profile).map_err(|error| match error {
                WorkError::Input(error) => error.into(),
                WorkError::OutOfReach { least } => Failure::No(format!(
                    "the loss of {target} is out of reach: the curve of {} comes down to {least:.4} and no further\n  \
                     hint: ask for a larger loss, or train the job with another learning rate and take its curve",
                    path.display()
                )),
            })?;
            printer.note(expected(*target, &earlier));
            Ok(Work { samples: earlier.steps.max(1.0).ceil() * batch, earlier: Some(earlier) })
        }
        _ => Err(InputError::new("plan", "nothing says how long the job trains")
            .hint("say --steps N, --epochs N --samples N, or --target-loss LOSS --curve RUN")
            .into()),
    }
}

fn expected(target: f64, earlier: &WorkToLoss) -> String {
    let WorkToLoss { steps, interval: (low, high), seen, .. } = earlier;
    let range = match high {
        Some(high) => format!("95 % interval {low:.0} to {high:.0}"),
        None => format!("at least {low:.0}, and it may never be reached: the curve does not show enough"),
    };
    format!(
        "a loss of {target} is expected after {steps:.0} steps ({range}); the curve was seen for {seen:.0}"
    )
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
