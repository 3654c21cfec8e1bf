//! Queues, and an operator that loses all but Kubernetes' API.

use bellwether_operator::crd::Queue;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::support::job::{self, digits, step, undisturbed};
use crate::support::operator::{Jobs, Operator, bellwether, namespace, queue};
use crate::support::wait_for;
use crate::{bench, on_server};

pub(crate) fn condition<'s>(status: &'s Value, kind: &str) -> &'s Value {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().find(|condition| condition["type"] == kind).unwrap_or(&Value::Null)
}

fn runs(status: &Value) -> bool {
    status["phase"] == "Running" && step(status) > 0
}

#[test]
fn a_queue_bounds_its_jobs_and_is_for_its_namespaces() {
    on_server(async |kubeconfig| {
        let bench = bench(kubeconfig, &["--policy", "fair"]).await;
        for name in ["train-queue-a", "train-queue-b"] {
            namespace(&bench.client, name).await;
        }
        let (a, b) = (Jobs::of(&bench.client, "train-queue-a"), Jobs::of(&bench.client, "train-queue-b"));
        let elastic = json!({"minReplicas": 1, "maxReplicas": 4, "scaleDownGraceSeconds": 2});
        let spec = json!({"job": digits(1_000_000), "elastic": elastic, "queue": "small"});
        a.create("digits", spec.clone()).await;
        let missing = |status: &Value| condition(status, "Accepted")["reason"] == "QueueMissing";
        let status = a.until("digits", "no queue", 30, missing).await;
        let message = condition(&status, "Accepted")["message"].as_str().unwrap().to_owned();
        assert!(message.contains("spec.queue: there is no queue `small`"), "{message}");
        queue(&bench.client, "small", json!({"limit": {"all": 2}, "namespaces": ["train-queue-a"]})).await;
        // One that is not for b reads as one that is not there.
        b.create("digits", spec).await;
        b.until("digits", "no queue", 30, missing).await;
        let status = a.until("digits", "steps", 60, runs).await;
        assert_eq!(status["allocation"]["replicas"], 2, "as many as its queue may hold: {status}");
        let queues: Api<Queue> = Api::all(bench.client.clone());
        let status = wait_for("the queue's status", 30, async || {
            let status = queues.get("small").await.unwrap().status.unwrap_or_default();
            (status.running == 1).then_some(status)
        })
        .await;
        assert_eq!((status.waiting, status.held.get("cpu")), (0, Some(&2)));
        let worse = json!({"spec": {"limit": {"all": 0}}});
        queues.patch("small", &PatchParams::default(), &Patch::Merge(&worse)).await.unwrap();
        let refused = wait_for("a refusal", 30, async || {
            let status = queues.get("small").await.unwrap().status.unwrap_or_default();
            status.conditions.iter().find(|condition| condition.status == "False").cloned()
        })
        .await;
        assert!(refused.message.contains("train-queue-a.digits"), "{refused:?}");
        for jobs in [a, b] {
            jobs.api.delete("digits", &DeleteParams::default()).await.unwrap();
        }
        let all = json!({"spec": {"limit": {"all": 2}}});
        queues.patch("small", &PatchParams::default(), &Patch::Merge(&all)).await.unwrap();
        queues.delete("small", &DeleteParams::default()).await.unwrap();
    });
}

#[test]
#[ignore = "among those of many minutes"]
fn an_operator_that_lost_all_but_the_api_leaves_what_trains_where_it_is() {
    on_server(async |kubeconfig| {
        let mut bench = bench(kubeconfig, &["--policy", "fair"]).await;
        namespace(&bench.client, "train-lost").await;
        let jobs = Jobs::of(&bench.client, "train-lost");
        let job = digits(60_000);
        // The second one is not where a fresh decision would put it.
        let elastic = |workers: u32| json!({"minReplicas": workers, "maxReplicas": workers});
        jobs.create("first", json!({"job": digits(1_000_000), "elastic": elastic(3)})).await;
        jobs.until("first", "steps", 60, runs).await;
        jobs.create("second", json!({"job": job, "elastic": elastic(2)})).await;
        jobs.until("second", "steps", 60, runs).await;
        jobs.api.delete("first", &DeleteParams::default()).await.unwrap();
        wait_for("the first to go", 60, async || {
            (jobs.pods("first", "worker").await.is_empty()).then_some(())
        })
        .await;
        let names = async || {
            let mut pods = jobs.pods("second", "worker").await;
            pods.extend(jobs.pods("second", "coordinator").await);
            let mut names: Vec<String> = pods.iter().map(ResourceExt::name_any).collect();
            names.sort();
            names
        };
        let before = names().await;
        assert_eq!(before.len(), 3);
        bench.operator.kill();
        std::fs::remove_dir_all(bench.operator.state()).unwrap();
        let seen = step(&jobs.status("second").await);
        bench.operator.start_again();
        let goes_on = |status: &Value| step(status) > seen + 1000;
        jobs.until("second", "further steps", 60, goes_on).await;
        assert_eq!(names().await, before, "no pod was replaced");
        let status = jobs.until("second", "its end", 120, |status| status["phase"] == "Succeeded").await;
        let digest = undisturbed(bench.folder.path(), &job);
        assert_eq!(status["training"]["digest"], digest.as_str(), "{status}");
        assert_eq!(status["allocation"]["generation"], 1, "{status}");
        // What was found was decided by no policy; the rest is as the policy decides it again.
        let mut replay = std::process::Command::new(bellwether());
        let replay = replay.arg("simulate").arg("--replay").arg(bench.operator.state().join("ledger.jsonl"));
        let replay = replay.output().unwrap();
        assert!(replay.status.success(), "{}", String::from_utf8_lossy(&replay.stdout));
    });
}

