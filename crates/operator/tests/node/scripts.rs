//! Scripts of PyTorch's and TensorFlow's on a real node, as their users have them: they know nothing of Bellwether.

use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{DeleteParams, LogParams};
use serde_json::{Value, json};

use crate::python::{BARE_IMAGE, Python};
use crate::support::job::step;
use crate::support::operator::{Jobs, namespace};
use crate::support::wait_for;
use crate::{Bench, bench, on_node, succeeded};

/// Samples of a step of the scripts.
const BATCH: u32 = 256;

/// For how long a set of pods is watched, after its first seconds, to find how fast it is.
const MEASURED_S: f64 = 10.0;
const FIRST_S: f64 = 3.0;

/// A user's script, in the folder that its pods share with their checkpoint.
struct Script {
    python: Python,
    steps: u32,
}

impl Script {
    /// Finds the Python with the framework; `None` after saying that there is none.
    fn find(framework: &str, text: &str, steps: u32, folder: &Path) -> Option<Script> {
        let python = Python::find(framework, folder)?;
        std::fs::write(python.folder.join("train.py"), text).unwrap();
        Some(Script { python, steps })
    }

    /// The job; each worker has a slot, which is a part of a processor.
    fn job(&self, backend: &str, elastic: &Value, processors: &str) -> Value {
        let Python { program, folder, .. } = &self.python;
        let command = json!([program, folder.join("train.py"), self.steps.to_string(), self.checkpoint()]);
        let mut template = json!({"spec": {"containers": [{
            "name": "main", "image": BARE_IMAGE, "command": command,
            "resources": {"requests": {"cpu": "250m"}, "limits": {"cpu": processors}},
        }]}});
        self.python.mount(&mut template);
        json!({
            "rendezvous": {
                "backend": backend,
                "throughput": {"pattern": r"^step (?<step>\d+) loss (?<loss>\S+)$"},
            },
            "work": {"steps": self.steps, "batchSize": BATCH},
            "elastic": elastic,
            "worker": {"template": template},
        })
    }

    fn checkpoint(&self) -> PathBuf {
        self.python.folder.join("checkpoint")
    }
}

/// A set of pods that trained for a while.
struct Set {
    generation: u64,
    /// The first step that it printed.
    begun: u64,
    samples_per_s: f64,
}

fn label(pod: &Pod, name: &str) -> u64 {
    pod.labels()[&format!("train.bellwether.dev/{name}")].parse().unwrap()
}

/// The steps that a pod has printed, each with the second at which it did.
async fn printed(jobs: &Jobs, pod: &str) -> Vec<(f64, u64)> {
    let parameters = LogParams { container: Some("main".into()), timestamps: true, ..LogParams::default() };
    // A container that has not begun has no log.
    let text = jobs.pods.logs(pod, &parameters).await.unwrap_or_default();
    let read = |line: &str| {
        let (time, said) = line.split_once(' ')?;
        let step = said.strip_prefix("step ")?.split(' ').next()?.parse().ok()?;
        let time: Timestamp = time.parse().ok()?;
        Some((time.as_millisecond() as f64 / 1e3, step))
    };
    text.lines().filter_map(read).collect()
}

/// The next set of pods after a generation, once it has trained for long enough to tell how fast it is.
async fn measured(jobs: &Jobs, workers: usize, after: u64) -> Set {
    wait_for(&format!("steps of {workers} processes after set {after}"), 180, async || {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let mut pods = jobs.pods("script", "worker").await;
        pods.retain(|pod| label(pod, "allocation") > after);
        let first = pods.iter().find(|pod| label(pod, "rank") == 0).filter(|_| pods.len() == workers)?;
        let lines = printed(jobs, &first.name_any()).await;
        let (begun_s, begun) = *lines.first()?;
        let (from_s, from) = *lines.iter().find(|(at_s, _)| *at_s >= begun_s + FIRST_S)?;
        let (to_s, to) = *lines.last()?;
        let samples_per_s = (to - from) as f64 * f64::from(BATCH) / (to_s - from_s);
        let generation = label(first, "allocation");
        (to_s - from_s >= MEASURED_S).then_some(Set { generation, begun, samples_per_s })
    })
    .await
}

