//! Laws of the simulated training, over random graphs.

use bellwether_core::prediction::Protocol;
use bellwether_core::profile::{OperationKind, Parsing, Profile};
use bellwether_model::event::{
    ComputeDiscipline, LinkSharing, Outcome, Resource, Setting, Sizes, StepEnd, TransmissionOrder,
    UpdateDiscipline, place_parts, priority, simulate,
};
use proptest::prelude::*;

use crate::event_profiles::Graph;

/// A random network: parts of random sizes, layers that need some of them and earlier layers, gradients
/// that leave after random layers, and their updates. Durations and sizes from coarse grids, so that ties occur.
fn network() -> impl Strategy<Value = Profile> {
    let part = (0u64..6, 0usize..100, 0usize..100, 0u8..4);
    let layer = (0u8..8, prop::collection::vec(0usize..100, 0..3));
    (prop::collection::vec(part, 1..5), prop::collection::vec(layer, 1..6), any::<bool>()).prop_map(
        |(parts, layers, parses)| {
            let bytes: Vec<u64> = parts.iter().map(|part| part.0 * 100_000).collect();
            let mut graph = Graph::new(&bytes);
            let downloads: Vec<u32> = (0..parts.len() as u32)
                .map(|part| graph.add(OperationKind::Download(part), &[], 0.0))
                .collect();
            let mut computes: Vec<u32> = Vec::new();
            for (number, (duration, earlier)) in layers.iter().enumerate() {
                let needs = parts.iter().zip(&downloads).filter(|(part, _)| part.1 % layers.len() == number);
                let mut after: Vec<u32> = needs.map(|(_, download)| *download).collect();
                after.extend(earlier.iter().filter(|_| number > 0).map(|e| computes[e % number]));
                after.sort_unstable();
                after.dedup();
                computes.push(graph.add(OperationKind::Compute, &after, f64::from(*duration) / 8.0));
            }
            for (number, part) in parts.iter().enumerate() {
                let compute = computes[part.2 % computes.len()];
                let upload = graph.add(OperationKind::Upload(number as u32), &[compute], 0.0);
                graph.add(OperationKind::Update(number as u32), &[upload], f64::from(part.3) / 16.0);
            }
            // Something takes time in every step.
            graph.add(OperationKind::Compute, &[], 0.125);
            let mut profile = graph.profile(1.0);
            profile.parsing = parses.then_some(Parsing { fixed_s: 0.01, s_per_byte: 1e-7 });
            profile
        },
    )
}

const BANDWIDTH: f64 = 1e6;
const STEPS: u32 = 240;

fn base() -> Setting {
    Setting {
        server_link_bytes_per_s: BANDWIDTH,
        worker_link_bytes_per_s: 4.0 * BANDWIDTH,
        steps: STEPS,
        relative_half_width: 0.0,
        trace_rows: 100_000,
        ..Setting::default()
    }
}

