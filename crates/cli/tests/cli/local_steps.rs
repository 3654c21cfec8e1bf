//! Local steps with an outer optimizer (`sync.policy = "local:H"`): the bits, faults, and the boundaries of rounds.

use bellwether_core::prediction::Protocol;
use bellwether_core::record::{Event, Summary};
use bellwether_runtime::metrics;
use rustix::process::Signal;

use crate::harness::Scene;
use crate::jobs::{self, Recipe};
use crate::sharded::{finished, killed_at, rolled_back};
use crate::verdicts::{held, verdict};

/// A policy, as an option.
fn policy(policy: &str) -> [String; 2] {
    ["--set".into(), format!("sync.policy={policy}")]
}

fn trained(recipe: &Recipe, more: &[&str], [set, value]: &[String; 2]) -> Summary {
    let summary = recipe.scene().train(&[more, &[set, value]].concat()).summary();
    finished(&summary);
    summary
}

fn digest(recipe: &Recipe, more: &[&str], policy: &[String; 2]) -> String {
    finished(&trained(recipe, more, policy))
}

#[test]
fn local_steps_give_the_same_bits_on_any_workers() {
    // Momentum; a model's state; Adam, with gradients that each virtual node clips.
    let recipes = [jobs::momentum(), jobs::batch_norm(), jobs::transformer().nodes(12)];
    for recipe in recipes {
        let local = policy("local:7");
        let alone = digest(&recipe, &["--workers", "1"], &local);
        assert_ne!(alone, recipe.digest(), "they are other steps");
        for workers in ["2", "3"] {
            assert_eq!(digest(&recipe, &["--workers", workers], &local), alone, "{workers}");
        }
        let bfloat16 = ["--set", "exchange.precision=bf16", "--workers"];
        let rounded = digest(&recipe, &[&bfloat16[..], &["1"]].concat(), &local);
        assert_ne!(rounded, alone);
        assert_eq!(digest(&recipe, &[&bfloat16[..], &["3"]].concat(), &local), rounded);
    }
}

/// One local step of plain SGD, with an outer step that takes all of what was moved, is a synchronous step: the loss
/// goes the same way, but for the rounding.
#[test]
fn one_local_step_without_an_outer_momentum_is_a_synchronous_step() {
    let plain = ["--set", "optimizer.momentum=0", "--workers", "2"];
    let outer = ["--set", "sync.outer_learning_rate=1", "--set", "sync.outer_momentum=0"];
    let recipe = jobs::momentum();
    let loss = |summary: Summary| summary.held_out_loss.expect("it is evaluated at the end");
    let synchronous = loss(trained(&recipe, &plain, &policy("bsp")));
    let local = loss(trained(&recipe, &[&plain[..], &outer].concat(), &policy("local:1")));
    assert!((local / synchronous - 1.0).abs() < 1e-3, "{local} and {synchronous}");
    let further = loss(trained(&recipe, &[&plain[..], &outer].concat(), &policy("local:5")));
    assert!((further / synchronous - 1.0).abs() < 0.3, "{further} and {synchronous}");
}

#[test]
fn local_steps_survive_resizes_and_the_deaths_of_workers_and_coordinator() {
    let (recipe, local) = (jobs::adam_dropout().steps(1500), policy("local:8"));
    let alone = digest(&recipe, &["--workers", "1"], &local);
    assert_eq!(digest(&recipe, &["--workers", "2", "--resize", "80:4,250:1,403:3"], &local), alone);

    let scene = recipe.scene();
    let [set, value] = &local;
    let summary = killed_at(&scene, &[&["--workers", "3", set, value]], &[100, 500, 900], 61);
    assert_eq!(finished(&summary), alone);
    assert!(!summary.crashes.is_empty() && rolled_back(&scene).is_empty(), "{summary:?}");
    scene.audit();

    let scene = recipe.scene();
    let mut run = scene.train(&["--workers", "3", set, value]);
    assert!(run.reach(300));
    run.kill();
    assert_eq!(finished(&scene.resume(&[]).summary()), alone);
    scene.audit();
}

#[test]
fn local_steps_are_stopped_and_taken_up_again() {
    let (recipe, local) = (jobs::momentum().steps(2000), policy("local:16"));
    let scene = recipe.scene();
    let [set, value] = &local;
    let mut run = scene.train(&["--workers", "2", set, value]);
    assert!(run.reach(100));
    run.signal(Signal::INT);
    let stopped = run.summary();
    assert_eq!((stopped.outcome.word(), stopped.steps % 16), ("stopped", 0), "between two rounds");
    let alone = digest(&recipe, &["--workers", "1"], &local);
    assert_eq!(finished(&scene.resume(&["--workers", "3"]).summary()), alone);
    scene.audit();
}

/// The first and last steps of what was committed, and steps of each update among them.
fn rounds(scene: &Scene) -> Vec<(u64, u64, u32)> {
    scene.picked(|event| match event {
        Event::Committed { first, last, accumulation } => Some((*first, *last, *accumulation)),
        _ => None,
    })
}

