//! A job whose model a program of its own brings: the command does not train it, and knows its run like any other.

use bellwether::session::StateDir;

use crate::harness::Scene;

#[path = "../../../bellwether/examples/own_model.rs"]
#[allow(dead_code, reason = "`main` is for `cargo run --example`")]
mod own_model;

#[test]
fn a_custom_model_is_refused_with_the_library_that_trains_it() {
    let scene = Scene::new(own_model::JOB);
    let words = ["model.kind", "`line` is a custom model", "the library `bellwether`"];
    scene.call(&["run", "job.toml"]).refused_with(&words);
    scene.call(&["profile", "job.toml"]).refused_with(&words);
}

#[test]
fn a_run_that_a_program_began_is_known_to_the_command() {
    let scene = Scene::new(own_model::JOB);
    let state_dir = StateDir::find(Some(scene.path("state").join("bellwether"))).unwrap();
    let summary = own_model::train(state_dir, 2).unwrap();
    let jobs = scene.call(&["jobs", "--format", "json"]);
    assert!(jobs.code == Some(0) && jobs.stdout.contains(&summary.run), "{jobs:?}");
    let audit = scene.call(&["audit", &summary.run, "--format", "json"]);
    assert!(audit.code == Some(0) && audit.stdout.contains("\"steps\":300"), "{audit:?}");
    // It is finished; a run that is not would be refused as its job is.
    assert_eq!(scene.call(&["run", "--resume", &summary.run]).code, Some(2));
}
