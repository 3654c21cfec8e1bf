//! `verify_every`: a virtual node that two workers compute differently is found before anything of the step is applied.

use bellwether_core::record::{Event, Mismatch};
use bellwether_runtime::membership::{Active, Membership};
use bellwether_runtime::tree::ranges;
use bellwether_runtime::verification::{Check, due};

use crate::harness::Scene;
use crate::jobs::{self, Recipe};

const EVERY: &str = "verify_every=1";
const QUARANTINE: [&str; 4] = ["--set", EVERY, "--set", "on_mismatch=\"quarantine\""];

/// The check of a step among workers 1 to `workers`.
fn check(step: u64, nodes: u32, workers: u32) -> Check {
    let active = ranges(nodes, workers).into_iter().zip(1..);
    let active = active.map(|(nodes, worker)| Active { worker, address: String::new(), nodes }).collect();
    due(1, &(step..step + 1), nodes, &Membership { active, ..Membership::default() })
        .expect("every step has one")
}

fn mismatches(scene: &Scene) -> Vec<Mismatch> {
    scene.picked(|event| match event {
        Event::Mismatched(mismatch) => Some(*mismatch),
        _ => None,
    })
}

#[track_caller]
fn unchanged(recipe: &Recipe, more: &[&str]) {
    let scene = recipe.scene();
    let summary = scene.train(&[&["--set", EVERY], more].concat()).summary();
    assert_eq!(summary.params_digest, Some(recipe.digest()), "{more:?}: {summary:?}");
    assert_eq!((summary.mismatches, mismatches(&scene)), (vec![], vec![]));
}

#[test]
fn what_is_verified_is_the_same() {
    unchanged(&jobs::batch_norm().steps(20), &["--workers", "1"]);
    unchanged(&jobs::batch_norm().steps(20), &["--workers", "2"]);
    unchanged(&jobs::transformer(), &["--workers", "3", "--resize", "30:1,60:4"]);
    unchanged(&jobs::momentum().steps(100).nodes(12), &["--workers", "5"]);
}

#[test]
fn a_batch_that_moves_is_verified_too() {
    let recipe = jobs::momentum().steps(100);
    let goodput = ["--set", "mode.goodput.max_batch=128", "--batch-schedule", "10:3,40:2"];
    let digest = |more: &[&str]| {
        let scene = recipe.scene();
        let summary = scene.train(&[&goodput, more].concat()).summary();
        assert_eq!((summary.outcome.word(), mismatches(&scene)), ("finished", vec![]), "{summary:?}");
        summary.params_digest
    };
    assert_eq!(digest(&["--workers", "3", "--set", EVERY]), digest(&["--workers", "1"]));
}

#[test]
fn a_flipped_bit_stops_the_run_before_its_step_is_applied() {
    let recipe = jobs::batch_norm().steps(30);
    let Check { node, worker, checker, .. } = check(11, 8, 2);
    for wrong in [worker, checker] {
        let scene = recipe.scene();
        let flip = format!("{wrong}:11:{node}");
        let ended = scene.train(&["--workers", "2", "--set", EVERY, "--flip-bit", &flip]).end();
        assert_eq!(ended.code, Some(1), "{ended:?}");
        let named =
            [format!("workers {worker} and {checker}"), format!("virtual node {node}"), "step 11".into()];
        ended.says(&named.each_ref().map(String::as_str));
        let summary: serde_json::Value = serde_json::from_str(&ended.stdout).expect("a summary");
        let found = Mismatch { step: 11, node, worker, checker, wrong: None };
        assert_eq!(mismatches(&scene), [found]);
        assert_eq!(summary["mismatches"], serde_json::json!([found]));
        assert_eq!((summary["outcome"].as_str(), summary["steps"].as_u64()), (Some("failed"), Some(11)));
        // The state from before the step is kept, and it is the right one.
        assert!(summary["checkpoint"].as_str().is_some_and(|path| path.contains("11")), "{summary}");
        let resumed = scene.resume(&["--workers", "2"]).summary();
        assert_eq!(resumed.params_digest, Some(recipe.digest()), "{resumed:?}");
        scene.audit();
    }
}

