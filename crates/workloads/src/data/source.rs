//! Where the bytes of samples come from: memory, or ranges of the caller's files.
//!
//! A file has a version when it is opened. Everything that is read later is of the same version, or an error says that
//! the file has changed: samples are never taken from a file that is another one by then.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bellwether_core::InputError;

/// The caller's files.
pub trait Files: Send + Sync {
    /// Reads a whole file.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Opens a file of which ranges are read.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn Ranges>>;

    /// Names of what is in a folder, in any order.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    fn list(&self, folder: &Path) -> io::Result<Vec<String>>;

    /// What was kept under this name, a word of letters and digits, if it is still there.
    fn kept(&self, name: &str) -> Option<Vec<u8>> {
        let _ = name;
        None
    }

    /// Keeps bytes for the next [`kept`](Files::kept), whole or not at all; they may get lost.
    fn keep(&self, name: &str, bytes: &[u8]) {
        let _ = (name, bytes);
    }
}

/// An open file.
pub trait Ranges: Send + Sync {
    /// What tells this content from any other that the file may have.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    fn version(&self) -> io::Result<Version>;

    /// Reads bytes from `offset` on; fewer than `out` takes where the system gives fewer, and none at the end.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize>;
}

/// What tells one content of a file from another, as far as the file system does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    /// Length.
    pub bytes: u64,
    /// When it was last written: seconds and nanoseconds of the Unix time.
    pub modified: (i64, i64),
    /// Its number in the file system.
    pub number: u64,
}

/// Files that stay open, over all files of a data set: systems allow a process about a thousand.
const OPEN_MAX: usize = 256;

/// Bytes of one shard.
pub(super) enum Source {
    /// All of them.
    Memory {
        /// What errors call it.
        name: String,
        /// Its content.
        bytes: Vec<u8>,
    },
    /// A file.
    File(FileSource),
}

/// A file of which ranges are read.
pub(super) struct FileSource {
    name: String,
    path: PathBuf,
    version: Version,
    files: Arc<dyn Files>,
    /// The file, if it stays open.
    open: Mutex<Option<Arc<dyn Ranges>>>,
    /// Files that stay open.
    open_count: Arc<AtomicUsize>,
}

impl Source {
    /// Bytes in memory.
    pub(super) fn memory(name: &str, bytes: Vec<u8>) -> Source {
        Source::Memory { name: name.into(), bytes }
    }

    /// What errors call it.
    pub(super) fn name(&self) -> &str {
        match self {
            Source::Memory { name, .. } => name,
            Source::File(file) => &file.name,
        }
    }

    /// Its length in bytes.
    pub(super) fn len(&self) -> u64 {
        match self {
            Source::Memory { bytes, .. } => bytes.len() as u64,
            Source::File(file) => file.version.bytes,
        }
    }

    /// Fills `out` with the bytes from `offset` on.
    pub(super) fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> Result<(), InputError> {
        match self {
            Source::Memory { name, bytes } => {
                let begin = usize::try_from(offset).unwrap_or(usize::MAX);
                let range = begin.checked_add(out.len()).and_then(|end| bytes.get(begin..end));
                out.copy_from_slice(range.ok_or_else(|| InputError::new(name, "ends too early"))?);
                Ok(())
            }
            Source::File(file) => file.read_exact_at(offset, out),
        }
    }

    /// The bytes from `offset` on, as many as there are up to `most`.
    pub(super) fn some_at(&self, offset: u64, most: usize) -> Result<Vec<u8>, InputError> {
        let count = self.len().saturating_sub(offset).min(most as u64) as usize;
        let mut bytes = vec![0; count];
        self.read_exact_at(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads it from `offset` to the end.
    pub(super) fn reader(&self, offset: u64) -> SourceReader<'_> {
        SourceReader { source: self, offset, limit: u64::MAX }
    }

    /// Visits `count` records of equal length that follow each other from `offset` on.
    pub(super) fn records(
        &self,
        offset: u64,
        record_bytes: usize,
        count: u64,
        mut each: impl FnMut(u64, &[u8]) -> Result<(), InputError>,
    ) -> Result<(), InputError> {
        /// Bytes that are read at once, unless a record is larger.
        const PIECE_BYTES: usize = 1 << 20;
        let at_once = (PIECE_BYTES / record_bytes).max(1) as u64;
        let mut bytes = vec![0; record_bytes * at_once.min(count) as usize];
        let mut first = 0;
        while first < count {
            let records = at_once.min(count - first);
            let piece = &mut bytes[..record_bytes * records as usize];
            self.read_exact_at(offset + first * record_bytes as u64, piece)?;
            for (number, record) in (first..).zip(piece.chunks_exact(record_bytes)) {
                each(number, record)?;
            }
            first += records;
        }
        Ok(())
    }
}

impl FileSource {
    /// Opens a file, whose version is the one that counts from now on.
    pub(super) fn open(
        path: &Path,
        files: &Arc<dyn Files>,
        open_count: &Arc<AtomicUsize>,
    ) -> Result<FileSource, InputError> {
        let failed = |error| unreadable(path, error);
        let ranges = files.open(path).map_err(failed)?;
        let file = FileSource {
            name: path.display().to_string(),
            path: path.into(),
            version: ranges.version().map_err(failed)?,
            files: Arc::clone(files),
            open: Mutex::new(None),
            open_count: Arc::clone(open_count),
        };
        file.stay_open(&ranges);
        Ok(file)
    }

    /// Its version when it was opened.
    pub(super) fn version(&self) -> Version {
        self.version
    }

    fn stay_open(&self, ranges: &Arc<dyn Ranges>) {
        if self.open_count.fetch_add(1, Ordering::Relaxed) < OPEN_MAX {
            *self.open.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(ranges));
        } else {
            self.open_count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> Result<(), InputError> {
        let failed = |error| unreadable(&self.path, error);
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let ranges = match open {
            Some(ranges) => ranges,
            None => self.files.open(&self.path).map_err(failed)?,
        };
        let mut filled = 0;
        while filled < out.len() {
            match ranges.read_at(offset + filled as u64, &mut out[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
        // After reading: what is written later does no harm to what was read.
        if filled < out.len() || ranges.version().map_err(failed)? != self.version {
            return Err(InputError::new(&self.name, "has changed while its samples were in use").hint(
                "put it back as it was and take the run up again, or start a new run with the new data; a file must \
                 not be written to while a job reads it",
            ));
        }
        Ok(())
    }
}

/// Reads a source from front to end.
pub(super) struct SourceReader<'s> {
    source: &'s Source,
    offset: u64,
    /// Where reading fails: what should have ended before does not.
    limit: u64,
}

impl SourceReader<'_> {
    /// Lets it read until this offset.
    pub(super) fn allow(&mut self, limit: u64) {
        self.limit = limit;
    }
}

impl Read for SourceReader<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.source.len().saturating_sub(self.offset).min(out.len() as u64);
        if count > 0 && self.offset >= self.limit {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        self.source.read_exact_at(self.offset, &mut out[..count as usize]).map_err(io::Error::other)?;
        self.offset += count;
        Ok(count as usize)
    }
}

/// What the file system said of a file.
pub(super) fn unreadable(path: &Path, error: io::Error) -> InputError {
    let hint = match error.kind() {
        io::ErrorKind::NotFound => "relative paths start at the job file's folder",
        _ => "",
    };
    InputError::new(path.display().to_string(), format!("cannot be read: {error}")).hint(hint)
}
