//! Nodes that run nothing: pods that are placed on them are said to run, and sets of pods to train as fast as a law
//! says. What they train is reported to the operator as a script's pods do.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bellwether_operator::crd::ElasticJob;
use bellwether_operator::exchange::{self, Client as Teller, Report};
use bellwether_operator::labels;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::Api;
use kube::runtime::reflector::{self, Store};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::sleep;

use crate::support::played::{self, Make};

/// Time between two signs of life of a node: the server takes one for lost after twice as long.
const HEARTBEAT: Duration = Duration::from_secs(20);

/// How long a container takes to start, and to end.
const START: Duration = Duration::from_millis(300);
const END: Duration = Duration::from_millis(200);

/// Time between two looks at the sets, and between two reports of one.
const TICK: Duration = Duration::from_millis(250);
const REPORT: Duration = Duration::from_secs(1);

/// Calls of the API server that are under way at once.
const CALLS: usize = 32;

/// How fast a set of this many pods trains, in samples per second.
pub(crate) type Law = fn(u32) -> f64;

/// The nodes, until this is dropped.
pub(crate) struct Crowd {
    shared: Arc<Shared>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

struct Shared {
    client: Client,
    url: String,
    master: [u8; 32],
    law: Law,
    slots: u32,
    calls: Semaphore,
    addresses: AtomicU32,
    lives: AtomicU64,
    /// By name, whether it answers.
    nodes: Mutex<BTreeMap<String, bool>>,
    /// By identifier.
    pods: Mutex<BTreeMap<String, Played>>,
    jobs: Store<ElasticJob>,
    /// By the identifiers of jobs.
    sets: Mutex<BTreeMap<String, Set>>,
    broken: Mutex<Vec<String>>,
}

/// A pod that is on a node.
#[derive(Clone)]
struct Played {
    pod: Arc<Pod>,
    job: String,
    generation: u64,
    rank: u32,
    node: String,
    runs: bool,
    is_leaving: bool,
    has_ended: bool,
}

/// What the pods of a job have trained.
struct Set {
    generation: u64,
    samples: f64,
    told: Instant,
    teller: Arc<Teller>,
    is_over: bool,
}

impl Crowd {
    /// Nodes of this many slots each, for an operator at `url` that has begun once.
    pub(crate) async fn start(client: &Client, url: &str, (nodes, slots): (u32, u32), law: Law) -> Crowd {
        let secrets: Api<Secret> = Api::namespaced(client.clone(), "bellwether-system");
        let secret = crate::support::wait_for("the operator's key", 30, async || {
            secrets.get_opt("bellwether-operator-key").await.unwrap()
        })
        .await;
        let (jobs, writer) = reflector::store();
        let shared = Arc::new(Shared {
            client: client.clone(),
            url: url.to_owned(),
            master: secret.data.unwrap()["key"].0.clone().try_into().unwrap(),
            law,
            slots,
            calls: Semaphore::new(CALLS),
            addresses: AtomicU32::new(1),
            lives: AtomicU64::new(0),
            nodes: Mutex::default(),
            pods: Mutex::default(),
            jobs,
            sets: Mutex::default(),
            broken: Mutex::default(),
        });
        let names: Vec<String> = (0..nodes).map(|number| format!("crowd-{number:04}")).collect();
        let adding = names.iter().map(|name| shared.add_node(name));
        futures::stream::iter(adding).buffer_unordered(CALLS).collect::<Vec<()>>().await;
        let objects = watch(Api::<ElasticJob>::all(client.clone()), watcher::Config::default());
        let follow = objects.default_backoff().reflect(writer).for_each(|_| async {});
        let tasks = vec![
            tokio::spawn(follow),
            tokio::spawn(Arc::clone(&shared).watch()),
            tokio::spawn(Arc::clone(&shared).beat(names)),
            tokio::spawn(Arc::clone(&shared).train()),
        ];
        Crowd { shared, tasks }
    }

    /// Nodes fall silent for good.
    pub(crate) fn lose(&self, nodes: impl Iterator<Item = u32>) {
        let mut alive = self.shared.nodes.lock().unwrap();
        for number in nodes {
            alive.insert(format!("crowd-{number:04}"), false);
        }
    }

