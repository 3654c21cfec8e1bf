//! Coarse models against numbers that were worked out another way: tables, exact theory, by hand.

use bellwether_core::prediction::{Bottleneck, Link};
use bellwether_core::profile::CollectiveCost;
use bellwether_model::collective::{
    Algorithm, Bucket, DirectExchange, all_reduce_s, hierarchical_s, overlap, partial_sums,
};
use bellwether_model::compute::{BatchTime, Durations, exponential_maximum_s, gaussian_maximum_bound_s};
use bellwether_model::phase::{Gossip, Servers, synchronous_all_reduce, synchronous_servers};
use bellwether_model::queueing::{
    Class, ClosedNetwork, Shares, bounds, exact, fork_join, lockstep_per_s, low_variance, multiclass_exact,
};

fn close(value: f64, expected: f64, tolerance: f64) {
    assert!((value - expected).abs() <= tolerance, "{value}, expected {expected} +- {tolerance}");
}

/// Workers, exact mean-value analysis, upper bound, all fixed times from a common start; C = 0.6 s, D = U = 0.2 s.
/// The analysis was recomputed in rational arithmetic, and a simulation with exponential times agreed with it.
const TABLE: [(u32, f64, f64, f64); 6] = [
    (1, 1.000, 1.0, 1.000),
    (2, 1.852, 2.0, 1.429),
    (3, 2.547, 3.0, 1.667),
    (4, 3.090, 4.0, 1.818),
    (6, 3.797, 5.0, 2.000),
    (8, 4.170, 5.0, 2.105),
];

#[test]
fn the_reference_table_to_three_decimals() {
    let network = ClosedNetwork::new(0.6, &[0.2, 0.2]).unwrap();
    for (workers, analysis, bound, lockstep) in TABLE {
        close(exact(&network, workers).unwrap().throughput_per_s, analysis, 5e-4);
        let at = bounds(&network, workers).unwrap();
        close(at.upper_per_s, bound, 1e-12);
        close(at.knee, 5.0, 1e-12);
        close(lockstep_per_s(&network, workers).unwrap(), lockstep, 5e-4);
        close(
            lockstep_per_s(&network, workers).unwrap(),
            f64::from(workers) / (0.6 + 0.4 * f64::from(workers)),
            1e-12,
        );
    }
}

#[test]
fn low_variance_with_variation_one_is_exact_analysis() {
    let network = ClosedNetwork::new(0.6, &[0.2, 0.1, 0.05]).unwrap();
    for workers in 1..=40 {
        let (one, other) = (exact(&network, workers).unwrap(), low_variance(&network, 1.0, workers).unwrap());
        close(one.throughput_per_s, other.throughput_per_s, 1e-12);
    }
}

/// Throughput of `workers` with exponential computing of mean `delay_s` at one first-come station of fixed time: the
/// finite-source queue M/D/1//N, solved exactly (L. Takacs, Introduction to the Theory of Queues, 1962, ch. 5).
fn finite_source_fixed_time_per_s(delay_s: f64, demand_s: f64, workers: u32) -> f64 {
    let (mut sum, mut choose, mut product) = (0.0, 1.0, 1.0);
    for n in 0..workers {
        sum += choose * product;
        choose *= f64::from(workers - 1 - n) / f64::from(n + 1);
        product *= (f64::from(n + 1) * demand_s / delay_s).exp() - 1.0;
    }
    let idle = 1.0 / (1.0 + f64::from(workers) * demand_s / delay_s * sum);
    (1.0 - idle) / demand_s
}

#[test]
fn low_variance_and_exact_analysis_hold_the_queue_with_fixed_times_between_them() {
    let (mut steady_errors, mut exponential_errors) = (Vec::new(), Vec::new());
    for demand_s in [0.02, 0.05, 0.1, 0.2, 0.5, 1.0] {
        let network = ClosedNetwork::new(1.0, &[demand_s]).unwrap();
        for workers in 1..=30 {
            let truth = finite_source_fixed_time_per_s(1.0, demand_s, workers);
            let steady = low_variance(&network, 0.0, workers).unwrap().throughput_per_s / truth - 1.0;
            let exponential = exact(&network, workers).unwrap().throughput_per_s / truth - 1.0;
            // One form is never below the truth, the other never above; both by 6 % at most, at the knee.
            assert!((-1e-9..0.06).contains(&steady), "{demand_s} s, {workers} workers: {steady}");
            assert!((-0.06..1e-9).contains(&exponential), "{demand_s} s, {workers} workers: {exponential}");
            steady_errors.push(steady.abs());
            exponential_errors.push(exponential.abs());
        }
    }
    let mean = |errors: &[f64]| errors.iter().sum::<f64>() / errors.len() as f64;
    let (steady, exponential) = (mean(&steady_errors), mean(&exponential_errors));
    assert!(steady < 0.5 * exponential, "{steady} against {exponential} without the correction");
    // The oracle itself: two workers, D = Z = 1: idle = 1 / (1 + 2 (1 + (e - 1))) = 1 / (1 + 2 e).
    close(finite_source_fixed_time_per_s(1.0, 1.0, 2), 1.0 - 1.0 / (1.0 + 2.0 * 1f64.exp()), 1e-12);
}

