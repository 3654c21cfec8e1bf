//! Laws of elastic policies beyond those of all: speeds with holes and falls, shares by weight, and the fluid optimum.

use std::sync::Arc;

use bellwether_core::cluster::Node;
use bellwether_core::policy::{Changes, Decision, Policy, PolicyInput};
use bellwether_sched::registry::Registry;
use bellwether_sim::trace::Entry;
use bellwether_sim::world::{Failures, Knowledge, Outage, Recording, Scenario};
use proptest::prelude::*;

use super::common::{ByCount, cluster, completions_s, elastic, power, rigid, run};

const POLICIES: [&str; 11] = [
    "srpt_greedy",
    "equi",
    "fair",
    "hell",
    "knee",
    "hesrpt",
    "wfs",
    "priority",
    "edf",
    "elasticflow",
    "elasticflow:refuse=1",
];

/// Makes a new policy for every decision, and tells it of all that is there as if it had just come.
pub(crate) struct Forgetful(pub(crate) &'static str);

impl Policy for Forgetful {
    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        let (_, mut policy) = Registry::built_in().parse(self.0).expect("a policy");
        let arrived = input.view.jobs.keys().copied().collect();
        policy.decide(&PolicyInput { changes: &Changes { arrived, ..Changes::default() }, ..*input })
    }
}

fn mean_s(recording: &Recording) -> f64 {
    let completions = completions_s(recording);
    completions.iter().sum::<f64>() / completions.len() as f64
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) })]

    /// A model that speaks of some numbers of devices only, and falls beyond its peak; and memory changes nothing.
    #[test]
    fn no_job_runs_where_the_model_is_silent(
        jobs in proptest::collection::vec((0_u32..30, 0_u32..4, 1_u32..50, any::<bool>()), 1..20),
        speaks in proptest::collection::vec(any::<bool>(), 16),
        peak in 1_u32..10,
        knowledge in 0_usize..3,
        fails in any::<bool>(),
    ) {
        let rate = |devices: u32, asked: u32| {
            let spoken = devices == asked || speaks.get(devices as usize).is_some_and(|&speaks| speaks);
            let speed = f64::from(devices.min(peak)) - 0.05 * f64::from(devices.saturating_sub(peak));
            spoken.then_some(speed)
        };
        let mut time_s = 0.0;
        let one = |(row, (gap, width, length, is_rigid)): (usize, (u32, u32, u32, bool))| {
            time_s += f64::from(gap.saturating_sub(10));
            let work = f64::from(length) * 9.0;
            let mut entry = rigid(row, time_s, 1 << width, work);
            let job = Arc::make_mut(&mut entry.job);
            job.deadline_s = (row % 2 == 0).then_some(time_s + work);
            if !is_rigid {
                (job.min_devices, job.max_devices) = (1, 12);
            }
            entry
        };
        let entries: Vec<Entry> = jobs.into_iter().enumerate().map(one).collect();
        let mut view = cluster(1, 9);
        view.device_types.push("other".into());
        view.nodes.push(Node { device_type: 1, devices: 4, free: 4, up: true });
        view.restart_s = 3.0;
        let mut scenario = Scenario::new(view);
        scenario.outages = vec![fails.then_some(Outage::Failures(Failures { mean_up_s: 200.0, longest_up_s: None, mean_down_s: 30.0 })); 2];
        scenario.keep_spans = true;
        scenario.knowledge = [Knowledge::Exact, Knowledge::Estimated(1.0), Knowledge::Unknown][knowledge];
        for name in POLICIES {
            let (_, mut policy) = Registry::built_in().parse(name).expect("a policy");
            let recording = run(policy.as_mut(), &entries, &scenario, &ByCount(rate));
            prop_assert!(recording.is_ok(), "{}: {:?}", name, recording.err());
            let recording = recording.expect("it was good just now");
            if !name.starts_with("elasticflow") {
                // Its promises are what it remembers; all others remember only what they would see again.
                let twin = run(&mut Forgetful(name), &entries, &scenario, &ByCount(rate));
                prop_assert_eq!(&recording, &twin.expect("no law is broken"), "{}", name);
            }
            let settled = recording.jobs.iter().all(|job| job.end_s.is_some() || job.refused.is_some());
            prop_assert!(settled, "{}: a job never ends", name);
        }
    }
}

