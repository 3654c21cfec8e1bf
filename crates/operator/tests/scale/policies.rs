//! The same workload on a cluster and in the simulator, under several policies.

use std::process::Command;
use std::time::Duration;

use kube::api::ListParams;
use serde_json::{Value, json};

use crate::crowd::Crowd;
use crate::support::operator::{Jobs, bellwether, namespace};
use crate::support::{self, wait_for};
use crate::{bench, law, phase};

const POLICIES: [&str; 5] = ["fifo", "srtf", "hell", "wfs", "pollux"];

const NODES: u32 = 8;
const JOBS: u32 = 20;

/// Time between two jobs: they come faster than they go.
const BETWEEN: Duration = Duration::from_secs(4);

/// 20, 40 or 60 seconds of four pods.
fn job(number: u32) -> Value {
    let seconds = f64::from(20 * (1 + number % 3));
    json!({
        "rendezvous": {"backend": "torchrun", "throughput": {"pattern": r"^samples (?<samples>\d+)$"}},
        "work": {"steps": (seconds * law(4) / 64.0) as u64, "batchSize": 64},
        "elastic": {"minReplicas": 1 + number % 2, "maxReplicas": 4 + number % 5, "scaleDownGraceSeconds": 1},
        "weight": 1 + number % 4,
        "worker": {"template": {"spec": {
            "containers": [{"name": "main", "image": "user:1", "command": ["train"],
                "resources": {"requests": {"cpu": "1"}}}],
        }}},
    })
}

async fn under(kubeconfig: &std::path::PathBuf, policy: &str) -> Value {
    let (client, operator, folder) = bench(kubeconfig, policy).await;
    let space = format!("scale-{policy}");
    namespace(&client, &space).await;
    let jobs = Jobs::of(&client, &space);
    let crowd = Crowd::start(&client, &operator.url(), (NODES, 2), law).await;
    for number in 0..JOBS {
        jobs.create(&format!("job-{number:02}"), job(number)).await;
        tokio::time::sleep(BETWEEN).await;
    }
    wait_for("the end of all jobs", 600, async || {
        let all = jobs.api.list(&ListParams::default()).await.unwrap().items;
        all.iter().all(|job| phase(job) == "Succeeded").then_some(())
    })
    .await;
    assert_eq!(crowd.broken(), [] as [String; 0]);
    let mut replay = Command::new(bellwether());
    replay.args(["simulate", "--format", "json", "--replay"]).arg(operator.state().join("ledger.jsonl"));
    let output = replay.output().unwrap();
    drop(folder);
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
#[ignore = "takes a quarter of an hour"]
fn policies_decide_on_a_cluster_as_in_the_simulator() {
    let Some(kubeconfig) = support::kubeconfig() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for policy in POLICIES {
            let replay = under(&kubeconfig, policy).await;
            let decisions = &replay["decisions"];
            assert_eq!(decisions["same"], decisions["all"], "{policy}: {}", decisions["first_difference"]);
            let mean = |key: &str| {
                let jobs = replay["jobs"].as_array().unwrap();
                jobs.iter().map(|job| job[key].as_f64().unwrap()).sum::<f64>() / jobs.len() as f64
            };
            let (measured_s, simulated_s) = (mean("measured_s"), mean("simulated_s"));
            let gap = 100.0 * (simulated_s / measured_s - 1.0);
            eprintln!(
                "{policy:<8} {} decisions, all the same; mean completion {measured_s:.1} s on the cluster, \
                 {simulated_s:.1} s simulated: {gap:+.1} %",
                decisions["all"]
            );
        }
    });
}
