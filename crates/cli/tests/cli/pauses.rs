//! The coordinator stands still, or has no reader for its lines; sessions break: the processes that live go on.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Stdio;
use std::time::Duration;

use bellwether_core::prediction::Protocol;
use bellwether_core::record::Event;
use rustix::net::{Shutdown, SocketAddrAny, SocketAddrUnix, getpeername, shutdown};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal, pidfd_getfd, pidfd_open};

use crate::harness::{Scene, is_alive, signal, wait_for};
use crate::jobs::{self, Recipe};

/// Silence that is too long, and a pause that is longer.
const TIMEOUT: [&str; 2] = ["--heartbeat-timeout", "2s"];
const PAUSE: Duration = Duration::from_secs(4);

/// No network, and some seconds of steps.
fn brief() -> Recipe {
    jobs::patient().steps(400)
}

/// All processes that ever attached, workers and servers.
fn ever(scene: &Scene) -> Vec<u32> {
    let mut ever = scene.picked(|event| match event {
        Event::WorkerAttached { process, .. } | Event::ServerAttached { process, .. } => Some(*process),
        _ => None,
    });
    ever.sort_unstable();
    ever.dedup();
    ever
}

fn losses(scene: &Scene) -> Vec<Event> {
    scene.picked(|event| {
        let lost =
            matches!(event, Event::Crashed { .. } | Event::ServerCrashed { .. } | Event::RolledBack { .. });
        lost.then(|| event.clone())
    })
}

/// Stops the coordinator, or all of the run, for longer than any silence may last.
fn stand_still(sets: &[&str], everyone: bool) {
    let recipe = brief();
    let scene = recipe.scene();
    let sets = sets.iter().flat_map(|set| ["--set", set]);
    let mut run = scene.train(&["--workers", "2"].into_iter().chain(TIMEOUT).chain(sets).collect::<Vec<_>>());
    assert!(run.reach(20));
    let before = ever(&scene);
    let stopped: Vec<u32> =
        [run.process()].into_iter().chain(before.iter().copied().filter(|_| everyone)).collect();
    stopped.iter().for_each(|process| signal(*process, Signal::STOP));
    std::thread::sleep(PAUSE);
    stopped.iter().for_each(|process| signal(*process, Signal::CONT));
    let summary = run.summary();
    assert_eq!((summary.outcome.word(), summary.steps), ("finished", 400), "{summary:?}");
    assert_eq!(losses(&scene), [], "no worker was away");
    assert_eq!(ever(&scene), before, "the same processes do it all");
    if !summary.phases.iter().any(|phase| phase.protocol == Protocol::Asp) {
        assert_eq!(summary.params_digest, Some(recipe.digest()), "{summary:?}");
    }
    scene.audit();
}

#[test]
fn a_coordinator_that_stands_still_charges_no_worker() {
    stand_still(&[], false);
}

#[test]
fn a_machine_that_stands_still_charges_no_worker() {
    stand_still(&[], true);
}

#[test]
fn a_coordinator_that_stands_still_charges_no_server() {
    stand_still(&["sync.reduce=\"servers\""], false);
    stand_still(&["sync.policy=\"asp\""], true);
}

/// Breaks what a process has open to this address, as an administrator's `ss -K` would.
fn break_connections(process: u32, to: SocketAddr) -> usize {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw).expect("a process number");
    let handle = pidfd_open(pid, PidfdFlags::empty()).expect("the process lives");
    let open = std::fs::read_dir(format!("/proc/{process}/fd")).expect("it is ours").flatten();
    let numbers = open.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let copies: Vec<OwnedFd> = numbers
        .filter_map(|number| pidfd_getfd(handle.as_fd(), number, PidfdGetfdFlags::empty()).ok())
        .collect();
    assert!(!copies.is_empty(), "this system does not let a test share its grandchildren's descriptors");
    let leads_there = |socket: &&OwnedFd| match getpeername(socket) {
        Ok(Some(address)) => is_control(&address, to),
        _ => false,
    };
    copies.iter().filter(leads_there).filter(|socket| shutdown(socket, Shutdown::Both).is_ok()).count()
}

fn is_control(address: &SocketAddrAny, to: SocketAddr) -> bool {
    // The short way between processes of one machine bears the name of the address.
    let beside = SocketAddrUnix::try_from(address.clone());
    let beside = beside
        .is_ok_and(|unix| unix.path_bytes().is_some_and(|path| path.ends_with(format!("/{to}").as_bytes())));
    beside || SocketAddr::try_from(address.clone()).is_ok_and(|address| address == to)
}