/// Throughput of the network of the table with first-come links of fixed time and computing of coefficient of variation
/// 0.3: simulated, 95 % half-widths at most 0.003.
const FIRST_COME: [(u32, f64); 6] = [(1, 1.0), (2, 1.966), (3, 2.888), (4, 3.744), (6, 4.922), (8, 5.0)];

#[test]
fn low_variance_lies_between_exact_analysis_and_steady_computing() {
    let network = ClosedNetwork::new(0.6, &[0.2, 0.2]).unwrap();
    for (workers, simulated) in FIRST_COME {
        let steady = low_variance(&network, 0.0, workers).unwrap().throughput_per_s;
        let exponential = exact(&network, workers).unwrap().throughput_per_s;
        assert!(steady >= exponential && steady <= simulated + 0.003, "{workers}: {steady}, {simulated}");
        assert!(simulated - steady <= 0.51 * (simulated - exponential) + 0.003, "{workers}: {steady}");
    }
}

#[test]
fn capped_throughput_keeps_littles_law() {
    for demands_s in [[0.2, 0.2, 0.05], [0.5, 0.1, 0.05]] {
        let network = ClosedNetwork::new(0.3, &demands_s).unwrap();
        for (workers, variation) in (1..=50).flat_map(|workers| [0.0, 0.5, 1.0].map(|v| (workers, v))) {
            let solution = low_variance(&network, variation, workers).unwrap();
            let everybody = solution.throughput_per_s * 0.3 + solution.queue_lengths.iter().sum::<f64>();
            close(everybody, f64::from(workers), 1e-9 * f64::from(workers));
        }
    }
    // The cap is reached.
    let network = ClosedNetwork::new(0.3, &[0.5, 0.1, 0.05]).unwrap();
    assert_eq!(low_variance(&network, 0.0, 4).unwrap().throughput_per_s, 2.0);
}

#[test]
fn two_kinds_of_workers_by_hand() {
    // One of each at one station of 1 s each, delays 1 s and 3 s. Alone: Q = 1/2 and 1/4. Together each sees the
    // other: R = 1.25 and 1.5, so X = 1/2.25 and 1/4.5.
    let class = |delay_s| Class { workers: 1, delay_s, demands_s: vec![1.0] };
    let solution = multiclass_exact(&[class(1.0), class(3.0)]).unwrap();
    close(solution.throughput_per_s[0], 1.0 / 2.25, 1e-12);
    close(solution.throughput_per_s[1], 1.0 / 4.5, 1e-12);
    close(solution.queue_lengths[0], 1.25 / 2.25 + 1.5 / 4.5, 1e-12);
}

#[test]
fn unequal_servers_are_bounded_by_the_fullest() {
    // 70 % on one of three servers: the others are below 80 % of it and never delay a step.
    let shares = Shares::new(&[70.0, 20.0, 10.0]).unwrap();
    let network = fork_join(1.0, &[0.5, 0.5], &shares).unwrap();
    assert_eq!(network.demands_s(), [0.35, 0.35]);
    close(bounds(&network, 100).unwrap().upper_per_s, 1.0 / 0.35, 1e-9);
    // Two equal servers: both are stations, and a lone step is still 1 + 0.25 + 0.25.
    let network = fork_join(1.0, &[0.5, 0.5], &Shares::equal(2).unwrap()).unwrap();
    assert_eq!(network.demands_s().len(), 4);
    close(network.lone_step_s(), 1.5, 1e-12);
    // Too little delay to take the second server's time off: only the largest remains.
    let network = fork_join(0.1, &[0.5, 0.5], &Shares::equal(2).unwrap()).unwrap();
    assert_eq!(network.demands_s(), [0.25, 0.25]);
    close(network.lone_step_s(), 0.6, 1e-12);
}

#[test]
fn a_lone_step_absorbs_what_it_hides() {
    let network = ClosedNetwork::of_lone_step(1.0, &[0.2, 0.3]).unwrap();
    close(network.delay_s(), 0.5, 1e-12);
    close(ClosedNetwork::of_lone_step(0.4, &[0.2, 0.3]).unwrap().delay_s(), 0.0, 0.0);
}

