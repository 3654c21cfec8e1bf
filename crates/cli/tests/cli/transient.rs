//! Servers that vanish as a law says, workers of unequal speed, and a number of workers that is chosen.

use std::collections::BTreeSet;

use bellwether_core::record::{Decision, Event, Summary};

use crate::harness::Scene;
use crate::jobs::{self, Recipe};

/// Lifetimes of an hour on average, at this many of its seconds in one of ours.
fn trained(recipe: &Recipe, scene: &Scene, time_scale: u32, more: &[&str]) -> Summary {
    let law = format!("exponential:1h,seed=3,time-scale={time_scale}");
    let summary = scene.train(&[&["--workers", "3", "--revocations", &law], more].concat()).summary();
    assert_eq!(summary.outcome.word(), "finished", "{summary:?}");
    assert_eq!(summary.params_digest, Some(recipe.digest()), "{summary:?}");
    scene.audit();
    summary
}

/// Workers whose servers were taken away, and the notice of each.
fn revoked(scene: &Scene) -> Vec<(u64, Option<f64>)> {
    scene.picked(|event| match event {
        Event::Revoked { worker, notice_s, .. } => Some((*worker, *notice_s)),
        _ => None,
    })
}

#[test]
fn every_server_vanishes_twice_and_the_bits_are_the_same() {
    let recipe = jobs::patient().steps(300);
    let scene = recipe.scene();
    let more = ["--notice", "0s", "--set", "checkpoint.every_steps=10"];
    let summary = trained(&recipe, &scene, 3600, &more);
    let gone: BTreeSet<u64> = revoked(&scene).into_iter().map(|(worker, _)| worker).collect();
    // The three that began and the three that came in their places.
    assert!((1..=6).all(|worker| gone.contains(&worker)), "{gone:?}");
    let report = summary.revocations.expect("the run was on such servers");
    assert_eq!(report.revoked as usize, revoked(&scene).len());
    let expected = report.expected.expect("the first steps were calm enough");
    assert!(report.time_s > 0.0 && report.server_hours > 0.0 && expected.revoked > 1.0, "{expected:?}");
    // Wide, as one run is one draw on a machine that others use.
    assert!(report.time_s > 0.3 * expected.low_s && report.time_s < 4.0 * expected.high_s, "{expected:?}");
}

#[test]
fn with_a_notice_workers_leave_in_good_order() {
    let recipe = jobs::patient().steps(200);
    let scene = recipe.scene();
    // Ten minutes are 600 ms here: enough for a step or ten.
    let summary = trained(&recipe, &scene, 1000, &["--notice", "10min"]);
    let noticed = revoked(&scene);
    assert!(!noticed.is_empty() && noticed.iter().all(|(_, notice_s)| notice_s.is_some()), "{noticed:?}");
    // A worker that computed then was not missed.
    let crashed = scene.picked(|event| match event {
        Event::Crashed { worker, .. } => Some(*worker),
        _ => None,
    });
    assert_eq!(crashed, [] as [u64; 0]);
    let whole = summary.workers.iter().filter(|workers| **workers == 3).count();
    assert!(whole > 1, "the job keeps its size: {:?}", summary.workers);
}

#[test]
fn the_slow_worker_has_less_to_do() {
    let recipe = jobs::momentum().nodes(8).steps(60);
    let scene = recipe.scene();
    let summary = scene.train(&["--workers", "3", "--worker-speed", "1,0.5,1"]).summary();
    assert_eq!(summary.params_digest, Some(recipe.digest()));
    let bounds = scene.picked(|event| match event {
        Event::Membership { bounds, .. } => Some(bounds.clone()),
        _ => None,
    });
    assert_eq!(bounds, [[0, 3, 5, 8]]);
}

#[test]
fn a_mixture_that_would_be_slower_is_refused() {
    let scene = jobs::momentum().nodes(4).scene();
    let ended = scene.call(&["run", "job.toml", "--workers", "2", "--worker-speed", "1,0.1"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    ended.says(&["--worker-speed", "2.50 times as long as without worker 2", "virtual_nodes"]);
    assert!(!scene.run_folder().exists(), "nothing was begun");
}

#[test]
fn a_range_of_workers_is_measured_and_chosen_from() {
    // The device sleeps, so each further worker helps, whatever this machine has.
    let recipe = jobs::patient().nodes(4).steps(60);
    let scene = recipe.scene();
    let summary = scene.train(&["--workers", "1..4"]).summary();
    assert_eq!(summary.params_digest, Some(recipe.digest()));
    let planned = summary.planned.expect("the number was chosen");
    assert_eq!((planned.workers, summary.workers), (4, vec![4]));
    assert!(planned.low <= planned.examples_per_s && planned.examples_per_s <= planned.high);
    let decided = scene.picked(|event| match event {
        Event::Decided(Decision { by, target, reason, .. }) => Some((by.clone(), *target, reason.clone())),
        _ => None,
    });
    assert_eq!(decided, [("plan".to_string(), 4, planned.reason)]);
}

#[test]
fn bad_laws_speeds_and_notices_are_refused() {
    let scene = jobs::momentum().scene();
    let refused = |more: &[&str], words: &[&str]| {
        scene.call(&[&["run", "job.toml"], more].concat()).refused_with(words);
    };
    refused(&["--revocations", "exponentiel:1h"], &["--revocations", "did you mean `exponential`"]);
    refused(&["--revocations", "points:1h=0.7,2h=1.5"], &["--revocations", "1.5"]);
    refused(&["--revocations", "k80:moon"], &["moon"]);
    refused(&["--revocations", "exponential:1h,time-scale=0"], &["time-scale=0", "above 0"]);
    refused(&["--revocations", "exponential:1h,seed=x"], &["seed=x"]);
    refused(&["--revocations", "samples:none.txt"], &["none.txt", "cannot be read"]);
    refused(&["--notice", "30s"], &["--revocations"]);
    refused(&["--worker-speed", "1,0"], &["--worker-speed", "above 0"]);
}
