//! The operator in a pod of the real node, as its manifest has it: by an unprivileged user, on a root file system that
//! cannot be written, with the token of its account and the rights of its role.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, LogParams, PostParams};
use kube::config::Kubeconfig;
use serde_json::{Value, json};

use crate::support::job::{digits, undisturbed};
use crate::support::operator::{self, Jobs, namespace};
use crate::support::{self, wait_for};
use crate::{on_node, succeeded};

const NAMESPACE: &str = "bellwether-system";

/// What the manifest says of the operator, with what differs on this node: it has the image already, and no network of
/// services.
fn deployment(image: &str, server: &str) -> Deployment {
    let mut object = json!(operator::manifest("Deployment"));
    let (host, port) = server.trim_start_matches("https://").rsplit_once(':').unwrap();
    let container = &mut object["spec"]["template"]["spec"]["containers"][0];
    container["image"] = json!(image);
    let arguments = container["args"].as_array_mut().unwrap();
    arguments.retain(|argument| {
        !["--image", "--url"].iter().any(|start| argument.as_str().unwrap().starts_with(start))
    });
    let more = [&format!("--image={image}"), "--url=http://$(POD_IP):8080", "--processors-per-slot=0.25"];
    arguments.extend(more.map(Value::from));
    let ip = json!({"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}});
    let given = |name: &str, value: &str| json!({"name": name, "value": value});
    let more = [ip, given("KUBERNETES_SERVICE_HOST", host), given("KUBERNETES_SERVICE_PORT", port)];
    container["env"].as_array_mut().unwrap().extend(more);
    serde_json::from_value(object).unwrap()
}

#[test]
fn the_operator_works_in_a_pod_as_its_manifest_has_it() {
    on_node(async |kubeconfig, image| {
        let client = support::client(&kubeconfig).await;
        operator::install(&client).await;
        let folder = tempfile::tempdir().unwrap();
        operator::authorise(&client, &kubeconfig, folder.path()).await;
        let server =
            Kubeconfig::read_from(&kubeconfig).unwrap().clusters.remove(0).cluster.unwrap().server.unwrap();
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
        let wanted = deployment(&image, &server);
        let name = wanted.name_any();
        let _ = deployments.delete(&name, &DeleteParams::default()).await;
        let create = async || deployments.create(&PostParams::default(), &wanted).await.ok();
        wait_for("the deployment", 30, create).await;
        let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
        let leases: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
        let leader = wait_for("an operator that leads", 90, async || {
            let lease = leases.get_opt(&name).await.unwrap()?;
            let holder = lease.spec?.holder_identity?;
            pods.get_opt(&holder).await.unwrap()
        })
        .await;
        namespace(&client, "node-deployed").await;
        let jobs = Jobs::of(&client, "node-deployed");
        let job = digits(30_000);
        let elastic = json!({"minReplicas": 1, "maxReplicas": 2, "scaleDownGraceSeconds": 10});
        jobs.create("digits", json!({"job": job, "elastic": elastic})).await;
        let status = jobs.until("digits", "its end", 180, succeeded).await;
        assert_eq!(status["training"]["digest"], undisturbed(folder.path(), &job).as_str(), "{status}");
        let log = pods.logs(&leader.name_any(), &LogParams::default()).await.unwrap();
        assert!(log.contains("leads as number"), "{log}");
        assert!(!log.contains("error"), "{log}");
        deployments.delete(&name, &DeleteParams::default()).await.unwrap();
        wait_for("the operator's end", 60, async || {
            let there = pods.list(&ListParams::default()).await.unwrap();
            there.items.is_empty().then_some(())
        })
        .await;
    });
}
