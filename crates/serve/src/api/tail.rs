//! A run's files that grow: their last lines, and then those that are added.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bellwether_runtime::run_dir::RunDir;
use bellwether_runtime::tail::Tail;

/// Most bytes of a line that are sent; the rest of it is left out.
const LINE_BYTES: usize = 64 << 10;

/// Log files of one run that are followed.
const FILES: usize = 256;

/// The next lines of a file; `None` when no more are there. Bytes that are not text are replaced.
pub(super) fn lines(tail: &mut Tail) -> Option<Vec<String>> {
    // A file that cannot be read now is read at the next look.
    let bytes = tail.read().ok().filter(|bytes| !bytes.is_empty())?;
    let line = |line: &[u8]| String::from_utf8_lossy(&line[..line.len().min(LINE_BYTES)]).into_owned();
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    Some(bytes.split(|byte| *byte == b'\n').map(line).collect())
}

/// A file that is followed from the last lines on that it has now.
pub(super) fn last(path: PathBuf, lines: usize) -> Tail {
    let mut tail = Tail::new(path);
    // Where it cannot be read now, it is read from its beginning when it can be.
    let _ = tail.skip_to_last(lines);
    tail
}

/// The logs of a run: `coordinator.log` and those of its workers, as they appear.
#[derive(Debug)]
pub(super) struct Logs {
    folder: PathBuf,
    files: BTreeMap<String, Tail>,
}

impl Logs {
    /// From the last lines on that they have now.
    pub(super) fn new(folder: PathBuf, lines: usize) -> Logs {
        let names = names(&folder).into_iter().take(FILES);
        let files = names.map(|name| (name.clone(), last(folder.join(name), lines))).collect();
        Logs { folder, files }
    }

    /// New lines, each with its file; `None` when no more are there.
    pub(super) fn look(&mut self) -> Option<Vec<(String, String)>> {
        for name in names(&self.folder) {
            if self.files.len() < FILES {
                let path = self.folder.join(&name);
                self.files.entry(name).or_insert_with(|| Tail::new(path));
            }
        }
        let mut all = None;
        for (name, tail) in &mut self.files {
            for line in lines(tail).unwrap_or_default() {
                all.get_or_insert_with(Vec::new).push((name.clone(), line));
            }
        }
        all
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| RunDir::is_log(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logs_of_a_run_are_followed_as_they_appear() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("worker-2.log"), "a\nb\nbegun").unwrap();
        std::fs::write(path("token"), "secret\n").unwrap();
        let mut logs = Logs::new(folder.path().into(), 1);
        let pair = |name: &str, line: &str| (name.to_owned(), line.to_owned());
        assert_eq!(logs.look(), Some(vec![pair("worker-2.log", "b")]));
        std::fs::write(path("worker-2.log"), b"a\nb\nbegun and \xff ended\n").unwrap();
        std::fs::write(path("coordinator.log"), format!("c\n{}\nd\n", "x".repeat(3 * LINE_BYTES))).unwrap();
        let seen = logs.look().unwrap();
        assert_eq!(
            (&seen[0], seen[1].1.len(), &seen[2].1[..]),
            (&pair("coordinator.log", "c"), LINE_BYTES, "d")
        );
        assert_eq!(seen[3].1, "begun and \u{fffd} ended");
        assert_eq!(logs.look(), None);
    }
}
