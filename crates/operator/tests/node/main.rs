//! The operator on a real node: containers of an image with our programs, which the kubelet starts and ends.
//!
//! `cargo xtask kubernetes --all test` starts the node; without one these tests are skipped.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that fails says where")]

mod deployed;
mod python;
mod road;
mod scripts;
#[path = "../support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bellwether_testkit::Random;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use support::job::{digits, step, undisturbed};
use support::operator::{self, Jobs, Operator, namespace};
use support::wait_for;

/// The variable with the name of an image with our programs, which the node has.
const IMAGE: &str = "BELLWETHER_TEST_KUBERNETES_IMAGE";

/// An address of this machine that pods reach.
const ADDRESS: &str = "10.123.0.1";

/// How often the operator is killed.
const KILLS: u32 = 20;

struct Bench {
    client: Client,
    operator: Operator,
    folder: tempfile::TempDir,
}

impl Drop for Bench {
    /// A test that fails shows what the operator said.
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the operator:\n{}", self.operator.log());
        }
    }
}

async fn bench(kubeconfig: &Path, image: &str) -> Bench {
    let client = support::client(&kubeconfig.to_owned()).await;
    operator::install(&client).await;
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = operator::authorise(&client, kubeconfig, folder.path()).await;
    // Eight slots on two processors.
    let arguments = ["--policy=fair", "--processors-per-slot=0.25", &format!("--image={image}")];
    let operator = Operator::start_on(ADDRESS, &kubeconfig, &folder.path().join("operator"), &arguments);
    Bench { client, operator, folder }
}

/// One operator looks after all jobs of a cluster: tests wait for each other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Runs a test where there is a node.
fn on_node(test: impl AsyncFnOnce(PathBuf, String)) {
    let (Some(kubeconfig), Ok(image)) = (support::kubeconfig(), std::env::var(IMAGE)) else {
        eprintln!("skipped: {IMAGE} names no image; `cargo xtask kubernetes --all test` starts a node");
        return;
    };
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(test(kubeconfig, image));
}

/// Committed steps, by the operator's copy of the run.
fn committed(bench: &Bench, run: &str) -> u64 {
    let metrics = bench.operator.state().join("runs").join(run).join("metrics.jsonl");
    let text = std::fs::read_to_string(metrics).unwrap_or_default();
    let last = text.lines().rev().find_map(|line| serde_json::from_str::<Value>(line).ok());
    last.and_then(|line| line["step"].as_u64()).unwrap_or(0)
}

/// Kills a pod at once, as the loss of its containers would, and says after how long the next step was committed.
async fn kill(bench: &Bench, jobs: &Jobs, run: &str, role: &str) -> Duration {
    let pod: Pod = jobs.pods("digits", role).await.remove(0);
    let at_once = DeleteParams::default().grace_period(0);
    let before = committed(bench, run);
    jobs.pods.delete(&pod.name_any(), &at_once).await.unwrap();
    let since = Instant::now();
    // What was on its way is not counted.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let on_its_way = committed(bench, run).max(before);
    wait_for("further steps", 90, async || (committed(bench, run) > on_its_way).then_some(())).await;
    since.elapsed()
}

/// Kills the operator again and again.
async fn kill_operators(bench: &mut Bench) {
    let mut random = Random::new(7);
    for _ in 0..KILLS {
        bench.operator.kill();
        bench.operator.start_again();
        // Less than an operator takes to begin, and more than that.
        let pause_s = random.between(0.05, 2.0);
        tokio::time::sleep(Duration::from_secs_f64(pause_s)).await;
    }
}

fn runs(status: &Value) -> bool {
    status["phase"] == "Running" && step(status) > 0
}

fn succeeded(status: &Value) -> bool {
    status["phase"] == "Succeeded"
}

#[test]
fn a_job_is_resized_and_struck_on_a_real_node_and_its_bits_stay() {
    on_node(async |kubeconfig, image| {
        let mut bench = bench(&kubeconfig, &image).await;
        namespace(&bench.client, "node-struck").await;
        let jobs = Jobs::of(&bench.client, "node-struck");
        let job = digits(150_000);
        let elastic = json!({"minReplicas": 1, "maxReplicas": 4, "policy": "Manual", "replicas": 2,
            "scaleDownGraceSeconds": 10});
        jobs.create("digits", json!({"job": job, "elastic": elastic})).await;
        let status = jobs.until("digits", "steps of two workers", 120, runs).await;
        let run = status["run"].as_str().unwrap().to_owned();
        bench.operator.until_members(&run, 2).await;
        jobs.scale("digits", 4).await;
        bench.operator.until_members(&run, 4).await;
        let after = kill(&bench, &jobs, &run, "worker").await;
        eprintln!("a worker's pod was killed: the next step after {:.2} s", after.as_secs_f64());
        bench.operator.until_members(&run, 4).await;
        let after = kill(&bench, &jobs, &run, "coordinator").await;
        eprintln!("the coordinator's pod was killed: the next step after {:.2} s", after.as_secs_f64());
        kill_operators(&mut bench).await;
        jobs.scale("digits", 1).await;
        bench.operator.until_members(&run, 1).await;
        let status = jobs.until("digits", "its end", 400, succeeded).await;
        assert_eq!(status["training"]["digest"], undisturbed(bench.folder.path(), &job).as_str(), "{status}");
        let rolled_back = bench.operator.events(&run).iter().any(|event| event["event"] == "rolled_back");
        assert!(!rolled_back, "no step was rolled back");
        bench.operator.audit(&run);
    });
}

