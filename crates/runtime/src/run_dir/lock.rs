//! One coordinator per run: it holds a lock in the run's folder while it lives, however it dies.
//!
//! The lock is `flock`'s, which belongs to an open file: another part of the same process that asks and closes its own
//! file does not release it, as it would a lock of `fcntl`. On NFS Linux asks the server for a lock on the whole file
//! instead (since 2.6.12), which other nodes honour, unless the file system is mounted with `nolock` or
//! `local_lock=flock|all`. There an exclusive lock needs a file that is open for writing, and a shared one a file that
//! is open for reading.

use std::fs::File;
use std::io::Result;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

/// How long to try: a process that asks whether a coordinator lives holds the lock for a moment.
const PATIENCE: Duration = Duration::from_millis(100);

fn open(path: &Path) -> Result<File> {
    File::options().read(true).create(true).append(true).open(path)
}

fn locked(file: &File, how: FlockOperation) -> bool {
    flock(file, how).is_ok()
}

/// Takes the lock at `path` until the file is closed; `None` when another coordinator has it.
pub(super) fn take(path: &Path) -> Result<Option<File>> {
    let file = open(path)?;
    let until = Instant::now() + PATIENCE;
    while !locked(&file, FlockOperation::NonBlockingLockExclusive) {
        if Instant::now() > until {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(Some(file))
}

/// Whether a process holds the lock at `path`.
pub(super) fn is_held(path: &Path) -> Result<bool> {
    // Closed, and so unlocked, at once. Shared, so that two who ask at once do not take each other for a coordinator.
    open(path).map(|file| !locked(&file, FlockOperation::NonBlockingLockShared))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_ask_at_once_do_not_see_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let ask = || (0..500).filter(|_| is_held(&path).unwrap()).count();
        let seen = std::thread::scope(|scope| {
            let asking: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
            asking.into_iter().map(|asking| asking.join().unwrap()).sum::<usize>()
        });
        assert_eq!(seen, 0, "no coordinator lives");
        let lock = take(&path).unwrap().expect("the lock is free");
        assert!(is_held(&path).unwrap());
        assert!(take(&path).unwrap().is_none());
        drop(lock);
        assert!(!is_held(&path).unwrap());
    }
}
