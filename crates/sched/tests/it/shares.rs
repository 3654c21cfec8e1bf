//! Shares that follow measured speeds: against workers whose law is known.

use bellwether_core::tree::ranges_by_speed;
use bellwether_sched::shares::{Action, Advice, Limits, Observation, Shares, Step};
use bellwether_testkit::Random;
use proptest::prelude::*;

const BYTES: u64 = 1_000_000;

/// A run whose workers take known times, with what the advice so far made of it.
struct Run {
    shares: Shares,
    /// Number, seconds of a virtual node, and virtual nodes.
    workers: Vec<(u64, f64, u32)>,
    /// Seconds of a gradient through the slowest link of those who are there.
    exchange_s: fn(&[(u64, f64, u32)]) -> f64,
    /// Standard deviation of the logarithm of a computing time.
    spread: f64,
    fewest: usize,
    random: Random,
}

impl Run {
    fn new(nodes: u32, node_s: &[f64]) -> Run {
        let ranges = ranges_by_speed(nodes, &vec![1.0; node_s.len()]);
        let workers = (1..).zip(node_s).zip(ranges);
        Run {
            shares: Shares::new(Limits::default(), BYTES).expect("the default limits are valid"),
            workers: workers.map(|((id, node_s), range)| (id, *node_s, range.end - range.start)).collect(),
            exchange_s: |_| 0.002,
            spread: 0.0,
            fewest: 1,
            random: Random::new(7),
        }
    }

    fn step(&mut self) -> Option<Advice> {
        let mut workers = Vec::new();
        for (worker, node_s, virtual_nodes) in &self.workers {
            let noise = (self.spread * self.random.normal()).exp();
            let compute_s = f64::from(*virtual_nodes) * node_s * noise;
            workers.push(Observation { worker: *worker, virtual_nodes: *virtual_nodes, compute_s });
        }
        let exchange_s = (self.exchange_s)(&self.workers);
        let longest_s = workers.iter().map(|seen| seen.compute_s).fold(0.0, f64::max);
        let step = Step { workers, step_s: longest_s + exchange_s + 0.001, update_s: 0.001 };
        let advice = self.shares.observe(&step, self.fewest)?;
        if advice.action != Action::Told {
            for (worker, count) in &advice.counts {
                let entry = self.workers.iter_mut().find(|(id, ..)| id == worker);
                entry.expect("a worker that is there").2 = *count;
            }
            self.workers.retain(|(_, _, count)| *count > 0);
        }
        Some(advice)
    }

    fn steps(&mut self, count: usize) -> Vec<Advice> {
        (0..count).filter_map(|_| self.step()).collect()
    }

    fn counts(&self) -> Vec<u32> {
        self.workers.iter().map(|(_, _, count)| *count).collect()
    }
}

#[test]
fn a_slow_worker_gets_less_and_the_step_is_as_long_as_was_expected() {
    let mut run = Run::new(24, &[0.01, 0.01, 0.03]);
    let advice = run.steps(20);
    assert_eq!((advice.len(), run.counts()), (1, vec![11, 10, 3]), "{advice:?}");
    // 11 nodes of 10 ms, 1 ms of update, and the exchange: up to four partial sums of a worker instead of one, of 1 ms
    // each way.
    let Advice { step_s, expected_s, action, .. } = advice[0];
    assert_eq!(action, Action::Share);
    assert!((step_s - 0.243).abs() < 1e-12 && (expected_s - 0.117).abs() < 1e-9, "{step_s} {expected_s}");
    assert_eq!(run.steps(200), []);
}

#[test]
fn a_change_of_speed_is_followed_within_twenty_steps_and_back_again() {
    let mut run = Run::new(32, &[0.01; 4]);
    assert_eq!(run.steps(50), []);
    run.workers[3].1 = 0.02;
    assert_eq!(run.steps(20).len(), 1);
    assert_eq!(run.counts().iter().sum::<u32>(), 32);
    let slow = run.counts()[3];
    assert!((4..=6).contains(&slow), "{:?}", run.counts());
    assert_eq!(run.steps(100), []);
    run.workers[3].1 = 0.01;
    assert_eq!(run.steps(20).len(), 1);
    assert_eq!(run.counts(), [8; 4]);
    assert_eq!(run.steps(100), []);
}

