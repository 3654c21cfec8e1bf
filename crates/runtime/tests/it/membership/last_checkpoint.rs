//! The checkpoint of the last step: no run says that it is over before it is written.

use bellwether_core::record::{RunFailure, RunOutcome};
use bellwether_runtime::membership::coordinator::{Action, Config, End, Event};
use bellwether_runtime::membership::member::Task;
use bellwether_runtime::membership::{FromWorker, Report, ToWorker, WorkerId};

use super::cases::{Bench, RULES, config, running_member};

const LAST: u64 = RULES.total_steps;

/// Two workers, who may be silent for as long as a test is.
fn patient() -> Config {
    Config { heartbeat_timeout_s: 1e9, ..config(2) }
}

/// Two workers that have done all steps; nothing has come of the checkpoint yet.
fn finished() -> Bench {
    let mut bench = Bench::running(patient(), 2);
    let epoch = bench.coordinator.membership().epoch;
    for worker in [1, 2] {
        bench.reports(worker, epoch, LAST);
        let actions = bench.says(worker, FromWorker::Finished { step: LAST, digest: [7; 32] });
        assert_eq!(outcome(&actions), None, "the state is with the workers alone");
    }
    bench
}

fn outcome(actions: &[Action]) -> Option<&End> {
    actions.iter().find_map(|action| match action {
        Action::End(end) => Some(end),
        _ => None,
    })
}

/// Who is asked for the state.
fn asked(actions: &[Action]) -> Vec<WorkerId> {
    let asked = |action: &Action| match action {
        Action::Send(worker, ToWorker::SendCheckpoint { step: LAST, .. }) => Some(*worker),
        _ => None,
    };
    actions.iter().filter_map(asked).collect()
}

/// Lets time pass until something is asked for or the run ends; what it was, and the seconds.
fn later(bench: &mut Bench) -> (Vec<Action>, f64) {
    let began_s = bench.now_s;
    for _ in 0..100_000 {
        let actions = bench.take(Event::Tick);
        if outcome(&actions).is_some() || !asked(&actions).is_empty() {
            return (actions, bench.now_s - began_s);
        }
    }
    panic!("nothing happens in {} s", bench.now_s - began_s);
}

#[test]
fn it_is_asked_for_again_until_it_is_written() {
    let mut bench = finished();
    bench.take(Event::Checkpoint(LAST, Err("no space".into())));
    assert_eq!(bench.coordinator.lifecycle(), "waiting to write the last checkpoint");
    let mut waits_s = Vec::new();
    for holder in [2, 1, 2, 1] {
        let (actions, wait_s) = later(&mut bench);
        assert_eq!(asked(&actions), [holder], "each holder in turn");
        waits_s.push(wait_s);
        let failed = FromWorker::CheckpointFailed { step: LAST, why: "no answer".into() };
        let actions = bench.says(holder, failed);
        assert!(actions.iter().any(|action| matches!(action, Action::Journal(_))), "{actions:?}");
    }
    assert!(waits_s.windows(2).all(|pair| pair[1] > 1.5 * pair[0]), "ever more rarely: {waits_s:?}");
    let actions = bench.take(Event::Checkpoint(LAST, Ok(())));
    let outcome = outcome(&actions).expect("it is written");
    assert_eq!(*outcome, End { how: RunOutcome::Finished, digest: Some([7; 32]) });
}

#[test]
fn a_failure_before_all_are_done_counts_too() {
    let mut bench = Bench::running(config(2), 2);
    let epoch = bench.coordinator.membership().epoch;
    bench.reports(1, epoch, LAST);
    bench.says(1, FromWorker::CheckpointFailed { step: LAST, why: "no answer".into() });
    bench.says(1, FromWorker::Finished { step: LAST, digest: [7; 32] });
    bench.reports(2, epoch, LAST);
    bench.says(2, FromWorker::Finished { step: LAST, digest: [7; 32] });
    let (actions, wait_s) = later(&mut bench);
    assert_eq!(asked(&actions), [2]);
    assert!(wait_s < 1.0, "the run waits for what will not come: {wait_s}");
}

#[test]
fn a_sender_of_whom_nothing_is_heard_is_not_waited_for_for_ever() {
    let mut bench = finished();
    let (actions, _) = later(&mut bench);
    assert_eq!(asked(&actions), [2]);
    let (actions, _) = later(&mut bench);
    assert_eq!(asked(&actions), [1]);
    assert!(outcome(&bench.take(Event::Checkpoint(LAST, Ok(())))).is_some());
}

#[test]
fn a_run_whose_result_cannot_be_written_has_failed() {
    let mut bench = finished();
    let end = loop {
        let mut actions = bench.take(Event::Checkpoint(LAST, Err("no space".into())));
        if outcome(&actions).is_none() {
            actions = later(&mut bench).0;
        }
        if let Some(outcome) = outcome(&actions) {
            break outcome.clone();
        }
    };
    let failure = RunFailure::Unsaved { step: LAST, waited_s: Some(300.0), why: "no space".into() };
    assert_eq!(end.how, RunOutcome::Failed(failure));
}

#[test]
fn a_request_for_an_end_is_granted() {
    let mut bench = finished();
    bench.take(Event::Checkpoint(LAST, Err("no space".into())));
    let actions = bench.take(Event::Stop);
    let unsaved = |end: &End| {
        matches!(end.how, RunOutcome::Failed(RunFailure::Unsaved { step: LAST, waited_s: None, .. }))
    };
    assert!(unsaved(outcome(&actions).expect("it was asked for")));
    // As long as nothing has failed it may be on its way.
    let mut bench = finished();
    assert_eq!(outcome(&bench.take(Event::Stop)), None);
    assert!(unsaved(outcome(&bench.take(Event::Stop)).expect("twice")));
}