#[test]
fn a_third_worker_tells_who_is_wrong_and_another_takes_its_place() {
    let recipe = jobs::patient().steps(150);
    let Check { node, worker, checker, judge, .. } = check(11, 4, 3);
    let judge = judge.expect("there are three");
    for wrong in [worker, checker] {
        let scene = recipe.scene();
        let flip = format!("{wrong}:11:{node}");
        let more = [&["--workers", "3", "--flip-bit", &flip], &QUARANTINE[..]].concat();
        let run = scene.train(&more);
        run.until("another worker", |event| match event {
            Event::Membership { workers, .. } if workers.contains(&4) && workers.len() == 3 => Some(()),
            _ => None,
        });
        let summary = run.summary();
        assert_eq!(summary.params_digest, Some(recipe.digest()), "{summary:?}");
        let found = Mismatch { step: 11, node, worker, checker, wrong: Some(wrong) };
        assert_eq!(summary.mismatches, [found]);
        let sent = scene.picked(|event| match event {
            Event::Quarantined { worker, step, judge } => Some((*worker, *step, *judge)),
            _ => None,
        });
        assert_eq!(sent, [(wrong, 11, judge)]);
        scene.audit();
    }
}

#[test]
fn the_example_finds_what_it_says() {
    let scene = Scene::new("");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/verified.toml");
    let ended = scene.call(&["run", path, "--workers", "3", "--flip-bit", "3:20:5", "--steps", "30"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended.says(&["workers 3 and 1 computed virtual node 5 differently", "worker 3 is sent away"]);
    assert!(ended.stdout.contains("worker 3 was wrong"), "{ended:?}");
}

#[test]
fn two_workers_cannot_tell_and_stop() {
    let scene = jobs::batch_norm().steps(30).scene();
    let Check { node, worker, .. } = check(11, 8, 2);
    let flip = format!("{worker}:11:{node}");
    let ended = scene.train(&[&["--workers", "2", "--flip-bit", &flip], &QUARANTINE[..]].concat()).end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    ended.says(&["differently", "resume job-1"]);
}

#[test]
fn a_lone_worker_finds_what_is_wrong_only_once() {
    let recipe = jobs::batch_norm().steps(30);
    let node = check(11, 8, 1).node;
    let run = |flip: &str| {
        let scene = recipe.scene();
        let summary = scene.train(&["--workers", "1", "--set", EVERY, "--flip-bit", flip]).summary();
        (summary.outcome.word(), summary.steps)
    };
    assert_eq!(run(&format!("1:11:{node}:once")), ("failed", 11));
    // The same wrong bytes twice: no third worker can tell.
    assert_eq!(run(&format!("1:11:{node}")), ("finished", 30));
}

#[test]
fn a_worker_that_dies_in_a_check_leaves_no_trace() {
    let recipe = jobs::patient().steps(150);
    let scene = recipe.scene();
    let mut run = scene.train(&[&["--workers", "3"], &QUARANTINE[..]].concat());
    for step in [10, 40, 70] {
        assert!(run.reach(step));
        if let Some((_, process)) = scene.workers().last() {
            scene.kill_worker(*process);
        }
    }
    let summary = run.summary();
    assert_eq!((summary.params_digest, summary.mismatches), (Some(recipe.digest()), vec![]));
    scene.audit();
}

#[test]
fn what_has_no_equal_bits_is_refused() {
    let scene = jobs::momentum().scene();
    for sync in
        ["sync.policy=\"asp\"", "sync.policy=\"ssp:2\"", "sync.policy=\"gossip\"", "sync.policy=\"auto\""]
    {
        let ended = scene.call(&["run", "job.toml", "--set", EVERY, "--set", sync]);
        ended.refused_with(&["verify_every", "no equal bits", "bsp"]);
    }
    let greedy = scene.call(&["run", "job.toml", "--set", EVERY, "--set", "sync.stragglers=\"greedy\""]);
    greedy.refused_with(&["verify_every", "greedy"]);
    let servers = scene.call(&["run", "job.toml", "--set", EVERY, "--set", "sync.reduce=\"servers\""]);
    servers.refused_with(&["verify_every", "servers", "all-reduce"]);
    let nothing = scene.call(&["run", "job.toml", "--set", "on_mismatch=\"quarantine\""]);
    nothing.refused_with(&["on_mismatch", "verify_every"]);
    let flip = scene.call(&["run", "job.toml", "--flip-bit", "2:3"]);
    flip.refused_with(&["WORKER:STEP:NODE"]);
}
