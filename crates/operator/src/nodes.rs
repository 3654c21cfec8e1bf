//! Kubernetes' nodes as slots: what the engine is told of them.
//!
//! On a node with GPUs each GPU is a slot. On other nodes a slot is a number of processors, unless some node has GPUs:
//! then these do not count. What pods of others ask for is taken.

use std::collections::{BTreeMap, BTreeSet};

use bellwether_serve::machine::DeviceType;
use bellwether_serve::runner::{NodeSeen, SlotsSeen};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::labels;

/// What counts as a slot.
#[derive(Debug, Clone, PartialEq)]
pub struct SlotRule {
    /// The resource by which GPUs are counted.
    pub gpu: String,
    /// Processors of a slot on nodes without GPUs; 0: these have none.
    pub processors: f64,
    /// Keys of taints with which a node still takes pods: those that jobs tolerate.
    pub tolerated: BTreeSet<String>,
}

impl Default for SlotRule {
    fn default() -> SlotRule {
        let gpu = "nvidia.com/gpu".to_owned();
        SlotRule { tolerated: BTreeSet::from([gpu.clone()]), gpu, processors: 1.0 }
    }
}

/// A quantity as Kubernetes writes it, such as `500m`, `2` or `16Gi`; `None` where it is none.
///
/// ```
/// # use bellwether_operator::nodes::amount;
/// assert_eq!(["500m", "2", "16Ki", "1.5", "3e3"].map(amount), [0.5, 2.0, 16384.0, 1.5, 3000.0].map(Some));
/// assert_eq!(["", "x", "1Zi", "inf", "-1"].map(amount), [None; 5]);
/// ```
pub fn amount(text: &str) -> Option<f64> {
    const SUFFIXES: [(&str, f64); 13] = [
        ("Ki", 1024.0),
        ("Mi", 1048576.0),
        ("Gi", 1073741824.0),
        ("Ti", 1099511627776.0),
        ("Pi", 1125899906842624.0),
        ("n", 1e-9),
        ("u", 1e-6),
        ("m", 1e-3),
        ("k", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
        ("P", 1e15),
    ];
    let suffixed = SUFFIXES.iter().find_map(|(suffix, factor)| Some((text.strip_suffix(suffix)?, *factor)));
    let (number, factor) = suffixed.unwrap_or((text, 1.0));
    let begins_well = number.starts_with(|first: char| first.is_ascii_digit() || first == '.');
    let value = number.parse::<f64>().ok().filter(|_| begins_well)? * factor;
    value.is_finite().then_some(value)
}

type Quantities = BTreeMap<String, Quantity>;

fn of(quantities: Option<&Quantities>, resource: &str) -> f64 {
    quantities.and_then(|all| all.get(resource)).and_then(|quantity| amount(&quantity.0)).unwrap_or(0.0)
}

/// What a pod asks for of a resource.
fn requested(pod: &Pod, resource: &str) -> f64 {
    let Some(spec) = &pod.spec else { return 0.0 };
    let ask = |container: &k8s_openapi::api::core::v1::Container| {
        let resources = container.resources.as_ref();
        let limits = of(resources.and_then(|resources| resources.limits.as_ref()), resource);
        let requests = resources.and_then(|resources| resources.requests.as_ref());
        // Where a limit is given and no request, the request is the limit.
        if requests.is_some_and(|requests| requests.contains_key(resource)) {
            of(requests, resource)
        } else {
            limits
        }
    };
    let together: f64 = spec.containers.iter().map(ask).sum();
    let before = spec.init_containers.iter().flatten().map(ask).fold(0.0, f64::max);
    together.max(before)
}

fn holds_its_node(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    !matches!(phase, Some("Succeeded" | "Failed"))
}

/// Why a node takes no pods now.
pub fn down(node: &Node, rule: &SlotRule) -> Option<String> {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready");
    if ready.is_none_or(|ready| ready.status != "True") {
        return Some("it does not answer".into());
    }
    let spec = node.spec.as_ref()?;
    let hinders = |effect: &str| matches!(effect, "NoExecute" | "NoSchedule");
    // What `kubectl cordon` writes.
    let by_cordon = |key: &str| key == "node.kubernetes.io/unschedulable";
    let taints =
        spec.taints.iter().flatten().filter(|taint| hinders(&taint.effect) && !by_cordon(&taint.key));
    let taint = taints.into_iter().find(|taint| !rule.tolerated.contains(&taint.key));
    if spec.unschedulable == Some(true) {
        return Some("it is drained".into());
    }
    taint.map(|taint| format!("it has the taint {}", taint.key))
}

/// Whether a node answers.
pub fn is_lost(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready");
    ready.is_none_or(|ready| ready.status != "True")
}

fn name_of(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}

fn device_type(node: &Node, rule: &SlotRule, has_gpus: bool, devices: u32) -> DeviceType {
    let labels = node.metadata.labels.as_ref();
    let label = |key: &str| labels.and_then(|labels| labels.get(key)).cloned();
    let name = label(labels::DEVICE_TYPE);
    if has_gpus {
        let product = || label(&format!("{}.product", rule.gpu));
        let name = name.or_else(product).unwrap_or_else(|| "gpu".into());
        let mebibytes = label(&format!("{}.memory", rule.gpu)).and_then(|text| text.parse::<u64>().ok());
        return DeviceType { name, speed: 1.0, memory_bytes: mebibytes.map(|mebibytes| mebibytes << 20) };
    }
    let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
    let memory = of(allocatable, "memory") / f64::from(devices.max(1));
    let memory_bytes = (memory >= 1.0).then_some(memory as u64);
    DeviceType { name: name.unwrap_or_else(|| "cpu".into()), speed: 1.0, memory_bytes }
}

/// What the engine is told of all nodes. `pods` are all pods of the cluster.
pub fn seen<'p>(
    nodes: &[impl AsRef<Node>],
    pods: impl Iterator<Item = &'p Pod>,
    rule: &SlotRule,
) -> Vec<NodeSeen> {
    let allocatable = |node: &Node, resource: &str| {
        of(node.status.as_ref().and_then(|status| status.allocatable.as_ref()), resource)
    };
    let some_gpus = nodes.iter().any(|node| allocatable(node.as_ref(), &rule.gpu) >= 1.0);
    let mut taken: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for pod in pods.filter(|pod| holds_its_node(pod) && !labels::is_ours(pod)) {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        let sums = taken.entry(node.unwrap_or_default()).or_default();
        *sums = (sums.0 + requested(pod, &rule.gpu), sums.1 + requested(pod, "cpu"));
    }
    let see = |node: &Node| {
        let name = name_of(node).to_owned();
        let (gpus, processors) = taken.get(name.as_str()).copied().unwrap_or_default();
        let has_gpus = allocatable(node, &rule.gpu) >= 1.0;
        let (room, held) = match (has_gpus, some_gpus || rule.processors <= 0.0) {
            (true, _) => (allocatable(node, &rule.gpu), gpus),
            (false, true) => (0.0, 0.0),
            (false, false) => (allocatable(node, "cpu") / rule.processors, processors / rule.processors),
        };
        let devices = room.clamp(0.0, 4096.0) as u32;
        // What is left over of the last slot may be another's.
        let over = room - f64::from(devices);
        let taken = ((held - over).max(0.0).ceil() as u32).min(devices);
        let device_type = device_type(node, rule, has_gpus, devices);
        NodeSeen { name, down: down(node, rule), slots: SlotsSeen { device_type, devices, taken } }
    };
    nodes.iter().map(|node| see(node.as_ref())).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    fn node(name: &str, value: serde_json::Value) -> Arc<Node> {
        let mut whole = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        for part in ["spec", "metadata", "status"] {
            let Some(more) = value.get(part).and_then(|part| part.as_object()) else { continue };
            for (key, value) in more {
                whole[part][key] = value.clone();
            }
        }
        Arc::new(serde_json::from_value(whole).expect("it is a node"))
    }

    fn pod(node: &str, requests: serde_json::Value) -> Pod {
        let value = json!({
            "metadata": {"name": "p"},
            "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": requests}}]},
        });
        serde_json::from_value(value).expect("it is a pod")
    }

    #[test]
    fn processors_are_slots_where_there_are_no_gpus() {
        let nodes = [node("a", json!({"status": {"allocatable": {"cpu": "3900m", "memory": "8Gi"}}}))];
        let others = [pod("a", json!({"cpu": "1"})), pod("", json!({"cpu": "9"}))];
        let seen = seen(&nodes, others.iter(), &SlotRule::default());
        // Of 3.9 processors 1 is taken: 2 slots of 3 are left.
        assert_eq!((seen[0].slots.devices, seen[0].slots.taken), (3, 1));
        assert_eq!(seen[0].slots.device_type.memory_bytes, Some((8 << 30) / 3));
        let others = [pod("a", json!({"cpu": "100m"}))];
        assert_eq!(super::seen(&nodes, others.iter(), &SlotRule::default())[0].slots.taken, 0, "it has room");
    }

    #[test]
    fn gpus_are_slots_and_nodes_without_have_none_then() {
        let labels = json!({"nvidia.com/gpu.product": "A100", "nvidia.com/gpu.memory": "40960"});
        let gpus = json!({"nvidia.com/gpu": "8", "cpu": "64"});
        let nodes = [
            node("g", json!({"metadata": {"labels": labels}, "status": {"allocatable": gpus}})),
            node("c", json!({"status": {"allocatable": {"cpu": "64"}}})),
        ];
        let others = [pod("g", json!({"nvidia.com/gpu": "3"}))];
        let seen = seen(&nodes, others.iter(), &SlotRule::default());
        let SlotsSeen { device_type, devices, taken } = &seen[0].slots;
        assert_eq!((device_type.name.as_str(), *devices, *taken), ("A100", 8, 3));
        assert_eq!(device_type.memory_bytes, Some(40 << 30));
        assert_eq!(seen[1].slots.devices, 0);
    }

    #[test]
    fn nodes_that_are_drained_or_tainted_or_silent_take_nothing() {
        let rule = SlotRule::default();
        let why = |value| down(&node("a", value), &rule);
        let taints = |key: &str| json!({"spec": {"taints": [{"key": key, "effect": "NoExecute"}]}});
        assert_eq!(why(json!({})), None);
        let cordoned = json!({"spec": {"unschedulable": true,
            "taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]}});
        assert_eq!(why(cordoned).as_deref(), Some("it is drained"));
        assert_eq!(why(taints("nvidia.com/gpu")), None);
        assert_eq!(why(taints("spot")).as_deref(), Some("it has the taint spot"));
        let silent = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
        assert_eq!(why(silent).as_deref(), Some("it does not answer"));
    }
}