#[test]
fn all_reduces_by_hand() {
    let link = Link { bandwidth_bytes_per_s: 1e9, latency_s: 1e-3 };
    let seconds = |algorithm, workers| all_reduce_s(algorithm, workers, 100_000_000, &link).unwrap();
    close(seconds(Algorithm::Ring, 5), 1.6 * 0.1 + 8e-3, 1e-12);
    close(seconds(Algorithm::Direct, 5), 1.6 * 0.1 + 2e-3, 1e-12);
    close(seconds(Algorithm::Tree, 5), 6.0 * 0.101, 1e-12);
    close(seconds(Algorithm::RecursiveDoubling, 5), 3.0 * 0.101, 1e-12);
    // Two nodes of four at 10 GB/s inside: 1.5 * 0.01 + 6 * 10 us, then the ring of two nodes.
    let local = Link { bandwidth_bytes_per_s: 1e10, latency_s: 1e-5 };
    let two_levels = hierarchical_s(&[4, 0, 4], 100_000_000, &local, &link).unwrap();
    close(two_levels, 0.015 + 6e-5 + 0.1 + 2e-3, 1e-12);
}

#[test]
fn partial_sums_by_hand() {
    // Three workers of eight nodes hold [0,2), [2,5) and [5,8): {01}, {23}{4}, {5}{67}.
    for (nodes, workers, expected) in [
        (8, 3, vec![1, 2, 2]),
        (8, 4, vec![1, 1, 1, 1]),
        (8, 1, vec![1]),
        (6, 2, vec![2, 2]),
        (6, 3, vec![1, 1, 1]),
        (5, 2, vec![1, 2]),
        (16, 3, vec![2, 3, 2]),
        (1, 1, vec![1]),
    ] {
        assert_eq!(partial_sums(nodes, workers).unwrap(), expected, "{nodes} nodes, {workers} workers");
    }
}

#[test]
fn the_runtimes_exchange_by_hand() {
    let link = Link { bandwidth_bytes_per_s: 1e6, latency_s: 0.01 };
    let free = CollectiveCost { s_per_byte: 0.0, fixed_s: 0.0 };
    // Aligned ranges: as direct.
    let seconds = DirectExchange::new(8, 4, 4_000_000).unwrap().seconds(&link, &free).unwrap();
    close(seconds, all_reduce_s(Algorithm::Direct, 4, 4_000_000, &link).unwrap(), 1e-9);
    // Two partial sums each: twice half the vector, and the result of the own half.
    close(DirectExchange::new(6, 2, 4_000_000).unwrap().link_bytes(), 6e6, 1e-6);
    // Two, three and two partial sums: the second worker sends 3 * 2/3 and 2/3 of the vector, and gets 4/3 and 2/3.
    let uneven = DirectExchange::new(16, 3, 3_000_000).unwrap();
    close(uneven.link_bytes(), 8e6, 1e-6);
    let handling = CollectiveCost { s_per_byte: 1.0, fixed_s: 0.0 };
    close(uneven.seconds(&link, &handling).unwrap(), (8e6 + 6e6) / 2.0 + 0.02, 1e-6);
    // Small: the whole vector to each of three peers, one hop.
    let seconds = DirectExchange::new(8, 4, 10_000).unwrap().seconds(&link, &free).unwrap();
    close(seconds, 0.03 + 0.01, 1e-12);
    // Slow handling bounds it: with two workers, the vector; the fixed cost once per peer.
    let cost = CollectiveCost { s_per_byte: 1e-5, fixed_s: 0.5 };
    close(
        DirectExchange::new(8, 2, 1_000_000).unwrap().seconds(&link, &cost).unwrap(),
        10.0 + 0.02 + 0.5,
        1e-9,
    );
    // Eight groups of eight owners: within them 7/8 of the vector and back; then 7 of the segment's 8 pieces go to the
    // other groups, and one's result to each of them.
    let grouped = DirectExchange::new(64, 64, 64_000_000).unwrap();
    close(grouped.link_bytes(), 64e6 * (7.0 / 8.0 + 7.0 / 8.0 + 2.0 * 7.0 / 64.0), 1e-6);
    // Four hops, and 14 peers.
    let idle = CollectiveCost { s_per_byte: 0.0, fixed_s: 0.5 };
    close(grouped.seconds(&link, &idle).unwrap(), grouped.link_bytes() / 1e6 + 0.04 + 7.0, 1e-9);
    // Small: to seven of the group, and the sum of the group to seven others.
    let small = DirectExchange::new(64, 64, 4_000).unwrap();
    close(small.link_bytes(), 4_000.0 * 14.0, 1e-9);
    close(small.seconds(&link, &free).unwrap(), 0.056 + 0.02, 1e-12);
    // A lone worker exchanges nothing.
    close(DirectExchange::new(8, 1, 1_000_000).unwrap().seconds(&link, &cost).unwrap(), 0.0, 0.0);
}

