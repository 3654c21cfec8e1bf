//! Workers that share the optimizer's state (`[sharding]`): the bits, what a resize moves, and what a crash costs.

use bellwether_core::record::{Event, Summary};

use rustix::process::Signal;

use crate::harness::{Random, Scene, wait_for};
use crate::jobs::{self, Recipe};

const ONCE: [&str; 2] = ["--set", "sharding.copies=1"];
const TWICE: [&str; 2] = ["--set", "sharding.copies=2"];

pub(crate) fn finished(summary: &Summary) -> String {
    assert_eq!(summary.outcome.word(), "finished", "{summary:?}");
    summary.params_digest.clone().expect("a finished run has a digest")
}

fn digest(recipe: &Recipe, options: &[&[&str]]) -> String {
    finished(&recipe.scene().train(&options.concat()).summary())
}

#[test]
fn a_sharded_optimizer_gives_the_same_bits_on_any_workers() {
    let recipes = [
        jobs::momentum(),
        jobs::adam_dropout(),
        // A rule without slots, and a model's state.
        jobs::batch_norm(),
        // Adam, with gradients clipped by the norm of all.
        jobs::transformer().nodes(12),
        // A vector of several pieces, and one whose gradients leave while others are computed.
        jobs::heavy(),
        jobs::layered(),
    ];
    for recipe in recipes {
        for workers in ["1", "2", "3"] {
            assert_eq!(digest(&recipe, &[&ONCE, &["--workers", workers]]), recipe.digest(), "{workers}");
        }
        let copies = digest(&recipe, &[&TWICE, &["--workers", "3"]]);
        assert_eq!(copies, recipe.digest(), "two copies");
    }
}

#[test]
fn a_sharded_optimizer_gives_the_same_bits_where_the_batch_moves() {
    let recipe = jobs::momentum().steps(100);
    let goodput = ["--set", "mode.goodput.max_batch=128", "--batch-schedule", "10:3,40:2"];
    let alone = digest(&recipe, &[&goodput, &["--workers", "1"]]);
    assert_eq!(digest(&recipe, &[&goodput, &ONCE, &["--workers", "3"]]), alone);
    assert_eq!(digest(&recipe, &[&goodput, &ONCE, &["--workers", "2", "--resize", "30:4,60:2"]]), alone);
}

#[test]
fn shards_move_when_workers_come_and_go() {
    // The transformer clips: newcomers hear of the gradient's norm, too.
    for recipe in [jobs::adam_dropout(), jobs::heavy().steps(60), jobs::transformer().nodes(12)] {
        for copies in [ONCE, TWICE] {
            let resized = digest(&recipe, &[&copies, &["--workers", "2", "--resize", "10:4,25:1,40:3"]]);
            assert_eq!(resized, recipe.digest(), "{copies:?}");
        }
    }
}

#[test]
fn gradients_in_bfloat16_are_scattered() {
    let recipe = jobs::adam_dropout();
    let bfloat16 = ["--set", "exchange.precision=bf16"];
    let alone = digest(&recipe, &[&bfloat16, &["--workers", "1"]]);
    assert_eq!(digest(&recipe, &[&bfloat16, &TWICE, &["--workers", "3", "--resize", "30:2"]]), alone);
}

/// Members of the last membership.
fn members(scene: &Scene) -> usize {
    let all = scene.picked(|event| match event {
        Event::Membership { workers, .. } => Some(workers.len()),
        _ => None,
    });
    all.last().copied().unwrap_or(0)
}

/// Kills a random worker a little after each of these steps, or as soon after it as three are members.
pub(crate) fn killed_at(scene: &Scene, options: &[&[&str]], at: &[u64], seed: u64) -> Summary {
    println!("seed {seed}");
    let mut random = Random(seed);
    let mut run = scene.train(&options.concat());
    for step in at {
        assert!(run.reach(*step), "the run is over at step {}", scene.step());
        wait_for(|| "three members".into(), || (members(scene) == 3).then_some(()));
        std::thread::sleep(std::time::Duration::from_micros(random.below(20_000)));
        if let Some((_, process)) = random.pick(&scene.workers()) {
            scene.kill_worker(process);
        }
        wait_for(|| "a member less".into(), || (members(scene) < 3).then_some(()));
    }
    run.summary()
}

pub(crate) fn rolled_back(scene: &Scene) -> Vec<u64> {
    scene.picked(|event| match event {
        Event::RolledBack { to } => Some(*to),
        _ => None,
    })
}

