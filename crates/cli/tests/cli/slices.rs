//! Checkpoints that the workers write themselves, to a folder or an object store, and runs that go on from them on
//! another host: in another state directory, with nothing but the job file and the URL.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use bellwether_core::record::{Event, Summary};
use bellwether_testkit::s3_server::{Fault, SECRET, Server};

use crate::harness::{Ended, Live, Scene, wait_for};
use crate::jobs::{self, Recipe};

/// A place for checkpoints.
enum Place {
    Folder(tempfile::TempDir),
    Store(Server),
}

impl Place {
    fn folder() -> Place {
        Place::Folder(tempfile::tempdir().expect("a folder"))
    }

    fn url(&self) -> String {
        match self {
            Place::Folder(folder) => format!("file://{}", folder.path().display()),
            Place::Store(_) => "s3://bucket/models".into(),
        }
    }

    fn command(&self, scene: &Scene, arguments: &[&str]) -> Command {
        let mut command = scene.command(arguments);
        for variable in
            ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]
        {
            command.env_remove(variable);
        }
        if let Place::Store(server) = self {
            command.envs(server.environment());
        }
        command
    }

    /// Trains the scene's job with checkpoints at this place.
    fn train<'s>(&self, scene: &'s Scene, more: &[&str]) -> Live<'s> {
        let url = format!("checkpoint.url={}", self.url());
        let all = [&["run", "job.toml", "--format", "json", "--set", &url], more].concat();
        scene.start_command(self.command(scene, &all))
    }

    /// Keys of all objects, or files.
    fn keys(&self) -> Vec<String> {
        let Place::Folder(root) = self else {
            let Place::Store(server) = self else { unreachable!("there are two") };
            return server.keys();
        };
        let (mut keys, mut folders) = (Vec::new(), vec![root.path().to_path_buf()]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                match entry.path() {
                    path if path.is_dir() => folders.push(path),
                    path => keys.push(path.display().to_string()),
                }
            }
        }
        keys.sort();
        keys
    }

    fn manifests(&self) -> Vec<String> {
        self.keys().into_iter().filter(|key| key.ends_with("/manifest.json")).collect()
    }
}

const OFTEN: [&str; 2] = ["--set", "checkpoint.every_steps=50"];

fn checkpointed(event: &Event) -> Option<u64> {
    if let Event::Checkpointed { step, .. } = event { Some(*step) } else { None }
}

fn is_whole(summary: &Summary, recipe: &Recipe) {
    assert_eq!(summary.outcome.word(), "finished", "{}", summary.outcome.reason());
    assert_eq!(summary.params_digest, Some(recipe.digest()), "not the bits of an undisturbed run");
}

/// The files of a run of which none may hold a tensor or a secret.
fn files_of(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { files_of(&path) } else { vec![path] }).collect()
}

#[test]
fn slices_give_the_same_bits_through_resizes_and_on_other_workers() {
    for recipe in [jobs::momentum().steps(2000), jobs::batch_norm().steps(150)] {
        let (place, scene) = (Place::folder(), recipe.scene());
        let resized = ["--workers", "2", "--resize", "30:3,60:1,90:4"];
        is_whole(&place.train(&scene, &[&resized[..], &OFTEN].concat()).summary(), &recipe);
        assert!(!scene.run_folder().join("checkpoints").exists(), "the coordinator writes no tensors");
        assert!(scene.picked(checkpointed).len() >= 2, "{:?}", scene.events());
        assert!((1..=3).contains(&place.manifests().len()), "three are kept: {:?}", place.manifests());
        scene.audit();
        // The result is where it was written, for verbs as well.
        let export = scene.call(&["export", "job-1", "--output", "weights.safetensors"]);
        assert_eq!(export.code, Some(0), "{export:?}");
        scene.resume(&[]).end().refused_with(&["the run is finished"]);
    }
}

