//! One coordinator per run: it holds a lock in the run's folder while it lives, however it dies.

use std::fs::File;
use std::io::Result;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

/// How long to try: whoever wants to know whether a coordinator lives holds the lock for a moment.
const PATIENCE: Duration = Duration::from_millis(100);

fn open(folder: &Path) -> Result<File> {
    File::options().create(true).append(true).open(folder.join("lock"))
}

fn locked(file: &File) -> bool {
    flock(file, FlockOperation::NonBlockingLockExclusive).is_ok()
}

/// Takes the lock until the file is closed; `None` when another coordinator has it.
pub(super) fn take(folder: &Path) -> Result<Option<File>> {
    let file = open(folder)?;
    let until = Instant::now() + PATIENCE;
    while !locked(&file) {
        if Instant::now() > until {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(Some(file))
}

/// Whether a coordinator of the run in `folder` lives, whoever started it.
///
/// # Errors
///
/// As the file system says; no folder is an error.
pub fn is_alive(folder: &Path) -> Result<bool> {
    // Closed, and so unlocked, at once.
    open(folder).map(|file| !locked(&file))
}
