//! Resizes, kills and deaths of the coordinator in a random order: the digest is that of a quiet run.

use bellwether_core::record::{Event, RunOutcome};
use rustix::process::Signal;

use crate::harness::{Random, Scene};
use crate::jobs::{self, Recipe};

/// What happens to a run.
#[derive(Debug, Clone, Copy)]
enum Blow {
    /// The number of workers changes.
    Scale(u64),
    /// A worker is killed.
    Kill,
    /// The coordinator is killed, and the run taken up again.
    Coordinator,
    /// The coordinator is killed and a worker too, before the run is taken up again.
    Both,
    /// The run is stopped in good order, and taken up again.
    Stop,
}

fn draw(random: &mut Random) -> Blow {
    match random.below(10) {
        0..4 => Blow::Scale(1 + random.below(5)),
        4..7 => Blow::Kill,
        7 => Blow::Coordinator,
        8 => Blow::Both,
        _ => Blow::Stop,
    }
}

fn kill_worker(scene: &Scene, random: &mut Random) {
    let workers = scene.workers();
    if !workers.is_empty() {
        scene.kill_worker(random.pick(&workers).expect("somebody lives").1);
    }
}

/// The digest of a run that is finished.
fn result(scene: &Scene) -> Option<String> {
    let ends = scene.picked(|event| match event {
        Event::Ended { outcome: RunOutcome::Finished, params_digest, .. } => params_digest.clone(),
        _ => None,
    });
    ends.into_iter().next_back()
}

/// Lets `blows` random blows fall on a run and compares its digest with that of a quiet one.
fn survives(recipe: &Recipe, seed: u64, blows: u64) {
    let mut random = Random(seed);
    let scene = recipe.scene();
    let mut story = Vec::new();
    let mut run = scene.train(&["--workers", "3", "--set", "checkpoint.every_steps=40"]);
    for _ in 0..blows {
        let step = scene.step() + 1 + random.below(30);
        if !run.reach(step) {
            break;
        }
        let blow = draw(&mut random);
        story.push((step, blow));
        println!("seed {seed}: {story:?}");
        match blow {
            Blow::Scale(workers) => {
                // The run may have ended by now; then no coordinator answers, and that is all right.
                scene.call(&["scale", "job", "--workers", &workers.to_string()]);
            }
            Blow::Kill => kill_worker(&scene, &mut random),
            Blow::Coordinator | Blow::Both | Blow::Stop => {
                if matches!(blow, Blow::Stop) {
                    run.signal(Signal::INT);
                    run.end();
                } else {
                    run.kill();
                }
                if matches!(blow, Blow::Both) {
                    kill_worker(&scene, &mut random);
                }
                if let Some(digest) = result(&scene) {
                    // It was over before the blow fell.
                    assert_eq!(digest, recipe.digest(), "seed {seed}: {story:?}");
                    return scene.audit();
                }
                run = scene.resume(&["--workers", &(1 + random.below(4)).to_string()]);
            }
        }
    }
    let summary = run.summary();
    assert_eq!(summary.outcome.word(), "finished", "seed {seed}: {story:?}: {summary:?}");
    assert_eq!(summary.params_digest, Some(recipe.digest()), "seed {seed}: {story:?}: {summary:?}");
    scene.audit();
}

#[test]
fn momentum_survives_random_schedules() {
    (100..104).for_each(|seed| survives(&jobs::momentum().steps(3000), seed, 8));
}

#[test]
fn batch_normalisation_survives_random_schedules() {
    (200..203).for_each(|seed| survives(&jobs::batch_norm().steps(300), seed, 6));
}

#[test]
fn a_transformer_survives_random_schedules() {
    (300..303).for_each(|seed| survives(&jobs::transformer().steps(600), seed, 6));
}
