//! Folders for what is measured, which vanish with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::failure::Failure;

static FOLDERS: AtomicU32 = AtomicU32::new(0);

/// A folder among the system's temporary ones that is removed in the end.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    kept: bool,
}

impl Folder {
    /// Makes one; `purpose` is part of its name.
    pub(crate) fn new(purpose: &str) -> Result<Folder, Failure> {
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("bellwether-{purpose}-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).map_err(|e| Failure::at(path.display().to_string(), e))?;
        Ok(Folder { path, kept: false })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// It stays: a person should look into it.
    pub(crate) fn keep(&mut self) {
        self.kept = true;
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> Result<PathBuf, Failure> {
        let path = self.path.join(name);
        fs::write(&path, content).map_err(|e| Failure::at(path.display().to_string(), e))?;
        Ok(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.kept {
            // What cannot be removed is the system's to clean up.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}