#[test]
fn who_holds_up_the_others_is_left_out_or_told_where_the_job_has_no_fewer() {
    let mut run = Run::new(8, &[0.01, 0.01, 0.2]);
    let advice = run.steps(20);
    assert_eq!(advice[0].action, Action::LeaveOut);
    assert!(advice[0].left_out().eq([3]), "{advice:?}");
    assert!(advice[0].all_s > 0.2 && advice[0].expected_s < 0.05, "{advice:?}");
    assert_eq!(run.counts(), [4, 4]);
    let mut run = Run { fewest: 3, ..Run::new(8, &[0.01, 0.01, 0.2]) };
    let actions: Vec<Action> = run.steps(60).iter().map(|advice| advice.action).collect();
    assert_eq!(actions, [Action::Told, Action::Share]);
    assert_eq!(run.counts().last(), Some(&1));
}

#[test]
fn a_worker_behind_a_slow_link_is_left_out_where_that_pays() {
    let slow =
        |workers: &[(u64, f64, u32)]| if workers.iter().any(|(id, ..)| *id == 2) { 0.337 } else { 0.004 };
    let mut run = Run { exchange_s: slow, ..Run::new(12, &[0.05; 3]) };
    // 0.3 s of a step is its exchange, and no computing tells why.
    assert_eq!(run.steps(30), []);
    run.shares.link(1, 1e9);
    run.shares.link(2, 4e6);
    run.shares.link(3, 1e9);
    let advice = run.steps(20);
    assert!(advice.len() == 1 && advice[0].left_out().eq([2]), "{advice:?}");
    let step_s = 0.05 * 6.0 + 0.005;
    assert!((advice[0].expected_s / step_s - 1.0).abs() < 0.05, "{advice:?}");
    // The same link where computing is what takes the time.
    let mut run = Run { exchange_s: slow, ..Run::new(12, &[1.0; 3]) };
    (1..=3).for_each(|id| run.shares.link(id, if id == 2 { 4e6 } else { 1e9 }));
    assert_eq!(run.steps(60), []);
}

#[test]
fn what_is_no_number_is_passed_over() {
    let mut shares = Shares::new(Limits::default(), BYTES).unwrap();
    let seen = |compute_s, virtual_nodes| Observation { worker: 1, virtual_nodes, compute_s };
    shares.link(1, 0.0);
    shares.link(1, f64::NAN);
    for (workers, step_s) in [
        (vec![], 1.0),
        (vec![seen(f64::NAN, 4)], 1.0),
        (vec![seen(0.0, 4)], 1.0),
        (vec![seen(1.0, 0)], 1.0),
        (vec![seen(1.0, 4)], f64::INFINITY),
        (vec![seen(1.0, 4)], 0.5),
    ] {
        let step = Step { workers, step_s, update_s: f64::NAN };
        assert!((0..50).all(|_| shares.observe(&step, 1).is_none()), "{step:?}");
    }
    assert!(Shares::new(Limits { window: 0, ..Limits::default() }, BYTES).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) })]

    /// Noise alone moves shares once in a while at most, and never to and fro.
    #[test]
    fn noise_moves_no_shares_to_and_fro(
        seed in any::<u64>(),
        spread in 0.0_f64..0.25,
        nodes in prop::sample::select(vec![16_u32, 24, 64]),
        node_s in prop::collection::vec(0.005_f64..0.02, 2..=5),
    ) {
        let mut run = Run { spread, random: Random::new(seed), ..Run::new(nodes, &node_s) };
        run.fewest = node_s.len();
        let first = run.steps(60).len();
        let later = run.steps(1000).len();
        prop_assert!(first <= 3 && later <= 8, "{first} changes at first, {later} later");
    }

    /// Whatever the speeds: after twenty steps the step is near the best that there is, and as long as was expected.
    #[test]
    fn shares_come_near_the_best_within_twenty_steps(
        node_s in prop::collection::vec(0.005_f64..0.05, 2..=5),
        nodes in prop::sample::select(vec![16_u32, 31, 64]),
    ) {
        let mut run = Run { fewest: node_s.len(), ..Run::new(nodes, &node_s) };
        run.exchange_s = |_| 0.0;
        let advice = run.steps(20);
        let longest = |counts: &[u32]| {
            counts.iter().zip(&node_s).map(|(count, node_s)| f64::from(*count) * node_s).fold(0.0, f64::max)
        };
        let speeds: Vec<f64> = node_s.iter().map(|node_s| 1.0 / node_s).collect();
        let best: Vec<u32> = ranges_by_speed(nodes, &speeds).iter().map(|r| r.end - r.start).collect();
        prop_assert!(longest(&run.counts()) <= longest(&best) * 1.06 + 1e-3, "{:?} {best:?}", run.counts());
        if let Some(last) = advice.iter().rev().find(|advice| advice.action == Action::Share) {
            prop_assert!((last.expected_s / (longest(&run.counts()) + 0.001) - 1.0).abs() < 1e-6);
        }
        prop_assert_eq!(run.steps(100).len(), 0);
    }
}
