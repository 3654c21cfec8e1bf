//! Elastic weighted fair sharing against strict priority, in the manner of VirtualFlow's experiments.

use std::sync::Arc;

use bellwether_core::prediction::StepModel;
use bellwether_des::Streams;
use bellwether_sched::registry::Registry;
use bellwether_sim::trace::Entry;
use bellwether_sim::world::{Recording, Scenario};

use super::common::{cluster, completions_s, elastic, power, run};

fn weighted(row: usize, arrival_s: f64, demand: u32, seconds: f64, weight: f64) -> Entry {
    let mut entry = elastic(row, arrival_s, demand, seconds);
    Arc::make_mut(&mut entry.job).weight = weight;
    entry
}

fn simulate(name: &str, entries: &[Entry], devices: u32, restart_s: f64, model: &dyn StepModel) -> Recording {
    let (_, mut policy) = Registry::built_in().parse(name).expect("a policy");
    let mut view = cluster(1, devices);
    view.restart_s = restart_s;
    run(policy.as_mut(), entries, &Scenario::new(view), model).expect("no law is broken")
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() - 1) / 2]
}

/// 20 jobs, 12 an hour, demands of 1, 2, 4 or 8 devices, weights of 1, 5 or 10, and durations on the demand whose
/// logarithm is uniform from 200 to `longest_s` seconds.
fn entries(seed: u64, longest_s: f64) -> Vec<Entry> {
    let streams = Streams::new(seed);
    let mut stream = streams.stream("trace of 20 jobs", 0);
    let mut time_s = 0.0;
    let one = |row: usize| {
        time_s += stream.exponential(300.0);
        let (demand, weight) = (*stream.choice(&[1, 2, 4, 8]), *stream.choice(&[1.0, 5.0, 10.0]));
        let seconds = 200.0 * (longest_s / 200.0).powf(stream.uniform());
        weighted(row, time_s, demand, seconds, weight)
    };
    (0..20).map(one).collect()
}

/// Medians over 100 traces of the relative changes of makespan and of median completion time, and of how many traces
/// each of the two got shorter.
fn changes(model: &dyn StepModel, longest_s: f64) -> (f64, f64, usize, usize) {
    let change = |seed: u64| {
        let entries = entries(seed, longest_s);
        let [before, after] = ["priority", "wfs"].map(|name| simulate(name, &entries, 8, 1.0, model));
        let makespan = after.end_s / before.end_s - 1.0;
        (makespan, median(completions_s(&after)) / median(completions_s(&before)) - 1.0)
    };
    let (makespans, completions): (Vec<f64>, Vec<f64>) = (0..100).map(change).unzip();
    let shorter = |changes: &[f64]| changes.iter().filter(|&&change| change < 0.0).count();
    let (a, b) = (shorter(&makespans), shorter(&completions));
    (median(makespans), median(completions), a, b)
}

#[test]
fn makespan_and_median_completion_improve() {
    for exponent in [1.0, 0.8, 0.5] {
        for longest_s in [1000.0, 2000.0, 4000.0] {
            let (makespan, completion, a, b) = changes(&power(exponent), longest_s);
            println!(
                "k^{exponent}, up to {longest_s} s: makespan {:+.1} % ({a} of 100 shorter), median completion {:+.1} % ({b})",
                makespan * 100.0,
                completion * 100.0
            );
            assert!(makespan < 0.0 && completion < 0.0);
        }
    }
}

/// A light job on all devices, a medium one on half of them, and a heavy one that needs all: arrivals and durations
/// after the three-job trace of VirtualFlow, whose demands are a guess.
#[test]
fn three_jobs_change_as_in_the_paper() {
    let entries = [
        weighted(0, 0.0, 4, 945.4, 1.0),
        weighted(1, 100.0, 2, 1870.9, 5.0),
        weighted(2, 1019.1, 4, 4265.6, 10.0),
    ];
    for exponent in [1.0, 0.8, 0.5] {
        let [before, after] =
            ["priority", "wfs"].map(|name| simulate(name, &entries, 4, 1.0, &power(exponent)));
        let (old, new) = (completions_s(&before), completions_s(&after));
        println!(
            "k^{exponent}: makespan {:.0} to {:.0} s, completions {old:.0?} to {new:.0?}",
            before.end_s, after.end_s
        );
        assert!(after.end_s < before.end_s && new[2] < old[2] && new[0] > old[0]);
    }
}

/// A light job comes in only where no heavier one would lose devices; a heavy one takes them from lighter ones.
#[test]
fn no_job_loses_devices_to_a_lighter_one() {
    let ends = |first: f64, second: f64| {
        let entries = [weighted(0, 0.0, 8, 100.0, first), weighted(1, 10.0, 8, 50.0, second)];
        let recording = simulate("wfs", &entries, 8, 0.0, &power(1.0));
        (recording.jobs[0].end_s, recording.jobs[1].start_s, recording.jobs[1].end_s)
    };
    assert_eq!(ends(10.0, 1.0), (Some(100.0), Some(100.0), Some(150.0)));
    // Both get four of eight: the second ends after 100 s, and the first does its last 40 s of work alone.
    assert_eq!(ends(1.0, 10.0), (Some(150.0), Some(10.0), Some(110.0)));
}
