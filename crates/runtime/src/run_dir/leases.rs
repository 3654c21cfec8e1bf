//! Leases of machines in the state directory: a file for each, and a lock that its holder has while it lives.
//!
//! They lie beside the runs and not in them, so that machines are found whose run was removed.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use bellwether_core::InputError;
use bellwether_core::lease::Lease;
use bellwether_core::machines::is_lease;

use super::{RunDirError, StateDir, lock, random_key, write_json};
use crate::private;

/// The folder of leases in a state directory.
const LEASES: &str = "leases";

/// Bytes of a lease that are read at most.
const BYTES_MAX: u64 = 64 << 20;

/// The file of a lease that is held: while this value lives, no other process takes the lease.
#[derive(Debug)]
pub struct LeaseFile {
    path: PathBuf,
    _lock: File,
}

impl StateDir {
    /// Makes a word for a lease, and holds it; the file comes with the first [`LeaseFile::write`].
    ///
    /// # Errors
    ///
    /// As the file system says, or if the system gives no random bytes.
    pub fn begin_lease(&self) -> Result<(String, LeaseFile), RunDirError> {
        let lease = random_key()?;
        let file = self.hold_lease(&lease)?;
        let file = file.ok_or_else(|| RunDirError::Random(io::Error::other("a random word came twice")))?;
        Ok((lease, file))
    }

    /// Holds a lease that is there; `None` while another process holds it.
    ///
    /// # Errors
    ///
    /// As the file system says.
    pub fn hold_lease(&self, lease: &str) -> Result<Option<LeaseFile>, RunDirError> {
        let folder = self.leases();
        private::folder(&folder).map_err(RunDirError::io(&folder))?;
        let path = folder.join(format!("{lease}.json"));
        let lock = lock::take(&path.with_extension("lock")).map_err(RunDirError::io(&path))?;
        Ok(lock.map(|lock| LeaseFile { path, _lock: lock }))
    }

    /// Whether a process holds a lease.
    ///
    /// # Errors
    ///
    /// As the file system says.
    pub fn is_lease_held(&self, lease: &str) -> Result<bool, RunDirError> {
        let path = self.leases().join(format!("{lease}.lock"));
        lock::is_held(&path).map_err(RunDirError::io(&path))
    }

    /// The words of all leases that are there, in their order.
    ///
    /// # Errors
    ///
    /// As the file system says; a directory without leases has none.
    pub fn lease_words(&self) -> Result<Vec<String>, RunDirError> {
        let folder = self.leases();
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(RunDirError::io(&folder))?,
        };
        let mut words = Vec::new();
        for entry in entries {
            let path = entry.map_err(RunDirError::io(&folder))?.path();
            let is_json = path.extension().is_some_and(|extension| extension == "json");
            let word = path.file_stem().and_then(|stem| stem.to_str());
            words.extend(word.filter(|word| is_json && is_lease(word)).map(str::to_owned));
        }
        words.sort();
        Ok(words)
    }

    /// Reads a lease.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, or holds something else.
    pub fn read_lease(&self, lease: &str) -> Result<Lease, InputError> {
        read(&self.leases().join(format!("{lease}.json")))
    }

    fn leases(&self) -> PathBuf {
        self.path().join(LEASES)
    }
}

impl LeaseFile {
    /// Writes the lease, whole or not at all, also after a power cut.
    ///
    /// # Errors
    ///
    /// As the file system says.
    pub fn write(&self, lease: &Lease) -> Result<(), RunDirError> {
        write_json(&self.path, lease, false)
    }

    /// Removes the lease: no machine of it is left.
    ///
    /// # Errors
    ///
    /// As the file system says.
    pub fn remove(self) -> Result<(), RunDirError> {
        for path in [self.path.clone(), self.path.with_extension("lock")] {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(RunDirError::io(&path)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn read(path: &Path) -> Result<Lease, InputError> {
    let place = path.display().to_string();
    let wrong = |what: String| InputError::new(&place, what);
    let length = fs::metadata(path).map_err(|e| wrong(e.to_string()))?.len();
    if length > BYTES_MAX {
        return Err(wrong("it is too long to be a lease".into()));
    }
    let text = fs::read_to_string(path).map_err(|e| wrong(e.to_string()))?;
    Lease::read(&text, &place)
}
