//! Targeted histories of losses: no living member is given up, and no state that a member holds.

use bellwether_core::plan::Synchronisation;
use bellwether_core::prediction::Protocol;
use bellwether_core::record::Event as Journal;
use bellwether_runtime::membership::coordinator::{Action, Config, Event, Resumed};
use bellwether_runtime::membership::member::{Effect, Member, Task};
use bellwether_runtime::membership::{FromWorker, Load, ToWorker, WorkerId};

use super::cases::{Bench, RULES, active, config, membership, plan, recovery, running_member, sent};

impl Bench {
    /// Time passes as it does for a coordinator that looks at its clock; these workers say that they live.
    fn pass(&mut self, seconds: f64, speak: &[WorkerId]) -> Vec<Action> {
        let mut actions = Vec::new();
        let until_s = self.now_s + seconds;
        while self.now_s < until_s {
            self.now_s += 0.03;
            actions.extend(self.take(Event::Tick));
            for worker in speak {
                actions.extend(self.says(*worker, FromWorker::Heartbeat));
            }
        }
        actions
    }

    fn gone(&mut self, worker: WorkerId) -> Vec<Action> {
        self.take(Event::Gone(worker, "its session broke".into()))
    }
}

fn is_loss(action: &Action) -> bool {
    let loads = |message: &ToWorker| matches!(message, ToWorker::Recover { load: Some(_), .. });
    match action {
        Action::Journal(Journal::RolledBack { .. }) => true,
        Action::Send(_, message) => loads(message),
        _ => false,
    }
}

fn crashed(actions: &[Action]) -> Vec<WorkerId> {
    let who = |action: &Action| match action {
        Action::Journal(Journal::Crashed { worker, .. }) => Some(*worker),
        _ => None,
    };
    actions.iter().filter_map(who).collect()
}

fn spawned(actions: &[Action]) -> Vec<WorkerId> {
    let who = |action: &Action| match action {
        Action::Spawn(worker) => Some(*worker),
        _ => None,
    };
    actions.iter().filter_map(who).collect()
}

/// Workers 1 to `workers` have committed five steps.
fn trained(config: Config, workers: WorkerId) -> (Bench, u64) {
    let mut bench = Bench::running(config, workers);
    let epoch = bench.coordinator.membership().epoch;
    (1..=workers).for_each(|worker| drop(bench.reports(worker, epoch, 5)));
    assert_eq!(bench.coordinator.progress().committed(), 5);
    (bench, epoch)
}

#[test]
fn a_coordinator_that_stood_still_charges_no_worker_with_silence() {
    let mut bench = Bench::running(Config { heartbeat_timeout_s: 1.0, ..config(2) }, 2);
    bench.now_s += 7.0;
    let mut actions = bench.take(Event::Tick);
    actions.extend(bench.says(1, FromWorker::Heartbeat));
    actions.extend(bench.pass(0.8, &[1]));
    assert!(crashed(&actions).is_empty(), "{actions:?}");
    // A member that says nothing while the coordinator listens is silent.
    assert_eq!(crashed(&bench.pass(0.5, &[1])), [2]);
}

#[test]
fn two_members_lost_one_after_the_other_are_both_waited_for() {
    let (mut bench, epoch) = trained(config(2), 2);
    bench.attach(3, None, true);
    let mut actions = bench.gone(1);
    assert_eq!(active(&recovery(&actions, 2).expect("a recovery").0), [2]);
    actions.extend(bench.gone(2));
    actions.extend(bench.take(Event::Ended(2)));
    assert!(!actions.iter().any(is_loss), "worker 1 may come back: {actions:?}");
    let actions = bench.attach(1, Some((epoch, 5)), true);
    let (next, load) = recovery(&actions, 1).expect("it holds everything");
    assert_eq!((active(&next), load), (vec![1], None));
}

#[test]
fn a_dead_member_is_not_waited_for() {
    let (mut bench, _) = trained(config(2), 2);
    let mut actions = bench.gone(1);
    actions.extend(bench.take(Event::Ended(1)));
    actions.extend(bench.gone(2));
    actions.extend(bench.take(Event::Ended(2)));
    bench.attach(3, None, true);
    actions.extend(bench.attach(4, None, true));
    assert!(actions.iter().any(is_loss));
}

