//! Few jobs: the Markov chain of which of them exchange.

use std::collections::BTreeMap;

use bellwether_des::MaxMinFair;
use bellwether_numerics::stationary;

use super::{Flow, ROUNDS_MAX, SETTLED};

/// A job that exchanges for all but this part of a step always exchanges.
const LEAST_IDLE: f64 = 1e-9;

/// The stretch of each job's exchange.
pub(super) fn stretches(flows: &[&Flow<'_>]) -> Vec<f64> {
    let parts = parts(flows);
    let idle_at =
        |stretches: &[f64]| flows.iter().zip(stretches).map(|(flow, f)| flow.exchange.idle(*f)).collect();
    let mut stretches = vec![1.0; flows.len()];
    let mut idle: Vec<f64> = idle_at(&stretches);
    for _ in 0..ROUNDS_MAX {
        stretches = with_idle(flows, &parts, &idle);
        // What a longer exchange leaves of computing that hid it.
        let now: Vec<f64> = idle_at(&stretches);
        let change = now.iter().zip(&idle).map(|(now, before)| (now - before).abs()).fold(0.0, f64::max);
        if change < SETTLED {
            break;
        }
        idle = now;
    }
    stretches
}

/// The part of the bandwidth that each job gets, by the set of jobs that exchange: a bit for each.
fn parts(flows: &[&Flow<'_>]) -> Vec<Vec<f64>> {
    let mut links = MaxMinFair::new();
    let mut known = BTreeMap::new();
    let paths: Vec<Vec<_>> = flows
        .iter()
        .map(|flow| {
            let numbers = flow.links.iter();
            numbers.map(|link| *known.entry(*link).or_insert_with(|| links.add_link(1.0))).collect()
        })
        .collect();
    let mut part_of = |set: usize| {
        let start = |job: usize| (set >> job & 1 == 1).then(|| links.start(0.0, &paths[job], 1.0, ()));
        let started: Vec<_> = (0..flows.len()).map(start).collect();
        let parts = started.iter().map(|flow| flow.map_or(0.0, |flow| links.rate(flow))).collect();
        for flow in started.into_iter().flatten() {
            links.stop(0.0, flow);
        }
        parts
    };
    (0..1_usize << flows.len()).map(&mut part_of).collect()
}

/// The stretches where each job spends this much of a step without an exchange, in steps alone.
fn with_idle(flows: &[&Flow<'_>], parts: &[Vec<f64>], idle: &[f64]) -> Vec<f64> {
    let (alternating, always): (Vec<usize>, Vec<usize>) =
        (0..flows.len()).partition(|job| idle[*job] > LEAST_IDLE);
    let always: usize = always.into_iter().map(|job| 1 << job).sum();
    let states = 1_usize << alternating.len();
    let bits = |state: usize| alternating.iter().enumerate().filter(move |(bit, _)| state >> bit & 1 == 1);
    let set_of = |state: usize| bits(state).fold(always, |set, (_, job)| set | 1 << job);
    let mut rates = vec![0.0; states * states];
    for state in 0..states {
        let parts = &parts[set_of(state)];
        for (bit, &job) in alternating.iter().enumerate() {
            let exchanges = state >> bit & 1 == 1;
            rates[state * states + (state ^ 1 << bit)] =
                if exchanges { parts[job] / flows[job].exchange.alone() } else { 1.0 / idle[job] };
        }
    }
    let probabilities = stationary::probabilities(&rates, states);
    let stretch = |job: usize| {
        let of_job = (0..states).map(set_of).zip(&probabilities).filter(|(set, _)| set >> job & 1 == 1);
        let (time, done) = of_job.fold((0.0, 0.0), |(time, done), (set, probability)| {
            (time + probability, done + probability * parts[set][job])
        });
        time / done
    };
    (0..flows.len()).map(stretch).collect()
}
