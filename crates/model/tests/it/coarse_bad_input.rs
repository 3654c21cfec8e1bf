//! What no coarse model can use is refused in words.

use bellwether_core::InputError;
use bellwether_core::prediction::Link;
use bellwether_core::profile::CollectiveCost;
use bellwether_model::collective::{
    Algorithm, Bucket, DirectExchange, all_reduce_s, hierarchical_s, overlap, partial_sums,
};
use bellwether_model::compute::{
    BatchTime, Durations, exponential_maximum_s, gaussian_maximum_bound_s, most_virtual_nodes,
};
use bellwether_model::phase::{Gossip, Servers, synchronous_all_reduce, synchronous_servers};
use bellwether_model::queueing::{
    Class, ClosedNetwork, Shares, bounds, exact, fork_join, low_variance, multiclass, multiclass_exact,
};

/// The error's text, which must say what to do.
fn refused<T: std::fmt::Debug>(result: Result<T, InputError>, what: &str) {
    let error = result.expect_err("this must be refused");
    assert!(error.to_string().contains(what), "{error}");
    assert!(!error.hint.is_empty(), "{error}");
}

const LINK: Link = Link { bandwidth_bytes_per_s: 1e9, latency_s: 0.0 };

#[test]
fn by_queueing() {
    refused(ClosedNetwork::new(-1.0, &[1.0]), "the delay in seconds is -1");
    refused(ClosedNetwork::new(1.0, &[f64::NAN]), "NaN");
    refused(ClosedNetwork::new(1.0, &[f64::INFINITY]), "inf");
    refused(ClosedNetwork::new(0.0, &[0.0]), "the step in seconds is 0");
    refused(ClosedNetwork::new(1e308, &[1e308]), "the step in seconds is inf");
    refused(ClosedNetwork::of_lone_step(-0.1, &[]), "lone worker");
    let network = ClosedNetwork::new(1.0, &[0.1]).unwrap();
    refused(exact(&network, 0), "number of workers is 0");
    refused(exact(&network, u32::MAX), "from 1 to 1000000");
    refused(low_variance(&network, 1.5, 2), "1.5");
    refused(low_variance(&network, f64::NAN, 2), "NaN");
    refused(bounds(&network, 0), "number of workers is 0");
    refused(Shares::new(&[]), "no parameters");
    refused(Shares::new(&[0.0]), "no parameters");
    refused(Shares::new(&[1.0, -1.0]), "-1");
    refused(Shares::equal(0), "number of servers is 0");
    refused(Shares::equal(u32::MAX), "number of servers");
    refused(fork_join(-1.0, &[1.0], &Shares::equal(1).unwrap()), "delay");
    let class = |workers, demands_s: &[f64]| Class { workers, delay_s: 1.0, demands_s: demands_s.to_vec() };
    refused(multiclass(&[]), "no workers");
    refused(multiclass(&[class(0, &[1.0])]), "no workers");
    refused(multiclass(&[class(1, &[1.0]), class(1, &[])]), "kind 1 of workers: it visits 0 stations");
    refused(multiclass(&[class(1, &[-1.0])]), "demand");
    refused(multiclass(&[class(u32::MAX, &[1.0])]), "number of workers");
    refused(multiclass_exact(&[class(1_000_000, &[1.0, 2.0])]), "more than 1000000");
    // Too many for 64 bits.
    refused(multiclass_exact(&vec![class(1_000_000, &[1.0]); 5]), "more than 1000000");
}

