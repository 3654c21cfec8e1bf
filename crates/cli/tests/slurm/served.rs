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