fn ledger(bench: &Bench) -> Vec<Value> {
    let text = std::fs::read_to_string(bench.operator.state().join("ledger.jsonl")).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Waits until the engine has learnt from steps of this many workers.
async fn learnt(bench: &Bench, workers: u32) {
    wait_for(&format!("a lesson of {workers} workers"), 60, async || {
        ledger(bench).iter().any(|line| line["entry"] == "learnt" && line["workers"] == workers).then_some(())
    })
    .await;
}

/// Samples per second that the engine expected when it first gave the job this many workers.
fn foretold(bench: &Bench, workers: u64) -> Option<f64> {
    let lines = ledger(bench);
    let decided = lines.iter().filter(|line| line["entry"] == "decided");
    let mut given = decided.flat_map(|line| line["actions"].as_array().into_iter().flatten());
    let slots = |action: &Value| -> Option<u64> {
        let shares = action["allocate"]["allocation"].as_array()?.iter();
        Some(shares.filter_map(|share| share["devices"].as_u64()).sum())
    };
    let first = given.find(|action| slots(action) == Some(workers))?;
    first["allocate"]["expected"]["examples_per_s"].as_f64()
}

/// Prints how good the prediction for a set was, which nothing but its existence is asked of: the machine is shared.
fn compare(bench: &Bench, from: &str, workers: u64, set: &Set) {
    let foretold = foretold(bench, workers).unwrap();
    let error = 100.0 * (foretold / set.samples_per_s - 1.0);
    eprintln!(
        "{:.0} samples/s of {workers}; {foretold:.0} had been foretold from {from}, an error of {error:+.1} %",
        set.samples_per_s
    );
    assert!(foretold.is_finite() && foretold > 0.0, "{foretold}");
}

/// Says how a script's job ended, and proves that all of its steps were done.
async fn ended(script: &Script, jobs: &Jobs, patience_s: u64) {
    let status = jobs.until("script", "its end", patience_s, succeeded).await;
    assert_eq!(step(&status), u64::from(script.steps), "{status}");
    let mut pods = jobs.pods("script", "worker").await;
    pods.sort_by_key(|pod| (label(pod, "allocation"), std::cmp::Reverse(label(pod, "rank"))));
    let lines = printed(jobs, &pods.last().unwrap().name_any()).await;
    assert_eq!(lines.last().unwrap().1, u64::from(script.steps), "the script came to its own end");
    assert!(script.checkpoint().exists());
    eprintln!("restarts: {}", status["restarts"]);
}

/// Starts a script on two processes, and waits until the engine has learnt how fast these are.
async fn two_train(bench: &Bench, jobs: &Jobs, job: Value) -> Set {
    jobs.create("script", job).await;
    let two = measured(jobs, 2, 0).await;
    assert_eq!(two.begun, 1);
    eprintln!("{:.0} samples/s of 2", two.samples_per_s);
    learnt(bench, 2).await;
    two
}

#[test]
fn a_script_of_pytorch_is_resized_and_struck_on_a_real_node_and_does_all_its_steps() {
    on_node(async |kubeconfig, image| {
        let bench = bench(&kubeconfig, &image).await;
        let text = include_str!("ddp.py");
        let Some(script) = Script::find("torch", text, 800, bench.folder.path()) else { return };
        namespace(&bench.client, "node-ddp").await;
        let jobs = Jobs::of(&bench.client, "node-ddp");
        let elastic = json!({"minReplicas": 1, "maxReplicas": 4, "policy": "Manual", "replicas": 2,
            "scaleDownGraceSeconds": 5});
        let two = two_train(&bench, &jobs, script.job("torchrun", &elastic, "400m")).await;
        jobs.scale("script", 4).await;
        let four = measured(&jobs, 4, two.generation).await;
        compare(&bench, "2", 4, &four);
        assert!(four.begun > 1, "it went on from its checkpoint");
        learnt(&bench, 4).await;
        let at_once = DeleteParams::default().grace_period(0);
        let pods = jobs.pods("script", "worker").await;
        let struck = pods.iter().find(|pod| label(pod, "rank") == 2).unwrap();
        jobs.pods.delete(&struck.name_any(), &at_once).await.unwrap();
        let again = measured(&jobs, 4, four.generation).await;
        eprintln!(
            "4 processes after one was killed: {:.0} samples/s, from step {}",
            again.samples_per_s, again.begun
        );
        assert!(again.begun > four.begun, "it went on from its checkpoint");
        jobs.scale("script", 1).await;
        let one = measured(&jobs, 1, again.generation).await;
        compare(&bench, "2 and 4", 1, &one);
        ended(&script, &jobs, 300).await;
    });
}

#[test]
fn a_script_of_tensorflow_is_resized_on_a_real_node_and_does_all_its_steps() {
    on_node(async |kubeconfig, image| {
        let bench = bench(&kubeconfig, &image).await;
        let text = include_str!("multi_worker_mirrored.py");
        let Some(script) = Script::find("tensorflow", text, 1600, bench.folder.path()) else { return };
        namespace(&bench.client, "node-mirrored").await;
        let jobs = Jobs::of(&bench.client, "node-mirrored");
        let elastic = json!({"minReplicas": 1, "maxReplicas": 2, "policy": "Manual", "replicas": 2,
            "scaleDownGraceSeconds": 5});
        let two = two_train(&bench, &jobs, script.job("tensorflow", &elastic, "800m")).await;
        jobs.scale("script", 1).await;
        let one = measured(&jobs, 1, two.generation).await;
        assert!(one.begun > 1, "it went on from its checkpoint");
        compare(&bench, "2", 1, &one);
        ended(&script, &jobs, 300).await;
    });
}