#[test]
#[ignore = "among those of many minutes"]
fn a_profile_tells_the_speed_and_the_memory_of_a_job_before_it_runs() {
    on_server(async |kubeconfig| {
        let bench = bench(kubeconfig, &["--policy", "fair"]).await;
        namespace(&bench.client, "train-profile").await;
        let jobs = Jobs::of(&bench.client, "train-profile");
        let job = digits(20_000);
        let spec = json!({"job": job, "profileRef": {"name": "digits"}});
        jobs.create("digits", spec).await;
        let missing = |status: &Value| condition(status, "Accepted")["reason"] == "ReferenceMissing";
        jobs.until("digits", "no profile", 30, missing).await;
        let mut profile = std::process::Command::new(bellwether());
        profile.args(["profile", "--steps", "20", "--state-dir"]).arg(bench.folder.path().join("profiled"));
        let profile = profile.arg(job::file(bench.folder.path(), &job)).output().unwrap();
        assert!(profile.status.success(), "{}", String::from_utf8_lossy(&profile.stderr));
        let maps: Api<ConfigMap> = Api::namespaced(bench.client.clone(), "train-profile");
        let text = String::from_utf8(profile.stdout).unwrap();
        let map = json!({"metadata": {"name": "digits"}, "data": {"profile.json": text}});
        maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
        let pod = wait_for("a worker", 60, async || jobs.pods("digits", "worker").await.pop()).await;
        let resources = pod.spec.unwrap().containers[0].resources.clone().unwrap();
        let bytes = resources.requests.unwrap()["memory"].0.clone();
        assert!(bellwether_operator::nodes::amount(&bytes).unwrap() > 1e6, "{bytes}");
        jobs.until("digits", "its end", 120, |status| status["phase"] == "Succeeded").await;
        let ledger = std::fs::read_to_string(bench.operator.state().join("ledger.jsonl")).unwrap();
        let submitted = ledger.lines().find(|line| line.contains("\"entry\":\"submitted\"")).unwrap();
        assert!(submitted.contains("\"profiled\":["), "{submitted}");
    });
}

#[test]
#[ignore = "among those of many minutes"]
fn of_two_operators_one_works_and_one_that_stood_still_writes_nothing_more() {
    on_server(async |kubeconfig| {
        let mut bench = bench(kubeconfig, &["--policy", "fair"]).await;
        namespace(&bench.client, "train-two").await;
        let jobs = Jobs::of(&bench.client, "train-two");
        let elastic = json!({"minReplicas": 1, "maxReplicas": 4, "policy": "Manual", "replicas": 1});
        jobs.create("digits", json!({"job": digits(1_000_000), "elastic": elastic})).await;
        let status = jobs.until("digits", "steps", 60, runs).await;
        let first = status["allocation"]["leaseTransitions"].as_u64().unwrap();
        let other = bench.folder.path().join("other");
        let mut other =
            Operator::start(&bench.folder.path().join("kubeconfig"), &other, &["--policy", "fair"]);
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        assert!(!other.log().contains("leads"), "the first one works: {}", other.log());
        bench.operator.hold(true);
        wait_for("the other to lead", 60, async || other.log().contains("leads").then_some(())).await;
        jobs.scale("digits", 3).await;
        let by_other = |status: &Value| {
            status["allocation"]["leaseTransitions"].as_u64() > Some(first)
                && status["allocation"]["replicas"] == 3
        };
        wait_for("another decision", 60, async || {
            assert!(other.runs(), "the other has ended: {}", other.log());
            by_other(&jobs.status("digits").await).then_some(())
        })
        .await;
        bench.operator.hold(false);
        wait_for("the first to end", 60, async || (!bench.operator.runs()).then_some(())).await;
        assert!(other.runs(), "{}", other.log());
        let status = jobs.status("digits").await;
        assert!(by_other(&status), "{status}");
        jobs.api.delete("digits", &DeleteParams::default()).await.unwrap();
        wait_for("its pods to go", 60, async || jobs.pods("digits", "worker").await.is_empty().then_some(()))
            .await;
    });
}

#[test]
#[ignore = "among those of many minutes"]
fn an_asynchronous_job_has_its_servers_in_pods() {
    on_server(async |kubeconfig| {
        let bench = bench(kubeconfig, &["--policy", "fair"]).await;
        namespace(&bench.client, "train-servers").await;
        let jobs = Jobs::of(&bench.client, "train-servers");
        let mut job = digits(6000);
        job["sync"] = json!({"policy": "asp", "servers": 2});
        let elastic = json!({"minReplicas": 1, "maxReplicas": 2, "scaleDownGraceSeconds": 5});
        jobs.create("digits", json!({"job": job, "elastic": elastic})).await;
        let status = jobs.until("digits", "steps", 60, runs).await;
        assert_eq!(
            (&status["allocation"]["servers"], &status["allocation"]["replicas"]),
            (&json!(2), &json!(2))
        );
        assert_eq!(jobs.pods("digits", "server").await.len(), 2);
        let status = jobs.until("digits", "its end", 120, |status| status["phase"] == "Succeeded").await;
        assert_eq!(step(&status), 6000, "{status}");
    });
}
