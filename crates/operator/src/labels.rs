//! Names of labels and annotations.

use k8s_openapi::api::core::v1::Pod;

/// The group of the custom resources, and of labels.
pub const GROUP: &str = "train.bellwether.dev";

/// Of a pod: the name of its job.
pub const JOB: &str = "train.bellwether.dev/job";
/// Of a pod: the identifier of its job, by which pods are selected.
pub const JOB_UID: &str = "train.bellwether.dev/job-uid";
/// Of a pod: the generation of the allocation for which it was created.
pub const ALLOCATION: &str = "train.bellwether.dev/allocation";
/// Of a pod: its place among the pods of its role.
pub const RANK: &str = "train.bellwether.dev/rank";
/// Of a pod: what it does.
pub const ROLE: &str = "train.bellwether.dev/role";
/// Of a pod: the node on which it has to be, as an annotation.
pub const NODE: &str = "train.bellwether.dev/node";
/// Of a pod, as an annotation of Kubernetes' own: the container that does its work.
pub const CONTAINER: &str = "kubectl.kubernetes.io/default-container";
/// Of a node: the type of its slots, where its GPUs' product does not say it.
pub const DEVICE_TYPE: &str = "train.bellwether.dev/device-type";

/// Whether a pod is one of an elastic job's.
pub fn is_ours(pod: &Pod) -> bool {
    label(pod, JOB_UID).is_some()
}

/// A label of a pod.
pub fn label<'p>(pod: &'p Pod, key: &str) -> Option<&'p str> {
    pod.metadata.labels.as_ref()?.get(key).map(String::as_str)
}
