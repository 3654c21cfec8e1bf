//! Histories of the engine, each from a seed: daemons that are killed between any two deeds, machines that lose their
//! power, disks that refuse a write or damage a line, clocks that are set, coordinators that die, say nothing or answer
//! late, and users in between. In the end every promise is checked.
//!
//! `BELLWETHER_SEEDS=START..END` chooses other seeds. The first one that fails tells what happened.

mod compacted;
mod disk;
mod replay;
mod runs;
mod users;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use bellwether_core::cluster::JobId;
use bellwether_sched::registry::Registry;
use bellwether_serve::engine::{Engine, EngineError, Options};
use bellwether_serve::ledger::{Entry, Outcome};
use bellwether_serve::machine::{DeviceType, Machine, MachineNode, SlurmJobs};
use bellwether_serve::snapshot::Phase;
use bellwether_serve::state::{Record, State};

use bellwether_testkit::search::{Counts, search, seeds};
use disk::PlayedStore;
use world::{CRASHES_MAX, PlayedClock, Players, SLOTS, STEPS, Shared, World};

pub(crate) const POLICIES: [&str; 7] = ["fifo", "fifo_skip", "srtf", "wfs", "hell", "las", "priority"];

/// Seeds that every test run goes through; a search through others does not stop at the first that fails.
const SEEDS: Range<u64> = 0..300;

/// Seeds that may fail before a search ends.
const FAILURES_MAX: usize = 50;

/// Daemons of a history, the last of which lives until all is over.
const DAEMONS: u64 = 6;

/// Whether the nodes of a history are machines of their own, which go and come back.
pub(crate) fn is_cluster(seed: u64) -> bool {
    seed % 6 == 4
}

/// Whether queues divide the slots from the beginning; users may change that in these.
pub(crate) fn has_queues(seed: u64) -> bool {
    seed % 4 == 1
}

/// One node, two equal ones (some of them a cluster's), or a fast and a slow one, in turn; some slots have little
/// memory.
fn machine(seed: u64) -> Machine {
    let mut machine = Machine::slots(SLOTS);
    let which = seed % 3;
    if which > 0 {
        machine.nodes = vec![MachineNode { name: String::new(), device_type: 0, devices: SLOTS / 2 }; 2];
    }
    if which > 1 {
        let memory_bytes = Some(1 << 30);
        machine.device_types.push(DeviceType { name: "slow".into(), speed: 0.5, memory_bytes });
        machine.nodes[1].device_type = 1;
    }
    if is_cluster(seed) {
        for (number, node) in machine.nodes.iter_mut().enumerate() {
            node.name = format!("n{number}");
        }
        let (partition, script) = ("all".into(), String::new());
        let key = "daemon-".into();
        machine.slurm =
            Some(SlurmJobs { partition, options: Vec::new(), script, processors_per_slot: 1, key });
    }
    if seed.is_multiple_of(5) {
        machine.device_types[0].memory_bytes = Some(1 << 30);
    }
    machine
}

/// Bytes with which a ledger is compacted: in half of the histories never.
fn compact_at(seed: u64) -> u64 {
    if seed % 16 < 8 { u64::MAX } else { 4096 }
}

