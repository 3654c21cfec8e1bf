//! The same digest for any number of workers, however the number changes, whatever stops the run.

use bellwether_core::record::StepRecord;
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

fn metrics(scene: &Scene) -> Vec<StepRecord> {
    let lines = std::fs::read_to_string(scene.run_folder().join("metrics.jsonl")).expect("metrics");
    lines.lines().map(|line| serde_json::from_str(line).expect("a step")).collect()
}

#[test]
fn gradients_are_exchanged_while_others_are_computed() {
    let recipe = jobs::layered();
    for workers in ["2", "3", "4"] {
        let scene = recipe.scene();
        let summary = scene.train(&["--workers", workers]).summary();
        assert_eq!(summary.params_digest, Some(recipe.digest()), "{workers} workers");
        let hidden_s: Vec<_> = metrics(&scene).iter().map(|step| (step.hidden_s, step.compute_s)).collect();
        // Two thirds of a virtual node's 12 ms are its backward pass, of which the first eighth comes first.
        let beside =
            hidden_s.iter().filter(|(hidden_s, compute_s)| *hidden_s > 0.004 && hidden_s < compute_s);
        let beside = beside.count();
        assert!(2 * beside > hidden_s.len(), "{workers} workers: {hidden_s:?}");
    }
    let scene = recipe.scene();
    scene.train(&["--workers", "1"]).summary();
    assert!(metrics(&scene).iter().all(|step| step.hidden_s == 0.0), "one worker exchanges nothing");
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

const BFLOAT16: [&str; 2] = ["--set", "exchange.precision=bf16"];

#[test]
fn gradients_in_bfloat16_give_the_same_bits_on_any_workers() {
    let recipes = [
        jobs::momentum(),
        jobs::adam_dropout(),
        // Statistics stay as they are, and all values of this one lie in one piece.
        jobs::batch_norm(),
        jobs::transformer().nodes(12),
        // Vectors that are lent, and sent piece by piece to newcomers.
        jobs::heavy(),
    ];
    for recipe in recipes {
        let with = |more: &[&str]| digest_with(&recipe, &[&BFLOAT16, more].concat());
        let alone = with(&["--workers", "1"]);
        assert_ne!(alone, recipe.digest(), "rounding is another job");
        for more in
            [&["--workers", "2"][..], &["--workers", "3"], &["--workers", "2", "--resize", "10:4,30:1,45:3"]]
        {
            assert_eq!(with(more), alone, "{more:?}");
        }
    }
}

#[test]
fn gradients_in_bfloat16_of_a_batch_that_moves_are_the_same_on_any_workers() {
    let recipe = jobs::momentum().steps(100);
    let goodput = ["--set", "mode.goodput.max_batch=128", "--batch-schedule", "10:3,40:2"];
    let with = |more: &[&str]| digest_with(&recipe, &[&goodput, more].concat());
    let alone = with(&[&BFLOAT16[..], &["--workers", "1"]].concat());
    assert_eq!(with(&[&BFLOAT16[..], &["--workers", "3"]].concat()), alone);
    assert_ne!(with(&["--workers", "1"]), alone);
}

#[test]
fn gradients_in_bfloat16_survive_kills_and_a_stop() {
    let recipe = jobs::heavy().steps(120);
    let alone =
        digest_with(&recipe, &[&BFLOAT16[..], &["--workers", "1", "--set", "model.step_time=0s"]].concat());
    let scene = recipe.scene();
    let mut run = scene.train(&[&BFLOAT16[..], &["--workers", "3"]].concat());
    for (step, place) in [(5, 0), (25, 1), (45, 2)] {
        assert!(run.reach(step), "the run is over at step {}", scene.step());
        if let Some((_, process)) = scene.workers().into_iter().nth(place) {
            scene.kill_worker(process);
        }
    }
    assert!(run.reach(65), "the run is over at step {}", scene.step());
    run.signal(Signal::INT);
    let summary = run.summary();
    assert_eq!(summary.outcome.word(), "stopped", "{summary:?}");
    assert!(!summary.crashes.is_empty(), "{summary:?}");
    // Its checkpoint is of the job as it was.
    let file = scene.run_folder().join("job.json");
    let job = std::fs::read_to_string(&file).expect("a run keeps its job");
    let other = job.replace("\"bf16\"", "\"f32\"");
    assert_ne!(other, job);
    std::fs::write(&file, other).expect("a file of our own");
    scene.resume(&["--workers", "2"]).end().refused_with(&["job-1", "belongs to another job"]);
    std::fs::write(&file, job).expect("a file of our own");
    let resumed = scene.resume(&["--workers", "2"]).summary();
    assert_eq!(resumed.params_digest, Some(alone), "{resumed:?}");
    scene.audit();
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
