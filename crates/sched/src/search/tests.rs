//! Laws of samplers and trial schedulers.

use std::collections::{BTreeMap, BTreeSet};

use bellwether_core::job::Metric;
use bellwether_core::mix::mix;
use bellwether_core::sweep::{self, Ladder, Resources, SamplerKind, Unit, Value};
use proptest::prelude::*;

use super::*;

const KEYS: &str = "\"rate\" = { low = 1e-4, high = 1.0, scale = \"log\", points = 4 }\n\
    \"kind\" = { choices = [\"a\", \"b\", \"c\"] }\n\
    \"width\" = { low = 8, high = 256, scale = \"log\", points = 3 }\n\
    \"batch\" = { low = 16, high = 64, step = 16, when = { kind = [\"a\", \"b\"] } }\n\
    \"share\" = { low = 0.1, high = 0.5, step = 0.2, when = { kind = \"b\" } }\n";

fn space() -> Space {
    let text = format!("job = \"j\"\n[budget]\ntrials = 1\n[space]\n{KEYS}");
    sweep::read(&text, "s").unwrap().space
}

fn plan(kind: SamplerKind, scheduler: &str, seed: u64, trials: u64, concurrent: u32) -> Plan {
    let resources = Resources { reduction: 3, minimum: 1, maximum: Some(9), unit: Unit::Epochs };
    let scheduler = match scheduler {
        "asha" => TrialScheduler::Asha(resources),
        "hyperband" => TrialScheduler::Hyperband(resources),
        "median" => TrialScheduler::Median(resources),
        _ => TrialScheduler::None,
    };
    let ladder = scheduler.resources().map(|_| Ladder { minimum: 1, maximum: 9, reduction: 3 });
    let sampler = Sampler { kind, seed, startup_trials: None };
    Plan {
        space: space(),
        sampler,
        scheduler,
        ladder,
        metric: Metric::Loss,
        trials: Some(trials),
        concurrent,
    }
}

/// The figure of a trial at a length: any function will do.
fn figure(trial: u64, at: u64) -> f64 {
    (mix(trial * 77 + 5) % 1000) as f64 / 1000.0 + 1.0 / at as f64
}

/// A fact, and what was decided after it.
#[derive(Debug, Clone)]
enum Fact {
    Reported(u64, u64, f64),
    Finished(u64),
    Failed(u64),
}

/// A fact, if there is one, and what was decided then.
type Told = (Option<Fact>, Vec<Decision>);

fn take(search: &mut Search, fact: &Fact) {
    match fact {
        Fact::Reported(trial, at, figure) => search.report(*trial, *at, *figure).unwrap(),
        Fact::Finished(trial) => search.finish(*trial).unwrap(),
        Fact::Failed(trial) => search.fail(*trial, "why".into()).unwrap(),
    }
}

/// Checks a decision against what is known, without asking how it came about.
fn is_justified(search: &Search, decision: &Decision) {
    match decision {
        Decision::Begin { trial, sample, .. } => {
            assert_eq!(*trial, search.trials.len() as u64);
            assert!(search.plan().space.has(sample), "{sample:?}");
            assert!(search.training().count() < search.plan().concurrent as usize);
        }
        Decision::Continue { trial, to, .. } => {
            let trial = &search.trials[*trial as usize];
            let at = trial.to.unwrap();
            assert_eq!(*to, at * 3, "a rung was left out");
            let mine = trial.reports[&at];
            let figures = search.trials.iter().filter_map(|other| other.reports.get(&at));
            let better = figures.clone().filter(|other| **other < mine).count();
            if matches!(search.plan().scheduler, TrialScheduler::Asha(_)) {
                assert!(better < figures.count() / 3, "beyond the best third");
            }
        }
        Decision::Pause { trial, .. } => {
            let trial = &search.trials[*trial as usize];
            assert!(trial.reports.contains_key(&trial.to.unwrap()) && trial.state == TrialState::Training);
        }
        Decision::Stop { trial, .. } => assert!(!search.trials[*trial as usize].state.has_ended()),
    }
}

