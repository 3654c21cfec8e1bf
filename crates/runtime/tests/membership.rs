//! A seeded simulation of the membership protocol with faults, and targeted histories.

#[path = "membership/cases.rs"]
mod cases;
#[path = "membership/checks.rs"]
mod checks;
#[path = "membership/control.rs"]
mod control;
#[path = "membership/faults.rs"]
mod faults;
#[path = "membership/hangs.rs"]
mod hangs;
#[path = "membership/last_checkpoint.rs"]
mod last_checkpoint;
#[path = "membership/late.rs"]
mod late;
#[path = "membership/late_servers.rs"]
mod late_servers;
#[path = "membership/mismatch.rs"]
mod mismatch;
#[path = "membership/nonsense.rs"]
mod nonsense;
#[path = "membership/process.rs"]
mod process;
#[path = "membership/promises.rs"]
mod promises;
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
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use scenario::Scenario;
use world::World;

/// Seeds that every test run goes through.
const SEEDS: Range<u64> = 0..3000;

/// Lines of the history that a failure prints.
const LINES: usize = 120;

/// Seeds that may fail before a search ends.
const FAILURES_MAX: usize = 200;

/// What all histories together went through.
type Counts = BTreeMap<&'static str, u64>;

/// `BELLWETHER_SEEDS=START..END` goes through other seeds, and does not stop at the first that fails.
fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("BELLWETHER_SEEDS") else { return SEEDS };
    let (start, end) = text.split_once("..").expect("BELLWETHER_SEEDS is START..END");
    start.parse().expect("a number")..end.parse().expect("a number")
}

/// `BELLWETHER_THREADS` of them; otherwise as many as there are processors.
fn threads() -> usize {
    let told = std::env::var("BELLWETHER_THREADS").ok().and_then(|text| text.parse().ok());
    told.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
}

/// Runs a seed; a failure comes back with the end of its history.
fn failure(seed: u64, counts: &mut Counts) -> Option<String> {
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

/// Goes through the seeds on all threads; those that fail, and what the histories went through.
fn search(range: &Range<u64>, failures_max: usize) -> (BTreeMap<u64, String>, Counts) {
    let next = AtomicU64::new(range.start);
    let found = Mutex::new((BTreeMap::new(), Counts::new()));
    let look = || {
        let mut counts = Counts::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= range.end {
                break;
            }
            if let Some(text) = failure(seed, &mut counts) {
                let mut found = found.lock().expect("no holder of this lock panics");
                found.0.insert(seed, text);
                if found.0.len() >= failures_max {
                    next.store(range.end, Ordering::Relaxed);
                }
            }
        }
        let mut found = found.lock().expect("no holder of this lock panics");
        counts.into_iter().for_each(|(name, count)| *found.1.entry(name).or_default() += count);
    };
    std::thread::scope(|scope| (0..threads()).for_each(|_| drop(scope.spawn(look))));
    found.into_inner().expect("no holder of this lock panics")
}

#[test]
fn histories_with_faults_keep_every_promise() {
    let range = seeds();
    let (failed, counts) = search(&range, if range == SEEDS { 1 } else { FAILURES_MAX });
    for (place, text) in failed.values().enumerate() {
        let whole = place == 0;
        println!(
            "{}",
            text.lines().rfind(|line| line.starts_with("seed")).filter(|_| !whole).unwrap_or(text)
        );
    }
    println!("seeds {range:?} went through {counts:?}");
    assert!(failed.is_empty(), "{} seeds fail: {:?}", failed.len(), failed.keys());
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
            "pauses of the coordinator",
            "hangs",
            "silent links",
            "late members",
            "changes of the batch",
            "mismatches",
            "quarantines",
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
