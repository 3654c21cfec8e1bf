//! Ten equal jobs on 4, 8 and 16 devices: mean response and makespan that two other programs gave.

use std::sync::Arc;

use bellwether_core::prediction::StepModel;
use bellwether_sched::registry::Registry;
use bellwether_sim::trace::Entry;
use bellwether_sim::world::Scenario;

use super::common::{ByCount, cluster, completions_s, rigid, run};

/// Examples per second by devices, from one on.
const CURVE: [f64; 8] = [10.0, 20.0, 30.0, 38.0, 46.0, 49.0, 50.0, 50.0];
const ARRIVALS_S: [f64; 10] =
    [0.0, 10.398, 56.449, 93.109, 98.572, 107.551, 125.261, 128.651, 130.629, 160.539];

fn sample() -> impl StepModel {
    ByCount(|devices, _| CURVE.get(devices as usize - 1).copied())
}

fn entries(least: u32, most: u32) -> Vec<Entry> {
    let entry = |(index, arrival_s): (usize, &f64)| {
        let mut entry = rigid(index, *arrival_s, most, 3200.0);
        Arc::make_mut(&mut entry.job).min_devices = least;
        entry
    };
    ARRIVALS_S.iter().enumerate().map(entry).collect()
}

/// Mean response and makespan, in seconds.
fn result(policy: &str, devices: u32, least: u32, most: u32) -> (f64, f64) {
    let (_, mut policy) = Registry::built_in().parse(policy).expect("a policy");
    let recording =
        run(policy.as_mut(), &entries(least, most), &Scenario::new(cluster(1, devices)), &sample());
    let recording = recording.expect("no law is broken");
    let responses = completions_s(&recording);
    (responses.iter().sum::<f64>() / responses.len() as f64, recording.end_s)
}

fn check(policy: &str, least: u32, most: u32, expected: [(f64, f64); 3]) {
    for (devices, (response_s, makespan_s)) in [4, 8, 16].into_iter().zip(expected) {
        let (response, makespan) = result(policy, devices, least, most);
        assert!(
            (response - response_s).abs() <= 0.06 && (makespan - makespan_s).abs() <= 0.06,
            "{policy} on {devices}: {response:.2} and {makespan:.2} s instead of {response_s} and {makespan_s} s"
        );
    }
}

#[test]
fn first_come_first_served_on_one_device_each() {
    check("fifo", 1, 1, [(517.9, 970.4), (355.9, 650.4), (320.0, 480.5)]);
}

#[test]
fn first_come_first_served_on_four_devices_each() {
    check("fifo", 4, 4, [(372.0, 842.1), (166.7, 431.5), (99.0, 276.0)]);
}

#[test]
fn equal_shares() {
    check("equi", 1, 8, [(449.8, 801.5), (217.4, 409.0), (92.6, 257.9)]);
}

#[test]
fn weighted_shares_of_equal_weights_are_equal_shares() {
    check("fair", 1, 8, [(449.8, 801.5), (217.4, 409.0), (92.6, 257.9)]);
}

#[test]
fn shortest_remaining_as_fast_as_it_can() {
    check("srpt_greedy", 1, 8, [(372.0, 842.1), (212.8, 544.0), (99.2, 313.8)]);
}

#[test]
fn small_and_efficient_first() {
    check("hell", 1, 8, [(372.0, 842.1), (160.7, 437.8), (86.3, 281.6)]);
}

/// No reference gives these: what was found once, so that a change shows.
#[test]
fn knees_and_small_jobs_first() {
    check("knee", 1, 8, [(372.04, 842.11), (161.59, 441.63), (89.03, 286.73)]);
    check("hesrpt", 1, 8, [(441.70, 804.21), (188.15, 434.69), (91.55, 288.31)]);
}
