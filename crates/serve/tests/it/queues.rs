//! Queues that divide a daemon's slots.

use std::collections::BTreeMap;
use std::path::Path;

use bellwether_core::cluster::JobId;
use bellwether_core::parse;
use bellwether_core::queue::QueuesFile;
use bellwether_model::observed::Observed;
use bellwether_serve::belief::Belief;
use bellwether_serve::clock::SystemClock;
use bellwether_serve::engine::Options;
use bellwether_serve::ledger::{self, FileStore};
use bellwether_serve::replay;
use bellwether_serve::request::{RefusalKind, Request, Submission};
use bellwether_serve::snapshot::Phase;
use bellwether_serve::state::State;

use crate::engine::{Daemon, options, submission};

fn queues(text: &str) -> QueuesFile {
    parse::document(text, "test").expect("a file of queues")
}

const HALVES: &str =
    "[[queues]]\nname = \"a\"\nguarantee = \"50%\"\n[[queues]]\nname = \"b\"\nguarantee = \"50%\"\n";

fn start(folder: &Path, policy: Option<&str>, divided: Option<&str>) -> Daemon {
    let options = Options { queues: divided.map(queues), ..options(folder, policy, 4) };
    let store = Box::new(FileStore::new(folder.join("ledger.jsonl")));
    Daemon::start_as(options, SystemClock::new().expect("the system gives what is needed"), store)
}

fn submit(
    daemon: &Daemon,
    name: &str,
    workers: &str,
    queue: Option<&str>,
) -> Result<(), (RefusalKind, String)> {
    let queue = queue.map(Into::into);
    let request = Request::Submit(Box::new(Submission { queue, ..submission(name, workers) }));
    daemon.ask(request).map(drop).map_err(|refusal| (refusal.kind, refusal.error.to_string()))
}

fn divide(daemon: &Daemon, text: Option<&str>) -> Result<(), String> {
    let request = Request::Divide { queues: text.map(queues), by: "an operator".into() };
    daemon.ask(request).map(drop).map_err(|refusal| refusal.error.to_string())
}

/// Whether every decision in a daemon's ledger is the one that fresh policies make.
fn is_repeatable(folder: &Path) {
    let registry = bellwether_sched::registry::Registry::built_in();
    let (_, compared) =
        replay::read(&folder.join("ledger.jsonl"), Some(&registry)).unwrap().expect("a ledger");
    let compared = compared.expect("it was asked for");
    assert!(compared.all > 0 && compared.same == compared.all, "{compared:?}");
}

#[test]
fn a_queue_lends_what_it_does_not_use_and_has_it_back_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = start(folder.path(), Some("fair"), Some(HALVES));
    submit(&daemon, "first", "1..4", Some("a")).unwrap();
    daemon.until("it borrows what is free", |d| d.wanted(0) == Some(4));
    daemon.trains(0, 4);
    submit(&daemon, "second", "1..4", Some("b")).unwrap();
    daemon.until("it gives back what was lent", |d| d.wanted(0) == Some(2));
    daemon.trains(0, 2);
    daemon.until("the other one has its half", |d| d.wanted(1) == Some(2));
    daemon.trains(1, 2);
    daemon.until("clients see it", |d| d.job("second").state == Phase::Running);
    let cluster = daemon.cluster();
    let held: Vec<(&str, u32, u32)> = cluster
        .queues
        .iter()
        .map(|queue| (queue.name.as_str(), queue.slots[0].guaranteed, queue.slots[0].held))
        .collect();
    assert_eq!(held, [("a", 2, 2), ("b", 2, 2), ("default", 0, 0)]);
    assert_eq!(cluster.queues[0].jobs[&Phase::Running], 1);
    assert_eq!(daemon.job("first").queue.as_deref(), Some("a"));
    daemon.finish(1);
    daemon.until("it borrows again", |d| d.wanted(0) == Some(4));
    daemon.trains(0, 4);
    daemon.stop();
    is_repeatable(folder.path());
}

