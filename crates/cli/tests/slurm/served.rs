//! A daemon that deals out the nodes of a partition.

use std::time::Duration;

use serde_json::Value;

use crate::cluster::Cluster;
use crate::harness::{Scene, wait_for};
use crate::jobs::{job, undisturbed};

/// What a verb of the daemon's clients answers.
pub(crate) fn ask(scene: &Scene, arguments: &[&str]) -> Value {
    let ended = scene.call(&[arguments, &["--format=json"]].concat());
    assert_eq!(ended.code, Some(0), "{arguments:?}: {ended:?}");
    serde_json::from_str(&ended.stdout).expect("an answer is JSON")
}

pub(crate) fn shown(scene: &Scene, job: &str) -> Value {
    ask(scene, &["show", job])
}

pub(crate) fn begin<'s>(cluster: &Cluster, scene: &'s Scene, more: &[&str]) -> crate::harness::Live<'s> {
    let daemon = cluster.start(scene, &[&["serve", "--format=json"], more].concat());
    wait_for(|| daemon.stderr(), || daemon.stdout().contains("\"process\"").then_some(()));
    daemon
}

#[test]
fn a_daemon_deals_out_the_nodes_of_a_partition() {
    let Some(cluster) = Cluster::find() else { return };
    let scene = Scene::new(&job(1500, ""));
    let slots = ["--on=slurm", "--partition=low", "--processors-per-slot=2", "--policy=fair"];
    let daemon = begin(&cluster, &scene, &slots);
    assert!(daemon.stdout().contains("\"slots\":8"), "{}", daemon.stdout());
    let names: Vec<String> = (1..=3)
        .map(|number| {
            let name = format!("job-{number}");
            ask(&scene, &["submit", "job.toml", "--name", &name, "--workers=1..4"]);
            name
        })
        .collect();
    // Each is where the policy put it, and nowhere more than there is room.
    let nodes = || {
        let on = cluster.say("squeue", &["-h", "-t", "RUNNING", "-o", "%N"]);
        let mut nodes: Vec<String> = on.lines().map(|node| node.trim().to_owned()).collect();
        nodes.sort_unstable();
        nodes
    };
    let full = ["n1", "n1", "n2", "n2", "n3", "n3", "n4", "n4"];
    wait_for(|| cluster.say("squeue", &[]), || (nodes() == full).then_some(()));
    // One node goes: those on it find others, or wait.
    cluster.say("scontrol", &["update", "nodename=n2", "state=drain", "reason=disk"]);
    let is_empty = || !cluster.say("squeue", &["-h", "-o", "%N"]).lines().any(|node| node.trim() == "n2");
    wait_for(|| cluster.say("squeue", &[]), || is_empty().then_some(()));
    // The daemon dies, and the next one takes over what goes on.
    daemon.kill();
    let daemon = begin(&cluster, &scene, &[]);
    cluster.say("scontrol", &["update", "nodename=n2", "state=resume"]);
    let digest = undisturbed(1500);
    for name in &names {
        let ended = wait_for(
            || format!("{:?}", shown(&scene, name)),
            || Some(shown(&scene, name)).filter(|job| job["state"] == "finished"),
        );
        assert_eq!((&ended["failures"], ended["digest"].as_str()), (&Value::from(0), Some(digest.as_str())));
        let audit = scene.call(&["audit", name]);
        assert_eq!(audit.code, Some(0), "{audit:?}");
    }
    wait_for(|| cluster.say("squeue", &[]), || cluster.queue().is_empty().then_some(()));
    daemon.signal(rustix::process::Signal::TERM);
    assert_eq!(daemon.end().code, Some(0));
    std::thread::sleep(Duration::from_millis(10));
    assert_eq!(scene.workers(), []);
}

/// Slots that the daemon has, and how many of them others hold.
fn slots(scene: &Scene) -> (u32, u32) {
    let first = scene.call(&["jobs"]).stdout.lines().next().unwrap_or_default().to_owned();
    let before = |words: &str| first.split(words).next()?.split_whitespace().next_back()?.parse().ok();
    let taken = if first.contains("held by") { before(" held by").unwrap_or(u32::MAX) } else { 0 };
    (before(" slots").unwrap_or(0), taken)
}

#[test]
#[ignore = "takes a minute: the daemon looks at the nodes every five seconds, and believes what it saw twice"]
fn a_daemon_follows_its_partition_and_gives_nothing_that_others_hold() {
    let Some(cluster) = Cluster::find() else { return };
    cluster.say("scontrol", &["update", "partitionname=low", "nodes=n[1-2]"]);
    let scene = Scene::new(&job(2500, ""));
    let served = ["--on=slurm", "--partition=low", "--processors-per-slot=2", "--policy=fair"];
    let daemon = begin(&cluster, &scene, &served);
    assert_eq!(slots(&scene), (4, 0));
    // Somebody else takes half a node: its other half is dealt out, and no worker waits for it in Slurm's queue.
    let other = cluster.submit(&["--partition=low", "--nodelist=n1", "--ntasks=2", "--wrap", "sleep 300"]);
    wait_for(|| format!("{:?}", slots(&scene)), || (slots(&scene) == (4, 1)).then_some(()));
    ask(&scene, &["submit", "job.toml", "--name=job-1", "--workers=1..4"]);
    let workers = || shown(&scene, "job-1")["workers"].as_u64();
    let with = |count: u64| {
        wait_for(|| format!("{:?}", shown(&scene, "job-1")), || (workers() == Some(count)).then_some(()));
    };
    with(3);
    assert!(cluster.queue().iter().all(|(_, state, _)| state == "RUNNING"), "{:?}", cluster.queue());
    // Two nodes join, and the job may have the worker that it could not have.
    cluster.say("scontrol", &["update", "partitionname=low", "nodes=n[1-4]"]);
    wait_for(|| format!("{:?}", slots(&scene)), || (slots(&scene) == (8, 1)).then_some(()));
    with(4);
    // The next daemon knows all of them.
    daemon.kill();
    let daemon = begin(&cluster, &scene, &served);
    assert_eq!(slots(&scene), (8, 1));
    cluster.say("scancel", &[&other.to_string()]);
    wait_for(|| format!("{:?}", slots(&scene)), || (slots(&scene) == (8, 0)).then_some(()));
    let ended = wait_for(
        || format!("{:?}", shown(&scene, "job-1")),
        || Some(shown(&scene, "job-1")).filter(|job| job["state"] == "finished"),
    );
    assert_eq!(ended["digest"].as_str(), Some(undisturbed(2500).as_str()));
    daemon.signal(rustix::process::Signal::TERM);
    assert_eq!(daemon.end().code, Some(0));
}
