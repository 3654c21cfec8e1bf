//! What the folder of a run knows of a cluster whose jobs its workers are.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{RunDir, RunDirError, write_json};
use crate::state::hex;

const CLUSTER_JOBS: &str = "cluster_jobs.json";
const PLACEMENT: &str = "placement.json";
const TICKETS: &str = "tickets";

/// How the workers of a run are submitted as jobs of a cluster: the content of `cluster_jobs.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterJobs {
    /// A random word by which the jobs of this run are known.
    pub key: String,
    /// Options of the program that submits them.
    pub options: Vec<String>,
    /// The beginning of each job's script.
    pub script: String,
}

impl RunDir {
    /// How workers are submitted as jobs of a cluster; `None` for a run whose workers are not.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or holds something else.
    pub fn cluster_jobs(&self) -> Result<Option<ClusterJobs>, RunDirError> {
        read_json(&self.path.join(CLUSTER_JOBS))
    }

    /// Keeps how workers are submitted as jobs of a cluster. The key stays what it was; a new one begins with
    /// `beginning`, by which those who start many runs know their jobs.
    ///
    /// # Errors
    ///
    /// As the file system says, or if no random key can be drawn.
    pub fn keep_cluster_jobs(
        &self,
        beginning: &str,
        options: Vec<String>,
        script: String,
    ) -> Result<ClusterJobs, RunDirError> {
        let kept = self.cluster_jobs()?;
        // A daemon and the coordinator that it starts both say it: who comes second must not write over the first.
        if let Some(same) = kept.clone().filter(|kept| kept.options == options && kept.script == script) {
            return Ok(same);
        }
        let key = match kept {
            Some(kept) => kept.key,
            None => format!("{beginning}{}", random_key()?),
        };
        let jobs = ClusterJobs { key, options, script };
        write_json(&self.path.join(CLUSTER_JOBS), &jobs, true)?;
        Ok(jobs)
    }

    /// Lets workers be what they were before jobs of a cluster: processes of one machine.
    ///
    /// # Errors
    ///
    /// As the file system says.
    pub fn forget_cluster_jobs(&self) -> Result<(), RunDirError> {
        let path = self.path.join(CLUSTER_JOBS);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(RunDirError::io(&path)(error)),
            _ => Ok(()),
        }
    }

    /// Keeps on which nodes workers and servers may run, and how many on each.
    ///
    /// # Errors
    ///
    /// As the file system says.
    pub fn keep_placement(&self, placement: &BTreeMap<String, u32>) -> Result<(), RunDirError> {
        write_json(&self.placement_file(), placement, true)
    }

    /// On which nodes workers and servers may run, and how many on each; `None` where that was not said.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or holds something else.
    pub fn placement(&self) -> Result<Option<BTreeMap<String, u32>>, RunDirError> {
        read_json(&self.placement_file())
    }

    fn placement_file(&self) -> PathBuf {
        self.path.join(PLACEMENT)
    }

    /// `tickets/`: what jobs of a cluster are told when they begin.
    pub fn tickets(&self) -> PathBuf {
        self.path.join(TICKETS)
    }
}

/// A word that no other draws.
///
/// # Errors
///
/// Returns an error if the system gives no random bytes.
pub fn random_key() -> Result<String, RunDirError> {
    let mut bytes = [0; 8];
    let drawn = getrandom::fill(&mut bytes);
    drawn.map_err(|error| RunDirError::Random(io::Error::other(error.to_string())))?;
    Ok(hex(&bytes))
}

/// What is in this file; `None` where it is not there.
fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, RunDirError> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(RunDirError::io(path)(error)),
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(RunDirError::malformed(path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_already_is_not_written_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let run = RunDir::at(folder.path());
        let keep = |script: &str| run.keep_cluster_jobs("daemon-", vec!["--time=1".into()], script.into());
        let first = keep("").expect("it can be written");
        assert!(first.key.starts_with("daemon-"));
        let file = folder.path().join(CLUSTER_JOBS);
        let written = || fs::metadata(&file).and_then(|file| file.modified()).expect("it is there");
        let before = written();
        // Two at a time: neither takes the other's temporary file away.
        std::thread::scope(|scope| {
            let both: Vec<_> = (0..2).map(|_| scope.spawn(|| keep("").expect("as before"))).collect();
            both.into_iter().for_each(|one| assert_eq!(one.join().expect("it ends"), first));
        });
        assert_eq!(written(), before);
        let other = keep("#SBATCH --exclusive").expect("it can be written");
        assert_eq!((other.key, other.script.as_str()), (first.key, "#SBATCH --exclusive"));
    }
}
