//! The ledger on disk.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;

use super::Line;

/// No line is longer, in bytes: a job file is at most a mebibyte, and a burst of decisions is shorter than this.
const LINE_MAX_BYTES: u64 = 64 << 20;

/// An open ledger.
#[derive(Debug)]
pub struct LedgerFile {
    file: File,
    pending: Vec<u8>,
    /// Whether something pending must be on disk before anybody hears of it.
    must_last: bool,
}

impl LedgerFile {
    /// Opens a ledger, after every whole line in it was given to `each`. What a crash cut short is removed.
    ///
    /// # Errors
    ///
    /// As the file system says, and what `each` says of a line, with its number.
    pub fn open(path: &Path, mut each: impl FnMut(Line) -> Result<(), String>) -> io::Result<LedgerFile> {
        let whole = match File::open(path) {
            Ok(file) => lines(file, &mut each)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        if file.metadata()?.len() > whole {
            file.set_len(whole)?;
        }
        Ok(LedgerFile { file, pending: Vec::new(), must_last: false })
    }

    /// Adds a line; it is written with the next [`commit`](LedgerFile::commit). With `must_last` it is on disk then, and
    /// survives the machine's end, not only the daemon's.
    ///
    /// # Errors
    ///
    /// When it cannot be put into JSON: a number that is none.
    pub fn add(&mut self, line: &Line, must_last: bool) -> io::Result<()> {
        serde_json::to_writer(&mut self.pending, line)?;
        self.pending.push(b'\n');
        self.must_last |= must_last;
        Ok(())
    }

    /// Writes what was added.
    ///
    /// # Errors
    ///
    /// As the file system says; what was added is lost then.
    pub fn commit(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let pending = std::mem::take(&mut self.pending);
        self.file.write_all(&pending)?;
        if std::mem::take(&mut self.must_last) {
            self.file.sync_data()?;
        }
        Ok(())
    }
}

/// Reads a ledger without touching it; a last line without its end is left out.
///
/// # Errors
///
/// As [`LedgerFile::open`].
pub fn read(path: &Path, mut each: impl FnMut(Line) -> Result<(), String>) -> io::Result<()> {
    lines(File::open(path)?, &mut each).map(drop)
}

/// Gives whole lines to `each`, and says how many bytes they were.
fn lines(file: File, each: &mut dyn FnMut(Line) -> Result<(), String>) -> io::Result<u64> {
    let mut reader = BufReader::with_capacity(1 << 16, file);
    let (mut whole, mut number, mut text) = (0, 0_u64, Vec::new());
    loop {
        text.clear();
        number += 1;
        let length = io::Read::take(&mut reader, LINE_MAX_BYTES).read_until(b'\n', &mut text)?;
        if text.last() != Some(&b'\n') {
            let is_torn = (length as u64) < LINE_MAX_BYTES;
            return if is_torn { Ok(whole) } else { Err(wrong(number, "is too long")) };
        }
        let line =
            serde_json::from_slice(&text).map_err(|error| wrong(number, &format!("is no entry: {error}")))?;
        each(line).map_err(|what| wrong(number, &format!("cannot be: {what}")))?;
        whole += length as u64;
    }
}

fn wrong(number: u64, what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("line {number} {what}"))
}
