//! Staleness against exact simulation: delayed descent on a quadratic, and training through simulated servers.

use bellwether_core::prediction::Protocol;
use bellwether_core::profile::OperationKind;
use bellwether_des::Streams;
use bellwether_model::event::{Outcome, Setting, TransmissionOrder, simulate};
use bellwether_model::staleness::{Sensitivity, expected, implicit_momentum, most, slowdown, stable_rate};
use proptest::prelude::*;

use crate::event_profiles::{Graph, phases};

/// Delayed descent with momentum on one curvature, from 1; the size of what is left after `steps`.
fn descend(rate: f64, staleness: usize, momentum: f64, steps: usize) -> f64 {
    let (mut path, mut velocity) = (vec![1.0; staleness + 1], 0.0);
    for _ in 0..steps {
        velocity = momentum * velocity - rate * path[path.len() - 1 - staleness];
        path.push(path[path.len() - 1] + velocity);
        if path[path.len() - 1].abs() > 1e12 {
            return f64::INFINITY;
        }
    }
    path[path.len() - 20 - staleness..].iter().map(|w: &f64| w.abs()).fold(0.0, f64::max)
}

#[test]
fn a_little_below_the_stable_rate_descends_and_a_little_above_it_diverges() {
    for momentum in [0.0, 0.5, 0.9, 0.97] {
        for staleness in [0, 1, 2, 3, 7, 15, 31] {
            let bound = stable_rate(staleness as f64, momentum).unwrap();
            let (below, above) = (
                descend(0.98 * bound, staleness, momentum, 40_000),
                descend(1.02 * bound, staleness, momentum, 40_000),
            );
            assert!(below < 1e-3, "momentum {momentum}, staleness {staleness}: {below} below {bound}");
            assert!(above > 1e3, "momentum {momentum}, staleness {staleness}: {above} above {bound}");
        }
    }
}

#[test]
fn known_bounds_are_found() {
    for staleness in [0.0_f64, 1.0, 4.0, 30.0] {
        let known = 2.0 * (std::f64::consts::FRAC_PI_2 / (2.0 * staleness + 1.0)).sin();
        assert!((stable_rate(staleness, 0.0).unwrap() - known).abs() < 1e-12);
    }
    for momentum in [0.0, 0.5, 0.9] {
        // Heavy ball without delay: 2 (1 + momentum).
        assert!((stable_rate(0.0, momentum).unwrap() - 2.0 * (1.0 + momentum)).abs() < 1e-9);
    }
}

/// Steps of noise-free descent on a flat and a steep direction to a loss, with the best of many rates.
fn best_steps(staleness: usize, momentum: f64) -> f64 {
    const CURVATURES: [f64; 2] = [1.0, 0.002];
    let reach = |rate: f64| {
        let mut paths = CURVATURES.map(|_| vec![1.0; staleness + 1]);
        let mut velocities = [0.0; 2];
        (0..200_000).find(|_| {
            let mut loss = 0.0;
            for ((path, velocity), curvature) in paths.iter_mut().zip(&mut velocities).zip(CURVATURES) {
                let now: f64 = path[path.len() - 1];
                loss += curvature * now * now;
                *velocity = momentum * *velocity - rate * curvature * path[path.len() - 1 - staleness];
                path.push(now + *velocity);
            }
            if loss > 1e9 { true } else { loss <= 1e-6 }
        })
    };
    let bound = stable_rate(staleness as f64, momentum).expect("a rate");
    let tried = (1..60).map(|part| bound * f64::from(part) / 60.0);
    tried.filter_map(reach).min().expect("a small rate reaches it") as f64
}

/// The law is of the edge of stability; the best rate lies a little below it, so the ratio of best steps is near rho.
#[test]
fn the_best_rates_slow_down_as_the_law_says() {
    for momentum in [0.0, 0.5] {
        let without = best_steps(0, momentum);
        for staleness in [1, 3, 7, 15] {
            let simulated = best_steps(staleness, momentum) / without;
            let law = slowdown(staleness as f64, momentum, momentum).unwrap();
            println!("momentum {momentum}, staleness {staleness}: simulated {simulated:.2}, law {law:.2}");
            assert!((0.7..1.4).contains(&(law / simulated)), "{momentum} {staleness}: {simulated} {law}");
        }
    }
}

/// Delays drawn again for every update, geometric with mean W - 1: the mean path is that of the implicit momentum.
#[test]
fn asynchrony_begets_momentum() {
    const WORKERS: u32 = 4;
    let (rate, steps, runs) = (0.3, 40, 20_000);
    let momentum = implicit_momentum(WORKERS);
    let (mut with_momentum, mut velocity) = (vec![1.0], 0.0);
    for step in 0..steps {
        velocity = momentum * velocity - rate / f64::from(WORKERS) * with_momentum[step];
        with_momentum.push(with_momentum[step] + velocity);
    }
    let streams = Streams::new(1);
    let mut mean = vec![0.0; steps + 1];
    for run in 0..runs {
        let mut draws = streams.stream("delay", run);
        let mut path = vec![1.0_f64];
        for step in 0..steps {
            let delay = (draws.uniform().ln() / momentum.ln()).floor() as usize;
            // Before the begin nothing was to be descended: that is the momentum's rest.
            let gradient = step.checked_sub(delay).map_or(0.0, |from| path[from]);
            path.push(path[step] - rate * gradient);
        }
        mean.iter_mut().zip(&path).for_each(|(sum, value)| *sum += value / runs as f64);
    }
    for (step, (simulated, expected)) in mean.iter().zip(&with_momentum).enumerate() {
        assert!((simulated - expected).abs() < 0.02, "step {step}: {simulated} {expected}");
    }
}

