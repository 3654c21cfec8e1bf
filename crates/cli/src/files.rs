//! Files that users name.

use std::fs;
use std::io::Write;
use std::path::Path;

use crate::failure::Failure;

/// Writes a file so that it is there whole or not at all.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let place = path.display().to_string();
    let mut name =
        path.file_name().ok_or_else(|| Failure::at(&place, "is no name of a file"))?.to_os_string();
    name.push(format!(".{}.part", std::process::id()));
    let part = path.with_file_name(name);
    let written = fs::File::create(&part).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.and_then(|()| fs::rename(&part, path)).map_err(|error| {
        // It may not have come into being.
        let _ = fs::remove_file(&part);
        Failure::at(place, error)
    })
}
