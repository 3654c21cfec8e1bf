//! `tune sync`: what it finds, and that nothing is lost when it is killed.

use std::fs;

use bellwether_core::job::{Sync, SyncPolicy};
use bellwether_core::prediction::Protocol;
use bellwether_core::record::Event;
use bellwether_runtime::journal;
use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Ended, Scene, signal, wait_for};

/// Digits, soon learnt.
fn job(steps: u64) -> String {
    format!(
        "name = \"job\"\nseed = 7\nsteps = {steps}\nworkers = 2\n[batch]\nsize = 32\nvirtual_nodes = 4\n\
         [model]\nkind = \"mlp\"\nhidden = [24]\n[data]\nkind = \"digits\"\nheld_out = 0.2\n\
         [optimizer]\nkind = \"sgd\"\nlearning_rate = 0.1\nmomentum = 0.9\n"
    )
}

const TUNE: [&str; 11] =
    ["tune", "sync", "job.toml", "--settings", "2", "--runs", "1", "--margin", "0.9", "--format", "json"];

fn tune(scene: &Scene, more: &[&str]) -> Ended {
    scene.call(&[&TUNE[..], more].concat())
}

fn report(ended: &Ended) -> Value {
    assert_eq!(ended.code, Some(0), "{ended:?}");
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("no report ({error}): {ended:?}"))
}

fn sessions(path: &std::path::Path) -> Vec<Value> {
    let text = fs::read(path).unwrap_or_default();
    let state: Value = serde_json::from_slice(&text).unwrap_or_default();
    state["search"]["sessions"].as_array().cloned().unwrap_or_default()
}

#[test]
fn the_least_share_that_is_good_enough_is_found_and_kept() {
    let scene = Scene::new(&job(60));
    let more = ["--recurrences", "10", "--price", "$3.6/h", "-o", "search.json"];
    let ended = tune(&scene, &more);
    let found = report(&ended);
    let fractions: Vec<f64> =
        found["settings"].as_array().unwrap().iter().map(|row| row["fraction"].as_f64().unwrap()).collect();
    assert_eq!((fractions, found["best"].as_f64()), (vec![1.0, 0.5, 0.25], Some(0.25)));
    // The synchronous session is the job itself.
    let run = scene.train(&[]).summary();
    assert_eq!(found["target"].as_f64(), run.accuracy);
    assert_eq!(found["cost_samples"].as_u64(), Some(3 * run.examples));
    let cost = found["cost_s"].as_f64().unwrap();
    assert!((found["cost_dollars"].as_f64().unwrap() - 2.0 * cost * 0.001).abs() < 1e-9);
    let sync: Sync = read_policy(found["policy"].as_str().unwrap());
    assert_eq!(sync.policy, SyncPolicy::Phases(vec![(0.0, Protocol::Bsp), (0.25, Protocol::Asp)]));
    ended.says(&["session 3 of at most 3: 25 % synchronous", "seed 7", "accuracy"]);
    // Asked again, it knows.
    let again = tune(&scene, &[&more[..], &["--resume"]].concat());
    assert_eq!(report(&again), found);
    assert!(!again.stderr.contains("session 1"), "{}", again.stderr);
    assert!(!scene.path("search.sessions").exists());
    let table = scene.call(&["tune", "sync", "job.toml", "--resume", "-o", "search.json"]);
    // On a busy machine the setting may have taken longer than all steps together: then it is not recommended.
    let recommended = if found["gain"]["best_s"].as_f64() < found["gain"]["synchronous_s"].as_f64() {
        "[sync] policy = { switch_at = 0.25 }"
    } else {
        "nothing: synchronous training takes no longer"
    };
    for words in ["sets the target", "good enough", "3 sessions", recommended] {
        assert!(table.stdout.contains(words), "{words}: {}", table.stdout);
    }
    let csv = scene.call(&["tune", "sync", "job.toml", "--resume", "-o", "search.json", "--format", "csv"]);
    assert_eq!(csv.stdout.lines().count(), 4, "{}", csv.stdout);
    // The job finds it, with whatever seed.
    let auto = scene.train(&["--set", "sync.policy=\"auto\"", "--set", "seed=8"]).summary();
    assert_eq!(auto.outcome.word(), "finished");
    let journal = journal::read(&std::path::Path::new(&auto.run_dir).join("journal.jsonl")).unwrap();
    let found = |event: &Event| match event {
        Event::Decided(decision) => decision.reason.contains("25.000 % of the steps, which are 15"),
        _ => false,
    };
    assert!(journal.iter().any(|line| found(&line.event)), "{journal:?}");
    let switched = |event: &Event| matches!(event, Event::Protocol { step: 15, protocol: Protocol::Asp, .. });
    assert!(journal.iter().any(|line| switched(&line.event)), "{journal:?}");
}

