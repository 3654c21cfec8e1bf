//! Federations of clouds: the chain against elimination on small cases and against exact queueing theory, and
//! the laws that hold whatever the numbers.

use bellwether_federation::queue::{
    Cloud, Federation, Limits, Method, Overflow, Unsolved, capacity, overflow,
};
use proptest::prelude::*;

fn solved(federation: &Federation) -> Overflow {
    overflow(federation, &Limits::default()).unwrap_or_else(|error| panic!("{federation:?}: {error}"))
}

fn federation(clouds: &[(f64, u32, u32, f64)]) -> Federation {
    let cloud = |&(arrivals_per_s, servers, shared, longest_wait_s)| Cloud {
        arrivals_per_s,
        servers,
        shared,
        longest_wait_s,
    };
    Federation { service_per_s: 1.0, clouds: clouds.iter().map(cloud).collect() }
}

/// The chain as it is defined, every state and every transition, solved by elimination without subtractions.
struct Oracle {
    sizes: Vec<usize>,
    own: Vec<u64>,
    refused_from: Vec<usize>,
    servers: u64,
    law: Vec<f64>,
}

impl Oracle {
    fn of(federation: &Federation) -> Oracle {
        let mu = federation.service_per_s;
        let servers: u64 = federation.clouds.iter().map(|cloud| u64::from(cloud.shared)).sum();
        let own: Vec<u64> =
            federation.clouds.iter().map(|cloud| u64::from(cloud.servers - cloud.shared)).collect();
        let holds = |servers: u64, cloud: &Cloud| capacity(servers, mu, cloud.longest_wait_s) as usize;
        let refused_from: Vec<usize> = federation.clouds.iter().map(|cloud| holds(servers, cloud)).collect();
        let mut sizes: Vec<usize> =
            federation.clouds.iter().zip(&own).map(|(cloud, &own)| holds(own, cloud) + 1).collect();
        sizes.push(refused_from.iter().max().expect("at least one cloud") + 1);
        let mut oracle = Oracle { sizes, own, refused_from, servers, law: Vec::new() };
        let count: usize = oracle.sizes.iter().product();
        let mut rates = vec![vec![0.0; count]; count];
        for (state, row) in rates.iter_mut().enumerate() {
            oracle.transitions(federation, state, |to, rate| row[to] += rate);
        }
        oracle.law = eliminate(rates);
        oracle
    }

    /// Requests present everywhere, the pool last.
    fn present(&self, mut state: usize) -> Vec<usize> {
        let digit = |size: &usize| {
            let digit = state % size;
            state /= size;
            digit
        };
        self.sizes.iter().map(digit).collect()
    }

    fn transitions(&self, federation: &Federation, state: usize, mut go: impl FnMut(usize, f64)) {
        let (present, pool) = (self.present(state), self.own.len());
        let mut stride = 1;
        let pool_stride: usize = self.sizes[..pool].iter().product();
        for (i, cloud) in federation.clouds.iter().enumerate() {
            if present[i] + 1 < self.sizes[i] {
                go(state + stride, cloud.arrivals_per_s);
            } else if present[pool] < self.refused_from[i] {
                go(state + pool_stride, cloud.arrivals_per_s);
            }
            if present[i] > 0 {
                go(state - stride, (present[i] as u64).min(self.own[i]) as f64 * federation.service_per_s);
            }
            stride *= self.sizes[i];
        }
        if present[pool] > 0 {
            go(
                state - pool_stride,
                (present[pool] as u64).min(self.servers) as f64 * federation.service_per_s,
            );
        }
    }

    fn mean(&self, of: impl Fn(&[usize]) -> f64) -> f64 {
        self.law.iter().enumerate().map(|(state, mass)| mass * of(&self.present(state))).sum()
    }

    fn forwarded_per_s(&self, federation: &Federation) -> Vec<f64> {
        let pool = self.own.len();
        let lost = |i: usize| {
            let refused = |present: &[usize]| {
                f64::from(u8::from(present[i] + 1 == self.sizes[i] && present[pool] >= self.refused_from[i]))
            };
            federation.clouds[i].arrivals_per_s * self.mean(refused)
        };
        (0..pool).map(lost).collect()
    }
}

