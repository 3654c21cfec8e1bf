//! Files that are written whole or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use crate::private;

/// Writes `bytes` so that `path` has either its old content or all of the new, also after a power cut.
///
/// # Errors
///
/// Returns the file system's error; `path` has its old content then, and no `temporary` file is left.
pub fn write_atomically(temporary: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let written = private::file(temporary).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(temporary, path)
    });
    if written.is_err() {
        let _ = fs::remove_file(temporary);
    }
    written?;
    match path.parent() {
        // A bare file name lies in the working directory.
        Some(folder) if folder.as_os_str().is_empty() => File::open(".")?.sync_all(),
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}