/// Three jobs of weights 1, 2 and 5 on 16 devices hold 2, 4 and 10.
/// Five devices are slower than four, and eight twice as fast.
#[test]
fn a_dip_of_the_speed_is_no_end() {
    let rates = [10.0, 20.0, 30.0, 40.0, 35.0, 60.0, 70.0, 80.0];
    let model = ByCount(|devices, _| rates.get(devices as usize - 1).copied());
    for (policy, devices, expected_s) in [
        ("optimus", 8, 125.0),
        ("afs", 8, 125.0),
        ("knee", 8, 125.0),
        ("optimus", 7, 10e3 / 70.0),
        ("afs", 5, 250.0),
    ] {
        let mut entry = elastic(0, 0.0, 8, 10e3);
        Arc::make_mut(&mut entry.job).max_devices = devices;
        let (_, mut decides) = Registry::built_in().parse(policy).expect("a policy");
        let recording =
            run(&mut *decides, &[entry], &Scenario::new(cluster(1, devices)), &model).expect("it ends");
        assert_eq!(completions_s(&recording), [expected_s], "{policy} on {devices}");
    }
}

/// The second job starts with the first decision after the device is idle.
#[test]
fn a_restart_that_costs_much_is_no_reason_to_wait() {
    let mut scenario = Scenario::new(cluster(1, 1));
    scenario.cluster.restart_s = 600.0;
    let entries = [rigid(0, 0.0, 1, 700.0), rigid(1, 0.0, 1, 100.0)];
    let (_, mut sia) = Registry::built_in().parse("sia").expect("a policy");
    let recording = run(&mut *sia, &entries, &scenario, &power(1.0)).expect("they end");
    // It decides every minute.
    assert_eq!(completions_s(&recording), [700.0, 820.0]);
}

#[test]
fn fair_shares_are_proportional() {
    let weighted = |row: usize, weight: f64| {
        let mut entry = elastic(row, 0.0, 16, 100.0);
        Arc::make_mut(&mut entry.job).weight = weight;
        entry
    };
    let entries = [weighted(0, 1.0), weighted(1, 2.0), weighted(2, 5.0)];
    let mut scenario = Scenario::new(cluster(2, 8));
    scenario.keep_spans = true;
    let (_, mut policy) = Registry::built_in().parse("fair").expect("a policy");
    let recording = run(policy.as_mut(), &entries, &scenario, &power(1.0)).expect("no law is broken");
    let at_first = recording.spans.iter().filter(|span| span.start_s == 0.0);
    let mut held = [0; 3];
    at_first.for_each(|span| held[span.job.0 as usize] += span.devices);
    assert_eq!(held, [2, 4, 10]);
}

/// Jobs that are all there from the start, on enough devices that rounding hardly matters: the mean is that of the
/// theory, where shares are real numbers, and no other policy's is less.
#[test]
fn hesrpt_is_the_fluid_optimum() {
    const DEVICES: u32 = 4096;
    let sizes = [9000.0, 100.0, 2500.0, 4000.0, 700.0, 650.0, 1200.0, 3000.0];
    let entries: Vec<Entry> =
        sizes.iter().enumerate().map(|(row, &work)| elastic(row, 0.0, DEVICES, work)).collect();
    for p in [0.3, 0.5, 0.8] {
        let mean = |name: &str| {
            let (_, mut policy) = Registry::built_in().parse(name).expect("a policy");
            let scenario = Scenario::new(cluster(1, DEVICES));
            mean_s(&run(policy.as_mut(), &entries, &scenario, &power(p)).expect("no law is broken"))
        };
        let (ours, fluid) = (mean(&format!("hesrpt:{p}")), fluid_mean_s(&sizes, p));
        assert!((ours / fluid - 1.0).abs() < 2e-3, "p {p}: {ours} s instead of {fluid} s");
        for other in ["equi", "srpt_greedy", "hell", "knee"] {
            assert!(ours <= mean(other) * (1.0 + 2e-3), "p {p}: {other} is better");
        }
    }
}

/// Work is seconds on all devices, so a job with the part t of them runs at the speed t^p.
fn fluid_mean_s(sizes: &[f64], p: f64) -> f64 {
    let mut left: Vec<f64> = sizes.to_vec();
    left.sort_by(|a, b| b.total_cmp(a));
    let (mut time_s, mut sum_s) = (0.0, 0.0);
    while !left.is_empty() {
        let jobs = left.len() as f64;
        let part = |rank: usize| (rank as f64 / jobs).powf(1.0 / (1.0 - p));
        let speeds: Vec<f64> = (1..=left.len()).map(|rank| (part(rank) - part(rank - 1)).powf(p)).collect();
        let step_s = left.iter().zip(&speeds).map(|(work, speed)| work / speed).fold(f64::INFINITY, f64::min);
        time_s += step_s;
        left.iter_mut().zip(&speeds).for_each(|(work, speed)| *work -= step_s * speed);
        let before = left.len();
        left.retain(|&work| work > 1e-6);
        sum_s += time_s * (before - left.len()) as f64;
    }
    sum_s / sizes.len() as f64
}
