//! Jobs that end early, and those that a limit of their own stops.

use std::path::Path;

use bellwether_core::cluster::JobId;
use bellwether_core::job::StopLimit;
use bellwether_core::knowledge::Knowledge;
use bellwether_core::record::{EarlyEnd, RunOutcome};
use bellwether_serve::clock::SystemClock;
use bellwether_serve::engine::Options;
use bellwether_serve::ledger::{FileStore, read};
use bellwether_serve::request::{Request, Submission};
use bellwether_serve::runner::Report;
use bellwether_serve::snapshot::Phase;
use bellwether_serve::state::State;

use crate::engine::{Daemon, options, submission};

fn state(folder: &Path) -> State {
    let mut state = None;
    read(&folder.join("ledger.jsonl"), |line| State::fold(&mut state, &line)).unwrap();
    state.unwrap()
}

fn daemon(folder: &Path, policy: Option<&str>, remaining: Option<Knowledge>) -> Daemon {
    let options = Options { remaining, ..options(folder, policy, 1) };
    let store = Box::new(FileStore::new(options.ledger.clone()));
    Daemon::start_as(options, SystemClock::new().unwrap(), store)
}

/// A job trained and ended after `step` of its 100 steps.
fn ends(daemon: &Daemon, job: u32, step: u64) {
    daemon.until("it starts", |d| d.wanted(job) == Some(1));
    daemon.trains(job, 1);
    let ended_early = (step < 100).then(|| EarlyEnd { step, reason: "it is good enough".into() });
    let (job, outcome) = (JobId(job), RunOutcome::Finished);
    daemon.report(Report::Ended {
        job,
        outcome,
        ended_early,
        step,
        digest: None,
        unix_s: 0.0,
        limit: None,
        by: None,
    });
}

fn remaining(state: &State, name: &str) -> f64 {
    state.view.jobs[&state.names[name]].remaining.unwrap()
}

#[test]
fn policies_hear_of_the_work_that_is_to_be_expected() {
    let folder = tempfile::tempdir().unwrap();
    let daemon_1 = daemon(folder.path(), Some("fifo"), None);
    for name in ["a", "b", "c", "d"] {
        daemon_1.submit(name, "1").unwrap();
    }
    let promised = Submission { deadline_s: Some(1e6), ..submission("e", "1") };
    daemon_1.ask(Request::Submit(Box::new(promised))).unwrap();
    ends(&daemon_1, 0, 20);
    ends(&daemon_1, 1, 20);
    daemon_1.until("two have ended", |d| d.job("b").state == Phase::Finished && d.wanted(2) == Some(1));
    daemon_1.stop();
    let whole = 800.0;
    let known = state(folder.path());
    // Two of three, one of them assumed, end after a fifth: 2/3 · 0.2 + 1/3 · 1.
    let expected = whole * (0.2 * 2.0 / 3.0 + 1.0 / 3.0);
    assert!((remaining(&known, "d") - expected).abs() < 1e-6, "{}", remaining(&known, "d"));
    assert_eq!(remaining(&known, "e"), whole, "what a deadline promises is planned for all of the work");
    // The same follows from the compacted ledger, and a daemon may be told to plan with all of the work.
    let compacted = known.compacted().unwrap();
    std::fs::write(folder.path().join("ledger.jsonl"), compacted).unwrap();
    assert!((remaining(&state(folder.path()), "d") - expected).abs() < 1e-6);
    daemon(folder.path(), None, Some(Knowledge::Nominal)).stop();
    assert_eq!(remaining(&state(folder.path()), "d"), whole);
    // The next one goes on as this one did.
    daemon(folder.path(), None, None).stop();
    assert_eq!(remaining(&state(folder.path()), "d"), whole);
}

#[test]
fn a_job_whose_limit_is_reached_waits_for_its_user() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), Some("fifo"), 1);
    daemon.submit("a", "1").unwrap();
    daemon.until("it starts", |d| d.wanted(0) == Some(1));
    daemon.trains(0, 1);
    let (job, outcome, limit) = (JobId(0), RunOutcome::Stopped, Some(StopLimit::Time));
    daemon.report(Report::Ended {
        job,
        outcome,
        ended_early: None,
        step: 5,
        digest: None,
        unix_s: 7.0,
        limit,
        by: None,
    });
    daemon.until("it is suspended", |d| d.job("a").state == Phase::Suspended);
    assert_eq!(daemon.job("a").why, "suspended by the limit of time (stop.time)");
    daemon.ask(Request::Resume { job: "a".into() }).unwrap();
    daemon.until("it goes on", |d| d.wanted(0) == Some(1) && d.job("a").state != Phase::Suspended);
    daemon.stop();
}
