//! Both rules: the bits of a step that is summed at one place, and every gradient once.

use std::sync::atomic::{AtomicU64, Ordering};

use bellwether_core::job::Optimizer as Update;
use bellwether_runtime::noise::Noise;
use bellwether_runtime::optimizer;
use bellwether_runtime::order::mix;
use bellwether_runtime::parameters::{Rule, Work};
use bellwether_runtime::state::{Reduced, TrainingState};
use bellwether_runtime::tree::Accumulator;
use proptest::prelude::*;

use super::harness::{Group, layout, optimizer, plain};

const SAMPLES: u64 = 24;

/// What a virtual node computes: a gradient and model state of widely different exponents, which depend on the
/// parameters.
fn of_node(step: u64, node: u32, parameters: &[f32], out: &mut [f32]) {
    for (place, value) in out.iter_mut().enumerate() {
        let bits = mix(mix(step, node.into()), place as u64);
        let parameter = parameters.get(place).copied().unwrap_or(0.5);
        let size = 2f32.powi((bits % 20) as i32 - 10);
        *value = size * ((bits >> 32) as f32 / 2f32.powi(31) - 1.0) + 0.1 * parameter;
    }
}

/// The sum over a range of virtual nodes along the canonical tree.
fn summed(nodes: u32, range: std::ops::Range<u32>, step: u64, parameters: &[f32], out: &mut [f32]) {
    let mut accumulator = Accumulator::new(nodes, range.clone(), out.len());
    for node in range {
        of_node(step, node, parameters, accumulator.leaf());
        accumulator.push();
    }
    out.copy_from_slice(accumulator.partials()[0]);
}

/// The state after this many steps, as one worker computes them.
fn by_definition(group: &Group, nodes: u32, steps: u64) -> TrainingState {
    let mut state = group.zeros();
    let mut sums = vec![0.0; state.parameters.len() + state.model_state.len()];
    for step in 0..steps {
        summed(nodes, 0..nodes, step, &state.parameters, &mut sums);
        let update = optimizer::Update::single(step, group.optimizer.scale(SAMPLES as f64, 0.0));
        let reduced = Reduced { sums: &sums, samples: SAMPLES, update, noise: Noise::default() };
        state.apply(&mut &group.optimizer, reduced).expect("rules of ours do not fail");
    }
    state
}

/// The same by servers, with workers that take units in an order of their own, and do some of them twice.
fn by_servers(group: &Group, nodes: u32, steps: u64, workers: u64, seed: u64) -> TrainingState {
    let units = group.units_per_step;
    group.begin(Rule::Together);
    let next = AtomicU64::new(0);
    // The last ones once more: by a worker that does not know that they are done.
    let order = |place: u64| {
        let (step, place) = (place / u64::from(units), place % u64::from(units));
        step * u64::from(units) + (place + mix(seed, step)) % u64::from(units)
    };
    std::thread::scope(|scope| {
        for worker in 0..workers {
            let (next, order) = (&next, &order);
            scope.spawn(move || {
                let mut client = group.client(worker);
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    if place >= steps * u64::from(units) {
                        return;
                    }
                    let unit = order(place);
                    let step = unit / u64::from(units);
                    let work = Work {
                        phase: 1,
                        unit,
                        step,
                        together: true,
                        scale: group.optimizer.scale(SAMPLES as f64, 0.0),
                        share: f32::NAN,
                        samples: SAMPLES,
                    };
                    let first = (unit % u64::from(units)) as u32 * (nodes / units);
                    let gradient = |parameters: &[f32], out: &mut [f32]| {
                        summed(nodes, first..first + nodes / units, step, parameters, out);
                    };
                    let times = 1 + u64::from(mix(seed, unit).is_multiple_of(3));
                    for time in 0..times {
                        let account = group.unit_of(&mut client, work, &gradient);
                        let account = account.unwrap_or_else(|fault| panic!("{fault}: {:?}", group.heard()));
                        let all = group.map.pieces().len() as u64;
                        assert_eq!(account.repeated, if time == 0 { 0 } else { all });
                    }
                }
            });
        }
    });
    group.whole()
}

fn update(kind: u32) -> Update {
    let (learning_rate, betas, epsilon, weight_decay, clip_norm) = (0.01, [0.9, 0.999], 1e-8, 0.1, None);
    match kind {
        0 => Update::Sgd { learning_rate, momentum: 0.9, nesterov: true, weight_decay, clip_norm },
        _ => Update::Adamw { learning_rate, betas, epsilon, weight_decay, clip_norm },
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10))]
    #[test]
    fn together_gives_the_bits_of_a_sum_at_one_place(
        (units, of_each) in prop_oneof![(1u32..9, Just(1u32)), (1u32..6, Just(2u32)), (1u32..3, Just(4u32)), Just((1, 6))],
        servers in 1u32..4, workers in 1u64..4, kind in 0u32..2, seed: u64,
    ) {
        let nodes = units * of_each;
        let group = Group::start(layout(&[70_000, 3, 500], &[5, 2]), servers, units, optimizer(update(kind)));
        let whole = by_servers(&group, nodes, 3, workers, seed);
        let expected = by_definition(&group, nodes, 3);
        prop_assert_eq!(whole.step, 3);
        prop_assert_eq!(whole.digest(), expected.digest());
        for server in &group.servers {
            let account = server.account();
            prop_assert_eq!(account.progress.watermark(), 3 * u64::from(units));
            prop_assert_eq!(account.updates, 3 * account.pieces.len() as u64);
        }
    }
}

