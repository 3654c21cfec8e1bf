//! What a run's steps took: the format is the runtime's, and which of them count is the model's.

use std::path::Path;

use bellwether_core::record::StepRecord;
pub(crate) use bellwether_model::observed::WARM_UP_STEPS;

/// The steps of a run that all workers did together. Others do not measure a step: no worker waited for its end.
pub(crate) fn read(folder: &Path) -> impl Iterator<Item = StepRecord> {
    bellwether_runtime::metrics::read(folder).filter(|step| !step.is_asynchronous())
}
