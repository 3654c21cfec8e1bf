//! A supernet with its held-out samples: how good one of its architectures is with the weights that all share.

use std::io;
use std::path::Path;

use bellwether_core::InputError;
use bellwether_core::job::{CellOperation, Job, Model};
use bellwether_runtime::workload::{Evaluation, Layout, MicroBatch, Weights, Workload, WorkloadError};

use crate::data::{Access, Dataset};
use crate::model::network;
use crate::network_workload::NetworkTrainee;

/// Samples by whose statistics a path is normalised at once: all held-out samples of a small set.
const SAMPLES: usize = 512;

/// A network of cells that scores its architectures.
pub struct Supernet {
    trainee: NetworkTrainee,
    samples: Vec<u64>,
}

impl Supernet {
    /// The supernet that a checked job describes. `open` reads a whole file, as for [`build`](crate::build()).
    ///
    /// # Errors
    ///
    /// Returns an error if the job's model has no cells, a file cannot be read or decoded, or no sample is held out.
    pub fn open(job: &Job, open: &dyn Fn(&Path) -> io::Result<Vec<u8>>) -> Result<Supernet, InputError> {
        if !matches!(job.model, Model::Cell(_)) {
            let error =
                InputError::new("model.kind", "only a network of cells holds architectures to choose from");
            return Err(error.hint("write kind = \"cell\""));
        }
        let data = Dataset::load(&job.data, 1, Access::Whole(open))?;
        let network = network(&job.model, data.image(), data.classes())?;
        let trainee = NetworkTrainee::new(job, network, data)?;
        let samples: Vec<u64> = (0..trainee.held_out_samples()).collect();
        if samples.is_empty() {
            let error = InputError::new(
                "data.held_out",
                "no sample is held out, by which architectures are compared",
            );
            return Err(error.hint("hold out a share, for example data.held_out = 0.2"));
        }
        Ok(Supernet { trainee, samples })
    }

    /// Names and shapes of its tensors.
    pub fn layout(&self) -> &Layout {
        self.trainee.layout()
    }

    /// Writes the initial parameters and state for `seed`.
    pub fn initialize(&mut self, seed: u64, parameters: &mut [f32], state: &mut [f32]) {
        self.trainee.initialize(seed, parameters, state);
    }

    /// Loss and right predictions of this path, an operation for each edge, on all held-out samples. Where the network
    /// is a supernet, the samples' own statistics normalise them.
    ///
    /// # Errors
    ///
    /// Returns an error if the tensors cannot be computed.
    pub fn score(
        &mut self,
        weights: Weights<'_>,
        path: &[CellOperation],
    ) -> Result<Evaluation, WorkloadError> {
        let mut total = Evaluation::default();
        // Parts of equal size: the statistics of a small rest would be worse.
        let Supernet { trainee, samples } = self;
        let count = samples.len();
        let parts = count.div_ceil(SAMPLES);
        for part in 0..parts {
            let samples = &samples[count * part / parts..count * (part + 1) / parts];
            let scored = trainee.evaluate_along(weights, MicroBatch { samples }, Some(path), 0)?;
            total.loss_sum += scored.loss_sum;
            total.correct += scored.correct;
            total.predictions += scored.predictions;
        }
        Ok(total)
    }
}
