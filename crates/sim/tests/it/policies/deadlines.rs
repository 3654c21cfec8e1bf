//! Deadlines: what ElasticFlow promises it keeps, and how it does beside the earliest deadline first.

use std::sync::Arc;

use bellwether_core::cluster::Node;
use bellwether_core::prediction::StepModel;
use bellwether_des::Streams;
use bellwether_sched::registry::Registry;
use bellwether_sim::trace::Entry;
use bellwether_sim::world::{Recording, Scenario};
use proptest::prelude::*;

use super::common::{cluster, elastic, power, rigid, run};

fn due(mut entry: Entry, deadline_s: f64) -> Entry {
    Arc::make_mut(&mut entry.job).deadline_s = Some(deadline_s);
    entry
}

fn simulate(name: &str, entries: &[Entry], scenario: &Scenario, model: &dyn StepModel) -> Recording {
    let (_, mut policy) = Registry::built_in().parse(name).expect("a policy");
    run(policy.as_mut(), entries, scenario, model).expect("no law is broken")
}

/// Whether a job with a deadline met it; sums of rounded times may differ by a microsecond.
fn met(recording: &Recording, entries: &[Entry], job: usize) -> bool {
    let deadline_s = entries[job].job.deadline_s.unwrap_or(f64::INFINITY);
    recording.jobs[job].end_s.is_some_and(|end_s| end_s <= deadline_s + 1e-5)
}

/// Jobs of all kinds; most have a deadline, some of which cannot be met.
fn traces() -> impl Strategy<Value = Vec<Entry>> {
    let job = (0_u32..60, 0_u32..4, 1_u32..400, any::<bool>(), 0_u32..60);
    proptest::collection::vec(job, 1..40).prop_map(|jobs| {
        let mut time_s = 0.0;
        let one = |(row, (gap, width, length, is_rigid, slack)): (usize, (u32, u32, u32, bool, u32))| {
            time_s += f64::from(gap.saturating_sub(20));
            let (asked, seconds) = (1 << width, f64::from(length) * 0.7);
            let entry = match is_rigid {
                true => rigid(row, time_s, asked, seconds),
                false => elastic(row, time_s, asked, seconds),
            };
            match slack {
                0..50 => due(entry, time_s + seconds * (0.9 + f64::from(slack) / 10.0)),
                _ => entry,
            }
        };
        jobs.into_iter().enumerate().map(one).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(150) })]

    #[test]
    fn an_admitted_job_meets_its_deadline(
        entries in traces(),
        nodes in 1_u32..3,
        two_types in any::<bool>(),
        exponent in 0.3_f64..1.0,
    ) {
        let mut view = cluster(nodes, 8);
        if two_types {
            view.device_types.push("other".into());
            view.nodes.push(Node { device_type: 1, devices: 6, free: 6, up: true });
        }
        let recording = simulate("elasticflow:refuse=1", &entries, &Scenario::new(view), &power(exponent));
        for (job, record) in recording.jobs.iter().enumerate() {
            prop_assert!(record.end_s.is_some() != record.refused.is_some());
            if record.refused.is_none() {
                prop_assert!(met(&recording, &entries, job), "job {} ends at {:?}", job, record.end_s);
            } else {
                prop_assert!(entries[job].job.deadline_s.is_some());
            }
        }
    }
}

/// Two jobs that are due when one of them can be done, and one that is never due.
#[test]
fn who_cannot_be_admitted_is_refused_or_comes_last() {
    let entries = [
        due(rigid(0, 0.0, 8, 100.0), 120.0),
        rigid(1, 1.0, 8, 10.0),
        due(rigid(2, 2.0, 8, 100.0), 150.0),
        due(rigid(3, 3.0, 8, 15.0), 140.0),
    ];
    let scenario = Scenario::new(cluster(1, 8));
    let strict = simulate("elasticflow:refuse=1", &entries, &scenario, &power(1.0));
    let why = strict.jobs[2].refused.as_deref();
    assert_eq!(
        why,
        Some("its deadline cannot be met beside those of the 1 jobs to which theirs are promised")
    );
    let ends =
        |recording: &Recording| -> Vec<Option<f64>> { recording.jobs.iter().map(|job| job.end_s).collect() };
    assert_eq!(ends(&strict), [Some(100.0), Some(125.0), None, Some(115.0)]);
    let kind = simulate("elasticflow", &entries, &scenario, &power(1.0));
    assert_eq!(ends(&kind), [Some(100.0), Some(125.0), Some(225.0), Some(115.0)]);
    // The nearest deadline first, and the one without a deadline last.
    let nearest = simulate("edf", &entries, &scenario, &power(1.0));
    assert_eq!(ends(&nearest), [Some(100.0), Some(225.0), Some(215.0), Some(115.0)]);
}

/// Job 1 is due first and takes the devices of job 0, which goes on afterwards.
#[test]
fn the_nearest_deadline_preempts() {
    let entries = [due(rigid(0, 0.0, 4, 100.0), 500.0), due(rigid(1, 10.0, 8, 20.0), 40.0)];
    let recording = simulate("edf", &entries, &Scenario::new(cluster(1, 8)), &power(1.0));
    assert_eq!((recording.jobs[0].end_s, recording.jobs[1].end_s), (Some(120.0), Some(30.0)));
    assert_eq!((recording.jobs[0].preemptions, recording.jobs[1].preemptions), (1, 0));
}

/// At twice the load that the devices bear, admission lets more jobs meet their deadlines than their order alone.
#[test]
fn admission_meets_more_deadlines_under_overload() {
    let mut sums = [0; 3];
    for seed in 0..20 {
        let streams = Streams::new(seed);
        let mut stream = streams.stream("deadlines", 0);
        let mut time_s = 0.0;
        let one = |row: usize| {
            time_s += stream.exponential(60.0);
            let (asked, seconds) = (*stream.choice(&[1, 2, 4, 8]), stream.exponential(500.0));
            let entry = elastic(row, time_s, asked, seconds);
            due(entry, time_s + seconds * stream.uniform_in(1.0, 3.0))
        };
        let entries: Vec<Entry> = (0..100).map(one).collect();
        for (sum, name) in sums.iter_mut().zip(["edf", "elasticflow", "elasticflow:refuse=1"]) {
            let recording = simulate(name, &entries, &Scenario::new(cluster(2, 8)), &power(0.8));
            *sum += (0..100).filter(|&job| met(&recording, &entries, job)).count();
        }
    }
    println!(
        "of 2000 deadlines edf meets {}, elasticflow {} and with refusals {}",
        sums[0], sums[1], sums[2]
    );
    assert!(sums[1] > sums[0] && sums[2] > sums[0]);
}
