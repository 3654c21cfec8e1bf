//! The same verbs for runs that were started by hand and for a daemon's jobs, from the start of a job to its removal.

use std::fs;

use serde_json::{Value, json};

use crate::harness::{Ended, Scene, wait_for};
use crate::jobs;
use crate::served::{Served, synthetic};

fn value(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("no JSON ({error}): {ended:?}"))
}

/// What `jobs` says of the job.
fn listed(scene: &Scene, name: &str) -> Option<Value> {
    let all = value(&scene.call(&["jobs", "--format", "json"]));
    all.as_array()?.iter().find(|job| job["run"] == name).cloned()
}

fn state(scene: &Scene, name: &str) -> String {
    listed(scene, name).map_or_else(|| "unknown".into(), |job| job["state"].as_str().unwrap_or("?").into())
}

#[track_caller]
fn done(ended: Ended) -> String {
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended.stdout
}

#[test]
fn a_run_by_hand() {
    let recipe = jobs::patient().steps(400);
    let scene = recipe.scene();
    let mut run = scene.train(&["--workers", "2"]);
    assert!(run.reach(20));
    let job = listed(&scene, "job-1").expect("it is listed");
    assert_eq!(
        (&job["state"], &job["served"], &job["workers"]),
        (&json!("running"), &json!(false), &json!(2))
    );
    let shown = done(scene.call(&["show", "job"]));
    assert!(shown.contains("job-1") && shown.contains("running"), "{shown}");
    scene.call(&["rm", "job-1"]).refused_with(&["is running", "bellwether stop job-1"]);
    scene.call(&["resume", "job-1"]).refused_with(&["another coordinator is at work"]);
    scene.call(&["cancel", "job-1"]).refused_with(&[
        "started by hand",
        "bellwether stop job-1",
        "bellwether rm",
    ]);
    done(scene.call(&["scale", "job", "--workers", "1"]));
    assert!(done(scene.call(&["stop", "job"])).contains("job-1 stops"));
    run.summary();
    assert_eq!(state(&scene, "job-1"), "suspended");
    assert!(done(scene.call(&["watch", "job"])).contains("suspended"));
    assert!(done(scene.call(&["jobs", "--color", "always"])).contains("\x1b[33msuspended\x1b[0m"));
    assert!(!done(scene.call(&["jobs"])).contains('\x1b'), "no terminal, no colours");
    assert!(done(scene.call(&["show", "job"])).contains("stopped"));
    scene.call(&["stop", "job"]).refused_with(&["is suspended", "bellwether resume job-1"]);
    let logs = done(scene.call(&["logs", "job", "-n", "50"]));
    assert!(logs.contains("stop requested: by control") && logs.contains("membership: "), "{logs}");
    let last = done(scene.call(&["logs", "job", "-n", "1", "-f"]));
    assert_eq!(last.lines().count(), 1, "{last}");
    // The result is the same, and is shown again.
    let resumed = done(scene.call(&["resume", "job"]));
    assert!(resumed.contains(&recipe.digest()), "{resumed}");
    assert_eq!(done(scene.call(&["show", "job-1"])), resumed);
    let shown = value(&scene.call(&["show", "job-1", "--format", "json"]));
    assert_eq!((&shown["state"], &shown["summary"]["steps"]), (&json!("finished"), &json!(400)));
    let last = done(scene.call(&["watch", "job"]));
    assert!(last.contains("step 400/400") && last.contains("finished"), "{last}");
    assert_eq!(done(scene.call(&["rm", "job-1"])), "job-1 is removed\n");
    assert!(!scene.run_folder().exists());
    scene.call(&["show", "job-1"]).refused_with(&["there is no such job", "bellwether jobs"]);
}

#[test]
fn a_job_of_a_daemon() {
    let scene = Scene::new(&synthetic("job", 1, 400, 4.0));
    let served = Served::start(&scene, &["--policy", "fifo", "--slots", "2"]);
    done(scene.call(&["submit", "job.toml", "--min", "2", "--max", "2"]));
    let dry = scene.call(&["submit", "job.toml", "--dry-run"]);
    dry.says(&["fifo decides on 2 slots", "jobs that have not ended: 1"]);
    scene
        .call(&["submit", "job.toml", "--dry-run", "--name", "job-1"])
        .refused_with(&["--name", "the daemon has a job `job-1`"]);
    served.until("it trains", |jobs| jobs["job-1"]["step"].as_u64() > Some(5));
    assert_eq!(state(&scene, "job-1"), "running");
    assert!(done(scene.call(&["show", "job"])).contains("running"));
    assert!(done(scene.call(&["stop", "job-1"])).starts_with("job-1 is "));
    served.until("it is suspended", |jobs| jobs["job-1"]["state"] == "suspended");
    assert_eq!(state(&scene, "job-1"), "suspended");
    // Only its daemon takes it up.
    scene.resume(&[]).end().refused_with(&["a daemon's job", "bellwether resume job-1"]);
    assert!(done(scene.call(&["logs", "job-1", "-n", "100"])).contains("membership: "));
    assert!(done(scene.call(&["resume", "job-1"])).starts_with("job-1 is "));
    done(scene.call(&["scale", "job-1", "--workers", "1"]));
    assert_eq!(
        done(scene.call(&["watch", "job-1"])).lines().last().map(|line| line.contains("finished")),
        Some(true)
    );
    assert!(done(scene.call(&["show", "job-1"])).contains("finished"));
    done(scene.call(&["submit", "job.toml"]));
    scene.call(&["rm", "job-2"]).refused_with(&["the job is ", "bellwether cancel job-2"]);
    done(scene.call(&["cancel", "job-2"]));
    served.until("it is cancelled", |jobs| jobs["job-2"]["state"] == "cancelled");
    assert_eq!(done(scene.call(&["rm", "job-2"])), "job-2 is removed\n");
    assert!(listed(&scene, "job-2").is_none() && listed(&scene, "job-1").is_some());
    assert_eq!(served.interrupt(), Some(0));
    // Without its daemon its files can be read, and no more.
    assert!(done(scene.call(&["show", "job-1"])).contains("finished"));
    scene.call(&["rm", "job-1"]).refused_with(&["a daemon's job", "bellwether serve"]);
    scene.resume(&[]).end().refused_with(&["a daemon's job"]);
}

