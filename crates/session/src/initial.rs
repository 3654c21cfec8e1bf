//! The weights that training begins with, where its job names a checkpoint of another run.

use std::path::Path;

use bellwether_core::InputError;
use bellwether_core::job::Job;
use bellwether_runtime::checkpoint::read_weights;
use bellwether_runtime::workload::Workload;

/// Reads what a job begins with: parameters, then state. State that the file lacks is that of a model which was never
/// trained.
///
/// # Errors
///
/// Returns an error if the file cannot be read or has other tensors.
pub(crate) fn values(file: &Path, job: &Job, workload: &mut dyn Workload) -> Result<Vec<f32>, InputError> {
    let layout = workload.layout().clone();
    let (mut values, state) = read_weights(file, &layout).map_err(|what| {
        let error = InputError::new(format!("initial_weights: {}", file.display()), what);
        error.hint(
            "name a checkpoint of a run of the same model, RUN/checkpoints/step-000000000123.safetensors",
        )
    })?;
    let parameters = values.len();
    let state = state.unwrap_or_else(|| drawn(job, workload).split_off(parameters));
    values.extend(state);
    Ok(values)
}

/// The weights of the job's seed: parameters, then state.
pub(crate) fn drawn(job: &Job, workload: &mut dyn Workload) -> Vec<f32> {
    let layout = workload.layout();
    let (mut parameters, mut state) = (vec![0.0; layout.parameter_count()], vec![0.0; layout.state_count()]);
    workload.initialize(job.seed, &mut parameters, &mut state);
    parameters.extend(state);
    parameters
}
