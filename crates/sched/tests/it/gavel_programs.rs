//! Gavel's programs: reference optima, and random instances against a general solver.

use bellwether_sched::program::shares::{self, Job, Shares};
use proptest::prelude::*;
use serde_json::Value;

use crate::library;

const SNAP20: &str = include_str!("../../../../data/reference-cases/gavel-lp-snap20.json");
const TYPES: [&str; 3] = ["v100", "p100", "k80"];

struct Case {
    jobs: Vec<Job>,
    devices: Vec<f64>,
    expected: Value,
}

fn snap20() -> Case {
    let cases: Value = serde_json::from_str(SNAP20).expect("it is JSON");
    let case = &cases[0];
    let job = |job: &Value| Job {
        speeds: TYPES
            .iter()
            .map(|name| job["throughput_steps_per_s"][name].as_f64().expect("a number"))
            .collect(),
        devices: job["scale_factor"].as_f64().expect("a number"),
        weight: 1.0,
        remaining: job["steps_remaining"].as_f64().expect("a number"),
        age_s: 0.0,
        isolated_s: 0.0,
    };
    Case {
        jobs: case["jobs"].as_array().expect("a list").iter().map(job).collect(),
        devices: TYPES.iter().map(|name| case["cluster"][name].as_f64().expect("a number")).collect(),
        expected: case["expected"].clone(),
    }
}

impl Case {
    fn expected(&self, program: &str, key: &str) -> f64 {
        self.expected[program][key].as_f64().expect("a number")
    }
}

/// No share is negative, no job has more than all of its time, no type gives more than it has.
fn assert_feasible(shares: &Shares, jobs: &[Job], devices: &[f64]) {
    for j in 0..jobs.len() {
        assert!(shares.of(j).iter().all(|&share| share >= 0.0), "{:?}", shares.of(j));
        assert!(shares.of(j).iter().sum::<f64>() <= 1.0 + 1e-12, "{:?}", shares.of(j));
    }
    for (k, &count) in devices.iter().enumerate() {
        let used: f64 = jobs.iter().enumerate().map(|(j, job)| job.devices * shares.of(j)[k]).sum();
        assert!(used <= count * (1.0 + 1e-12), "{used} of {count}");
    }
}

fn assert_near(ours: f64, theirs: f64, tolerance: f64) {
    assert!((ours - theirs).abs() <= tolerance * theirs.abs(), "{ours}, and not {theirs}");
}

/// Speed in terms of that with proportional shares.
fn normalised(shares: &Shares, jobs: &[Job], devices: &[f64]) -> Vec<f64> {
    let usual = shares::proportional(jobs, devices);
    let of_job = |(j, job): (usize, &Job)| {
        job.devices / job.weight * shares.speed(j, &job.speeds) / usual.speed(j, &job.speeds)
    };
    jobs.iter().enumerate().map(of_job).collect()
}

