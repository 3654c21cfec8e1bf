//! A search on disk.

use std::fs;
use std::path::Path;

use bellwether_core::InputError;
use bellwether_core::job::{Job, Sync, SyncPolicy};
use bellwether_core::prediction::Protocol;
use bellwether_runtime::checkpoint::write_atomically;
use bellwether_sched::tune::Search;
use serde::{Deserialize, Serialize};

use super::SearchError;
use super::tuned::common;
use crate::error::at;

/// Version of the file format that this program writes and reads.
const VERSION: u32 = 1;

/// A search and the job that it is about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    version: u32,
    /// What all sessions have in common: see [`common`].
    job: String,
    workers: u32,
    seed: u64,
    /// The table `[sync]` of the sessions, their policy aside.
    sync: Sync,
    /// The search itself.
    pub search: Search,
}

/// The protocol that follows the synchronous one: that of the job, where it has one.
pub(super) fn then(job: &Job) -> Protocol {
    match &job.sync.policy {
        SyncPolicy::Phases(phases) => {
            phases.iter().map(|(_, protocol)| *protocol).find(|protocol| *protocol != Protocol::Bsp)
        }
        SyncPolicy::Auto => None,
    }
    .unwrap_or(Protocol::Asp)
}

/// The table `[sync]` as far as it is the same in all sessions.
fn sync(job: &Job) -> Sync {
    Sync { policy: SyncPolicy::Phases(vec![(0.0, then(job))]), ..job.sync.clone() }
}

impl State {
    /// A search for `job` that has not begun.
    pub fn new(job: &Job, search: Search) -> State {
        State {
            version: VERSION,
            job: common(job),
            workers: job.workers.min,
            seed: job.seed,
            sync: sync(job),
            search,
        }
    }

    /// Reads a search.
    ///
    /// # Errors
    ///
    /// Returns an error for a file that cannot be read, or holds something else.
    pub fn read(path: &Path) -> Result<State, SearchError> {
        let place = path.display().to_string();
        let text = fs::read(path).map_err(|source| SearchError::Unreadable { path: path.into(), source })?;
        let read: State = serde_json::from_slice(&text).map_err(|e| {
            InputError::new(&place, format!("is not a search: {e}")).hint("remove the file to start over")
        })?;
        if read.version != VERSION {
            let what = format!("is a search of version {}, and this program knows {VERSION}", read.version);
            return Err(InputError::new(place, what).hint("remove the file to start over").into());
        }
        let search = Search::again(&read.search).map_err(|error| {
            InputError::new(&place, format!("is not a search that this program wrote: {error}"))
        })?;
        Ok(State { search, ..read })
    }

    /// Whether it is a search for this job as it stands now, and for what is `asked`.
    ///
    /// # Errors
    ///
    /// Returns the first difference.
    pub fn check<const N: usize>(&self, job: &Job, asked: [(&str, bool); N]) -> Result<(), SearchError> {
        let own = [
            ("the job", self.job == common(job)),
            ("the job's seed", self.seed == job.seed),
            ("the number of workers", self.workers == job.workers.min),
            ("the job's table [sync]", self.sync == sync(job)),
        ];
        match own.into_iter().chain(asked).find(|(_, same)| !same) {
            None => Ok(()),
            Some((what, _)) => Err(SearchError::Other { what: what.into() }),
        }
    }

    /// Writes it whole.
    ///
    /// # Errors
    ///
    /// Returns the file system's error.
    pub fn write(&self, path: &Path) -> Result<(), SearchError> {
        let text = serde_json::to_vec_pretty(self).map_err(|e| at("search", e))?;
        let temporary = path.with_extension(format!("{}.part", std::process::id()));
        write_atomically(&temporary, path, &text)
            .map_err(|error| at(path.display().to_string(), error).into())
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
    fn the_protocol_afterwards_is_the_jobs() {
        assert_eq!(then(&job("")), Protocol::Asp);
        let switch = "[sync]\npolicy = { switch_at = 0.5, to = \"ssp:3\" }\n";
        assert_eq!(then(&job(switch)), Protocol::Ssp(3));
    }
}
