//! Learns the size of a job's task once, however often jobs like it are submitted.

use std::collections::VecDeque;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Mutex;

use bellwether_core::job::Job;
use tokio::sync::Semaphore;

use super::Describe;
use super::call::blocking;
use super::failure::Failure;
use crate::ledger::Task;

/// Tasks that are remembered.
const REMEMBERED: usize = 64;

/// Tasks that are learned at a time: each may hold its data in memory.
const LEARNERS: usize = 2;

/// Learns and remembers.
pub(super) struct Describer {
    describe: Describe,
    /// The last tasks, oldest first.
    known: Mutex<VecDeque<(String, Task)>>,
    learners: Semaphore,
}

impl Describer {
    pub(super) fn new(describe: Describe) -> Describer {
        Describer { describe, known: Mutex::default(), learners: Semaphore::new(LEARNERS) }
    }

    /// The size of the job's task.
    pub(super) async fn task(&self, job: &Job) -> Result<Task, Failure> {
        let paths: Vec<PathBuf> = job.clone().paths_mut().into_iter().map(|path| path.clone()).collect();
        let mut key = serde_json::json!([job.model, job.data, job.batch]).to_string();
        if !paths.is_empty() {
            key.push_str(&blocking(move || versions(&paths)).await?);
        }
        if let Some(task) = self.known(&key) {
            return Ok(task);
        }
        let _permit = self.learners.acquire().await.expect("the semaphore is never closed");
        // Somebody else may have learnt it meanwhile.
        if let Some(task) = self.known(&key) {
            return Ok(task);
        }
        let (describe, job) = (self.describe.clone(), job.clone());
        let task = blocking(move || describe(&job)).await??;
        let mut known = self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if known.len() == REMEMBERED {
            known.pop_front();
        }
        known.push_back((key, task));
        Ok(task)
    }

    fn known(&self, key: &str) -> Option<Task> {
        let known = self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        known.iter().find(|(other, _)| other == key).map(|(_, task)| *task)
    }
}

/// Tells a file from what may later be at its path.
fn versions(paths: &[PathBuf]) -> String {
    let version = |path: &PathBuf| match std::fs::metadata(path) {
        Ok(file) => format!(" {}+{} {} {}", file.mtime(), file.mtime_nsec(), file.len(), file.ino()),
        Err(_) => " –".to_owned(),
    };
    paths.iter().map(version).collect()
}