#[test]
fn a_state_that_led_to_no_number_is_not_waited_for() {
    let mut bench = Bench::running(config(2), 2);
    let epoch = bench.coordinator.membership().epoch;
    for worker in [1, 2] {
        bench.reports(worker, epoch, 9);
        bench.says(worker, FromWorker::NotFinite { step: 9, what: "the loss is NaN".into() });
    }
    bench.says(1, FromWorker::Finished { step: 9, digest: [7; 32] });
    let actions = bench.says(2, FromWorker::Finished { step: 9, digest: [7; 32] });
    let end = outcome(&actions).expect("nothing is left to do");
    let diverged = RunFailure::Diverged { what: "the loss is NaN".into(), step: 9 };
    assert_eq!(end.how, RunOutcome::Failed(diverged));
}

#[test]
fn a_state_that_was_to_be_kept_before_it_led_to_no_number_is_waited_for() {
    let diverged = RunOutcome::Failed(RunFailure::Diverged { what: "the loss is NaN".into(), step: 9 });
    for written in [true, false] {
        let mut bench = Bench::running(Config { checkpoint_every: 3, ..patient() }, 2);
        let epoch = bench.coordinator.membership().epoch;
        for worker in [1, 2] {
            bench.reports(worker, epoch, 9);
            bench.says(worker, FromWorker::NotFinite { step: 9, what: "the loss is NaN".into() });
            let actions = bench.says(worker, FromWorker::Finished { step: 9, digest: [7; 32] });
            assert_eq!(outcome(&actions), None, "the state is on its way");
        }
        bench.take(Event::Received(9));
        let result = if written { Ok(()) } else { Err("no space".into()) };
        let mut actions = bench.take(Event::Checkpoint(9, result));
        if !written {
            assert_eq!(outcome(&actions), None, "it is tried again");
            bench.now_s += 301.0;
            actions = bench.take(Event::Tick);
        }
        let end = outcome(&actions).expect("it has ended");
        assert_eq!(end.how, diverged, "that it is not written is the lesser fault");
    }
}

#[test]
fn a_member_that_is_done_sends_it_as_often_as_it_is_asked() {
    let mut member = running_member(1, &[1, 2], LAST - 1);
    let offer = member.offer(&Task::Train);
    member.round_done(&Task::Train, &[offer, offer]);
    member.evaluated();
    assert_eq!(member.next_task(), Task::Finish);
    member.finished([7; 32]);
    assert_eq!(member.next_task(), Task::Wait);
    let epoch = member.membership().epoch;
    for _ in 0..2 {
        member.message(ToWorker::SendCheckpoint { epoch, step: LAST });
        assert_eq!(member.next_task(), Task::Checkpoint);
        member.checkpointed();
        assert_eq!(member.next_task(), Task::Wait);
    }
    // Asked of what was before.
    member.message(ToWorker::SendCheckpoint { epoch: epoch + 1, step: LAST });
    assert_eq!(member.next_task(), Task::Wait);
}

#[test]
fn checkpoints_are_asked_for_by_time_and_never_take_most_of_it() {
    let mut bench = Bench::running(Config { checkpoint_period_s: 60.0, ..patient() }, 2);
    let epoch = bench.coordinator.membership().epoch;
    let asks = |bench: &mut Bench, at_s: f64| {
        bench.now_s = at_s;
        let actions = bench.take(Event::Tick);
        let asks = |action: &&Action| matches!(action, Action::Send(1, ToWorker::SendCheckpoint { .. }));
        actions.iter().filter(asks).count()
    };
    assert_eq!(asks(&mut bench, 70.0), 0, "there is nothing to keep");
    for worker in [1, 2] {
        bench.says(worker, FromWorker::Report(Report { epoch, step: 5, ..Report::default() }));
    }
    bench.now_s = 71.0;
    bench.take(Event::Tick);
    assert_eq!(asks(&mut bench, 80.0), 0, "it was asked for when there was");
    bench.take(Event::Checkpoint(5, Ok(())));
    assert_eq!(asks(&mut bench, 200.0), 0, "it has all that there is");
    for worker in [1, 2] {
        bench.says(worker, FromWorker::Report(Report { epoch, step: 9, ..Report::default() }));
    }
    // The last one took about ten seconds.
    bench.take(Event::Checkpoint(6, Ok(())));
    assert_eq!(asks(&mut bench, 230.0), 0);
    assert_eq!(asks(&mut bench, 320.0), 1);
    assert_eq!(asks(&mut bench, 321.0), 0, "once");
}

#[test]
fn a_first_member_that_is_asked_sends_its_state_at_the_next_boundary() {
    let mut member = running_member(1, &[1, 2], 7);
    member.message(ToWorker::SendCheckpoint { epoch: 1, step: 7 });
    assert_eq!(member.next_task(), Task::Checkpoint);
    member.checkpointed();
    assert_eq!(member.next_task(), Task::Train);
    let mut member = running_member(2, &[1, 2], 7);
    member.message(ToWorker::SendCheckpoint { epoch: 1, step: 7 });
    assert_eq!(member.next_task(), Task::Train, "that is for the first one");
}
