//! What a job's pods can reach, and where its token stands.

use std::path::Path;

use bellwether_operator::exchange::{Client as OfPod, Report, token_of};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod, Secret};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};

use crate::cluster::condition;
use crate::support::job::{digits, step};
use crate::support::operator::{Jobs, namespace};
use crate::{Bench, bench, on_server};

/// A job that trains in a namespace of its own, and its token.
struct Tenant {
    jobs: Jobs,
    uid: String,
    token: String,
}

impl Tenant {
    async fn of(bench: &Bench, space: &str) -> Tenant {
        namespace(&bench.client, space).await;
        let jobs = Jobs::of(&bench.client, space);
        let elastic = json!({"minReplicas": 1, "maxReplicas": 2});
        let job = jobs.create("digits", json!({"job": digits(10_000_000), "elastic": elastic})).await;
        jobs.until("digits", "steps", 60, |status| step(status) > 0).await;
        let secrets: Api<Secret> = Api::namespaced(bench.client.clone(), space);
        let mut all = secrets.list(&ListParams::default()).await.unwrap().items.into_iter();
        let of_job = all.find_map(|secret| secret.data.filter(|data| data.contains_key("job.json")));
        let secret = of_job.and_then(|mut data| data.remove("token")).map(|token| token.0);
        let token = String::from_utf8(secret.expect("a secret with its token")).unwrap();
        Tenant { jobs, uid: job.metadata.uid.unwrap(), token }
    }

    async fn pods(&self) -> Vec<Value> {
        let mut pods = Vec::new();
        for role in ["coordinator", "worker"] {
            pods.extend(self.jobs.pods("digits", role).await);
        }
        pods.iter().map(|pod: &Pod| serde_json::to_value(pod).unwrap()).collect()
    }
}

/// What logs and ledgers below a folder say.
fn said_in(place: &Path) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(place).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            text += &said_in(&path);
        } else if path.file_name().is_some_and(|name| name == "log" || name == "ledger.jsonl") {
            text += &String::from_utf8_lossy(&std::fs::read(&path).unwrap_or_default());
        }
    }
    text
}

#[test]
fn a_job_reaches_nothing_of_another_and_its_token_stands_in_its_secret_alone() {
    on_server(async |kubeconfig| {
        let bench = bench(kubeconfig, &["--policy", "fair"]).await;
        let (a, b) = (Tenant::of(&bench, "security-a").await, Tenant::of(&bench, "security-b").await);
        assert_ne!(a.token, b.token);
        for (tenant, other) in [(&a, &b), (&b, &a)] {
            let pods = tenant.pods().await;
            assert!(pods.len() >= 2, "{pods:?}");
            for pod in &pods {
                let spec = &pod["spec"];
                assert_eq!(
                    spec["automountServiceAccountToken"], false,
                    "no access to Kubernetes' API: {spec}"
                );
                let text = pod.to_string();
                assert!(!text.contains(&tenant.token) && !text.contains(&other.token), "{text}");
                assert!(!text.contains(&other.uid), "it names nothing of another's: {text}");
            }
            let job = serde_json::to_string(&tenant.jobs.api.get("digits").await.unwrap()).unwrap();
            assert!(!job.contains(&tenant.token), "{job}");
        }
        let events: Api<Event> = Api::all(bench.client.clone());
        let events =
            serde_json::to_string(&events.list(&ListParams::default()).await.unwrap().items).unwrap();
        let said = said_in(bench.folder.path()) + &bench.operator.log() + &events;
        assert!(said.contains("digits") && !said.contains(&a.token) && !said.contains(&b.token));
        refuses_the_other(&bench, &a, &b).await;
        // What another namespace has is not there. Claims and secrets of templates are Kubernetes' own affair: a pod
        // names those of its namespace alone.
        let maps: Api<ConfigMap> = Api::namespaced(bench.client.clone(), "security-a");
        let map = json!({"metadata": {"name": "profile"}, "data": {"profile.json": "{}"}});
        let map: ConfigMap = serde_json::from_value(map).unwrap();
        maps.create(&PostParams::default(), &map).await.unwrap();
        b.jobs.create("nosy", json!({"job": digits(100), "profileRef": {"name": "profile"}})).await;
        let missing = |status: &Value| condition(status, "Accepted")["reason"] == "ReferenceMissing";
        b.jobs.until("nosy", "a refusal", 30, missing).await;
        for (tenant, job) in [(&a, "digits"), (&b, "digits"), (&b, "nosy")] {
            tenant.jobs.api.delete(job, &DeleteParams::default()).await.unwrap();
        }
    });
}

/// A pod that says that it is another job's is not believed.
async fn refuses_the_other(bench: &Bench, a: &Tenant, b: &Tenant) {
    let (url, uid) = (bench.operator.url(), a.uid.clone());
    let pod = a.jobs.pods("digits", "worker").await[0].metadata.name.clone().unwrap();
    let secrets: Api<Secret> = Api::namespaced(bench.client.clone(), "bellwether-system");
    let key = secrets.get("bellwether-operator-key").await.unwrap().data.unwrap()["key"].0.clone();
    let key: [u8; 32] = key.try_into().unwrap();
    let (wrong, right) = (token_of(&key, &b.uid), token_of(&key, &a.uid));
    tokio::task::spawn_blocking(move || {
        let with = |token| OfPod::new(&url, &uid, &pod, token).unwrap();
        assert!(with(&wrong).report(&Report::default()).is_err(), "signed with another job's token");
        assert!(with(&wrong).wish(0).is_err());
        assert!(with(&right).wish(0).is_ok());
    })
    .await
    .unwrap();
}
