//! Workers that somebody starts by hand: they join, are absorbed, and leave in good order.

use bellwether_core::record::Event;
use rustix::process::Signal;

use crate::harness::{Live, Scene, signal};
use crate::jobs;

fn join(scene: &Scene) -> Live<'_> {
    let address = scene.endpoint().control.to_string();
    let token = scene.run_folder().join("token").display().to_string();
    scene.start(&["worker", "--join", &address, "--token-file", &token])
}

#[test]
fn two_workers_join_and_a_third_is_absorbed() {
    let recipe = jobs::momentum().steps(4000);
    let scene = recipe.scene();
    let mut run = scene.train(&["--no-spawn", "--workers", "1..3"]);
    let invitation = format!("bellwether worker --join {} --token-file ", scene.endpoint().control);
    crate::harness::wait_for(|| "an invitation".into(), || run.stderr().contains(&invitation).then_some(()));
    let first = [join(&scene), join(&scene)];
    assert!(run.reach(20));
    let third = join(&scene);
    let resized = run.until("a third worker", |event| match event {
        Event::Resized { from, to, .. } => Some((*from, *to)),
        _ => None,
    });
    assert_eq!(resized, (2, 3));
    let summary = run.summary();
    assert_eq!(summary.params_digest, Some(recipe.digest()), "{summary:?}");
    assert_eq!(summary.workers.last(), Some(&3));
    assert!(scene.picked(|e| matches!(e, Event::WorkerStarted { .. }).then_some(())).is_empty());
    for worker in first.into_iter().chain([third]) {
        let worker = worker.end();
        assert_eq!((worker.code, worker.stdout.as_str()), (Some(0), ""), "{worker:?}");
    }
}

#[test]
fn a_worker_that_is_asked_to_end_leaves_between_two_steps() {
    let recipe = jobs::adam_dropout().steps(4000);
    let scene = recipe.scene();
    let mut run = scene.train(&["--no-spawn", "--workers", "1..3"]);
    let workers = [join(&scene), join(&scene), join(&scene)];
    assert!(run.reach(20));
    run.until("three workers", |event| match event {
        Event::Membership { workers, .. } if workers.len() == 3 => Some(()),
        _ => None,
    });
    workers[1].signal(Signal::TERM);
    let [first, second, third] = workers;
    let left = second.end();
    assert_eq!(left.code, Some(0), "{left:?}");
    let summary = run.summary();
    assert_eq!(summary.crashes, [], "{summary:?}");
    assert_eq!(summary.workers.last(), Some(&2), "{summary:?}");
    assert_eq!(summary.params_digest, Some(recipe.digest()), "{summary:?}");
    assert_eq!((first.end().code, third.end().code), (Some(0), Some(0)));
    scene.audit();
}

#[test]
fn a_started_worker_that_is_asked_to_end_leaves_too() {
    let recipe = jobs::momentum().steps(4000);
    let scene = recipe.scene();
    let mut run = scene.train(&["--workers", "3"]);
    assert!(run.reach(20));
    let (worker, process) = scene.workers()[0];
    signal(process, Signal::TERM);
    run.until("a membership without it", |event| match event {
        Event::Membership { workers, epoch, .. } if *epoch > 1 && !workers.contains(&worker) => Some(()),
        _ => None,
    });
    let summary = run.summary();
    assert_eq!(summary.crashes, [], "{summary:?}");
    assert_eq!(summary.params_digest, Some(recipe.digest()), "{summary:?}");
}
