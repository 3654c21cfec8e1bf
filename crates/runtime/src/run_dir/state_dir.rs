//! The state directory: a folder per run, with all that is needed to take the run up again.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use bellwether_core::job::Job;
use bellwether_core::parse;

use super::{RunDir, RunDirError};
use crate::private;

/// The folder that holds the runs. It need not be there yet.
#[derive(Debug, Clone)]
pub struct StateDir(PathBuf);

impl StateDir {
    /// The directory that was asked for, or that of the environment (`BELLWETHER_STATE_DIR`), or `bellwether` in the
    /// user's state directory (XDG).
    ///
    /// # Errors
    ///
    /// Returns an error if no folder was asked for and the environment names none, or if it is a file.
    pub fn find(asked: Option<PathBuf>) -> Result<StateDir, RunDirError> {
        let variable = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let path = asked
            .or_else(|| variable("BELLWETHER_STATE_DIR"))
            .or_else(|| variable("XDG_STATE_HOME").map(|p| p.join("bellwether")))
            .or_else(|| variable("HOME").map(|p| p.join(".local/state/bellwether")))
            .ok_or(RunDirError::NoStateDir)?;
        // A run is looked at and taken up again from anywhere.
        let path = std::path::absolute(&path).map_err(RunDirError::io(&path))?;
        if fs::metadata(&path).is_ok_and(|found| !found.is_dir()) {
            let error = io::Error::new(
                ErrorKind::NotADirectory,
                "is not a folder; name one, or a path where none is yet",
            );
            return Err(RunDirError::io(&path)(error));
        }
        Ok(StateDir(path))
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// All runs, by number and name.
    pub fn runs(&self) -> Vec<RunDir> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let named = entries.filter(|entry| entry.file_name().to_str().is_some());
        let mut runs: Vec<RunDir> = named.filter_map(|entry| RunDir::open(entry.path())).collect();
        runs.sort_by(|a, b| (a.number(), &a.name).cmp(&(b.number(), &b.name)));
        runs
    }

    /// The run with this name, or the newest of the job with this name, or the one in this folder.
    ///
    /// # Errors
    ///
    /// Returns an error if there is none.
    pub fn run(&self, asked: &str) -> Result<RunDir, RunDirError> {
        let named = self.named(asked);
        if !asked.contains('/') && named.is_run() {
            return Ok(named);
        }
        let runs = self.runs();
        if let Some(run) = runs.iter().rev().find(|run| run.job_name() == asked) {
            return Ok(run.clone());
        }
        if let Some(mut run) = RunDir::open(asked) {
            if run.name.is_empty() {
                run.name = asked.into();
            }
            return Ok(run);
        }
        let names: Vec<String> = runs.into_iter().map(|run| run.name).collect();
        let nearest = parse::nearest(asked, &names).cloned();
        Err(RunDirError::NoSuchRun { asked: asked.into(), state_dir: self.0.clone(), nearest })
    }

    /// Where a run of this name lies; it need not be there.
    pub fn named(&self, name: &str) -> RunDir {
        RunDir { name: name.into(), path: self.0.join(name) }
    }

    /// Makes the folder of all runs, where it is not there yet.
    ///
    /// # Errors
    ///
    /// Returns the file system's error.
    pub fn make(&self) -> Result<PathBuf, RunDirError> {
        // What a run keeps tells of its data, and its token lets others in: no other user may look into it.
        private::folder(&self.0).map_err(RunDirError::io(&self.0))?;
        Ok(self.0.clone())
    }

    /// Makes the folder of a run that has a name already, or finds it, and makes what is missing in it.
    ///
    /// # Errors
    ///
    /// Returns the file system's error.
    pub fn create_named(&self, name: &str, job: &Job) -> Result<RunDir, RunDirError> {
        let run = self.named(name);
        run.complete(job)?;
        Ok(run)
    }

    /// The number of the next run of `job`.
    pub fn next_number(&self, job: &Job) -> u64 {
        let runs = self.runs().into_iter().filter(|run| run.job_name() == job.name);
        1 + runs.map(|run| run.number()).max().unwrap_or(0)
    }

    /// Makes the folder of a new run of `job`; `plain` if nothing is to be encrypted between its machines.
    ///
    /// # Errors
    ///
    /// Returns the file system's error.
    pub fn create(&self, job: &Job, plain: bool) -> Result<RunDir, RunDirError> {
        self.make()?;
        let mut number = self.next_number(job);
        loop {
            match RunDir::create(self.0.join(format!("{}-{number}", job.name)), job, plain) {
                Err(RunDirError::Io { source, .. }) if source.kind() == ErrorKind::AlreadyExists => {
                    number += 1
                }
                made => return made,
            }
        }
    }
}