async fn claim(client: &Client, namespace: &str, folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    // A volume stays as long as there is a claim to it, so each namespace has its own.
    let name = format!("bellwether-{namespace}");
    let _ = volumes.delete(&name, &DeleteParams::default()).await;
    let spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "bellwether",
        "hostPath": {"path": folder}});
    let volume = json!({"metadata": {"name": name}, "spec": spec});
    let volume: PersistentVolume = serde_json::from_value(volume).unwrap();
    wait_for("the volume", 30, async || volumes.create(&PostParams::default(), &volume).await.ok()).await;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "bellwether", "volumeName": name,
        "resources": {"requests": {"storage": "1Gi"}}});
    let claim = serde_json::from_value(json!({"metadata": {"name": "runs"}, "spec": spec})).unwrap();
    claims.create(&PostParams::default(), &claim).await.unwrap();
}

#[test]
fn a_drained_node_is_left_with_a_checkpoint_on_the_claim_and_the_job_goes_on_from_there() {
    on_node(async |kubeconfig, image| {
        let bench = bench(&kubeconfig, &image).await;
        namespace(&bench.client, "node-drain").await;
        claim(&bench.client, "node-drain", &bench.folder.path().join("claim")).await;
        let jobs = Jobs::of(&bench.client, "node-drain");
        let job = digits(60_000);
        let elastic = json!({"minReplicas": 1, "maxReplicas": 2, "scaleDownGraceSeconds": 20});
        let checkpoint = json!({"volumeClaim": "runs", "path": "digits"});
        jobs.create("digits", json!({"job": job, "elastic": elastic, "checkpoint": checkpoint})).await;
        let status = jobs.until("digits", "steps", 120, runs).await;
        let run = status["run"].as_str().unwrap().to_owned();
        let nodes: Api<Node> = Api::all(bench.client.clone());
        let name = nodes.list(&ListParams::default()).await.unwrap().items.remove(0).name_any();
        let cordon = async |on: bool| {
            let patch = Patch::Merge(json!({"spec": {"unschedulable": on}}));
            nodes.patch(&name, &PatchParams::default(), &patch).await.unwrap();
        };
        cordon(true).await;
        let waits = |status: &Value| status["phase"] == "Queued";
        jobs.until("digits", "a queue, for there is no other node", 90, waits).await;
        wait_for("its pods to go", 60, async || {
            (jobs.pods("digits", "worker").await.is_empty()).then_some(())
        })
        .await;
        cordon(false).await;
        let status = jobs.until("digits", "its end", 240, succeeded).await;
        assert_eq!(status["training"]["digest"], undisturbed(bench.folder.path(), &job).as_str(), "{status}");
        let rolled_back = bench.operator.events(&run).iter().any(|event| event["event"] == "rolled_back");
        assert!(!rolled_back, "no step was rolled back");
        bench.operator.audit(&run);
    });
}

#[test]
fn an_asynchronous_job_with_servers_trains_as_an_unprivileged_user_on_a_real_node() {
    on_node(async |kubeconfig, image| {
        let bench = bench(&kubeconfig, &image).await;
        namespace(&bench.client, "node-servers").await;
        let jobs = Jobs::of(&bench.client, "node-servers");
        let mut job = digits(20_000);
        job["sync"] = json!({"policy": "asp", "servers": 2});
        // As the standard `restricted` for pods has it.
        let template = json!({"spec": {
            "securityContext": {"runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532,
                "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "main", "securityContext": {"allowPrivilegeEscalation": false,
                "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}}}],
        }});
        let role = json!({ "template": template });
        let elastic = json!({"minReplicas": 1, "maxReplicas": 4, "policy": "Manual", "replicas": 2,
            "scaleDownGraceSeconds": 10});
        let spec =
            json!({"job": job, "elastic": elastic, "worker": role, "coordinator": role, "server": role});
        jobs.create("digits", spec).await;
        let status = jobs.until("digits", "steps", 120, runs).await;
        let run = status["run"].as_str().unwrap().to_owned();
        assert_eq!(jobs.pods("digits", "server").await.len(), 2);
        kill(&bench, &jobs, &run, "worker").await;
        jobs.scale("digits", 1).await;
        let status = jobs.until("digits", "its end", 240, succeeded).await;
        assert_eq!(step(&status), 20_000, "{status}");
        bench.operator.audit(&run);
    });
}
