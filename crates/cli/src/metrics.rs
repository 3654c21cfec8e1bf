//! What a run's steps took: the format is the runtime's, and which of them count is the model's.

pub(crate) use bellwether_model::observed::WARM_UP_STEPS;
pub(crate) use bellwether_runtime::metrics::{StepLine, read};
