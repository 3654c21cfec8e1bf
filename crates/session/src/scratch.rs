//! A folder of this user alone, among the system's temporary ones or elsewhere, which vanishes with what was done in
//! it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs, process};

use bellwether_core::InputError;
use bellwether_runtime::private;

use crate::error::at;

static FOLDERS: AtomicU32 = AtomicU32::new(0);

/// The folder, until this is dropped.
#[derive(Debug)]
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(purpose: &str) -> Result<Scratch, InputError> {
        Scratch::within(&env::temp_dir(), &format!("bellwether-{purpose}"))
    }

    /// One in this folder. Machines that share it give their processes the same numbers, so a name that is taken is not
    /// used again.
    pub(crate) fn within(folder: &Path, name: &str) -> Result<Scratch, InputError> {
        let free = || loop {
            let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
            let path = folder.join(format!("{name}-{}-{number}", process::id()));
            if !path.exists() {
                return path;
            }
        };
        let path = free();
        private::own_folder(&path).map_err(|e| at(path.display().to_string(), e))?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is the system's to clean up.
        let _ = fs::remove_dir_all(&self.0);
    }
}
