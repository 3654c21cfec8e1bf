//! Many members: what they say all the time is looked at together, and nothing that others wait for waits for that.

use bellwether_core::record::{Event as Journal, StepRecord};
use bellwether_runtime::membership::coordinator::{Action, Config, Event};
use bellwether_runtime::membership::{FromWorker, Report, ToWorker, WorkerId};

use super::cases::{Bench, config, plan, ready, recovery};

/// Members enough for a look at all of them to be due only every 50 ms.
const MEMBERS: WorkerId = 1000;

impl Bench {
    /// A worker says this, and no time passes.
    fn says_at_once(&mut self, worker: WorkerId, message: FromWorker) -> Vec<Action> {
        self.coordinator.handle(Event::Said(worker, message), self.now_s)
    }

    fn reports_step(&mut self, worker: WorkerId, step: u64) -> Vec<Action> {
        let epoch = self.coordinator.membership().epoch;
        let record =
            StepRecord { step: step - 1, duration_s: 0.1, compute_s: worker as f64, ..StepRecord::default() };
        let report = Report { epoch, step, steps: vec![record], ..Report::default() };
        self.says_at_once(worker, FromWorker::Report(report))
    }
}

fn many() -> Bench {
    let members = u32::try_from(MEMBERS).expect("not that many");
    let config = Config { virtual_nodes: members, heartbeat_timeout_s: 5.0, ..config(members) };
    let mut bench = Bench::new(config);
    for worker in 1..=MEMBERS {
        bench.attach(worker, None, true);
        bench.now_s -= 0.01;
    }
    let epoch = bench.coordinator.membership().epoch;
    for worker in 1..=MEMBERS {
        assert_eq!(bench.coordinator.lifecycle(), "recovering");
        bench.says_at_once(worker, ready(epoch, 0));
    }
    assert_eq!(bench.coordinator.lifecycle(), "training", "the last one that is ready is not waited for");
    bench
}

fn committed(actions: &[Action]) -> Vec<(u64, u64)> {
    let line = |action: &Action| match action {
        Action::Journal(Journal::Committed { first, last, .. }) => Some((*first, *last)),
        _ => None,
    };
    actions.iter().filter_map(line).collect()
}

#[test]
fn a_step_is_committed_with_the_last_report_and_has_the_account_of_the_slowest() {
    let mut bench = many();
    for step in 1..=3 {
        for worker in 1..MEMBERS {
            assert_eq!(bench.reports_step(worker, step), []);
        }
        let actions = bench.reports_step(MEMBERS, step);
        assert_eq!(committed(&actions), [(step - 1, step - 1)]);
        let slowest = actions.iter().find_map(|action| match action {
            Action::Committed(records) => Some(records[0].compute_s),
            _ => None,
        });
        assert_eq!(slowest, Some(MEMBERS as f64));
    }
}

#[test]
fn what_others_prove_is_committed_with_the_next_look() {
    let mut bench = many();
    (1..MEMBERS).for_each(|worker| drop(bench.reports_step(worker, 1)));
    let actions = bench.reports_step(1, 2);
    assert_eq!(committed(&actions), [], "the last may tell in a moment");
    bench.now_s += 0.06;
    assert_eq!(committed(&bench.take(Event::Tick)), [(0, 0)]);
    bench.reports_step(2, 3);
    let actions = bench.take(Event::Gone(7, "killed".into()));
    assert_eq!(committed(&actions), [(1, 1)], "before a member is lost");
    assert!(recovery(&actions, 1).is_some(), "{actions:?}");
}

#[test]
fn a_plan_begins_with_the_first_report_of_it() {
    let mut bench = many();
    let newcomer = MEMBERS + 1;
    bench.take(Event::Scale(999));
    let epoch = bench.coordinator.membership().epoch + 1;
    let report = Report { epoch, step: 0, ..Report::default() };
    let actions = bench.says_at_once(1, FromWorker::Report(report));
    assert!(matches!(actions[..], [Action::Journal(Journal::Membership { .. })]), "{actions:?}");
    let left = bench.says_at_once(MEMBERS, FromWorker::Left { epoch, step: 0 });
    assert!(recovery(&left, 1).is_none() && left.contains(&Action::Close(MEMBERS)));
    // Another one is wanted again, and is let in at once.
    bench.take(Event::Scale(1000));
    let actions = bench.attach(newcomer, None, true);
    assert!(plan(&actions, 1).is_some_and(|plan| plan.shadows(newcomer)));
}

#[test]
fn the_silent_are_noticed() {
    let mut bench = many();
    let mut lost = Vec::new();
    let until_s = bench.now_s + 5.2;
    while bench.now_s < until_s {
        let actions = bench.take(Event::Tick);
        lost.extend(actions.iter().filter_map(|action| match action {
            Action::Journal(Journal::Crashed { worker, .. }) => Some(*worker),
            _ => None,
        }));
        for action in actions {
            if let Action::Send(worker, ToWorker::Inquire { .. }) = action
                && worker != 9
            {
                bench.says_at_once(worker, FromWorker::Heartbeat);
            }
        }
    }
    assert_eq!(lost, [9]);
}