#[test]
fn a_worker_that_came_back_during_a_recovery_keeps_its_state_through_the_next() {
    let (mut bench, epoch) = trained(config(3), 3);
    let first = recovery(&bench.gone(1), 2).expect("a recovery").0;
    assert_eq!(active(&first), [2, 3]);
    assert_eq!(
        bench.attach(1, Some((epoch, 5)), true),
        [Action::Journal(Journal::WorkerAttached {
            worker: 1,
            address: "host:1".into(),
            process: 1,
            held_step: Some(5),
        })]
    );
    // It is one of those who hold everything, and a member again.
    let actions = bench.gone(3);
    let (next, load) = recovery(&actions, 1).expect("a recovery");
    assert_eq!((active(&next), load), (vec![2, 1], None));
    let mut actions = bench.gone(2);
    actions.extend(bench.take(Event::Ended(2)));
    assert!(!actions.iter().any(is_loss), "{actions:?}");
    let (alone, load) = recovery(&actions, 1).expect("a recovery");
    assert_eq!((active(&alone), load), (vec![1], None));
}

#[test]
fn a_newcomer_that_holds_everything_is_found_when_all_members_die() {
    let (mut bench, _) = trained(config(1), 1);
    bench.take(Event::Scale(2));
    let shadowed = plan(&bench.attach(2, None, true), 1).expect("a plan").epoch;
    bench.reports(1, shadowed, 6);
    bench.says(2, FromWorker::CaughtUp { epoch: shadowed, step: 6 });
    let mut actions = bench.gone(1);
    actions.extend(bench.take(Event::Ended(1)));
    assert!(!actions.iter().any(is_loss), "{actions:?}");
    let (next, load) = recovery(&actions, 2).expect("it holds everything");
    assert_eq!((active(&next), load), (vec![2], None));
}

#[test]
fn outside_a_recovery_what_may_be_needed_is_kept() {
    for keep in [true, false] {
        let mut member = running_member(1, &[1, 2], 7);
        member.message(ToWorker::Recover { membership: membership(5, &[2], &[]), load: None, keep });
        assert_eq!((member.held(), member.next_task()), (keep.then_some((1, 7)), Task::Wait));
        // What was planned before is void, and what comes later is not.
        let stale = membership(4, &[2], &[1]);
        assert_eq!(member.message(ToWorker::Prepare(stale.clone())), []);
        assert_eq!(member.prepared(stale, Ok(())), []);
        assert_eq!(member.next_task(), Task::Wait);
        let later = membership(6, &[2], &[1]);
        assert_eq!(member.message(ToWorker::Prepare(later.clone())), [Effect::Prepare(later.clone())]);
        member.prepared(later.clone(), Ok(()));
        assert_eq!(member.next_task(), Task::Switch(later));
    }
}

#[test]
fn who_was_told_to_go_is_not_let_in_again_and_another_process_is() {
    let (mut bench, _) = trained(config(2), 2);
    let told = bench.says(2, FromWorker::Report(Default::default()));
    assert_eq!(sent(&told, 2), Vec::<&ToWorker>::new());
    assert_eq!(bench.coordinator.refusal(2, 2), None);
    let why = bench.coordinator.refusal(2, 77).expect("its number is taken");
    assert!(why.contains("taken by another process"), "{why}");
    bench.attach(3, None, true);
    bench.says(3, FromWorker::Leave { replace: false });
    assert!(bench.coordinator.was_dismissed(3));
    assert!(bench.coordinator.refusal(3, 3).is_some());
    assert_eq!(bench.coordinator.refusal(3, 4), None);
    // The number of a silent worker is free.
    let (mut bench, _) = trained(Config { heartbeat_timeout_s: 1.0, ..config(2) }, 2);
    bench.pass(1.2, &[1]);
    assert_eq!(bench.coordinator.refusal(2, 77), None);
}

#[test]
fn starts_that_fail_are_tried_again_for_ever_and_ever_more_rarely() {
    let mut bench = Bench::running(Config { spawns: true, ..config(2) }, 2);
    let mut actions = bench.take(Event::Scale(3));
    let mut tries = Vec::new();
    while tries.len() < 10 {
        for worker in spawned(&actions) {
            tries.push(bench.now_s);
            actions = bench.take(Event::Gone(worker, "Resource temporarily unavailable".into()));
            let said = |action: &Action| matches!(action, Action::Journal(Journal::Warning { message }) if message.contains("the next try is in"));
            assert!(actions.iter().any(said), "{actions:?}");
            assert!(spawned(&actions).is_empty(), "not at once");
        }
        actions = bench.pass(0.05, &[1, 2]);
    }
    let waits: Vec<f64> = tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(waits.windows(2).all(|pair| pair[1] > pair[0] || pair[1] > 59.0), "{waits:?}");
    assert!(waits[0] < 0.5 && waits.iter().all(|wait| *wait < 61.0), "{waits:?}");
    // Another number is wanted: no longer wait.
    assert_eq!(spawned(&bench.take(Event::Scale(4))).len(), 2);
}

