//! How fast rigid policies run in the simulated cluster: CPU seconds of whole simulations, beside the peers'.
//!
//! `cargo run --release -p bellwether-sim --example scheduler_speed [CASE…]`, with the first letters of cases to run
//!
//! Traces come from our generator with seed 1: Poisson arrivals at load 0.9; widths 1, 2, 4, 8, 16 and 32 devices with
//! shares 50, 15, 15, 12, 5 and 3 of 100; durations log-normal with mean 3,600 s and variation 2. Cases named `itp` are
//! the clusters of `data/itp-traces`; jobs that are wider than the cluster are refused.
//!
//! Seconds are those of one thread's CPU time, where the system tells it (Linux): policy, cluster and recording,
//! without drawing or reading the trace. Memory is the largest that the process had during the case, the trace
//! included. An event is a moment at which the policy was asked; `load` is that of the trace as it was drawn. The
//! peer's seconds were measured on another machine with two cores, 2026-11.

#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Instant;

use bellwether_core::cluster::ClusterView;
use bellwether_core::policy::{Decision, Policy, PolicyInput};
use bellwether_model::speedup::{Law as SpeedLaw, Speedup};
use bellwether_sched::drive::drive;
use bellwether_sched::registry::Registry;
use bellwether_sim::cluster::Cluster;
use bellwether_sim::trace::{Entry, ReadOptions, read};
use bellwether_sim::workload::{Amount, Arrivals, Class, Law, Workload, generate};
use bellwether_sim::world::{Scenario, World};

const SEED: u64 = 1;
const LOAD: f64 = 0.9;
const WIDTHS: [(u32, f64); 6] = [(1, 50.0), (2, 15.0), (4, 15.0), (8, 12.0), (16, 5.0), (32, 3.0)];
const DURATION_S: f64 = 3600.0;
const VARIATION: f64 = 2.0;
/// Short simulations are repeated for so long: the system counts CPU time in ticks of some milliseconds.
const LEAST_S: f64 = 0.2;

/// A simulation: name, cluster, jobs (none: the ITP cluster of that name), and policies with the seconds of a peer.
type Case =
    (&'static str, &'static str, Option<u32>, &'static [(&'static str, Option<f64>)], Option<&'static str>);

const CASES: &[Case] = &[
    ("small", "64x8", Some(4_800), &[("srtf", Some(22.8))], Some("0.1 s")),
    ("tiny", "8x8", Some(4_800), &[("fifo", Some(9.5)), ("las2d", Some(6.7))], None),
    ("itp01", "16x8", None, &[("fifo", None), ("las2d", None)], Some("1 s")),
    ("itp04", "96x8", None, &[("fifo", None), ("las2d", None), ("gittins2d", None)], Some("1 s")),
    ("itp07", "64x8", None, &[("fifo", None), ("las2d", None)], Some("1 s")),
    ("itp10", "2x8", None, &[("fifo", None), ("las2d", None)], Some("1 s")),
    ("crowded", "8x8", Some(125_000), ALL, None),
    ("growth125", "1250x8", Some(125_000), ALL, None),
    ("growth250", "1250x8", Some(250_000), ALL, None),
    ("growth500", "1250x8", Some(500_000), ALL, None),
    ("million", "1250x8", Some(1_000_000), ALL, Some("10 s for fifo and srtf, 2 GiB")),
];

const ALL: &[(&str, Option<f64>)] =
    &[("fifo", None), ("fifo_skip", None), ("srtf", None), ("srsf", None), ("las", None), ("las2d", None)];

/// Counts how often the policy is asked.
struct Counted {
    policy: Box<dyn Policy + Send>,
    events: u64,
}

impl Policy for Counted {
    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        self.events += 1;
        self.policy.decide(input)
    }
}

fn draw(jobs: u32, gpus: u32) -> Vec<Entry> {
    let class = |(gpus, share)| {
        let duration = Law::Lognormal { mean: Amount(DURATION_S), variation: VARIATION };
        Class { share, gpus, duration: Some(duration), ..Class::default() }
    };
    let workload = Workload {
        jobs: Some(jobs),
        horizon: None,
        load: Some(LOAD),
        gpus: Some(gpus),
        arrivals: Arrivals::Poisson { per_hour: None },
        classes: WIDTHS.into_iter().map(class).collect(),
    };
    generate(&workload, SEED, &[]).expect("the workload makes sense").entries
}

