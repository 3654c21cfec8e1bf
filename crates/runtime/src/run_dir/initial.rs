//! The weights that training begins from, where they do not follow from the seed.

use std::fs;
use std::path::{Path, PathBuf};

use super::{RunDir, RunDirError};

const INITIAL_WEIGHTS: &str = "initial.f32";

impl RunDir {
    /// Keeps a copy of the weights that training begins from, until the run's first checkpoint holds them.
    ///
    /// # Errors
    ///
    /// Returns the file system's error.
    pub fn keep_initial_weights(&self, file: &Path) -> Result<PathBuf, RunDirError> {
        let path = self.path.join(INITIAL_WEIGHTS);
        fs::copy(file, &path).map_err(RunDirError::io(file))?;
        Ok(path)
    }

    /// Keeps weights that training begins from: parameters, then state, in the order of the layout.
    ///
    /// # Errors
    ///
    /// Returns the file system's error.
    pub fn keep_initial_values(&self, values: &[f32]) -> Result<PathBuf, RunDirError> {
        let path = self.path.join(INITIAL_WEIGHTS);
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        fs::write(&path, bytes).map_err(RunDirError::io(&path))?;
        Ok(path)
    }
}
