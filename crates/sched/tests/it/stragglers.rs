//! Slow workers are found and replaced, and no others are.

use bellwether_sched::stragglers::{Action, Limits, Observation, Stragglers};
use proptest::prelude::*;

/// A step in which each worker computes one unit at its pace.
fn step(paces: &[f64]) -> Vec<Observation> {
    let seen = |(worker, pace): (usize, &f64)| Observation {
        worker: worker as u32,
        work: 1.0,
        compute_s: 0.02 / pace,
    };
    paces.iter().enumerate().map(seen).collect()
}

fn watcher(limits: Limits) -> Stragglers {
    Stragglers::new(limits).expect("the limits are good")
}

/// Steps until the last of eight workers is found, after `healthy` steps at full pace.
fn latency(limits: Limits, healthy: u64, pace: f64) -> Option<u64> {
    let mut stragglers = watcher(limits);
    for _ in 0..healthy {
        assert!(stragglers.observe(0.0, &step(&[1.0; 8])).is_empty());
    }
    let mut slow = [1.0; 8];
    slow[7] = pace;
    (1..=1000).find(|_| match stragglers.observe(0.0, &step(&slow))[..] {
        [] => false,
        [Action::Start(found)] => found.worker == 7,
        _ => panic!("only one worker is slow"),
    })
}

#[test]
fn a_worker_that_falls_is_found_after_the_steps_of_the_law() {
    let limits = Limits { dwell_steps: 1, ..Limits::default() };
    // ln((0.8 - f) / (1 - f)) / ln 0.9, rounded up.
    for (pace, steps) in [(0.25, 3), (0.5, 5), (0.75, 16)] {
        assert_eq!(latency(limits, 50, pace), Some(steps), "{pace}");
    }
    assert_eq!(latency(limits, 50, 0.85), None);
    // Five steps in a row, and none of a newcomer's first ten.
    assert_eq!(latency(Limits::default(), 50, 0.5), Some(9));
    assert_eq!(latency(Limits::default(), 0, 0.5), Some(10));
}

#[test]
fn work_that_was_expected_to_take_longer_is_not_slow() {
    let mut stragglers = watcher(Limits::default());
    let seen = |worker, work, compute_s| Observation { worker, work, compute_s };
    for _ in 0..100 {
        // Four virtual nodes against one; and a device known to be three times as slow.
        let step = [seen(0, 4.0, 0.4), seen(1, 1.0, 0.1), seen(2, 3.0, 0.3)];
        assert!(stragglers.observe(0.0, &step).is_empty());
    }
}

#[test]
fn the_straggler_leaves_only_when_its_replacement_has_joined() {
    let mut stragglers = watcher(Limits::default());
    let slow = step(&[1.0, 1.0, 0.5]);
    let starts =
        |stragglers: &mut Stragglers| (0..200).map(|_| stragglers.observe(0.0, &slow).len()).sum::<usize>();
    // Started once, however long it takes.
    assert_eq!(starts(&mut stragglers), 1);
    stragglers.failed(2);
    assert_eq!(starts(&mut stragglers), 1);
    assert!(stragglers.joined(2), "the straggler is there and leaves");
    assert_eq!(stragglers.pace(2), None);
    // One that left by itself need not leave.
    stragglers.left(1);
    assert!(!stragglers.joined(1));
}

#[test]
fn the_budget_is_by_the_hour_and_its_lack_is_said_once() {
    let mut stragglers = watcher(Limits { per_hour: 1, ..Limits::default() });
    let slow = step(&[1.0, 1.0, 1.0, 0.4, 0.5]);
    let mut actions = Vec::new();
    for second in 0..5000 {
        let found = stragglers.observe(f64::from(second), &slow);
        actions.extend(found.into_iter().map(|action| (second, action)));
    }
    let said: Vec<(i32, String)> =
        actions.iter().map(|(second, action)| (*second, action.to_string())).collect();
    assert!(
        matches!(actions[..], [(9, Action::Start(a)), (9, Action::Withhold(b)), (3609, Action::Start(c))]
        if (a.worker, b.worker, c.worker) == (3, 4, 4)),
        "{said:?}"
    );
    assert_eq!(
        said[0].1,
        "worker 3 computes at 0.40 of the median pace for 10 steps: a replacement starts, and the worker leaves when \
         that has joined"
    );
}

