//! Simulated queues against exact theory: the theory lies in the interval, and the interval is narrow.

use std::collections::VecDeque;

use bellwether_des::statistics::{Interval, Tally, replications};
use bellwether_des::{ProcessorSharing, Simulation, Stream, Streams};

const RATE: f64 = 0.7;
const CUSTOMERS: usize = 60_000;
const WARM_UP: usize = 5_000;
const REPLICATIONS: u64 = 80;
/// Wide enough that four true statements fail once in a hundred seeds, not once in five.
const LEVEL: f64 = 0.997;

enum Event {
    Arrival,
    Departure,
}

/// Mean time in a first-come-first-served station, by events.
fn first_come_first_served(streams: Streams, run: u64, mut service: impl FnMut(&mut Stream) -> f64) -> f64 {
    let (mut gaps, mut works) = (streams.stream("gap", run), streams.stream("work", run));
    let mut simulation = Simulation::new();
    let mut waiting: VecDeque<f64> = VecDeque::new();
    let (mut done, mut times) = (0, Tally::new());
    simulation.after(gaps.exponential(1.0 / RATE), Event::Arrival);
    while let Some(event) = simulation.step() {
        match event {
            Event::Arrival => {
                simulation.after(gaps.exponential(1.0 / RATE), Event::Arrival);
                waiting.push_back(simulation.now());
                if waiting.len() == 1 {
                    simulation.after(service(&mut works), Event::Departure);
                }
            }
            Event::Departure => {
                let came_s = waiting.pop_front().expect("somebody is served");
                done += 1;
                if done > WARM_UP {
                    times.add(simulation.now() - came_s);
                }
                if done == CUSTOMERS {
                    break;
                }
                if !waiting.is_empty() {
                    simulation.after(service(&mut works), Event::Departure);
                }
            }
        }
    }
    times.mean()
}

/// Mean time in a processor-sharing station.
fn shared(streams: Streams, run: u64, mut service: impl FnMut(&mut Stream) -> f64) -> f64 {
    let (mut gaps, mut works) = (streams.stream("gap", run), streams.stream("work", run));
    let mut station = ProcessorSharing::new(1.0);
    let (mut done, mut times) = (0, Tally::new());
    let mut arrival_s = gaps.exponential(1.0 / RATE);
    while done < CUSTOMERS {
        if station.next_time().is_none_or(|departure_s| arrival_s < departure_s) {
            station.arrive(arrival_s, service(&mut works), arrival_s);
            arrival_s += gaps.exponential(1.0 / RATE);
        } else {
            let (now_s, came_s) = station.depart().expect("somebody is served");
            done += 1;
            if done > WARM_UP {
                times.add(now_s - came_s);
            }
        }
    }
    times.mean()
}

fn agree(what: &str, simulated: Interval, exact: f64) {
    assert!(simulated.contains(exact), "{what}: {simulated:?} does not hold {exact}");
    assert!(simulated.relative() < 0.015, "{what}: {simulated:?} proves nothing");
}

#[test]
fn one_server_first_come_first_served() {
    // M/M/1: 1 / (1 - rho) for a mean service of 1.
    let simulated = replications(REPLICATIONS, LEVEL, |run| {
        first_come_first_served(Streams::new(1), run, |works| works.exponential(1.0))
    });
    agree("M/M/1", simulated, 1.0 / (1.0 - RATE));
}

#[test]
fn a_general_service_time_follows_pollaczek_and_khinchine() {
    let variation = 0.5f64;
    let simulated = replications(REPLICATIONS, LEVEL, |run| {
        first_come_first_served(Streams::new(2), run, |works| works.lognormal(1.0, variation))
    });
    let exact = 1.0 + RATE * (1.0 + variation * variation) / (2.0 * (1.0 - RATE));
    agree("M/G/1", simulated, exact);
}

#[test]
fn processor_sharing_does_not_care_for_the_distribution() {
    // M/G/1-PS: 1 / (1 - rho), whatever the distribution of the work.
    let exponential =
        replications(REPLICATIONS, LEVEL, |run| shared(Streams::new(3), run, |works| works.exponential(1.0)));
    agree("M/M/1-PS", exponential, 1.0 / (1.0 - RATE));
    let heavy = replications(REPLICATIONS, LEVEL, |run| {
        shared(Streams::new(4), run, |works| works.lognormal(1.0, 1.2))
    });
    agree("M/G/1-PS", heavy, 1.0 / (1.0 - RATE));
}
