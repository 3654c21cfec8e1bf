//! Jobs that share links in the simulated cluster: times by hand, and the laws under any policy.

use std::sync::Arc;

use bellwether_core::cluster::{Allocation, ClusterView, Job, JobId, Node, NodeId, Share};
use bellwether_core::policy::{Action, Decision, Policy, PolicyInput, Reason, Rule};
use bellwether_core::prediction::{
    Bottleneck, Configuration, JobDescription, Link, PredictError, Prediction, StepModel, Validity,
};
use bellwether_model::shared_links::{Exchange, Flow, kept};
use bellwether_sched::drive::drive;
use bellwether_sched::registry::Registry;
use bellwether_sim::trace::Entry;
use bellwether_sim::world::{Failures, Outage, Recording, Scenario, World};

/// A sample per second and device alone; over several nodes this part of a step waits for the link of 1 byte/s.
struct Exchanging(f64);

impl StepModel for Exchanging {
    fn predict(&self, _: &JobDescription, on: &Configuration) -> Result<Prediction, PredictError> {
        let part = if on.nodes() > 1 { self.0 } else { 0.0 };
        let step_s = 1.0 - part + part / on.link.bandwidth_bytes_per_s;
        let rate = f64::from(on.workers()) / step_s;
        let (bottleneck, validity) = (Bottleneck::Link, Validity::Interpolated);
        Ok(Prediction { examples_per_s: rate, low: rate, high: rate, step_s, bottleneck, validity })
    }
}

fn job(row: usize, arrival_s: f64, (min_devices, max_devices): (u32, u32), work: f64) -> Entry {
    let description =
        JobDescription { name: row.to_string(), model: "m".into(), batch: 64, devices: min_devices };
    let job = Job { max_devices, ..Job::rigid(description, arrival_s) };
    Entry { job: Arc::new(job), work, is_duration: false, row }
}

fn scenario(nodes: usize, devices: u32, shared_links: bool) -> Scenario {
    let node = Node { device_type: 0, devices, free: devices, up: true };
    let mut scenario = Scenario::new(ClusterView {
        device_types: vec!["gpu".into()],
        nodes: vec![node; nodes],
        link: Some(Link { bandwidth_bytes_per_s: 1.0, latency_s: 0.0 }),
        ..ClusterView::default()
    });
    (scenario.shared_links, scenario.audit) = (shared_links, true);
    scenario
}

/// Puts each job on these nodes, a device each, when it arrives, and again when it has lost them.
struct Placing(&'static [&'static [u32]]);

impl Policy for Placing {
    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        let waits = input.view.jobs.iter().filter(|(_, seen)| !seen.is_running()).map(|(id, _)| *id);
        let place = |job: JobId| {
            let share = |node: &u32| Share { node: NodeId(*node), devices: 1 };
            let allocation = Allocation::new(self.0[job.0 as usize].iter().map(share).collect());
            let is_up = allocation.shares().iter().all(|share| input.view.nodes[share.node.0 as usize].up);
            let (batch, expected, beside, way) = (None, None, None, None);
            is_up.then_some(Action::Allocate { job, allocation, batch, expected, beside, way })
        };
        let reason =
            Reason { rule: Rule::Custom, started: 0, stopped: 0, resized: 0, waiting: 0, reclaimed: 0 };
        Decision { actions: waits.filter_map(place).collect(), reason, next_wakeup_s: None }
    }
}

fn ends_s(recording: &Recording) -> Vec<f64> {
    recording.jobs.iter().map(|job| (job.end_s.expect("it ends") * 1e6).round() / 1e6).collect()
}

/// Ends of jobs of these arrivals and works on these nodes.
fn placed(
    truth: &Exchanging,
    nodes: &'static [&'static [u32]],
    jobs: &[(f64, f64)],
    scenario: &Scenario,
) -> Recording {
    let entries: Vec<Entry> = jobs
        .iter()
        .zip(nodes)
        .enumerate()
        .map(|(row, ((arrival_s, seconds), nodes))| {
            let count = nodes.len() as u32;
            job(row, *arrival_s, (count, count), seconds * f64::from(count))
        })
        .collect();
    let mut world = World::new(&entries, truth, scenario);
    drive(&mut Placing(nodes), &mut world, truth).expect("no law is broken");
    world.into_recording()
}

