//! A folder among the system's temporary ones that vanishes with what was measured.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs, process};

use bellwether_core::InputError;

use crate::error::at;

static FOLDERS: AtomicU32 = AtomicU32::new(0);

/// The folder, until this is dropped.
#[derive(Debug)]
pub(super) struct Scratch(pub(super) PathBuf);

impl Scratch {
    pub(super) fn new() -> Result<Scratch, InputError> {
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("bellwether-profile-{}-{number}", process::id()));
        fs::create_dir(&path).map_err(|e| at(path.display().to_string(), e))?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is the system's to clean up.
        let _ = fs::remove_dir_all(&self.0);
    }
}
