//! From a job to its workload.

use std::io;
use std::path::Path;
use std::sync::Arc;

use bellwether_core::InputError;
use bellwether_core::job::{Data, Job, Model};
use bellwether_runtime::workload::Workload;

use crate::data::rows::Form;
use crate::data::{Access, Dataset, Files};
use crate::model::{custom, network};
use crate::network_workload::NetworkTrainee;
use crate::synthetic::Synthetic;

/// The network of a job that is only applied, for samples of shape `image` (channels, height, width) in `classes`
/// classes: it has no data.
///
/// # Errors
///
/// Returns an error if the job's model is not a network, or cannot take such samples.
pub fn applied(job: &Job, image: [usize; 3], classes: usize) -> Result<Box<dyn Workload>, InputError> {
    let data = Dataset::none(image, classes, matches!(job.model, Model::Transformer { .. }));
    let network = network(&job.model, image, classes)?;
    Ok(Box::new(NetworkTrainee::applied(job, network, data)?))
}

/// Other samples than those of a job, in a file of the same kind.
#[derive(Debug, Clone, Copy)]
pub struct Other<'a> {
    /// The file.
    pub data: &'a Path,
    /// The file of their labels, where they have one of their own.
    pub labels: Option<&'a Path>,
    /// Whether the first line names the columns, where it is not as in the training data.
    pub header: Option<bool>,
}

/// The network of a job with other samples, which are read into memory, as its held-out ones.
///
/// # Errors
///
/// Returns an error if a file cannot be read or decoded, when the samples do not fit the model, or when a label is one
/// that it does not know.
pub fn examined_on(
    job: &Job,
    files: &Arc<dyn Files>,
    other: Other<'_>,
) -> Result<Box<dyn Workload>, InputError> {
    let form = Form::from_files(job, files)?.with_header(other.header);
    let network = network(&job.model, form.image(), form.classes())?;
    let data = form.examined(job, Access::Files(files), other.data, other.labels)?;
    Ok(Box::new(NetworkTrainee::applied(job, network, data)?))
}

/// The workload that a checked job describes, with its samples in memory. `open` reads a whole file; the job's paths
/// reach it as they are.
///
/// # Errors
///
/// Returns an error if a file cannot be read or decoded, when model and data do not fit, or when an epoch has fewer
/// samples than a batch.
pub fn build(
    job: &Job,
    open: &dyn Fn(&Path) -> io::Result<Vec<u8>>,
) -> Result<Box<dyn Workload>, InputError> {
    build_by(job, Access::Whole(open))
}

/// As [`build`], from files of which ranges are read when their samples are needed, where the job says so or its files
/// are large.
///
/// # Errors
///
/// Those of [`build`].
pub fn build_from(job: &Job, files: &Arc<dyn Files>) -> Result<Box<dyn Workload>, InputError> {
    build_by(job, Access::Files(files))
}

fn build_by(job: &Job, access: Access<'_>) -> Result<Box<dyn Workload>, InputError> {
    let workload: Box<dyn Workload> = match (&job.model, &job.data) {
        (Model::Custom { name, .. }, _) => return Err(custom(name)),
        (
            Model::Synthetic { step_time, spread, parameters, saturation, layers },
            Data::Indices { samples, .. },
        ) => Box::new(Synthetic::new(step_time.get(), *spread, parameters.0, *layers, *saturation, *samples)),
        (model, data) => {
            let context = if let Model::Transformer { context, .. } = model { *context } else { 1 };
            let data = Dataset::load(data, context, access)?;
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
