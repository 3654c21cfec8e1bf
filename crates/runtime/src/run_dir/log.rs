//! What happened in a run and what its processes said, as it comes: its journal and its logs.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};

use bellwether_core::record::{Event, Line};

use super::RunDir;
use crate::journal;
use crate::tail::Tail;

/// Log files of one run that are followed.
const FILES: usize = 256;

/// Something that a run tells.
#[derive(Debug, Clone, PartialEq)]
pub enum RunWord {
    /// A line of its journal that does not tell of a committed step.
    Journal(Line),
    /// A line of a process.
    Log {
        /// The file, `coordinator.log` or `worker-N.log`.
        file: String,
        /// The line.
        line: String,
    },
}

/// Follows a run's journal and logs.
#[derive(Debug)]
pub struct RunLog {
    /// Lines of the journal that are there already, the last ones.
    begin: VecDeque<Line>,
    journal: journal::Tail,
    logs: Logs,
}

impl RunLog {
    /// From the last `lines` lines of each file on, in the journal those that are worth reading.
    pub fn new(folder: PathBuf, lines: usize) -> RunLog {
        let mut journal = RunDir::at(&folder).follow_journal();
        // Most lines are of no interest, so those that are may be far back.
        let _ = journal.skip_to_last(usize::MAX);
        let mut begin = VecDeque::new();
        loop {
            let read = journal.read().unwrap_or_default();
            if read.is_empty() {
                return RunLog { begin, journal, logs: Logs::new(folder, lines) };
            }
            begin.extend(read.into_iter().filter(is_of_interest));
            begin.drain(..begin.len().saturating_sub(lines));
        }
    }

    /// What is new, which may be nothing of interest; `None` when all was read.
    pub fn look(&mut self) -> Option<Vec<RunWord>> {
        let begin = std::mem::take(&mut self.begin);
        // A journal that cannot be read now is read at the next look.
        let read = self.journal.read().unwrap_or_default();
        let logs = self.logs.look();
        if begin.is_empty() && read.is_empty() && logs.is_none() {
            return None;
        }
        let lines = begin.into_iter().chain(read.into_iter().filter(is_of_interest)).map(RunWord::Journal);
        let said = logs.unwrap_or_default().into_iter().map(|(file, line)| RunWord::Log { file, line });
        Some(lines.chain(said).collect())
    }
}

/// Whether a line of the journal belongs into a log: commits do not, and there are many.
fn is_of_interest(line: &Line) -> bool {
    !matches!(line.event, Event::Committed { .. })
}

/// The logs of a run: `coordinator.log` and those of its workers, as they appear.
#[derive(Debug)]
struct Logs {
    folder: PathBuf,
    files: BTreeMap<String, Tail>,
}

impl Logs {
    /// From the last lines on that they have now.
    fn new(folder: PathBuf, lines: usize) -> Logs {
        let names = names(&folder).into_iter().take(FILES);
        let files = names.map(|name| (name.clone(), Tail::last(folder.join(name), lines))).collect();
        Logs { folder, files }
    }

    /// New lines, each with its file; `None` when no more are there.
    fn look(&mut self) -> Option<Vec<(String, String)>> {
        for name in names(&self.folder) {
            if self.files.len() < FILES {
                let path = self.folder.join(&name);
                self.files.entry(name).or_insert_with(|| Tail::new(path));
            }
        }
        let mut all = None;
        for (name, tail) in &mut self.files {
            for line in tail.lines().unwrap_or_default() {
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
        std::fs::write(path("coordinator.log"), format!("c\n{}\nd\n", "x".repeat(3 << 16))).unwrap();
        let seen = logs.look().unwrap();
        assert_eq!(
            (&seen[0], seen[1].1.len(), &seen[2].1[..]),
            (&pair("coordinator.log", "c"), 1 << 16, "d")
        );
        assert_eq!(seen[3].1, "begun and \u{fffd} ended");
        assert_eq!(logs.look(), None);
    }
}
