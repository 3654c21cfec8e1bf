//! Reads a journal line by line, however long it is.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use bellwether_core::record::Line;
use serde::{Deserialize, Serialize};

/// No line of a coordinator is longer: what is, was damaged.
const LINE_BYTES_MAX: u64 = 1 << 24;

/// Damaged lines that are remembered one by one.
const TOLD_MAX: usize = 5;

/// What stands in a journal, one after another.
#[derive(Debug)]
pub enum Entry {
    /// A line.
    Line(Line),
    /// What is none: damage, a part of a line, an event that this release does not know.
    Unreadable(Unreadable),
}

/// A line of a journal that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unreadable {
    /// Which: the first is 1.
    pub number: u64,
    /// Why.
    pub why: String,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} cannot be read and is left out: {}", self.number, self.why)
    }
}

/// How much of a journal cannot be read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damage {
    /// Lines that cannot be read.
    pub lines: u64,
    /// The first five of them.
    pub first: Vec<Unreadable>,
}

impl Damage {
    /// Takes in one more line that cannot be read.
    pub fn take(&mut self, unreadable: Unreadable) {
        self.lines += 1;
        if self.first.len() < TOLD_MAX {
            self.first.push(unreadable);
        }
    }
}

/// Reads a journal from its beginning; it holds one line at a time. A last line without its end is ignored.
#[derive(Debug)]
pub struct Reader {
    input: BufReader<File>,
    text: Vec<u8>,
    /// Lines that were read, of whatever kind.
    number: u64,
    /// A whole line that stands behind a part of one.
    glued: Option<Line>,
}

impl Reader {
    /// Opens the journal at `path`.
    ///
    /// # Errors
    ///
    /// Returns the file system's error.
    pub fn open(path: &Path) -> io::Result<Reader> {
        Ok(Reader { input: BufReader::new(File::open(path)?), text: Vec::new(), number: 0, glued: None })
    }

    /// Opens it behind its first `lines` lines, which take `bytes`.
    pub(super) fn open_behind(path: &Path, bytes: u64, lines: u64) -> io::Result<Reader> {
        let mut reader = Reader::open(path)?;
        reader.input.seek(SeekFrom::Start(bytes))?;
        reader.number = lines;
        Ok(reader)
    }

    /// The lines alone: what cannot be read is left out.
    pub fn lines(self) -> impl Iterator<Item = io::Result<Line>> {
        self.filter_map(|entry| match entry {
            Ok(Entry::Line(line)) => Some(Ok(line)),
            Ok(Entry::Unreadable(_)) => None,
            Err(error) => Some(Err(error)),
        })
    }

    /// Lines that were read so far, also those that cannot be understood.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    fn read(&mut self) -> io::Result<Option<Entry>> {
        if let Some(line) = self.glued.take() {
            return Ok(Some(Entry::Line(line)));
        }
        self.text.clear();
        let read = self.input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut self.text)?;
        let is_whole = self.text.last() == Some(&b'\n');
        let ends = !is_whole && (read as u64) < LINE_BYTES_MAX;
        if ends || !is_whole && self.input.skip_until(b'\n')? == 0 {
            return Ok(None);
        }
        self.number += 1;
        let unreadable = |why| Entry::Unreadable(Unreadable { number: self.number, why });
        if !is_whole {
            return Ok(Some(unreadable("it is far too long".into())));
        }
        Ok(Some(match serde_json::from_slice(&self.text) {
            Ok(line) => Entry::Line(line),
            Err(error) => {
                self.glued = glued(&self.text);
                unreadable(error.to_string())
            }
        }))
    }
}

impl Iterator for Reader {
    type Item = io::Result<Entry>;

    fn next(&mut self) -> Option<io::Result<Entry>> {
        self.read().transpose()
    }
}

/// The whole line behind a torn one: earlier releases went on in the same line once the disk had room again.
fn glued(text: &[u8]) -> Option<Line> {
    const BEGIN: &[u8] = br#"{"time_s":"#;
    let at = text.windows(BEGIN.len()).rposition(|window| window == BEGIN).filter(|at| *at > 0)?;
    serde_json::from_slice(&text[at..]).ok()
}

/// All lines of a journal, for one that is known to be short. What cannot be read is left out.
///
/// # Errors
///
/// Returns the file system's error.
pub fn read(path: &Path) -> io::Result<Vec<Line>> {
    Reader::open(path)?.lines().collect()
}
