//! The same digest for any number of workers, however the number changes, whatever stops the run.

use rustix::process::Signal;

use crate::harness::Scene;
use crate::jobs::{self, Recipe};

fn digest_with(recipe: &Recipe, more: &[&str]) -> String {
    let summary = recipe.scene().train(more).summary();
    assert_eq!(summary.outcome.word(), "finished", "{summary:?}");
    summary.params_digest.expect("a finished run has a digest")
}

#[track_caller]
fn same_for(recipe: &Recipe, workers: &[&str]) {
    for count in workers {
        assert_eq!(digest_with(recipe, &["--workers", count]), recipe.digest(), "{count} workers");
    }
}

#[test]
fn momentum_is_the_same_for_any_number_of_workers() {
    same_for(&jobs::momentum(), &["2", "3", "4", "8"]);
}

#[test]
fn adam_with_dropout_is_the_same_for_any_number_of_workers() {
    same_for(&jobs::adam_dropout(), &["2", "3", "4", "8"]);
}

#[test]
fn batch_normalisation_is_the_same_for_any_number_of_workers() {
    same_for(&jobs::batch_norm(), &["2", "3", "4", "8"]);
}

#[test]
fn a_transformer_is_the_same_for_any_number_of_workers() {
    same_for(&jobs::transformer(), &["2", "3", "4", "8"]);
}

#[test]
fn workers_of_one_machine_read_each_others_sums_in_shared_memory() {
    let recipe = jobs::heavy();
    let scene = recipe.scene();
    let mut run = scene.train(&["--workers", "3"]);
    assert!(run.reach(4), "it is over at step {}", scene.step());
    for (worker, process) in scene.workers() {
        let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
        let shared = maps.lines().filter(|line| line.contains("memfd:bellwether")).count();
        // Its own vectors; for each of two peers a lane, and that peer's vectors.
        assert_eq!(shared, 5, "worker {worker}: {maps}");
    }
    assert_eq!(run.summary().params_digest, Some(recipe.digest()));
    scene.audit();
}

#[test]
fn twelve_virtual_nodes_are_the_same_on_five_and_seven_workers() {
    same_for(&jobs::momentum().nodes(12), &["5", "7"]);
    same_for(&jobs::batch_norm().nodes(12), &["5", "7"]);
}

#[test]
fn scheduled_changes_happen_exactly_at_their_steps() {
    for recipe in [jobs::momentum(), jobs::adam_dropout(), jobs::batch_norm().steps(100), jobs::transformer()]
    {
        let summary = recipe.scene().train(&["--workers", "2", "--resize", "20:4,50:1,80:3"]).summary();
        let changes: Vec<_> = summary.resizes.iter().map(|r| (r.step, r.from, r.to)).collect();
        assert_eq!(changes, [(20, 2, 4), (50, 4, 1), (80, 1, 3)], "{summary:?}");
        // Newcomers receive the state in an epoch of their own, before they compute in the next.
        let mut counts = summary.workers.clone();
        counts.dedup();
        assert_eq!(counts, [2, 4, 1, 3]);
        assert!(summary.crashes.is_empty(), "{summary:?}");
        assert_eq!(summary.params_digest.as_deref(), Some(recipe.digest().as_str()));
    }
}

/// Ends a run early by `stop`, takes it up again, and compares.
#[track_caller]
fn stopped_and_resumed(recipe: &Recipe, at: u64, stop: impl FnOnce(&Scene, u32) -> String) {
    let scene = recipe.scene();
    let mut run = scene.train(&["--workers", "3"]);
    assert!(run.reach(at), "the run is over before it could be stopped");
    let by = stop(&scene, run.process());
    let summary = run.summary();
    assert_eq!(summary.outcome.word(), "stopped", "{summary:?}");
    assert!(summary.steps >= at && summary.steps < 2000, "{summary:?}");
    assert!(summary.checkpoint.is_some(), "{summary:?}");
    let stops = scene.picked(|event| match event {
        bellwether_core::record::Event::StopRequested { by } => Some(by.clone()),
        _ => None,
    });
    assert_eq!(stops, [by]);
    assert!(scene.workers().is_empty(), "a stopped run leaves no worker");
    let resumed = scene.resume(&["--workers", "2"]).summary();
    assert_eq!(resumed.outcome.word(), "finished", "{resumed:?}");
    assert_eq!(resumed.params_digest.as_deref(), Some(recipe.digest().as_str()));
    assert!(resumed.workers.iter().all(|count| *count == 2), "a resumed run honours --workers: {resumed:?}");
    scene.audit();
}

#[test]
fn a_stopped_run_goes_on_where_it_ended() {
    stopped_and_resumed(&jobs::momentum().steps(2000), 100, |scene, _| {
        let stop = scene.call(&["stop", "job"]);
        assert_eq!((stop.code, stop.stderr.as_str()), (Some(0), ""), "{stop:?}");
        assert!(stop.stdout.contains("job-1 stops"), "{stop:?}");
        "control".into()
    });
}

#[test]
fn an_interrupted_run_goes_on_where_it_ended() {
    stopped_and_resumed(&jobs::adam_dropout().steps(2000), 100, |_, process| {
        crate::harness::signal(process, Signal::INT);
        "SIGINT".into()
    });
}

#[test]
fn a_resumed_run_follows_a_new_schedule() {
    let recipe = jobs::momentum().steps(2000);
    let scene = recipe.scene();
    let mut run = scene.train(&["--workers", "1"]);
    assert!(run.reach(50));
    run.signal(Signal::INT);
    let stopped = run.summary();
    let at = stopped.steps + 100;
    let resumed = scene.resume(&["--workers", "3", "--resize", &format!("{at}:2")]).summary();
    let changes: Vec<_> = resumed.resizes.iter().map(|r| (r.step, r.from, r.to)).collect();
    assert_eq!(changes, [(at, 3, 2)], "{resumed:?}");
    assert_eq!(resumed.params_digest, Some(recipe.digest()));
}

#[test]
fn blocks_of_samples_change_the_bits_and_not_with_the_workers() {
    let recipe = jobs::momentum().steps(60);
    let scene = recipe.scene();
    let digest = |more: &[&str]| {
        let options = [&["--set", "data.order.block=100"][..], more].concat();
        let summary = scene.train(&options).summary();
        assert_eq!(summary.outcome.word(), "finished", "{}", summary.outcome.reason());
        summary.params_digest.expect("a finished run has a digest")
    };
    let alone = digest(&["--workers", "1"]);
    assert_eq!(alone, digest(&["--workers", "3"]));
    assert_ne!(alone, recipe.digest(), "another order is another job");
    scene.audit();
    let ended = scene.call(&["run", "job.toml", "--set", "data.order.block=0"]);
    ended.refused_with(&["--set data.order.block=0", "nonzero"]);
}
