//! Jobs whose workers do not all wait for each other: their servers take devices, and policies know their speed.

use std::collections::BTreeMap;
use std::sync::Arc;

use bellwether_core::cluster::{Allocation, NodeId, Switch, Way};
use bellwether_core::prediction::{Link, Protocol, StepModel};
use bellwether_core::profile::Profile;
use bellwether_model::profiles::ProfiledJobs;
use bellwether_sched::registry::Registry;
use bellwether_sim::trace::Entry;
use bellwether_sim::world::{Recording, Scenario};

use super::common::{cluster, completions_s, elastic, rigid, run};

/// Eight virtual nodes of 0.1 s, 1 MB of parameters.
const PROFILE: &str = r#"{"version":1,"job":"net","source":"by hand","device":"box","batch":8,"virtual_nodes":8,
    "parameter_bytes":1000000,"parts":[{"name":"g","bytes":1000000}],
    "operations":[{"name":"0","kind":"compute"},{"name":"1","kind":"compute","after":[0]},
        {"name":"2","kind":"compute","after":[1]},{"name":"3","kind":"compute","after":[2]},
        {"name":"4","kind":"compute","after":[3]},{"name":"5","kind":"compute","after":[4]},
        {"name":"6","kind":"compute","after":[5]},{"name":"7","kind":"compute","after":[6]},
        {"name":"up","kind":{"upload":0},"after":[7]},{"name":"update","kind":{"update":0},"after":[8]}],
    "steps":[{"step_s":0.8,"operations_s":[0.1,0.1,0.1,0.1,0.1,0.1,0.1,0.1,0.0,0.0]}]}"#;

/// Links of 20 MB/s: a transfer takes half as long as a virtual node.
fn scenario(devices: u32) -> Scenario {
    let mut view = cluster(1, devices);
    view.link = Some(Link { bandwidth_bytes_per_s: 2e7, latency_s: 0.0 });
    Scenario::new(view)
}

fn model() -> ProfiledJobs {
    let mut model = ProfiledJobs::new(BTreeMap::new());
    model.add("net", Profile::read(PROFILE, "p").expect("a profile")).expect("it can be predicted from");
    model
}

fn asp(servers: u32) -> Way {
    Way { protocol: Protocol::Asp, servers, nodes_per_update: 1 }
}

/// `work` samples of the network in one of these ways.
fn job(mut entry: Entry, work: f64, ways: &[Way]) -> Entry {
    let job = Arc::make_mut(&mut entry.job);
    (job.description.model, job.ways) = ("net".into(), ways.to_vec());
    (entry.work, entry.is_duration) = (work, false);
    entry
}

/// Samples per second on this many devices of one node, its servers' among them.
fn rate(scenario: &Scenario, entry: &Entry, way: Way, devices: u32) -> f64 {
    let allocation =
        Allocation::filling([(NodeId(0), devices)].into_iter(), devices).expect("one node has them");
    let configuration = scenario.cluster.configuration_in(way, &entry.job, &allocation, None);
    model().predict(&entry.job.description, &configuration).expect("a prediction").examples_per_s
}

fn simulate(policy: &str, entries: &[Entry], scenario: &Scenario) -> Recording {
    let (_, mut policy) = Registry::built_in().parse(policy).expect("a policy");
    run(&mut *policy, entries, scenario, &model()).expect("they end")
}

