//! Notices of the provider, end to end: the worker drains, the job keeps its size and its result.

use bellwether_core::record::Event;
use bellwether_testkit::metadata_server::{Play, StandIn};
use rustix::process::Signal;

use crate::harness::{Ended, Live, Scene, wait_for};
use crate::jobs;

/// Starts a worker by hand that listens to this source of notices.
fn join<'s>(scene: &'s Scene, source: &str) -> Live<'s> {
    let address = scene.endpoint().control.to_string();
    let token = scene.run_folder().join("token").display().to_string();
    let arguments = ["worker", "--join", &address, "--token-file", &token];
    let notices = ["--notices", source, "--notice-interval", "100ms"];
    let mut command = scene.command(&[&arguments[..], &notices[..]].concat());
    // No process listens there: a metadata server is never asked through a proxy.
    command.env("http_proxy", "http://127.0.0.1:9").env("all_proxy", "http://127.0.0.1:9");
    scene.start_command(command)
}

/// Waits for the first membership of this many workers after the epoch `after`; returns its epoch and them.
fn membership(run: &Live<'_>, after: u64, size: usize) -> (u64, Vec<u64>) {
    run.until(&format!("{size} workers"), |event| match event {
        Event::Membership { workers, epoch, .. } if *epoch > after && workers.len() == size => {
            Some((*epoch, workers.clone()))
        }
        _ => None,
    })
}

fn left_in_good_order(worker: Ended, words: &str) {
    assert_eq!((worker.code, worker.stdout.as_str()), (Some(0), ""), "{worker:?}");
    worker.says(&[words]);
}

/// The journal says that a worker lost its server, and of no worker that it crashed or went away.
fn no_worker_crashed(scene: &Scene) {
    let faults = scene.picked(|event| match event {
        Event::Crashed { .. } => Some(format!("{event:?}")),
        Event::Warning { message } if !message.contains("about to lose its server") => Some(message.clone()),
        _ => None,
    });
    assert_eq!(faults, Vec::<String>::new());
    let warned = scene.picked(|event| matches!(event, Event::Warning { .. }).then_some(()));
    assert_eq!(warned, [()]);
}

#[test]
fn a_worker_whose_server_is_taken_away_leaves_between_two_steps() {
    let (gce, ec2) = (StandIn::start(Play::Gce), StandIn::start(Play::Ec2));
    let recipe = jobs::patient().steps(150);
    let scene = recipe.scene();
    let run = scene.train(&["--no-spawn", "--workers", "1..2"]);
    let stays = join(&scene, &format!("gce={}", gce.url()));
    let goes = join(&scene, &format!("ec2={}", ec2.url()));
    let (epoch, _) = membership(&run, 0, 2);
    wait_for(
        || "questions to both servers".into(),
        || (ec2.tokens() == 1 && ec2.requests().len() > 3 && gce.requests().len() > 1).then_some(()),
    );
    ec2.announce(r#"{"action": "terminate", "time": "2126-09-18T08:22:00Z"}"#);
    left_in_good_order(goes.end(), "EC2 will terminate this server within");
    let (epoch, remaining) = membership(&run, epoch, 1);
    // Somebody takes the place that stayed open.
    let replacement = join(&scene, "none");
    let (_, workers) = membership(&run, epoch, 2);
    assert!(workers.contains(&remaining[0]), "{workers:?}");
    let summary = run.summary();
    assert_eq!(summary.params_digest, Some(recipe.digest()), "{summary:?}");
    assert_eq!(summary.crashes, [], "{summary:?}");
    assert_eq!((stays.end().code, replacement.end().code), (Some(0), Some(0)));
    no_worker_crashed(&scene);
    scene.audit();
}

#[test]
fn a_notice_that_comes_without_a_coordinator_is_handed_on() {
    let server = StandIn::start(Play::Ec2);
    let recipe = jobs::patient().steps(150);
    let scene = recipe.scene();
    let run = scene.train(&["--no-spawn", "--workers", "1..2"]);
    let (stays, goes) = (join(&scene, "none"), join(&scene, &format!("ec2={}", server.url())));
    membership(&run, 0, 2);
    run.kill();
    server.announce(r#"{"action": "stop"}"#);
    let said = || goes.stderr().contains("EC2 will stop this server").then_some(());
    wait_for(|| format!("a notice in {}", goes.stderr()), said);
    let run = scene.resume(&["--no-spawn", "--workers", "1..2"]);
    left_in_good_order(goes.end(), "EC2 will stop this server");
    let summary = run.summary();
    assert_eq!(summary.params_digest, Some(recipe.digest()), "{summary:?}");
    assert_eq!(summary.crashes, [], "{summary:?}");
    assert_eq!(scene.picked(|event| matches!(event, Event::RolledBack { .. }).then_some(())), []);
    assert_eq!(stays.end().code, Some(0));
    scene.audit();
}

#[test]
fn a_node_that_is_drained_is_replaced() {
    let recipe = jobs::patient().steps(150);
    let scene = recipe.scene();
    let run = scene.train(&["--workers", "2..3"]);
    let (epoch, _) = membership(&run, 0, 2);
    let goes = join(&scene, "sigterm");
    let (epoch, three) = membership(&run, epoch, 3);
    goes.signal(Signal::TERM);
    left_in_good_order(goes.end(), "SIGTERM: this server is taken away");
    let (_, replaced) = membership(&run, epoch, 3);
    assert_ne!(three, replaced);
    let summary = run.summary();
    assert_eq!(summary.params_digest, Some(recipe.digest()), "{summary:?}");
    assert_eq!((summary.workers.last(), summary.crashes.len()), (Some(&3), 0), "{summary:?}");
    no_worker_crashed(&scene);
    scene.audit();
}

#[test]
fn a_worker_without_a_metadata_server_says_so_once_and_trains() {
    let recipe = jobs::patient().steps(50);
    let scene = recipe.scene();
    let run = scene.train(&["--no-spawn", "--workers", "1"]);
    // No process listens there either.
    let worker = join(&scene, "gce=http://127.0.0.1:9,ec2=http://127.0.0.1:9");
    assert_eq!(run.summary().params_digest, Some(recipe.digest()));
    let worker = worker.end();
    assert_eq!(worker.code, Some(0), "{worker:?}");
    assert_eq!(worker.stderr.matches("no notices of the provider").count(), 2, "{worker:?}");
}

#[test]
fn notices_of_unknown_workers_are_refused() {
    let scene = Scene::new("");
    let worker = |more: &[&str]| {
        scene.call(&[&["worker", "--join", "127.0.0.1:1", "--token-file", "token"], more].concat())
    };
    worker(&["--notices", "azure"])
        .refused_with(&["invalid source of notices \"azure\"", "gce, ec2, sigterm"]);
    worker(&["--notices", "gce,ec2=https://10.0.0.7"])
        .refused_with(&["https://10.0.0.7", "http://HOST:PORT"]);
    worker(&["--notices", "none,ec2"]).refused_with(&["none"]);
    worker(&["--notice-interval", "0s"]).refused_with(&["from 100ms to 30s"]);
    worker(&["--notice-interval", "1h"]).refused_with(&["from 100ms to 30s"]);
}