#[test]
fn by_collectives() {
    let without = Link { bandwidth_bytes_per_s: 0.0, ..LINK };
    let early = Link { latency_s: -1.0, ..LINK };
    refused(all_reduce_s(Algorithm::Ring, 2, 1, &without), "bandwidth of the link in bytes/s is 0");
    refused(all_reduce_s(Algorithm::Ring, 2, 1, &early), "latency");
    refused(all_reduce_s(Algorithm::Tree, 0, 1, &LINK), "number of workers is 0");
    refused(hierarchical_s(&[], 1, &LINK, &LINK), "number of workers is 0");
    refused(hierarchical_s(&[2, 2], 1, &without, &LINK), "bandwidth");
    let bucket = |ready_s, exchange_s| Bucket { ready_s, exchange_s };
    refused(overlap(&[bucket(2.0, 1.0)], 1.0), "bucket 0: it is ready after 2 s");
    refused(overlap(&[bucket(0.0, 1.0), bucket(f64::NAN, 1.0)], 1.0), "bucket 1");
    refused(overlap(&[bucket(0.0, -1.0)], 1.0), "bucket 0: its exchange in seconds is -1");
    refused(overlap(&[], f64::NAN), "backward pass");
    refused(partial_sums(2, 3), "3 workers cannot share 2 virtual nodes");
    refused(partial_sums(u32::MAX, 3), "virtual nodes");
    refused(DirectExchange::new(4, 0, 1), "0 workers");
    let exchange = DirectExchange::new(4, 2, 1).unwrap();
    let cost = CollectiveCost { s_per_byte: 0.0, fixed_s: 0.0 };
    refused(exchange.seconds(&without, &cost), "bandwidth");
    refused(exchange.seconds(&LINK, &CollectiveCost { s_per_byte: -1.0, ..cost }), "per byte");
    refused(exchange.seconds(&LINK, &CollectiveCost { fixed_s: f64::NAN, ..cost }), "fixed cost");
}

#[test]
fn by_compute_and_phases() {
    refused(Durations::new(&[]), "no measured steps");
    refused(Durations::new(&[1.0, -1.0]), "-1");
    refused(Durations::new(&[1.0]).unwrap().scaled(0.0), "factor");
    refused(exponential_maximum_s(-1.0, 2), "mean");
    refused(gaussian_maximum_bound_s(1.0, -1.0, 2), "standard deviation");
    refused(BatchTime::fit(&[]), "0 different batches");
    refused(BatchTime::fit(&[(1, 1.0), (2, 0.0)]), "seconds is 0");
    refused(BatchTime::fit(&[(1, 1e-200), (2, 1e-200)]), "no line");
    refused(most_virtual_nodes(4, 5), "5 workers cannot share 4 virtual nodes");
    assert_eq!(most_virtual_nodes(8, 3), Ok(3));
    let without = Link { bandwidth_bytes_per_s: 0.0, ..LINK };
    let shares = Shares::equal(1).unwrap();
    let servers = Servers { shares, server_link: LINK, worker_link: LINK, update_s: 0.0 };
    refused(synchronous_servers(1.0, 0, 1, &servers, 0.0), "number of workers is 0");
    refused(synchronous_servers(-1.0, 1, 1, &servers, 0.0), "slowest");
    refused(synchronous_servers(1.0, 1, 1, &servers, -1.0), "hidden");
    refused(
        synchronous_servers(1.0, 1, 1, &Servers { server_link: without, ..servers.clone() }, 0.0),
        "bandwidth of a server",
    );
    refused(
        synchronous_servers(1.0, 1, 1, &Servers { worker_link: without, ..servers.clone() }, 0.0),
        "bandwidth of a worker",
    );
    refused(synchronous_servers(0.0, 1, 0, &servers, 0.0), "the step in seconds is 0");
    refused(synchronous_all_reduce(0.0, 0.0, 0.0, 0.0), "the step in seconds is 0");
    refused(synchronous_all_reduce(1.0, 0.0, -1.0, 0.0), "exchange");
    let gossip = Gossip { compute_s: 1.0, bytes: 1, link: LINK, overlapped: false, begun_by_others: 1.0 };
    refused(gossip.step(0), "number of workers is 0");
    refused(Gossip { link: without, ..gossip }.step(2), "bandwidth");
    refused(Gossip { begun_by_others: -1.0, ..gossip }.step(2), "others");
}
