//! What `tune` found for a job that recurs, kept for the runs of the same job.

use std::fs;
use std::path::PathBuf;

use bellwether_core::job::{Job, Sync};
use bellwether_runtime::checkpoint::write_atomically;
use bellwether_runtime::run_dir::StateDir;
use serde::{Deserialize, Serialize};

use super::SearchError;
use crate::error::at;

/// What makes a job the same job when it recurs: all that decides what it learns but for its seed, and but
/// for who waits for whom. Where its data lies counts, and not what they contain: a job that recurs may have
/// new data.
pub(super) fn common(job: &Job) -> String {
    let job = Job { sync: Sync::default(), seed: 0, ..job.clone() };
    serde_json::json!([job.identity(), job.data]).to_string()
}

/// A short name of that.
pub fn key(job: &Job) -> String {
    blake3::hash(common(job).as_bytes()).to_hex()[..16].to_string()
}

/// What a search found, kept for `policy = "auto"`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tuned {
    /// Share of the steps that are synchronous, above 0 up to 1.
    pub fraction: f64,
    /// Workers of the sessions.
    pub workers: u32,
    /// Name of the job that it was found for.
    pub job: String,
}

impl Tuned {
    fn path(state_dir: &StateDir, job: &Job) -> PathBuf {
        state_dir.path().join(format!("tuned-{}.json", key(job)))
    }

    /// What was found for this job, whatever its seed and its table `[sync]` say. A file that cannot be read
    /// says nothing.
    pub fn find(state_dir: &StateDir, job: &Job) -> Option<Tuned> {
        let text = fs::read(Tuned::path(state_dir, job)).ok()?;
        let tuned: Tuned = serde_json::from_slice(&text).ok()?;
        (0.0..=1.0).contains(&tuned.fraction).then_some(tuned)
    }

    /// Keeps it, in place of what was found before.
    ///
    /// # Errors
    ///
    /// Returns the file system's error.
    pub fn keep(&self, state_dir: &StateDir, job: &Job) -> Result<(), SearchError> {
        let path = Tuned::path(state_dir, job);
        state_dir.make()?;
        let text = serde_json::to_vec(self).map_err(|e| at("result", e))?;
        let written = write_atomically(&path.with_extension("part"), &path, &text);
        written.map_err(|e| at(path.display().to_string(), e).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(more: &str) -> Job {
        let text = format!(
            "name = \"job\"\nsteps = 64\n[batch]\nsize = 8\nvirtual_nodes = 4\n[model]\nkind = \"mlp\"\nhidden = [4]\n\
             [data]\nkind = \"digits\"\n[optimizer]\nkind = \"sgd\"\nlearning_rate = 0.1\n{more}"
        );
        bellwether_core::parse::job(&text, "job.toml", &[]).unwrap().into_job()
    }

    #[test]
    fn a_job_that_recurs_is_the_same_job() {
        let first = job("");
        let again = Job { seed: 9, name: "nightly".into(), ..job("[sync]\npolicy = \"auto\"\n") };
        assert_eq!(key(&first), key(&again));
        let other = Job { steps: Some(65), ..first.clone() };
        assert_ne!(key(&first), key(&other));
        let folder = tempfile::tempdir().unwrap();
        let state_dir = StateDir::find(Some(folder.path().join("state"))).unwrap();
        assert_eq!(Tuned::find(&state_dir, &again), None);
        let tuned = Tuned { fraction: 0.25, workers: 2, job: "job".into() };
        tuned.keep(&state_dir, &first).unwrap();
        assert_eq!(Tuned::find(&state_dir, &again), Some(tuned));
        assert_eq!(Tuned::find(&state_dir, &other), None);
        fs::write(Tuned::path(&state_dir, &first), "{\"fraction\": 7}").unwrap();
        assert_eq!(Tuned::find(&state_dir, &first), None);
    }
}
