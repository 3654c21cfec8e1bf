//! What a session trains, as whoever begins it gives it.

use std::fmt;
use std::sync::Arc;

use bellwether_core::InputError;
use bellwether_core::job::Job;
use bellwether_runtime::trainee::Trainee;

/// Builds what is trained from its job: once when the session begins, to see that it can be built and what it
/// is, and once in every worker that is a thread.
#[derive(Clone)]
pub(crate) struct Workload(Arc<Build>);

type Build = dyn Fn(&Job) -> Result<Box<dyn Trainee>, InputError> + Send + Sync;

impl Workload {
    pub(crate) fn new(
        build: impl Fn(&Job) -> Result<Box<dyn Trainee>, InputError> + Send + Sync + 'static,
    ) -> Workload {
        Workload(Arc::new(build))
    }

    pub(crate) fn build(&self, job: &Job) -> Result<Box<dyn Trainee>, InputError> {
        (self.0)(job)
    }
}

impl fmt::Debug for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Workload")
    }
}
