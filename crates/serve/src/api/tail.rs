//! Files that grow: their last lines, and then those that are added.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Most bytes that one look reads of one file.
const LOOK_BYTES: u64 = 256 << 10;

/// Most bytes at the end of a file that are searched for its last lines.
const BACK_BYTES: u64 = 4 << 20;

/// Most bytes of a line; the rest of it is left out.
const LINE_BYTES: usize = 64 << 10;

/// Where a block of a backward search begins and ends.
const BLOCK_BYTES: u64 = 64 << 10;

/// A file that is followed.
#[derive(Debug)]
pub(super) struct Tail {
    path: PathBuf,
    /// Bytes that were read; `None` before the first look that found the file.
    read: Option<u64>,
    /// Lines before its end with which it begins.
    lines: usize,
    /// The beginning of a line whose end is not there yet.
    begun: Vec<u8>,
}

impl Tail {
    /// Begins `lines` lines before the end of the file; the file may not be there yet.
    pub(super) fn new(path: PathBuf, lines: usize) -> Tail {
        Tail { path, read: None, lines, begun: Vec::new() }
    }

    /// Whole lines that follow; none when there is nothing new, or no file. Bytes that are no text are replaced.
    pub(super) fn look(&mut self) -> Vec<String> {
        // A file that cannot be read now is looked at again.
        self.try_look().unwrap_or_default()
    }

    fn try_look(&mut self) -> io::Result<Vec<String>> {
        let mut file = File::open(&self.path).inspect_err(|_| {
            // All that it will have when it appears is new.
            self.lines = usize::MAX;
        })?;
        let length = file.metadata()?.len();
        let from = match self.read {
            // It was cut: what had begun is gone.
            Some(read) if read > length => {
                self.begun.clear();
                length
            }
            Some(read) => read,
            None => last_lines(&mut file, length, self.lines)?,
        };
        self.read = Some(from);
        if from == length {
            return Ok(Vec::new());
        }
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.take(LOOK_BYTES.min(length - from)).read_to_end(&mut bytes)?;
        self.read = Some(from + bytes.len() as u64);
        let mut lines = Vec::new();
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let whole = part.ends_with(b"\n");
            let text = part.strip_suffix(b"\n").unwrap_or(part);
            let room = LINE_BYTES.saturating_sub(self.begun.len());
            self.begun.extend_from_slice(&text[..text.len().min(room)]);
            if whole {
                lines.push(String::from_utf8_lossy(&self.begun).trim_end_matches('\r').to_owned());
                self.begun.clear();
            }
        }
        Ok(lines)
    }

    /// Whether bytes are left that a look would read.
    pub(super) fn has_more(&self) -> bool {
        std::fs::metadata(&self.path).is_ok_and(|file| self.read.is_none_or(|read| read < file.len()))
    }
}

/// Where the last `lines` whole lines begin.
fn last_lines(file: &mut File, length: u64, lines: usize) -> io::Result<u64> {
    let (mut end, mut found) = (length, 0);
    let mut block = Vec::new();
    while end > 0 && length - end < BACK_BYTES {
        let start = end.saturating_sub(BLOCK_BYTES);
        block.clear();
        file.seek(SeekFrom::Start(start))?;
        file.take(end - start).read_to_end(&mut block)?;
        for (place, _) in block.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
            // The end of the last line comes first.
            if found == lines {
                return Ok(start + place as u64 + 1);
            }
            found += 1;
        }
        end = start;
    }
    // Further back than that nobody looks; a line that begins before is cut.
    Ok(end)
}

/// The logs of a run: `coordinator.log` and those of its workers, as they appear.
#[derive(Debug)]
pub(super) struct Logs {
    folder: PathBuf,
    lines: usize,
    files: BTreeMap<String, Tail>,
    /// Whether files that appear from now on are followed from their beginning.
    begun: bool,
}

/// Log files of one run that are followed.
const FILES: usize = 256;

impl Logs {
    pub(super) fn new(folder: PathBuf, lines: usize) -> Logs {
        Logs { folder, lines, files: BTreeMap::new(), begun: false }
    }

    /// New lines, each with its file; and whether more is there already.
    pub(super) fn look(&mut self) -> (Vec<(String, String)>, bool) {
        for name in names(&self.folder) {
            if self.files.len() < FILES && !self.files.contains_key(&name) {
                let lines = if self.begun { usize::MAX } else { self.lines };
                self.files.insert(name.clone(), Tail::new(self.folder.join(&name), lines));
            }
        }
        self.begun = true;
        let mut lines = Vec::new();
        for (name, tail) in &mut self.files {
            lines.extend(tail.look().into_iter().map(|line| (name.clone(), line)));
        }
        (lines, self.files.values().any(Tail::has_more))
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_log = |name: &str| {
        let log = Path::new(name).extension() == Some(OsStr::new("log"));
        log && (name == "coordinator.log" || name.starts_with("worker-"))
    };
    entries.filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| is_log(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, text).unwrap();
        (folder, path)
    }

    #[test]
    fn the_last_lines_and_then_the_new_ones() {
        let (_folder, path) = folder("a\nb\nc\nbegun");
        let mut tail = Tail::new(path.clone(), 2);
        assert_eq!(tail.look(), ["b", "c"]);
        assert_eq!(tail.look(), [""; 0]);
        std::fs::write(&path, "a\nb\nc\nbegun and ended\nd\n").unwrap();
        assert!(tail.has_more());
        assert_eq!(tail.look(), ["begun and ended", "d"]);
        assert!(!tail.has_more());
        // A torn line is cut off, and others follow.
        std::fs::write(&path, "a\nb\n").unwrap();
        assert_eq!(tail.look(), [""; 0]);
        std::fs::write(&path, "a\nb\ne\n").unwrap();
        assert_eq!(tail.look(), ["e"]);
    }

    #[test]
    fn any_number_of_lines_from_the_end() {
        let text: String = (0..50_000).map(|line| format!("{line}\n")).collect();
        let (_folder, path) = folder(&text);
        for lines in [0, 1, 2, 9_999, 40_000] {
            let mut tail = Tail::new(path.clone(), lines);
            let mut all = tail.look();
            while tail.has_more() {
                all.extend(tail.look());
            }
            assert_eq!(all.len(), lines);
            assert!(all.last().is_none_or(|last| last == "49999"));
        }
        assert_eq!(Tail::new(path, usize::MAX).look()[0], "0");
    }

    #[test]
    fn a_line_without_end_is_cut_and_no_file_is_no_fault() {
        let (_folder, path) = folder(&("x".repeat(3 * LINE_BYTES) + "\nshort\n"));
        assert_eq!(Tail::new(path, 5).look().iter().map(String::len).collect::<Vec<_>>(), [LINE_BYTES, 5]);
        assert_eq!(Tail::new("/nowhere/at/all".into(), 5).look(), [""; 0]);
    }
}
