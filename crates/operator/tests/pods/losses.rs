//! Coordinators that are lost with their folders, evicted, replaced, stopped: the run is the same as one that nothing
//! ever happened to.

use std::fs;
use std::time::{Duration, Instant};

use bellwether_core::record::{Event, RunOutcome};
use rustix::process::Signal;

use crate::cluster::{Cluster, bellwether, wait_for};

/// The job of `bellwether init`, for this many steps.
fn digits(steps: u64, more: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("job.toml");
    let made = std::process::Command::new(bellwether()).arg("init").arg(&file).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let text = fs::read_to_string(file).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with("epochs"));
    format!("steps = {steps}\n{}\n{more}\n", lines.collect::<Vec<_>>().join("\n"))
}

fn rolled_back(cluster: &Cluster) -> bool {
    cluster.events().iter().any(|event| matches!(event, Event::RolledBack { .. }))
}

#[test]
fn a_coordinator_and_its_folder_are_lost_and_no_step_is() {
    let cluster = Cluster::new(&digits(16_000, ""));
    let mut first = cluster.lead("pod-0", "127.0.1.1");
    let (one, two) = (cluster.worker(1), cluster.worker(2));
    cluster.reach(2, 100);
    let three = cluster.worker(3);
    cluster.reach(3, 200);
    // The copy lags: the command goes on, and what keeps the copy stands still.
    first.signal(Signal::STOP);
    let lost = cluster.run_in("pod-0");
    wait_for("steps of which the copy tells nothing", || {
        (lost.history().unwrap().committed() >= cluster.history().committed() + 50).then_some(())
    });
    first.kill();
    let killed = Instant::now();
    let committed = lost.history().unwrap().committed();
    let copied = cluster.history().committed();
    fs::remove_dir_all(&lost.path).unwrap();
    assert!(copied + 50 <= committed, "the copy lags: {copied} of {committed}");
    let second = cluster.lead("pod-1", "127.0.1.2");
    let next = cluster.run_in("pod-1");
    let further = wait_for("a further step", || {
        let history = next.history().ok()?;
        (history.committed() > committed).then(|| history.committed())
    });
    let took = killed.elapsed();
    eprintln!(
        "coordinator lost at step {committed}, the copy was at {copied}: step {further} {:.0} ms after the kill",
        1e3 * took.as_secs_f64()
    );
    // None of them is sent away, though three are more than a coordinator that begins asks for.
    let further = cluster.reach(3, further + 50);
    assert!(!rolled_back(&cluster), "{:?}", cluster.events());
    assert!(cluster.events().iter().any(|event| matches!(event, Event::Restored { .. })));
    three.signal(Signal::TERM);
    assert_eq!(three.code(), Some(0));
    cluster.reach(2, further);

    // It is evicted: the next one begins with all that it knew.
    second.signal(Signal::TERM);
    assert_eq!(second.code(), Some(143));
    let told = next.history().unwrap().committed();
    assert_eq!(cluster.history().committed(), told);
    fs::remove_dir_all(&next.path).unwrap();
    let third = cluster.lead("pod-2", "127.0.1.3");
    cluster.reach(2, told + 10);

    let four = cluster.worker(4);
    cluster.reach(3, told + 20);
    let ended = wait_for("the end", || cluster.history().ending);
    assert_eq!(ended.outcome, RunOutcome::Finished);
    wait_for("the last word", || third.last_word());
    let last = third.last_word().unwrap();
    assert_eq!((third.code(), one.code(), two.code(), four.code()), (Some(0), Some(0), Some(0), Some(0)));
    assert_eq!((last.outcome(), last.step, &last.digest), (RunOutcome::Finished, 16_000, &ended.digest));
    assert!(!rolled_back(&cluster));
    assert_eq!(ended.digest, Some(cluster.plain_digest()));
    cluster.audit();
}