/// Seconds from the first to the last thing that happens in each step of each worker.
fn spans_s(outcome: &Outcome) -> Vec<f64> {
    let mut spans = std::collections::BTreeMap::new();
    for row in &outcome.trace {
        let span = spans.entry((row.worker, row.step)).or_insert((f64::INFINITY, f64::NEG_INFINITY, 0));
        *span = (span.0.min(row.start_s), span.1.max(row.end_s), span.2 + 1);
    }
    // Only steps of which every row is there.
    let rows = spans.values().map(|span| span.2).max().unwrap_or(0);
    spans.values().filter(|span| span.2 == rows).map(|span| span.1 - span.0).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn contention_never_helps_and_no_link_carries_more_than_it_can(
        profile in network(), workers in 2u32..7, servers in 1u32..4, seed: u64,
    ) {
        // Parts of several servers meet in a worker's parser in the order in which they happen to arrive; there
        // a delay can let a more urgent part pass. This law leaves that case out.
        let mut profile = profile;
        profile.parsing = profile.parsing.filter(|_| servers == 1);
        let alone = simulate(&profile, &Setting { servers, ..base() }).unwrap();
        let setting = Setting { workers, servers, seed, ..base() };
        let together = simulate(&profile, &setting).unwrap();
        // Each step takes at least as long as undisturbed. (The edges of the window hold a step per worker.)
        let least_s = spans_s(&alone)[0];
        for span_s in spans_s(&together) {
            prop_assert!(span_s >= least_s - 1e-6, "{} s are less than {} s", span_s, least_s);
        }
        let edge = 1.0 + 2.0 * f64::from(workers) / f64::from(STEPS);
        prop_assert!(together.examples_per_s <= f64::from(workers) * alone.examples_per_s * edge);
        // The bytes of a step must pass the fullest server's links.
        let mut bytes = vec![0u64; servers as usize];
        for (part, server) in profile.parts.iter().zip(place_parts(&profile, servers).unwrap()) {
            bytes[server as usize] += part.bytes;
        }
        let fullest_s = *bytes.iter().max().unwrap() as f64 / BANDWIDTH;
        prop_assert!(together.examples_per_s * fullest_s <= edge);
        prop_assert!(together.low <= together.examples_per_s && together.examples_per_s <= together.high);
        for row in &together.utilisation {
            prop_assert!((0.0..=1.0).contains(&row.busy));
        }
    }

    #[test]
    fn every_operation_of_every_step_happens_once_and_in_its_order(
        profile in network(), workers in 1u32..4, servers in 1u32..3, choices: [u8; 6], seed: u64,
    ) {
        let setting = any_setting(&profile, workers, servers, choices, seed);
        let outcome = simulate(&profile, &setting).unwrap();
        let parses = profile.parsing.is_some();
        // When each operation was over: parsing comes after the transfer, both are rows.
        let mut ends = std::collections::BTreeMap::new();
        for row in &outcome.trace {
            prop_assert!(row.start_s <= row.end_s);
            let end = ends.entry((row.worker, row.step, row.operation)).or_insert((row.end_s, 0));
            *end = (end.0.max(row.end_s), end.1 + 1);
        }
        let synchronous = setting.protocol == Protocol::Bsp;
        for row in &outcome.trace {
            let operation = &profile.operations[row.operation as usize];
            let is_transfer = matches!(operation.kind, OperationKind::Download(_) | OperationKind::Upload(_));
            let rows = ends[&(row.worker, row.step, row.operation)].1;
            prop_assert!(rows <= if parses && is_transfer { 2 } else { 1 }, "{:?} happened twice", row);
            for before in &operation.after {
                let Some((end_s, _)) = ends.get(&(row.worker, row.step, *before)) else {
                    // A synchronous update is one for all, under the name of the last worker.
                    prop_assert!(synchronous, "{:?} did not wait", row);
                    continue;
                };
                prop_assert!(*end_s <= row.start_s + 1e-9, "{:?} begins before {} ends", row, before);
            }
        }
        prop_assert_eq!(&simulate(&profile, &setting).unwrap(), &outcome);
    }

    #[test]
    fn no_order_is_worse_than_the_worst_and_the_rule_is_none_of_those(profile in network()) {
        let parts = profile.parts.len() as u32;
        let time = |levels: Vec<u32>| {
            let order = TransmissionOrder::Priority(levels);
            simulate(&profile, &Setting { order, steps: 24, trace_rows: 0, ..base() }).unwrap().step_s
        };
        let worst_s = permutations(parts).into_iter().map(time).fold(0.0, f64::max);
        let tac_s = time(priority::tac(&profile, BANDWIDTH).unwrap());
        let tic_s = time(priority::tic(&profile).unwrap());
        prop_assert!(tac_s <= worst_s + 1e-9, "TAC takes {} s, the worst order {} s", tac_s, worst_s);
        prop_assert!(tic_s <= worst_s + 1e-9, "TIC takes {} s, the worst order {} s", tic_s, worst_s);
    }
}