/// Workers with unequal steps, one part; `bandwidth` of each link.
fn trained(protocol: Protocol, workers: u32, bandwidth: f64) -> Outcome {
    let profile = phases(1_000_000, &[0.5, 0.9, 1.0, 1.1, 1.5], bandwidth);
    let setting = Setting {
        workers,
        protocol,
        server_link_bytes_per_s: bandwidth,
        worker_link_bytes_per_s: bandwidth,
        steps: 20_000,
        relative_half_width: 0.0,
        ..Setting::default()
    };
    simulate(&profile, &setting).expect("an outcome")
}

/// From asking to applying is the whole cycle of a worker, so that each update of any other falls into exactly one.
#[test]
fn simulated_workers_are_as_stale_as_expected() {
    for workers in [1, 2, 8] {
        // From links that are hardly used to such that are always full.
        for bandwidth in [1e9, 1e7, 1e6] {
            let asp = trained(Protocol::Asp, workers, bandwidth).mean_staleness().unwrap();
            let law = expected(Protocol::Asp, workers).unwrap();
            assert!((asp - law).abs() <= 0.01 * law, "{workers} workers: {asp} of {law}");
            // A blocked worker has not asked yet, so that its gradient is less stale.
            for bound in [1, 4, 100] {
                let mean = trained(Protocol::Ssp(bound), workers, bandwidth).mean_staleness().unwrap();
                let least = if bound == 100 { 0.99 * law } else { 0.5 * law };
                assert!(
                    mean >= least && mean <= 1.01 * law,
                    "bound {bound}, {workers} workers: {mean} of {law}"
                );
            }
        }
        let together = trained(Protocol::Ssp(0), workers, 1e9).mean_staleness().unwrap();
        assert!((together - expected(Protocol::Ssp(0), workers).unwrap()).abs() < 1e-2, "{together}");
        assert_eq!(trained(Protocol::Bsp, workers, 1e9).mean_staleness(), None);
    }
}

/// One long part that is asked for first, and a short one that is computed and sent meanwhile.
#[test]
fn a_part_is_stale_only_while_its_worker_works_on_it() {
    let mut graph = Graph::new(&[1_000, 9_000_000]);
    let short = graph.add(OperationKind::Download(0), &[], 0.0);
    let computed = graph.add(OperationKind::Compute, &[short], 0.1);
    graph.add(OperationKind::Upload(0), &[computed], 0.0);
    let long = graph.add(OperationKind::Download(1), &[computed], 0.0);
    graph.add(OperationKind::Compute, &[long], 0.8);
    let setting = Setting { workers: 4, steps: 20_000, relative_half_width: 0.0, ..Setting::default() };
    let setting = Setting { server_link_bytes_per_s: 90e6, worker_link_bytes_per_s: 90e6, ..setting };
    let outcome = simulate(&graph.profile(1.0), &setting).unwrap();
    let mean = outcome.mean_staleness().unwrap();
    // Of a cycle of about a second the short part is out for a tenth; only it is ever applied.
    assert!((0.2..0.4).contains(&mean), "{mean}");
}

#[test]
fn nonsense_is_refused() {
    assert!(stable_rate(-1.0, 0.0).is_err() && stable_rate(f64::NAN, 0.0).is_err());
    assert!(stable_rate(1.0, 1.0).is_err() && stable_rate(1.0, -0.1).is_err());
    assert_eq!(expected(Protocol::Gossip, 8), None);
    assert_eq!(expected(Protocol::Asp, 1), Some(0.0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn more_staleness_or_less_noise_never_asks_for_less(
        batch in 8.0f64..4096.0, part in 0.01f64..1.0, noise_scale in 0.0f64..1e5, momentum in 0.0f64..0.95,
        staleness in 0.0f64..64.0, more in 0.0f64..64.0,
    ) {
        let job = Sensitivity {
            batch, update: part * batch, noise_scale, synchronous_momentum: momentum, momentum,
        };
        let factor = job.work_factor(staleness).unwrap();
        prop_assert!(factor >= 1.0 && factor.is_finite());
        prop_assert!(job.work_factor(staleness + more).unwrap() >= factor * (1.0 - 1e-12));
        let noisier = Sensitivity { noise_scale: 2.0 * noise_scale + 1.0, ..job };
        prop_assert!(noisier.work_factor(staleness).unwrap() <= factor * (1.0 + 1e-12));
        // Without staleness nothing is asked for.
        prop_assert!((job.work_factor(0.0).unwrap() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn no_update_is_staler_than_the_bound_allows(
        workers in 1u32..7, bound in 0u32..4, parts in 1u32..4, seed: u64, slow in 0.1f64..1.0,
    ) {
        let mut graph = Graph::new(&vec![500_000; parts as usize]);
        let down: Vec<u32> = (0..parts).map(|part| graph.add(OperationKind::Download(part), &[], 0.0)).collect();
        let compute = graph.add(OperationKind::Compute, &down, 0.3);
        for part in 0..parts {
            let up = graph.add(OperationKind::Upload(part), &[compute], 0.0);
            graph.add(OperationKind::Update(part), &[up], 0.01);
        }
        let mut speeds = vec![1.0; workers as usize];
        speeds[0] = slow;
        let protocol = Protocol::Ssp(bound);
        let setting = Setting {
            workers, protocol, seed, speeds, servers: 2, steps: 400, relative_half_width: 0.0,
            server_link_bytes_per_s: 1e7, worker_link_bytes_per_s: 1e7,
            order: TransmissionOrder::RoundRobin { window_bytes: 70_000 }, ..Setting::default()
        };
        let outcome = simulate(&graph.profile(1.0), &setting).unwrap();
        let largest = outcome.staleness.len() as u64 - 1;
        prop_assert!(largest <= most(protocol, workers).unwrap(), "{largest}: {:?}", outcome.staleness);
    }
}
