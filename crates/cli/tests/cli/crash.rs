//! Workers that are killed without a warning, at any moment: nothing of the result changes.

use bellwether_core::record::{Event, Summary};

use crate::harness::{Live, Random, Scene, wait_for};
use crate::jobs::{self, Recipe};

/// Kills a random worker now.
fn kill_one(scene: &Scene, random: &mut Random) {
    let workers = scene.workers();
    if !workers.is_empty() {
        scene.kill_worker(random.pick(&workers).expect("somebody lives").1);
    }
}

#[track_caller]
fn unharmed(scene: &Scene, summary: &Summary, recipe: &Recipe) {
    assert_eq!(summary.outcome.word(), "finished", "{summary:?}");
    assert_eq!(summary.params_digest, Some(recipe.digest()), "{summary:?}");
    scene.audit();
}

/// Kills one worker each time a step of `at` is reached, a little later than that.
fn killed_at(recipe: &Recipe, seed: u64, workers: &str, at: &[u64]) -> Summary {
    println!("seed {seed}");
    let scene = recipe.scene();
    let mut random = Random(seed);
    let mut run = scene.train(&["--workers", workers]);
    for step in at {
        assert!(run.reach(*step), "the run is over at step {}", scene.step());
        std::thread::sleep(std::time::Duration::from_micros(random.below(20_000)));
        kill_one(&scene, &mut random);
    }
    let summary = run.summary();
    unharmed(&scene, &summary, recipe);
    summary
}

#[test]
fn kills_between_short_steps() {
    for (seed, recipe) in [jobs::momentum().steps(1500), jobs::adam_dropout().steps(1500)].iter().enumerate()
    {
        let summary = killed_at(recipe, seed as u64, "3", &[20, 300, 600]);
        assert!(!summary.crashes.is_empty(), "{summary:?}");
    }
}

#[test]
fn kills_within_long_computations() {
    for (seed, recipe) in [jobs::batch_norm().steps(150), jobs::transformer().steps(400)].iter().enumerate() {
        let summary = killed_at(recipe, 10 + seed as u64, "3", &[5, 50, 100]);
        assert!(!summary.crashes.is_empty(), "{summary:?}");
    }
}

#[test]
fn kills_within_an_all_reduce() {
    let recipe = jobs::heavy();
    for seed in 20..22 {
        let summary = killed_at(&recipe, seed, "3", &[4, 14, 24, 34]);
        assert!(!summary.crashes.is_empty(), "{summary:?}");
    }
}

#[test]
fn kills_while_gradients_are_computed_and_exchanged() {
    let recipe = jobs::layered();
    for (seed, workers) in [(24, "2"), (25, "3"), (26, "4")] {
        let summary = killed_at(&recipe, seed, workers, &[4, 14, 24, 34]);
        assert!(!summary.crashes.is_empty(), "{summary:?}");
    }
}

#[test]
fn the_only_worker_is_replaced() {
    let recipe = jobs::momentum().steps(1500);
    let summary = killed_at(&recipe, 30, "1", &[40, 200]);
    assert!(!summary.crashes.is_empty(), "{summary:?}");
}

fn kill_all(scene: &Scene) {
    scene.workers().iter().for_each(|(_, process)| scene.kill_worker(*process));
}

/// The step from which the run went on when no worker was left. A checkpoint that was written at the very last step
/// leaves nothing to roll back.
fn restored_from(run: &Live<'_>) -> u64 {
    run.until("a restored run", |event| match event {
        Event::RolledBack { to } => Some(*to),
        Event::Membership { step, reason, .. } if reason.starts_with("no worker was left") => Some(*step),
        _ => None,
    })
}

#[test]
fn without_any_worker_the_run_begins_again_from_its_seed() {
    let recipe = jobs::momentum().steps(1500);
    let scene = recipe.scene();
    let mut run = scene.train(&["--workers", "3"]);
    assert!(run.reach(100));
    kill_all(&scene);
    assert_eq!(restored_from(&run), 0);
    unharmed(&scene, &run.summary(), &recipe);
}

#[test]
fn without_any_worker_the_run_goes_back_to_its_checkpoint() {
    let recipe = jobs::adam_dropout().steps(1500);
    let scene = recipe.scene();
    let mut run = scene.train(&["--workers", "3", "--set", "checkpoint.every_steps=100"]);
    run.until("a checkpoint", |event| matches!(event, Event::Checkpointed { .. }).then_some(()));
    assert!(run.reach(150));
    kill_all(&scene);
    let to = restored_from(&run);
    assert!(to >= 100 && to.is_multiple_of(100), "{to}");
    unharmed(&scene, &run.summary(), &recipe);
}

/// Asks for a third worker and kills it when its journal line `since` is there.
fn newcomer_killed(recipe: &Recipe, what: &str, since: impl Fn(&Event) -> bool) {
    let scene = recipe.scene();
    let mut run = scene.train(&["--workers", "2"]);
    assert!(run.reach(5));
    assert_eq!(scene.call(&["scale", "job", "--workers", "3"]).code, Some(0));
    run.until(what, |event| since(event).then_some(()));
    let newcomer = wait_for(
        || "the newcomer's process".into(),
        || scene.workers().into_iter().find(|(worker, _)| *worker == 3),
    );
    scene.kill_worker(newcomer.1);
    let summary = run.summary();
    unharmed(&scene, &summary, recipe);
    assert_eq!(summary.workers.last(), Some(&3), "another one takes its place: {summary:?}");
}

#[test]
fn a_newcomer_that_dies_while_it_boots_is_replaced() {
    let third = |event: &Event| matches!(event, Event::WorkerAttached { worker: 3, .. });
    newcomer_killed(&jobs::momentum().steps(3000), "the newcomer", third);
}

#[test]
fn a_newcomer_that_dies_while_it_receives_the_state_is_replaced() {
    let receives = |event: &Event| matches!(event, Event::Membership { shadows, .. } if shadows.contains(&3));
    newcomer_killed(&jobs::heavy(), "a shadow", receives);
    newcomer_killed(&jobs::momentum().steps(3000), "a shadow", receives);
}