/// One daemon, from its start until it stops or is killed.
fn one_daemon(seed: u64, folder: &std::path::Path, shared: &Shared, is_last: bool) {
    let policy = POLICIES[seed as usize % POLICIES.len()];
    let (is_new, knows_no_policy) = {
        let mut world = shared.lock();
        let is_new = !world.disk.bytes.contains(&b'\n');
        world.tell(|| "a daemon begins".into());
        world.calm = is_last;
        if !is_last {
            let deeds = world.random.below(400);
            (world.deeds_left, world.disk.appends_left) = match world.random.below(4) {
                0 => (None, Some(deeds / 2)),
                _ => (Some(deeds), None),
            };
        }
        let lines = replay::lines(&world.disk.bytes);
        let knows_a_policy = lines.iter().any(|line| match &line.entry {
            Entry::PolicyChosen { .. } => true,
            Entry::KeptState(kept) => !kept.policy.is_empty(),
            _ => false,
        });
        (is_new, !knows_a_policy)
    };
    let runs = folder.to_path_buf();
    let options = Options {
        folder: folder.into(),
        ledger: "ledger".into(),
        machine: is_new.then(|| machine(seed)),
        // Also where the line that chose one was lost.
        policy: Some(policy.into()).filter(|_| knows_no_policy),
        queues: (is_new && has_queues(seed)).then(|| users::queues(seed)),
        registry: Registry::built_in(),
        time_scale: None,
        retries: CRASHES_MAX,
        remaining: None,
        compact_at: compact_at(seed),
        outlook: None,
        tell: Box::new(|_| {}),
        prepare: Box::new(move |submitted, _| Ok(runs.join(&submitted.name))),
    };
    let (clock, store) = (PlayedClock(shared.clone()), Box::new(PlayedStore(shared.clone())));
    let opened = Engine::open_with(options, clock, store, |reports| {
        shared.lock().reports = Some(reports);
        Players(shared.clone())
    });
    let lived = opened.and_then(|(engine, ends)| {
        let mut world = shared.lock();
        world.ends = Some(ends);
        world.tell_of_nodes();
        drop(world);
        engine.run()
    });
    let mut world = shared.lock();
    let was_ended = world.dead || std::mem::take(&mut world.disk.refused);
    (world.disk.appends_left, world.disk.full_until) = (None, Duration::ZERO);
    match lived {
        Err(EngineError::Fault(fault)) if was_ended && fault.to_string().contains("no space left") => {}
        Err(EngineError::Ledger { .. }) if was_ended => {}
        Ok(()) if world.dead || is_last => {}
        other => panic!("a daemon ended: {other:?}"),
    }
    world.hang_up();
    world.bury();
}

/// One history, from the first daemon to the end of all jobs, with every promise checked.
fn live_through(seed: u64, shared: &Shared) {
    let folder = tempfile::tempdir().unwrap();
    let mut lost_jobs = BTreeSet::new();
    for daemon in 1..=DAEMONS {
        one_daemon(seed, folder.path(), shared, daemon == DAEMONS);
        let mut world = shared.lock();
        if daemon < DAEMONS && world.random.below(5) == 0 {
            world.lose_power();
        }
        // In one of eight histories the disk is faulty.
        if daemon < DAEMONS && seed.is_multiple_of(8) {
            lost_jobs.extend(world.damage_ledger());
        }
        // Time passes until the next one is started, and jobs go on.
        for _ in 0..world.random.below(30) {
            world.turn(Duration::from_millis(100));
        }
    }
    check(seed, &mut shared.lock(), &lost_jobs);
}

fn check(seed: u64, world: &mut World, lost_jobs: &BTreeSet<String>) {
    let (mut state, mut ends) = (None::<State>, BTreeMap::<JobId, Outcome>::new());
    for line in replay::lines(&world.disk.bytes) {
        match &line.entry {
            Entry::Ended { job, outcome, .. } => {
                assert_eq!(ends.insert(*job, *outcome), None, "job {} ends twice", job.0);
            }
            Entry::KeptJob(kept) | Entry::KeptElsewhere(kept) => {
                ends.extend(kept.record.end.as_ref().map(|end| (kept.record.submitted.id, end.outcome)));
            }
            Entry::Held { job, .. } | Entry::Training { job, .. } | Entry::Leaving { job } => {
                assert!(!ends.contains_key(job), "job {} goes on after its end", job.0);
            }
            _ => {}
        }
        State::fold(&mut state, &line).unwrap_or_else(|what| panic!("{what}"));
    }
    let state = state.expect("a ledger has a first line");
    for (name, cancelled) in world.promised() {
        let Some(record) = state.named(&name) else {
            assert!(lost_jobs.contains(&name), "{name} was accepted, and is lost");
            continue;
        };
        let id = state.names[&name];
        let Some(outcome) = ends.get(&id) else { panic!("{name} has not ended") };
        let fits = match outcome {
            Outcome::Finished => record.step == STEPS,
            Outcome::Cancelled => cancelled,
            Outcome::Failed | Outcome::Refused => false,
        };
        assert!(fits, "{name} came to {outcome:?} at step {}: {}", record.step, record.why);
        let crashes = world.runs.get(&id).map_or(0, |run| run.crashes);
        assert!(record.failures <= crashes, "{name}: {} of {crashes} failures", record.failures);
        world.count(if *outcome == Outcome::Finished { "finished" } else { "cancelled" }, 1);
        world.count("failures", u64::from(record.failures));
    }
    for (id, record) in &state.jobs {
        assert!(record.end.is_some(), "{} has not ended", id.0);
        is_shown(world, record);
    }
    assert_eq!(world.shown.len(), state.jobs.len(), "clients saw all jobs");
    assert_eq!(state.slots.count(), 0, "all slots are free");
    for (id, run) in world.runs.iter().filter(|(id, _)| state.jobs.contains_key(id)) {
        assert!(!run.holds_machines, "{} is over, and its machines are not given back: {run:?}", id.0);
    }
    // What the disk lost a policy may have been shown.
    if !seed.is_multiple_of(8) {
        let compared = replay::decisions_follow(&world.disk.bytes).unwrap_or_else(|fault| panic!("{fault}"));
        world.count("decisions", compared);
    }
}

