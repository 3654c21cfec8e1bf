//! An API server that fails: conflicts, too many requests, lost answers, watches that break or begin too long ago.

use kube::ResourceExt;
use serde_json::{Value, json};

use crate::support::job::{digits, step, undisturbed};
use crate::support::operator::{Jobs, Operator, namespace};
use crate::support::proxy::{Fault, Proxy};
use crate::support::{self, wait_for};
use crate::{bench, on_server};

/// A job of some seconds with two resizes asks for about a hundred things; each that fails is asked for again.
const REQUESTS_MAX: u64 = 3000;

#[test]
#[ignore = "among those of many minutes"]
fn a_job_trains_to_its_end_though_the_server_fails_again_and_again() {
    on_server(async |kubeconfig| {
        let mut bench = bench(kubeconfig, &[]).await;
        bench.operator.kill();
        let client = support::client(&bench.folder.path().join("kubeconfig")).await;
        let proxy = Proxy::start(client, 11).await;
        let through = proxy.kubeconfig(bench.folder.path());
        bench.operator =
            Operator::start(&through, &bench.folder.path().join("operator"), &["--policy", "fair"]);
        namespace(&bench.client, "train-faults").await;
        let jobs = Jobs::of(&bench.client, "train-faults");
        let job = digits(60_000);
        let elastic = json!({"minReplicas": 1, "maxReplicas": 3, "policy": "Manual", "replicas": 1,
            "scaleDownGraceSeconds": 5});
        jobs.create("digits", json!({"job": job, "elastic": elastic})).await;
        jobs.until("digits", "steps", 120, |status| step(status) > 0).await;
        proxy.fail();
        for workers in [3, 2] {
            jobs.scale("digits", workers).await;
            // Never more pods than were decided, however often a pod is asked for.
            wait_for(&format!("{workers} pods"), 120, async || {
                let pods = jobs.pods("digits", "worker").await;
                let live = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
                let mut names: Vec<String> = live.map(ResourceExt::name_any).collect();
                names.dedup();
                assert!(names.len() <= 3, "{names:?}");
                let status = jobs.status("digits").await;
                (names.len() == workers as usize || status["phase"] == "Succeeded").then_some(())
            })
            .await;
        }
        let succeeded = |status: &Value| status["phase"] == "Succeeded";
        let status = jobs.until("digits", "its end", 240, succeeded).await;
        // Before this thread, which passes requests on, waits for the run beside it.
        assert!(bench.operator.runs(), "{}", bench.operator.log());
        assert_eq!(status["training"]["digest"], undisturbed(bench.folder.path(), &job).as_str(), "{status}");
        let counts = proxy.counts();
        for fault in
            [Fault::Conflict, Fault::Busy, Fault::Down, Fault::AnswerLost, Fault::Expired, Fault::Broken]
        {
            assert!(counts.get(&fault).is_some_and(|count| *count > 0), "{counts:?}");
        }
        assert!(counts.values().sum::<u64>() < REQUESTS_MAX, "no storm: {counts:?}");
    });
}
