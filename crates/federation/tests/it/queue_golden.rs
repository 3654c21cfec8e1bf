//! The published numbers of cloud federations (Song, Paolieri and Golubchik, IEEE CLOUD 2022), one service
//! per second and server, to the precision in print.

use bellwether_federation::queue::{Cloud, Federation, Limits, Method, overflow};

/// Clouds of `(arrivals per s, servers, shared, longest wait)`.
fn federation(clouds: &[(f64, u32, u32, f64)]) -> Federation {
    let cloud = |&(arrivals_per_s, servers, shared, longest_wait_s)| Cloud {
        arrivals_per_s,
        servers,
        shared,
        longest_wait_s,
    };
    Federation { service_per_s: 1.0, clouds: clouds.iter().map(cloud).collect() }
}

/// Clouds of `(arrivals per s, servers, longest wait)` that share everything.
fn all_shared(clouds: &[(f64, u32, f64)]) -> Federation {
    federation(
        &clouds
            .iter()
            .map(|&(arrivals, servers, wait)| (arrivals, servers, servers, wait))
            .collect::<Vec<_>>(),
    )
}

fn forwarded(federation: &Federation) -> Vec<f64> {
    overflow(federation, &Limits::default()).expect("a published case").forwarded_per_s
}

fn total(federation: &Federation) -> f64 {
    forwarded(federation).iter().sum()
}

/// Savings of the coalition of `members`.
fn saving(federation: &Federation, members: &[usize]) -> f64 {
    let coalition = federation.coalition(members);
    total(&coalition.without_sharing()) - total(&coalition)
}

fn members(mask: usize, count: usize) -> Vec<usize> {
    (0..count).filter(|member| mask >> member & 1 == 1).collect()
}

/// The Shapley value by its definition, over orders of joining: an oracle, not the project's solver.
fn shapley(federation: &Federation) -> Vec<f64> {
    let count = federation.clouds.len();
    let values: Vec<f64> = (0..1 << count)
        .map(|mask| if mask == 0 { 0.0 } else { saving(federation, &members(mask, count)) })
        .collect();
    let factorial = |n: usize| (1..=n).product::<usize>() as f64;
    let share = |member: usize| {
        let without = (0..1_usize << count).filter(|mask| mask >> member & 1 == 0);
        let gain = |mask: usize| {
            let size = mask.count_ones() as usize;
            factorial(size) * factorial(count - size - 1) * (values[mask | 1 << member] - values[mask])
        };
        without.map(gain).sum::<f64>() / factorial(count)
    };
    (0..count).map(share).collect()
}

/// Each member's share over what it paid before, with 0.7 per server as running cost.
fn relative_cuts(federation: &Federation) -> Vec<f64> {
    let alone = forwarded(&federation.without_sharing());
    let shares = shapley(federation);
    let cut =
        |((share, alone), cloud): ((&f64, &f64), &Cloud)| share / (alone + 0.7 * f64::from(cloud.servers));
    shares.iter().zip(&alone).zip(&federation.clouds).map(cut).collect()
}

/// Equality to as many decimals as `printed` shows, given as half of the last one's unit.
#[track_caller]
fn agree(ours: &[f64], printed: &[f64], half_unit: f64) {
    assert_eq!(ours.len(), printed.len());
    let close = ours.iter().zip(printed).all(|(a, b)| (a - b).abs() <= half_unit * (1.0 + 1e-9));
    assert!(close, "{ours:?} against the printed {printed:?}");
}

fn figure_2() -> Federation {
    all_shared(&[(100.0, 100, 0.0), (100.0, 100, 0.0), (100.0, 100, 1.0)])
}

#[test]
fn three_clouds_one_of_them_patient() {
    let federation = figure_2();
    agree(&forwarded(&federation.without_sharing()), &[7.57, 7.57, 0.88], 0.005);
    agree(&forwarded(&federation.coalition(&[0, 1])), &[5.44, 5.44], 0.005);
    agree(&forwarded(&federation.coalition(&[0, 2])), &[10.31, 0.0], 0.005);
    agree(&forwarded(&federation), &[6.56, 6.56, 0.0], 0.005);
}

#[test]
fn savings_whose_core_is_empty() {
    let federation = figure_2();
    let value = |members: &[usize]| saving(&federation, members);
    agree(
        &[value(&[0, 1]), value(&[0, 2]), value(&[1, 2]), value(&[0, 1, 2])],
        &[4.27, -1.86, -1.86, 2.91],
        0.005,
    );
    agree(&shapley(&federation), &[1.99, 1.99, -1.07], 0.005);
    agree(&[value(&[0]), value(&[1]), value(&[2])], &[0.0; 3], 0.0);
    // Members 0 and 1 earn more by themselves than all three together.
    assert!(value(&[0, 1]) > value(&[0, 1, 2]));
}

#[test]
fn one_loaded_cloud_and_one_at_several_loads() {
    let pair = |arrivals| all_shared(&[(arrivals, 50, 0.0), (150.0, 50, 0.0)]);
    let cases = [
        (30.0, 100.5, 81.2, [0.276, 0.071]),
        (50.0, 105.7, 101.0, [0.059, 0.018]),
        (100.0, 151.4, 150.7, [0.004, 0.003]),
    ];
    for (arrivals, alone, together, cuts) in cases {
        let federation = pair(arrivals);
        agree(&[total(&federation.without_sharing()), total(&federation)], &[alone, together], 0.05);
        agree(&relative_cuts(&federation), &cuts, 0.0005);
    }
    let federation = all_shared(&[(100.0, 50, 0.0), (10.0, 50, 0.0)]);
    let (alone, together) = (total(&federation.without_sharing()), total(&federation));
    agree(&[alone, together], &[50.9, 15.0], 0.05);
    agree(&[1.0 - together / alone], &[0.706], 0.0005);
}