/// What clients saw last is what follows from the ledger.
fn is_shown(world: &World, record: &Record) {
    let name = &record.submitted.name;
    let (end, shown) = (record.end.as_ref().expect("it has ended"), &world.shown[name]);
    let phase = match end.outcome {
        Outcome::Finished => Phase::Finished,
        Outcome::Cancelled => Phase::Cancelled,
        Outcome::Failed | Outcome::Refused => Phase::Failed,
    };
    let told = (phase, end.step, record.failures, record.preemptions, &record.why);
    assert_eq!((shown.state, shown.step, shown.failures, shown.preemptions, &shown.why), told, "{name}");
}

/// Runs a seed; a failure comes back with its history.
fn failure(seed: u64, counts: &mut Counts) -> Option<String> {
    let shared = Shared::new(seed);
    let lived = catch_unwind(AssertUnwindSafe(|| live_through(seed, &shared)));
    let world = shared.lock();
    world.counts.iter().for_each(|(name, count)| *counts.entry(name).or_default() += count);
    let panic = lived.err()?;
    let why = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    let ledger = String::from_utf8_lossy(&world.disk.bytes);
    Some(format!("{}\n{ledger}\nseed {seed}: {}", world.story.join("\n"), why.unwrap_or("it panics")))
}

#[test]
fn every_promise_is_kept_whatever_happens() {
    let range = seeds(SEEDS);
    let failures_max = if range == SEEDS { 1 } else { FAILURES_MAX };
    let (failed, counts) = search(&range, failures_max, failure);
    if let Some(text) = failed.values().next() {
        println!("{text}");
    }
    println!("seeds {range:?} went through {counts:?}");
    assert!(failed.is_empty(), "{} seeds fail: {:?}", failed.len(), failed.keys());
    // What is never tried proves nothing.
    if range == SEEDS {
        for (what, least) in [
            ("finished", 300),
            ("cancelled", 100),
            ("failures", 100),
            ("decisions", 7_000),
            ("killed between two deeds", 100),
            ("writes refused", 20),
            ("disks full", 100),
            ("power lost", 20),
            ("clocks set", 100),
            ("ledgers repaired", 20),
            ("ledgers compacted", 100),
            ("coordinators died", 100),
            ("stopped by hand", 50),
            ("nodes down", 100),
            ("machines of their own", 100),
        ] {
            let count = counts.get(what).copied().unwrap_or(0);
            assert!(count >= least, "{what}: {count} of {least}");
        }
    }
}

#[test]
fn a_seed_is_a_whole_history() {
    for seed in [1, 8, 11] {
        let trace = || {
            let shared = Shared::new(seed);
            live_through(seed, &shared);
            let world = shared.lock();
            (world.story.clone(), world.disk.bytes.clone())
        };
        let (once, again) = (trace(), trace());
        assert!(once == again, "seed {seed}");
    }
}
