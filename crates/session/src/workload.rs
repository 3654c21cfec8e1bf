//! What a session trains, as its caller gives it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use bellwether_core::InputError;
use bellwether_core::job::Job;
use bellwether_runtime::workload::Workload;

/// Builds what is trained from its job: once when the session begins, to see that it can be built and what it
/// is, and once in every worker that is a thread.
#[derive(Clone)]
pub(crate) struct WorkloadBuilder {
    build: Arc<Build>,
    initial_weights: Option<PathBuf>,
}

type Build = dyn Fn(&Job) -> Result<Box<dyn Workload>, InputError> + Send + Sync;

impl WorkloadBuilder {
    pub(crate) fn new(
        build: impl Fn(&Job) -> Result<Box<dyn Workload>, InputError> + Send + Sync + 'static,
    ) -> WorkloadBuilder {
        WorkloadBuilder { build: Arc::new(build), initial_weights: None }
    }

    /// The same with a file of the weights that training begins from.
    pub(crate) fn with_initial_weights(self, initial_weights: Option<PathBuf>) -> WorkloadBuilder {
        WorkloadBuilder { initial_weights, ..self }
    }

    /// The file of the weights that training begins from.
    pub(crate) fn initial_weights(&self) -> Option<PathBuf> {
        self.initial_weights.clone()
    }

    pub(crate) fn build(&self, job: &Job) -> Result<Box<dyn Workload>, InputError> {
        (self.build)(job)
    }
}

impl fmt::Debug for WorkloadBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Workload")
    }
}
