//! The nodes and the pods of the cluster, kept up to date, and what the engine hears of them.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use bellwether_serve::runner::{NodeSeen, Report};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::runtime::reflector::{self, Store};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::{broadcast, mpsc};
use tokio::time::{Instant, sleep_until};

use super::Watched;
use crate::crd::Queue;
use crate::nodes::{SlotRule, seen};

/// News that are not taken in time are dropped: all is looked at now and then anyway.
const NEWS: usize = 1 << 14;

/// News within this time are told together.
const TOGETHER: Duration = Duration::from_millis(300);

type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// The nodes.
pub(super) fn nodes(client: &Client, log: &Log) -> Watched<Node> {
    watch(Api::all(client.clone()), watcher::Config::default(), log, |node: &mut Node| {
        node.managed_fields_mut().clear();
        node.annotations_mut().clear();
        if let Some(status) = &mut node.status {
            (status.images, status.volumes_in_use, status.node_info) = (None, None, None);
        }
    })
}

/// The pods, also those of others, without what nothing here depends on.
pub(super) fn pods(client: &Client, log: &Log) -> Watched<Pod> {
    watch(Api::all(client.clone()), watcher::Config::default(), log, |pod: &mut Pod| {
        pod.managed_fields_mut().clear();
        let is_kept = |key: &String| [crate::labels::NODE, crate::labels::CONTAINER].contains(&key.as_str());
        pod.annotations_mut().retain(|key, _| is_kept(key));
        let Some(spec) = &mut pod.spec else { return };
        (spec.volumes, spec.affinity, spec.tolerations) = (None, None, None);
        for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
            let resources = container.resources.take();
            *container = k8s_openapi::api::core::v1::Container { resources, ..Default::default() };
        }
    })
}

/// The queues.
pub(super) fn queues(client: &Client, log: &Log) -> Watched<Queue> {
    watch(Api::all(client.clone()), watcher::Config::default(), log, |queue: &mut Queue| {
        queue.managed_fields_mut().clear();
    })
}

fn watch<K>(
    api: Api<K>,
    config: watcher::Config,
    log: &Log,
    strip: impl FnMut(&mut K) + Send + 'static,
) -> Watched<K>
where
    K: kube::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let (store, writer) = reflector::store();
    let (sender, news) = broadcast::channel(NEWS);
    let log = Arc::clone(log);
    tokio::spawn(async move {
        let mut events = watcher(api, config).default_backoff().modify(strip).reflect(writer).boxed();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Apply(object) | Event::InitApply(object) | Event::Delete(object)) => {
                    // Without a listener nothing is told.
                    let _ = sender.send(Arc::new(object));
                }
                Ok(_) => {}
                Err(error) => log(&broken::<K>(&error)),
            }
        }
    });
    Watched { store, news }
}

/// What is said of a watch that broke.
fn broken<K: kube::Resource<DynamicType = ()>>(error: &watcher::Error) -> String {
    let kind = K::plural(&());
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404 => format!(
            "the server knows no {kind}, and is asked again: \
             `bellwether-operator crd | kubectl create -f -` makes the custom resources known \
             (`crd --without-rules` where it is older than 1.25)"
        ),
        error => format!("the watch of {kind} broke, and is taken up again: {error}"),
    }
}

/// Tells the engine what has changed about the nodes, for as long as there is an engine.
pub(super) async fn report_nodes(
    (nodes, mut of_nodes): (Store<Node>, broadcast::Receiver<Arc<Node>>),
    (pods, mut of_pods): (Store<Pod>, broadcast::Receiver<Arc<Pod>>),
    rule: SlotRule,
    reports: mpsc::UnboundedSender<Report>,
) {
    let mut told: BTreeMap<String, NodeSeen> = BTreeMap::new();
    loop {
        let all = nodes.state();
        let of_all = pods.state();
        let mut now = seen(&all, of_all.iter().map(Arc::as_ref), &rule);
        let names: Vec<&String> = told.keys().collect();
        let gone = names.into_iter().filter(|name| now.iter().all(|node| node.name != **name));
        let gone: Vec<NodeSeen> = gone.filter_map(|name| told.get(name).cloned()).collect();
        // A node that was removed takes no pods; it may come back.
        now.extend(gone.into_iter().map(|node| NodeSeen { down: Some("it is gone".into()), ..node }));
        now.retain(|node| told.get(&node.name) != Some(node));
        if !now.is_empty() {
            told.extend(now.iter().map(|node| (node.name.clone(), node.clone())));
            if reports.send(Report::Nodes(now)).is_err() {
                return;
            }
        }
        // The first news, and what comes soon after it.
        tokio::select! {
            news = of_nodes.recv() => if matches!(news, Err(broadcast::error::RecvError::Closed)) { return },
            news = of_pods.recv() => if matches!(news, Err(broadcast::error::RecvError::Closed)) { return },
        }
        let until = Instant::now() + TOGETHER;
        loop {
            tokio::select! {
                _ = of_nodes.recv() => {}
                _ = of_pods.recv() => {}
                () = sleep_until(until) => break,
            }
        }
    }
}
