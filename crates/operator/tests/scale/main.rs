//! The operator at scale: a thousand nodes that run nothing, and hundreds of jobs on them.
//!
//! `cargo xtask kubernetes --all test` starts the server; without one these tests are skipped.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that fails says where")]

#[path = "../support/mod.rs"]
mod support;

mod crowd;
mod policies;
mod use_of_processors;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bellwether_operator::crd::{ElasticJob, Queue};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crowd::Crowd;
use support::operator::{self, Jobs, Operator, namespace};
use support::wait_for;
use use_of_processors::Use;

const NODES: u32 = 1000;
const SLOTS: u32 = 2;
const JOBS: u32 = 250;

/// Slots that the jobs of the queue `half` may hold.
const HALF: u32 = 800;

/// Samples per second of a set of pods.
fn law(pods: u32) -> f64 {
    64.0 * f64::from(pods).powf(0.9)
}

fn job(number: u32) -> Value {
    // 40 seconds of eight pods.
    let steps = (40.0 * law(8) / 64.0) as u64;
    let elastic = match number % 5 < 2 {
        true => json!({"minReplicas": 2, "maxReplicas": 12, "policy": "Manual", "replicas": 8,
            "scaleDownGraceSeconds": 2}),
        false => json!({"minReplicas": 2, "maxReplicas": 8, "scaleDownGraceSeconds": 2}),
    };
    let mut spec = json!({
        "rendezvous": {"backend": "torchrun", "throughput": {"pattern": r"^samples (?<samples>\d+)$"}},
        "work": {"steps": steps, "batchSize": 64},
        "elastic": elastic,
        "worker": {"template": {"spec": {
            "containers": [{"name": "main", "image": "user:1", "command": ["train"],
                "resources": {"requests": {"cpu": "1"}}}],
        }}},
    });
    if number.is_multiple_of(2) {
        spec["queue"] = "half".into();
    }
    spec
}

async fn queue(client: &Client) {
    let api: Api<Queue> = Api::all(client.clone());
    let _ = api.delete("half", &DeleteParams::default()).await;
    let queue = json!({"apiVersion": "train.bellwether.dev/v1alpha1", "kind": "Queue",
        "metadata": {"name": "half"}, "spec": {"limit": {"all": HALF}}});
    let queue: Queue = serde_json::from_value(queue).unwrap();
    wait_for("the queue", 10, async || api.create(&PostParams::default(), &queue).await.ok()).await;
}

fn phase(job: &ElasticJob) -> String {
    let status = serde_json::to_value(&job.status).unwrap();
    status["phase"].as_str().unwrap_or("none").to_owned()
}

/// Jobs that have ended.
async fn ended(jobs: &Jobs) -> usize {
    let all = jobs.api.list(&ListParams::default()).await.unwrap().items;
    all.iter().filter(|job| matches!(phase(job).as_str(), "Succeeded" | "Failed")).count()
}

/// The ledger's lines of a kind.
fn entries(operator: &Operator, kind: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(operator.state().join("ledger.jsonl")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["entry"] == kind).collect()
}

/// How often the ledger says of a run that it ended.
fn ends(operator: &Operator) -> BTreeMap<String, u32> {
    let mut ends = BTreeMap::new();
    for line in entries(operator, "ended") {
        *ends.entry(line["job"].to_string()).or_insert(0) += 1;
    }
    ends
}

/// How long decisions took, in milliseconds, in ascending order.
fn deciding_ms(operator: &Operator) -> Vec<f64> {
    let decided = entries(operator, "decided");
    let mut times: Vec<f64> =
        decided.iter().filter_map(|line| Some(1e3 * line["deciding_s"].as_f64()?)).collect();
    times.sort_by(f64::total_cmp);
    times
}

/// Jobs of which a person says the number of workers get other numbers, all at once.
async fn storm(jobs: &Jobs, round: u32) {
    let numbers = (0..JOBS).filter(|number| number % 5 < 2);
    let scale = numbers.map(|number| async move {
        let workers = 2 + (number * 7 + round * 5) % 11;
        jobs.scale(&format!("job-{number:03}"), workers).await;
    });
    futures::future::join_all(scale).await;
}

