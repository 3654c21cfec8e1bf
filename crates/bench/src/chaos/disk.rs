//! A small disk for one run, which can be full for a moment.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::failure::Failure;

/// Room for the journal, the metrics and some checkpoints of a case.
const SIZE: &str = "size=24m";

/// A file system in memory, mounted at a folder of its own; gone when dropped.
#[derive(Debug)]
pub(super) struct Disk {
    place: PathBuf,
}

/// Why there can be none here, if so.
pub(super) fn missing() -> Option<&'static str> {
    (!rustix::process::geteuid().is_root()).then_some("mounting a small disk needs root")
}

impl Disk {
    pub(super) fn mount(place: &Path) -> Result<Disk, Failure> {
        let failed = |error: String| Failure::at(place.display().to_string(), error);
        fs::create_dir_all(place).map_err(|e| failed(e.to_string()))?;
        run("mount", &["-t", "tmpfs", "-o", SIZE, "bellwether"], place).map_err(failed)?;
        Ok(Disk { place: place.into() })
    }

    /// Takes all room for a while.
    pub(super) fn fill(&self, time: Duration) {
        let filler = self.place.join("filler");
        if let Ok(mut file) = File::create(&filler) {
            while file.write_all(&[0; 4096]).is_ok() {}
            while file.write_all(&[0]).is_ok() {}
        }
        std::thread::sleep(time);
        let _ = fs::remove_file(filler);
    }

    /// Copies everything to a folder that stays.
    pub(super) fn copy_to(&self, folder: &Path) {
        // What cannot be copied cannot be looked at either.
        let _ = Command::new("cp").arg("-r").arg(&self.place).arg(folder).status();
    }
}

fn run(program: &str, arguments: &[&str], place: &Path) -> Result<(), String> {
    let done = Command::new(program).args(arguments).arg(place).output().map_err(|e| e.to_string())?;
    if done.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&done.stderr).trim().to_string()) }
}

/// Takes away the disk at this place, if one is there.
pub(super) fn unmount(place: &Path) {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    if mounts.lines().any(|line| line.split(' ').nth(1).map(Path::new) == Some(place)) {
        // Lazily, should a process still be on its way out.
        let _ = run("umount", &["-l"], place);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        unmount(&self.place);
    }
}
