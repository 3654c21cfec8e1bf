//! `[stop]`: held-out results end a run at the same step and with the same bits whatever happens to its workers; time
//! and money interrupt it.

use bellwether_core::record::{Event, RunOutcome};

use crate::harness::{Scene, wait_for};
use crate::jobs;

/// A run that ends when its held-out loss has not improved in two evaluations, long before its last step.
const PATIENT: &str = "name = \"job\"\nseed = 3\nsteps = 4000\n[batch]\nsize = 32\nvirtual_nodes = 8\n\
    [model]\nkind = \"mlp\"\nhidden = [64]\n[data]\nkind = \"digits\"\n\
    [optimizer]\nkind = \"sgd\"\nlearning_rate = 0.5\nmomentum = 0.9\n[evaluation]\nevery_steps = 20\n\
    [stop]\npatience = 2\ndivergence = 50.0\n";

fn ended(summary: &bellwether_core::record::Summary) -> (u64, String, Option<String>) {
    let early = summary.ended_early.as_ref().expect("it ends early");
    assert_eq!((&summary.outcome, early.step), (&RunOutcome::Finished, summary.steps), "{summary:?}");
    (summary.steps, early.reason.clone(), summary.params_digest.clone())
}

#[test]
fn held_out_results_end_a_run_at_the_same_step_whatever_its_workers() {
    let scene = Scene::new(PATIENT);
    let alone = ended(&scene.train(&["--workers", "1"]).summary());
    assert!(alone.0 < 4000 && alone.0.is_multiple_of(20), "{alone:?}");
    assert!(alone.1.contains("in 2 evaluations (stop.patience)"), "{alone:?}");
    assert!(alone.2.is_some());
    scene.audit();
    let show = scene.call(&["show", "job-1"]);
    assert!(show.stdout.contains(&format!("after step {}: {}", alone.0, alone.1)), "{}", show.stdout);
    scene.call(&["resume", "job-1"]).refused_with(&["the run is finished, after"]);

    // Three workers, of which one dies; then the coordinator dies, and another finds what was evaluated before.
    let scene = Scene::new(PATIENT);
    let mut run = scene.train(&["--workers", "3"]);
    assert!(run.reach(20));
    scene.kill_worker(scene.workers()[0].1);
    wait_for(
        || "a crash".into(),
        || scene.picked(|event| matches!(event, Event::Crashed { .. }).then_some(())).pop(),
    );
    run.kill();
    let run = scene.resume(&[]);
    assert_eq!(ended(&run.summary()), alone);
    scene.audit();
    let told = scene.picked(|event| match event {
        Event::Verdict { step, ends } => Some((*step, ends.is_some())),
        _ => None,
    });
    let steps: Vec<u64> = (1..=alone.0 / 20).map(|evaluation| evaluation * 20).collect();
    assert_eq!(told.iter().map(|(step, _)| *step).collect::<Vec<_>>(), steps, "each once");
    assert!(told.iter().rev().skip(1).all(|(_, ends)| !ends));
}

#[test]
fn a_target_ends_a_run_and_so_does_divergence() {
    let scene = Scene::new(PATIENT);
    let target = ["--workers", "2", "--set", "stop.accuracy=0.8"];
    let (steps, reason, _) = ended(&scene.train(&target).summary());
    assert!(reason.contains("reaches 0.8 (stop.accuracy)"), "{reason}");
    assert!(steps <= 200, "{steps}");
    let scene = Scene::new(PATIENT);
    let diverging = ["--workers", "2", "--set", "stop.divergence=1.02", "--set", "stop.patience=1000"];
    let (_, reason, _) = ended(&scene.train(&diverging).summary());
    assert!(reason.contains("is more than 1.02 times the lowest one"), "{reason}");
}

#[test]
fn a_limit_of_time_interrupts_a_run_which_trains_the_same() {
    let body = jobs::patient();
    let scene = Scene::new(&format!("{}[stop]\ntime = \"1s\"\n", body.text()));
    let summary = scene.train(&["--workers", "2"]).summary();
    assert_eq!(summary.outcome, RunOutcome::Stopped, "{summary:?}");
    assert!(summary.steps > 0 && summary.steps < 500, "{summary:?}");
    let limits = || scene.picked(|event| matches!(event, Event::LimitReached { .. }).then_some(())).len();
    assert_eq!(limits(), 1);
    // Resuming it grants as much again, as often as it takes.
    let mut last = summary;
    for _ in 0..20 {
        if last.outcome == RunOutcome::Finished {
            break;
        }
        let before = last.steps;
        last = scene.resume(&[]).summary();
        assert!(last.steps > before, "{last:?}");
    }
    assert_eq!((&last.outcome, last.steps), (&RunOutcome::Finished, 500));
    assert_eq!(last.params_digest, Some(body.digest()), "interruptions change no bit");
    assert!(limits() > 1);
    scene.audit();
}

#[test]
fn rules_that_could_never_hold_are_refused() {
    let refused = |more: &[&str], words: &[&str]| {
        Scene::new(PATIENT).train(&[&["--workers", "1"], more].concat()).end().refused_with(words);
    };
    refused(&["--set", "evaluation.every_steps=0"], &["evaluation.every_steps", "evaluates at its end only"]);
    refused(&["--set", "data.held_out=0.0"], &["never measured", "data.held_out is 0"]);
    refused(&["--set", "stop.accuracy=95"], &["stop.accuracy", "95 is not in 0…1"]);
    refused(&["--set", "stop.money=$3"], &["stop.price", "dollars per worker and hour"]);
    refused(&["--set", "stop.patiense=3"], &["patiense"]);
    refused(&["--set", "verdict.every_steps=20"], &["verdict.every_steps", "either a script decides"]);
    refused(&["--set", "stop.divergence=0.5"], &["stop.divergence"]);
    let synthetic =
        Scene::new(&format!("{}[evaluation]\nevery_steps = 5\n[stop]\npatience = 3\n", jobs::slow(1)));
    synthetic.train(&[]).end().refused_with(&["a synthetic device has no held-out samples"]);
}