#[test]
fn with_two_copies_a_lost_worker_costs_no_step() {
    for (seed, recipe) in (40..).zip([jobs::adam_dropout().steps(1500), jobs::heavy(), jobs::layered()]) {
        let scene = recipe.scene();
        let summary = killed_at(&scene, &[&TWICE, &["--workers", "3"]], &[6, 16, 26, 36], seed);
        assert_eq!(finished(&summary), recipe.digest());
        assert!(!summary.crashes.is_empty(), "{summary:?}");
        assert!(rolled_back(&scene).is_empty(), "{summary:?}");
        scene.audit();
    }
}

#[test]
fn with_one_copy_a_lost_worker_sends_the_run_back_to_its_checkpoint() {
    let recipe = jobs::adam_dropout().steps(1500);
    let scene = recipe.scene();
    let every = ["--workers", "3", "--set", "checkpoint.every_steps=100"];
    let summary = killed_at(&scene, &[&ONCE, &every], &[250, 700], 50);
    assert_eq!(finished(&summary), recipe.digest());
    let to = rolled_back(&scene);
    assert!(!to.is_empty() && to.iter().all(|step| step.is_multiple_of(100)), "{to:?}");
    let said = scene.picked(|event| match event {
        Event::Warning { message } if message.contains("sharding.copies") => Some(message.clone()),
        _ => None,
    });
    assert!(!said.is_empty(), "what was lost is said");
    scene.audit();
}

#[test]
fn a_stopped_run_goes_on_with_other_shards_or_without() {
    let recipe = jobs::adam_dropout().steps(1500);
    for more in [&["--workers", "2"][..], &["--workers", "1"]] {
        let scene = recipe.scene();
        let mut run = scene.train(&[&TWICE[..], &["--workers", "3"]].concat());
        assert!(run.reach(50));
        run.signal(Signal::INT);
        assert_eq!(run.summary().outcome.word(), "stopped");
        assert_eq!(finished(&scene.resume(more).summary()), recipe.digest());
    }
}

#[test]
fn a_coordinator_that_comes_back_finds_the_shards_with_the_workers() {
    let recipe = jobs::patient().steps(200);
    let scene = recipe.scene();
    let mut run = scene.train(&[&ONCE[..], &["--workers", "3"]].concat());
    assert!(run.reach(50));
    run.kill();
    let summary = scene.resume(&["--workers", "3"]).summary();
    assert_eq!(finished(&summary), recipe.digest());
    assert!(rolled_back(&scene).is_empty(), "they held the whole together");
    scene.audit();
}

#[test]
fn virtual_nodes_are_verified_beside_it() {
    let recipe = jobs::momentum().steps(60);
    let verified = digest(&recipe, &[&TWICE, &["--workers", "3", "--set", "verify_every=2"]]);
    assert_eq!(verified, recipe.digest());
}

/// Without sharding as many exchange in groups.
#[test]
fn many_workers_are_connected_with_all() {
    let recipe = jobs::momentum().steps(20).nodes(18);
    assert_eq!(digest(&recipe, &[&ONCE, &["--workers", "18"]]), recipe.digest());
}

#[test]
fn less_memory_is_predicted_for_more_workers() {
    let scene = Scene::new(&format!("{}[sharding]\n", jobs::layered().text()));
    let profiled = scene.call(&["profile", "job.toml", "-o", "p.json", "--steps", "4"]);
    assert_eq!(profiled.code, Some(0), "{profiled:?}");
    let memory = |workers: &str| {
        let answer = scene.call(&["predict", "p.json", "--workers", workers, "--format", "json"]);
        let answer: serde_json::Value = serde_json::from_str(&answer.stdout).expect("JSON");
        answer[0]["worker_bytes"].as_f64().unwrap_or_else(|| panic!("{answer}"))
    };
    // Two slots and a gradient of 8 MiB, of which each of four workers holds a quarter; and one sum fewer of that size,
    // as each has one virtual node.
    let fewer = (memory("1") - memory("4")) / f64::from(8 << 20);
    assert!((fewer - (3.0 * 0.75 + 1.0)).abs() < 0.01, "{fewer}");
}

#[test]
fn what_cannot_be_sharded_is_refused() {
    let scene = jobs::momentum().scene();
    for (set, says) in [
        (&["sharding.copies=0"][..], &["sharding.copies", "1…16"][..]),
        (&["sharding.copies=1", "checkpoint.url=file:///tmp/x"], &["sharding", "checkpoint.url"]),
        (&["sharding.copies=1", "sync.policy=asp"], &["sharding", "servers"]),
        (&["sharding.copies=1", "sync.policy=gossip"], &["sharding", "parameters of its own"]),
    ] {
        scene.refuses(set, says);
    }
}