#[test]
fn workers_leave_while_nothing_leads_and_the_one_that_stays_has_the_state() {
    let cluster = Cluster::new(&digits(12_000, ""));
    let four = [("BELLWETHER_WORKERS", "4..4")];
    cluster.appoint("pod-0", "127.0.1.1");
    let mut first = cluster.start("pod-0", "127.0.1.1", &["coordinator"], &four);
    let stays = cluster.worker(1);
    let leave = [cluster.worker(2), cluster.worker(3), cluster.worker(4)];
    cluster.reach(4, 100);
    first.kill();
    fs::remove_dir_all(cluster.run_in("pod-0").path).unwrap();
    cluster.appoint("pod-1", "127.0.1.2");
    let second = cluster.start("pod-1", "127.0.1.2", &["coordinator"], &four);
    leave.iter().for_each(|worker| worker.signal(Signal::TERM));
    let committed = cluster.history().committed();
    cluster.reach(1, committed + 50);
    assert!(!rolled_back(&cluster), "{:?}", cluster.events());
    wait_for("the end", || cluster.history().ending);
    assert_eq!((second.code(), stays.code()), (Some(0), Some(0)));
    assert_eq!(leave.map(|worker| worker.code()), [Some(0); 3]);
    assert_eq!(cluster.history().ending.unwrap().digest, Some(cluster.plain_digest()));
}

#[test]
fn the_only_worker_that_lives_is_one_that_the_copy_never_heard_of() {
    let cluster = Cluster::new(&digits(16_000, ""));
    let mut first = cluster.lead("pod-0", "127.0.1.1");
    let mut known = [cluster.worker(1), cluster.worker(2)];
    cluster.reach(2, 100);
    first.signal(Signal::STOP);
    let lost = cluster.run_in("pod-0");
    let unknown = cluster.worker(3);
    let committed = wait_for("a third worker", || {
        let history = lost.history().ok()?;
        (history.workers == 3).then(|| history.committed())
    });
    assert_eq!(cluster.history().workers, 2, "the copy knows nothing of it");
    first.kill();
    known.iter_mut().for_each(|worker| worker.kill());
    fs::remove_dir_all(&lost.path).unwrap();
    cluster.appoint("pod-1", "127.0.1.2");
    let reattach = [("BELLWETHER_REATTACH_S", "3")];
    let second = cluster.start("pod-1", "127.0.1.2", &["coordinator"], &reattach);
    // One that is new joins before: it must not be given the number of the one that holds the state.
    unknown.signal(Signal::STOP);
    let new = cluster.worker(4);
    wait_for("another worker", || {
        let is_new = |event: &Event| match event {
            Event::WorkerAttached { worker, held_step: None, .. } => *worker > 3,
            _ => false,
        };
        cluster.events().iter().any(is_new).then_some(())
    });
    unknown.signal(Signal::CONT);
    cluster.reach(2, committed + 100);
    assert!(!rolled_back(&cluster), "{:?}", cluster.events());
    let ended = wait_for("the end", || cluster.history().ending);
    assert_eq!((second.code(), unknown.code(), new.code()), (Some(0), Some(0), Some(0)));
    assert_eq!((ended.outcome, ended.digest), (RunOutcome::Finished, Some(cluster.plain_digest())));
    cluster.audit();
}

