//! What a session trains, as its caller gives it.

use std::fmt;
use std::sync::Arc;

use bellwether_core::InputError;
use bellwether_core::job::Job;
use bellwether_runtime::workload::Workload;

/// Builds what is trained from its job: once when the session begins, to see that it can be built and what it
/// is, and once in every worker that is a thread.
#[derive(Clone)]
pub(crate) struct WorkloadBuilder(Arc<Build>);

type Build = dyn Fn(&Job) -> Result<Box<dyn Workload>, InputError> + Send + Sync;

impl WorkloadBuilder {
    pub(crate) fn new(
        build: impl Fn(&Job) -> Result<Box<dyn Workload>, InputError> + Send + Sync + 'static,
    ) -> WorkloadBuilder {
        WorkloadBuilder(Arc::new(build))
    }

    pub(crate) fn build(&self, job: &Job) -> Result<Box<dyn Workload>, InputError> {
        (self.0)(job)
    }
}

impl fmt::Debug for WorkloadBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Workload")
    }
}
