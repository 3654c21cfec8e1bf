//! Every example runs, and comes to what its text says.

use std::path::PathBuf;

use bellwether::client::Phase;
use bellwether::session::StateDir;
use bellwether::simulate::replay::Replay;

#[path = "../../examples/own_daemon.rs"]
#[allow(dead_code, reason = "`main` is for `cargo run --example`")]
mod own_daemon;

#[path = "../../examples/own_model.rs"]
#[allow(dead_code, reason = "as above")]
mod own_model;
#[path = "../../examples/own_policy.rs"]
#[allow(dead_code, reason = "as above")]
mod own_policy;
#[path = "../../examples/plan.rs"]
#[allow(dead_code, reason = "as above")]
mod plan;
#[path = "../../examples/predict.rs"]
#[allow(dead_code, reason = "as above")]
mod predict;
#[path = "../../examples/simulate_trace.rs"]
#[allow(dead_code, reason = "as above")]
mod simulate_trace;

#[test]
fn a_model_of_ones_own_is_trained_to_the_same_bits_on_any_number_of_workers() {
    let folder = tempfile::tempdir().unwrap();
    let state_dir = StateDir::find(Some(folder.path().into())).unwrap();
    let summaries = [1, 2, 4].map(|workers| own_model::train(state_dir.clone(), workers).unwrap());
    // The noise of the points, 0.1 sin, leaves a loss of 0.1² / 4.
    assert!(summaries[0].final_loss.is_some_and(|loss| loss < 0.004), "{:?}", summaries[0].final_loss);
    assert!(summaries[0].params_digest.is_some());
    for (summary, workers) in summaries.iter().zip([1, 2, 4]) {
        assert_eq!(summary.workers, [workers]);
        assert_eq!(summary.params_digest, summaries[0].params_digest);
    }
}

#[test]
fn a_policy_of_ones_own_stands_beside_built_in_ones() {
    let reports = own_policy::compare().unwrap();
    let mean_s = |name: &str| reports.iter().find(|(known, _)| *known == name).unwrap().1.avg_jct_s;
    assert!(reports.iter().all(|(_, report)| report.finished == 6.0));
    // Narrow jobs do not wait for a wide one ...
    assert!(mean_s("narrowest_first") < mean_s("narrowest_first:600"), "{reports:?}");
    // ... unless it has waited for ten minutes.
    assert!(mean_s("narrowest_first:600") < mean_s("fifo"), "{reports:?}");
}

#[test]
fn more_workers_are_predicted_to_be_faster_until_the_link_is_full() {
    let predictions = predict::predict().unwrap();
    let rates: Vec<f64> = predictions.iter().map(|(_, prediction)| prediction.examples_per_s).collect();
    // 128 samples in 0.22 s on the profiled device, 3.17 times as many on this one.
    assert!((rates[0] / (3.17 * 128.0 / 0.22) - 1.0).abs() < 0.04, "{rates:?}");
    assert!(rates.is_sorted() && rates[1] > 1.2 * rates[0] && rates[3] < 3.0 * rates[0], "{rates:?}");
    assert!(predictions.iter().all(|(_, prediction)| prediction.validity.beyond().is_some()));
}

#[test]
fn a_published_trace_is_simulated_under_several_policies() {
    let reports = simulate_trace::compare().unwrap();
    let [fifo, .., afs] = reports.as_slice() else { panic!("four policies") };
    assert!(reports.iter().all(|(_, report)| report.finished == 260.0), "{reports:?}");
    assert!(afs.1.avg_jct_s < 0.5 * fifo.1.avg_jct_s, "{reports:?}");
    assert!(reports.iter().any(|(_, report)| report.preemptions > 0.0), "nodes fail");
}

#[test]
fn a_plan_meets_a_deadline_and_a_later_one_is_cheaper() {
    let [soon, later] = [0.75, 4.0].map(|hours| plan::machines(hours * 3600.0).unwrap());
    let chosen = |plan: &bellwether::plan::Plan| plan.candidates[plan.choice.unwrap()].clone();
    assert!(chosen(&soon).meets_deadline.is_some_and(|probability| probability >= 0.95));
    assert!(chosen(&later).cost_dollars < chosen(&soon).cost_dollars, "{} / {}", soon.reason, later.reason);
}

/// The command, which lies beside this test's folder: it is built for its own tests.
fn command() -> Option<PathBuf> {
    let test = std::env::current_exe().ok()?;
    let command = test.parent()?.parent()?.join("bellwether");
    command.is_file().then_some(command)
}

#[test]
fn a_policy_of_ones_own_decides_about_real_jobs_in_a_daemon() {
    let Some(command) = command() else {
        eprintln!("skipped: the command is not built; `cargo build --release` builds it");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let state_dir = StateDir::find(Some(folder.path().join("state"))).unwrap();
    let jobs = own_daemon::train(state_dir, command).unwrap();
    assert_eq!(jobs.iter().map(|job| (job.state, job.step)).collect::<Vec<_>>(), [(Phase::Finished, 200); 2]);
    assert!(jobs[0].digest.is_some() && jobs[0].digest == jobs[1].digest, "{jobs:?}");
    let ledger = folder.path().join("state/.serve/ledger.jsonl");
    let replay = Replay::of(&ledger, &own_daemon::registry().unwrap(), None, None).unwrap();
    let decisions = replay.decisions.unwrap();
    assert!(decisions.all >= 2 && decisions.same == decisions.all, "{decisions:?}");
    // `fair` would have let both train at once.
    assert!(jobs[0].ended_s.unwrap() <= jobs[1].started_s.unwrap(), "{jobs:?}");
}
