//! Measures how long the overflow of federations takes to solve, beside power iteration on the same chains to
//! a step of 1e-6, as probabilistic model checkers solve them: `cargo run --release -p bellwether-federation
//! --example federation_speed`.

use std::error::Error;
use std::io::{Write, stdout};
use std::time::Instant;

use bellwether_federation::queue::{Cloud, Federation, Limits, Method, capacity, overflow};

const REPEATS: usize = 3;
/// Chains above this take the peer's way minutes.
const PEER_STATES: u64 = 100_000;

fn main() -> Result<(), Box<dyn Error>> {
    let cases = [
        (
            "n = (10, 10000), Q = (0, 1000), all shared",
            vec![(7.0, 10, 10, 0.0), (1e4, 10_000, 10_000, 1000.0)],
        ),
        ("n = (50, 50), Q = (0, 0), half shared", vec![(50.0, 50, 25, 0.0), (50.0, 50, 25, 0.0)]),
        ("n = (50, 50), Q = (0, 1), (10, 2) shared", vec![(50.0, 50, 10, 0.0), (50.0, 50, 2, 1.0)]),
        ("n = (50, 50), Q = (0, 1), half shared", vec![(50.0, 50, 25, 0.0), (50.0, 50, 25, 1.0)]),
        ("n = (50, 50), Q = (1, 1), half shared", vec![(50.0, 50, 25, 1.0), (50.0, 50, 25, 1.0)]),
        ("n = (50, 50), Q = (0, 10), half shared", vec![(50.0, 50, 25, 0.0), (50.0, 50, 25, 10.0)]),
        ("n = 3 x 20, Q = (0, 0, 0), half shared", vec![(20.0, 20, 10, 0.0); 3]),
        ("n = 3 x 50, Q = (0, 1, 1), half shared", {
            vec![(60.0, 50, 25, 0.0), (50.0, 50, 25, 1.0), (45.0, 50, 25, 1.0)]
        }),
        ("n = 4 x 20, Q = (0, 0, 0, 1), half shared", {
            vec![(20.0, 20, 10, 0.0), (15.0, 20, 10, 0.0), (10.0, 20, 10, 0.0), (30.0, 20, 10, 1.0)]
        }),
    ];
    let mut out = stdout().lock();
    writeln!(
        out,
        "| case | states | unknowns | iterations | residual | ours, ms | power, s | its turns | its error |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|---|---|")?;
    for (name, clouds) in &cases {
        let federation = federation(clouds);
        let (mut ours_s, mut peer_s) = (Vec::new(), Vec::new());
        for _ in 0..REPEATS {
            let begin = Instant::now();
            let ours = overflow(&federation, &Limits::default())?;
            ours_s.push((begin.elapsed().as_secs_f64(), ours));
            let Method::Chain { states: ..PEER_STATES, .. } = ours_s[0].1.method else { continue };
            let begin = Instant::now();
            let peer = power_iteration(&federation);
            peer_s.push((begin.elapsed().as_secs_f64(), peer));
        }
        ours_s.sort_by(|a, b| a.0.total_cmp(&b.0));
        peer_s.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (time_s, ours) = &ours_s[REPEATS / 2];
        match ours.method {
            Method::ProductForm => write!(out, "| {name} | closed form | - | - | - |")?,
            Method::Chain { states, unknowns, iterations, residual } => {
                write!(out, "| {name} | {states} | {unknowns} | {iterations} | {residual:.0e} |")?;
            }
        }
        write!(out, " {:.3} |", time_s * 1e3)?;
        match peer_s.get(REPEATS / 2) {
            Some((time_s, (total_per_s, turns))) => {
                let error = (total_per_s - ours.total_per_s()).abs();
                writeln!(out, " {time_s:.2} | {turns} | {error:.0e} |")?;
            }
            None => writeln!(out, " - | - | - |")?,
        }
    }
    Ok(())
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

/// Forwarded requests per second, and turns until no probability moves by 1e-6 of itself.
fn power_iteration(federation: &Federation) -> (f64, u64) {
    let servers: u64 = federation.clouds.iter().map(|cloud| u64::from(cloud.shared)).sum();
    let of = |cloud: &Cloud, servers: u64| {
        capacity(servers, federation.service_per_s, cloud.longest_wait_s) as usize
    };
    let own = |cloud: &Cloud| u64::from(cloud.servers - cloud.shared);
    let dims: Vec<usize> = federation.clouds.iter().map(|cloud| of(cloud, own(cloud)) + 1).collect();
    let refused_from: Vec<usize> = federation.clouds.iter().map(|cloud| of(cloud, servers)).collect();
    let levels = refused_from.iter().max().expect("clouds") + 1;
    let count = dims.iter().product::<usize>() * levels;
    let mut strides = vec![levels; dims.len()];
    for i in 1..dims.len() {
        strides[i] = strides[i - 1] * dims[i - 1];
    }
    let bound: f64 =
        federation.clouds.iter().map(|cloud| cloud.arrivals_per_s + f64::from(cloud.servers)).sum();
    let mut law = vec![1.0 / count as f64; count];
    let mut next = vec![0.0; count];
    for turn in 1.. {
        next.copy_from_slice(&law);
        for state in 0..count {
            let (mass, level) = (law[state] / bound, state % levels);
            let mut flow = |to: usize, rate: f64| {
                next[to] += mass * rate;
                next[state] -= mass * rate;
            };
            if level > 0 {
                flow(state - 1, (level as u64).min(servers) as f64);
            }
            for (i, cloud) in federation.clouds.iter().enumerate() {
                let present = state / strides[i] % dims[i];
                if present + 1 < dims[i] {
                    flow(state + strides[i], cloud.arrivals_per_s);
                } else if level < refused_from[i] {
                    flow(state + 1, cloud.arrivals_per_s);
                }
                if present > 0 {
                    flow(state - strides[i], (present as u64).min(own(cloud)) as f64);
                }
            }
        }
        let moved = law.iter().zip(&next).map(|(a, b)| (a - b).abs() / b.max(1e-300)).fold(0.0, f64::max);
        std::mem::swap(&mut law, &mut next);
        if moved < 1e-6 {
            let refused = |state: usize, i: usize| {
                state / strides[i] % dims[i] + 1 == dims[i] && state % levels >= refused_from[i]
            };
            let clouds = federation.clouds.iter().enumerate();
            let lost = clouds.map(|(i, cloud)| {
                cloud.arrivals_per_s * (0..count).filter(|&s| refused(s, i)).map(|s| law[s]).sum::<f64>()
            });
            return (lost.sum(), turn);
        }
    }
    unreachable!("turns are not counted to an end")
}