fn of_itp(name: &str) -> Option<Vec<Entry>> {
    let file = format!("../../data/itp-traces/cluster{}.csv", name.trim_start_matches("itp"));
    let bytes = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).ok()?;
    Some(read(&bytes, None, &ReadOptions::default()).expect("the file is a trace").entries)
}

/// Device-seconds that arrive, over those that the cluster has until the last arrival.
fn load(entries: &[Entry], devices: u32) -> f64 {
    let work: f64 = entries.iter().map(|entry| entry.work * f64::from(entry.job.asked())).sum();
    let arrival_s = |entry: Option<&Entry>| entry.map_or(0.0, |entry| entry.job.arrival_s);
    work / (arrival_s(entries.last()) - arrival_s(entries.first())) / f64::from(devices)
}

/// CPU seconds of this thread, or else seconds since `start`.
fn cpu_s(start: Instant) -> f64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = text.and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    nanoseconds.map_or_else(|| start.elapsed().as_secs_f64(), |nanoseconds| nanoseconds * 1e-9)
}

/// The largest memory of the process in MiB since it was last forgotten.
fn peak_mebibytes() -> Option<f64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<f64>().ok()? / 1024.0)
}

fn forget_peak() {
    // Where this is not allowed, the peak is that of all cases so far.
    let _ = fs::write("/proc/self/clear_refs", "5");
}

fn measure(case: &Case, name: &str, peer_s: Option<f64>, entries: &[Entry], cluster: &ClusterView) {
    let model = Speedup::new(SpeedLaw::Linear, BTreeMap::new()).expect("no speed is wrong");
    let scenario = Scenario::new(cluster.clone());
    let start = Instant::now();
    let (begin_s, mut runs) = (cpu_s(start), 0);
    let (recording, events, took_s) = loop {
        let (_, policy) = Registry::built_in().parse(name).expect("the catalogue names it");
        let mut counted = Counted { policy, events: 0 };
        let mut world = World::new(entries, &model, &scenario);
        drive(&mut counted, &mut world, &model).expect("no law is broken");
        let recording = world.into_recording();
        runs += 1;
        let took_s = cpu_s(start) - begin_s;
        if took_s >= LEAST_S {
            break (recording, counted.events, took_s / f64::from(runs));
        }
    };
    let ended: Vec<f64> =
        recording.jobs.iter().filter_map(|job| Some(job.end_s? - job.job.as_ref()?.arrival_s)).collect();
    let refused = recording.jobs.iter().filter(|job| job.refused.is_some()).count();
    assert_eq!(ended.len() + refused, entries.len(), "every job ends or is refused");
    let mean_h = ended.iter().sum::<f64>() / ended.len() as f64 / 3600.0;
    let peak = peak_mebibytes().map_or_else(|| "?".to_owned(), |peak| format!("{peak:.0}"));
    let peer = peer_s.map_or_else(|| "-".to_owned(), |peer_s| format!("{peer_s}"));
    println!(
        "{:<10} {:<7} {name:<10} {:>9} {:>5.2} {refused:>7} {:>9} {took_s:>8.3} {:>7.2} {peak:>6} {mean_h:>8.2} {peer:>6}  {}",
        case.0,
        case.1,
        entries.len(),
        load(entries, cluster.devices(None)),
        events,
        took_s * 1e6 / events as f64,
        case.4.unwrap_or("-"),
    );
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    println!(
        "seed {SEED}, load {LOAD}, widths and shares {WIDTHS:?}, durations {DURATION_S} s x {VARIATION}"
    );
    println!(
        "{:<10} {:<7} {:<10} {:>9} {:>5} {:>7} {:>9} {:>8} {:>7} {:>6} {:>8} {:>6}  bar",
        "case",
        "cluster",
        "policy",
        "jobs",
        "load",
        "refused",
        "events",
        "CPU s",
        "us/ev",
        "MiB",
        "mean h",
        "peer s",
    );
    let is_wanted = |case: &&Case| wanted.is_empty() || wanted.iter().any(|name| case.0.starts_with(name));
    for case in CASES.iter().filter(is_wanted) {
        let cluster = Cluster::from_words(case.1).expect("the words name a cluster");
        let entries = match case.2 {
            Some(jobs) => draw(jobs, cluster.devices()),
            None => match of_itp(case.0) {
                Some(entries) => entries,
                None => continue,
            },
        };
        for &(name, peer_s) in case.3 {
            forget_peak();
            measure(case, name, peer_s, &entries, &cluster.view);
        }
    }
}