    /// Pods that were placed so far.
    pub(crate) fn lives(&self) -> u64 {
        self.shared.lives.load(Ordering::Relaxed)
    }

    /// What was seen that must not be.
    pub(crate) fn broken(&self) -> Vec<String> {
        self.shared.broken.lock().unwrap().clone()
    }

    /// Slots that pods hold which do not leave, and those of the jobs in one queue.
    pub(crate) fn held(&self, queue: &str) -> (u32, u32) {
        let in_queue = self.shared.in_queue(queue);
        let pods = self.shared.pods.lock().unwrap();
        let holds = |pod: &&Played| !pod.is_leaving && !pod.has_ended;
        let all = pods.values().filter(holds).count();
        let of_queue = pods.values().filter(holds).filter(|pod| in_queue.contains(&pod.job)).count();
        (all as u32, of_queue as u32)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

impl Shared {
    async fn add_node(&self, name: &str) {
        played::register(&self.client, name, &Make::plain(self.slots)).await;
        self.nodes.lock().unwrap().insert(name.to_owned(), true);
        played::renew(&self.client, name).await;
    }

    /// One node after another, all of them in a period.
    async fn beat(self: Arc<Shared>, names: Vec<String>) {
        let mut times = tokio::time::interval(HEARTBEAT / u32::try_from(names.len()).unwrap());
        for name in names.iter().cycle() {
            times.tick().await;
            if self.nodes.lock().unwrap()[name] {
                let (shared, name) = (Arc::clone(&self), name.clone());
                tokio::spawn(async move { played::renew(&shared.client, &name).await });
            }
        }
    }

    fn answers(&self, node: &str) -> bool {
        self.nodes.lock().unwrap().get(node).copied().unwrap_or(false)
    }

    async fn watch(self: Arc<Shared>) {
        let placed = watcher::Config::default().fields("spec.nodeName!=");
        let mut events = watch(Api::<Pod>::all(self.client.clone()), placed).default_backoff().boxed();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Apply(pod) | Event::InitApply(pod)) => self.see(pod),
                Ok(Event::Delete(pod)) => {
                    self.pods.lock().unwrap().remove(&pod.uid().unwrap_or_default());
                }
                _ => {}
            }
        }
    }

    fn see(self: &Arc<Shared>, pod: Pod) {
        let Some(job) = labels::label(&pod, labels::JOB_UID).map(str::to_owned) else { return };
        let number = |key| labels::label(&pod, key).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
        let uid = pod.uid().unwrap_or_default();
        let mut pods = self.pods.lock().unwrap();
        let before = pods.get(&uid).cloned();
        let is_leaving = pod.metadata.deletion_timestamp.is_some();
        let played = Played {
            job,
            generation: number(labels::ALLOCATION),
            rank: number(labels::RANK) as u32,
            node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
            runs: phase == "Running",
            is_leaving,
            has_ended: matches!(phase, "Succeeded" | "Failed"),
            pod: Arc::new(pod),
        };
        pods.insert(uid, played.clone());
        let of_node = |pod: &&Played| pod.node == played.node && !pod.has_ended;
        if before.is_none() {
            self.lives.fetch_add(1, Ordering::Relaxed);
            let held = pods.values().filter(of_node).count();
            if held > self.slots as usize {
                self.complain(format!("{} holds {held} pods on {} slots", played.node, self.slots));
            }
        }
        drop(pods);
        if !self.answers(&played.node) {
            return;
        }
        let is_new = before.is_none() && !played.has_ended;
        let begins_to_leave = is_leaving && before.is_none_or(|before| !before.is_leaving);
        if begins_to_leave {
            let shared = Arc::clone(self);
            tokio::spawn(async move { shared.remove(&played.pod).await });
        } else if is_new {
            let shared = Arc::clone(self);
            tokio::spawn(async move {
                sleep(START).await;
                shared.say(&played.pod, "Running").await;
            });
        }
    }

    fn complain(&self, what: String) {
        self.broken.lock().unwrap().push(what);
    }

