//! What a worker says of the workload that it built, and how two of them differ.

use crate::workload::{Layout, Workload};

/// What stands in the place of the kernels where a run is open to workers of any kernel class.
const ANY_KERNELS: &str = "mixed";

/// Parts of a kernel class that begin so name what is trained on, and not with what.
const TASK_PARTS: [&str; 2] = ["data ", "fixed "];

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

    /// What workers of any kernel class must agree on, where a run is open to them.
    #[must_use]
    pub fn of_any_class(self) -> WorkloadDescription {
        WorkloadDescription { fingerprint: any_class(&self.fingerprint), ..self }
    }
}

/// A kernel class without the kernels: what it says of the data remains. One that is not known stays so.
///
/// ```
/// use bellwether_runtime::membership::any_class;
/// let class = any_class("torch 2.15.0; cpu AVX2; 1 thread; data 5e1f; fixed 77a0");
/// assert_eq!(class, "mixed; data 5e1f; fixed 77a0");
/// assert_eq!((any_class(&class), any_class("")), (class, String::new()));
/// ```
pub fn any_class(class: &str) -> String {
    if class.is_empty() {
        return String::new();
    }
    let is_kept = |part: &&str| TASK_PARTS.iter().any(|word| part.starts_with(word));
    let kept = class.split("; ").filter(is_kept);
    std::iter::once(ANY_KERNELS).chain(kept).collect::<Vec<_>>().join("; ")
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
