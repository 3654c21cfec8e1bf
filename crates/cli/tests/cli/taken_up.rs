//! What a run that is taken up again finds changed: its data, its kernels, its journal, its small files, its folder.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use bellwether_core::record::Event;

use crate::harness::Scene;
use crate::jobs::{self, Recipe};

/// A run that was stopped after some steps, with a checkpoint.
fn stopped(recipe: &Recipe, step: u64, more: &[&str]) -> Scene {
    let scene = recipe.scene();
    let mut run = scene.train(&[&["--workers", "2"], more].concat());
    assert!(run.reach(step));
    assert_eq!(scene.call(&["stop", "job"]).code, Some(0));
    assert_eq!(run.summary().outcome.word(), "stopped");
    scene
}

fn checkpoints(folder: &PathBuf) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "safetensors"))
        .collect()
}

#[test]
fn other_data_are_refused_unless_somebody_accepts_them() {
    let recipe = jobs::transformer().steps(800);
    let scene = stopped(&recipe, 60, &[]);
    let text = include_str!("jobs.rs").replace("let", "LET") + "and some more";
    scene.write("text.txt", &text[..text.len() / 2]);
    let refused = scene.resume(&[]).end();
    refused.refused_with(&["job-1", "other data", "before: ", "now: ", "--accept-other-data"]);
    let digests: Vec<&str> =
        refused.stderr.split("data ").skip(1).filter_map(|rest| rest.split(';').next()).collect();
    assert!(digests.len() >= 2, "both are named: {}", refused.stderr);
    let lines = scene.events().len();
    scene.resume(&[]).end().refused_with(&["other data"]);
    assert_eq!(scene.events().len(), lines, "a refusal does not belong to the run");

    let ended = scene.resume(&["--accept-other-data"]).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended.says(&["goes on with other data"]);
    let accepted = |event: &Event| matches!(event, Event::OtherDataAccepted { .. }).then_some(());
    assert_eq!(scene.picked(accepted).len(), 1);
    let audit = scene.call(&["audit", "job-1", "--format", "json"]);
    let proven: serde_json::Value = serde_json::from_str(&audit.stdout).expect("an account");
    let phases = proven["stretches"].as_array().expect("a list");
    assert_eq!((&proven["steps"], phases.len()), (&800.into(), 2), "{proven}");
    assert_ne!(phases[0]["training_samples"], phases[1]["training_samples"]);
}

#[test]
fn other_kernels_are_refused() {
    let scene = stopped(&jobs::momentum().steps(4000), 100, &[]);
    let path = scene.run_folder().join("journal.jsonl");
    let journal = fs::read_to_string(&path).expect("it is there");
    let other = journal.replace("; isa ", "; isa other-");
    assert_ne!(journal, other);
    fs::write(&path, other).expect("it can be written");
    scene.resume(&[]).end().refused_with(&["other kernels", "isa other-", "--accept-other-data"]);
}

#[test]
fn runs_of_two_state_directories_share_a_folder_and_nothing_else() {
    let recipe = jobs::momentum().steps(3000);
    let shared = tempfile::tempdir().expect("a folder");
    let folder = format!("checkpoint.folder={}", shared.path().display());
    let settings = ["--set", folder.as_str(), "--set", "checkpoint.every_steps=500"];
    let one = recipe.scene();
    assert_eq!(one.train(&[&["--workers", "2"][..], &settings].concat()).summary().steps, 3000);
    let kept: Vec<PathBuf> =
        fs::read_dir(shared.path()).expect("a folder").flatten().map(|e| e.path()).collect();
    assert_eq!(kept.len(), 1);
    let files = checkpoints(&kept[0]);

    let other = stopped(&recipe, 100, &settings);
    let ended = other.resume(&[]).summary();
    assert_eq!(ended.params_digest, Some(recipe.digest()));
    let steps: Vec<u64> =
        bellwether_runtime::metrics::read(&other.run_folder()).map(|line| line.step).collect();
    assert_eq!(steps, (0..3000).collect::<Vec<_>>(), "it trained every step itself");
    assert_eq!(checkpoints(&kept[0]), files, "the other run's are still there");
}

#[test]
fn a_run_without_its_journal_goes_on_from_its_checkpoint() {
    let recipe = jobs::momentum().steps(4000);
    let scene = stopped(&recipe, 200, &[]);
    fs::remove_file(scene.run_folder().join("journal.jsonl")).expect("it is there");
    let ended = scene.resume(&[]).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended.says(&["journal.jsonl is gone", "are in the checkpoint"]);
    assert!(ended.stdout.contains(&recipe.digest()), "{ended:?}");
    let found = scene.picked(|event| match event {
        Event::FoundInCheckpoint { first: 0, last } => Some(last + 1),
        _ => None,
    });
    assert!(found.len() == 1 && found[0] >= 200, "{found:?}");
    let audit = scene.call(&["audit", "job-1"]);
    assert_eq!(audit.code, Some(0), "{audit:?}");
    assert!(audit.stdout.contains("in a checkpoint alone"), "{audit:?}");
}

#[test]
fn small_files_that_a_power_cut_emptied_cost_a_warning() {
    let recipe = jobs::momentum().steps(4000);
    let scene = stopped(&recipe, 100, &[]);
    fs::write(scene.run_folder().join("token"), "").expect("it can be written");
    fs::write(scene.run_folder().join("schedule.json"), "[[1").expect("it can be written");
    let ended = scene.resume(&[]).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended.says(&["held no token", "the run has a new one", "scheduled numbers of workers are lost"]);
    assert!(ended.stdout.contains(&recipe.digest()), "{ended:?}");
}

#[test]
fn no_other_user_looks_into_a_run() {
    let scene = stopped(&jobs::momentum().steps(4000), 50, &[]);
    let mode = |path: PathBuf| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    let run = scene.run_folder();
    assert_eq!(
        [mode(scene.path("state/bellwether")), mode(run.clone()), mode(run.join("checkpoints"))],
        [0o700; 3]
    );
    let entries = fs::read_dir(&run).expect("a folder").flatten().map(|entry| entry.path());
    let files = entries.filter(|path| path.is_file() && !path.ends_with("lock"));
    for file in files.chain(checkpoints(&run.join("checkpoints"))) {
        assert_eq!(mode(file.clone()), 0o600, "{}", file.display());
    }
}

#[test]
fn a_run_leaves_checkpoints_by_time_unasked() {
    let scene = jobs::patient().steps(400).scene();
    let mut run = scene.train(&["--workers", "2", "--set", "checkpoint.every=500ms"]);
    let written = |event: &Event| match event {
        Event::Checkpointed { step, .. } if *step < 400 => Some(*step),
        _ => None,
    };
    run.until("a checkpoint", written);
    assert!(run.reach(400));
    assert_eq!(run.summary().outcome.word(), "finished");
    let default: bellwether_core::job::Checkpoint = serde_json::from_str("{}").expect("all have defaults");
    assert_eq!(default.every.get(), 60.0);
}
