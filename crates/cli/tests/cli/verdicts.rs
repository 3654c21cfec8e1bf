//! Runs whose workers wait for verdicts: whatever dies meanwhile, what was decided is followed.

use bellwether_core::record::{EarlyEnd, Event, RunOutcome};
use bellwether_runtime::control::Answer;
use bellwether_runtime::control::client::Control;
use bellwether_runtime::run_dir::RunDir;

use crate::harness::{Scene, wait_for};
use crate::jobs;

/// The coordinator of the scene's run, once it answers.
fn coordinator(scene: &Scene) -> Control {
    let connect = || {
        let token = RunDir::at(scene.run_folder()).token().ok()?;
        Control::connect(&scene.endpoint().control.to_string(), &token).ok()
    };
    wait_for(|| "no coordinator answers".into(), connect)
}

/// Waits until all workers wait after `step`, as many as these.
pub(crate) fn held(scene: &Scene, step: u64, workers: u32) {
    let words = format!("waiting for the lead's verdict after step {step}");
    wait_for(
        || format!("{workers} workers that wait after step {step}"),
        || {
            let status = coordinator(scene).status().ok()?;
            (status.lifecycle == words && status.workers == workers).then_some(())
        },
    );
}

pub(crate) fn verdict(scene: &Scene, step: u64, ends: Option<&str>) -> Answer {
    coordinator(scene).verdict(step, ends).expect("it answers")
}

#[test]
fn a_run_follows_its_verdicts_through_the_deaths_of_coordinator_and_worker() {
    let scene = jobs::momentum().scene();
    let verdicts = ["--workers", "3", "--set", "verdict.every_steps=50"];
    let run = scene.train(&verdicts);
    held(&scene, 50, 3);
    let show = scene.call(&["show", "job-1"]);
    assert!(show.stdout.contains("waiting for the lead's verdict after step 50"), "{}", show.stdout);
    assert!(!verdict(&scene, 75, None).accepted && !verdict(&scene, 100, Some("too early")).accepted);
    assert!(verdict(&scene, 50, None).accepted && verdict(&scene, 50, None).accepted);

    held(&scene, 100, 3);
    let contrary = verdict(&scene, 50, Some("too late"));
    assert!(!contrary.accepted && contrary.message.contains("goes on after step 50"), "{contrary:?}");
    run.kill();
    let run = scene.resume(&[]);
    held(&scene, 100, 3);
    scene.kill_worker(scene.workers()[0].1);
    wait_for(
        || "a crash".into(),
        || scene.picked(|e| matches!(e, Event::Crashed { step: 100, .. }).then_some(())).pop(),
    );
    scene.call(&["scale", "job-1", "--workers", "4"]);
    held(&scene, 100, 4);
    scene.call(&["scale", "job-1", "--workers", "1"]);
    held(&scene, 100, 1);
    assert!(verdict(&scene, 100, Some("it is\n good enough")).accepted);

    let end = EarlyEnd { step: 100, reason: "it is good enough".into() };
    let summary = run.summary();
    assert_eq!((&summary.outcome, summary.steps), (&RunOutcome::Finished, 100), "{summary:?}");
    assert_eq!(summary.ended_early.as_ref(), Some(&end));
    assert_eq!(summary.params_digest, Some(jobs::momentum().steps(100).digest()), "{summary:?}");
    let told = scene.picked(|event| match event {
        Event::Verdict { step, ends } => Some((*step, ends.clone())),
        _ => None,
    });
    assert_eq!(told, [(50, None), (100, Some(end.reason))], "each once");
    scene.audit();
    let show = scene.call(&["show", "job-1"]);
    assert!(show.stdout.contains("after step 100: it is good enough"), "{}", show.stdout);
    scene.call(&["resume", "job-1"]).refused_with(&["the run is finished, after 100 steps"]);
}
