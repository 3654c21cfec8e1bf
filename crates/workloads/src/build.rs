//! From a job to its workload.

use std::io;
use std::path::Path;

use bellwether_core::InputError;
use bellwether_core::job::{Data, Job, Model};
use bellwether_runtime::workload::Workload;

use crate::data::Dataset;
use crate::model::{custom, network};
use crate::network_workload::NetworkTrainee;
use crate::synthetic::Synthetic;

/// The workload that a checked job describes. `open` reads a whole file; the job's paths reach it as
/// they are.
///
/// # Errors
///
/// Returns an error if a file cannot be read or decoded, when model and data do not fit, or when an epoch has fewer
/// samples than a batch.
pub fn build(
    job: &Job,
    open: &dyn Fn(&Path) -> io::Result<Vec<u8>>,
) -> Result<Box<dyn Workload>, InputError> {
    let workload: Box<dyn Workload> = match (&job.model, &job.data) {
        (Model::Custom { name, .. }, _) => return Err(custom(name)),
        (
            Model::Synthetic { step_time, spread, parameters, saturation, layers },
            Data::Indices { samples, .. },
        ) => Box::new(Synthetic::new(step_time.get(), *spread, parameters.0, *layers, *saturation, *samples)),
        (model, data) => {
            let context = if let Model::Transformer { context, .. } = model { *context } else { 1 };
            let data = Dataset::load(data, context, open)?;
            let network = network(model, data.image(), data.classes())?;
            Box::new(NetworkTrainee::new(job, network, data)?)
        }
    };
    let (samples, batch) = (workload.training_samples(), job.batch.size);
    if samples < batch {
        return Err(InputError::new(
            "batch.size",
            format!("a batch of {batch} samples is larger than the training set of {samples}"),
        )
        .hint("use a smaller batch, more samples, or a smaller data.held_out"));
    }
    Ok(workload)
}