/// The stationary law of the chain that 0 reaches, by the method of Grassmann, Taksar and Heyman.
fn eliminate(mut rates: Vec<Vec<f64>>) -> Vec<f64> {
    let count = rates.len();
    for last in (1..count).rev() {
        let leaving: f64 = rates[last][..last].iter().sum();
        let row = rates[last].clone();
        for from in rates.iter_mut().take(last) {
            let share = from[last] / leaving;
            from[last] = share;
            if share > 0.0 {
                from.iter_mut().zip(&row).take(last).for_each(|(rate, onwards)| *rate += share * onwards);
            }
        }
    }
    let mut law = vec![1.0; count];
    for state in 1..count {
        law[state] = (0..state).map(|from| law[from] * rates[from][state]).sum();
    }
    let total: f64 = law.iter().sum();
    law.iter().map(|mass| mass / total).collect()
}

/// Loss of one queue by the definition of its weights, in the order that sums exactly enough: M/M/s/c.
fn loss(load: f64, servers: u64, capacity: u64) -> f64 {
    // Erlang's recursion, continued through the queue.
    (1..=capacity).fold(1.0, |loss, k| {
        let ratio = load / k.min(servers) as f64;
        ratio * loss / (1.0 + ratio * loss)
    })
}

fn small_cloud() -> impl Strategy<Value = Cloud> {
    let wait = prop_oneof![Just(0.0), Just(0.4), Just(1.0), Just(1.5)];
    (0.0..6.0, 0_u32..4, 0_u32..4, wait).prop_map(|(arrivals, servers, shared, longest_wait_s)| Cloud {
        // Some clouds have no demand.
        arrivals_per_s: if arrivals < 0.5 { 0.0 } else { arrivals },
        servers,
        shared: shared.min(servers),
        longest_wait_s,
    })
}

fn small_federation() -> impl Strategy<Value = Federation> {
    (prop_oneof![Just(1.0), Just(0.1), 0.3..3.0], prop::collection::vec(small_cloud(), 1..4))
        .prop_map(|(service_per_s, clouds)| Federation { service_per_s, clouds })
}

