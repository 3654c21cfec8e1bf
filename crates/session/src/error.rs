//! Why a run could not begin, or a job not be measured.

use std::fmt::Display;

use bellwether_core::InputError;
use bellwether_runtime::coordinator::CoordinatorError;
use bellwether_runtime::run_dir::{RunDir, RunDirError};

/// A run could not begin. How a run that began ended is not an error: see [`Session::run`](crate::Session::run).
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The job, what it names, or this machine cannot be used.
    #[error(transparent)]
    Input(#[from] InputError),
    /// An option of the session does not fit the job; its place begins with the option's name.
    #[error(transparent)]
    Option(InputError),
    /// The run that is to be taken up is finished, and its result is on disk.
    #[error("{run}: the run is finished: all {steps} steps are done")]
    Finished {
        /// The run.
        run: String,
        /// Its steps.
        steps: u64,
    },
    /// The workers of one speed would be faster without the others.
    #[error("{0}")]
    Slower(String),
    /// The run's folder cannot be found, read or written.
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    /// The run could not be coordinated.
    #[error("{}: {source}", .run.name)]
    Coordinator {
        /// The run, whose folder is there.
        run: RunDir,
        /// Why.
        source: Box<CoordinatorError>,
    },
}

/// Something in the environment failed at `place`.
pub(crate) fn at(place: impl Into<String>, why: impl Display) -> InputError {
    InputError::new(place, why.to_string())
}