#[test]
fn a_daemon_that_comes_back_has_its_queues_and_knows_who_had_much() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = start(folder.path(), Some("fifo"), Some(HALVES));
    submit(&daemon, "first", "1..4", Some("a")).unwrap();
    daemon.until("it runs", |d| d.wanted(0) == Some(4));
    daemon.trains(0, 4);
    std::thread::sleep(std::time::Duration::from_millis(30));
    submit(&daemon, "second", "4", None).unwrap();
    daemon.until("what it had is counted", |d| d.cluster().queues[0].recent_slot_s > 0.0);
    daemon.stop();
    let again = start(folder.path(), None, None);
    let before = again.cluster().queues[0].recent_slot_s;
    assert!(before > 0.0);
    assert_eq!(again.job("first").queue.as_deref(), Some("a"));
    assert_eq!(again.job("second").queue.as_deref(), Some("default"));
    // Another division of the same names keeps it; where nothing divides the slots, no job has a queue.
    divide(&again, Some("[[queues]]\nname = \"c\"\n[[queues]]\nname = \"a\"\n")).unwrap();
    assert!(again.cluster().queues.iter().any(|queue| queue.name == "a" && queue.recent_slot_s >= before));
    divide(&again, None).unwrap();
    again.until("clients see it", |d| d.cluster().queues.is_empty() && d.job("first").queue.is_none());
    again.stop();
    is_repeatable(folder.path());
}

#[test]
fn what_could_never_run_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = start(folder.path(), Some("fifo"), None);
    let (kind, error) = submit(&daemon, "x", "1", Some("a")).unwrap_err();
    assert!(kind == RefusalKind::Invalid && error.contains("bellwether queues"), "{error}");
    submit(&daemon, "wide", "3..4", None).unwrap();
    // A job that has not ended has a place in every division.
    let narrow = "[[queues]]\nname = \"default\"\nlimit = 2\n";
    let error = divide(&daemon, Some(narrow)).unwrap_err();
    assert!(error.contains("`wide`") && error.contains("needs 3 slots"), "{error}");
    assert!(divide(&daemon, Some("[[queues]]\nname = \"a\"\nguarantee = 5\n")).is_err());
    divide(&daemon, Some("[[queues]]\nname = \"a\"\nlimit = \"50%\"\n[[queues]]\nname = \"a/b\"\n")).unwrap();
    let (_, error) = submit(&daemon, "x", "1", Some("a/c")).unwrap_err();
    assert!(error.contains("did you mean `a/b`?"), "{error}");
    assert!(submit(&daemon, "x", "1", Some("a")).is_err(), "it has a queue below it");
    let (_, error) = submit(&daemon, "x", "3..4", Some("a/b")).unwrap_err();
    assert!(error.contains("may hold 2"), "{error}");
    submit(&daemon, "x", "2..4", Some("a/b")).unwrap();
    let limits = |min| Request::Limit {
        job: "x".into(),
        workers: Some(bellwether_core::job::WorkerRange { min, max: 4 }),
        weight: None,
    };
    assert!(daemon.ask(limits(3)).is_err());
    daemon.ask(limits(1)).unwrap();
    let error = divide(&daemon, Some("[[queues]]\nname = \"c\"\n")).unwrap_err();
    assert!(error.contains("`x`") && error.contains("a/b"), "{error}");
    daemon.stop();
}

#[test]
fn a_job_of_which_nothing_is_known_within_its_queues_limit_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let limited = "[[queues]]\nname = \"a\"\nlimit = 2\n[[queues]]\nname = \"b\"\nguarantee = \"100%\"\n";
    let daemon = start(folder.path(), Some("fifo"), Some(limited));
    submit(&daemon, "other", "4", Some("b")).unwrap();
    daemon.until("it has all slots", |d| d.wanted(0) == Some(4));
    submit(&daemon, "wide", "1..4", Some("a")).unwrap();
    daemon.stop();
    let mut state = None;
    let fold = |line| State::fold(&mut state, &line).map_err(|error| error.to_string());
    ledger::read(&folder.path().join("ledger.jsonl"), fold).unwrap();
    let mut state = state.unwrap();
    let wide = state.view.jobs[&JobId(1)].clone();
    assert_eq!(state.waiting().why(&wide), "it needs 1 slot, and none is free");
    state.belief = Belief::new(Observed::new(BTreeMap::new()), 1.0);
    let why = "its queue `a` may hold 2 slots, and nothing is known of its speed on that number or fewer";
    assert_eq!(state.waiting().why(&wide), why);
}