#[test]
fn a_stopped_run_goes_on_in_other_pods_also_without_a_copy() {
    let shelf = tempfile::tempdir().unwrap();
    let url = format!("url = \"{}\"", shelf.path().display());
    let cluster = Cluster::new(&digits(6_000, &url));
    let first = cluster.lead("pod-0", "127.0.1.1");
    let workers = [cluster.worker(1), cluster.worker(2)];
    let stopped = cluster.reach(2, 100);
    cluster.change_wish(|wish| wish.stop = true);
    let word = wait_for("a last word", || first.last_word());
    assert_eq!((first.code(), word.outcome()), (Some(0), RunOutcome::Stopped));
    assert!(word.step >= stopped && word.step < 6_000 && word.digest.is_some(), "{word:?}");
    workers.into_iter().for_each(|worker| assert_eq!(worker.code(), Some(0)));
    assert_eq!(cluster.history().ending.map(|ending| ending.step), Some(word.step), "the copy is whole");

    // In another pod, from the copy.
    cluster.change_wish(|wish| wish.stop = false);
    fs::remove_dir_all(&cluster.run_in("pod-0").path).unwrap();
    let second = cluster.lead("pod-1", "127.0.1.2");
    let workers = [cluster.worker(3), cluster.worker(4)];
    let further = wait_for("further steps", || {
        let committed = cluster.history().committed();
        (committed > word.step + 50).then_some(committed)
    });
    assert!(!rolled_back(&cluster));
    cluster.change_wish(|wish| wish.stop = true);
    let word = wait_for("a last word", || second.last_word());
    assert_eq!((second.code(), word.outcome()), (Some(0), RunOutcome::Stopped));
    assert!(word.step >= further);
    workers.into_iter().for_each(|worker| assert_eq!(worker.code(), Some(0)));

    // The operator has lost its folder, too: what is left is in the place for checkpoints.
    cluster.change_wish(|wish| wish.stop = false);
    let copy = cluster.copy();
    let job = cluster.path("job.json");
    fs::copy(copy.job_file(), &job).unwrap();
    fs::remove_dir_all(&copy.path).unwrap();
    fs::create_dir_all(&copy.path).unwrap();
    fs::copy(job, copy.job_file()).unwrap();
    let third = cluster.lead("pod-2", "127.0.1.3");
    let worker = cluster.worker(5);
    let ended = wait_for("the end", || cluster.history().ending);
    assert_eq!((third.code(), worker.code()), (Some(0), Some(0)));
    let first_step = cluster.events().iter().find_map(|event| match event {
        Event::Membership { step, .. } => Some(*step),
        _ => None,
    });
    assert_eq!(first_step, Some(word.step), "it began from the checkpoint");
    assert_eq!((ended.outcome, ended.step), (RunOutcome::Finished, 6_000));
    assert_eq!(ended.digest, Some(cluster.plain_digest()));
}

#[test]
fn another_pod_leads_and_the_old_one_ends() {
    let cluster = Cluster::new(&digits(200_000, ""));
    let first = cluster.lead("pod-0", "127.0.1.1");
    let worker = cluster.worker(1);
    cluster.reach(1, 50);
    let second = cluster.lead("pod-1", "127.0.1.2");
    assert_eq!(first.code(), Some(143));
    let begun = cluster.history().committed();
    cluster.reach(1, begun + 100);
    assert!(!rolled_back(&cluster));
    // What happens while the operator is away is heard of later.
    cluster.change_wish(|wish| wish.stop = true);
    let word = wait_for("a last word", || second.last_word());
    assert_eq!((second.code(), worker.code(), word.outcome()), (Some(0), Some(0), RunOutcome::Stopped));
    cluster.audit();
}

#[test]
fn a_run_that_has_finished_is_not_led_again() {
    let cluster = Cluster::new(&digits(100, ""));
    let first = cluster.lead("pod-0", "127.0.1.1");
    let worker = cluster.worker(1);
    let word = wait_for("a last word", || first.last_word());
    assert_eq!((first.code(), worker.code(), word.step), (Some(0), Some(0), 100));
    // The operator has not heard of its end, and begins another pod.
    let began = Instant::now();
    let second = cluster.lead("pod-1", "127.0.1.2");
    let again = wait_for("a last word", || second.last_word());
    assert_eq!((second.code(), again), (Some(0), word));
    assert!(began.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_run_that_fails_says_why() {
    let cluster = Cluster::new(&digits(5_000, "").replace("learning_rate = 0.003", "learning_rate = 1e30"));
    let coordinator = cluster.lead("pod-0", "127.0.1.1");
    let worker = cluster.worker(1);
    let word = wait_for("a last word", || coordinator.last_word());
    assert_eq!(coordinator.code(), Some(1));
    assert!(matches!(word.outcome(), RunOutcome::Failed(_)) && !word.why.is_empty(), "{word:?}");
    drop(worker);
}
