//! What users ask of jobs that are there.

use bellwether_core::job::WorkerRange;
use bellwether_core::record::RunOutcome;
use bellwether_serve::request::{RefusalKind, Request};
use bellwether_serve::snapshot::Phase;

use crate::engine::Daemon;

#[test]
fn users_suspend_resume_cancel_and_change_limits() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), Some("fifo"), 2);
    daemon.submit("a", "2").unwrap();
    daemon.submit("b", "1..2").unwrap();
    daemon.until("a starts", |d| d.wanted(0) == Some(2));
    daemon.trains(0, 2);
    daemon.until("it trains", |d| d.job("a").state == Phase::Running);
    let a = || "a".to_owned();
    daemon.ask(Request::Suspend { job: a(), by: "its user".into() }).unwrap();
    daemon.until("a leaves", |d| d.wanted(0) == Some(0));
    daemon.until("clients see that", |d| d.job("a").state == Phase::Stopping);
    assert_eq!(daemon.wanted(1), None, "b waits until a's processes are gone");
    daemon.end(0, RunOutcome::Stopped, 40);
    daemon.until("b starts then", |d| d.wanted(1) == Some(2));
    daemon.until("a is suspended", |d| d.job("a").state == Phase::Suspended && d.job("a").step == 40);
    daemon.ask(Request::Resume { job: a() }).unwrap();
    daemon.until("a waits behind b", |d| d.job("a").state == Phase::Queued);
    let workers = Some(WorkerRange { min: 1, max: 1 });
    daemon.ask(Request::Limit { job: "b".into(), workers, weight: None }).unwrap();
    assert_eq!(daemon.job("b").max_workers, 1);
    daemon.ask(Request::Cancel { job: "b".into() }).unwrap();
    daemon.until("b leaves", |d| d.wanted(1) == Some(0));
    daemon.end(1, RunOutcome::Stopped, 3);
    daemon.until("b is gone, and a goes on", |d| d.wanted(0) == Some(2));
    daemon.until("b was cancelled", |d| d.job("b").state == Phase::Cancelled);
    daemon.finish(0);
    daemon.until("a is done", |d| d.job("a").state == Phase::Finished);
    let refusal = daemon.ask(Request::Suspend { job: a(), by: "its user".into() }).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Conflict);
    daemon.stop();
}