#[test]
fn patient_clouds_of_every_size_harm() {
    let pair = |n: (u32, u32), arrivals: (f64, f64), wait| {
        all_shared(&[(arrivals.0, n.0, 0.0), (arrivals.1, n.1, wait)])
    };
    agree(&relative_cuts(&pair((50, 100), (50.0, 100.0), 10.0)), &[-0.037, -0.021], 0.0005);
    agree(&relative_cuts(&pair((50, 100), (50.0, 100.0), 50.0)), &[-0.038, -0.022], 0.0005);
    agree(&relative_cuts(&pair((50, 1000), (50.0, 1000.0), 50.0)), &[-0.148, -0.008], 0.0005);
    let largest = relative_cuts(&pair((10, 10_000), (7.0, 10_000.0), 1000.0));
    agree(&largest[..1], &[-0.374], 0.0005);
    // The paper prints -0.05 %.
    agree(&largest[1..], &[-0.0004], 0.00005);
}

#[test]
fn part_of_the_servers_is_best_shared_when_bounds_differ() {
    let shared = |a, b| total(&federation(&[(50.0, 50, a, 0.0), (50.0, 50, b, 1.0)]));
    agree(&[shared(0, 0), shared(10, 0), shared(50, 50)], &[6.08, 5.84, 7.04], 0.005);
    // The paper prints 5.60.
    agree(&[shared(10, 2)], &[5.595], 0.0005);
    for (a, b) in [(9, 2), (11, 2), (10, 1), (10, 3)] {
        assert!(shared(a, b) > shared(10, 2), "sharing ({a}, {b}) forwards less");
    }
}

#[test]
fn the_servers_of_the_idle_cloud_make_the_saving() {
    let saved = |arrivals: (f64, f64), a, b| {
        let federation = federation(&[(arrivals.0, 50, a, 0.0), (arrivals.1, 50, b, 0.0)]);
        saving(&federation, &[0, 1]) / total(&federation.without_sharing())
    };
    let idle = |a, b| saved((10.0, 150.0), a, b);
    agree(&[idle(50, 0), idle(50, 50), idle(25, 25)], &[0.387, 0.388, 0.244], 0.0005);
    agree(&[saved((150.0, 150.0), 50, 50)], &[0.0024], 0.00005);
}

#[test]
fn savings_and_shares_of_three_federations() {
    let first = all_shared(&[(10.0, 30, 0.0), (70.0, 50, 0.0), (140.0, 100, 0.0)]);
    agree(&[saving(&first, &[0, 1, 2])], &[20.45], 0.005);
    agree(&shapley(&first), &[11.69, 3.74, 5.01], 0.005);
    let second = all_shared(&[(30.0, 50, 0.0), (30.0, 100, 0.0), (150.0, 50, 0.0)]);
    agree(&[saving(&second, &[0, 1, 2])], &[82.49], 0.005);
    agree(&shapley(&second), &[8.50, 32.17, 41.81], 0.005);
    let third = all_shared(&[(50.0, 50, 0.0), (50.0, 50, 0.0), (200.0, 200, 1.0)]);
    agree(&[saving(&third, &[0, 1, 2])], &[-0.91], 0.005);
    // The paper's bars are those of a game in which the first two save nothing together; its text says they
    // save.
    agree(&shapley(&third), &[0.86, 0.86, -2.62], 0.005);
    agree(&[saving(&third, &[0, 1]), saving(&third, &[0, 2])], &[2.91, -4.05], 0.005);
}

#[test]
fn shares_while_a_federation_grows() {
    let clouds = [(10.0, 30, 0.0), (50.0, 30, 0.0), (30.0, 30, 0.0), (50.0, 50, 0.0), (100.0, 100, 1.0)];
    let grown: [&[f64]; 4] =
        [&[7.7, 7.7], &[8.3, 7.8, 2.0], &[8.8, 7.6, 2.3, 2.7], &[8.8, 7.2, 2.2, 2.6, -1.0]];
    for printed in grown {
        agree(&shapley(&all_shared(&clouds[..printed.len()])), printed, 0.05);
    }
}

/// `count` clouds: one large and patient, the others small and impatient.
fn diluted(count: usize) -> Federation {
    let mut clouds = vec![(1000.0, 1000, 1.0)];
    clouds.resize(count, (10.0, 10, 0.0));
    all_shared(&clouds)
}

#[test]
fn a_large_patient_cloud_is_tolerable_in_a_federation_of_more_than_ten() {
    for count in 2..=20 {
        let federation = diluted(count);
        let saving = saving(&federation, &(0..count).collect::<Vec<_>>());
        assert_eq!(saving > 0.0, count > 10, "{count} clouds save {saving}");
    }
}

#[test]
fn a_member_alone_shares_with_no_other() {
    let partly = federation(&[(50.0, 50, 20, 0.0), (60.0, 50, 10, 1.0)]);
    for member in [0, 1] {
        let alone = partly.coalition(&[member]);
        assert_eq!(alone.clouds, [Cloud { shared: 0, ..partly.clouds[member] }]);
        assert_eq!(saving(&partly, &[member]), 0.0);
    }
    assert_eq!(partly.coalition(&[0, 1]), partly);
}

#[test]
fn everything_shared_or_nothing_is_a_closed_form() {
    for federation in [figure_2(), figure_2().without_sharing(), diluted(11)] {
        assert_eq!(overflow(&federation, &Limits::default()).unwrap().method, Method::ProductForm);
    }
}