/// Two synchronous jobs have half of the devices each, and four of them are as good as five: eight virtual nodes come
/// out uneven. An asynchronous one has no such steps: it uses a fifth worker, so it has the devices that help no other.
#[test]
fn an_asynchronous_job_and_its_synchronous_twin_get_different_shares() {
    let mut scenario = scenario(10);
    scenario.keep_spans = true;
    let synchronous = |row: usize| job(elastic(row, 0.0, 8, 1.0), 4_000.0, &[]);
    let asynchronous = job(elastic(1, 0.0, 8, 1.0), 4_000.0, &[asp(1)]);
    let shares = |policy: &str, entries: &[Entry]| {
        let recording = simulate(policy, entries, &scenario);
        [0, 1].map(|row: u32| {
            let spans = recording.spans.iter().filter(|span| span.job.0 == row && span.start_s == 0.0);
            spans.map(|span| span.devices).sum::<u32>()
        })
    };
    for policy in ["optimus", "afs"] {
        assert_eq!(shares(policy, &[synchronous(0), synchronous(1)]), [4, 4], "{policy}");
        assert_eq!(shares(policy, &[synchronous(0), asynchronous.clone()]), [4, 6], "{policy}");
    }
    let gain = |entry: &Entry, way: Way, devices: u32| {
        rate(&scenario, entry, way, devices + 1) / rate(&scenario, entry, way, devices) - 1.0
    };
    let plain = Way::default();
    assert!(gain(&synchronous(0), plain, 4) < 0.0 && gain(&asynchronous, asp(1), 5) > 0.05);
}

#[test]
fn servers_fill_the_nodes_and_a_job_waits_for_it() {
    let scenario = scenario(4);
    let first = job(rigid(0, 0.0, 4, 1.0), 400.0, &[asp(1)]);
    let second = job(rigid(1, 0.0, 1, 1.0), 8.0, &[]);
    // Three workers and a server; the other one needs a single device, and finds it when these have ended.
    let end_s = 400.0 / rate(&scenario, &first, asp(1), 4);
    let recording = simulate("fifo_skip", &[first.clone(), second.clone()], &scenario);
    let times = completions_s(&recording);
    assert!((times[0] - end_s).abs() < 1e-6 && (times[1] - end_s - 0.8).abs() < 1e-6, "{times:?}, {end_s}");
    // Its synchronous twin of three devices leaves one.
    let twin = job(rigid(0, 0.0, 3, 1.0), 400.0, &[]);
    let times = completions_s(&simulate("fifo_skip", &[twin, second], &scenario));
    assert!((times[1] - 0.8).abs() < 1e-6, "{times:?}");
}

#[test]
fn two_servers_are_taken_where_one_is_full() {
    let ways = [asp(1), asp(2), asp(3)];
    for (devices, servers) in [(2, 1), (3, 1), (8, 2)] {
        let scenario = scenario(devices);
        let one = job(rigid(0, 0.0, devices, 1.0), 400.0, &ways);
        let rates: Vec<f64> =
            (1..=3.min(devices - 1)).map(|servers| rate(&scenario, &one, asp(servers), devices)).collect();
        let best = rates.iter().copied().fold(0.0, f64::max);
        assert_eq!(best, rates[servers as usize - 1], "{devices} devices: {rates:?}");
        let times = completions_s(&simulate("hell", &[one], &scenario));
        assert!((times[0] - 400.0 / best).abs() < 1e-6, "{times:?} on {devices}");
    }
}

#[test]
fn a_job_changes_its_speed_where_it_switches() {
    let scenario = scenario(4);
    let mut entry = job(rigid(0, 0.0, 4, 1.0), 400.0, &[]);
    Arc::make_mut(&mut entry.job).switch = Some(Switch { at: 0.25, ways: vec![asp(1)] });
    let (before, after) = (rate(&scenario, &entry, Way::default(), 4), rate(&scenario, &entry, asp(1), 4));
    assert!((before / after - 1.0).abs() > 0.1, "{before} {after}");
    let times = completions_s(&simulate("fifo", &[entry.clone()], &scenario));
    assert!((times[0] - 100.0 / before - 300.0 / after).abs() < 1e-6, "{times:?}");
    // A policy that knows no speeds, with another job that makes it stop and go on.
    let short = job(rigid(1, 5.0, 4, 1.0), 8.0, &[]);
    let times = completions_s(&simulate("srtf", &[entry, short], &scenario));
    let interruption_s = 8.0 / before;
    assert!((times[0] - 100.0 / before - 300.0 / after - interruption_s).abs() < 1e-6, "{times:?}");
}
