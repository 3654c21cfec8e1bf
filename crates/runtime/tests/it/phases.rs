//! A seeded simulation of phases: the coordinator, workers and servers that obey its words, and a fault injector that
//! kills them.
//!
//! One thing happens at a time, chosen by dice: a message arrives, a process does its next bit of work, a collective
//! ends, time passes, something goes wrong. A state is a set of applied units for each shard, so that a unit that is
//! lost or applied twice shows at the next hand-over.

mod coordinator;
mod server;
mod worker;
mod world;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bellwether_testkit::search;
use world::World;

/// Seeds that every test run goes through.
const SEEDS: Range<u64> = 0..400;

#[test]
fn phases_with_faults_keep_every_promise() {
    let seeds = search::seeds(SEEDS);
    let alone = seeds.end - seeds.start == 1;
    let (mut replaced, mut crashed, mut resumed, mut applied) = (0, 0, 0, 0);
    for seed in seeds {
        let mut world = World::new(seed, alone);
        if catch_unwind(AssertUnwindSafe(|| world.run())).is_err() {
            let text = format!("the machine panics: {:?}", world.coordinator);
            world.violate(text);
        }
        if let Some(why) = &world.violation {
            panic!("{}\nseed {seed}: {why}\n{:?}", world.last_lines(150), world.plan);
        }
        replaced += world.watch.replaced;
        crashed += world.watch.crashed;
        resumed += world.generation - 1;
        applied += world.watch.applied;
    }
    println!(
        "{replaced} servers replaced, {crashed} workers lost, {resumed} coordinators resumed, {applied} updates"
    );
    // A simulation in which nothing happens proves nothing.
    assert!(alone || [replaced, crashed, resumed, applied].iter().all(|count| *count > 100));
}

#[test]
fn a_seed_is_a_whole_history() {
    for seed in 0..20 {
        let trace = || {
            let mut world = World::new(seed, true);
            world.run();
            world.last_lines(usize::MAX)
        };
        assert_eq!(trace(), trace(), "seed {seed}");
    }
}
