//! Checkpoints that are damaged, of another job, or cannot be written, and a loss that is not a number.

use std::fs;
use std::path::PathBuf;

use crate::harness::Scene;
use crate::jobs::{self, Recipe};

/// The checkpoint files of the first run, oldest first.
fn files(scene: &Scene) -> Vec<PathBuf> {
    let entries = fs::read_dir(scene.run_folder().join("checkpoints")).expect("a folder").flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.sort();
    files
}

/// A run that was stopped with some checkpoints.
fn stopped(recipe: &Recipe) -> Scene {
    let scene = recipe.scene();
    let mut run = scene.train(&["--workers", "2", "--set", "checkpoint.every_steps=50"]);
    assert!(run.reach(200));
    assert_eq!(scene.call(&["stop", "job"]).code, Some(0));
    assert_eq!(run.summary().outcome.word(), "stopped");
    scene
}

fn damage(path: &PathBuf) {
    let mut bytes = fs::read(path).expect("it is there");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(path, bytes).expect("it can be written");
}

#[test]
fn a_damaged_checkpoint_gives_way_to_the_one_before() {
    let recipe = jobs::momentum().steps(2000);
    let scene = stopped(&recipe);
    let files = files(&scene);
    assert!(files.len() >= 2, "{files:?}");
    let newest = files.last().expect("there are two");
    damage(newest);
    let ended = scene.resume(&[]).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended.says(&["warning", &newest.display().to_string(), "damaged"]);
    let summary: serde_json::Value = serde_json::from_str(&ended.stdout).expect("a summary");
    assert_eq!(summary["params_digest"], recipe.digest());
    scene.audit();
}

#[test]
fn a_cut_checkpoint_gives_way_to_the_one_before() {
    let recipe = jobs::adam_dropout().steps(2000);
    let scene = stopped(&recipe);
    let newest = files(&scene).pop().expect("there is one");
    let bytes = fs::read(&newest).expect("it is there");
    fs::write(&newest, &bytes[..bytes.len() / 3]).expect("it can be written");
    let summary = scene.resume(&[]).summary();
    assert_eq!(summary.params_digest, Some(recipe.digest()));
}

#[test]
fn without_a_sound_checkpoint_the_run_is_refused() {
    let scene = stopped(&jobs::momentum().steps(2000));
    files(&scene).iter().for_each(damage);
    let newest = files(&scene).pop().expect("there is one").display().to_string();
    scene.resume(&[]).end().refused_with(&["job-1", &newest, "damaged", "remove"]);
}

#[test]
fn a_checkpoint_of_another_job_is_refused() {
    let scene = stopped(&jobs::momentum().steps(2000));
    let other = stopped(&jobs::momentum().steps(1999));
    let folder = scene.run_folder().join("checkpoints");
    fs::remove_dir_all(&folder).expect("it is there");
    fs::create_dir(&folder).expect("it can be made");
    for file in files(&other) {
        fs::copy(&file, folder.join(file.file_name().expect("it has a name"))).expect("it can be copied");
    }
    scene.resume(&[]).end().refused_with(&["job-1", "belongs to another job", "remove"]);
}

#[test]
fn a_loss_that_is_no_number_ends_the_run_before_that_step() {
    let scene = jobs::momentum().steps(2000).scene();
    let settings = ["--set", "optimizer.learning_rate=1e38", "--set", "checkpoint.every_steps=1"];
    let ended = scene.train(&settings).end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let summary: bellwether_core::record::Summary = serde_json::from_str(&ended.stdout).expect("a summary");
    assert_eq!(summary.outcome.word(), "failed");
    assert!(summary.outcome.reason().contains(&format!("step {}", summary.steps)), "{summary:?}");
    ended.says(&["the loss is", "was not committed", "learning_rate"]);
    assert!(summary.final_loss.is_some_and(f64::is_finite), "the step is not committed: {summary:?}");
    let path = summary.checkpoint.expect("the last good step is kept");
    assert!(path.contains(&format!("step-{:012}", summary.steps)), "{path}");
    // It fails again at the same step, from that checkpoint.
    let again = scene.resume(&[]).summary();
    assert_eq!((again.outcome, again.steps), (summary.outcome, summary.steps));
    scene.audit();
}

#[test]
fn a_finished_run_whose_result_is_gone_may_be_taken_up_again() {
    let recipe = jobs::momentum();
    let scene = recipe.scene();
    assert_eq!(scene.train(&["--workers", "2"]).summary().outcome.word(), "finished");
    scene.resume(&[]).end().refused_with(&["job-1", "the run is finished", "300"]);
    files(&scene).iter().for_each(|file| fs::remove_file(file).expect("it is there"));
    let summary = scene.resume(&[]).summary();
    assert_eq!((summary.outcome.word(), summary.params_digest), ("finished", Some(recipe.digest())));
    assert_eq!(files(&scene).len(), 1);
    scene.audit();
}

#[test]
fn a_run_may_begin_with_the_weights_of_another() {
    let recipe = jobs::adam_dropout().steps(40);
    let scene = recipe.scene();
    let first = scene.train(&["--workers", "1"]).summary();
    let checkpoint = files(&scene).pop().expect("the last step's").display().to_string();
    let begins = |value: &str| format!("initial_weights={value}");
    let given = begins(&checkpoint);
    let all = ["run", "job.toml", "--format", "json", "--set", given.as_str()];
    let digest = |more: &[&str]| {
        let ended = scene.call(&[&all[..], more].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let summary: serde_json::Value = serde_json::from_str(&ended.stdout).expect("a summary");
        summary["params_digest"].as_str().map(str::to_owned)
    };
    let one = digest(&["--workers", "1"]);
    assert_ne!(one, first.params_digest, "it begins elsewhere");
    assert_eq!(digest(&["--workers", "3"]), one);
    let refused = |value: &str, more: &[&str], words: &[&str]| {
        let given = begins(value);
        let call = ["run", "job.toml", "--set", given.as_str()];
        scene.call(&[&call[..], more].concat()).refused_with(words);
    };
    refused("no.safetensors", &[], &["initial_weights", "no.safetensors", "cannot be read"]);
    refused("job.toml", &[], &["job.toml", "is not a checkpoint"]);
    refused(&checkpoint, &["--set", "model.hidden=[7]"], &["has shape", "needs", "a run of the same model"]);
}
