//! The simulated federation against the chain, at every published case (every coalition of every published federation):
//! does the 95 % interval of what is forwarded contain the chain's value, and how narrow is it?
//!
//! `cargo run --release -p bellwether-federation --example federation_agreement -- [first seed] [seeds] [most
//! million events]`
//!
//! Replications are added until the half-width is below 0.99 % of the mean (the interval narrower than 2 %), or a case
//! has had its events. A case whose queues forget so slowly that two million arrivals are less than fifty of their
//! relaxation times is not simulated.

#![allow(clippy::print_stdout)]

use std::time::Instant;

use bellwether_federation::queue::simulation::{
    Admission, Arrivals, Class, Demand, Group, Law, Length, Priority, Simulator, Site, System, Target, Work,
    replicate, run_once,
};
use bellwether_federation::queue::{Cloud, Federation, Limits, Overflow, overflow};

const LEAST: u64 = 20;
const RELATIVE: f64 = 0.0099;
/// Relaxation times of the queues that are not measured, and that are.
const RELAXATIONS: (f64, f64) = (10.0, 40.0);
/// Arrivals that a replication measures at least, and those of a whole replication at most.
const LEAST_ARRIVALS: f64 = 4e4;
const MOST_ARRIVALS: f64 = 2e6;

type Clouds = Vec<(f64, u32, u32, f64)>;

/// Published federations: arrivals per second, servers, shared ones, longest wait in seconds.
fn published() -> Vec<(&'static str, Clouds)> {
    let all_shared = |clouds: &[(f64, u32, f64)]| -> Clouds {
        clouds.iter().map(|&(arrivals, servers, wait)| (arrivals, servers, servers, wait)).collect()
    };
    let pair = |a, b| all_shared(&[(a, 50, 0.0), (b, 50, 0.0)]);
    let unequal = |a, b| vec![(50.0, 50, a, 0.0), (50.0, 50, b, 1.0)];
    let idle = |a, b| vec![(10.0, 50, a, 0.0), (150.0, 50, b, 0.0)];
    vec![
        ("Fig. 2", all_shared(&[(100.0, 100, 0.0), (100.0, 100, 0.0), (100.0, 100, 1.0)])),
        ("Table I", pair(30.0, 150.0)),
        ("Table I", pair(50.0, 150.0)),
        ("Table I", pair(100.0, 150.0)),
        ("Table I", pair(100.0, 10.0)),
        ("Table II", all_shared(&[(50.0, 50, 0.0), (100.0, 100, 10.0)])),
        ("Table II", all_shared(&[(50.0, 50, 0.0), (100.0, 100, 50.0)])),
        ("Table II", all_shared(&[(50.0, 50, 0.0), (1000.0, 1000, 50.0)])),
        ("Table II", all_shared(&[(7.0, 10, 0.0), (10_000.0, 10_000, 1000.0)])),
        ("Fig. 8", unequal(0, 0)),
        ("Fig. 8", unequal(10, 0)),
        ("Fig. 8", unequal(10, 2)),
        ("Fig. 8", unequal(50, 50)),
        ("Fig. 10", idle(50, 0)),
        ("Fig. 10", idle(50, 50)),
        ("Fig. 10", idle(25, 25)),
        ("Fig. 11", pair(150.0, 150.0)),
        ("Fed. 1", all_shared(&[(10.0, 30, 0.0), (70.0, 50, 0.0), (140.0, 100, 0.0)])),
        ("Fed. 2", all_shared(&[(30.0, 50, 0.0), (30.0, 100, 0.0), (150.0, 50, 0.0)])),
        ("Fed. 3", all_shared(&[(50.0, 50, 0.0), (50.0, 50, 0.0), (200.0, 200, 1.0)])),
        (
            "Fig. 14",
            all_shared(&[
                (10.0, 30, 0.0),
                (50.0, 30, 0.0),
                (30.0, 30, 0.0),
                (50.0, 50, 0.0),
                (100.0, 100, 1.0),
            ]),
        ),
    ]
}

/// Every coalition of every published federation, each once.
fn cases() -> Vec<(&'static str, Clouds)> {
    let mut cases: Vec<(&str, Clouds)> = Vec::new();
    for (name, clouds) in published() {
        for mask in 1..1_usize << clouds.len() {
            let mut chosen: Clouds = (0..clouds.len())
                .filter(|member| mask >> member & 1 == 1)
                .map(|member| clouds[member])
                .collect();
            if let [only] = chosen.as_mut_slice() {
                only.2 = 0;
            }
            if cases.iter().all(|(_, known)| *known != chosen) {
                cases.push((name, chosen));
            }
        }
    }
    cases
}