#[test]
fn a_shared_link_slows_down_for_as_long_as_it_is_shared() {
    let jobs = [(0.0, 100.0), (40.0, 30.0)];
    let of = |part: f64, nodes, shared| placed(&Exchanging(part), nodes, &jobs, &scenario(4, 2, shared));
    let in_common: &[&[u32]] = &[&[0, 1], &[1, 2]];
    assert_eq!(ends_s(&of(1.0, in_common, false)), [100.0, 70.0]);
    // Together at half of the speed from 40 s to 100 s; then the first has 30 s left.
    let shared = of(1.0, in_common, true);
    assert_eq!(ends_s(&shared), [130.0, 100.0]);
    assert!(shared.jobs.iter().all(|job| job.restarts + job.preemptions == 0));
    assert_eq!(shared.jobs.iter().map(|job| job.device_s).collect::<Vec<_>>(), [260.0, 120.0]);
    // Half of a step is exchange: 1.25 of the time (mean-value analysis). 37.5 s together, in which 30 s are done.
    assert_eq!(ends_s(&of(0.5, in_common, true)), [107.5, 77.5]);
    const DISJOINT: &[&[u32]] = &[&[0, 1], &[2, 3]];
    const WITHIN: &[&[u32]] = &[&[0, 1], &[1]];
    for alone in [DISJOINT, WITHIN] {
        assert_eq!(of(1.0, alone, true), of(1.0, alone, false), "{alone:?}");
        assert_eq!(ends_s(&of(1.0, alone, true)), [100.0, 70.0]);
    }
    // By a truth that knows no exchange no job is slower.
    assert_eq!(of(0.0, in_common, true).jobs, of(0.0, in_common, false).jobs);
}

/// The third job is connected with the first through the second, and comes when that one has left.
#[test]
fn only_those_that_are_there_count() {
    let nodes: &[&[u32]] = &[&[0, 1], &[1, 2], &[2, 3]];
    let jobs = [(0.0, 100.0), (0.0, 30.0), (20.0, 100.0)];
    let shared = placed(&Exchanging(1.0), nodes, &jobs, &scenario(4, 2, true));
    // The second at half until 60 s, the others at half meanwhile.
    assert_eq!(ends_s(&shared), [130.0, 60.0, 140.0]);
    // The first is slower for the third, which slows down the second: until it ends nothing else changes.
    let exchange = Exchange::in_turn(0.5);
    let flows: Vec<Flow<'_>> =
        nodes.iter().map(|nodes| Flow { links: nodes.to_vec(), exchange: &exchange }).collect();
    let (two, three) = (kept(&flows[..2])[0], kept(&flows)[0]);
    let jobs = [(0.0, 100.0), (0.0, 100.0), (20.0, 200.0)];
    let shared = placed(&Exchanging(0.5), nodes, &jobs, &scenario(4, 2, true));
    let end_s = 20.0 + (100.0 - 20.0 * two) / three;
    assert!((ends_s(&shared)[0] - end_s).abs() < 1e-3 && three < two - 0.005, "{two} {three} {end_s}");
}

#[test]
fn checkpoints_count_from_the_start_and_not_from_the_last_change_of_speed() {
    let mut scenario = scenario(3, 2, true);
    scenario.checkpoint_s = Some(30.0);
    let life = Outage::Failures(Failures { mean_up_s: 1e15, longest_up_s: Some(95.0), mean_down_s: 1e-9 });
    scenario.outages = vec![Some(life), None, None];
    let recording = placed(&Exchanging(1.0), &[&[0, 1], &[1, 2]], &[(0.0, 80.0), (40.0, 100.0)], &scenario);
    // At 95 s 40 + 27.5 s are done, 5 s after a checkpoint: 2.5 s are lost, and 15 s are left, at half of the speed.
    assert_eq!(ends_s(&recording)[0], 125.0);
}

#[test]
fn every_policy_ends_all_jobs_and_no_job_is_faster_for_sharing_alone() {
    let entries: Vec<Entry> = (0..60)
        .map(|row| {
            let (least, most) = [(1, 1), (2, 6), (3, 3), (5, 5), (1, 8)][row % 5];
            job(row, 35.0 * row as f64, (least, most), 120.0 * f64::from(1 + row as u32 % 7))
        })
        .collect();
    for name in ["fifo", "easy", "srtf", "las", "equi", "hell", "optimus", "pollux", "afs", "sia", "gandiva"]
    {
        let run = |part: f64, shared: bool| {
            let (_, mut policy) = Registry::built_in().parse(name).expect("it is there");
            let (truth, scenario) = (Exchanging(part), scenario(6, 4, shared));
            let mut world = World::new(&entries, &truth, &scenario);
            drive(policy.as_mut(), &mut world, &truth).expect("no law is broken");
            let recording = world.into_recording();
            let ends: f64 = ends_s(&recording).iter().sum();
            (recording, ends / entries.len() as f64)
        };
        let ((alone, alone_s), (shared, shared_s)) = (run(0.6, false), run(0.6, true));
        println!("{name}: {:.1} s later on average", shared_s - alone_s);
        // Pollux and policies that place as it does leave at most one job that spans nodes on a node.
        let avoids = ["pollux"].contains(&name);
        assert!((alone.jobs == shared.jobs) == avoids, "{name}: {alone_s} s, {shared_s} s with shared links");
        assert!(shared_s > alone_s || avoids, "{name}: {alone_s} s, {shared_s} s with shared links");
        assert!(shared == run(0.6, true).0, "{name}: twice the same");
        assert!(run(0.0, true).0.jobs == run(0.0, false).0.jobs, "{name}: nothing is exchanged");
    }
}
