//! What is done with a run that has no coordinator: its workers are ended, or its folder is removed.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use super::leftovers::{Leftover, Leftovers};
use super::{RunDir, RunDirError};

/// How long workers that were asked to go may take before they are killed.
const PATIENCE: Duration = Duration::from_secs(5);

/// Time between two looks at them.
const LOOK: Duration = Duration::from_millis(20);

impl RunDir {
    /// Ends the workers and servers that a coordinator of the run started on this machine and that wait for another.
    /// Says how many; nothing where a coordinator is at work. What only they knew is lost: the run goes on from its
    /// last checkpoint.
    ///
    /// # Errors
    ///
    /// As the file system says.
    pub fn end_orphans(&self) -> Result<Option<usize>, RunDirError> {
        // No coordinator begins meanwhile.
        let Some(_lock) = self.lock().map_err(RunDirError::io(&self.lock_file()))? else { return Ok(None) };
        let orphans = Leftovers::of(&self.history()?).alive(&self.path);
        orphans.iter().for_each(Leftover::ask);
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until && !orphans.iter().all(Leftover::has_ended) {
            std::thread::sleep(LOOK);
        }
        orphans.iter().for_each(Leftover::kill);
        Ok(Some(orphans.len()))
    }

    /// Whether workers or servers wait that a coordinator of the run started on this machine.
    ///
    /// # Errors
    ///
    /// As the file system says.
    pub fn has_orphans(&self) -> Result<bool, RunDirError> {
        Ok(!Leftovers::of(&self.history()?).alive(&self.path).is_empty())
    }

    /// Removes the folder with all that is in it. Says whether it did: not while a coordinator is at work.
    ///
    /// # Errors
    ///
    /// As the file system says.
    pub fn remove(&self) -> Result<bool, RunDirError> {
        let Some(_lock) = self.lock().map_err(RunDirError::io(&self.lock_file()))? else { return Ok(false) };
        // First what makes the folder a run: if the rest cannot be removed, no half of a run is left in the lists.
        for path in [self.job_file(), self.path.clone()] {
            let removed = if path == self.path { remove_whole(&path) } else { fs::remove_file(&path) };
            match removed {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(RunDirError::io(&path)(error));
                }
                _ => {}
            }
        }
        Ok(true)
    }
}

/// Removes a folder with all that is in it. A process of the run that is about to end may still write there, so a
/// folder that is not empty yet is tried again for a while.
fn remove_whole(path: &Path) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    loop {
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty && Instant::now() < until => {
                std::thread::sleep(LOOK);
            }
            removed => return removed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_removed_under_one_that_writes_a_little_longer() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run");
        fs::create_dir(&path).expect("a folder");
        // The time that these take is enough for the other one to write more.
        let mut number = 2_000_u64;
        for number in 0..number {
            fs::write(path.join(number.to_string()), b"early").expect("a file");
        }
        let writing = path.clone();
        let writer = std::thread::spawn(move || {
            let until = Instant::now() + 4 * LOOK;
            while Instant::now() < until {
                number += 1;
                // It is gone now and then.
                let _ = fs::write(writing.join(number.to_string()), b"late");
            }
        });
        remove_whole(&path).expect("it is removed");
        writer.join().expect("it ends");
        assert!(!path.exists());
    }
}
