//! Profiles by Slurm's jobs.

use rustix::process::Signal;
use serde_json::Value;

use crate::cluster::Cluster;
use crate::harness::{Scene, wait_for};
use crate::jobs::{job, undisturbed};
use crate::served::{ask, begin, shown};

#[test]
fn a_job_is_profiled_on_nodes_and_predicted_from_that() {
    let Some(cluster) = Cluster::find() else { return };
    let scene = Scene::new(&job(300, ""));
    let usual = ["profile", "job.toml", "--on=slurm", "--sbatch=--partition=low", "--sbatch=--exclusive"];
    let profiled = cluster.start(&scene, &[&usual[..], &["--output=p.json", "--steps=20"]].concat());
    let on_nodes = || cluster.queue().iter().filter(|(_, state, _)| state == "RUNNING").count() == 2;
    wait_for(|| format!("{}{}", profiled.stderr(), cluster.say("squeue", &[])), || on_nodes().then_some(()));
    let ended = profiled.end();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("is Slurm's job"), "{}", ended.stderr);
    let text = std::fs::read_to_string(scene.path("p.json")).expect("it was written");
    let profile: Value = serde_json::from_str(&text).expect("a profile is JSON");
    assert!(profile["network"]["bandwidth_bytes_per_s"].as_f64() > Some(0.0), "the link was measured");
    let predicted = scene.call(&["predict", "p.json", "--workers=1..2"]);
    assert_eq!(predicted.code, Some(0), "{}", predicted.stderr);
    assert_eq!((cluster.queue(), scene.workers()), (vec![], vec![]));
    let left = std::fs::read_dir(scene.path("state/bellwether")).expect("it is there").count();
    assert_eq!(left, 0, "what it needed meanwhile is gone");
}

#[test]
fn a_profile_that_is_interrupted_while_it_waits_leaves_no_job() {
    let Some(cluster) = Cluster::find() else { return };
    let taken = cluster.submit(&["--partition=low", "--nodes=4", "--exclusive", "--wrap", "sleep 60"]);
    wait_for(|| "it runs".into(), || (cluster.queue()[0].1 == "RUNNING").then_some(()));
    let scene = Scene::new(&job(300, ""));
    let usual = ["profile", "job.toml", "--on=slurm", "--sbatch=--partition=low", "--output=p.json"];
    let profiled = cluster.start(&scene, &usual);
    wait_for(|| profiled.stderr(), || profiled.stderr().contains("waits in Slurm's queue").then_some(()));
    profiled.signal(Signal::INT);
    let ended = profiled.end();
    assert_ne!(ended.code, Some(0));
    assert!(!scene.path("p.json").exists());
    assert_eq!(cluster.queue().iter().map(|(job, ..)| *job).collect::<Vec<_>>(), [taken], "{}", ended.stderr);
    cluster.say("scancel", &[&taken.to_string()]);
}

#[test]
fn a_daemon_profiles_a_job_on_the_nodes_where_it_trains() {
    let Some(cluster) = Cluster::find() else { return };
    let scene = Scene::new(&job(600, ""));
    let slots = ["--on=slurm", "--partition=low", "--processors-per-slot=2", "--policy=fair"];
    let daemon = begin(&cluster, &scene, &slots);
    ask(&scene, &["submit", "job.toml", "--name=first", "--workers=1..4", "--profile-first"]);
    // Two slots, for the link between two workers.
    let on_nodes = || {
        let running = cluster.queue().iter().filter(|(_, state, _)| state == "RUNNING").count();
        (running == 2 && shown(&scene, "first")["why"].as_str() == Some("it is profiled first")).then_some(())
    };
    wait_for(|| format!("{}{}", shown(&scene, "first"), cluster.say("squeue", &[])), on_nodes);
    let ended = wait_for(
        || format!("{:?}", shown(&scene, "first")),
        || Some(shown(&scene, "first")).filter(|job| job["state"] == "finished"),
    );
    assert_eq!(ended["digest"].as_str(), Some(undisturbed(600).as_str()));
    let lines =
        std::fs::read_to_string(scene.path("state/bellwether/.serve/ledger.jsonl")).expect("a ledger");
    let is_profiled = |line: &&str| line.contains("\"profiled\"") && line.contains("\"workers\":4");
    assert!(
        lines.lines().any(|line| is_profiled(&line)),
        "rates of four workers follow from the link that was measured"
    );
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end().code, Some(0));
    assert_eq!((cluster.queue(), scene.workers()), (vec![], vec![]));
}
