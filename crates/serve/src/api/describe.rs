//! Learns the size of a job's task once, however often jobs like it are submitted.

use std::collections::VecDeque;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwether_core::job::{Job, Shards};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::call::blocking;
use super::failure::Failure;
use crate::ledger::Task;
use crate::loading::Describe;

/// Tasks that are remembered.
const REMEMBERED: usize = 64;

/// Tasks that are learned at a time: each may hold its data in memory.
const LEARNERS: usize = 2;

/// Threads that may look at files at a time: each waits as long as a dead file system does not answer.
const LOOKERS: usize = 2;

/// How long a look at files may take, and how long others may be in the way.
const LOOK_PATIENCE: Duration = Duration::from_secs(10);
const QUEUE_PATIENCE: Duration = Duration::from_secs(60);

/// Learns and remembers.
pub(super) struct Describer {
    describe: Describe,
    /// The last tasks, oldest first.
    known: Mutex<VecDeque<(String, Task)>>,
    learners: Arc<Semaphore>,
    lookers: Arc<Semaphore>,
}

impl Describer {
    pub(super) fn new(describe: Describe) -> Describer {
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        Describer {
            describe,
            known: Mutex::default(),
            learners: semaphore(LEARNERS),
            lookers: semaphore(LOOKERS),
        }
    }

    /// The size of the job's task.
    ///
    /// The client may leave meanwhile: the work goes on, and so it is the work that has the permit.
    pub(super) async fn task(&self, job: &Job) -> Result<Task, Failure> {
        let paths: Vec<PathBuf> = job.clone().paths_mut().into_iter().map(|path| path.clone()).collect();
        let mut key = serde_json::json!([job.model, job.data, job.batch]).to_string();
        if !paths.is_empty() {
            key.push_str(&self.versions(paths).await?);
        }
        if let Some(task) = self.known(&key) {
            return Ok(task);
        }
        let permit = permit(&self.learners, QUEUE_PATIENCE).await?;
        // Another thread may have learnt it meanwhile.
        if let Some(task) = self.known(&key) {
            return Ok(task);
        }
        let (describe, job) = (self.describe.clone(), job.clone());
        let task = blocking(move || {
            let _permit = permit;
            describe(&job)
        });
        let task = task.await??;
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

    /// Tells files from what may later be at their paths.
    async fn versions(&self, paths: Vec<PathBuf>) -> Result<String, Failure> {
        let permit = permit(&self.lookers, LOOK_PATIENCE).await?;
        let look = blocking(move || {
            let _permit = permit;
            paths.iter().map(|path| version(path)).collect()
        });
        timeout(LOOK_PATIENCE, look).await.map_err(|_| {
            let what =
                format!("the file system of the data did not answer within {} s", LOOK_PATIENCE.as_secs());
            Failure::unavailable(what)
        })?
    }
}

async fn permit(of: &Arc<Semaphore>, patience: Duration) -> Result<OwnedSemaphorePermit, Failure> {
    let busy = |_| Failure::unavailable("other submissions, whose data are slow, are in the way");
    let permit = timeout(patience, of.clone().acquire_owned()).await.map_err(busy)?;
    Ok(permit.expect("the semaphore is never closed"))
}

fn version(path: &Path) -> String {
    if Shards::is_pattern(path) {
        let folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
        let names = std::fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut files: Vec<PathBuf> = names.filter(|file| is_one_of(path, file)).collect();
        files.sort_unstable();
        return files.iter().map(|file| format!("{}{}", file.display(), version_of(file))).collect();
    }
    version_of(path)
}

/// Whether a pattern describes a file of its folder.
fn is_one_of(pattern: &Path, file: &Path) -> bool {
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    name(pattern).zip(name(file)).is_some_and(|(pattern, name)| Shards::matches(&pattern, &name))
}

fn version_of(path: &Path) -> String {
    match std::fs::metadata(path) {
        Ok(file) => format!(" {}+{} {} {}", file.mtime(), file.mtime_nsec(), file.len(), file.ino()),
        Err(_) => " –".to_owned(),
    }
}
