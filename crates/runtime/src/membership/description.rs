//! What a worker says of the workload that it built, and how two of them differ.

use crate::workload::{Layout, Workload};

/// What a warmed-up worker says about its workload; all workers of a job must agree on it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkloadDescription {
    /// The kernel class: what decides bits beyond the job.
    pub fingerprint: String,
    /// Samples of an epoch.
    pub training_samples: u64,
    /// Held-out samples.
    pub held_out_samples: u64,
    /// Names and shapes.
    pub layout: Layout,
}

impl WorkloadDescription {
    /// What a workload says of itself.
    pub fn of(workload: &dyn Workload) -> WorkloadDescription {
        WorkloadDescription {
            fingerprint: workload.fingerprint(),
            training_samples: workload.training_samples(),
            held_out_samples: workload.held_out_samples(),
            layout: workload.layout().clone(),
        }
    }
}

/// The parts of two kernel classes that are not in the other, so that no reader has to compare long lines.
///
/// ```
/// use bellwether_runtime::membership::different_parts;
/// let (ours, theirs) = different_parts("torch 2.15.0; cpu AVX2; 1 thread", "torch 2.15.0; cpu AVX512; 1 thread");
/// assert_eq!((ours.as_str(), theirs.as_str()), ("cpu AVX2", "cpu AVX512"));
/// ```
pub fn different_parts(one: &str, other: &str) -> (String, String) {
    let only = |this: &str, that: &str| {
        let known: Vec<&str> = that.split("; ").collect();
        let parts: Vec<&str> = this.split("; ").filter(|part| !known.contains(part)).collect();
        if parts.is_empty() { "nothing of the kind".to_string() } else { parts.join("; ") }
    };
    (only(one, other), only(other, one))
}
