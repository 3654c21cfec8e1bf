//! The road from a profile by a plan to a job of the cluster.

use std::process::Command;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};
use serde_json::Value;

use crate::support::job::{self, digits};
use crate::support::operator::{Jobs, bellwether, namespace};
use crate::{bench, on_server};

const PRICES: &str = r#"
[network]
bandwidth = "10Gbit/s"
latency = "50us"

[[machine]]
device = "cpu"
region = "here"
speed = 1.0
price = "$0.10/h"
"#;

#[test]
#[ignore = "among those of many minutes"]
fn a_job_is_profiled_planned_exported_and_trained() {
    on_server(async |kubeconfig| {
        let bench = bench(kubeconfig.clone(), &["--policy", "fair"]).await;
        namespace(&bench.client, "train-plan").await;
        let folder = bench.folder.path();
        let file = job::file(folder, &digits(2_000));
        let (profile, prices) = (folder.join("profile.json"), folder.join("prices.toml"));
        std::fs::write(&prices, PRICES).unwrap();
        let run = |command: &mut Command| {
            let output = command.env("KUBECONFIG", &kubeconfig).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            output.stdout
        };
        let mut measure = Command::new(bellwether());
        measure.args(["profile", "--steps", "20", "--state-dir"]).arg(folder.join("profiled"));
        run(measure.arg(&file).arg("-o").arg(&profile));
        let mut plan = Command::new(bellwether());
        plan.arg("plan").arg(&profile).arg("--catalog").arg(&prices);
        plan.args(["--steps", "2000", "--deadline", "2h", "--max-workers", "2", "--export", "kubernetes"]);
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
        jobs.create("digits", spec.clone()).await;
        let status = jobs.until("digits", "its end", 120, |status| status["phase"] == "Succeeded").await;
        assert_eq!(status["training"]["step"], 2_000, "{status}");
        let ledger = std::fs::read_to_string(bench.operator.state().join("ledger.jsonl")).unwrap();
        let submitted = ledger.lines().find(|line| line.contains("\"entry\":\"submitted\"")).unwrap();
        assert!(submitted.contains("\"profiled\":["), "the plan's profile was believed: {submitted}");
    });
}
