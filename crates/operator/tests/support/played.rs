//! What nodes that are played tell the API server, as a kubelet does.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

/// Now, as Kubernetes writes it.
pub(crate) fn now() -> String {
    Timestamp::now().to_string()
}

/// What a node is made of.
#[derive(Clone)]
pub(crate) struct Make {
    pub(crate) processors: u32,
    /// Most pods on it.
    pub(crate) pods: u32,
    /// Labels beside its name.
    pub(crate) labels: BTreeMap<String, String>,
    /// Keys of taints: only pods that tolerate them are placed there.
    pub(crate) taints: Vec<String>,
    /// Resources beside processors and memory, such as devices.
    pub(crate) resources: BTreeMap<String, String>,
}

impl Make {
    /// With this many processors, and nothing special.
    pub(crate) fn plain(processors: u32) -> Make {
        let (labels, resources) = (BTreeMap::new(), BTreeMap::new());
        Make { processors, pods: 110, labels, taints: Vec::new(), resources }
    }
}

/// Registers a node, which is ready.
pub(crate) async fn register(client: &Client, name: &str, make: &Make) {
    let nodes: Api<Node> = Api::all(client.clone());
    let mut labels = make.labels.clone();
    labels.insert("kubernetes.io/hostname".into(), name.into());
    let taint = |key: &String| json!({"key": key, "value": "true", "effect": "NoSchedule"});
    let taints: Vec<Value> = make.taints.iter().map(taint).collect();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints}});
    let node: Node = serde_json::from_value(node).unwrap();
    match nodes.create(&PostParams::default(), &node).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        other => drop(other.unwrap()),
    }
    let mut resources =
        json!({"cpu": make.processors.to_string(), "memory": "64Gi", "pods": make.pods.to_string()});
    for (name, count) in &make.resources {
        resources[name] = json!(count);
    }
    let status = json!({"status": {
        "capacity": resources, "allocatable": resources,
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
            "lastHeartbeatTime": now(), "lastTransitionTime": now()}],
    }});
    nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
}

/// A sign of life of a node.
pub(crate) async fn renew(client: &Client, node: &str) {
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
    // With six digits of a second, as Kubernetes wants it.
    let time = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
    let spec = json!({"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": time});
    let patch = Patch::Merge(json!({ "spec": spec }));
    if leases.patch(node, &PatchParams::default(), &patch).await.is_err() {
        let lease = json!({"metadata": {"name": node}, "spec": spec});
        let lease: Lease = serde_json::from_value(lease).unwrap();
        let _ = leases.create(&PostParams::default(), &lease).await;
    }
}

/// The status of a pod whose only container is in this state.
pub(crate) fn status(pod: &Pod, phase: &str, address: Option<Ipv4Addr>, state: &Value) -> Value {
    let runs = phase == "Running";
    let ready = if runs { "True" } else { "False" };
    let container = pod.spec.as_ref().map(|spec| spec.containers[0].name.clone());
    let mut status = json!({"phase": phase, "hostIP": "127.0.0.1",
        "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": now()},
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": now()}],
        "containerStatuses": [{"name": container, "image": "", "imageID": "", "restartCount": 0,
            "ready": runs, "state": state}]});
    if let Some(address) = address {
        status["podIP"] = address.to_string().into();
    }
    json!({ "status": status })
}

fn api(client: &Client, pod: &Pod) -> Api<Pod> {
    Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default())
}

/// Writes the status of a pod; `false` if it has to be tried again.
pub(crate) async fn write(client: &Client, pod: &Pod, status: &Value) -> bool {
    let (name, patch) = (pod.name_any(), Patch::Merge(status));
    match api(client, pod).patch_status(&name, &PatchParams::default(), &patch).await {
        Ok(_) => true,
        Err(kube::Error::Api(status)) => status.code == 404,
        Err(_) => false,
    }
}

/// Removes a pod that has left its node.
pub(crate) async fn remove(client: &Client, pod: &Pod) {
    let preconditions = Preconditions { uid: pod.uid(), resource_version: None };
    let at_once = DeleteParams::default().grace_period(0).preconditions(preconditions);
    let _ = api(client, pod).delete(&pod.name_any(), &at_once).await;
}
