//! Workers whose computing thread hangs while their session lives: they are named, and replaced if others can go on.

use std::time::Duration;

use bellwether_core::record::Event;

use crate::harness::{Scene, wait_for};
use crate::jobs;

/// Who was late: the worker, what it was doing, and what happens next.
fn late(scene: &Scene) -> Vec<(u64, String, String)> {
    scene.picked(|event| match event {
        Event::Late { worker, doing, next, .. } => Some((*worker, doing.clone(), next.clone())),
        _ => None,
    })
}

/// The second of three workers hangs as `pace` says; what it was seen doing.
fn one_of_three_hangs(pace: &str) -> String {
    let recipe = jobs::patient();
    let scene = recipe.scene();
    let paces = format!("1,{pace},1");
    let summary = scene.train(&["--workers", "3", "--worker-speed", &paces]).summary();
    assert_eq!(summary.params_digest, Some(recipe.digest()), "{summary:?}");
    let lost = scene.picked(|event| match event {
        Event::Crashed { worker, evidence, .. } => Some((*worker, evidence.clone())),
        _ => None,
    });
    assert!(matches!(&lost[..], [(2, why)] if why.contains("keeps the run waiting")), "{lost:?}");
    assert_eq!(summary.workers.last(), Some(&3), "another took its place: {summary:?}");
    let late = late(&scene);
    let (_, doing, _) = late.iter().find(|(worker, ..)| *worker == 2).expect("it was named first").clone();
    let log = std::fs::read_to_string(scene.run_folder().join("worker-2.log")).unwrap_or_default();
    assert!(log.contains("thread ") && log.contains("`session`"), "its threads are written down: {log}");
    scene.audit();
    doing
}

#[test]
fn a_worker_whose_gradient_never_returns_is_replaced() {
    let doing = one_of_three_hangs("hang@500ms");
    assert!(doing.starts_with("computing step"), "{doing}");
}

#[test]
fn a_worker_that_waits_for_a_pipe_for_ever_is_replaced() {
    let doing = one_of_three_hangs("block@500ms");
    assert!(doing.starts_with("computing step") && doing.contains("sleeps"), "{doing}");
}

#[test]
fn a_lone_worker_that_hangs_is_warned_of_and_replaced_only_by_option() {
    let recipe = jobs::patient();
    let scene = recipe.scene();
    let run = scene.train(&["--workers", "1", "--worker-speed", "block@300ms"]);
    let (_, _, next) = wait_for(|| format!("a warning in {:?}", scene.events()), || late(&scene).pop());
    assert!(next.contains("the run cannot go on without it"), "{next}");
    std::thread::sleep(Duration::from_secs(1));
    let crashed = scene.picked(|event| matches!(event, Event::Crashed { .. }).then_some(()));
    assert!(crashed.is_empty(), "it holds the only state");
    run.kill();
    let scene = recipe.scene();
    let options =
        ["--workers", "1", "--worker-speed", "block@300ms", "--replace-lone-worker", "--grace", "500ms"];
    let summary = scene.train(&options).summary();
    assert_eq!(summary.params_digest, Some(recipe.digest()), "{summary:?}");
}
