//! Targeted histories of workers that wait for parameter servers which do not answer.

use bellwether_core::plan::Synchronisation;
use bellwether_core::record::Event as Journal;
use bellwether_runtime::membership::coordinator::{Action, Config, Event};
use bellwether_runtime::membership::{Activity, FromWorker, ToWorker, WorkerId};

use super::cases::{Bench, config, sent};
use super::late::{Stand, late};

const SERVER: WorkerId = 9;

/// This many workers of a run that sums at its server, each with a unit.
fn served(workers: WorkerId) -> Bench {
    let synchronisation =
        Synchronisation { servers: 1, reduce_at_servers: true, ..Synchronisation::default() };
    let config = Config { synchronisation, expected_step_s: Some(0.02), ..config(workers as u32) };
    let mut bench = Bench::running(config, workers);
    let actions = bench.take(Event::Tick);
    let epoch = bench.coordinator.membership().epoch;
    let mut plan = epoch;
    for message in sent(&actions, 1) {
        if let ToWorker::Prepare(next) = message {
            plan = next.epoch;
        }
    }
    for worker in 1..=workers {
        bench.reports(worker, plan.max(epoch + 1), 0);
    }
    for worker in 1..=workers {
        bench.says(worker, FromWorker::Finished { step: 0, digest: [7; 32] });
    }
    bench.take(Event::Checkpoint(0, Ok(())));
    bench.take(Event::ServerAttached {
        server: SERVER,
        address: "host:9".into(),
        process: 1,
        instance: 9,
        waited_s: 0.0,
    });
    let epoch = bench.coordinator.membership().epoch;
    bench.says(SERVER, FromWorker::Serving { epoch });
    for worker in 1..=workers {
        let actions = bench.says(worker, FromWorker::Units { epoch, done: vec![], want: 1 });
        assert!(sent(&actions, worker).iter().any(|m| matches!(m, ToWorker::Grant { .. })), "{actions:?}");
    }
    bench
}

fn crashed(actions: &[Action]) -> Vec<WorkerId> {
    let who = |action: &Action| match action {
        Action::Journal(Journal::Crashed { worker, .. }) => Some(*worker),
        Action::Journal(Journal::ServerCrashed { server, .. }) => Some(*server),
        _ => None,
    };
    actions.iter().filter_map(who).collect()
}

#[test]
fn a_worker_whose_server_does_not_answer_is_cut_off_where_others_are_answered() {
    // The others have done their units, and wait for the step to be over.
    let stands: [Stand; 3] =
        [(1, Activity::Idle, &[]), (2, Activity::Exchanging, &[SERVER]), (3, Activity::Idle, &[])];
    let mut bench = served(3);
    let actions = bench.stand(2.0, &stands, |_| {});
    assert_eq!((late(&actions), crashed(&actions)), (vec![(2, Some(SERVER))], vec![2]), "{actions:?}");
    // It was not the worker: the next one waits for the same server in vain.
    let stands: [Stand; 2] = [(1, Activity::Exchanging, &[SERVER]), (3, Activity::Idle, &[])];
    let actions = bench.stand(2.0, &stands, |_| {});
    assert_eq!(late(&actions), [(SERVER, Some(1))], "{actions:?}");
}

#[test]
fn a_server_that_answers_no_worker_is_lost() {
    let stands: [Stand; 2] = [(1, Activity::Exchanging, &[SERVER]), (2, Activity::Exchanging, &[SERVER])];
    let mut bench = served(2);
    let actions = bench.stand(2.0, &stands, |_| {});
    assert_eq!(late(&actions), [(SERVER, Some(1))], "{actions:?}");
    assert_eq!(crashed(&actions), [SERVER]);
    assert!(bench.coordinator.was_dismissed(SERVER));
}

#[test]
fn a_worker_that_hangs_with_its_unit_is_lost_even_alone() {
    let mut bench = served(1);
    let actions = bench.stand(60.0, &[(1, Activity::Computing, &[])], |_| {});
    assert_eq!(crashed(&actions), [1], "the server has the state: {actions:?}");
}

#[test]
fn a_worker_that_waits_for_a_server_while_another_computes_may_wait_for_its_part() {
    let stands: [Stand; 2] = [(1, Activity::Idle, &[]), (2, Activity::Computing, &[])];
    let mut bench = served(2);
    let actions = bench.stand(9.0, &stands, |p| {
        if p.activity == Activity::Computing {
            p.usual_s = Some(5.0);
        }
    });
    assert_eq!(late(&actions), [], "{actions:?}");
}
