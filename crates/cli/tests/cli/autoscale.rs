//! A run that finds its number of workers by itself, and one that replaces a worker that turned slow.

use bellwether_core::record::{Decision, Event, Summary};

use crate::harness::Scene;
use crate::jobs;

/// Virtual nodes, each of which takes as long as any other: a step takes as long as the worker with the most of them.
const NODES: u32 = 4;
/// With one worker for each virtual node the step would be shorter again.
const MOST: u32 = 3;
const STEPS: u64 = 180;

fn job(milliseconds: u32) -> String {
    format!(
        "name = \"job\"\nsteps = {STEPS}\nworkers = \"1..{MOST}\"\n[batch]\nsize = {NODES}\nvirtual_nodes = {NODES}\n\
         [model]\nkind = \"synthetic\"\nstep_time = \"{milliseconds}ms\"\nparameters = \"64KiB\"\n\
         [data]\nkind = \"indices\"\nsamples = 1000\n[optimizer]\nkind = \"sgd\"\nlearning_rate = 0.1\n"
    )
}

/// A worker costs as much as the time of the job is worth, so the best size has the least of (1 + workers) x time.
const MONEY: [&str; 4] = ["--price", "$1/h", "--utility", "linear:$10,10h"];

fn best() -> u32 {
    let cost = |workers: &u32| (1 + workers) * NODES.div_ceil(*workers);
    (1..=MOST).min_by_key(cost).expect("there are sizes")
}

fn undisturbed() -> Option<String> {
    let summary = Scene::new(&job(0)).train(&["--workers", "1"]).summary();
    assert_eq!((summary.outcome.word(), summary.steps), ("finished", STEPS));
    summary.params_digest
}

/// Active workers at each membership.
fn sizes(scene: &Scene) -> Vec<u32> {
    scene.picked(|event| match event {
        Event::Membership { workers, .. } => Some(workers.len() as u32),
        _ => None,
    })
}

fn autoscaled(start: u32) -> (Scene, Summary) {
    let scene = Scene::new(&job(10));
    let start = start.to_string();
    let arguments = ["--autoscale", "cost-benefit", "--start-workers", &start];
    let summary = scene.train(&[&arguments[..], &MONEY].concat()).summary();
    (scene, summary)
}

#[track_caller]
fn settles(start: u32) {
    let (scene, summary) = autoscaled(start);
    assert_eq!(summary.outcome.word(), "finished", "{summary:?}");
    let sizes = sizes(&scene);
    assert_eq!(sizes.last(), Some(&best()), "{:?}", summary.decisions);
    assert!(sizes.contains(&1) && sizes.contains(&MOST), "all sizes were tried: {sizes:?}");
    assert_eq!(summary.params_digest, undisturbed(), "the size changes no bit");
    scene.audit();
    // Every change has its decision, and every decision its reason.
    let written = scene.picked(|event| match event {
        Event::Decided(decision) => Some(decision.clone()),
        _ => None,
    });
    assert_eq!(written, summary.decisions);
    let reasoned = |decision: &Decision| decision.by == "cost-benefit" && decision.reason.len() > 10;
    assert!(written.iter().all(reasoned), "{written:?}");
    let asked = scene.picked(|event| match event {
        Event::ScaleRequested { workers, by } => Some((*workers, by.clone())),
        _ => None,
    });
    let changes = |decision: &&Decision| decision.target != decision.workers;
    let decided: Vec<_> =
        written.iter().filter(changes).map(|decision| (decision.target, decision.by.clone())).collect();
    assert_eq!(asked, decided);
}

#[test]
fn autoscaling_settles_at_the_best_size_from_one_worker() {
    settles(1);
}

#[test]
fn autoscaling_settles_at_the_best_size_from_the_most_workers() {
    settles(MOST);
}

#[test]
fn a_run_taken_up_again_knows_what_it_measured() {
    let scene = Scene::new(&job(10));
    let arguments = [&["--autoscale", "cost-benefit"][..], &MONEY].concat();
    let mut run = scene.train(&arguments);
    assert!(run.reach(STEPS / 3));
    run.signal(rustix::process::Signal::INT);
    let stopped = run.summary();
    assert_eq!(stopped.outcome.word(), "stopped", "{stopped:?}");
    let resumed = scene.resume(&arguments).summary();
    assert_eq!(resumed.outcome.word(), "finished", "{resumed:?}");
    assert_eq!(resumed.params_digest, undisturbed());
    assert_eq!(resumed.decisions[..stopped.decisions.len()], stopped.decisions);
    let new = &resumed.decisions[stopped.decisions.len()..];
    assert!(new.iter().all(|decision| !decision.reason.contains("only one size is known")), "{new:?}");
}

