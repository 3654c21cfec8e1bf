//! Files that only this user may read.

use std::io;
use std::path::Path;

use bellwether_runtime::checkpoint::write_atomically;

/// Writes a file of one line.
pub(crate) fn write_line(path: &Path, line: &str) -> io::Result<()> {
    write_atomically(&path.with_extension("part"), path, format!("{line}\n").as_bytes())
}
