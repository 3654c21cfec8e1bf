//! What a run's steps took; the format is the runtime's.

pub(crate) use bellwether_runtime::metrics::{StepLine, WARM_UP_STEPS, read};
