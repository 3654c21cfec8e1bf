//! Jobs with machines of their own: they take no slots, begin at once, and give back what they hold.

use bellwether_core::plan::Plan;
use bellwether_core::record::{RunFailure, RunOutcome};
use bellwether_serve::provision::Provision;
use bellwether_serve::request::{Reply, Request, Submission};
use bellwether_serve::runner::Report;
use bellwether_serve::snapshot::Phase;
use bellwether_session::machines::ProviderKind;
use serde_json::json;

use crate::engine::{Daemon, submission};

/// A plan of this number of machines.
fn plan(machines: u32) -> Box<Plan> {
    let group = json!({
        "machine": "box", "count": machines, "device": "cpu", "devices": 1, "market": "on_demand",
        "dollars_per_hour": 1.0,
    });
    let candidate = json!({
        "machines": [group], "workers": machines, "examples_per_s": 10.0, "time_s": 80.0, "p95_time_s": 80.0,
        "cost_dollars": 0.1, "p95_cost_dollars": 0.1, "meets_deadline": 1.0, "losses": 0.0, "runs": 0,
    });
    let kind = json!({
        "machine": "box", "device": "cpu", "devices": 1, "on_demand": 1.0, "provision_s": 0.0, "join_s": 0.0,
        "limit": 8, "examples_per_s": [5.0, 10.0, 15.0, 20.0], "obtain": {},
    });
    let text = json!({
        "version": 1, "job": "test", "samples": 800.0, "choice": 0, "reason": "the only one",
        "wishes": { "deadline_s": 3600.0, "confidence": 0.95, "transient": false, "max_workers": 4 },
        "candidates": [candidate], "searched": 1, "simulated": 0,
        "basis": {
            "batch": 8, "virtual_nodes": 8, "checkpoint_s": 0.1, "fixed_dollars_per_hour": 0.0, "kinds": [kind],
        },
    });
    Box::new(Plan::read(&text.to_string(), "plan").expect("a plan"))
}

/// Three machines of a provider.
pub(crate) fn provision(provider: &str) -> Option<Provision> {
    Some(Provision { provider: provider.into(), plan: plan(3), listen: None })
}

fn elsewhere(name: &str) -> Submission {
    Submission { workers: None, provision: provision("here"), ..submission(name, "1") }
}

fn submit(daemon: &Daemon, submission: Submission) {
    let reply = daemon.ask(Request::Submit(Box::new(submission))).expect("it is accepted");
    assert!(matches!(reply, Reply::Job { created: true, .. }));
}

#[test]
fn a_job_on_machines_of_its_own_begins_at_once_and_takes_no_slots() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), Some("fifo"), 1);
    submit(&daemon, elsewhere("a"));
    daemon.until("it begins", |d| d.wanted(0) == Some(3));
    assert_eq!(daemon.asked_of(0), Some((ProviderKind::Here, None)));
    assert_eq!(daemon.job("a").provider.as_deref(), Some("here"));
    daemon.submit("b", "1").unwrap();
    daemon.until("the slot is free for another", |d| d.wanted(1) == Some(1));
    daemon.trains(1, 1);
    daemon.trains(0, 3);
    daemon.until("both train", |d| d.phases().values().all(|phase| *phase == Phase::Running));
    assert_eq!((daemon.cluster().free, daemon.job("a").target_workers), (0, 3));
    assert_eq!(daemon.job("a").worker_s, 0.0, "it holds no slot");
    // Its plan says how many workers it has.
    let limits = Request::Limit { job: "a".into(), workers: Some((1..=1).into()), weight: None };
    let refused = daemon.ask(limits).unwrap_err();
    assert!(refused.error.to_string().contains("its plan says how many"), "{refused:?}");
    daemon.finish(0);
    daemon.until("it has finished", |d| d.job("a").state == Phase::Finished);
    daemon.finish(1);
    daemon.stop();
}

#[test]
fn it_is_suspended_resumed_and_cancelled_and_gives_back_what_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), Some("fifo"), 1);
    submit(&daemon, elsewhere("a"));
    daemon.until("it begins", |d| d.wanted(0) == Some(3));
    daemon.trains(0, 3);
    daemon.until("it trains", |d| d.job("a").state == Phase::Running);
    daemon.ask(Request::Suspend { job: "a".into(), by: "its user".into() }).unwrap();
    daemon.until("it leaves", |d| d.wanted(0) == Some(0));
    daemon.until("clients see that", |d| d.job("a").state == Phase::Stopping);
    daemon.end(0, RunOutcome::Stopped, 40);
    daemon.until("it waits", |d| d.job("a").state == Phase::Suspended);
    daemon.ask(Request::Resume { job: "a".into() }).unwrap();
    daemon.until("it goes on", |d| d.wanted(0) == Some(3));
    daemon.trains(0, 3);
    // Its coordinator dies while it leaves: what it held is given back by others.
    daemon.ask(Request::Cancel { job: "a".into() }).unwrap();
    daemon.until("it leaves for good", |d| d.wanted(0) == Some(0));
    daemon.report(Report::Lost { job: bellwether_core::cluster::JobId(0), why: "killed".into() });
    daemon.until("it is over", |d| d.job("a").state == Phase::Cancelled);
    assert!(daemon.released().contains(&folder.path().join("a")), "{:?}", daemon.released());
    daemon.stop();
}