/// One of every combination of choices that is allowed.
fn any_setting(profile: &Profile, workers: u32, servers: u32, choices: [u8; 6], seed: u64) -> Setting {
    let levels = (0..profile.parts.len() as u32).rev().collect();
    let order = [
        TransmissionOrder::Fifo,
        TransmissionOrder::RoundRobin { window_bytes: 70_000 },
        TransmissionOrder::Priority(levels),
        TransmissionOrder::RoundRobin { window_bytes: 0 },
    ];
    let protocol = [Protocol::Asp, Protocol::Bsp, Protocol::Ssp(0), Protocol::Ssp(2)];
    let protocol = protocol[usize::from(choices[1] % 4)];
    let order = order[usize::from(choices[0] % 4)].clone();
    let together = order == TransmissionOrder::RoundRobin { window_bytes: 0 };
    Setting {
        workers,
        servers,
        seed,
        protocol,
        link_sharing: if choices[2].is_multiple_of(2) || together {
            LinkSharing::MaxMin
        } else {
            LinkSharing::OneAtATime
        },
        order,
        compute: [ComputeDiscipline::InOrder, ComputeDiscipline::Slots(2)][usize::from(choices[3] % 2)],
        updates: [UpdateDiscipline::Serial, UpdateDiscipline::PerPart][usize::from(choices[4] % 2)],
        step_end: if choices[5].is_multiple_of(2) || protocol == Protocol::Bsp {
            StepEnd::Applied
        } else {
            StepEnd::Sent
        },
        sizes: [Sizes::Fixed, Sizes::Exponential][usize::from(choices[5] / 2 % 2)],
        worker_link_bytes_per_s: BANDWIDTH * [0.5, 1.0, 10.0][usize::from(choices[4] / 2 % 3)],
        latency_s: [0.0, 0.03][usize::from(choices[3] / 2 % 2)],
        speeds: (0..workers).map(|worker| 1.0 + f64::from(worker) / 2.0).collect(),
        ..base()
    }
}

/// All orders of `0..count`.
fn permutations(count: u32) -> Vec<Vec<u32>> {
    let mut all = vec![Vec::new()];
    for next in 0..count {
        let insert = |order: &Vec<u32>| {
            (0..=order.len())
                .map(|place| {
                    let mut longer = order.clone();
                    longer.insert(place, next);
                    longer
                })
                .collect::<Vec<_>>()
        };
        all = all.iter().flat_map(insert).collect();
    }
    all
}

#[test]
fn tac_is_the_best_order_where_parts_are_needed_in_a_chain() {
    // Layers of different lengths need their parts in a scrambled order of names.
    let needs = [2u32, 0, 3, 1];
    let mut graph = Graph::new(&[300_000, 100_000, 400_000, 200_000]);
    (0..4).for_each(|part| {
        graph.add(OperationKind::Download(part), &[], 0.0);
    });
    let mut last = None;
    for (part, duration_s) in needs.iter().zip([0.5, 0.1, 0.4, 0.2]) {
        let after: Vec<u32> = last.into_iter().chain([*part]).collect();
        last = Some(graph.add(OperationKind::Compute, &after, duration_s));
    }
    let profile = graph.profile(1.0);
    let time = |levels: Vec<u32>| {
        let order = TransmissionOrder::Priority(levels);
        simulate(&profile, &Setting { order, trace_rows: 0, ..base() }).unwrap().step_s
    };
    let best_s = permutations(4).into_iter().map(time).fold(f64::INFINITY, f64::min);
    let tac = priority::tac(&profile, BANDWIDTH).unwrap();
    assert!((time(tac) - best_s).abs() < 1e-9);
    assert!(time(vec![3, 2, 1, 0]) > best_s + 0.1, "the order makes a difference");
}

#[test]
fn busy_links_are_as_busy_as_the_bytes_that_passed() {
    let mut graph = Graph::new(&[500_000]);
    let down = graph.add(OperationKind::Download(0), &[], 0.0);
    graph.add(OperationKind::Compute, &[down], 0.1);
    let setting = Setting { workers: 5, ..base() };
    let outcome = simulate(&graph.profile(0.6), &setting).unwrap();
    let busy = |resource| outcome.utilisation.iter().find(|row| row.resource == resource).unwrap().busy;
    let carried = outcome.examples_per_s * 500_000.0;
    assert!((busy(Resource::ServerDownlink(0)) - carried / BANDWIDTH).abs() < 0.02);
    assert!((busy(Resource::WorkerDownlink(0)) - carried / 5.0 / (4.0 * BANDWIDTH)).abs() < 0.01);
    assert_eq!(busy(Resource::ServerUplink(0)), 0.0);
}
