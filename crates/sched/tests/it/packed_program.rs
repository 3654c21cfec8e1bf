//! The program over pairs: its shares can be had, and no job is worse off than without pairs.

use bellwether_sched::program::packed::{Part, max_min};
use bellwether_sched::program::shares::{self, Job};
use proptest::prelude::*;

/// Jobs of some kinds, on one to two devices.
fn jobs() -> impl Strategy<Value = (Vec<Job>, Vec<u32>)> {
    let speeds = prop::collection::vec(prop::collection::vec(0.5_f64..8.0, 3), 4);
    let job = (0_usize..4, 1_u32..3, prop::bool::weighted(0.2));
    (speeds, prop::collection::vec(job, 1..24)).prop_map(|(speeds, jobs)| {
        let one = |&(kind, devices, is_heavy): &(usize, u32, bool)| Job {
            speeds: speeds[kind].clone(),
            devices: f64::from(devices),
            weight: if is_heavy { 3.0 } else { 1.0 },
            remaining: 1.0,
            age_s: 0.0,
            isolated_s: 0.0,
        };
        let kinds = jobs.iter().map(|(kind, devices, _)| *kind as u32 * 2 + devices).collect();
        (jobs.iter().map(one).collect(), kinds)
    })
}

/// What two kinds keep: by their numbers and the type.
fn kept(kinds: &[u32], seed: u64, i: usize, j: usize, kind: usize) -> Option<[f64; 2]> {
    let draw = |a: u32, b: u32| {
        let mixed = (seed ^ (u64::from(a) << 8 | u64::from(b) << 4 | kind as u64))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        0.3 + 0.7 * ((mixed ^ (mixed >> 31)) % 1000) as f64 / 1000.0
    };
    let both = [draw(kinds[i], kinds[j]), draw(kinds[j], kinds[i])];
    (both[0] + both[1] < 1.8).then_some(both)
}

fn level(jobs: &[Job], devices: &[f64], speed: impl Fn(usize) -> f64) -> f64 {
    let usual = |job: &Job| {
        job.speeds.iter().zip(devices).map(|(speed, count)| speed * count).sum::<f64>()
            / devices.iter().sum::<f64>()
    };
    let of = |(place, job): (usize, &Job)| job.devices * speed(place) / (job.weight * usual(job));
    jobs.iter().enumerate().map(of).fold(f64::INFINITY, f64::min)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) })]

    #[test]
    fn shares_can_be_had_and_no_job_is_worse_off(
        (jobs, kinds) in jobs(),
        devices in prop::collection::vec(2_u32..8, 3),
        seed in any::<u64>(),
    ) {
        let devices: Vec<f64> = devices.into_iter().map(f64::from).collect();
        let ask = |i: usize, j: usize, kind: usize| kept(&kinds, seed, i, j, kind);
        let Some(parts) = max_min(&jobs, &kinds, &devices, ask) else { return Ok(()) };
        let (mut time, mut speed, mut used) = (vec![0.0; jobs.len()], vec![0.0; jobs.len()], vec![0.0; 3]);
        for Part { jobs: (i, second), kind, share } in parts.iter().copied() {
            prop_assert!(share > 0.0);
            used[kind] += share * jobs[i].devices;
            let own = match second {
                None => 1.0,
                Some(j) => {
                    prop_assert!(i < j && jobs[i].devices == jobs[j].devices);
                    let both = ask(i, j, kind).expect("it was asked for");
                    prop_assert!(both[0] + both[1] > 1.0);
                    (time[j], speed[j]) = (time[j] + share, speed[j] + share * both[1] * jobs[j].speeds[kind]);
                    both[0]
                }
            };
            (time[i], speed[i]) = (time[i] + share, speed[i] + share * own * jobs[i].speeds[kind]);
        }
        prop_assert!(time.iter().all(|time| *time < 1.0 + 1e-6), "{time:?}");
        prop_assert!(used.iter().zip(&devices).all(|(used, count)| *used < count + 1e-6), "{used:?}");
        let single = shares::max_min(&jobs, &devices).objective;
        let packed = level(&jobs, &devices, |place| speed[place]);
        prop_assert!(packed > single * (1.0 - 1e-6), "{packed}, {single} without pairs");
        prop_assert_eq!(&parts, &max_min(&jobs, &kinds, &devices, ask).expect("as before"));
    }
}

/// Two jobs that keep three quarters each, on one device: half again as much as taking turns.
#[test]
fn by_hand() {
    let job =
        Job { speeds: vec![2.0], devices: 1.0, weight: 1.0, remaining: 1.0, age_s: 0.0, isolated_s: 0.0 };
    let jobs = [job.clone(), job];
    let parts = max_min(&jobs, &[0, 1], &[1.0], |_, _, _| Some([0.75, 0.75])).expect("it pays");
    assert_eq!(parts.len(), 1);
    assert_eq!((parts[0].jobs, parts[0].kind), ((0, Some(1)), 0));
    assert!((parts[0].share - 1.0).abs() < 1e-9);
    // One after the other is as good.
    assert_eq!(max_min(&jobs, &[0, 1], &[1.0], |_, _, _| Some([0.5, 0.5])), None);
}
