//! Jobs that train.

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::support::job::{digits, step, undisturbed};
use crate::support::operator::{Jobs, namespace};
use crate::support::wait_for;
use crate::{bench, on_server};

fn phase(name: &'static str) -> impl Fn(&Value) -> bool {
    move |status| status["phase"] == name
}

async fn cordon(client: &Client, node: &str, on: bool) {
    let nodes: Api<Node> = Api::all(client.clone());
    let patch = Patch::Merge(json!({"spec": {"unschedulable": on}}));
    nodes.patch(node, &PatchParams::default(), &patch).await.unwrap();
}

#[test]
#[ignore = "among those of many minutes"]
fn a_job_trains_to_its_end_with_the_bits_of_an_undisturbed_run() {
    on_server(async |kubeconfig| {
        let bench = bench(kubeconfig, &["--policy", "fair"]).await;
        namespace(&bench.client, "train-end").await;
        let jobs = Jobs::of(&bench.client, "train-end");
        let job = digits(3000);
        jobs.create("digits", json!({"job": job, "elastic": {"minReplicas": 1, "maxReplicas": 2}})).await;
        let status = jobs.until("digits", "its end", 120, phase("Succeeded")).await;
        assert_eq!(step(&status), 3000, "{status}");
        assert_eq!(status["training"]["digest"], undisturbed(bench.folder.path(), &job).as_str(), "{status}");
    });
}

#[test]
fn a_job_is_resized_and_struck_and_its_bits_stay() {
    on_server(async |kubeconfig| {
        let mut bench = bench(kubeconfig, &["--policy", "fair"]).await;
        namespace(&bench.client, "train-struck").await;
        let jobs = Jobs::of(&bench.client, "train-struck");
        let job = digits(50_000);
        let elastic = json!({"minReplicas": 1, "maxReplicas": 4, "policy": "Manual", "replicas": 2,
            "scaleDownGraceSeconds": 10});
        jobs.create("digits", json!({"job": job, "elastic": elastic})).await;
        let running = |status: &Value| status["phase"] == "Running" && step(status) > 0;
        let status = jobs.until("digits", "steps of two workers", 60, running).await;
        let run = status["run"].as_str().unwrap().to_owned();
        bench.operator.until_members(&run, 2).await;
        jobs.scale("digits", 4).await;
        bench.operator.until_members(&run, 4).await;
        let worker = jobs.pods("digits", "worker").await[0].name_any();
        assert!(bench.kubelet.kill(&worker), "{worker} has a process");
        bench.operator.until_members(&run, 3).await;
        bench.operator.until_members(&run, 4).await;
        let lead = jobs.pods("digits", "coordinator").await[0].name_any();
        assert!(bench.kubelet.kill(&lead), "{lead} has a process");
        wait_for("another coordinator", 60, async || {
            let leads = jobs.pods("digits", "coordinator").await;
            leads.iter().any(|pod| pod.name_any() != lead).then_some(())
        })
        .await;
        bench.operator.kill();
        bench.operator.start_again();
        jobs.scale("digits", 1).await;
        bench.operator.until_members(&run, 1).await;
        let status = jobs.until("digits", "its end", 240, phase("Succeeded")).await;
        assert_eq!(status["training"]["digest"], undisturbed(bench.folder.path(), &job).as_str(), "{status}");
        bench.operator.audit(&run);
    });
}

#[test]
fn a_drained_node_is_left_before_its_pods_are_killed() {
    on_server(async |kubeconfig| {
        let bench = bench(kubeconfig, &["--policy", "fair"]).await;
        namespace(&bench.client, "train-drain").await;
        let jobs = Jobs::of(&bench.client, "train-drain");
        let elastic = json!({"minReplicas": 2, "maxReplicas": 2, "scaleDownGraceSeconds": 10});
        jobs.create("digits", json!({"job": digits(1_000_000), "elastic": elastic})).await;
        let running = |status: &Value| status["phase"] == "Running" && step(status) > 0;
        let status = jobs.until("digits", "steps", 60, running).await;
        let run = status["run"].as_str().unwrap().to_owned();
        let node = status["allocation"]["nodes"][0]["node"].as_str().unwrap().to_owned();
        cordon(&bench.client, &node, true).await;
        wait_for("all workers elsewhere", 60, async || {
            let pods = jobs.pods("digits", "worker").await;
            let on = |pod: &k8s_openapi::api::core::v1::Pod| pod.spec.clone()?.node_name;
            (pods.len() == 2 && pods.iter().all(|pod| on(pod).is_some_and(|on| on != node))).then_some(())
        })
        .await;
        cordon(&bench.client, &node, false).await;
        let journal = bench.operator.state().join("runs").join(&run).join("journal.jsonl");
        let journal = std::fs::read_to_string(journal).unwrap();
        assert!(!journal.contains("\"event\":\"crashed\""), "nothing was lost: {journal}");
        jobs.api.delete("digits", &DeleteParams::default()).await.unwrap();
        wait_for("its pods to go", 60, async || {
            let left =
                jobs.pods("digits", "worker").await.len() + jobs.pods("digits", "coordinator").await.len();
            (left == 0).then_some(())
        })
        .await;
    });
}

#[test]
fn a_job_that_cannot_be_is_refused_with_the_place_and_not_tried_again() {
    on_server(async |kubeconfig| {
        let bench = bench(kubeconfig, &[]).await;
        namespace(&bench.client, "train-bad").await;
        let jobs = Jobs::of(&bench.client, "train-bad");
        let mut job = digits(100);
        job["batch"]["size"] = json!(0);
        jobs.create("digits", json!({"job": job})).await;
        let accepted = |status: &Value| {
            let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
            conditions.into_iter().find(|condition| condition["type"] == "Accepted")
        };
        let status = jobs.until("digits", "an answer", 30, |status| accepted(status).is_some()).await;
        let condition = accepted(&status).unwrap();
        assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("InvalidSpec")));
        assert!(condition["message"].as_str().unwrap().contains("batch.size"), "{condition}");
        let version = jobs.api.get("digits").await.unwrap().resource_version();
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        assert_eq!(jobs.api.get("digits").await.unwrap().resource_version(), version, "it is left alone");
    });
}