/// Runs until a checkpoint after `step` is there, ends it with `end`, and goes on elsewhere from the URL alone.
fn goes_on_elsewhere(place: &Place, recipe: &Recipe, step: u64, end: impl Fn(&Scene, Live<'_>)) -> Ended {
    let scene = recipe.scene();
    let run = place.train(&scene, &[&["--workers", "3"][..], &OFTEN].concat());
    run.until("a checkpoint", |event| checkpointed(event).filter(|at| *at >= step));
    end(&scene, run);
    let elsewhere = recipe.scene();
    let url = place.url();
    let ended = place.train(&elsewhere, &["--workers", "2", "--resume-from", &url]).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let found = elsewhere.picked(|event| match event {
        Event::FoundInCheckpoint { first: 0, last } => Some(last + 1),
        _ => None,
    });
    assert!(found.first().is_some_and(|found| *found >= step), "it began from a checkpoint: {found:?}");
    elsewhere.audit();
    ended
}

fn kill_all(scene: &Scene, run: Live<'_>) {
    let workers = scene.workers();
    run.kill();
    workers.iter().for_each(|(_, process)| scene.kill_worker(*process));
}

#[test]
fn a_run_whose_host_is_lost_goes_on_from_the_url() {
    let recipe = jobs::momentum().steps(3000);
    for step in [50, 300, 800] {
        let place = Place::folder();
        let ended = goes_on_elsewhere(&place, &recipe, step, kill_all);
        assert!(ended.stdout.contains(&recipe.digest()), "{ended:?}");
    }
}

#[test]
fn a_stopped_run_goes_on_in_its_folder_with_other_workers() {
    let (place, recipe) = (Place::folder(), jobs::adam_dropout().steps(3000));
    let scene = recipe.scene();
    let mut run = place.train(&scene, &["--workers", "3"]);
    assert!(run.reach(200));
    assert_eq!(scene.call(&["stop", "job"]).code, Some(0));
    let stopped = run.summary();
    assert_eq!(stopped.outcome.word(), "stopped");
    assert_eq!(place.manifests().len(), 1, "stopping writes one");
    let resumed = scene.resume(&["--workers", "4"]).summary();
    is_whole(&resumed, &recipe);
    scene.audit();
}

/// A run in a folder that was killed with several checkpoints, and its steps' folders, the newest first.
fn killed(place: &Place, recipe: &Recipe) -> (Scene, Vec<PathBuf>) {
    let scene = recipe.scene();
    let run = place.train(&scene, &[&["--workers", "2"][..], &OFTEN].concat());
    run.until("checkpoints", |event| checkpointed(event).filter(|step| *step >= 300));
    kill_all(&scene, run);
    let mut manifests = place.manifests();
    manifests.reverse();
    (scene, manifests.iter().map(|path| Path::new(path).parent().expect("a folder").to_path_buf()).collect())
}

fn slice_of(folder: &Path) -> PathBuf {
    let is_slice =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("slice-"));
    files_of(folder).into_iter().find(is_slice).expect("a slice")
}

#[test]
fn a_damaged_slice_gives_way_to_the_checkpoint_before() {
    let recipe = jobs::momentum().steps(3000);
    let flip = |path: &Path| {
        let mut bytes = fs::read(path).expect("it is there");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(path, bytes).expect("it can be written");
    };
    let cut = |path: &Path| {
        let bytes = fs::read(path).expect("it is there");
        fs::write(path, &bytes[..bytes.len() / 3]).expect("it can be written");
    };
    let gone = |path: &Path| fs::remove_file(path).expect("it is there");
    for (what, harm) in [("digest", &flip as &dyn Fn(&Path)), ("bytes", &cut), ("not there", &gone)] {
        let place = Place::folder();
        let (scene, steps) = killed(&place, &recipe);
        assert!(steps.len() >= 2, "{steps:?}");
        harm(&slice_of(&steps[0]));
        let ended = scene.resume(&["--grace", "100ms"]).end();
        assert_eq!(ended.code, Some(0), "{what}: {ended:?}");
        ended.says(&["the checkpoint is damaged", what]);
        assert!(ended.stdout.contains(&recipe.digest()), "{what}: {ended:?}");
        scene.audit();
    }
}

#[test]
fn without_a_manifest_a_step_does_not_count_and_none_sound_is_refused() {
    let recipe = jobs::momentum().steps(3000);
    let place = Place::folder();
    let (scene, steps) = killed(&place, &recipe);
    fs::remove_file(steps[0].join("manifest.json")).expect("it is there");
    for step in &steps[1..] {
        fs::write(step.join("manifest.json"), "{}").expect("it can be written");
    }
    scene.resume(&["--grace", "100ms"]).end().refused_with(&["job-1", "manifest", "damaged"]);
    let elsewhere = recipe.scene();
    let ended = place.train(&elsewhere, &["--resume-from", &place.url()]).end();
    ended.refused_with(&["--resume-from", "no checkpoint of this job"]);
    assert!(!elsewhere.run_folder().exists(), "nothing was begun");
}

#[test]
fn a_store_takes_the_slices_and_no_secret_is_written_down() {
    let (place, recipe) = (Place::Store(Server::start()), jobs::momentum().steps(2000));
    let Place::Store(server) = &place else { unreachable!("it is a store") };
    let scene = recipe.scene();
    let run = place.train(&scene, &[&["--workers", "3", "--verbose"][..], &OFTEN].concat());
    run.until("a checkpoint", checkpointed);
    server.fail_next(&[Fault::Busy, Fault::HangUp, Fault::Busy]);
    for process in scene.workers().iter().map(|(_, process)| *process).chain([run.process()]) {
        let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&line).contains(SECRET), "the secret is an argument");
    }
    let ended = run.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains(&recipe.digest()), "{ended:?}");
    assert!((1..=3).contains(&place.manifests().len()), "{:?}", place.keys());
    let told = format!("{}{}", ended.stdout, ended.stderr);
    assert!(!told.contains(SECRET), "{told}");
    for file in files_of(&scene.path("state")) {
        let bytes = fs::read(&file).expect("it is there");
        assert!(!String::from_utf8_lossy(&bytes).contains(SECRET), "{}", file.display());
    }
    let export = place.command(&scene, &["export", "job-1", "--output", "weights.safetensors"]);
    assert_eq!(scene.start_command(export).end().code, Some(0));
}

