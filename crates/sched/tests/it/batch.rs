//! The choice of a batch: the best of all, monotone in what it depends on, and calm.

use bellwether_sched::batch::{Choice, Governor, Limits, Times};
use proptest::prelude::*;

fn times() -> impl Strategy<Value = Times> {
    (-9f64..1.0, -9f64..1.0).prop_map(|(gradients, update)| Times {
        gradients_s: 10f64.powf(gradients),
        update_s: 10f64.powf(update),
    })
}

proptest! {
    #[test]
    fn no_other_batch_is_better(times in times(), batch in 1u64..4096, noise in 0f64..1e6, most in 1u32..300) {
        let best = Choice::best(batch, times, noise, most);
        prop_assert!((1..=most).contains(&best.accumulation));
        prop_assert!((0.0..=1.0).contains(&best.efficiency));
        for steps in 1..=most {
            let other = Choice::of(steps, batch, times, noise);
            prop_assert!(other.goodput() <= best.goodput() * (1.0 + 1e-12), "{steps} beats {best:?}");
        }
    }

    #[test]
    fn more_noise_or_a_dearer_update_never_shrink_the_batch(
        times in times(), batch in 1u64..4096, noise in 0f64..1e6, more in 1f64..100.0,
    ) {
        let steps = |times, noise| Choice::best(batch, times, noise, 1000).accumulation;
        let dearer = Times { update_s: times.update_s * more, ..times };
        prop_assert!(steps(times, noise * more) >= steps(times, noise));
        prop_assert!(steps(dearer, noise) >= steps(times, noise));
        let slower = Times { gradients_s: times.gradients_s * more, ..times };
        prop_assert!(steps(slower, noise) <= steps(times, noise));
    }
}

const TIMES: Times = Times { gradients_s: 0.01, update_s: 0.04 };

/// Lets a governor watch updates over this many steps until it wants something else.
fn until_changed(governor: &mut Governor, accumulation: u32, noise: f64) -> Option<u32> {
    (0..200).find_map(|n| {
        governor.saw(accumulation, TIMES, noise);
        governor.decide(1000 + n).map(|(_, better)| better.accumulation)
    })
}

#[test]
fn a_batch_grows_by_doubling_and_settles() {
    let mut governor = Governor::new(32, Limits::up_to(64));
    // sqrt(0.04 / 0.01 * 3200 / 32) = 20; from 16 on little is to be gained.
    let mut sizes = vec![1];
    while let Some(next) = until_changed(&mut governor, sizes[sizes.len() - 1], 3200.0) {
        sizes.push(next);
    }
    assert_eq!(sizes, [1, 2, 4, 8, 16]);
    // Less noise makes it smaller again, at once.
    assert_eq!(until_changed(&mut governor, 16, 32.0), Some(2));
}

#[test]
fn nothing_changes_before_enough_was_seen() {
    let limits = Limits { pause: 10, first: 50, ..Limits::up_to(64) };
    let mut governor = Governor::new(32, limits);
    let saw = |governor: &mut Governor, updates: u32| {
        (0..updates).for_each(|_| governor.saw(1, TIMES, 3200.0));
    };
    saw(&mut governor, 9);
    assert_eq!(governor.decide(100), None);
    saw(&mut governor, 1);
    assert_eq!(governor.decide(49), None);
    // Other workers: what was measured counts no more.
    governor.changed();
    assert_eq!(governor.decide(100), None);
    saw(&mut governor, 10);
    let (now, better) = governor.decide(100).expect("it is time");
    assert_eq!((now.accumulation, better.accumulation), (1, 2));
    assert!(better.goodput() > now.goodput());
    assert_eq!(governor.decide(100), None, "what was asked for is on its way");
}

#[test]
fn a_size_that_proves_useless_is_left_again() {
    let mut governor = Governor::new(32, Limits::up_to(64));
    // The workers say that most of an update comes once, but twice the steps take twice the time.
    let saw = |governor: &mut Governor, steps: u32| {
        let duration_s = 0.05 * f64::from(steps);
        let gradients_s = 0.01;
        governor.saw(
            steps,
            Times { gradients_s, update_s: duration_s - f64::from(steps) * gradients_s },
            64.0,
        );
        governor.decide(10_000).map(|(_, better)| better.accumulation)
    };
    assert_eq!((0..100).find_map(|_| saw(&mut governor, 1)), Some(2));
    assert_eq!((0..100).find_map(|_| saw(&mut governor, 2)), Some(1));
    assert_eq!((0..2000).find_map(|_| saw(&mut governor, 1)), None);
    // Some time later it may be worth another look.
    assert_eq!((0..4000).find_map(|_| saw(&mut governor, 1)), Some(2));
}