    /// Writes how far a pod is, as often as it takes: one that was not heard would never train, or never end.
    async fn say(&self, pod: &Pod, phase: &str) {
        let [.., high, middle, low] = self.addresses.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let (address, state) = match phase == "Running" {
            true => {
                (Some(Ipv4Addr::new(10, high, middle, low)), json!({"running": {"startedAt": played::now()}}))
            }
            false => (
                None,
                json!({"running": null,
                "terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": played::now()}}),
            ),
        };
        let status = played::status(pod, phase, address, &state);
        loop {
            let call = self.calls.acquire().await;
            if played::write(&self.client, pod, &status).await {
                return;
            }
            drop(call);
            sleep(END).await;
        }
    }

    async fn remove(&self, pod: &Pod) {
        sleep(END).await;
        let _call = self.calls.acquire().await;
        played::remove(&self.client, pod).await;
    }

    async fn train(self: Arc<Shared>) {
        let mut last = Instant::now();
        loop {
            sleep(TICK).await;
            let passed_s = last.elapsed().as_secs_f64();
            last = Instant::now();
            self.tick(passed_s);
        }
    }

    /// Sets that are whole train for so long.
    fn tick(self: &Arc<Shared>, passed_s: f64) {
        let mut members: BTreeMap<(String, u64), Vec<Played>> = BTreeMap::new();
        for pod in self.pods.lock().unwrap().values() {
            if pod.runs && !pod.is_leaving && self.answers(&pod.node) {
                members.entry((pod.job.clone(), pod.generation)).or_default().push(pod.clone());
            }
        }
        for job in self.jobs.state() {
            let uid = job.uid().unwrap_or_default();
            let status = job.status.clone().unwrap_or_default();
            let Some(allocation) = status.allocation.filter(|allocation| allocation.replicas > 0) else {
                continue;
            };
            self.check(&job, allocation.replicas);
            let whole = members.get(&(uid.clone(), allocation.generation));
            if let Some(whole) = whole.filter(|whole| whole.len() == allocation.replicas as usize) {
                self.advance(&job, &uid, whole, passed_s);
            }
        }
    }

    fn check(&self, job: &ElasticJob, workers: u32) {
        let elastic = &job.spec.elastic;
        let (least, most) = (elastic.min_replicas.unwrap_or(1), elastic.max_replicas.unwrap_or(u32::MAX));
        if workers < least || workers > most {
            self.complain(format!("{} has {workers} workers of {least}..{most}", job.name_any()));
        }
    }

    fn advance(self: &Arc<Shared>, job: &ElasticJob, uid: &str, whole: &[Played], passed_s: f64) {
        let generation = whole[0].generation;
        let Some(first) = whole.iter().find(|pod| pod.rank == 0) else { return };
        let mut sets = self.sets.lock().unwrap();
        let set = sets.entry(uid.to_owned()).or_insert_with(|| Set {
            generation: 0,
            samples: 0.0,
            told: Instant::now(),
            teller: self.teller(uid, first),
            is_over: false,
        });
        if set.generation != generation {
            // It goes on from what was trained, and ends again where an earlier set was taken away at its end.
            (set.generation, set.told, set.is_over) = (generation, Instant::now(), false);
            set.teller = self.teller(uid, first);
            return;
        }
        if set.is_over {
            return;
        }
        set.samples += (self.law)(whole.len() as u32) * passed_s;
        let total = job.spec.work.as_ref().and_then(|work| work.all_samples()).unwrap_or(0);
        if set.samples >= total as f64 {
            set.is_over = true;
            for pod in whole {
                let (shared, pod) = (Arc::clone(self), Arc::clone(&pod.pod));
                tokio::spawn(async move { shared.say(&pod, "Succeeded").await });
            }
        } else if set.told.elapsed() >= REPORT {
            set.told = Instant::now();
            let (teller, samples) = (Arc::clone(&set.teller), Some(set.samples as u64));
            tokio::task::spawn_blocking(move || teller.report(&Report { samples, ..Report::default() }));
        }
    }

    fn teller(&self, uid: &str, first: &Played) -> Arc<Teller> {
        let token = exchange::token_of(&self.master, uid);
        Arc::new(Teller::new(&self.url, uid, &first.pod.name_any(), &token).unwrap())
    }

    fn in_queue(&self, queue: &str) -> Vec<String> {
        let jobs = self.jobs.state().into_iter();
        jobs.filter(|job| job.spec.queue.as_deref() == Some(queue)).filter_map(|job| job.uid()).collect()
    }
}
