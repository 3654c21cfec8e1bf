//! How fast a federation is simulated, beside the event queue alone: million events per second on one core.
//!
//! `cargo run --release -p bellwether-federation --example federation_simulation_speed`

#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::time::Instant;

use bellwether_des::{Queue, Streams};
use bellwether_federation::queue::simulation::{
    Admission, Arrivals, Class, Demand, Group, Law, Length, Priority, Simulator, Site, State, System, Work,
    run_once,
};

/// Sites of one class and one type: arrivals per second, servers, shared ones, longest wait in seconds.
fn simple(law: Law, sites: &[(f64, u32, u32, f64)]) -> System {
    let work = Work { mean: 1.0, law };
    System {
        classes: vec![Class { work, devices: 1, speeds: vec![1.0], transfer_s: 0.0 }],
        sites: sites
            .iter()
            .map(|(rate_per_s, servers, shared, longest_wait_s)| Site {
                groups: vec![Group { kind: 0, servers: *servers, shared: *shared }],
                demands: vec![Demand { class: 0, arrivals: Arrivals::Poisson { rate_per_s: *rate_per_s } }],
                longest_wait_s: *longest_wait_s,
            })
            .collect(),
        admission: Admission::Count,
        priority: Priority::NoOne,
    }
}

/// Two classes whose gangs of four and of one run on two types at different speeds.
fn rich() -> System {
    let class = |devices, speeds: [f64; 2]| Class {
        work: Work { mean: 1.0, law: Law::Lognormal { variation: 2.0 } },
        devices,
        speeds: speeds.to_vec(),
        transfer_s: 0.1,
    };
    let state = |rate_per_s| State { rate_per_s, mean_stay_s: 100.0 };
    let states = vec![state(40.0), state(5.0)];
    let site = |kind| Site {
        groups: vec![
            Group { kind, servers: 64, shared: 32 },
            Group { kind: 1 - kind, servers: 16, shared: 16 },
        ],
        demands: vec![
            Demand { class: 0, arrivals: Arrivals::Modulated { states: states.clone() } },
            Demand { class: 1, arrivals: Arrivals::Poisson { rate_per_s: 50.0 } },
        ],
        longest_wait_s: 1.0,
    };
    System {
        classes: vec![class(4, [2.0, 1.0]), class(1, [1.0, 2.0])],
        sites: (0..4).map(|number| site(number % 2)).collect(),
        admission: Admission::Estimate,
        priority: Priority::Owners,
    }
}

/// Million events per second of the queue alone, with as many waiting: each step takes one and schedules one, as
/// each event of the simulation does in the mean.
fn queue_alone(waiting: usize) -> f64 {
    const STEPS: usize = 4_000_000;
    let mut stream = Streams::new(1).stream("delay", 0);
    let delays: Vec<f64> = (0..1 << 16).map(|_| stream.exponential(1.0)).collect();
    let mut queue = Queue::new();
    (0..waiting).for_each(|n| {
        queue.schedule(delays[n % delays.len()], n as u64);
    });
    let begin = Instant::now();
    for step in 0..STEPS {
        let (time, payload) = queue.pop().expect("events wait");
        queue.schedule(time + delays[step & 0xffff], payload);
    }
    black_box(queue.pop());
    STEPS as f64 / begin.elapsed().as_secs_f64() / 1e6
}

fn main() {
    let hundred = |wait_s| (100.0, 100, 100, wait_s);
    let cases: [(&str, System, usize); 6] = [
        ("one site of 100, no wait", simple(Law::Exponential, &[hundred(0.0)]), 100),
        (
            "three sites of 100, all shared",
            simple(Law::Exponential, &[hundred(0.0), hundred(0.0), hundred(1.0)]),
            300,
        ),
        (
            "two sites of 50, partly shared",
            simple(Law::Exponential, &[(50.0, 50, 10, 0.0), (50.0, 50, 2, 1.0)]),
            100,
        ),
        (
            "the same, lognormal work",
            simple(Law::Lognormal { variation: 2.0 }, &[(50.0, 50, 10, 0.0), (50.0, 50, 2, 1.0)]),
            100,
        ),
        ("fifty sites of 20, all shared", simple(Law::Exponential, &[(20.0, 20, 20, 0.1); 50]), 1000),
        ("two classes, gangs, bursts, owners", rich(), 200),
    ];
    println!("{:<36} {:>10} {:>12} {:>14}", "case", "events", "M events/s", "queue alone");
    for (name, system, busy) in cases {
        let members: Vec<usize> = (0..system.sites.len()).collect();
        let length = Length::Arrivals { warm_up: 0.0, measured: 2e6 };
        let simulator = Simulator::new(&system, &members, &length).expect("a proper system");
        let mut best = 0f64;
        let mut events = 0;
        for replication in 0..3 {
            let begin = Instant::now();
            events = run_once(&simulator, 1, replication).events;
            best = best.max(events as f64 / begin.elapsed().as_secs_f64() / 1e6);
        }
        println!("{name:<36} {events:>10} {best:>12.2} {:>14.2}", queue_alone(busy));
    }
}
