//! An autoscaler that is played: pods for which no node has room make it add a node of the pool that their labels ask
//! for, after a delay and within a quota; nodes without pods go; spot nodes are taken away.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, EvictParams, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::kubelet::Kubelet;
use super::played::Make;

/// Time between two looks at the cluster.
const LOOK: Duration = Duration::from_millis(200);

/// How long a node may be without pods before it goes.
const IDLE: Duration = Duration::from_secs(3);

/// The taint of a node that will be taken away, as those that handle interruptions of spot machines set it.
const DISRUPTION: &str = "test.bellwether.dev/interrupted";

/// Nodes that are alike, each with room for one pod.
#[derive(Clone)]
pub(crate) struct NodePool {
    pub(crate) name: &'static str,
    pub(crate) labels: BTreeMap<String, String>,
    /// The key of its nodes' taint, as spot nodes have one.
    pub(crate) taint: Option<&'static str>,
    /// A resource of which each of its nodes has one.
    pub(crate) resource: Option<&'static str>,
    /// Of several that fit, the cheapest is taken.
    pub(crate) price: u32,
    /// Most nodes at once; 0 is a pool that has none now.
    pub(crate) quota: usize,
    /// How long a node takes to come.
    pub(crate) delay: Duration,
}

/// Works until it is dropped.
pub(crate) struct Autoscaler {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    client: Client,
    kubelet: Arc<Kubelet>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    pools: Vec<NodePool>,
    /// Nodes that are there or on their way, with their pool.
    nodes: BTreeMap<String, &'static str>,
    /// Nodes on their way, each for a pod.
    coming: BTreeMap<String, String>,
    /// Since when nodes have had no pod.
    idle: BTreeMap<String, Instant>,
    /// Pods for which no pool had a node.
    stocked_out: BTreeSet<String>,
    made: usize,
}

impl NodePool {
    fn fits(&self, pod: &Pod) -> bool {
        let Some(spec) = &pod.spec else { return false };
        let wanted = spec.node_selector.clone().unwrap_or_default();
        let has = |(label, value): (&String, &String)| self.labels.get(label) == Some(value);
        let tolerates = |key: &str| {
            spec.tolerations.iter().flatten().any(|toleration| toleration.key.as_deref() == Some(key))
        };
        wanted.iter().all(has) && self.taint.is_none_or(tolerates)
    }
}

impl Autoscaler {
    /// Of these pools, whose nodes this kubelet plays.
    pub(crate) fn start(client: Client, kubelet: Arc<Kubelet>, pools: Vec<NodePool>) -> Autoscaler {
        let state = Mutex::new(State { pools, ..State::default() });
        let shared = Arc::new(Shared { client, kubelet, state });
        let task = tokio::spawn(Arc::clone(&shared).work());
        Autoscaler { shared, task }
    }

    /// From now on a pool has at most this many nodes; those that are there stay.
    pub(crate) fn set_quota(&self, pool: &str, quota: usize) {
        let mut state = self.shared.state.lock().unwrap();
        state.pools.iter_mut().filter(|one| one.name == pool).for_each(|one| one.quota = quota);
    }

    /// The nodes of a pool.
    pub(crate) fn nodes(&self, pool: &str) -> Vec<String> {
        let state = self.shared.state.lock().unwrap();
        let of_pool =
            state.nodes.iter().filter(|(node, of)| **of == pool && !state.coming.contains_key(*node));
        of_pool.map(|(node, _)| node.clone()).collect()
    }

    /// Nodes that were made so far, and pods for which no pool had one.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let state = self.shared.state.lock().unwrap();
        (state.made, state.stocked_out.len())
    }

    /// A spot node is taken away: it is tainted, its pods are evicted, and after the notice it is gone.
    pub(crate) async fn revoke(&self, node: &str, notice: Duration) {
        let nodes: Api<Node> = Api::all(self.shared.client.clone());
        let taint = json!({"key": DISRUPTION, "effect": "NoSchedule"});
        let patch = Patch::Merge(json!({"spec": {"taints": [taint]}}));
        nodes.patch(node, &PatchParams::default(), &patch).await.unwrap();
        for pod in self.shared.pods_on(node).await {
            let pods: Api<Pod> = Api::namespaced(self.shared.client.clone(), &pod.namespace().unwrap());
            pods.evict(&pod.name_any(), &EvictParams::default()).await.unwrap();
        }
        sleep(notice).await;
        self.take(node).await;
    }

    /// Removes all nodes.
    pub(crate) async fn end(&self) {
        self.task.abort();
        let nodes = std::mem::take(&mut self.shared.state.lock().unwrap().nodes);
        for node in nodes.keys() {
            self.shared.remove(node).await;
        }
    }

    /// A node is gone without a word, as the cloud's controller finds out.
    pub(crate) async fn take(&self, node: &str) {
        self.shared.remove(node).await;
        self.shared.state.lock().unwrap().nodes.remove(node);
    }
}