#[test]
fn overlap_by_hand() {
    let bucket = |ready_s, exchange_s| Bucket { ready_s, exchange_s };
    // Ready at 1, 2, 3, each 1.5: ends at 2.5, 4.0, 5.5; the backward pass ends at 3.
    let late = overlap(&[bucket(1.0, 1.5), bucket(2.0, 1.5), bucket(3.0, 1.5)], 3.0).unwrap();
    close(late.finish_s, 5.5, 1e-12);
    close(late.exposed_s, 2.5, 1e-12);
    close(late.hidden_s, 2.0, 1e-12);
    let hidden = overlap(&[bucket(0.0, 0.5)], 3.0).unwrap();
    assert_eq!((hidden.exposed_s, hidden.hidden_s), (0.0, 0.5));
}

#[test]
fn phases_by_hand() {
    let link = |bandwidth_bytes_per_s| Link { bandwidth_bytes_per_s, latency_s: 0.0 };
    let shares = Shares::new(&[3.0, 1.0]).unwrap();
    let servers = Servers { shares, server_link: link(1e9), worker_link: link(1e8), update_s: 0.1 };
    // Two workers, 100 MB: 0.15 s at the fullest server, but 1 s at a worker's own link.
    let step = synchronous_servers(0.5, 2, 100_000_000, &servers, 0.0).unwrap();
    close(step.step_s, 0.5 + 2.0 + 0.1, 1e-12);
    assert_eq!(step.bottleneck, Bottleneck::Link);
    // Twenty workers: 1.5 s at the server.
    close(
        synchronous_servers(0.5, 20, 100_000_000, &servers, 0.4).unwrap().step_s,
        0.5 + 3.0 - 0.4 + 0.1,
        1e-12,
    );
    // More hidden than there is hides all.
    close(synchronous_all_reduce(1.0, 0.1, 0.3, 9.0).unwrap().step_s, 1.1, 1e-12);
    let gossip = |overlapped, begun_by_others| {
        let gossip =
            Gossip { compute_s: 0.5, bytes: 100_000_000, link: link(1e8), overlapped, begun_by_others };
        gossip.step(4).unwrap().step_s
    };
    close(gossip(false, 0.0), 1.5, 1e-12);
    close(gossip(true, 0.0), 1.0, 1e-12);
    close(gossip(false, 1.0), 2.0, 1e-12);
    close(synchronous_all_reduce(1.0, 0.0, 1.0, 0.0).unwrap().examples_per_s(4, 32), 64.0, 1e-12);
}

#[test]
fn order_statistics_by_hand() {
    let durations = Durations::new(&[0.3, 0.1, 0.2, 0.9]).unwrap();
    let mut total = 0.0;
    for a in [0.3, 0.1, 0.2, 0.9] {
        for b in [0.3, 0.1, 0.2, 0.9] {
            for c in [0.3f64, 0.1, 0.2, 0.9] {
                total += c.max(a).max(b) / 64.0;
            }
        }
    }
    close(durations.expected_maximum_s(3), total, 1e-12);
    close(durations.mean_s(), 0.375, 1e-12);
    close(durations.percentile_s(0.5), 0.25, 1e-12);
    close(exponential_maximum_s(2.0, 4).unwrap(), 2.0 * (1.0 + 0.5 + 1.0 / 3.0 + 0.25), 1e-12);
    // The expansion meets the sum.
    close(
        exponential_maximum_s(1.0, 1_001).unwrap(),
        exponential_maximum_s(1.0, 1_000).unwrap() + 1.0 / 1_001.0,
        1e-12,
    );
    close(gaussian_maximum_bound_s(1.0, 0.1, 1).unwrap(), 1.0, 1e-12);
    close(gaussian_maximum_bound_s(1.0, 0.1, 8).unwrap(), 1.0 + 0.1 * (2.0 * 8f64.ln()).sqrt(), 1e-12);
}

#[test]
fn line_and_floor_are_found() {
    let truth = BatchTime { fixed_s: 0.01, per_sample_s: 0.002, floor_s: 0.1 };
    let points: Vec<(u64, f64)> = [8, 16, 32, 64, 128, 256].iter().map(|&s| (s, truth.seconds(s))).collect();
    let found = BatchTime::fit(&points).unwrap();
    close(found.floor_s, 0.1, 1e-9);
    close(found.fixed_s, 0.01, 1e-9);
    close(found.per_sample_s, 0.002, 1e-9);
    // Without a floor in the data there is none in the fit, and no negative intercept.
    let line = BatchTime::fit(&[(1, 0.5), (2, 1.0), (4, 2.0)]).unwrap();
    assert_eq!(line.floor_s, 0.0);
    close(line.fixed_s, 0.0, 1e-12);
    assert!(BatchTime::fit(&[(8, 1.0), (8, 1.1)]).is_err());
}
