//! Targeted histories of members that keep the others waiting.

use bellwether_core::record::Event as Journal;
use bellwether_runtime::membership::coordinator::{Action, Config, Event};
use bellwether_runtime::membership::{Activity, FromWorker, Position, ToWorker, WorkerId};

use super::cases::{Bench, active, config, recovery, sent};

/// Where members stand, and whom they wait for.
pub(crate) type Stand = (WorkerId, Activity, &'static [WorkerId]);

fn position(activity: Activity, waits_for: &[WorkerId], since_s: f64) -> Position {
    let waits_for = waits_for.to_vec();
    Position { activity, waits_for, since_s, usual_s: Some(0.02), ..Position::default() }
}

impl Bench {
    /// Seconds pass in which these members stand where they stand, and answer when they are asked.
    pub(crate) fn stand(
        &mut self,
        seconds: f64,
        stands: &[Stand],
        change: impl Fn(&mut Position),
    ) -> Vec<Action> {
        let (from_s, mut actions) = (self.now_s, Vec::new());
        while self.now_s < from_s + seconds {
            self.now_s += 0.03;
            let asked = self.take(Event::Tick);
            for (worker, activity, waits_for) in stands {
                if sent(&asked, *worker).iter().any(|message| matches!(message, ToWorker::Inquire { .. })) {
                    let mut position = position(*activity, waits_for, self.now_s - from_s);
                    change(&mut position);
                    actions.extend(self.says(*worker, FromWorker::At(position)));
                }
            }
            actions.extend(asked);
            if actions.iter().any(|action| matches!(action, Action::Close(_))) {
                break;
            }
        }
        actions
    }
}

pub(crate) fn late(actions: &[Action]) -> Vec<(WorkerId, Option<WorkerId>)> {
    let who = |action: &Action| match action {
        Action::Journal(Journal::Late { worker, peer, .. }) => Some((*worker, *peer)),
        _ => None,
    };
    actions.iter().filter_map(who).collect()
}

fn in_time(actions: &[Action]) -> bool {
    actions.iter().any(|action| matches!(action, Action::Journal(Journal::InTime { .. })))
}

fn trained(workers: WorkerId) -> Bench {
    let config = Config { expected_step_s: Some(0.02), ..config(workers as u32) };
    let mut bench = Bench::running(config, workers);
    let epoch = bench.coordinator.membership().epoch;
    (1..=workers).for_each(|worker| drop(bench.reports(worker, epoch, 5)));
    bench
}

#[test]
fn a_member_that_hangs_is_named_and_then_replaced() {
    let stands: [Stand; 3] =
        [(1, Activity::Exchanging, &[2, 3]), (2, Activity::Computing, &[]), (3, Activity::Exchanging, &[2])];
    let mut bench = trained(3);
    let begun_s = bench.now_s;
    let actions = bench.stand(0.9, &stands, |_| {});
    assert_eq!(late(&actions), [(2, None)], "{actions:?}");
    assert!(
        sent(&actions, 2).contains(&&ToWorker::Inquire { explain: true }),
        "its threads are written down"
    );
    assert!(recovery(&actions, 1).is_none(), "it may get on by itself");
    let actions = bench.stand(1.0, &stands, |p| p.since_s += 0.9);
    let (next, load) = recovery(&actions, 1).expect("the others go on");
    assert_eq!((active(&next), load), (vec![1, 3], None));
    assert!(bench.now_s - begun_s < 1.06 + 0.3, "three steps and a second: {}", bench.now_s - begun_s);
    assert!(bench.coordinator.was_dismissed(2) && late(&actions).is_empty());
}

#[test]
fn who_had_no_processor_does_not_hang() {
    let stands: [Stand; 2] = [(1, Activity::Exchanging, &[2]), (2, Activity::Computing, &[])];
    let mut bench = trained(2);
    let actions = bench.stand(20.0, &stands, |p| p.starved_s = (p.since_s - 0.3).max(0.0));
    assert_eq!(late(&actions), []);
}

#[test]
fn a_member_that_gets_on_by_itself_makes_patient() {
    let stands: [Stand; 2] = [(1, Activity::Exchanging, &[2]), (2, Activity::Computing, &[])];
    let mut bench = trained(2);
    assert_eq!(late(&bench.stand(0.9, &stands, |_| {})), [(2, None)]);
    let epoch = bench.coordinator.membership().epoch;
    let mut actions = bench.reports(1, epoch, 6);
    actions.extend(bench.reports(2, epoch, 6));
    assert!(in_time(&actions), "{actions:?}");
    assert_eq!(late(&bench.stand(0.9, &stands, |_| {})), [], "it may take as long again");
    assert_eq!(late(&bench.stand(0.9, &stands, |p| p.since_s += 0.9)), [(2, None)]);
}

#[test]
fn a_pair_that_cannot_reach_each_other_is_cut() {
    let stands: [Stand; 3] = [
        (1, Activity::Exchanging, &[2]),
        (2, Activity::Exchanging, &[1]),
        (3, Activity::Exchanging, &[1, 2]),
    ];
    let mut bench = trained(3);
    let actions = bench.stand(2.0, &stands, |_| {});
    // It has fewer virtual nodes than the other.
    assert_eq!(late(&actions), [(1, Some(2))], "{actions:?}");
    let (next, _) = recovery(&actions, 2).expect("the others go on");
    assert_eq!(active(&next), [2, 3]);
}

#[test]
fn a_member_that_waits_for_one_that_computes_is_not_cut_off() {
    let stands: [Stand; 3] =
        [(1, Activity::Exchanging, &[2]), (2, Activity::Exchanging, &[1, 3]), (3, Activity::Computing, &[])];
    let mut bench = trained(3);
    let actions = bench.stand(9.0, &stands, |p| {
        if p.activity == Activity::Computing {
            p.usual_s = Some(5.0);
        }
    });
    assert_eq!(late(&actions), [], "{actions:?}");
}

#[test]
fn a_member_that_cannot_be_replaced_is_not_lost() {
    let all: [Stand; 2] = [(1, Activity::Computing, &[]), (2, Activity::Computing, &[])];
    let mut bench = trained(2);
    let actions = bench.stand(60.0, &all, |_| {});
    assert_eq!(late(&actions), [(1, None), (2, None)], "the machine is slow, or what both read from");
    assert!(!actions.iter().any(|action| matches!(action, Action::Close(_))), "{actions:?}");
    let mut alone = trained(1);
    let actions = alone.stand(60.0, &all[..1], |_| {});
    assert_eq!(late(&actions), [(1, None)]);
    assert!(!actions.contains(&Action::Close(1)));
    let config = Config { replaces_alone: true, ..config(1) };
    let mut bench = Bench::running(config, 1);
    let actions = bench.stand(60.0, &all[..1], |_| {});
    assert!(actions.contains(&Action::Close(1)), "it was asked for");
}

#[test]
fn a_silent_session_is_named_before_it_is_lost_and_what_is_proven_is_committed() {
    let mut bench = trained(3);
    let epoch = bench.coordinator.membership().epoch;
    let mut actions = Vec::new();
    for step in 6..80 {
        bench.now_s += 0.01;
        actions.extend(bench.reports(1, epoch, step));
        actions.extend(bench.reports(2, epoch, step));
    }
    assert_eq!(late(&actions), [(3, None)], "{actions:?}");
    // A holder of step 79 had every member's part in it, and 3 had none without step 78.
    assert_eq!(bench.coordinator.progress().committed(), 78);
    assert!(in_time(&bench.reports(3, epoch, 79)), "it speaks again");
}

#[test]
fn a_coordinator_that_stood_still_calls_no_worker_late() {
    let stands: [Stand; 2] = [(1, Activity::Exchanging, &[2]), (2, Activity::Computing, &[])];
    let mut bench = trained(2);
    bench.now_s += 30.0;
    let actions = bench.stand(0.2, &stands, |p| p.since_s += 30.0);
    assert_eq!(late(&actions), []);
}

#[test]
fn a_plan_that_fails_twice_for_a_newcomer_is_made_again_once() {
    let mut bench = Bench::running(config(1), 1);
    bench.take(Event::Scale(2));
    let plans = |actions: &[Action]| -> Vec<u64> {
        let plan = |message: &&ToWorker| match message {
            ToWorker::Prepare(next) => Some(next.epoch),
            _ => None,
        };
        sent(actions, 2).iter().filter_map(plan).collect()
    };
    let first = plans(&bench.attach(2, None, true));
    assert_eq!(first.len(), 1, "it is invited");
    let lost = |epoch| FromWorker::Lost { epoch, step: 0, peer: Some(1), why: "no connection".into() };
    assert_eq!(plans(&bench.says(2, lost(first[0]))).len(), 1);
    assert!(plans(&bench.says(2, lost(first[0]))).is_empty(), "one failure is answered by one plan");
}