#[test]
fn a_run_goes_from_synchronous_to_local_steps_and_back() {
    let phases = policy(r#"{ phases = [[0.0, "bsp"], [0.25, "local:9"], [0.75, "bsp"]] }"#);
    let recipe = jobs::adam_dropout();
    let scene = recipe.scene();
    let [set, value] = &phases;
    let summary = scene.train(&["--workers", "2", set, value]).summary();
    let steps = summary.steps;
    assert_eq!(finished(&summary), digest(&recipe, &["--workers", "3", "--resize", "30:1"], &phases));
    let entered = scene.picked(|event| match event {
        Event::Protocol { step, protocol, .. } => Some((*step, *protocol)),
        _ => None,
    });
    let expected = [(0, Protocol::Bsp), (steps / 4, Protocol::Local(9)), (steps * 3 / 4, Protocol::Bsp)];
    assert_eq!(entered, expected);
    let told: Vec<_> = summary.phases.iter().map(|phase| (phase.protocol, phase.steps)).collect();
    let quarter = steps / 4;
    assert_eq!(told, [(Protocol::Bsp, quarter), (Protocol::Local(9), 2 * quarter), (Protocol::Bsp, quarter)]);
    let accounted: u64 = metrics::read(&scene.run_folder()).map(|line| line.steps()).sum();
    assert_eq!(accounted, steps, "a round counts all of its steps");
    for (first, last, of) in rounds(&scene) {
        let is_local = (quarter..3 * quarter).contains(&first);
        assert!(is_local || of == 1, "{first}–{last} {of}");
        assert!((first < quarter) == (last < quarter) || of == 1, "no round crosses the change");
    }
}

#[test]
fn local_steps_follow_asynchronous_ones() {
    let scene = jobs::momentum().scene();
    let [set, value] = &policy(r#"{ phases = [[0.0, "asp"], [0.5, "local:8"]] }"#);
    let summary = scene.train(&["--workers", "2", set, value]).summary();
    finished(&summary);
    let told: Vec<_> = summary.phases.iter().map(|phase| (phase.protocol, phase.steps)).collect();
    assert_eq!(told, [(Protocol::Asp, 150), (Protocol::Local(8), 150)]);
}

#[test]
fn rounds_of_local_steps_end_where_a_verdict_is_due() {
    let scene = jobs::momentum().scene();
    let [set, value] = &policy("local:8");
    let run = scene.train(&["--workers", "2", "--set", "verdict.every_steps=50", set, value]);
    for step in [50, 100] {
        held(&scene, step, 2);
        assert!(verdict(&scene, step, (step == 100).then_some("enough")).accepted);
    }
    let summary = run.summary();
    assert_eq!((finished(&summary).is_empty(), summary.steps), (false, 100), "{summary:?}");
    scene.audit();
}

#[test]
fn what_has_no_local_steps_is_refused() {
    let scene = jobs::momentum().scene();
    for (set, says) in [
        (&["sync.policy=local:0"][..], &["sync.policy", "local:H"][..]),
        (&["sync.policy=local:4", "sync.reduce=servers"], &["sync.reduce", "all-reduce"]),
        (&["sync.policy=local:4", "sync.stragglers=elastic"], &["sync.stragglers", "leave it out"]),
        (&["sync.policy=local:4", "verify_every=2"], &["verify_every", "which no other worker has made"]),
        (&["sync.policy=local:4", "sharding.copies=1"], &["sharding", "outer step"]),
        (&["sync.policy=local:4", "mode.goodput.max_batch=128"], &["mode", "several batches"]),
        (&["sync.policy=local:4", "sync.outer_momentum=1"], &["sync.outer_momentum", "0…1"]),
        (&["sync.outer_learning_rate=-1"], &["sync.outer_learning_rate", "positive"]),
    ] {
        scene.refuses(set, says);
    }
}

#[test]
fn local_steps_exchange_once_in_a_round() {
    let scene = Scene::new(&jobs::layered().text());
    let profiled = scene.call(&["profile", "job.toml", "-o", "p.json", "--steps", "4"]);
    assert_eq!(profiled.code, Some(0), "{profiled:?}");
    let step_s = |protocol: &str| {
        let link = ["--bandwidth", "100Mbit/s", "--latency", "1ms"];
        let asked = ["predict", "p.json", "--workers", "2", "--protocol", protocol, "--format", "json"];
        let answer = scene.call(&[&asked[..], &link].concat());
        assert_eq!(answer.code, Some(0), "{answer:?}");
        let answer: serde_json::Value = serde_json::from_str(&answer.stdout).expect("JSON");
        answer[0]["step_s"].as_f64().unwrap_or_else(|| panic!("{answer}"))
    };
    let (every, rounds) = (step_s("bsp"), step_s("local:50"));
    // An exchange of 8 MiB takes 0.67 s, and is all of it.
    assert!(every > 0.6 && rounds < every / 10.0, "{every} {rounds}");
}
