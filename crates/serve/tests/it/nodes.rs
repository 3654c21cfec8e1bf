//! What the ledger's lines say of a cluster's nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use bellwether_core::cluster::JobId;
use bellwether_core::job::WorkerRange;
use bellwether_serve::clock::SystemClock;
use bellwether_serve::engine::Options;
use bellwether_serve::ledger::{Entry, FileStore, Line};
use bellwether_serve::machine::{DeviceType, Machine, MachineNode, SlurmJobs};
use bellwether_serve::request::Request;
use bellwether_serve::runner::{NodeSeen, Report, SlotsSeen};
use bellwether_serve::state::{LineError, State};

use crate::engine::{Daemon, options};

fn line(entry: Entry) -> Line {
    Line { time_s: 0.0, entry }
}

/// A cluster of one node with two slots.
fn cluster() -> State {
    let mut machine = Machine::slots(2);
    machine.nodes = vec![MachineNode { name: "n1".into(), device_type: 0, devices: 2 }];
    machine.slurm = Some(SlurmJobs::default());
    opened(machine)
}

fn opened(machine: Machine) -> State {
    let entry = Entry::Opened { version: "0".into(), unix_s: 0.0, time_scale: 1.0, machine };
    State::open(&line(entry)).unwrap()
}

fn slots(node: &str, (kind, speed): (&str, f64), devices: u32, taken: u32) -> Line {
    let device_type = DeviceType { name: kind.into(), speed, memory_bytes: None };
    line(Entry::Slots { node: node.into(), device_type, devices, taken })
}

#[test]
fn nodes_join_with_types_of_their_own_and_slots_that_others_hold_are_not_dealt_out() {
    let mut state = cluster();
    let policies = state.policies;
    state.apply(&slots("n2", ("gpu", 1.0), 3, 0)).unwrap();
    state.apply(&slots("n1", ("cpu", 1.0), 2, 1)).unwrap();
    assert_eq!(state.view.device_types, ["cpu", "gpu"]);
    assert_eq!((state.view.devices(Some(0)), state.view.devices(Some(1))), (1, 3));
    assert_eq!((state.view.free(Some(0)), state.widest(&[0]), state.widest(&[])), (1, 2, 3));
    assert_eq!(state.policies, policies + 2, "a fresh policy decides about other slots");
    state.apply(&slots("n1", ("cpu", 1.0), 2, 0)).unwrap();
    assert_eq!((state.view.devices(Some(0)), state.taken.len()), (2, 0));
    // Others hold no more than there is, whatever a line claims.
    state.apply(&slots("n1", ("cpu", 1.0), 2, u32::MAX)).unwrap();
    assert_eq!((state.view.devices(Some(0)), state.taken.values().sum::<u32>()), (0, 2));
}

#[test]
fn a_line_about_a_node_that_cannot_be_changes_nothing() {
    let mut state = cluster();
    let before = (state.machine.clone(), state.view.clone(), state.policies);
    let wrong = [
        slots("n2", ("gpu", 5.0), 1, 0),
        slots("n2", ("gpu", f64::NAN), 1, 0),
        slots("n2", ("cpu", 1.0), u32::MAX, 0),
        slots("n1", ("cpu", 1.0), u32::MAX, 0),
        slots("", ("cpu", 1.0), 1, 0),
    ];
    for line in &wrong {
        assert!(state.apply(line).is_err(), "{line:?}");
        assert_eq!((state.machine.clone(), state.view.clone(), state.policies), before, "{line:?}");
    }
    // A machine of one's own has no nodes that join.
    let joined = opened(Machine::slots(2)).apply(&slots("n1", ("cpu", 1.0), 1, 0));
    assert!(matches!(joined, Err(LineError::Misplaced(_))), "{joined:?}");
}

/// Two slots of a node that pods may use.
fn two_slots(name: &str, down: Option<&str>) -> NodeSeen {
    let device_type = DeviceType { name: "cpu".into(), speed: 1.0, memory_bytes: None };
    let slots = SlotsSeen { device_type, devices: 2, taken: 0 };
    NodeSeen { name: name.into(), down: down.map(Into::into), slots }
}

#[test]
fn a_job_that_shrinks_does_not_wait_for_a_node_that_is_lost_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let of_pods = Options { machine: Some(Machine::of_pods()), ..options(folder.path(), Some("wfs"), 0) };
    let store = Box::new(FileStore::new(folder.path().join("ledger.jsonl")));
    let daemon = Daemon::start_as(of_pods, SystemClock::new().unwrap(), store);
    daemon.report(Report::Nodes(vec![two_slots("n1", None), two_slots("n2", None)]));
    daemon.until("the nodes are there", |d| d.cluster().free == 4);
    daemon.submit("a", "1..4").unwrap();
    daemon.until("it gets all", |d| d.wanted(0) == Some(4));
    daemon.trains(0, 4);
    let workers = WorkerRange { min: 2, max: 2 };
    daemon.ask(Request::Limit { job: "a".into(), workers: Some(workers), weight: None }).unwrap();
    daemon.until("it shrinks", |d| d.wanted(0) == Some(2));
    // Before its pods have settled, the node where they should go on is gone.
    let lost = daemon.places(0).into_keys().next().expect("it has places");
    let other = if lost == "n1" { "n2" } else { "n1" };
    daemon.report(Report::Nodes(vec![two_slots(&lost, Some("it does not answer"))]));
    daemon.until("it is wanted on the other", |d| d.places(0) == BTreeMap::from([(other.into(), 2)]));
    // What is heard of the wish before does not bring the lost node back.
    daemon.report(Report::Settled { job: JobId(0), workers: 2 });
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(daemon.places(0), BTreeMap::from([(other.into(), 2)]));
    daemon.stop();
}
