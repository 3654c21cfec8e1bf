//! 120 jobs of Gavel's generator on 36 devices of three types, against what the published simulator gave.

use bellwether_core::cluster::{ClusterView, Node};
use bellwether_model::throughput_table::GavelTable;
use bellwether_sched::drive::drive;
use bellwether_sched::registry::Registry;
use bellwether_sim::trace::{ReadOptions, Trace, read};
use bellwether_sim::world::{Recording, Scenario, World};

const TRACE: &[u8] = include_bytes!("../../../../data/gavel/g120.trace.tsv");
const TABLE: &[u8] = include_bytes!("../../../../data/gavel/simulation_throughputs.json");

/// 12 V100, 12 P100 and 12 K80 in nodes of `devices`.
fn cluster(devices: u32) -> ClusterView {
    let nodes = (0..3).flat_map(|device_type| {
        let node = Node { device_type, devices, free: devices, up: true };
        vec![node; 12 / devices as usize]
    });
    ClusterView {
        device_types: ["v100", "p100", "k80"].map(str::to_owned).to_vec(),
        nodes: nodes.collect(),
        ..ClusterView::default()
    }
}

fn simulate(name: &str) -> (Trace, Recording) {
    let cluster = cluster(4);
    let options = ReadOptions { device_types: &cluster.device_types, ..ReadOptions::default() };
    let trace = read(TRACE, None, &options).expect("it is a trace");
    let table = GavelTable::parse(TABLE, "table").expect("it is a table");
    let scenario = Scenario::new(cluster.clone());
    let (_, mut policy) = Registry::built_in().parse(name).expect("it is there");
    let mut world = World::new(&trace.entries, &table, &scenario);
    drive(policy.as_mut(), &mut world, &table).expect("no law is broken");
    let recording = world.into_recording();
    (trace, recording)
}

/// Mean completion time and makespan, in seconds.
fn figures(name: &str) -> (f64, f64) {
    let (trace, recording) = simulate(name);
    assert_eq!((trace.entries.len(), recording.jobs.len()), (120, 120));
    let end_s = |place: usize| recording.jobs[place].end_s.expect("no job is dropped");
    let sum_s: f64 = (0..120).map(|place| end_s(place) - trace.entries[place].job.arrival_s).sum();
    (sum_s / 120.0, (0..120).map(end_s).fold(0.0, f64::max) - trace.entries[0].job.arrival_s)
}

#[test]
fn max_min_is_near_the_published_simulator() {
    let (mean_s, makespan_s) = figures("gavel_max_min");
    assert!((mean_s / 15_678.0 - 1.0).abs() <= 0.05, "mean completion time {mean_s} s");
    assert!((makespan_s / 52_919.0 - 1.0).abs() <= 0.05, "makespan {makespan_s} s");
}

/// No job is dropped, whatever the objective, and each is better than order of arrival at what it is about.
#[test]
fn each_objective_serves_its_end() {
    let (fifo_s, fifo_makespan_s) = figures("fifo_skip");
    let (mean_s, makespan_s) = figures("gavel_makespan");
    let others = ["gavel_max_min:realloc=0", "gavel_ftf", "gavel_sum"].map(figures);
    for (other_s, other_makespan_s) in others {
        assert!(other_s < fifo_s && other_makespan_s < fifo_makespan_s, "{other_s} s, {other_makespan_s} s");
        assert!(makespan_s < other_makespan_s && mean_s > other_s, "{makespan_s} s, {other_makespan_s} s");
    }
}

/// What is chosen by an interval of its own, and with configurations that the table knows.
#[test]
fn sia_ends_all_jobs() {
    let (mean_s, makespan_s) = figures("sia");
    let (fifo_s, fifo_makespan_s) = figures("fifo_skip");
    assert!(mean_s < fifo_s && makespan_s < fifo_makespan_s, "{mean_s} s, {makespan_s} s");
}
