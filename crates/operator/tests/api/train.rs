//! Jobs that train.

use serde_json::json;

use crate::support::operator::{Jobs, namespace};
use crate::{bench, on_server};

/// The digits, for so many steps.
fn digits(steps: u64) -> serde_json::Value {
    json!({
        "name": "digits", "steps": steps, "seed": 7,
        "data": {"kind": "digits"}, "model": {"kind": "mlp", "hidden": [32]},
        "batch": {"size": 64, "virtual_nodes": 4},
        "optimizer": {"kind": "adam", "learning_rate": 0.003},
    })
}

#[test]
fn a_job_trains_to_its_end() {
    on_server(async |kubeconfig| {
        let bench = bench(kubeconfig, &["--policy", "fair"]).await;
        namespace(&bench.client, "train-end").await;
        let jobs = Jobs::of(&bench.client, "train-end");
        jobs.create("digits", json!({"job": digits(3000), "elastic": {"minReplicas": 1, "maxReplicas": 2}}))
            .await;
        let status = jobs.until("digits", "its end", 120, |status| status["phase"] == "Succeeded").await;
        assert_eq!(status["training"]["step"], 3000, "{status}");
        assert!(status["training"]["digest"].is_string(), "{status}");
    });
}