/// The policy as somebody would copy it into a job file.
fn read_policy(policy: &str) -> Sync {
    let text = format!("{}[sync]\npolicy = {policy}\n", job(60));
    bellwether_core::parse::job(&text, "job.toml", &[]).expect("it belongs into a job file").into_job().sync
}

#[test]
fn a_search_that_is_killed_goes_on_where_it_was() {
    for coordinator_too in [false, true] {
        let scene = Scene::new(&job(1500));
        let state = scene.path("search.json");
        let live = scene.start(&[&TUNE[..], &["-o", "search.json"]].concat());
        let journal_of_second = scene.path("search.sessions/job-2/journal.jsonl");
        let events = || journal::read(&journal_of_second).unwrap_or_default();
        // In the middle of the second session.
        wait_for(
            || format!("the second session: {}", live.stderr()),
            || events().iter().any(|line| matches!(line.event, Event::Committed { .. })).then_some(()),
        );
        live.kill();
        let before = sessions(&state);
        assert_eq!(before.len(), 1);
        if coordinator_too {
            for line in events() {
                if let Event::CoordinatorStarted { process, .. } = line.event
                    && scene.owns(process)
                {
                    signal(process, Signal::KILL);
                }
            }
        }
        tune(&scene, &["-o", "search.json"]).refused_with(&[
            "search.json",
            "there is a search already",
            "--resume",
        ]);
        let found = report(&tune(&scene, &["-o", "search.json", "--resume"]));
        let after = sessions(&state);
        assert_eq!(after.len(), 3);
        assert_eq!(after[0], before[0], "what was trained is not trained again");
        assert_eq!(found["best"].as_f64(), Some(0.25));
        assert_eq!(found["sessions"].as_u64(), Some(3));
        // Every session trained each of its samples once in the account.
        assert!(after.iter().all(|session| session["samples"] == after[0]["samples"]), "{after:?}");
    }
}

#[test]
fn bad_input_is_refused_before_anything_is_trained() {
    let scene = Scene::new(&job(60));
    let refused = |arguments: &[&str], words: &[&str]| {
        scene.call(&[&["tune", "sync"], arguments].concat()).refused_with(words);
    };
    refused(&["nothing.toml"], &["nothing.toml", "cannot be read"]);
    refused(&["job.toml", "--margin", "1"], &["a margin of 1", "0.01"]);
    refused(&["job.toml", "--margin", "-0.1"], &["a margin of -0.1"]);
    refused(&["job.toml", "--runs", "0"], &["0 sessions per setting"]);
    refused(&["job.toml", "--settings", "41"], &["41 settings"]);
    refused(&["job.toml", "--settings", "6"], &["less than a step", "60 steps"]);
    refused(&["job.toml", "--target-accuracy", "91"], &["an accuracy of 91", "between 0 and 1"]);
    refused(&["job.toml", "--workers", "5"], &["--workers", "5 workers cannot share 4 virtual nodes"]);
    refused(&["job.toml", "--set", "mode.goodput.max_batch=64"], &["mode", "goodput"]);
    refused(&["job.toml", "--resume"], &["cannot be read", "without --resume"]);
    refused(&["job.toml", "-o", "no/search.json"], &["no/search.json", "there is no folder"]);
    scene.write("broken.json", "{");
    refused(&["job.toml", "--resume", "-o", "broken.json"], &["broken.json", "is not a search"]);
    let state = scene.path("state/bellwether");
    let left: Vec<_> = fs::read_dir(&state).into_iter().flatten().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_search_is_about_one_job() {
    let scene = Scene::new(&job(60));
    let all = ["--settings", "1", "--runs", "1", "--margin", "0.9", "-o", "search.json"];
    let first = scene.call(&[&["tune", "sync", "job.toml"], &all[..]].concat());
    assert_eq!(first.code, Some(0), "{first:?}");
    let again = |more: &[&str], words: &[&str]| {
        let arguments = ["tune", "sync", "job.toml", "--resume", "-o", "search.json"];
        scene.call(&[&arguments[..], more].concat()).refused_with(words);
    };
    again(&["--set", "steps=61"], &["search.json", "the job was another"]);
    again(&["--set", "seed=8"], &["the job's seed was another"]);
    again(&["--workers", "1"], &["the number of workers was another"]);
    again(&["--set", "sync.servers=2"], &["[sync] was another"]);
    again(&["--margin", "0.8"], &["--margin was another"]);
    // A file that somebody changed.
    let text = fs::read_to_string(scene.path("search.json")).expect("the search is there");
    scene.write("search.json", text.replacen("\"run\": 0", "\"run\": 4", 1));
    again(&[], &["search.json", "it was not asked for"]);
}
