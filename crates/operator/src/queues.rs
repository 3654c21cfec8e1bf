//! `Queue` objects: what the engine divides its slots by, and what is said of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bellwether_serve::request::Request;
use bellwether_serve::snapshot::{ClusterState, Phase, QueueState};
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::reflector::Store;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio::time::{sleep, timeout};

use crate::crd::{self, Queue};
use crate::job::time;
use crate::observe::now_s;

/// Who writes it, as it stands in managed fields.
const MANAGER: &str = "bellwether-status";

/// Time between two looks at how full the queues are.
const PERIOD: Duration = Duration::from_secs(10);

/// News within this time are one.
const TOGETHER: Duration = Duration::from_millis(200);

/// All queues that are seen.
pub fn all(store: &Store<Queue>) -> Vec<Queue> {
    store.state().iter().map(|queue| Queue::clone(queue)).collect()
}

/// Keeps the engine's queues as the objects have them.
pub struct Keeper {
    client: Client,
    engine: bellwether_serve::request::EngineHandle,
    store: Store<Queue>,
    log: Arc<dyn Fn(&str) + Send + Sync>,
    /// Generations of the objects that divide the slots now.
    accepted: BTreeMap<String, Option<i64>>,
    /// What was said last of why they cannot.
    said: String,
}

/// Why some of the objects cannot divide the slots: of one queue, or of all that are new.
type Refused = Option<(Option<String>, &'static str, String)>;

impl Keeper {
    /// For the queues that are seen here.
    pub fn new(
        client: Client,
        engine: bellwether_serve::request::EngineHandle,
        store: Store<Queue>,
        log: Arc<dyn Fn(&str) + Send + Sync>,
    ) -> Keeper {
        Keeper { client, engine, store, log, accepted: BTreeMap::new(), said: String::new() }
    }

    /// Does so again and again.
    pub async fn run(mut self, mut news: broadcast::Receiver<Arc<Queue>>) {
        loop {
            let _ = timeout(PERIOD, news.recv()).await;
            sleep(TOGETHER).await;
            while news.try_recv().is_ok() {}
            self.divide().await;
        }
    }

    /// Does so once.
    pub async fn divide(&mut self) {
        let mut queues: Vec<Arc<Queue>> = self.store.state();
        queues.retain(|queue| queue.metadata.deletion_timestamp.is_none());
        queues.sort_by_key(|queue| queue.name_any());
        let refused = self.tell_engine(&queues).await;
        if refused.is_none() {
            let of = |queue: &Arc<Queue>| (queue.name_any(), queue.metadata.generation);
            self.accepted = queues.iter().map(of).collect();
        }
        let said = refused.as_ref().map(|(_, _, why)| why.clone()).unwrap_or_default();
        if !said.is_empty() && said != self.said {
            (self.log)(&format!("the queues cannot be as they are described: {said}"));
        }
        self.said = said;
        let snapshot = self.engine.now();
        for queue in &queues {
            let fault = refused.as_ref().filter(|(name, _, _)| match name {
                Some(name) => *name == queue.name_any(),
                None => self.accepted.get(&queue.name_any()) != Some(&queue.metadata.generation),
            });
            let fault = fault.map(|(_, reason, why)| (*reason, why.as_str()));
            let status = status(queue, fault, &snapshot.cluster);
            if let Err(error) = self.write(queue, &status).await {
                (self.log)(&format!(
                    "the status of the queue {} cannot be written: {error}",
                    queue.name_any()
                ));
            }
        }
    }

    async fn tell_engine(&self, queues: &[Arc<Queue>]) -> Refused {
        let described: Vec<Queue> = queues.iter().map(|queue| Queue::clone(queue)).collect();
        let file = match crd::file(&described) {
            Ok(file) => Some(file).filter(|_| !described.is_empty()),
            Err(fault) => return Some((fault.queue, "InvalidSpec", fault.error.to_string())),
        };
        if file.as_ref() == self.engine.now().queues.as_deref() {
            return None;
        }
        let answer = self.engine.ask(Request::Divide { queues: file, by: "`Queue` objects".into() }).await;
        answer.err().map(|refusal| (None, "Conflict", refusal.error.to_string()))
    }

    async fn write(&self, queue: &Queue, status: &Value) -> kube::Result<()> {
        let before = serde_json::to_value(&queue.status).unwrap_or(Value::Null);
        if crate::job::contains(&before, status) {
            return Ok(());
        }
        let parameters = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
        let patch = json!({"status": status});
        let api: Api<Queue> = Api::all(self.client.clone());
        api.patch_status(&queue.name_any(), &parameters, &Patch::Merge(&patch)).await.map(|_| ())
    }
}

/// What is said of a queue.
fn status(queue: &Queue, fault: Option<(&str, &str)>, cluster: &ClusterState) -> Value {
    let name = queue.name_any();
    let is_it = |state: &&QueueState| state.name.rsplit('/').next() == Some(name.as_str());
    let state = cluster.queues.iter().find(is_it);
    let jobs = |phases: &[Phase]| {
        let of = |phase: &Phase| state.and_then(|state| state.jobs.get(phase)).copied().unwrap_or(0);
        phases.iter().map(of).sum::<u64>()
    };
    let held: BTreeMap<&str, u32> = state
        .into_iter()
        .flat_map(|state| &state.slots)
        .map(|slots| (slots.device_type.as_str(), slots.held))
        .collect();
    let (word, reason, message) = match fault {
        Some((reason, why)) => ("False", reason, why),
        None => ("True", "Valid", ""),
    };
    let mut before = queue.status.iter().flat_map(|status| &status.conditions);
    let same = before.find(|condition| condition.kind == "Accepted" && condition.status == word);
    let since = same.and_then(|condition| condition.last_transition_time.clone()).or_else(|| time(now_s()));
    json!({
        "observedGeneration": queue.metadata.generation,
        "running": jobs(&[Phase::Starting, Phase::Running, Phase::Stopping]),
        "waiting": jobs(&[Phase::Queued]),
        "held": held,
        "conditions": [{
            "type": "Accepted", "status": word, "reason": reason, "message": message, "lastTransitionTime": since,
            "observedGeneration": queue.metadata.generation,
        }],
    })
}
