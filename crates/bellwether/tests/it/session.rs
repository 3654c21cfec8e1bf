//! Sessions as programs outside of this project begin them.

use std::time::Duration;

use bellwether::job;
use bellwether::profile::{How, measure};
use bellwether::session::{RunError, RunOutcome, Session, Spawn, StateDir};

use own_workload::{JOB, Line};

#[path = "../../examples/own_workload.rs"]
pub(crate) mod own_workload;

#[test]
fn a_workload_of_ones_own_keeps_its_digest_when_it_is_resized_and_loses_a_worker() {
    own_workload::main().unwrap();
}

#[test]
fn parameter_servers_are_threads_too() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("{JOB}[sync]\npolicy = \"asp\"\n");
    let session = Session::builder(job::parse(&text, "line", &[]).unwrap())
        .workload(|_| Ok(Box::new(Line::new(Duration::ZERO))))
        .state_dir(StateDir::find(Some(folder.path().into())).unwrap());
    let (summary, outcome) = session.run(&mut |_| {}).unwrap();
    assert_eq!((outcome, summary.steps), (RunOutcome::Finished, 400));
    assert!(summary.final_loss < Some(0.05), "{:?}", summary.final_loss);
}

#[test]
fn a_job_is_measured_on_threads() {
    let line = job::parse(JOB, "line", &[]).unwrap();
    let how = How::new(5, Spawn::Threads);
    let build = |_: &_| Ok(Box::new(Line::new(Duration::from_millis(1))) as _);
    let profile = measure(&line, build, &how, &mut |_| {}).unwrap();
    assert_eq!((profile.check(), profile.steps.len()), (Ok(()), 5));
}

#[test]
fn an_option_that_does_not_fit_the_job_is_named() {
    let session = Session::builder(job::parse(JOB, "line", &[]).unwrap())
        .workload(|_| Ok(Box::new(Line::new(Duration::ZERO))))
        .workers(1..=9);
    let Err(RunError::Option(error)) = session.run(&mut |_| {}) else { panic!("8 virtual nodes for 9") };
    assert_eq!(error.place, "workers");
}