#[test]
fn a_straggler_is_replaced_before_it_leaves() {
    let size = 3;
    let scene = Scene::new(&job(10));
    let mut run = scene.train(&["--workers", "3", "--worker-speed", "1,0.3@1s", "--replace-stragglers"]);
    assert!(run.reach(1));
    let watch = scene.start(&["watch", "job"]);
    let summary = run.summary();
    assert_eq!(summary.outcome.word(), "finished", "{summary:?}");
    assert_eq!(summary.params_digest, undisturbed(), "a replacement changes no bit");
    let watched = watch.end().stdout;
    assert!(watched.contains(": worker 2 computes at"), "{watched}");
    scene.audit();
    let slow = scene.picked(|event| match event {
        Event::Straggler { worker, pace, reason, .. } => Some((*worker, *pace, reason.clone())),
        _ => None,
    });
    let found = slow.iter().find(|(worker, ..)| *worker == 2);
    assert!(
        found.is_some_and(|(_, pace, reason)| *pace < 0.8 && reason.contains("a replacement starts")),
        "{slow:?}"
    );
    let memberships = scene.picked(|event| match event {
        Event::Membership { workers, .. } => Some(workers.clone()),
        _ => None,
    });
    let complete = memberships.iter().skip_while(|workers| workers.len() < size);
    assert!(complete.clone().all(|workers| workers.len() == size), "the job dips: {memberships:?}");
    assert!(memberships.last().is_some_and(|workers| !workers.contains(&2)), "{memberships:?}");
    assert!(summary.resizes.is_empty() && summary.crashes.is_empty(), "{summary:?}");
}

#[test]
fn stragglers_are_only_told_of_where_none_may_be_replaced() {
    let scene = Scene::new(&job(10));
    let summary =
        scene.train(&["--workers", "3", "--worker-speed", "1,0.3@0s", "--replace-stragglers=0"]).summary();
    assert_eq!(summary.outcome.word(), "finished", "{summary:?}");
    let slow = scene.picked(|event| match event {
        Event::Straggler { worker, reason, .. } => Some((*worker, reason.contains("it stays"))),
        _ => None,
    });
    assert!(slow.contains(&(2, true)) && slow.iter().all(|(_, stays)| *stays), "{slow:?}");
    assert_eq!(scene.picked(|event| matches!(event, Event::WorkerStarted { .. }).then_some(())).len(), 3);
}

#[test]
fn what_cannot_be_autoscaled_is_refused() {
    let scene = Scene::new(&job(10));
    let refused = |more: &[&str], words: &[&str]| {
        scene.call(&[&["run", "job.toml"], more].concat()).refused_with(words);
    };
    refused(
        &["--autoscale", "eficiency"],
        &["invalid heuristic \"eficiency\"", "did you mean `efficiency`?"],
    );
    refused(&["--autoscale", "efficiency:2"], &["expected a number from 0 to 1"]);
    refused(
        &["--autoscale", "fitted", "--workers", "2"],
        &["--autoscale fitted", "2 workers", "--workers 1..8"],
    );
    refused(&["--autoscale", "fitted", "--resize", "20:2"], &["--autoscale", "--resize"]);
    refused(&["--autoscale", "fitted", "--no-spawn"], &["--autoscale", "--no-spawn"]);
    refused(
        &["--autoscale", "fitted", "--start-workers", "4"],
        &["--start-workers", "1..3", "choose from 1 to 3"],
    );
    refused(
        &["--autoscale", "cost-benefit"],
        &["--autoscale cost-benefit", "neither price nor utility", "--price '$"],
    );
    refused(&["--autoscale", "cost-benefit", "--price", "$1/h"], &["--utility"]);
    let money =
        |heuristic, price, utility| ["--autoscale", heuristic, "--price", price, "--utility", utility];
    refused(
        &money("efficiency", "$1/h", "linear:$10,2h"),
        &["--autoscale efficiency", "never looks at price", "fitted"],
    );
    refused(&money("fitted", "1", "linear:$10,2h"), &["--price", "$0.35/h"]);
    refused(&money("fitted", "$1/h", "linear:$10"), &["linear:$10", "linear:$10,2h", "step:$10@1h,$4@2h"]);
    refused(&money("fitted", "$1/h", "step:$4@1h,$10@2h"), &["worth that is positive and falls"]);
    refused(&["--price", "$1/h", "--utility", "linear:$10,2h"], &["--autoscale"]);
    refused(&["--replace-stragglers", "--no-spawn"], &["--replace-stragglers", "--no-spawn"]);
    refused(&["--replace-stragglers=many"], &["--replace-stragglers", "many"]);
    assert!(!scene.path("state").exists(), "a refused job leaves no run");
}

#[test]
fn the_help_names_the_heuristics() {
    let help = jobs::momentum().scene().call(&["run", "--help"]);
    for word in ["efficiency", "cost-benefit", "linear", "curve", "fitted", "threshold=0.1"] {
        assert!(help.stdout.contains(word), "{word} is not in {}", help.stdout);
    }
}