#[test]
fn nonsense_is_passed_over_or_refused() {
    for (weight, threshold) in
        [(0.0, 0.8), (1.1, 0.8), (0.1, 0.0), (0.1, 1.0), (f64::NAN, 0.8), (0.1, f64::NAN)]
    {
        assert!(Stragglers::new(Limits { weight, threshold, ..Limits::default() }).is_err());
    }
    let mut stragglers = watcher(Limits { least_steps: 0, dwell_steps: 0, ..Limits::default() });
    let seen = |worker, work, compute_s| Observation { worker, work, compute_s };
    assert!(stragglers.observe(0.0, &[]).is_empty());
    assert!(stragglers.observe(0.0, &[seen(0, 1.0, 100.0)]).is_empty());
    for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(
            stragglers.observe(0.0, &[seen(0, 1.0, 1.0), seen(1, 1.0, bad), seen(2, bad, 1.0)]).is_empty()
        );
    }
    assert_eq!(stragglers.pace(1), None);
}

/// What happens to a job in one step: the pace of each place, and whether replacements on their way join or fail.
fn events() -> impl Strategy<Value = Vec<(Vec<f64>, u8)>> {
    let paces = prop::collection::vec(prop_oneof![3 => 0.9_f64..1.1, 1 => 0.2_f64..0.9], 6);
    prop::collection::vec((paces, 0_u8..8), 1..150)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(100) })]

    #[test]
    fn the_job_keeps_its_size_and_the_budget_holds(events in events(), per_hour in 0_u32..4) {
        let limits = Limits { least_steps: 3, dwell_steps: 2, weight: 0.5, per_hour, ..Limits::default() };
        let mut stragglers = watcher(limits);
        let mut workers: Vec<u32> = (0..6).collect();
        let (mut coming, mut starts, mut next) = (Vec::new(), Vec::new(), 6);
        for (index, (paces, event)) in events.into_iter().enumerate() {
            let now_s = 60.0 * index as f64;
            let seen = workers.iter().zip(&paces);
            let seen: Vec<Observation> =
                seen.map(|(&worker, pace)| Observation { worker, work: 2.0, compute_s: 2.0 / pace }).collect();
            // Written down and read again at any time.
            let text = serde_json::to_string(&stragglers).unwrap();
            let again: Stragglers = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(&again, &stragglers);
            for action in stragglers.observe(now_s, &seen) {
                if let Action::Start(slow) = action {
                    prop_assert!(slow.pace < limits.threshold && workers.contains(&slow.worker));
                    prop_assert!(!coming.contains(&slow.worker), "two replacements for one");
                    coming.push(slow.worker);
                    starts.push(now_s);
                }
            }
            let within_hour = starts.iter().filter(|started_s| now_s - **started_s < 3600.0).count();
            prop_assert!(within_hour <= per_hour as usize);
            match (event, coming.pop()) {
                (0, Some(worker)) => stragglers.failed(worker),
                (1 | 2, Some(worker)) => {
                    workers.push(next);
                    next += 1;
                    if stragglers.joined(worker) {
                        workers.retain(|known| *known != worker);
                    }
                }
                (_, Some(worker)) => coming.push(worker),
                (_, None) => {}
            }
            prop_assert_eq!(workers.len(), 6);
        }
    }

    #[test]
    fn noise_alone_replaces_no_worker(paces in prop::collection::vec(prop::collection::vec(0.88_f64..1.08, 5), 1..100)) {
        let mut stragglers = watcher(Limits::default());
        for step_paces in paces {
            prop_assert_eq!(stragglers.observe(0.0, &step(&step_paces)), Vec::new());
        }
    }
}
