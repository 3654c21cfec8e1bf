//! Follows a file of lines that another process appends to.

use std::fs::File;
use std::io::{ErrorKind, Result};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

/// Bytes that are read at once.
const CHUNK_BYTES: usize = 1 << 18;

/// Bytes at the end of a file that are searched for its last lines.
const BACK_BYTES_MAX: u64 = 1 << 22;

/// Most bytes of a line of text; the rest of it is left out.
const TEXT_BYTES: usize = 64 << 10;

/// A longer line is not one of ours; it is read in parts, none of which parses.
const LINE_BYTES_MAX: usize = 1 << 24;

/// Reads what was added since the last time, whole lines only.
#[derive(Debug)]
pub struct Tail {
    path: PathBuf,
    file: Option<File>,
    /// Where the first line begins that was not read yet.
    offset: u64,
    buffer: Vec<u8>,
}

impl Tail {
    /// From the beginning; the file may not be there yet.
    pub fn new(path: PathBuf) -> Tail {
        Tail { path, file: None, offset: 0, buffer: Vec::new() }
    }

    /// From this byte on, with which a line begins.
    pub fn from(path: PathBuf, offset: u64) -> Tail {
        Tail { offset, ..Tail::new(path) }
    }

    /// From the last lines on that the file has now.
    pub fn last(path: PathBuf, lines: usize) -> Tail {
        let mut tail = Tail::new(path);
        // Where it cannot be read now, it is read from its beginning when it can be.
        let _ = tail.skip_to_last(lines);
        tail
    }

    /// The next lines as text; `None` when no more are there. Bytes that are not text are replaced.
    pub fn lines(&mut self) -> Option<Vec<String>> {
        // A file that cannot be read now is read at the next look.
        let bytes = self.read().ok().filter(|bytes| !bytes.is_empty())?;
        let line = |line: &[u8]| String::from_utf8_lossy(&line[..line.len().min(TEXT_BYTES)]).into_owned();
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        Some(bytes.split(|byte| *byte == b'\n').map(line).collect())
    }

    /// Leaves out what is there now but for the last `bytes`; what is read first may be a part of a line.
    ///
    /// # Errors
    ///
    /// Returns the file system's error; a missing file does not count as one.
    pub fn skip(&mut self, bytes: u64) -> Result<()> {
        if let Some(file) = opened(&mut self.file, &self.path)? {
            self.offset = self.offset.max(file.metadata()?.len().saturating_sub(bytes));
        }
        Ok(())
    }

    /// Leaves out what is there now but for the last `lines` whole lines, of at most the last 4 MiB.
    ///
    /// # Errors
    ///
    /// Returns the file system's error; a missing file does not count as one.
    pub fn skip_to_last(&mut self, lines: usize) -> Result<()> {
        let Some(file) = opened(&mut self.file, &self.path)? else { return Ok(()) };
        let length = file.metadata()?.len();
        let start = length.saturating_sub(BACK_BYTES_MAX);
        let (mut end, mut left) = (length, lines);
        while end > start {
            let from = end.saturating_sub(CHUNK_BYTES as u64).max(start);
            self.buffer.resize((end - from) as usize, 0);
            let read = fill(file, &mut self.buffer, from)?;
            // The first end from behind is that of the last line.
            for place in (0..read).rev().filter(|place| self.buffer[*place] == b'\n') {
                let Some(fewer) = left.checked_sub(1) else {
                    self.offset = self.offset.max(from + place as u64 + 1);
                    return Ok(());
                };
                left = fewer;
            }
            end = from;
        }
        self.offset = self.offset.max(start);
        Ok(())
    }

