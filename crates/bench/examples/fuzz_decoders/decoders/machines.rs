//! What providers of machines answer, and the leases of their holders.

use bellwether_core::lease::Lease;
use bellwether_session::machines::{clusters, pods};

use super::{Decoder, decoder, text};

const PODS: &str = r#"{"items":[{"metadata":{"labels":{"train.bellwether.dev/machine":"a1-1"}},"spec":{"nodeName":"n1"},
    "status":{"phase":"Running","conditions":[{"type":"DisruptionTarget","status":"True","message":"preempted"}]}},
    {"metadata":{"labels":{"train.bellwether.dev/machine":"a1-2"}},"status":{"phase":"Failed","reason":"Evicted"}}]}"#;
const CLUSTERS: &str = r#"Starting a local server.
    [{"name":"bellwether-a1-1","status":"UP","cloud":"GCP","region":"us-east1"},
     {"name":"bellwether-a1-2","status":"INIT","init_kind":"unhealthy","init_status_reason":"gone"}]"#;
const LEASE: &str = r#"{"version":1,"lease":"a1","provider":"here","run":"/runs/job-1","began_s":1e9,"plan":{"version":1,
    "job":"j","samples":1e6,"wishes":{"confidence":0.95,"transient":true,"max_workers":4},"reason":"r","candidates":[],
    "searched":1,"simulated":0,"basis":{"batch":8,"virtual_nodes":4,"checkpoint_s":1.0,"fixed_dollars_per_hour":0.0,
    "kinds":[{"machine":"m","device":"d","devices":1,"on_demand":1.0,"provision_s":1.0,"join_s":1.0,
    "examples_per_s":[1.0,2.0]}]}},"machines":[{"number":1,"pool":{"machine":"m","market":"on_demand"},
    "dollars_per_hour":1.0,"requested_s":1e9,"running_s":1e9,"is_seen":true,"workers":[1]}]}"#;

pub(super) fn all() -> Vec<Decoder> {
    vec![
        decoder("pods of Kubernetes", 1.0, vec![PODS.into()], |bytes| {
            text(bytes, |text| pods(text).is_ok_and(|machines| !machines.is_empty()))
        }),
        decoder("clusters of SkyPilot", 1.0, vec![CLUSTERS.into()], |bytes| {
            text(bytes, |text| clusters(text).is_ok_and(|machines| !machines.is_empty()))
        }),
        decoder("leases", 1.0, vec![LEASE.into()], |bytes| {
            text(bytes, |text| {
                Lease::read(text, "lease.json").is_ok_and(|lease| lease.dollars(2e9).is_finite())
            })
        }),
    ]
}
