//! What is known of jobs beside what their objects say, and what was done so far.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use super::{intake, status};
use crate::crd::ElasticJob;
use crate::job::JobSpec;
use crate::reconcile::PodSeen;

/// What was done since an operator began.
#[derive(Debug, Default)]
pub struct Counters {
    pub(super) reconciles: AtomicU64,
    pub(super) faults: AtomicU64,
    pub(super) reconcile_us: AtomicU64,
    pub(super) allocations: AtomicU64,
    pub(super) creates: AtomicU64,
    pub(super) deletes: AtomicU64,
    pub(super) patches: AtomicU64,
}

/// The same at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// Looks at jobs.
    pub reconciles: u64,
    /// Of them, those that failed.
    pub faults: u64,
    /// Time of them all, in microseconds.
    pub reconcile_us: u64,
    /// Allocations that were written.
    pub allocations: u64,
    pub(super) creates: u64,
    pub(super) deletes: u64,
    pub(super) patches: u64,
}

impl Counted {
    /// Writes to Kubernetes' API, by verb.
    pub fn calls(&self) -> [(&'static str, u64); 3] {
        [("create", self.creates), ("delete", self.deletes), ("patch", self.patches)]
    }
}

/// What is known of a job beside what its object says.
#[derive(Debug, Default)]
pub struct Known {
    /// Name of its run, once the engine has it.
    pub run: Option<String>,
    /// Its namespace and name.
    pub place: (String, String),
    /// The pod that leads its run.
    pub(super) leader: Option<String>,
    /// What the engine was asked last.
    pub(super) asked: Option<intake::Asked>,
    /// Why the engine has not taken it.
    pub(super) refused: Option<(status::Reason, String)>,
    /// The job as it was written last.
    pub(super) written: Option<Arc<ElasticJob>>,
    /// Bytes of memory that a worker needs, by its profile.
    pub(super) memory_bytes: Option<u64>,
    /// Whether its secret is there.
    pub(super) has_secret: bool,
    /// Identifiers of its pods whose end was counted.
    pub(super) counted: BTreeSet<String>,
    /// Pods that were created and not yet seen.
    pub(super) created: BTreeMap<String, Instant>,
    /// Calls that failed in a row.
    pub(super) failures: u32,
    /// When its status was written last.
    pub(super) status_at: Option<tokio::time::Instant>,
    /// Why Kubernetes refuses its pods.
    pub(super) rejected: Option<String>,
    /// Its specification as it was read last.
    pub(super) spec: Option<(SpecKey, Described)>,
    /// The last one with which nothing was wrong.
    pub(super) good: Option<Arc<JobSpec>>,
}

/// From what a specification was read: the generation of the object, and whether its fixed fields were written.
pub(super) type SpecKey = (Option<i64>, bool);

/// A specification; `None` of another controller's job, or what is wrong with it.
pub(super) type Described = Result<Option<Arc<JobSpec>>, String>;

/// For how long a pod that was created is waited for, which was not seen since.
const UNSEEN: Duration = Duration::from_secs(5);

impl Known {
    /// These pods are seen, and need not be waited for.
    pub(super) fn sees(&mut self, pods: &[PodSeen]) {
        self.created.retain(|name, at| at.elapsed() < UNSEEN && pods.iter().all(|pod| pod.name != *name));
    }

    /// For how long pods that were created and not seen are still waited for, if there are any.
    pub(super) fn unseen(&self) -> Option<Duration> {
        self.created.values().map(|at| UNSEEN.saturating_sub(at.elapsed())).min()
    }

    /// Why the job cannot be as its author wants it now.
    pub(super) fn refusal(&self) -> Option<(status::Reason, String)> {
        match &self.spec {
            Some((_, Err(why))) => Some((status::Reason::InvalidSpec, why.clone())),
            _ => self.refused.clone(),
        }
    }
}
