//! The files of a run of which a copy is kept elsewhere, and how they are made from the copy again.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;

use bellwether_core::record::Event;

use super::RunDir;
use crate::journal::{Journal, now_s};
use crate::private;

/// A file of a run of which a copy is kept elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RunFile {
    /// `journal.jsonl`.
    Journal,
    /// `metrics.jsonl`.
    Metrics,
    /// `coordinator.log`.
    Log,
}

impl RunFile {
    /// All of them, in the order in which they are copied: a reader of the copy knows a step's workers before the step.
    pub const ALL: [RunFile; 3] = [RunFile::Journal, RunFile::Metrics, RunFile::Log];

    /// It in a word.
    pub fn word(self) -> &'static str {
        match self {
            RunFile::Journal => "journal",
            RunFile::Metrics => "metrics",
            RunFile::Log => "log",
        }
    }

    /// The one with this word.
    pub fn named(word: &str) -> Option<RunFile> {
        RunFile::ALL.into_iter().find(|file| file.word() == word)
    }

    /// Whether it is made of lines, which are written whole; what processes print is not.
    pub fn has_lines(self) -> bool {
        self != RunFile::Log
    }
}

impl fmt::Display for RunFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl RunDir {
    /// Where one of these files lies.
    pub fn file(&self, file: RunFile) -> PathBuf {
        match file {
            RunFile::Journal => self.journal_file(),
            RunFile::Metrics => self.metrics_file(),
            RunFile::Log => self.coordinator_log(),
        }
    }

    /// Begins to make one of these files again from its copy; what is there stays until that is done.
    ///
    /// # Errors
    ///
    /// Returns the file system's error.
    pub fn restore(&self, file: RunFile) -> io::Result<Restoration> {
        let path = self.file(file);
        let part = path.with_extension("part");
        Ok(Restoration { run: self.clone(), file, bytes: 0, output: private::file(&part)?, part, path })
    }
}

/// A file of a run that is being made from its copy.
#[derive(Debug)]
pub struct Restoration {
    run: RunDir,
    file: RunFile,
    bytes: u64,
    output: File,
    part: PathBuf,
    path: PathBuf,
}

impl Restoration {
    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds what comes next in the copy.
    ///
    /// # Errors
    ///
    /// Returns the file system's error.
    pub fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.output.write_all(bytes)?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Puts it in its place. A journal says of itself from here on that it is a copy.
    ///
    /// # Errors
    ///
    /// Returns the file system's error; what was there before is still there then.
    pub fn finish(self) -> io::Result<()> {
        if self.file == RunFile::Journal {
            let mut journal = Journal::open(&self.part)?;
            journal.write(now_s(), &Event::Restored { bytes: self.bytes })?;
            // It is of the journal that was here before.
            match fs::remove_file(self.run.resume_point_file()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        self.output.sync_all()?;
        fs::rename(&self.part, &self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_that_was_restored_gives_no_number_away_twice() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDir::at(folder.path());
        fs::write(run.journal_file(), "something else\n").unwrap();
        let copy =
            "{\"time_s\":1.0,\"event\":\"worker_attached\",\"worker\":3,\"address\":\"a\",\"process\":1}\n";
        let mut restoration = run.restore(RunFile::Journal).unwrap();
        restoration.add(copy.as_bytes()).unwrap();
        assert_eq!(fs::read_to_string(run.journal_file()).unwrap(), "something else\n");
        restoration.finish().unwrap();
        let text = fs::read_to_string(run.journal_file()).unwrap();
        let said = format!("\"event\":\"restored\",\"bytes\":{}}}\n", copy.len());
        assert!(text.starts_with(copy) && text.ends_with(&said), "{text}");
        let resumed = run.history().unwrap().resumed().unwrap();
        assert!(resumed.last_worker > 1000 && resumed.epoch >= 1000, "{resumed:?}");
    }

    #[test]
    fn files_are_named_by_their_words() {
        assert!(RunFile::ALL.into_iter().all(|file| RunFile::named(file.word()) == Some(file)));
        assert_eq!(RunFile::named("token"), None);
    }
}