#[test]
fn each_counts_every_gradient_once_and_its_staleness() {
    let group = Group::start(layout(&[100_000, 7], &[3]), 2, 4, plain());
    group.begin(Rule::Each);
    std::thread::scope(|scope| {
        for worker in 0..3 {
            let group = &group;
            scope.spawn(move || {
                let mut client = group.client(worker);
                // Every unit by two of three workers, some of them at the same time.
                for unit in (0..30).filter(|unit| unit % 3 != worker) {
                    let gradient = (unit + 1) as f32;
                    group
                        .unit_of(&mut client, group.each(unit), &|_, out| out.fill(gradient))
                        .expect("a unit");
                }
            });
        }
    });
    let sum = (1..=30).sum::<u64>() as f32;
    let whole = group.whole();
    assert!(whole.parameters.iter().all(|value| *value == -sum), "{:?}", &whole.parameters[..5]);
    for (server, account) in group.servers.iter().map(|server| server.account()).enumerate() {
        let pieces = group.map.of_server(server as u32).len() as u64;
        assert_eq!((account.updates, account.repeated), (30 * pieces, 30 * pieces));
        assert_eq!(account.staleness.counts.iter().sum::<u64>(), 30 * pieces);
        assert_eq!(account.progress.watermark(), 30);
        assert!(account.pieces.iter().all(|(_, updates, seconds)| *updates == 30 && *seconds > 0.0));
        assert!(account.bytes_in > account.bytes_out / 2 && account.bytes_out > 0);
    }
}

#[test]
fn staleness_is_the_updates_between_pull_and_push() {
    let group = Group::start(layout(&[20], &[]), 1, 1, plain());
    group.servers[0].begin(group.phase(1, Rule::Each, 0));
    let (mut slow, mut quick) = (group.client(0), group.client(1));
    use bellwether_runtime::workload::TensorExchange;
    slow.begin(group.each(0)).expect("begun");
    let mut parameters = vec![0.0; 20];
    slow.pull(0, &mut parameters).expect("taken");
    for unit in 1..6 {
        assert_eq!(group.unit(&mut quick, group.each(unit), 1.0).expect("a unit").staleness_max, 0);
    }
    slow.push(0, &[1.0; 20]).expect("given");
    slow.give_state(&[]).expect("nothing to give");
    let account = slow.finish().expect("finished");
    assert_eq!((account.staleness_max, account.staleness_mean), (5, 5.0));
    let counts = group.servers[0].account().staleness.counts;
    assert_eq!((counts[0], counts[5]), (5, 1));
}

#[test]
fn model_state_moves_by_the_units_share() {
    let group = Group::start(layout(&[4], &[2]), 1, 4, plain());
    let start = TrainingState { model_state: vec![1.0, 2.0], ..group.zeros() };
    group.servers[0].load(&start);
    group.servers[0].begin(group.phase(1, Rule::Each, 0));
    let mut client = group.client(0);
    let work = Work { share: 0.25, ..group.each(0) };
    group
        .unit_of(&mut client, work, &|_, out| out.copy_from_slice(&[1.0, 1.0, 1.0, 1.0, 5.0, 10.0]))
        .expect("a unit");
    let whole = group.whole();
    assert_eq!(whole.model_state, [1.0 + 0.25 * 4.0, 2.0 + 0.25 * 8.0]);
    assert_eq!(whole.parameters, [-0.25; 4]);
}

#[test]
fn the_rule_changes_between_phases_and_the_state_stays() {
    let group = Group::start(layout(&[30], &[1]), 1, 2, plain());
    let server = &group.servers[0];
    server.begin(group.phase(1, Rule::Together, 0));
    let mut client = group.client(0);
    std::thread::scope(|scope| {
        let group = &group;
        let mut other = group.client(1);
        let work = Work { together: true, ..group.each(1) };
        let thread = scope.spawn(move || group.unit(&mut other, work, 1.0));
        group.unit(&mut client, Work { together: true, ..group.each(0) }, 1.0).expect("a unit");
        thread.join().expect("no panic").expect("a unit");
    });
    server.begin(group.phase(2, Rule::Each, 1));
    assert_eq!(group.unit(&mut client, Work { phase: 2, ..group.each(2) }, 1.0).expect("a unit").repeated, 0);
    // A unit of the phase before counts as complete.
    let again = group.unit(&mut client, Work { phase: 2, ..group.each(0) }, 1.0).expect("a unit");
    assert_eq!(again.repeated, group.map.pieces().len() as u64);
    server.begin(group.phase(3, Rule::Together, 2));
    let work = |unit| Work { phase: 3, together: true, ..group.each(unit) };
    group.unit(&mut client, work(4), 1.0).expect("a unit");
    group.unit(&mut client, work(5), 1.0).expect("a unit");
    assert_eq!(group.whole().parameters, [-5.0; 30]);
    assert_eq!(group.whole().step, 3);
    // Of a phase that is over: the connection ends.
    assert!(group.unit(&mut client, work(6), 1.0).is_ok());
    assert!(group.unit(&mut client, Work { phase: 2, ..work(7) }, 1.0).is_err());
}
