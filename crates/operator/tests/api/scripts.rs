//! Jobs whose script cannot change its number of processes: sets of pods that take each other's place.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::support::operator::{Jobs, namespace};
use crate::support::wait_for;
use crate::{bench, on_server};

/// Does its steps, and keeps how many in a file, as a script with a checkpoint does. The more it is, the faster it is.
const SCRIPT: &str = r#"
done=$(cat "$CHECKPOINTS/step" 2>/dev/null || echo 0)
while [ "$done" -lt 120 ]; do
    if [ "$WORLD_SIZE" = 1 ]; then sleep 0.2; else sleep 0.1; fi
    done=$((done + 1))
    if [ "$RANK" = 0 ]; then
        echo "$done" > "$CHECKPOINTS/new" && mv "$CHECKPOINTS/new" "$CHECKPOINTS/step"
        echo "step $done, loss 0.5, $WORLD_SIZE processes"
    fi
done
"#;

fn job(script: &str, folder: &std::path::Path, elastic: &Value) -> Value {
    json!({
        "rendezvous": {"backend": "torchrun", "throughput": {"pattern": r"^step (?<step>\d+), loss (?<loss>\S+),"}},
        "work": {"steps": 120, "batchSize": 64},
        "elastic": elastic,
        "failurePolicy": {"maxRestarts": 2, "rules": [{"onExitCodes": [42], "action": "FailJob"}]},
        "worker": {"template": {
            "metadata": {"labels": {"team": "a"}},
            "spec": {
                "containers": [{
                    "name": "main", "image": "user:1", "command": ["sh", "-c", script],
                    "env": [{"name": "CHECKPOINTS", "value": "/checkpoints"}],
                    "volumeMounts": [{"name": "checkpoints", "mountPath": "/checkpoints"}],
                }],
                "volumes": [{"name": "checkpoints", "hostPath": {"path": folder}}],
            },
        }},
    })
}

fn generation(pod: &Pod) -> u64 {
    pod.labels()["train.bellwether.dev/allocation"].parse().unwrap()
}

fn phase(name: &'static str) -> impl Fn(&Value) -> bool {
    move |status| status["phase"] == name
}

#[test]
fn a_script_starts_again_as_a_whole_when_its_size_changes_and_its_speed_is_learnt() {
    on_server(async |kubeconfig| {
        let bench = bench(kubeconfig, &["--policy", "fair"]).await;
        namespace(&bench.client, "train-script").await;
        let jobs = Jobs::of(&bench.client, "train-script");
        let elastic = json!({"minReplicas": 1, "maxReplicas": 2, "policy": "Manual", "replicas": 1,
            "scaleDownGraceSeconds": 2});
        let folder = bench.folder.path().join("checkpoints");
        jobs.create("script", job(SCRIPT, &folder, &elastic)).await;
        let learnt = |status: &Value| {
            status["training"]["predictedSamplesPerSecond"].is_string() && status["training"]["step"] != 0
        };
        jobs.until("script", "a speed", 60, learnt).await;
        let ledger = bench.operator.state().join("ledger.jsonl");
        wait_for("a lesson", 60, async || {
            std::fs::read_to_string(&ledger).ok()?.contains("\"entry\":\"learnt\"").then_some(())
        })
        .await;
        let one = jobs.pods("script", "worker").await;
        assert_eq!((one.len(), one[0].labels()["team"].as_str()), (1, "a"), "the template stays");
        assert_eq!(jobs.pods("script", "coordinator").await.len(), 0);
        jobs.scale("script", 2).await;
        let two = wait_for("a set of two", 60, async || {
            let pods = jobs.pods("script", "worker").await;
            (pods.len() == 2 && pods.iter().all(|pod| generation(pod) > generation(&one[0]))).then_some(pods)
        })
        .await;
        assert_eq!(generation(&two[0]), generation(&two[1]));
        let status = jobs.until("script", "its end", 90, phase("Succeeded")).await;
        assert_eq!(status["restarts"]["crash"].as_u64().unwrap_or(0), 0, "{status}");
        assert_eq!(status["training"]["progressPercent"], 100, "{status}");
        // What was learnt with one process foretold two, before two had run.
        let text = std::fs::read_to_string(&ledger).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let decided = lines.filter(|line| line["entry"] == "decided");
        let actions = decided.flat_map(|line| line["actions"].as_array().cloned().unwrap_or_default());
        let speeds: Vec<f64> =
            actions.filter_map(|action| action["allocate"]["expected"]["examples_per_s"].as_f64()).collect();
        let foretold = *speeds.last().unwrap();
        // 0.1 s of sleep for 64 samples, and what a shell adds.
        assert!((400.0..=640.0).contains(&foretold), "{speeds:?}");
    });
}

#[test]
#[ignore = "among those of many minutes"]
fn a_script_that_fails_starts_again_and_one_that_says_so_does_not() {
    on_server(async |kubeconfig| {
        let bench = bench(kubeconfig, &["--policy", "fair"]).await;
        namespace(&bench.client, "train-fails").await;
        let jobs = Jobs::of(&bench.client, "train-fails");
        let two = json!({"minReplicas": 2, "maxReplicas": 2, "scaleDownGraceSeconds": 2});
        // The second process fails once; the first would wait for it for ever.
        let once = r#"
            if [ "$RANK" = 1 ] && [ ! -e "$CHECKPOINTS/failed" ]; then touch "$CHECKPOINTS/failed"; exit 3; fi
            if [ ! -e "$CHECKPOINTS/failed" ]; then sleep 1000; fi
            echo "step 120, loss 0.1,"
        "#;
        let folder = bench.folder.path().join("once");
        jobs.create("once", job(once, &folder, &two)).await;
        let status = jobs.until("once", "its end", 90, phase("Succeeded")).await;
        assert_eq!(status["restarts"]["crash"], 1, "{status}");
        let fatal = job("exit 42", &bench.folder.path().join("fatal"), &two);
        jobs.create("fatal", fatal).await;
        let status = jobs.until("fatal", "its end", 60, phase("Failed")).await;
        let conditions = status["conditions"].to_string();
        assert!(conditions.contains("exit code 42, which ends the job by its failurePolicy"), "{conditions}");
        let always = job("exit 1", &bench.folder.path().join("always"), &two);
        jobs.create("always", always).await;
        let status = jobs.until("always", "its end", 90, phase("Failed")).await;
        assert_eq!(status["restarts"]["crash"], 3, "{status}");
        assert!(status["conditions"].to_string().contains("its pods failed 3 times"), "{status}");
    });
}
