//! Signals that ask a process to end, and the exit codes that tell of them.

use std::process::Command;

use bellwether_core::record::Event;
use rustix::process::Signal;

use crate::harness::{Live, PROGRAM, Scene, is_alive, signal, wait_for};
use crate::jobs;

/// `run job.toml --workers 2` through another program, such as one that sets what a signal does.
fn train_through<'s>(scene: &'s Scene, program: &str, arguments: &[&str]) -> Live<'s> {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(scene.path("")).env("XDG_STATE_HOME", scene.path("state"));
    command.stdin(std::process::Stdio::null());
    scene.start_command(command)
}

fn stops(scene: &Scene) -> Vec<String> {
    scene.picked(|event| match event {
        Event::StopRequested { by } => Some(by.clone()),
        _ => None,
    })
}

#[test]
fn a_run_that_is_asked_to_end_leaves_a_checkpoint_and_an_exit_code_that_says_so() {
    for (which, name, code) in
        [(Signal::INT, "SIGINT", 130), (Signal::TERM, "SIGTERM", 143), (Signal::HUP, "SIGHUP", 129)]
    {
        let scene = jobs::patient().steps(5000).scene();
        // A program that runs the tests may ignore the signal.
        let run =
            ["--default-signal=INT,HUP", PROGRAM, "run", "job.toml", "--workers", "2", "--format", "json"];
        let mut run = train_through(&scene, "env", &run);
        assert!(run.reach(20));
        run.signal(which);
        if which == Signal::HUP {
            // A shell that ends tells its jobs, and then the system tells them again.
            run.signal(which);
        }
        let ended = run.end();
        assert_eq!(ended.code, Some(code), "{name}: {ended:?}");
        let summary: serde_json::Value = serde_json::from_str(&ended.stdout).expect("a summary");
        assert_eq!((&summary["outcome"], summary["checkpoint"].is_string()), (&"stopped".into(), true));
        assert_eq!(stops(&scene), [name]);
        assert!(scene.workers().is_empty(), "{name}: a stopped run leaves no worker");
        ended.says(&["`bellwether resume job-1` goes on from here"]);
    }
}

#[test]
fn a_run_that_was_told_to_ignore_a_hangup_goes_on() {
    let scene = jobs::patient().steps(150).scene();
    let line = format!("trap '' HUP; exec '{PROGRAM}' run job.toml --workers 1 --format json");
    let mut run = train_through(&scene, "sh", &["-c", &line]);
    assert!(run.reach(20));
    run.signal(Signal::HUP);
    let summary = run.summary();
    assert_eq!((summary.outcome.word(), summary.steps), ("finished", 150), "{summary:?}");
    assert!(stops(&scene).is_empty());
}

/// A run of two workers whose coordinator was killed.
fn orphans(scene: &Scene) -> Vec<(u64, u32)> {
    let mut run = scene.train(&["--workers", "2", "--set", "checkpoint.every_steps=10"]);
    run.until("a checkpoint", |event| matches!(event, Event::Checkpointed { .. }).then_some(()));
    assert!(run.reach(30));
    run.kill();
    let workers = scene.workers();
    assert!(
        workers.len() == 2 && workers.iter().all(|(_, process)| is_alive(*process)),
        "they wait: {workers:?}"
    );
    workers
}

#[test]
fn a_worker_without_a_coordinator_ends_when_it_is_told_to() {
    let scene = jobs::patient().steps(5000).scene();
    let workers = orphans(&scene);
    workers.iter().for_each(|(_, process)| signal(*process, Signal::TERM));
    wait_for(|| format!("an end of {workers:?}"), || scene.workers().is_empty().then_some(()));
}

#[test]
fn stop_ends_the_workers_of_a_run_whose_coordinator_is_gone() {
    let recipe = jobs::patient().steps(300);
    let scene = recipe.scene();
    orphans(&scene);
    let view = scene.call(&["jobs", "--format", "json"]).stdout;
    assert!(view.contains("\"state\":\"lost\""), "{view}");
    scene.call(&["rm", "job-1"]).refused_with(&["its workers wait", "bellwether stop job-1"]);
    let stopped = scene.call(&["stop", "job"]);
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    assert!(stopped.stdout.contains("2 workers ended"), "{stopped:?}");
    assert!(scene.workers().is_empty());
    let summary = scene.resume(&[]).summary();
    assert_eq!(summary.params_digest, Some(recipe.digest()), "{summary:?}");
    scene.audit();
}

fn join(scene: &Scene) -> Live<'_> {
    let address = scene.endpoint().control.to_string();
    let token = scene.run_folder().join("token").display().to_string();
    scene.start(&["worker", "--join", &address, "--token-file", &token])
}

#[test]
fn ctrl_c_lets_a_worker_leave_between_two_steps() {
    let recipe = jobs::adam_dropout().steps(4000);
    let scene = recipe.scene();
    let mut run = scene.train(&["--no-spawn", "--workers", "1..2"]);
    let workers = [join(&scene), join(&scene)];
    assert!(run.reach(20));
    run.until("two workers", |event| match event {
        Event::Membership { workers, .. } if workers.len() == 2 => Some(()),
        _ => None,
    });
    let [stays, leaves] = workers;
    leaves.signal(Signal::INT);
    let left = leaves.end();
    assert_eq!(left.code, Some(0), "{left:?}");
    left.says(&["leaves at the next step"]);
    let summary = run.summary();
    assert_eq!(summary.crashes, [], "{summary:?}");
    assert_eq!(summary.params_digest, Some(recipe.digest()), "{summary:?}");
    assert_eq!(stays.end().code, Some(0));
}

#[test]
fn ctrl_c_twice_ends_a_worker_at_once() {
    // Its first step takes longer than this test.
    let scene = Scene::new(&jobs::slow(60_000));
    let run = scene.train(&["--no-spawn", "--workers", "1"]);
    scene.endpoint();
    let worker = join(&scene);
    run.until("a membership", |event| matches!(event, Event::Membership { .. }).then_some(()));
    worker.signal(Signal::INT);
    wait_for(
        || format!("a word of {}", worker.stderr()),
        || worker.stderr().contains("leaves at").then_some(()),
    );
    worker.signal(Signal::INT);
    let ended = worker.end();
    assert_eq!(ended.code, Some(130), "{ended:?}");
    run.kill();
}
