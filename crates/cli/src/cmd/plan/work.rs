//! How much there is to train: steps, epochs, or down to a loss by the curve of an earlier run.

use std::path::PathBuf;

use bellwether_answers::plan::Work;
use clap::Args;

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

impl WorkArguments {
    /// What they say.
    pub(super) fn work(&self) -> Work {
        Work {
            steps: self.steps,
            epochs: self.epochs,
            samples: self.samples,
            target_loss: self.target_loss,
            curve: self.curve.clone(),
        }
    }
}