#[test]
fn a_job_whose_workers_never_come_up_ends_with_the_reason() {
    let mut bench = Bench::new(Config { spawns: true, ..config(2) });
    let mut actions = bench.take(Event::Tick);
    for _ in 0..200 {
        let started = spawned(&actions);
        actions.retain(|action| matches!(action, Action::End(_)));
        for worker in started {
            actions.extend(bench.take(Event::Gone(worker, "no such file".into())));
        }
        if let Some(Action::End(end)) = actions.iter().find(|action| matches!(action, Action::End(_))) {
            assert_eq!(end.how.to_string(), "failed: no worker comes up: no such file");
            return;
        }
        actions.extend(bench.pass(0.05, &[]));
    }
    panic!("it goes on for ever");
}

#[test]
fn a_newcomer_that_gets_no_further_has_to_go_and_no_worker_waits_for_it() {
    let (mut bench, _) = trained(config(2), 2);
    bench.take(Event::Scale(3));
    let shadowed = plan(&bench.attach(3, None, true), 1).expect("a plan").epoch;
    bench.reports(1, shadowed, 6);
    bench.reports(2, shadowed, 6);
    let actions = bench.pass(9.0, &[1, 2, 3]);
    assert_eq!(sent(&actions, 3), Vec::<&ToWorker>::new(), "it has some time");
    let actions = bench.pass(3.0, &[1, 2, 3]);
    assert!(sent(&actions, 3).iter().any(|message| matches!(message, ToWorker::Bye { .. })), "{actions:?}");
    assert!(actions.contains(&Action::Close(3)) && crashed(&actions).is_empty());
    let next = plan(&bench.attach(4, None, true), 1).expect("another is asked in");
    assert!(next.shadows(4) && !next.shadows(3));
}

#[test]
fn a_newcomer_that_does_not_take_what_it_is_sent_begins_again_once() {
    let (mut bench, _) = trained(config(2), 2);
    bench.take(Event::Scale(3));
    let mut next = plan(&bench.attach(3, None, true), 1).expect("a plan");
    for (given_up, step) in [(1, 6), (2, 8)] {
        bench.reports(1, next.epoch, step);
        bench.reports(2, next.epoch, step);
        let lost = FromWorker::ShadowLost { epoch: next.epoch, shadow: 3 };
        let actions = bench.says(1, lost.clone());
        if given_up == 1 {
            next = plan(&actions, 3).expect("it is asked in again");
            assert!(next.shadows(3));
            // Another member says the same a moment later.
            assert_eq!(bench.says(2, lost), []);
        } else {
            assert!(actions.contains(&Action::Close(3)) && bench.coordinator.was_dismissed(3), "{actions:?}");
        }
    }
}

#[test]
fn a_start_from_before_its_own_step_makes_a_member_wait_for_another() {
    let mut member = running_member(1, &[1, 2], 7);
    member.message(ToWorker::Recover { membership: membership(5, &[1], &[]), load: None, keep: true });
    member.formed(5, None, Ok(()));
    let start = ToWorker::Start { epoch: 5, step: 3, behind: vec![], source: 1, accumulation: 1 };
    let effects = member.message(start);
    assert!(matches!(effects.as_slice(), [Effect::Send(FromWorker::Lost { .. })]), "{effects:?}");
    assert_eq!((member.next_task(), member.held()), (Task::Wait, Some((1, 7))));
    let fresh = Member::new(9, RULES);
    assert_eq!(fresh.held(), None);
    let mut loading = fresh;
    loading.message(ToWorker::Recover {
        membership: membership(1, &[9], &[]),
        load: Some(Load::Fresh),
        keep: false,
    });
    loading.formed(1, Some(0), Ok(()));
    assert_eq!(loading.held(), Some((1, 0)));
    // A membership that never began makes its state no newer.
    loading.message(ToWorker::Recover { membership: membership(7, &[9], &[]), load: None, keep: true });
    loading.formed(7, None, Ok(()));
    assert_eq!(loading.held(), Some((1, 0)));
}

#[test]
fn a_caught_up_message_that_leaves_its_sender_out_does_no_harm() {
    let (mut bench, _) = trained(config(2), 2);
    bench.take(Event::Scale(3));
    let shadowed = plan(&bench.attach(3, None, true), 1).expect("a plan");
    bench.reports(1, shadowed.epoch, 6);
    let without = plan(&bench.take(Event::Scale(1)), 1).expect("a plan without it");
    assert_eq!((active(&without), without.shadows.len()), (vec![1], 0));
    let actions = bench.says(3, FromWorker::CaughtUp { epoch: without.epoch, step: 6 });
    assert!(actions.contains(&Action::Close(3)), "{actions:?}");
    assert_eq!(bench.coordinator.membership().epoch, without.epoch);
}

