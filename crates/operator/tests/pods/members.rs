//! How pods of workers and servers start their processes.

use std::fs;

use rustix::process::Signal;

use crate::cluster::{Cluster, wait_for};

/// A command that prints what it was started with, and ends when it is asked to.
fn spy(cluster: &Cluster) -> String {
    let path = cluster.path("spy");
    let script = "#!/bin/sh\necho \"$@\" \"$EXTRA\"\ntrap 'exit 9' TERM\nwhile :; do sleep 0.05; done\n";
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    path.display().to_string()
}

const JOB: &str = "name = \"job\"\nsteps = 10\n[model]\nkind = \"mlp\"\nhidden = [4]\n[data]\nkind = \"digits\"\n\
                   [batch]\nsize = 8\nvirtual_nodes = 4\n[optimizer]\nkind = \"sgd\"\nlearning_rate = 0.1\n";

fn python(script: &str) -> String {
    JOB.replace("kind = \"mlp\"\nhidden = [4]", script)
        .replace("kind = \"digits\"", "kind = \"python\"\ntraining_samples = 64")
}

#[test]
fn a_server_waits_for_its_coordinator_and_passes_signals_on() {
    let cluster = Cluster::new(JOB);
    let server =
        cluster.start("server-0", "127.0.0.31", &["server"], &[("BELLWETHER_COMMAND", &spy(&cluster))]);
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(server.printed("out"), "", "it is not known where the coordinator is");
    let coordinator = cluster.lead("pod-0", "127.0.1.1");
    let words = wait_for("a server", || Some(server.printed("out")).filter(|printed| !printed.is_empty()));
    assert!(words.starts_with("server --ticket ") && words.contains(" --listen=127.0.0.31:0"), "{words}");
    // It moves: the ticket says so.
    let ticket = cluster.path("pods/server-0/coordinator.json");
    let told = |address: &str| fs::read_to_string(&ticket).unwrap_or_default().contains(address);
    assert!(told("127.0.1.1:"));
    cluster.change_wish(|wish| wish.coordinator = Some("127.0.1.2:7".parse().unwrap()));
    wait_for("a ticket", || told("127.0.1.2:7").then_some(()));
    server.signal(Signal::TERM);
    assert_eq!(server.code(), Some(9));
    drop(coordinator);
}

#[test]
fn a_pod_with_slots_has_a_worker_of_the_script_in_each() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("train.py");
    fs::write(&script, "").unwrap();
    let model = format!(
        "kind = \"python\"\nscript = \"{}\"\narguments = [\"--deep\"]\npython = \"/usr/bin/env\"\n\
         environment = {{ EXTRA = \"more\" }}",
        script.display()
    );
    let cluster = Cluster::new(JOB);
    let coordinator = cluster.lead("pod-0", "127.0.1.1");
    wait_for("a journal", || cluster.history().process);
    cluster.tell(&cluster.checked(&python(&model)));
    let more =
        [("BELLWETHER_COMMAND", &*spy(&cluster)), ("BELLWETHER_SLOTS", "2"), ("BELLWETHER_ORPHAN_S", "90")];
    let worker = cluster.start("worker-0", "127.0.0.32", &["worker"], &more);
    let printed = wait_for("two workers", || {
        Some(worker.printed("out")).filter(|printed| printed.lines().count() == 2)
    });
    let end = format!("--orphan-timeout=90s -- /usr/bin/env {} --deep more", script.display());
    assert!(
        printed.lines().all(|line| line.starts_with("worker --ticket ") && line.ends_with(&end)),
        "{printed}"
    );
    worker.signal(Signal::TERM);
    assert_eq!(worker.code(), Some(9));
    drop(coordinator);
}

#[test]
fn a_worker_that_is_not_needed_before_it_began_ends() {
    let cluster = Cluster::new(JOB);
    let worker =
        cluster.start("worker-0", "127.0.0.33", &["worker"], &[("BELLWETHER_COMMAND", &spy(&cluster))]);
    wait_for("a question", || (cluster.desk.counts().polls > 0).then_some(()));
    worker.signal(Signal::TERM);
    assert_eq!(worker.code(), Some(143));
}

#[test]
fn programs_are_installed() {
    let cluster = Cluster::new(JOB);
    let tools = cluster.path("tools");
    let pod = cluster.start("install", "127.0.0.34", &["install", &tools.display().to_string()], &[]);
    assert_eq!(pod.code(), Some(0));
    for program in ["bellwether", "bellwether-operator"] {
        let version = std::process::Command::new(tools.join(program)).arg("--help").output().unwrap();
        assert!(version.status.success(), "{program}");
    }
}