fn largest_rho(shares: &Shares, jobs: &[Job], devices: &[f64]) -> f64 {
    let alone = shares::isolated(jobs, devices);
    let rho = |(j, job): (usize, &Job)| {
        let due_s = job.isolated_s + job.remaining / alone.speed(j, &job.speeds);
        (job.age_s + job.remaining / shares.speed(j, &job.speeds)) / due_s
    };
    jobs.iter().enumerate().map(rho).fold(0.0, f64::max)
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

#[test]
fn max_min_is_that_of_the_reference() {
    let case = snap20();
    let shares = shares::max_min(&case.jobs, &case.devices);
    assert_feasible(&shares, &case.jobs, &case.devices);
    assert_near(shares.objective, case.expected("max_min_fairness_perf", "independent_lp"), 1e-9);
    assert_near(shares.objective, case.expected("max_min_fairness_perf", "min_normalised_share"), 1e-4);
    assert_near(least(&normalised(&shares, &case.jobs, &case.devices)), shares.objective, 1e-9);
}

#[test]
fn max_min_of_equal_types_is_that_of_the_reference() {
    let case = snap20();
    let shares = shares::max_min_agnostic(&case.jobs, &case.devices);
    assert_feasible(&shares, &case.jobs, &case.devices);
    assert_near(shares.objective, case.expected("max_min_fairness_agnostic", "independent_lp"), 1e-9);
}

#[test]
fn sum_is_that_of_the_reference() {
    let case = snap20();
    let shares = shares::max_sum(&case.jobs, &case.devices, &[1.0; 3]);
    assert_feasible(&shares, &case.jobs, &case.devices);
    assert_near(shares.objective, case.expected("max_sum_throughput_perf", "independent_lp"), 1e-9);
    let sum: f64 = case.jobs.iter().enumerate().map(|(j, job)| shares.speed(j, &job.speeds)).sum();
    assert_near(sum, shares.objective, 1e-9);
}

#[test]
fn finish_time_fairness_is_that_of_the_reference() {
    let case = snap20();
    let shares = shares::finish_time_fairness(&case.jobs, &case.devices);
    assert_feasible(&shares, &case.jobs, &case.devices);
    // The independent solver stopped its bisection at 1e-8 or so.
    assert_near(shares.objective, case.expected("finish_time_fairness_perf_at_t0", "independent_lp"), 1e-7);
    assert_near(largest_rho(&shares, &case.jobs, &case.devices), shares.objective, 1e-9);
}

#[test]
fn makespan_is_that_of_the_reference() {
    let case = snap20();
    let shares = shares::makespan(&case.jobs, &case.devices);
    assert_feasible(&shares, &case.jobs, &case.devices);
    assert_near(
        shares.objective,
        case.expected("min_total_duration_perf", "independent_lp_exact_makespan_s"),
        1e-9,
    );
    let end = |(j, job): (usize, &Job)| job.remaining / shares.speed(j, &job.speeds);
    assert_near(case.jobs.iter().enumerate().map(end).fold(0.0, f64::max), shares.objective, 1e-9);
}

/// A basic solution: few jobs do more than one thing.
#[test]
fn few_shares_are_mixed() {
    let case = snap20();
    for shares in [shares::max_min(&case.jobs, &case.devices), shares::makespan(&case.jobs, &case.devices)] {
        let used: usize =
            (0..case.jobs.len()).map(|j| shares.of(j).iter().filter(|&&share| share > 0.0).count()).sum();
        // A corner is at most two types.
        assert!(used <= 2 * (case.jobs.len() + case.devices.len()), "{used}");
    }
}

#[test]
fn nothing_and_the_impossible_have_no_shares() {
    let devices = [2.0, 0.0];
    assert_eq!(shares::max_min(&[], &devices).objective, 0.0);
    let job = |speeds: [f64; 2]| Job {
        speeds: speeds.to_vec(),
        devices: 1.0,
        weight: 1.0,
        remaining: 10.0,
        age_s: 5.0,
        isolated_s: 5.0,
    };
    // The second runs only on a type of which there is nothing.
    let jobs = [job([1.0, 1.0]), job([0.0, 1.0])];
    let sum = |jobs: &[Job], devices: &[f64]| shares::max_sum(jobs, devices, &[1.0, 1.0]);
    for program in
        [shares::max_min, shares::water_filling, shares::makespan, shares::finish_time_fairness, sum]
    {
        let shares = program(&jobs, &devices);
        assert_near(shares.of(0)[0], 1.0, 1e-9);
        assert_eq!(shares.of(1), [0.0, 0.0]);
        // And with no devices at all, no job has anything.
        let shares = program(&jobs, &[0.0, 0.0]);
        assert_eq!((shares.objective, shares.of(0), shares.of(1)), (0.0, &[0.0, 0.0][..], &[0.0, 0.0][..]));
    }
}

fn job(types: usize) -> impl Strategy<Value = Job> {
    let speed = prop_oneof![1 => Just(0.0), 3 => 0.1..1.0_f64, 6 => 1.0..30.0_f64];
    (
        prop::collection::vec(speed, types),
        0.5..20.0_f64,
        prop::sample::select(vec![1.0, 1.0, 2.0, 4.0, 8.0]),
        prop::sample::select(vec![1.0, 1.0, 1.0, 2.0, 0.5]),
        1.0..1e4_f64,
        prop_oneof![Just(0.0), 0.0..1e4_f64],
    )
        .prop_map(|(mut speeds, fastest, devices, weight, remaining, age_s)| {
            speeds[0] = fastest;
            Job { speeds, devices, weight, remaining, age_s, isolated_s: age_s * 0.3 }
        })
}

/// Jobs, half of them alike, and devices.
fn instance() -> impl Strategy<Value = (Vec<Job>, Vec<f64>)> {
    (1..5_usize).prop_flat_map(|types| {
        let jobs = (prop::collection::vec(job(types), 1..15), prop::collection::vec(0..4_usize, 0..15));
        let jobs = jobs.prop_map(|(mut jobs, copies)| {
            let copies: Vec<Job> = copies.iter().map(|&place| jobs[place % jobs.len()].clone()).collect();
            jobs.extend(copies);
            jobs
        });
        (jobs, prop::collection::vec((1..20_u32).prop_map(f64::from), types))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn linear_programs_have_the_optimum_of_the_library((jobs, devices) in instance()) {
        let shares = shares::max_min(&jobs, &devices);
        assert_feasible(&shares, &jobs, &devices);
        assert_near(shares.objective, library::max_min(&jobs, &devices), 1e-6);
        prop_assert!(least(&normalised(&shares, &jobs, &devices)) >= shares.objective * (1.0 - 1e-9));
        let again = shares::max_min(&jobs, &devices);
        prop_assert_eq!(&shares, &again);

        let filled = shares::water_filling(&jobs, &devices);
        assert_feasible(&filled, &jobs, &devices);
        assert_near(filled.objective, shares.objective, 1e-9);
        prop_assert!(least(&normalised(&filled, &jobs, &devices)) >= shares.objective * (1.0 - 1e-8));

        let sum = shares::max_sum(&jobs, &devices, &vec![1.0; devices.len()]);
        assert_feasible(&sum, &jobs, &devices);
        assert_near(sum.objective, library::max_sum(&jobs, &devices), 1e-6);

        let shares = shares::makespan(&jobs, &devices);
        assert_feasible(&shares, &jobs, &devices);
        let rate = library::level(&jobs, &devices, |job, k| job.speeds[k] / job.remaining * 1e3);
        assert_near(1e3 / shares.objective, rate, 1e-6);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) })]

    /// No job can have more without a poorer one, or one as poor, having less.
    #[test]
    fn water_filling_leaves_nothing_to_the_poor((jobs, devices) in instance()) {
        let filled = shares::water_filling(&jobs, &devices);
        let levels = normalised(&filled, &jobs, &devices);
        for (job, level) in levels.iter().enumerate() {
            // What rows are off by (1e-10) is worth more to others, by the ratio of speeds, and adds up over jobs.
            assert_near(*level, library::most_beside(&jobs, &devices, &levels, job), 1e-3);
        }
    }

    #[test]
    fn finish_time_fairness_has_the_optimum_of_the_library((jobs, devices) in instance()) {
        let shares = shares::finish_time_fairness(&jobs, &devices);
        assert_feasible(&shares, &jobs, &devices);
        assert_near(largest_rho(&shares, &jobs, &devices), shares.objective, 1e-8);
        assert_near(library::slack_at(shares.objective, &jobs, &devices), 1.0, 1e-6);
    }
}