/// Waits until all jobs have ended, while the cluster stays lawful. Says how many slots the queue's jobs held at most.
async fn until_all_ended(jobs: &Jobs, crowd: &Crowd, patience: Duration) -> u32 {
    let until = Instant::now() + patience;
    let mut most = 0;
    let mut looked = Instant::now();
    let mut ended_before = 0;
    loop {
        let (held, of_queue) = crowd.held("half");
        most = most.max(of_queue);
        assert!(held <= NODES * SLOTS, "{held} pods on {} slots", NODES * SLOTS);
        assert_eq!(crowd.broken(), [] as [String; 0]);
        if looked.elapsed() > Duration::from_secs(5) {
            looked = Instant::now();
            let ended = ended(jobs).await;
            if ended != ended_before {
                eprintln!("{ended} of {JOBS} jobs have ended; {held} pods hold slots, {of_queue} of `half`");
                ended_before = ended;
            }
            if ended == JOBS as usize {
                return most;
            }
        }
        assert!(Instant::now() < until, "not all jobs ended in {patience:?}");
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

/// An operator under a policy.
async fn bench(kubeconfig: &PathBuf, policy: &str) -> (Client, Operator, tempfile::TempDir) {
    let client = support::client(kubeconfig).await;
    operator::install(&client).await;
    let folder = tempfile::tempdir().unwrap();
    let authorised = operator::authorise(&client, kubeconfig, folder.path()).await;
    let policy = format!("--policy={policy}");
    let operator = Operator::start(&authorised, &folder.path().join("operator"), &[&policy]);
    (client, operator, folder)
}

#[test]
#[ignore = "takes minutes, and a server that has nothing else to do"]
fn a_thousand_nodes_and_hundreds_of_jobs() {
    let Some(kubeconfig) = support::kubeconfig() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, operator, _folder) = bench(&kubeconfig, "fair").await;
        namespace(&client, "scale").await;
        queue(&client).await;
        let jobs = Jobs::of(&client, "scale");
        let crowd = Crowd::start(&client, &operator.url(), (NODES, SLOTS), law).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        let server = Use::of_server(&kubeconfig);
        let idle = server.over(Duration::from_secs(20)).await;
        let begun = Instant::now();
        let create = async |number| drop(jobs.create(&format!("job-{number:03}"), job(number)).await);
        futures::future::join_all((0..JOBS).map(create)).await;
        let calm = Duration::from_secs(20);
        let ((), busy) = tokio::join!(
            async {
                for round in 0..3 {
                    tokio::time::sleep(calm).await;
                    storm(&jobs, round).await;
                }
                // 5 %.
                crowd.lose((0..NODES).step_by(20));
            },
            until_all_ended(&jobs, &crowd, Duration::from_secs(900)),
        );
        let took_s = begun.elapsed().as_secs_f64();
        let all = jobs.api.list(&ListParams::default()).await.unwrap().items;
        let wrong: Vec<String> =
            all.iter().filter(|job| phase(job) != "Succeeded").map(|job| job.name_any()).collect();
        assert_eq!(wrong, [] as [String; 0], "they did not succeed");
        let ends = ends(&operator);
        assert!(ends.len() == JOBS as usize && ends.values().all(|count| *count == 1), "{ends:?}");
        let memory = use_of_processors::peak_memory_mib(operator.process().unwrap());
        eprintln!("{JOBS} jobs, {} pods on {NODES} nodes in {took_s:.0} s; `half` held {busy} of {HALF}", crowd.lives());
        let (all_ms, net_ms) = server.per_life_ms(idle, took_s, crowd.lives());
        eprintln!(
            "API server: {all_ms:.1} ms of processor per pod, {net_ms:.1} ms without the {idle:.2} processors that \
             {NODES} idle nodes keep busy"
        );
        let deciding = deciding_ms(&operator);
        let (middle, most) = (deciding[deciding.len() / 2], deciding[deciding.len() - 1]);
        eprintln!("{} decisions: {middle:.2} ms in the middle, {most:.1} ms at most", deciding.len());
        eprintln!("operator: {memory:.0} MiB at most, {:.1} s of processor", use_of_processors::seconds(operator.process().unwrap()));
        assert!(memory < 100.0, "{memory} MiB");
        assert!(busy <= HALF, "`half` held {busy} of {HALF} slots");
    });
}