fn chain(clouds: &Clouds) -> Overflow {
    let cloud = |&(arrivals_per_s, servers, shared, longest_wait_s)| Cloud {
        arrivals_per_s,
        servers,
        shared,
        longest_wait_s,
    };
    let federation = Federation { service_per_s: 1.0, clouds: clouds.iter().map(cloud).collect() };
    overflow(&federation, &Limits::default()).expect("published cases have a chain")
}

fn system(clouds: &Clouds) -> System {
    let site = |&(rate_per_s, servers, shared, longest_wait_s)| Site {
        groups: vec![Group { kind: 0, servers, shared }],
        demands: vec![Demand { class: 0, arrivals: Arrivals::Poisson { rate_per_s } }],
        longest_wait_s,
    };
    let work = Work { mean: 1.0, law: Law::Exponential };
    System {
        classes: vec![Class { work, devices: 1, speeds: vec![1.0], transfer_s: 0.0 }],
        sites: clouds.iter().map(site).collect(),
        admission: Admission::Count,
        priority: Priority::NoOne,
    }
}

fn words(clouds: &Clouds) -> String {
    let words =
        clouds.iter().map(|(rate, servers, shared, wait)| format!("{rate}/{servers}/{shared}/{wait}"));
    words.collect::<Vec<_>>().join(" ")
}

/// What was seen of one case.
enum Seen {
    Slow,
    Wide,
    Narrow { contains: bool },
}

fn compare(name: &str, clouds: &Clouds, seed: u64, most_events: u64, loud: bool) -> Seen {
    let exact = chain(clouds).total_per_s();
    let system = system(clouds);
    let members: Vec<usize> = (0..clouds.len()).collect();
    let prepare = |length| Simulator::new(&system, &members, &length).expect("a proper system");
    let relaxation = prepare(Length::Suggested).relaxation_s() * system.arrivals_per_s();
    let (warm_up, measured) = RELAXATIONS;
    let needed = (warm_up + measured) * relaxation;
    let row = |simulated: &str| {
        if loud {
            println!("{name:<9} {exact:>12.5}  {simulated:<46} {}", words(clouds));
        }
    };
    if needed > MOST_ARRIVALS {
        row(&format!("not simulated: needs {needed:.1e} arrivals at a time"));
        return Seen::Slow;
    }
    let begin = Instant::now();
    let measured = (measured * relaxation).max(LEAST_ARRIVALS);
    let simulator = prepare(Length::Arrivals { warm_up: warm_up * relaxation, measured });
    let per_run = run_once(&simulator, seed, 0).events;
    let most = (most_events / per_run).max(LEAST);
    let target = Target { relative: RELATIVE, absolute_per_s: 0.0, least: LEAST, most };
    let summary = replicate(&simulator, seed, &target);
    let found = summary.forwarded_per_s;
    let (narrow, contains) = (summary.reached(&target), found.contains(exact));
    row(&format!(
        "{:>11.5} ± {:<8.5} {:>5.2} %  {:<4} {:>4} {:>4.1} s",
        found.mean,
        found.half_width,
        100.0 * found.relative(),
        if contains { "in" } else { "OUT" },
        if narrow { "" } else { "WIDE" },
        begin.elapsed().as_secs_f64()
    ));
    if narrow { Seen::Narrow { contains } } else { Seen::Wide }
}

fn main() {
    let number = |place: usize, otherwise: u64| {
        std::env::args().nth(place).map_or(otherwise, |word| word.parse().expect("a whole number"))
    };
    let (first, seeds, million) = (number(1, 1), number(2, 1), number(3, 300));
    println!(
        "case             chain  simulated                                      arrivals/servers/shared/wait"
    );
    let cases = cases();
    for seed in first..first + seeds {
        let begin = Instant::now();
        let (mut slow, mut wide, mut narrow, mut inside) = (0, 0, 0, 0);
        for (name, clouds) in &cases {
            match compare(name, clouds, seed, million * 1_000_000, seeds == 1) {
                Seen::Slow => slow += 1,
                Seen::Wide => wide += 1,
                Seen::Narrow { contains } => {
                    narrow += 1;
                    inside += u32::from(contains);
                }
            }
        }
        println!(
            "seed {seed}: {} cases; {inside} of {narrow} intervals narrower than 2 % contain the chain's value; {wide} stayed \
             wider, {slow} forget too slowly; {:.0} s",
            cases.len(),
            begin.elapsed().as_secs_f64()
        );
    }
}
