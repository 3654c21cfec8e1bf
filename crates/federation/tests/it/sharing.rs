//! The best levels of sharing: against looking at all of them, and the published optimum of two clouds.

use std::convert::Infallible;

use bellwether_federation::game::sharing::{Effort, Found, best, levels, map};
use bellwether_federation::queue::{Cloud, Federation, Limits, Unsolved, overflow};
use proptest::prelude::*;

#[test]
fn levels_end_with_all() {
    assert_eq!(levels(10, 4), [0, 4, 8, 10]);
    assert_eq!(levels(8, 4), [0, 4, 8]);
    assert_eq!(levels(0, 4), [0]);
}

/// Fig. 8 of Song, Paolieri and Golubchik: one cloud accepts no wait and one accepts a second, and sharing a little is
/// better than nothing and than everything.
#[test]
fn two_clouds_with_unequal_bounds_share_a_part() {
    let cloud = |longest_wait_s| Cloud { arrivals_per_s: 50.0, servers: 50, shared: 0, longest_wait_s };
    let federation = Federation { service_per_s: 1.0, clouds: vec![cloud(0.0), cloud(1.0)] };
    let forwarded = |shared: &Vec<u32>| -> Result<f64, Unsolved> {
        let mut federation = federation.clone();
        federation.clouds.iter_mut().zip(shared).for_each(|(cloud, &shared)| cloud.shared = shared);
        Ok(overflow(&federation, &Limits::default())?.total_per_s())
    };
    let effort = Effort { most_evaluations: 100, step: 10 };
    let found = best(&[50, 50], &effort, |all| all.iter().map(forwarded).collect()).unwrap();
    assert_eq!((&found.shared, found.found), (&vec![10, 2], Found::LocalBest), "{found:?}");
    assert!((found.cost - 5.595).abs() < 5e-4, "{found:?}");
    let near_it = map(&[12, 4], &[0, 0], [0, 1], 2, |all| all.iter().map(forwarded).collect()).unwrap();
    assert_eq!((near_it.rows, near_it.columns), (vec![0, 2, 4, 6, 8, 10, 12], vec![0, 2, 4]));
    assert!((near_it.costs[0][0] - 6.08).abs() < 5e-3 && (near_it.costs[5][0] - 5.84).abs() < 5e-3);
    assert_eq!(near_it.costs[5][1].to_bits(), found.cost.to_bits());
}

#[test]
fn a_limit_is_kept() {
    let mut asked = 0;
    let costs = |all: &[Vec<u32>]| {
        asked += all.len() as u64;
        Ok::<_, Infallible>(
            all.iter().map(|shared| -shared.iter().map(|&m| f64::from(m)).sum::<f64>()).collect(),
        )
    };
    let found = best(&[100; 4], &Effort { most_evaluations: 30, step: 1 }, costs).unwrap();
    assert_eq!(found.found, Found::Stopped);
    assert!(found.evaluations <= 30 && found.evaluations == asked, "{found:?} {asked}");
    let none = best(&[100; 4], &Effort { most_evaluations: 0, step: 1 }, |_: &[Vec<u32>]| {
        Err("nothing is to be asked")
    });
    assert_eq!(none.unwrap().found, Found::Stopped);
}

#[test]
fn errors_of_costs_come_through() {
    let found = best(&[3, 3], &Effort { most_evaluations: 100, step: 1 }, |_| Err::<Vec<f64>, _>("broken"));
    assert_eq!(found, Err("broken"));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    /// All levels are looked at: whatever the costs, and of equals the first.
    #[test]
    fn few_levels_are_all_looked_at(costs in prop::collection::vec(0_u8..20, 4 * 3 * 5)) {
        let at = |shared: &Vec<u32>| f64::from(costs[((shared[0] * 3 + shared[1]) * 5 + shared[2]) as usize]);
        let ask = |all: &[Vec<u32>]| Ok::<_, Infallible>(all.iter().map(at).collect());
        let found = best(&[3, 2, 4], &Effort { most_evaluations: 60, step: 1 }, ask).unwrap();
        let (first, least) = costs.iter().enumerate().min_by_key(|(_, cost)| **cost).unwrap();
        let place = (found.shared[0] * 3 + found.shared[1]) * 5 + found.shared[2];
        prop_assert_eq!((place as usize, found.cost), (first, f64::from(*least)));
        prop_assert_eq!((found.evaluations, found.found), (60, Found::Best));
    }

    /// In a bowl that is not too far from round the search finds the bottom, from a coarse grid and without one.
    #[test]
    fn the_bottom_of_a_bowl_is_found(
        bottom in prop::collection::vec(0_u32..=60, 3),
        weights in prop::collection::vec(0.5_f64..2.0, 3),
        step in prop::sample::select(vec![1_u32, 20]),
    ) {
        let at = |shared: &Vec<u32>| -> f64 {
            let of = |i: usize| weights[i] * (f64::from(shared[i]) - f64::from(bottom[i])).powi(2);
            (0..3).map(of).sum()
        };
        let mut seen = std::collections::BTreeSet::new();
        let ask = |all: &[Vec<u32>]| {
            assert!(all.iter().all(|shared| seen.insert(shared.clone())), "asked for twice");
            Ok::<_, Infallible>(all.iter().map(at).collect())
        };
        let found = best(&[60; 3], &Effort { most_evaluations: 2_000, step }, ask).unwrap();
        prop_assert_eq!((found.shared, found.found), (bottom, Found::LocalBest));
    }
}