/// A run of three steps.
fn short(scene: &Scene, more: &[&str]) {
    let summary = scene.train(&[&["--steps", "3", "--workers", "1"], more].concat()).summary();
    assert_eq!(summary.outcome.word(), "finished");
}

#[test]
fn the_list_is_by_age_and_as_long_and_wide_as_one_can_read() {
    let scene = jobs::momentum().scene();
    short(&scene, &["--set", "name=zebra"]);
    short(&scene, &[]);
    short(&scene, &["--set", "name=alpha-with-a-rather-long-name-that-fits-no-narrow-terminal"]);
    let names = |arguments: &[&str]| -> Vec<String> {
        let text = done(scene.call(&[&["jobs"], arguments].concat()));
        text.lines().skip(1).filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
    };
    let all = names(&[]);
    assert!(all[0] == "zebra-1" && all[1] == "job-1" && all[2].starts_with("alpha-"), "{all:?}");
    let text = done(scene.call(&["jobs", "--limit", "1"]));
    assert!(
        text.contains("alpha-") && !text.contains("zebra") && text.contains("2 jobs that ended before"),
        "{text}"
    );
    let mut command = scene.command(&["jobs"]);
    command.env("COLUMNS", "50");
    let narrow = scene.start_command(command).end().stdout;
    assert!(narrow.lines().all(|line| line.chars().count() <= 50) && narrow.contains('…'), "{narrow}");
    assert_eq!(done(scene.call(&["rm", "--all-ended"])), "3 jobs removed\n");
    assert_eq!(value(&scene.call(&["jobs", "--format", "json"])), json!([]));
}

#[test]
fn a_loss_that_grew_beyond_measure_takes_little_room() {
    let scene = jobs::momentum().scene();
    short(&scene, &[]);
    let path = scene.run_folder().join("metrics.jsonl");
    let text = fs::read_to_string(&path).expect("a run has metrics");
    let mut step: Value = serde_json::from_str(text.lines().last().expect("steps")).expect("a step");
    step["loss"] = json!(7.708e21);
    fs::write(&path, format!("{step}\n")).expect("the test's folder can be written");
    let text = done(scene.call(&["jobs"]));
    assert!(text.contains(" 7.7e21 "), "{text}");
}

#[test]
fn verbs_of_other_tools_lead_to_ours() {
    let scene = Scene::new("");
    for (word, verb) in [
        ("ls", "jobs"),
        ("ps", "jobs"),
        ("list", "jobs"),
        ("status", "show"),
        ("delete", "rm"),
        ("train", "run"),
        ("top", "jobs --watch"),
        ("rnu", "run"),
    ] {
        scene
            .call(&[word])
            .refused_with(&["there is no such verb", &format!("did you mean `bellwether {verb}`?")]);
    }
    // Old names go on to work, and are not shown.
    let help = done(scene.call(&["--help"]));
    for name in ["suspend", "job"] {
        done(scene.call(&[name, "--help"]));
        assert!(!help.lines().any(|line| line.split_whitespace().next() == Some(name)), "{help}");
    }
}

#[test]
fn a_run_in_the_background() {
    let scene = jobs::patient().steps(200).scene();
    let ended = scene.call(&["run", "job.toml", "--workers", "2", "--detach"]);
    assert!(done(ended).contains("job-1"));
    wait_for(|| "it trains".into(), || (state(&scene, "job-1") == "running").then_some(()));
    let followed = done(scene.call(&["logs", "job", "-f"]));
    assert!(followed.contains("ended: "), "{followed}");
    wait_for(|| "it ends".into(), || (state(&scene, "job-1") == "finished").then_some(()));
    assert!(done(scene.call(&["show", "job"])).contains("finished"));
    // What cannot begin is said at once.
    scene.write("wrong.toml", "name = \"wrong\"\n");
    let wrong = scene.call(&["run", "wrong.toml", "--detach"]);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    wrong.says(&["wrong.toml"]);
}

#[test]
fn what_would_be_started() {
    let scene = jobs::momentum().scene();
    let dry = done(scene.call(&["run", "job.toml", "--workers", "1..4", "--dry-run"]));
    for word in ["job-1", "1..4", "300", "MiB"] {
        assert!(dry.contains(word), "`{word}` is not in {dry}");
    }
    assert!(!scene.path("state").exists(), "nothing was made");
    let dry = value(&scene.call(&["run", "job.toml", "--dry-run", "--format", "json"]));
    assert_eq!((&dry["job"], &dry["steps"]), (&json!("job"), &json!(300)));
    assert!(done(scene.call(&["submit", "job.toml", "--dry-run"])).contains("300"));
    scene.call(&["run", "job.toml", "--workers", "99", "--dry-run"]).refused_with(&["--workers"]);
}

#[test]
fn an_address_of_another_machine_leaves_no_run() {
    let scene = jobs::momentum().scene();
    let refused = scene.call(&["run", "job.toml", "--listen", "192.0.2.1:7000"]);
    refused.refused_with(&["192.0.2.1:7000"]);
    assert_eq!(value(&scene.call(&["jobs", "--format", "json"])), json!([]));
}