#[test]
fn a_state_that_is_being_written_is_waited_for() {
    let (mut bench, _) = trained(config(2), 2);
    bench.take(Event::Received(5));
    let mut actions = Vec::new();
    for worker in [1, 2] {
        actions.extend(bench.gone(worker));
        actions.extend(bench.take(Event::Ended(worker)));
    }
    actions.extend(bench.attach(3, None, true));
    actions.extend(bench.attach(4, None, true));
    assert!(!actions.iter().any(is_loss), "{actions:?}");
    let actions = bench.take(Event::Checkpoint(5, Ok(())));
    assert!(!actions.iter().any(|action| matches!(action, Action::Journal(Journal::RolledBack { .. }))));
    assert_eq!(recovery(&actions, 3).expect("nothing is lost").1, Some(Load::Checkpoint(5)));
    // A state that cannot be written is none.
    let (mut bench, _) = trained(config(1), 1);
    bench.take(Event::Received(5));
    bench.gone(1);
    bench.take(Event::Ended(1));
    bench.attach(2, None, true);
    let actions = bench.take(Event::Checkpoint(5, Err("no space left".into())));
    assert!(actions.contains(&Action::Journal(Journal::RolledBack { to: 0 })), "{actions:?}");
}

#[test]
fn a_state_that_does_not_count_keeps_no_worker_from_going_on() {
    let resumed = Resumed { epoch: 9, active: vec![1, 2], committed: 5, ..Resumed::default() };
    let config = Config { max_accumulation: 4, resumed: Some(resumed), ..config(1) };
    let mut bench = Bench::new(config);
    // Where the batch may move, other steps may have been done since by members that went on without worker 2.
    bench.attach(2, Some((3, 5)), true);
    let actions = bench.attach(1, Some((8, 4)), true);
    let (next, load) = recovery(&actions, 1).expect("it holds the latest state");
    assert_eq!((active(&next), load), (vec![1], None));
    let held = FromWorker::Ready { epoch: next.epoch, step: 4, last: 1, trained: (8, 1) };
    let actions = bench.says(1, held);
    assert!(actions.contains(&Action::Journal(Journal::RolledBack { to: 4 })), "{actions:?}");
    assert!(sent(&actions, 1).iter().any(|message| matches!(message, ToWorker::Start { .. })), "{actions:?}");
}

#[test]
fn a_report_before_a_membership_begins_makes_no_state_newer() {
    let (mut bench, epoch) = trained(Config { max_accumulation: 4, ..config(2) }, 2);
    let next = recovery(&bench.gone(1), 2).expect("a recovery").0;
    bench.reports(2, next.epoch, 5);
    bench.gone(2);
    let mut actions = bench.attach(2, Some((epoch, 4)), true);
    actions.extend(bench.attach(1, Some((epoch, 5)), true));
    let (both, _) = recovery(&actions, 1).expect("a recovery");
    assert!(active(&both).contains(&1), "it holds all that is committed: {actions:?}");
}

#[test]
fn a_state_of_a_worker_without_which_the_others_went_on_does_not_count() {
    // Where the batch never moves, all states of a step are the same.
    for (max_accumulation, counts) in [(1, true), (4, false)] {
        let (mut bench, _) = trained(Config { max_accumulation, ..config(2) }, 2);
        let next = recovery(&bench.gone(2), 1).expect("a recovery").0;
        assert!(bench.coordinator.state_counts(2), "it may come back");
        let held = FromWorker::Ready { epoch: next.epoch, step: 5, last: 1, trained: (1, 1) };
        bench.says(1, held);
        assert!(bench.coordinator.state_counts(1));
        assert_eq!(bench.coordinator.state_counts(2), counts);
    }
}

#[test]
fn a_request_for_another_protocol_while_all_stop_for_one_keeps_no_worker_waiting() {
    let phases = vec![(0, Protocol::Bsp), (90, Protocol::Asp)];
    let synchronisation = Synchronisation { phases, servers: 1, ..Synchronisation::default() };
    for is_known in [false, true] {
        let (mut bench, epoch) = trained(Config { synchronisation: synchronisation.clone(), ..config(2) }, 2);
        let stops = epoch + 1;
        let ask = |bench: &mut Bench| bench.take(Event::Protocol(50, Protocol::Bsp));
        if !is_known {
            ask(&mut bench);
        }
        (1..=2).for_each(|worker| drop(bench.reports(worker, stops, 90)));
        assert!(bench.coordinator.membership().stop, "they follow the plan that they agreed on");
        let late = if is_known { ask(&mut bench) } else { Vec::new() };
        assert_eq!(plan(&late, 1), None, "a worker that has stopped takes part in no other plan");
        let mut actions = bench.take(Event::Received(90));
        (1..=2).for_each(|worker| {
            actions.extend(bench.says(worker, FromWorker::Finished { step: 90, digest: [7; 32] }));
        });
        let (next, load) = recovery(&actions, 1).expect("they go on together");
        assert_eq!((active(&next), load), (vec![1, 2], Some(Load::Checkpoint(90))));
    }
}
