//! A seeded simulation of the membership protocol with faults, and targeted histories.

#[path = "membership/cases.rs"]
mod cases;
#[path = "membership/checks.rs"]
mod checks;
#[path = "membership/control.rs"]
mod control;
#[path = "membership/faults.rs"]
mod faults;
#[path = "membership/process.rs"]
mod process;
#[path = "membership/random.rs"]
mod random;
#[path = "membership/rounds.rs"]
mod rounds;
#[path = "membership/scenario.rs"]
mod scenario;
#[path = "membership/world.rs"]
mod world;

use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use scenario::Scenario;
use world::World;

/// Seeds that every test run goes through.
const SEEDS: Range<u64> = 0..2000;

/// Lines of the history that a failure prints.
const LINES: usize = 120;

fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("BELLWETHER_SEEDS") else { return SEEDS };
    let (start, end) = text.split_once("..").expect("BELLWETHER_SEEDS is START..END");
    start.parse().expect("a number")..end.parse().expect("a number")
}

/// Runs a seed; a failure comes back with the end of its history.
fn failure(seed: u64, counts: &mut BTreeMap<&'static str, u64>) -> Option<String> {
    let mut world = World::new(Scenario::new(seed), false);
    if catch_unwind(AssertUnwindSafe(|| world.run())).is_err() {
        world.violate("the machine panics".into());
    }
    for (name, count) in world.counts() {
        *counts.entry(name).or_default() += count;
    }
    world.violation.as_ref()?;
    let mut world = World::new(Scenario::new(seed), true);
    if catch_unwind(AssertUnwindSafe(|| world.run())).is_err() {
        world.violate("the machine panics".into());
    }
    let lines = std::env::var("BELLWETHER_LINES").ok().and_then(|l| l.parse().ok()).unwrap_or(LINES);
    let why = world.violation.clone().unwrap_or_default();
    Some(format!("{}\n{:?}\nseed {seed}: {why}", world.last_lines(lines), world.scenario))
}

#[test]
fn histories_with_faults_keep_every_promise() {
    let range = seeds();
    let keep_going = std::env::var("BELLWETHER_SEEDS").is_ok();
    let (mut failed, mut counts) = (Vec::new(), BTreeMap::new());
    for seed in range.clone() {
        if let Some(text) = failure(seed, &mut counts) {
            if failed.is_empty() {
                println!("{text}");
            } else {
                println!("{}", text.lines().find(|l| l.starts_with("seed")).unwrap_or_default());
            }
            failed.push(seed);
            if !keep_going || failed.len() > 200 {
                break;
            }
        }
    }
    println!("seeds {range:?} went through {counts:?}");
    assert!(failed.is_empty(), "{} seeds fail: {failed:?}", failed.len());
    // A simulation in which nothing happens proves nothing.
    if range == SEEDS {
        for rare in [
            "catch-ups",
            "rollbacks",
            "promotions",
            "hold rounds",
            "stopped",
            "crashes",
            "refusals",
            "changes of the batch",
            "histories compared with their journal",
        ] {
            assert!(counts[rare] > 0, "no history has {rare}");
        }
    }
}

#[test]
fn a_seed_is_a_whole_history() {
    for seed in [1, 2, 3, 4, 5, 11, 23] {
        let trace = || {
            let mut world = World::new(Scenario::new(seed), true);
            world.run();
            world.into_trace()
        };
        assert_eq!(trace(), trace(), "seed {seed} is not deterministic");
    }
}