/// The sessions of some workers break while they train; all of them finish, and no worker takes their place.
fn sessions_break(workers: &str, broken: usize) {
    let recipe = brief();
    let scene = recipe.scene();
    let mut run = scene.train(&["--workers", workers]);
    assert!(run.reach(20));
    let (before, control) = (ever(&scene), scene.endpoint().control);
    for process in &before[..broken] {
        assert!(break_connections(*process, control) > 0, "worker {process} has no session");
    }
    run.until("workers that come back", |event| match event {
        Event::WorkerAttached { held_step: Some(_), .. } => Some(()),
        _ => None,
    });
    // Longer than a process has that was told to go.
    std::thread::sleep(Duration::from_millis(2500));
    assert!(before.iter().all(|process| is_alive(*process)), "who came back is not killed");
    let summary = run.summary();
    assert_eq!(summary.params_digest, Some(recipe.digest()), "{summary:?}");
    let rolled_back = scene.picked(|event| matches!(event, Event::RolledBack { .. }).then_some(()));
    assert_eq!(
        (rolled_back.len(), summary.workers.last().copied()),
        (0, workers.parse().ok()),
        "{summary:?}"
    );
    scene.audit();
}

#[test]
fn workers_whose_sessions_all_break_keep_the_state_and_their_lives() {
    sessions_break("2", 2);
}

#[test]
fn a_worker_whose_session_breaks_comes_back() {
    sessions_break("3", 1);
}

#[test]
fn a_terminal_that_takes_no_line_does_not_hold_up_the_run() {
    let recipe = brief();
    let scene = recipe.scene();
    let (read, write) = rustix::pipe::pipe().expect("a pipe");
    // There is no reader, and no room.
    rustix::io::ioctl_fionbio(&write, true).expect("a pipe can be told not to wait");
    let mut full = std::fs::File::from(write.try_clone().expect("a descriptor"));
    while full.write(&[b'x'; 4096]).is_ok() {}
    while full.write(b"x").is_ok() {}
    rustix::io::ioctl_fionbio(&write, false).expect("a pipe can be told to wait");
    drop(full);
    let mut command = scene.command(&["run", "job.toml", "--workers", "2", "--format", "json"]);
    let mut child =
        command.stdout(Stdio::null()).stderr(Stdio::from(write)).spawn().expect("the program can be started");
    drop(command);
    wait_for(
        || format!("an end of {:?}", scene.events()),
        || scene.events().iter().any(|event| matches!(event, Event::Ended { .. })).then_some(()),
    );
    assert_eq!(losses(&scene), []);
    let mut said = Vec::new();
    std::fs::File::from(read).read_to_end(&mut said).expect("a pipe can be read");
    assert!(child.wait().expect("a child can be waited for").success());
    assert!(String::from_utf8_lossy(&said).contains("worker"), "what waited is shown in the end");
}

#[test]
fn another_process_with_a_workers_number_is_refused() {
    let recipe = brief();
    let scene = recipe.scene();
    let mut run = scene.train(&["--workers", "2"]);
    assert!(run.reach(20));
    let before = ever(&scene);
    let (address, token) = (scene.endpoint().control.to_string(), scene.run_folder().join("token"));
    let token = token.display().to_string();
    let second = scene.call(&["worker", "--join", &address, "--token-file", &token, "--worker-id", "1"]);
    second.refused_with(&["number 1 is taken by another process", "without a number"]);
    let summary = run.summary();
    assert_eq!(summary.params_digest, Some(recipe.digest()), "{summary:?}");
    assert_eq!((ever(&scene), losses(&scene)), (before, Vec::new()), "the first one never noticed");
}

#[test]
fn a_worker_of_an_earlier_coordinator_that_stands_still_does_not_outlive_the_run() {
    let recipe = brief();
    let scene = recipe.scene();
    let mut run = scene.train(&["--workers", "2"]);
    assert!(run.reach(20));
    run.kill();
    let (_, still) = scene.workers()[0];
    signal(still, Signal::STOP);
    let summary = scene.resume(&["--grace", "500ms"]).summary();
    assert_eq!(summary.params_digest, Some(recipe.digest()), "{summary:?}");
    wait_for(|| format!("an end of {still}"), || (!is_alive(still)).then_some(()));
    scene.audit();
}
