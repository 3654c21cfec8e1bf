//! Appends lines to a file so that a disk that refuses for a while leaves no part of a line behind.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Bytes that are searched at once for the end of the last line.
const CHUNK_BYTES: u64 = 1 << 16;

/// What lines are appended to.
pub trait Medium: Write {
    /// Its bytes.
    ///
    /// # Errors
    ///
    /// Returns the file system's error.
    fn length(&self) -> io::Result<u64>;

    /// Takes everything behind the first `length` bytes away; what is shorter stays as it is.
    ///
    /// # Errors
    ///
    /// Returns the file system's error.
    fn cut(&mut self, length: u64) -> io::Result<()>;
}

impl Medium for File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        if length < self.metadata()?.len() { self.set_len(length) } else { Ok(()) }
    }
}

/// The end of a file of lines.
#[derive(Debug)]
pub struct Appender<M = File> {
    medium: M,
    /// Bytes of whole lines, where a part of another lies behind them that could not be taken away.
    torn: Option<u64>,
}

impl Appender {
    /// Opens the file at `path`, or makes it. A last line that a crash cut short is removed.
    ///
    /// # Errors
    ///
    /// Returns the file system's error.
    pub fn open(path: &Path) -> io::Result<Appender> {
        let file = File::options().create(true).read(true).append(true).mode(0o600).open(path)?;
        let whole = whole_lines(&file)?;
        let mut appender = Appender::new(file);
        appender.torn = (whole < appender.medium.length()?).then_some(whole);
        appender.mend();
        Ok(appender)
    }

    /// The same file once more, to make it durable from another thread.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    pub fn again(&self) -> io::Result<File> {
        self.medium.try_clone()
    }
}

impl<M: Medium> Appender<M> {
    /// Of what ends with a whole line.
    pub fn new(medium: M) -> Appender<M> {
        Appender { medium, torn: None }
    }

    /// Appends whole lines, or nothing.
    ///
    /// # Errors
    ///
    /// Returns the file system's error; nothing was appended then, and the same lines can be tried again.
    pub fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        self.mend();
        let whole = self.torn.map_or_else(|| self.medium.length(), Ok)?;
        // A rest that cannot be taken away becomes a line of its own, which no reader can read.
        let begin: &[u8] = if self.torn.is_some() { b"\n" } else { b"" };
        // One write call: a line is never interleaved.
        let written = self.medium.write_all(&[begin, lines].concat());
        self.torn = written.is_err().then_some(whole);
        self.mend();
        written
    }

    /// Whether a part of a line is at its end that cannot be taken away.
    pub(crate) fn is_torn(&mut self) -> bool {
        self.mend();
        self.torn.is_some()
    }

    /// Its bytes.
    pub(crate) fn length(&self) -> io::Result<u64> {
        self.medium.length()
    }

    fn mend(&mut self) {
        if let Some(whole) = self.torn
            && self.medium.cut(whole).is_ok()
        {
            self.torn = None;
        }
    }
}

/// Bytes up to the end of the last whole line.
fn whole_lines(file: &File) -> io::Result<u64> {
    let mut end = file.metadata()?.len();
    let mut chunk = Vec::new();
    while end > 0 {
        let from = end.saturating_sub(CHUNK_BYTES);
        chunk.resize((end - from) as usize, 0);
        file.read_exact_at(&mut chunk, from)?;
        if let Some(last) = chunk.iter().rposition(|byte| *byte == b'\n') {
            return Ok(from + last as u64 + 1);
        }
        end = from;
    }
    Ok(0)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    impl<M> Appender<M> {
        pub(crate) fn medium_mut(&mut self) -> &mut M {
            &mut self.medium
        }
    }

    /// A disk with room for this many bytes.
    #[derive(Debug, Default)]
    pub(crate) struct Disk {
        pub(crate) content: Vec<u8>,
        pub(crate) room: usize,
        /// It takes nothing away either.
        pub(crate) is_stubborn: bool,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.room.saturating_sub(self.content.len()));
            if taken == 0 && !bytes.is_empty() {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.content.extend(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Medium for Disk {
        fn length(&self) -> io::Result<u64> {
            Ok(self.content.len() as u64)
        }

        fn cut(&mut self, length: u64) -> io::Result<()> {
            if self.is_stubborn {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            self.content.truncate(length as usize);
            Ok(())
        }
    }

    #[test]
    fn a_short_write_is_undone() {
        let mut appender = Appender::new(Disk { room: 8, ..Disk::default() });
        appender.append(b"one\n").unwrap();
        appender.append(b"two and a half\n").unwrap_err();
        assert_eq!(appender.medium.content, b"one\n");
        appender.medium.room = 100;
        appender.append(b"three\n").unwrap();
        assert_eq!(appender.medium.content, b"one\nthree\n");
    }

    #[test]
    fn a_rest_that_stays_is_a_line_of_its_own() {
        let mut appender = Appender::new(Disk { room: 8, is_stubborn: true, ..Disk::default() });
        appender.append(b"one\n").unwrap();
        appender.append(b"two and a half\n").unwrap_err();
        appender.append(b"three\n").unwrap_err();
        appender.medium.room = 100;
        appender.append(b"three\n").unwrap();
        appender.append(b"four\n").unwrap();
        assert_eq!(appender.medium.content, b"one\ntwo \nthree\nfour\n");
    }

    #[test]
    fn a_file_is_taken_up_behind_its_last_whole_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        for rest in [0, 5, 2 * CHUNK_BYTES as usize] {
            std::fs::write(&path, [b"one\n".as_slice(), &vec![b'x'; rest]].concat()).unwrap();
            Appender::open(&path).unwrap().append(b"two\n").unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), b"one\ntwo\n");
        }
    }
}