#[test]
fn a_run_whose_host_is_lost_goes_on_from_the_store() {
    let (place, recipe) = (Place::Store(Server::start()), jobs::momentum().steps(2500));
    let ended = goes_on_elsewhere(&place, &recipe, 100, |scene, run| {
        let Place::Store(server) = &place else { unreachable!("it is a store") };
        kill_all(scene, run);
        // An answer that breaks off damages nothing.
        server.fail_next(&[Fault::Busy]);
    });
    assert!(ended.stdout.contains(&recipe.digest()), "{ended:?}");
}

#[test]
fn a_store_that_fails_costs_checkpoints_and_not_the_training() {
    let (place, recipe) = (Place::Store(Server::start()), jobs::patient().steps(300));
    let Place::Store(server) = &place else { unreachable!("it is a store") };
    let scene = recipe.scene();
    let run = place.train(&scene, &["--workers", "2", "--set", "checkpoint.every_steps=20"]);
    run.until("a checkpoint", checkpointed);
    let before = place.manifests();
    server.deny(true);
    run.until("a warning", |event| match event {
        Event::CheckpointFailed { reason, .. } => reason.contains("AccessDenied").then_some(()),
        _ => None,
    });
    assert!(before.iter().any(|key| place.manifests().contains(key)), "older ones stay");
    server.deny(false);
    is_whole(&run.summary(), &recipe);
    assert!(place.manifests().iter().any(|key| key.contains("step-000000000300")), "{:?}", place.keys());
}

#[test]
fn a_place_that_cannot_be_used_is_refused_before_anything_begins() {
    let recipe = jobs::momentum();
    let scene = recipe.scene();
    let place = Place::Store(Server::start());
    let run = |environment: &[(&str, &str)], url: &str| {
        let url = format!("checkpoint.url={url}");
        let mut command = place.command(&scene, &["run", "job.toml", "--set", &url]);
        command.envs(environment.iter().copied());
        scene.start_command(command).end()
    };
    run(&[("AWS_ACCESS_KEY_ID", "AKIAOTHER")], "s3://bucket/x")
        .refused_with(&["checkpoint.url", "InvalidAccessKeyId"]);
    run(&[], "s3://nowhere/x").refused_with(&["checkpoint.url", "s3://nowhere/x", "NoSuchBucket"]);
    run(&[("AWS_SECRET_ACCESS_KEY", "")], "s3://bucket/x")
        .refused_with(&["AWS_SECRET_ACCESS_KEY", "not set"]);
    run(&[], "gs://bucket/x").refused_with(&["checkpoint.url", "s3://BUCKET/PREFIX"]);
    let secret = run(&[], "s3://AKIA:hush@bucket/x");
    secret.refused_with(&["checkpoint.url"]);
    let file = scene.write("file", "");
    run(&[], &file.join("x").display().to_string()).refused_with(&["checkpoint.url", "Not a directory"]);
    let with = |more: &[&str]| place.train(&scene, more).end();
    with(&["--set", "checkpoint.folder=x"]).refused_with(&["checkpoint.url", "checkpoint.folder"]);
    with(&["--set", "sync.policy=asp"]).refused_with(&["checkpoint.url", "servers"]);
    scene.train(&["--resume-from", "s3://bucket/x"]).end().refused_with(&["--resume-from", "checkpoint.url"]);
    assert!(!scene.run_folder().exists(), "nothing was begun");
}

#[test]
fn a_worker_that_dies_while_it_writes_costs_one_checkpoint() {
    let (place, recipe) = (Place::Store(Server::start()), jobs::patient().steps(400));
    let Place::Store(server) = &place else { unreachable!("it is a store") };
    let scene = recipe.scene();
    let run = place.train(&scene, &["--workers", "2", "--set", "checkpoint.every_steps=20"]);
    run.until("a checkpoint", checkpointed);
    // Nothing ends meanwhile: whatever is being written is on its way when the worker dies.
    server.fail_always(Some(Fault::Busy));
    let asked = server.requests().len();
    wait_for(
        || "no slice is written".into(),
        || {
            server.requests()[asked..]
                .iter()
                .any(|request| request.starts_with("PUT") && request.contains("/slice-"))
                .then_some(())
        },
    );
    let (_, process) = *scene.workers().last().expect("a worker");
    scene.kill_worker(process);
    run.until("a crash", |event| matches!(event, Event::Crashed { .. }).then_some(()));
    server.fail_always(None);
    is_whole(&run.summary(), &recipe);
    scene.audit();
}