#[test]
fn what_stops_it_is_told_and_what_fails_is_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), Some("fifo"), 1);
    submit(&daemon, elsewhere("a"));
    daemon.until("it begins", |d| d.wanted(0) == Some(3));
    daemon.trains(0, 3);
    let job = bellwether_core::cluster::JobId(0);
    daemon.report(Report::Lost { job, why: "its coordinator is gone".into() });
    daemon.until("it is tried again", |d| d.wishes() == 2 && d.wanted(0) == Some(3));
    assert_eq!(daemon.job("a").failures, 1);
    daemon.trains(0, 3);
    daemon.until("it trains", |d| d.job("a").state == Phase::Running);
    daemon.report(Report::Ended {
        job,
        outcome: RunOutcome::Stopped,
        ended_early: None,
        step: 50,
        digest: None,
        unix_s: 0.0,
        limit: None,
        by: Some("the budget of $1 is used up".into()),
    });
    daemon.until("it waits for its user", |d| d.job("a").state == Phase::Suspended);
    assert_eq!(daemon.job("a").why, "suspended by the budget of $1 is used up");
    daemon.ask(Request::Resume { job: "a".into() }).unwrap();
    daemon.until("it goes on", |d| d.wanted(0) == Some(3) && d.wishes() == 3);
    let diverged = RunOutcome::Failed(RunFailure::Diverged { what: "the loss".into(), step: 60 });
    daemon.end(0, diverged, 60);
    daemon.until("it has failed", |d| d.job("a").state == Phase::Failed);
    daemon.stop();
}

#[test]
fn the_next_daemon_takes_it_over() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), Some("fifo"), 1);
    for name in ["a", "b"] {
        submit(&daemon, elsewhere(name));
    }
    daemon.until("both begin", |d| d.wanted(0) == Some(3) && d.wanted(1) == Some(3));
    daemon.trains(0, 3);
    daemon.trains(1, 3);
    daemon.until("both train", |d| d.phases().values().all(|phase| *phase == Phase::Running));
    daemon.ask(Request::Suspend { job: "b".into(), by: "its user".into() }).unwrap();
    daemon.until("the second leaves", |d| d.wanted(1) == Some(0));
    daemon.stop();
    let daemon = Daemon::start(folder.path(), None, 1);
    daemon.until("one is taken over, the other one leaves", |d| {
        d.wanted(0) == Some(3) && d.wanted(1) == Some(0)
    });
    daemon.end(1, RunOutcome::Stopped, 10);
    daemon.until("it waits", |d| d.job("b").state == Phase::Suspended);
    daemon.finish(0);
    daemon.until("it has finished", |d| d.job("a").state == Phase::Finished);
    daemon.stop();
    // What a daemon that was killed in between has not given back is given back by the next.
    let daemon = Daemon::start(folder.path(), None, 1);
    let all = ["a", "b"].map(|name| folder.path().join(name));
    assert_eq!(daemon.released(), all);
    daemon.stop();
}

#[test]
fn what_cannot_be_carried_out_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), Some("fifo"), 1);
    let refused = |submission: Submission| {
        let refused = daemon.ask(Request::Submit(Box::new(submission))).unwrap_err();
        refused.error.to_string()
    };
    let of = |provision| Submission { provision, ..elsewhere("a") };
    assert!(refused(of(provision("slrum"))).contains("slurm"));
    assert!(refused(of(provision("kubernetes"))).contains("cannot find the coordinator"));
    assert!(refused(of(provision("skypilot"))).contains("nothing says which of SkyPilot's resources"));
    assert!(
        refused(Submission { queue: Some("q".into()), ..elsewhere("a") }).contains("machines of its own")
    );
    assert!(refused(Submission { deadline_s: Some(9.0), ..elsewhere("a") }).contains("machines of its own"));
    let mut chose_nothing = plan(1);
    chose_nothing.choice = None;
    let none = Provision { provider: "here".into(), plan: chose_nothing, listen: None };
    assert!(refused(of(Some(none))).contains("chose no machines"));
    let with = |plan| Some(Provision { provider: "here".into(), plan, listen: None });
    let mut without_workers = plan(1);
    without_workers.candidates[0].workers = 0;
    assert!(refused(of(with(without_workers))).contains("the choice has no workers"));
    let mut of_tomorrow = plan(1);
    of_tomorrow.version = 2;
    assert!(refused(of(with(of_tomorrow))).contains("a plan of version 2"));
    // Two jobs cannot listen at one address; queues have nothing to do with either.
    let at =
        |port: u16| Some(Provision { listen: Some(([127, 0, 0, 1], port).into()), ..with(plan(8)).unwrap() });
    submit(&daemon, Submission { provision: at(7000), ..elsewhere("first") });
    assert!(
        refused(Submission { provision: at(7000), ..elsewhere("second") }).contains("job `first` listens")
    );
    submit(&daemon, Submission { provision: at(0), ..elsewhere("third") });
    let queues = bellwether_core::parse::document(
        "[[queues]]\nname = \"a\"\n[[queues]]\nname = \"default\"\n",
        "test",
    );
    daemon.ask(Request::Divide { queues: Some(queues.unwrap()), by: "an operator".into() }).unwrap();
    daemon.stop();
}