fn near(ours: f64, exact: f64) -> bool {
    (ours - exact).abs() <= 1e-10 * exact.abs().max(1.0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_chain_is_solved_as_by_elimination(federation in small_federation()) {
        let exact = Oracle::of(&federation);
        prop_assume!(exact.law.len() <= 1500);
        let ours = solved(&federation);
        for (ours, exact) in ours.forwarded_per_s.iter().zip(exact.forwarded_per_s(&federation)) {
            prop_assert!(near(*ours, exact), "{ours} for {exact}");
        }
        let pool = exact.own.len();
        let waiting = exact.mean(|present| (present[pool] as u64).saturating_sub(exact.servers) as f64);
        prop_assert!(near(ours.waiting_in_pool, waiting), "{} wait for {waiting}", ours.waiting_in_pool);
        let busy = exact.mean(|present| (present[pool] as u64).min(exact.servers) as f64);
        let in_pool: f64 = ours.in_pool_per_s.iter().sum();
        prop_assert!(near(in_pool, busy * federation.service_per_s), "{in_pool} served by {busy}");
        for (i, waiting) in ours.waiting_at_home.iter().enumerate() {
            let exact = exact.mean(|present| (present[i] as u64).saturating_sub(exact.own[i]) as f64);
            prop_assert!(near(*waiting, exact), "{waiting} for {exact}");
        }
    }

    #[test]
    fn what_arrives_is_served_or_forwarded(federation in small_federation()) {
        let ours = solved(&federation);
        for (i, cloud) in federation.clouds.iter().enumerate() {
            let parts = [ours.at_home_per_s[i], ours.in_pool_per_s[i], ours.forwarded_per_s[i]];
            prop_assert!(parts.iter().all(|part| *part >= 0.0), "{parts:?}");
            prop_assert!(near(parts.iter().sum(), cloud.arrivals_per_s), "{parts:?} of {}", cloud.arrivals_per_s);
        }
    }

    #[test]
    fn sharing_everything_is_best_for_equal_bounds(federation in small_federation(), wait in 0.0..2.0) {
        let mut federation = federation;
        federation.clouds.iter_mut().for_each(|cloud| cloud.longest_wait_s = wait);
        let partly = solved(&federation).total_per_s();
        federation.clouds.iter_mut().for_each(|cloud| cloud.shared = cloud.servers);
        prop_assert!(solved(&federation).total_per_s() <= partly + 1e-10);
    }

    #[test]
    fn the_order_of_the_clouds_does_not_matter(federation in small_federation()) {
        let straight = solved(&federation).forwarded_per_s;
        let mut turned = federation.clone();
        turned.clouds.reverse();
        for (a, b) in straight.iter().zip(solved(&turned).forwarded_per_s.iter().rev()) {
            prop_assert!(near(*a, *b), "{a} and {b}");
        }
    }

    #[test]
    fn more_servers_never_hurt_who_shares_everything(federation in small_federation(), wait in 0.0..2.0) {
        let mut federation = federation;
        for cloud in &mut federation.clouds {
            (cloud.shared, cloud.longest_wait_s) = (cloud.servers, wait);
        }
        let before = solved(&federation).total_per_s();
        federation.clouds[0].servers += 1;
        federation.clouds[0].shared += 1;
        prop_assert!(solved(&federation).total_per_s() <= before + 1e-12);
    }

    #[test]
    fn a_cloud_without_demand_and_servers_changes_nothing(federation in small_federation(), wait in 0.0..9.0) {
        let before = solved(&federation).forwarded_per_s;
        let mut more = federation.clone();
        more.clouds.push(Cloud { arrivals_per_s: 0.0, servers: 0, shared: 0, longest_wait_s: wait });
        let after = solved(&more).forwarded_per_s;
        prop_assert_eq!(after[before.len()], 0.0);
        for (a, b) in before.iter().zip(&after) {
            prop_assert!(near(*a, *b), "{a} and {b}");
        }
    }
}

#[test]
fn compressed_queues_answer_as_elimination() {
    let cases: [&[(f64, u32, u32, f64)]; 8] = [
        &[(55.0, 60, 20, 0.0)],
        &[(30.0, 60, 20, 0.0)],
        &[(120.0, 60, 20, 0.0)],
        &[(19.0, 18, 8, 2.0)],
        &[(8.0, 11, 1, 5.0)],
        &[(18.0, 18, 3, 0.0), (9.0, 10, 5, 0.0)],
        &[(14.0, 16, 1, 0.0), (5.0, 8, 3, 1.0)],
        &[(8.0, 8, 2, 1.0), (2.0, 3, 1, 0.0), (3.0, 1, 1, 0.5)],
    ];
    for clouds in cases {
        let federation = federation(clouds);
        let ours = solved(&federation);
        let Method::Chain { states, unknowns, .. } = ours.method else { panic!("{ours:?}") };
        assert!(unknowns < states, "{unknowns} of {states}");
        let exact = Oracle::of(&federation).forwarded_per_s(&federation);
        for (ours, exact) in ours.forwarded_per_s.iter().zip(exact) {
            assert!((ours - exact).abs() < 1e-11 * (1.0 + exact), "{ours} for {exact} of {clouds:?}");
        }
    }
}

#[test]
fn one_cloud_is_a_queue_of_textbooks() {
    for (load, servers, wait) in
        [(0.5, 1, 0.0), (30.0, 50, 0.0), (150.0, 50, 2.0), (100.0, 100, 1.0), (1e4, 10_000, 3.0)]
    {
        let one = federation(&[(load, servers, 0, wait)]);
        let capacity = capacity(u64::from(servers), 1.0, wait);
        let exact = load * loss(load, u64::from(servers), capacity);
        let ours = solved(&one);
        assert!((ours.forwarded_per_s[0] / exact - 1.0).abs() < 1e-9, "{ours:?} for {exact}");
        assert_eq!(ours.method, Method::ProductForm);
    }
}

#[test]
fn a_million_servers_and_a_billion_waiting_requests_take_no_time() {
    let many = federation(&[(1e6, 1_000_000, 1_000_000, 0.0), (1.1e6, 1_000_000, 1_000_000, 1000.0)]);
    let ours = solved(&many);
    // 2 million servers under 2.1 million requests/s are all but never idle, so 0.1 million are lost, all of
    // them impatient: the queue beyond the servers is left to the patient alone, and short.
    let (impatient, patient) = (ours.forwarded_per_s[0], ours.forwarded_per_s[1]);
    assert!(patient == 0.0 && impatient > 1e5 && impatient < 1e5 + 30.0, "{ours:?}");
}

#[test]
fn every_way_of_sharing_among_loaded_clouds_is_solved() {
    for (loads, waits) in [((20.0, 19.0), (0.0, 1.0)), ((60.0, 1.0), (2.0, 0.0)), ((20.0, 20.0), (1.0, 1.0))]
    {
        for (a, b) in [(0, 20), (1, 19), (10, 10), (19, 1), (20, 1), (5, 0)] {
            let ours = solved(&federation(&[(loads.0, 20, a, waits.0), (loads.1, 20, b, waits.1)]));
            let Method::Chain { residual, .. } = ours.method else { continue };
            assert!(residual < 1e-12, "{residual}");
        }
    }
}

#[test]
fn decimals_fill_a_queue_as_they_read() {
    // In doubles 3 * (0.1 * 10) is 3, but 10 * (0.7 * 0.1) is 0.7000000000000001 and 49 * (1/49) is below 1.
    assert_eq!(capacity(3, 0.1, 10.0), 6);
    assert_eq!(capacity(10, 0.7, 0.1), 10);
    assert_eq!(capacity(49, 1.0, 1.0 / 49.0), 50);
    assert_eq!(capacity(100, 0.1, 0.3), 103);
    assert_eq!(capacity(50, 1.0, 0.0), 50);
    assert_eq!(capacity(50, 1.0, 0.019), 50);
    assert_eq!(capacity(50, 1.0, 0.02), 51);
    assert_eq!(capacity(0, 1.0, 1e300), 0);
}

#[test]
fn a_chain_above_the_limit_is_counted_not_solved() {
    let large = federation(&[(50.0, 50, 25, 1.0), (50.0, 50, 25, 1.0), (50.0, 50, 25, 1.0)]);
    let limits = Limits { most_states: 1000 };
    let error = overflow(&large, &limits).unwrap_err();
    let Unsolved::TooManyStates { states, unknowns, most_states } = error else { panic!("{error}") };
    assert_eq!((states, most_states), (51 * 51 * 51 * 151, 1000));
    assert!(unknowns > 1000 && unknowns < states / 10);
    assert!(error.to_string().contains("20030301 states"), "{error}");
    // However many clouds: counting does not overflow, and takes no memory.
    let many = federation(&[(25.0, 50, 25, 0.0); 50]);
    let error = overflow(&many, &limits).unwrap_err();
    assert!(matches!(error, Unsolved::TooManyStates { unknowns: u64::MAX, .. }), "{error}");
}

#[test]
fn bad_numbers_are_refused_with_the_place() {
    let good = Cloud { arrivals_per_s: 1.0, servers: 2, shared: 1, longest_wait_s: 0.0 };
    let refused = |service_per_s: f64, clouds: Vec<Cloud>| {
        let error = overflow(&Federation { service_per_s, clouds }, &Limits::default()).unwrap_err();
        assert!(matches!(error, Unsolved::Input(_)), "{error}");
        error.to_string()
    };
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(refused(rate, vec![good]).contains("service rate"));
    }
    assert!(refused(1.0, vec![]).contains("no clouds"));
    let second = |cloud| refused(1.0, vec![good, cloud]);
    let sharing = second(Cloud { shared: 3, ..good });
    assert!(sharing.contains("cloud 2") && sharing.contains("shares 3 servers and owns 2"), "{sharing}");
    for arrivals_per_s in [-1.0, f64::NAN, f64::INFINITY] {
        assert!(second(Cloud { arrivals_per_s, ..good }).contains("arrivals"));
    }
    for longest_wait_s in [-1.0, f64::NAN, f64::INFINITY, 1e300] {
        assert!(second(Cloud { longest_wait_s, ..good }).contains("wait"));
    }
}