/// Drives a search in an order of events that the seed says; returns it with its log.
fn drive(plan: Plan, order: u64, fails: bool) -> (Search, Vec<Told>) {
    let mut search = Search::new(plan);
    let (mut log, mut fact, mut random) = (Vec::new(), None, order);
    loop {
        let mut decisions = Vec::new();
        while let Some(decision) = search.next() {
            is_justified(&search, &decision);
            search.apply(&decision).unwrap();
            decisions.push(decision);
        }
        log.push((fact.take(), decisions));
        assert!(search.training().count() <= search.plan().concurrent as usize);
        let training: Vec<u64> = search.training().map(|trial| trial.number).collect();
        if training.is_empty() {
            return (search, log);
        }
        random = mix(random.wrapping_add(1));
        let number = training[random as usize % training.len()];
        let trial = &search.trials[number as usize];
        let at = trial.reports.last_key_value().map_or(0, |(at, _)| *at);
        let next = match (at, fails && mix(number ^ order).is_multiple_of(7)) {
            (_, true) => Fact::Failed(number),
            (9, _) => Fact::Finished(number),
            (at, _) => Fact::Reported(number, at + 1, figure(number, at + 1)),
        };
        take(&mut search, &next);
        fact = Some(next);
    }
}

fn kinds() -> impl Strategy<Value = SamplerKind> {
    prop_oneof![
        Just(SamplerKind::Grid),
        Just(SamplerKind::Random),
        Just(SamplerKind::Sobol),
        Just(SamplerKind::Tpe)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn every_decision_is_justified_and_every_trial_ends(
        kind in kinds(), which in 0_usize..4, seed in any::<u64>(), trials in 1_u64..40,
        concurrent in 1_u32..6, order in any::<u64>(), fails in any::<bool>(),
    ) {
        let scheduler = ["none", "asha", "hyperband", "median"][which];
        let (search, _) = drive(plan(kind, scheduler, seed, trials, concurrent), order, fails);
        prop_assert!(search.is_over());
        prop_assert_eq!(search.trials.len() as u64, trials.min(search.most_trials().unwrap()));
        let alive = search.trials.iter().any(|trial| !matches!(trial.state, TrialState::Failed(_)));
        prop_assert_eq!(search.best().is_some(), alive);
    }

    #[test]
    fn the_same_facts_give_the_same_decisions(
        kind in kinds(), which in 0_usize..4, seed in any::<u64>(), order in any::<u64>(),
    ) {
        let plan = plan(kind, ["none", "asha", "hyperband", "median"][which], seed, 24, 4);
        let (_, log) = drive(plan.clone(), order, true);
        let mut again = Search::new(plan);
        for (fact, decisions) in log {
            fact.iter().for_each(|fact| take(&mut again, fact));
            for decision in decisions {
                // What was written down and read again is the same.
                let read: Decision = serde_json::from_str(&serde_json::to_string(&decision).unwrap()).unwrap();
                prop_assert_eq!(again.next(), Some(read.clone()));
                again.apply(&read).unwrap();
            }
            prop_assert_eq!(again.next(), None);
        }
    }

    #[test]
    fn workers_are_dealt_out_whole(seed in any::<u64>(), slots in 1_u32..12, most in 1_u32..5) {
        let mut search = Search::new(plan(SamplerKind::Random, "asha", seed, 8, 5));
        while let Some(decision) = search.next() {
            search.apply(&decision).unwrap();
        }
        search.report(3, 1, 0.1).unwrap();
        search.report(1, 1, 0.2).unwrap();
        let shares = search.shares(slots, |_| most);
        let sum: u32 = shares.values().sum();
        prop_assert_eq!(sum, slots.min(5 * most));
        prop_assert_eq!(shares.len() as u32, slots.min(5));
        prop_assert!(shares.values().all(|workers| (1..=most).contains(workers)));
        // The most promising has most.
        prop_assert!(shares.values().all(|workers| *workers <= shares[&3]));
    }
}

#[test]
fn a_grid_has_every_combination_once() {
    let samples = grid::all(&space());
    // 4 rates, 3 widths; a: 4 batches, b: 4 batches and 3 shares, c: neither.
    assert_eq!(samples.len(), 4 * 3 * (4 + 4 * 3 + 1));
    let texts: BTreeSet<String> = samples.iter().map(|sample| format!("{sample:?}")).collect();
    assert_eq!(texts.len(), samples.len());
    assert!(samples.iter().all(|sample| space().has(sample)));
    let rates: BTreeSet<String> = samples.iter().map(|sample| sample["rate"].to_string()).collect();
    assert_eq!(rates.into_iter().collect::<Vec<_>>(), ["0.0001", "0.00215443", "0.0464159", "1.0"]);
    let widths: BTreeSet<u64> =
        samples.iter().filter_map(|sample| sample["width"].number()).map(|w| w as u64).collect();
    assert_eq!(widths.into_iter().collect::<Vec<_>>(), [8, 45, 256]);
}

#[test]
fn sobol_points_are_those_of_scipy() {
    // scipy.stats.qmc.Sobol(d=21, scramble=False, bits=32).random(1024), SciPy 1.x.
    let five = [
        0.875, 0.875, 0.125, 0.375, 0.875, 0.625, 0.875, 0.375, 0.375, 0.125, 0.375, 0.875, 0.875, 0.125,
        0.875, 0.375, 0.875, 0.375, 0.375, 0.625, 0.625,
    ];
    let hundred = [
        0.414_062_5,
        0.257_812_5,
        0.773_437_5,
        0.726_562_5,
        0.882_812_5,
        0.742_187_5,
        0.023_437_5,
        0.476_562_5,
        0.632_812_5,
        0.695_312_5,
        0.460_937_5,
        0.679_687_5,
        0.476_562_5,
        0.851_562_5,
        0.320_312_5,
        0.492_187_5,
        0.679_687_5,
        0.742_187_5,
        0.835_937_5,
        0.335_937_5,
        0.757_812_5,
    ];
    let last = [
        0.000_976_562_5,
        0.752_929_687_5,
        0.612_304_687_5,
        0.145_507_812_5,
        0.186_523_437_5,
        0.438_476_562_5,
        0.139_648_437_5,
        0.618_164_062_5,
        0.344_726_562_5,
        0.850_585_937_5,
        0.678_710_937_5,
        0.036_132_812_5,
        0.129_882_812_5,
        0.665_039_062_5,
        0.362_304_687_5,
        0.463_867_187_5,
        0.313_476_562_5,
        0.875_976_562_5,
        0.584_960_937_5,
        0.319_335_937_5,
        0.866_210_937_5,
    ];
    for (number, expected) in [(5, five), (100, hundred), (1023, last)] {
        for (dimension, expected) in expected.into_iter().enumerate() {
            assert_eq!(sobol::point(number, dimension), expected, "point {number}, dimension {dimension}");
        }
    }
}

#[test]
fn sobol_points_fill_every_cell_once() {
    for seed in [0, 1, 99] {
        for dimension in 0..sobol::DIMENSIONS {
            let cells: BTreeSet<u64> =
                (0..256).map(|number| (sobol::shifted(number, dimension, seed) * 256.0) as u64).collect();
            assert_eq!(cells.len(), 256, "dimension {dimension}");
        }
    }
}

#[test]
fn a_bracket_keeps_a_third_of_each_rung() {
    let (search, log) = drive(plan(SamplerKind::Random, "hyperband", 3, 17, 4), 11, false);
    // One whole round: 9 trials from 1, 5 from 3 and 3 from 9 on.
    let mut promoted: BTreeMap<(bool, u64), u64> = BTreeMap::new();
    for decision in log.iter().flat_map(|(_, decisions)| decisions) {
        if let Decision::Continue { trial, to, .. } = decision {
            *promoted.entry((*trial < 9, *to)).or_default() += 1;
        }
    }
    let expected = BTreeMap::from([((true, 3), 3), ((true, 9), 1), ((false, 9), 1)]);
    assert_eq!(promoted, expected);
    let finished = search.trials.iter().filter(|trial| trial.state == TrialState::Finished);
    assert_eq!(finished.count(), 5);
    // The best of each rung went on, and no other.
    let best = (0..9).min_by(|a, b| figure(*a, 3).total_cmp(&figure(*b, 3))).unwrap();
    assert_eq!(search.trials[best as usize].state, TrialState::Finished);
}

#[test]
fn a_trial_far_behind_ends_at_the_median() {
    let mut search = Search::new(plan(SamplerKind::Random, "median", 1, 7, 7));
    while let Some(decision) = search.next() {
        search.apply(&decision).unwrap();
    }
    for trial in 0..6 {
        search.report(trial, 1, 1.0 + trial as f64).unwrap();
    }
    // Of five others that have a figure the median is 3; the sixth has 6.
    let stopped = search.next();
    let Some(Decision::Stop { trial, reason: Reason::BelowMedian { median, others, .. } }) = stopped else {
        panic!("{stopped:?}")
    };
    assert!(trial >= 3 && others == 5 && (2.0..=3.0).contains(&median), "{trial} {median}");
    // One that is better than most goes on.
    let mut search = Search::new(plan(SamplerKind::Random, "median", 1, 7, 7));
    while let Some(decision) = search.next() {
        search.apply(&decision).unwrap();
    }
    (0..5).for_each(|trial| search.report(trial, 1, 1.0).unwrap());
    search.report(5, 1, 0.5).unwrap();
    assert_eq!(search.next(), None);
}

#[test]
fn numbers_that_are_none_fail_their_trial_only() {
    let mut search = Search::new(plan(SamplerKind::Random, "asha", 1, 4, 2));
    while let Some(decision) = search.next() {
        search.apply(&decision).unwrap();
    }
    search.report(0, 1, f64::NAN).unwrap();
    assert!(matches!(&search.trials[0].state, TrialState::Failed(why) if why.contains("NaN")));
    assert_eq!(search.trials[1].state, TrialState::Training);
    assert!(matches!(search.next(), Some(Decision::Begin { trial: 2, .. })));
    assert!(search.report(0, 3, 0.1).is_err());
}

/// The least cost that a sampler finds in 60 trials, as a mean over seeds.
fn found(kind: SamplerKind) -> f64 {
    let cost = |sample: &Sample| {
        let rate = libm::log10(sample["rate"].number().unwrap());
        let kind = if sample["kind"] == Value::Text("b".into()) { 0.0 } else { 0.5 };
        let width = libm::log2(sample["width"].number().unwrap());
        (rate + 2.3) * (rate + 2.3) + kind + 0.1 * (width - 6.0).abs()
    };
    let seeds = 8;
    let best = (0..seeds).map(|seed| {
        let mut search = Search::new(plan(kind, "none", seed, 60, 1));
        while let Some(decision) = search.next() {
            search.apply(&decision).unwrap();
            let Decision::Begin { trial, sample, .. } = decision else { panic!("{decision:?}") };
            search.report(trial, 1, cost(&sample)).unwrap();
            search.finish(trial).unwrap();
        }
        search.latest(search.best().unwrap()).unwrap().1
    });
    best.sum::<f64>() / seeds as f64
}

#[test]
fn tpe_finds_more_than_chance() {
    let (tpe, random) = (found(SamplerKind::Tpe), found(SamplerKind::Random));
    assert!(tpe < 0.5 * random, "TPE {tpe}, random {random}");
}

#[test]
fn a_rehearsal_trains_what_the_scheduler_lets_it() {
    let curves: Vec<rehearsal::Curve> =
        (0..27).map(|trial| (1..=9).map(|at| (at, figure(trial, at))).collect()).collect();
    let stage = rehearsal::Stage {
        curves: &curves,
        workers: 4,
        most_workers: 4,
        unit_s: &|workers| 8.0 / f64::from(workers),
        change_s: 0.0,
        limits: (None, None),
    };
    let whole = rehearsal::rehearse(plan(SamplerKind::Random, "none", 1, 27, 4), &stage).unwrap();
    assert_eq!((whole.trials, whole.finished, whole.units), (27, 27, 27 * 9));
    assert!((whole.worker_s - 27.0 * 9.0 * 8.0).abs() < 1e-6, "{}", whole.worker_s);
    // With all four workers busy all the time.
    assert!((whole.seconds - whole.worker_s / 4.0).abs() < 1e-6, "{}", whole.seconds);
    let asha = rehearsal::rehearse(plan(SamplerKind::Random, "asha", 1, 27, 4), &stage).unwrap();
    assert!(asha.units < whole.units / 2 && asha.trials == 27, "{asha:?}");
    assert!(asha.best.unwrap() <= whole.best.unwrap() + 0.2);
    let limits = (Some(100.0), None);
    let short = rehearsal::rehearse(
        plan(SamplerKind::Random, "asha", 1, 27, 4),
        &rehearsal::Stage { limits, ..stage },
    );
    assert!(short.unwrap().worker_s < 200.0);
}
