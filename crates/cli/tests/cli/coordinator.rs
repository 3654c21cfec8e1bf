//! The coordinator is killed: the workers keep the state and wait for the next one.

use bellwether_core::record::Event;
use rustix::process::Signal;

use crate::harness::{Scene, is_alive, wait_for};
use crate::jobs;

/// The steps that workers held when they came back.
fn held(scene: &Scene) -> Vec<u64> {
    scene.picked(|event| match event {
        Event::WorkerAttached { held_step, .. } => *held_step,
        _ => None,
    })
}

fn rollbacks(scene: &Scene) -> usize {
    scene.picked(|event| matches!(event, Event::RolledBack { .. }).then_some(())).len()
}

#[test]
fn the_next_coordinator_finds_the_workers_of_the_last() {
    for recipe in [jobs::momentum().steps(2000), jobs::batch_norm().steps(200)] {
        let scene = recipe.scene();
        let mut run = scene.train(&["--workers", "3"]);
        assert!(run.reach(30));
        let before = scene.workers();
        let endpoint = scene.endpoint();
        run.kill();
        let committed = scene.step();
        assert!(
            before.iter().all(|(_, process)| is_alive(*process)),
            "the workers outlive their coordinator"
        );
        let resumed = scene.resume(&[]);
        resumed.until("workers that come back", |event| match event {
            Event::WorkerAttached { held_step: Some(step), .. } if *step >= committed => Some(()),
            _ => None,
        });
        assert_eq!(scene.endpoint().control, endpoint.control, "workers look where the old coordinator was");
        let summary = resumed.summary();
        assert_eq!(summary.params_digest, Some(recipe.digest()), "{summary:?}");
        assert_eq!(summary.crashes, [], "{summary:?}");
        assert_eq!((held(&scene).len(), rollbacks(&scene)), (3, 0));
        let ever = scene.picked(|event| match event {
            Event::WorkerAttached { process, .. } => Some(*process),
            _ => None,
        });
        assert!(
            ever.iter().all(|process| before.iter().any(|(_, p)| p == process)),
            "no other process was started"
        );
        scene.audit();
    }
}

#[test]
fn the_coordinator_dies_twice_and_takes_a_worker_along() {
    let recipe = jobs::momentum().steps(2500);
    let scene = recipe.scene();
    let mut run = scene.train(&["--workers", "3"]);
    assert!(run.reach(30));
    run.kill();
    let workers = scene.workers();
    scene.kill_worker(workers[1].1);
    let mut run = scene.resume(&["--workers", "3"]);
    assert!(run.reach(scene.step() + 50));
    run.kill();
    let summary = scene.resume(&["--workers", "3"]).summary();
    assert_eq!(summary.params_digest, Some(recipe.digest()), "{summary:?}");
    assert_eq!(rollbacks(&scene), 0);
    scene.audit();
}

#[test]
fn coordinator_and_all_workers_die() {
    let recipe = jobs::adam_dropout().steps(1500);
    let scene = recipe.scene();
    let mut run = scene.train(&["--workers", "2", "--set", "checkpoint.every_steps=50"]);
    run.until("a checkpoint", |event| matches!(event, Event::Checkpointed { .. }).then_some(()));
    assert!(run.reach(60));
    run.kill();
    scene.workers().iter().for_each(|(_, process)| scene.kill_worker(*process));
    let summary = scene.resume(&[]).summary();
    assert_eq!(summary.params_digest, Some(recipe.digest()), "{summary:?}");
    scene.audit();
}

/// Steps after which the journal tells of an evaluation.
fn evaluations(scene: &Scene) -> Vec<u64> {
    scene.picked(|event| match event {
        Event::Evaluated { step, .. } => Some(*step),
        _ => None,
    })
}

#[test]
fn an_evaluation_is_told_once_and_a_stopped_run_knows_the_last_one() {
    let scene = jobs::momentum().steps(3000).scene();
    let mut run = scene.train(&["--workers", "2"]);
    assert!(run.reach(160));
    run.kill();
    let mut run = scene.start(&["run", "--resume", "job-1"]);
    assert!(run.reach(320));
    run.signal(Signal::INT);
    let stopped = run.end();
    let told = evaluations(&scene);
    assert!(told.len() > 1 && told.windows(2).all(|pair| pair[0] < pair[1]), "{told:?}");
    let last = format!(" at step {}", told.last().expect("evaluations"));
    for row in ["held-out loss", "accuracy"] {
        let line = stopped.stdout.lines().find(|line| line.starts_with(row)).unwrap_or_default();
        assert!(line.ends_with(&last), "{stopped:?}");
    }
}

#[test]
fn an_orphan_gives_up_after_its_patience() {
    let scene = Scene::new(&jobs::slow(5));
    let run = scene.train(&["--no-spawn", "--workers", "1"]);
    let address = scene.endpoint().control.to_string();
    let token = scene.run_folder().join("token").display().to_string();
    let worker =
        scene.start(&["worker", "--join", &address, "--token-file", &token, "--orphan-timeout", "1s"]);
    run.until("a step", |event| matches!(event, Event::Committed { .. }).then_some(()));
    run.kill();
    let worker = worker.end();
    assert_eq!(worker.code, Some(1), "{worker:?}");
    worker.says(&["coordinator", &address, "1s"]);
}

#[test]
fn no_other_process_may_coordinate_meanwhile() {
    let scene = Scene::new(&jobs::slow(5));
    let mut run = scene.train(&["--workers", "1"]);
    assert!(run.reach(1));
    let second = scene.resume(&[]).end();
    second.refused_with(&["job-1", "another coordinator is at work", "bellwether watch job-1"]);
    assert!(run.try_end().is_none(), "the first one is unharmed");
}

#[test]
fn the_old_port_is_taken_meanwhile() {
    let scene = Scene::new(&jobs::slow(5));
    let mut run = scene.train(&["--workers", "1"]);
    assert!(run.reach(1));
    let endpoint = scene.endpoint();
    run.kill();
    let taken = wait_for(
        || format!("a free {}", endpoint.control),
        || std::net::TcpListener::bind(endpoint.control).ok(),
    );
    let refused = scene.resume(&[]).end();
    refused.refused_with(&[&endpoint.control.to_string(), "--listen"]);
    drop(taken);
    let resumed = scene.resume(&[]);
    resumed.signal(Signal::CONT);
    assert_eq!(resumed.summary().outcome.word(), "finished");
}
