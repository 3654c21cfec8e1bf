//! The end of the benchmark before its time: what it began ends with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{RwLock, RwLockReadGuard};
use std::time::Duration;

use bellwether_runtime::ending::wait_until_asked;
use rustix::process::Signal;

use super::disk;
use super::processes::{living, signal};
use crate::failure::Failure;

/// Taken for good when the benchmark ends.
static GATE: RwLock<()> = RwLock::new(());

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(10);

/// A thread that starts a process of a run holds this until the process is there; when the benchmark ends, no thread
/// gets it any more.
pub(super) fn gate() -> RwLockReadGuard<'static, ()> {
    GATE.read().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// From now on, a signal that ends the benchmark (SIGINT, SIGTERM) ends its runs, too.
pub(super) fn watch() -> Result<(), Failure> {
    let end = || {
        let Ok(code) = wait_until_asked() else { return };
        let _closed = GATE.write();
        folders().iter().for_each(|folder| end(folder));
        std::process::exit(i32::from(code));
    };
    let thread = std::thread::Builder::new().name("ending".into()).spawn(end);
    thread.map(drop).map_err(|error| Failure::at("bench", error))
}

/// The folders of this benchmark's runs.
fn folders() -> Vec<PathBuf> {
    let ours = |name: &str| {
        let number = name.strip_prefix("bellwether-chaos-").and_then(|rest| rest.split('-').nth(1));
        number.is_some_and(|process| process == std::process::id().to_string())
    };
    let entries = fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().to_str().is_some_and(ours)).map(|entry| entry.path()).collect()
}

/// Ends the run in `folder` and removes it. A coordinator that ends may have started a worker just before.
fn end(folder: &Path) {
    loop {
        let left = living(folder);
        if left.is_empty() {
            break;
        }
        left.iter().for_each(|(process, _)| signal(*process, Signal::KILL));
        std::thread::sleep(LOOK);
    }
    disk::unmount(&folder.join("state"));
    // What cannot be removed is the system's to clean up.
    let _ = fs::remove_dir_all(folder);
}