impl Drop for Autoscaler {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    async fn work(self: Arc<Shared>) {
        loop {
            // A server that is away for a moment is asked again.
            let pods: Api<Pod> = Api::all(self.client.clone());
            if let Ok(list) = pods.list(&ListParams::default()).await {
                self.add_for(&list.items);
                self.remove_idle(&list.items).await;
            }
            sleep(LOOK).await;
        }
    }

    /// Begins to make nodes for pods that have no room.
    fn add_for(self: &Arc<Shared>, pods: &[Pod]) {
        let waits = |pod: &&Pod| {
            let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
            let unschedulable = |reason: Option<&str>| reason == Some("Unschedulable");
            let mut found = conditions.map(|condition| condition.reason.as_deref());
            found.any(unschedulable) && pod.metadata.deletion_timestamp.is_none()
        };
        let mut state = self.state.lock().unwrap();
        for pod in pods.iter().filter(waits).filter(|pod| node_of(pod).is_empty()) {
            let uid = pod.uid().unwrap_or_default();
            if state.coming.values().any(|of| *of == uid) {
                continue;
            }
            let used = |pool: &NodePool| state.nodes.values().filter(|of| **of == pool.name).count();
            let mut fitting: Vec<&NodePool> = state.pools.iter().filter(|pool| pool.fits(pod)).collect();
            fitting.sort_by_key(|pool| pool.price);
            let is_known = !fitting.is_empty();
            let Some(pool) = fitting.into_iter().find(|pool| used(pool) < pool.quota).cloned() else {
                if is_known {
                    state.stocked_out.insert(uid);
                }
                continue;
            };
            state.made += 1;
            let node = format!("{}-{}-{}", pool.name, std::process::id(), state.made);
            state.nodes.insert(node.clone(), pool.name);
            state.coming.insert(node.clone(), uid);
            tokio::spawn(Arc::clone(self).add(node, pool));
        }
    }

    async fn add(self: Arc<Shared>, node: String, pool: NodePool) {
        sleep(pool.delay).await;
        let taints = pool.taint.iter().map(|key| (*key).to_owned()).collect();
        let resources = pool.resource.iter().map(|name| ((*name).to_owned(), "1".to_owned())).collect();
        let make = Make { processors: 4, pods: 1, labels: pool.labels, taints, resources };
        self.kubelet.add(&node, &make).await;
        // The scheduler takes a moment to see it.
        sleep(Duration::from_secs(1)).await;
        self.state.lock().unwrap().coming.remove(&node);
    }

    /// Removes nodes that have had no pod for a while.
    async fn remove_idle(&self, pods: &[Pod]) {
        let used: BTreeSet<&str> = pods.iter().map(node_of).collect();
        let mut gone = Vec::new();
        {
            let mut state = self.state.lock().unwrap();
            let there: Vec<String> = state.nodes.keys().cloned().collect();
            for node in there {
                if used.contains(node.as_str()) || state.coming.contains_key(&node) {
                    state.idle.remove(&node);
                } else if state.idle.entry(node.clone()).or_insert_with(Instant::now).elapsed() >= IDLE {
                    state.idle.remove(&node);
                    state.nodes.remove(&node);
                    gone.push(node);
                }
            }
        }
        for node in gone {
            self.remove(&node).await;
        }
    }

    async fn remove(&self, node: &str) {
        self.kubelet.lose(node);
        let nodes: Api<Node> = Api::all(self.client.clone());
        // One that is not there any more, or not yet, needs nothing.
        let _ = nodes.delete(node, &DeleteParams::default()).await;
    }

    async fn pods_on(&self, node: &str) -> Vec<Pod> {
        let pods: Api<Pod> = Api::all(self.client.clone());
        pods.list(&ListParams::default().fields(&format!("spec.nodeName={node}"))).await.unwrap().items
    }
}

fn node_of(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}
