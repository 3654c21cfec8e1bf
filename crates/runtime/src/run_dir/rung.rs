//! The step at which a run shall wait: where what trains many runs decides at certain steps which of them go on.

use std::fs;
use std::io;

use super::{RunDir, RunDirError, write_json};

/// The file that holds the step.
const RUNG: &str = "rung.json";

impl RunDir {
    /// Lets the run stop with a checkpoint soon after the held-out set was evaluated at this step or a later one,
    /// unless another step is kept by then; `None`: at none. It holds for the coordinator that leads the run, too.
    ///
    /// # Errors
    ///
    /// Returns the file system's error.
    pub fn keep_rung(&self, step: Option<u64>) -> Result<(), RunDirError> {
        write_json(&self.path.join(RUNG), &step, false)
    }

    /// The step at which it shall stop; none for most runs.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or holds no step.
    pub fn rung(&self) -> Result<Option<u64>, RunDirError> {
        let path = self.path.join(RUNG);
        match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(RunDirError::io(&path)(error)),
            Ok(text) => serde_json::from_slice(&text).map_err(RunDirError::malformed(&path)),
        }
    }
}
