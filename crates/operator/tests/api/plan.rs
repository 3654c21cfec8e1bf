//! The road from a profile by a prediction and a plan to a job of the cluster in a queue, which is resized and keeps
//! its bits.

use std::process::Command;

use bellwether_operator::crd::Queue;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};

use crate::client::User;
use crate::support::job::{self, digits};
use crate::support::operator::{Jobs, bellwether, namespace, queue};
use crate::{bench, on_server};

const STEPS: u64 = 30_000;

#[test]
#[ignore = "among those of many minutes"]
fn a_job_is_profiled_predicted_planned_exported_queued_and_resized() {
    on_server(async |kubeconfig| {
        let bench = bench(kubeconfig.clone(), &["--policy", "fair"]).await;
        namespace(&bench.client, "train-plan").await;
        let folder = bench.folder.path();
        let (trained, steps) = (digits(STEPS), STEPS.to_string());
        let file = job::file(folder, &trained);
        let (profile, prices) = (folder.join("profile.json"), job::prices(folder));
        let run = |command: &mut Command| {
            let output = command.env("KUBECONFIG", &kubeconfig).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            output.stdout
        };
        let mut measure = Command::new(bellwether());
        measure.args(["profile", "--steps", "20", "--state-dir"]).arg(folder.join("profiled"));
        run(measure.arg(&file).arg("-o").arg(&profile));
        let mut predict = Command::new(bellwether());
        predict.arg("predict").arg(&profile).args(["--workers", "1..2", "--format", "json"]);
        let predicted: Value = serde_json::from_slice(&run(&mut predict)).unwrap();
        assert_eq!(predicted.as_array().map(Vec::len), Some(2), "{predicted}");
        let mut plan = Command::new(bellwether());
        plan.arg("plan").arg(&profile).arg("--catalog").arg(&prices);
        plan.args(["--steps", &steps, "--deadline", "2h", "--max-workers", "2", "--export", "kubernetes"]);
        plan.arg("--job").arg(&file).args(["--namespace", "train-plan"]);
        let objects: Value = serde_json::from_slice(&run(&mut plan)).unwrap();
        let [map, object] = &objects["items"].as_array().unwrap()[..] else { panic!("{objects}") };
        let map: ConfigMap = serde_json::from_value(map.clone()).unwrap();
        let maps: Api<ConfigMap> = Api::namespaced(bench.client.clone(), "train-plan");
        maps.create(&PostParams::default(), &map).await.unwrap();
        let spec = &object["spec"];
        assert_eq!(spec["deadlineSeconds"], 7200, "{spec}");
        let planned = spec["elastic"]["maxReplicas"].as_u64().unwrap();
        assert!((1..=2).contains(&planned), "{spec}");
        let jobs = Jobs::of(&bench.client, "train-plan");
        queue(&bench.client, "road", json!({"limit": {"all": 2}})).await;
        let mut spec = spec.clone();
        spec["queue"] = json!("road");
        spec["elastic"]["maxReplicas"] = json!(2);
        jobs.create("digits", spec).await;
        jobs.until("digits", "two workers", 60, |status| status["allocation"]["replicas"] == 2).await;
        let user = User { kubeconfig: kubeconfig.clone(), namespace: "train-plan" };
        let scaled = user.asks("scale digits --workers 1").await;
        assert_eq!(scaled["max_workers"], 1, "{scaled}");
        let status = jobs.until("digits", "its end", 180, |status| status["phase"] == "Succeeded").await;
        assert_eq!(status["training"]["step"], STEPS, "{status}");
        assert_eq!(status["training"]["digest"], json!(job::undisturbed(folder, &trained)), "the same bits");
        assert!(status["restarts"]["resize"].as_u64() > Some(0), "{status}");
        let ledger = std::fs::read_to_string(bench.operator.state().join("ledger.jsonl")).unwrap();
        let submitted = ledger.lines().find(|line| line.contains("\"entry\":\"submitted\"")).unwrap();
        assert!(submitted.contains("\"profiled\":["), "the plan's profile was believed: {submitted}");
        let queues: Api<Queue> = Api::all(bench.client.clone());
        queues.delete("road", &DeleteParams::default()).await.unwrap();
    });
}