    /// The next whole lines, some 100 KiB at most; nothing when no more are there.
    ///
    /// # Errors
    ///
    /// Returns the file system's error; a missing file does not count as one.
    pub fn read(&mut self) -> Result<&[u8]> {
        self.buffer.clear();
        let Some(file) = opened(&mut self.file, &self.path)? else { return Ok(&[]) };
        let length = file.metadata()?.len();
        // The coordinator that resumes a run removes a last line without its end: nothing that was read before.
        self.offset = self.offset.min(length);
        let mut wanted = CHUNK_BYTES;
        loop {
            let there = usize::try_from(length - self.offset).unwrap_or(usize::MAX);
            self.buffer.resize(there.min(wanted), 0);
            let read = fill(file, &mut self.buffer, self.offset)?;
            self.buffer.truncate(read);
            let whole = self.buffer.iter().rposition(|byte| *byte == b'\n').map(|end| end + 1);
            let whole = whole.or((read == LINE_BYTES_MAX).then_some(read));
            if whole.is_some() || read < wanted {
                self.buffer.truncate(whole.unwrap_or(0));
                self.offset += self.buffer.len() as u64;
                return Ok(&self.buffer);
            }
            wanted *= 2;
        }
    }

    /// The values in the next whole lines; empty when no more are there. A line that does not parse is left out.
    ///
    /// # Errors
    ///
    /// Same errors as [`Tail::read`].
    pub fn values<T: DeserializeOwned>(&mut self) -> Result<Vec<T>> {
        loop {
            let lines = self.read()?;
            let value = |line| serde_json::from_slice(line).ok();
            let values: Vec<T> = lines.split(|byte| *byte == b'\n').filter_map(value).collect();
            if !values.is_empty() || lines.is_empty() {
                return Ok(values);
            }
        }
    }
}

/// The file, opened when it is there.
fn opened<'f>(file: &'f mut Option<File>, path: &Path) -> Result<Option<&'f File>> {
    if file.is_none() {
        *file = match File::open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => Some(opened?),
        };
    }
    Ok(file.as_ref())
}

/// Reads until the buffer is full or the file ends; says how much.
fn fill(file: &File, buffer: &mut [u8], offset: u64) -> Result<usize> {
    let mut read = 0;
    while read < buffer.len() {
        match file.read_at(&mut buffer[read..], offset + read as u64) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn whole_lines_once_each_whatever_happens_to_the_last() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        let mut tail = Tail::new(path.clone());
        assert_eq!(tail.read().unwrap(), b"", "no file yet");
        let mut file = File::options().create(true).append(true).open(&path).unwrap();
        file.write_all(b"one\ntwo\nthr").unwrap();
        assert_eq!(tail.read().unwrap(), b"one\ntwo\n");
        assert_eq!(tail.read().unwrap(), b"");
        // The beginning of a line is taken away, and another comes in its place.
        file.set_len(8).unwrap();
        assert_eq!(tail.read().unwrap(), b"");
        file.write_all(b"four\n").unwrap();
        assert_eq!(tail.read().unwrap(), b"four\n");
        let long = [vec![b'x'; 3 * CHUNK_BYTES], vec![b'\n']].concat();
        file.write_all(&long).unwrap();
        file.write_all(b"five\nsi").unwrap();
        let read = tail.read().unwrap().to_vec();
        assert_eq!(read.len(), 3 * CHUNK_BYTES + 1 + 5);
        assert!(read.ends_with(b"x\nfive\n"), "a line that is longer than a chunk");
        file.write_all(b"x\nseven\n").unwrap();
        tail.skip(6).unwrap();
        assert_eq!(tail.read().unwrap(), b"seven\n");
    }

    #[test]
    fn any_number_of_lines_from_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        let text: String = (0..100_000).map(|line| format!("{line}\n")).collect();
        std::fs::write(&path, text + "begun").unwrap();
        for lines in [0, 1, 2, 9_999, 80_000] {
            let mut tail = Tail::new(path.clone());
            tail.skip_to_last(lines).unwrap();
            let mut all = Vec::new();
            loop {
                let read = tail.read().unwrap();
                if read.is_empty() {
                    break;
                }
                all.extend_from_slice(read);
            }
            let all = String::from_utf8(all).unwrap();
            assert_eq!(all.lines().count(), lines);
            assert!(all.lines().next_back().is_none_or(|last| last == "99999"));
        }
        Tail::new(folder.path().join("nothing")).skip_to_last(3).unwrap();
    }
}
