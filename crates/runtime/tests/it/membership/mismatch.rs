//! Silent corruption: what follows when two workers computed a virtual node differently.

use std::ops::Range;

use bellwether_core::record::Event as Journal;
use bellwether_runtime::membership::coordinator::{Action, Config, Event};
use bellwether_runtime::membership::member::{Effect, Task};
use bellwether_runtime::membership::{FromWorker, Mismatch, ToWorker, Verdict, WorkerId};
use bellwether_runtime::verification::{Check, due};

use super::cases::{Bench, RULES, active, config, recovery, running_member, sent};
use super::process::Activity;
use super::world::World;
use bellwether_testkit::Random;

/// Checks of a history, and a worker that computes wrong whatever is checked.
#[derive(Debug, Clone)]
pub(crate) struct Corruption {
    every: u64,
    wrong: WorkerId,
    quarantines: bool,
}

impl Corruption {
    /// One history in eight has some, of those with faults; the dice of all others stay as they are.
    pub(crate) fn draw(seed: u64) -> Option<Corruption> {
        let mut random = Random::new(seed ^ 0x00C0_FFEE);
        (!seed.is_multiple_of(5) && random.chance(0.15)).then(|| Corruption {
            every: 1 + random.below(9),
            wrong: 1 + random.below(4),
            quarantines: random.chance(0.8),
        })
    }
}

impl World {
    /// The check of a training round: true where it fails, so that nothing is applied.
    pub(crate) fn mismatched(&mut self, id: WorkerId, epoch: u64, steps: &Range<u64>) -> bool {
        let Some(Corruption { every, wrong, quarantines }) = self.scenario.corruption.clone() else {
            return false;
        };
        let membership = self.data.epochs[&epoch].membership.clone();
        let Some(check) = due(every, steps, self.scenario.virtual_nodes, &membership) else { return false };
        let Check { step, node, worker, checker, judge } = check;
        // A lone worker computes the same twice.
        if worker == checker || ![worker, checker].contains(&wrong) {
            return false;
        }
        self.watch.mismatches += 1;
        let judge = judge.filter(|_| quarantines);
        let mut mismatch = Mismatch { epoch, step, node, worker, checker, verdict: Verdict::Open };
        if let Some(judge) = judge {
            mismatch.verdict = Verdict::Awaited;
            self.send_up(id, FromWorker::Mismatched(mismatch));
            if self.in_fault_lifecycle() && self.random.chance(0.2) {
                // A worker went away before the third one was heard.
                let effects = self.process(id).member.failed(epoch, None, "connection lost".into());
                self.carry_out_effects(id, effects);
                return true;
            }
            mismatch.verdict = Verdict::Wrong { worker: wrong, judge };
        }
        self.send_up(id, FromWorker::Mismatched(mismatch));
        let process = self.process(id);
        process.last_result = None;
        process.activity = Activity::Waiting;
        let effects = process.member.mismatched(&mismatch);
        self.carry_out_effects(id, effects);
        true
    }

    /// A worker that was sent away does not compute again.
    pub(crate) fn check_quarantine(&mut self, event: &Journal) {
        match event {
            Journal::Quarantined { worker, .. } => {
                self.watch.quarantined.insert(*worker);
                let right = self.scenario.corruption.as_ref().is_some_and(|c| c.wrong == *worker);
                if !right {
                    self.violate(format!("worker {worker} is sent away and was right"));
                }
            }
            Journal::Membership { workers, shadows, epoch, .. } => {
                let back = workers.iter().chain(shadows).find(|id| self.watch.quarantined.contains(id));
                if let Some(worker) = back {
                    self.violate(format!("worker {worker} is back in epoch {epoch}"));
                }
            }
            _ => {}
        }
    }
}

fn journaled(actions: &[Action]) -> Vec<&Journal> {
    let mut events = Vec::new();
    for action in actions {
        if let Action::Journal(event) = action {
            events.push(event);
        }
    }
    events
}

/// Three workers that have committed five steps, and what they say of the sixth.
fn three(spawns: bool) -> (Bench, Mismatch) {
    let mut bench = Bench::running(Config { spawns, ..config(3) }, 3);
    let epoch = bench.coordinator.membership().epoch;
    (1..=3).for_each(|worker| drop(bench.reports(worker, epoch, 5)));
    let mismatch = Mismatch { epoch, step: 5, node: 4, worker: 2, checker: 3, verdict: Verdict::Awaited };
    (bench, mismatch)
}

#[test]
fn a_worker_that_is_wrong_is_sent_away_and_replaced() {
    let (mut bench, mismatch) = three(true);
    let actions = bench.says(1, FromWorker::Mismatched(mismatch));
    assert!(
        matches!(journaled(&actions)[..], [Journal::Mismatched(found)] if (found.worker, found.checker) == (2, 3))
    );
    assert!(bench.says(3, FromWorker::Mismatched(mismatch)).is_empty(), "it is known");
    let verdict = Verdict::Wrong { worker: 2, judge: 1 };
    let mut actions = bench.says(3, FromWorker::Mismatched(Mismatch { verdict, ..mismatch }));
    assert!(actions.contains(&Action::Journal(Journal::Quarantined { worker: 2, step: 5, judge: 1 })));
    assert!(matches!(sent(&actions, 2)[..], [ToWorker::Bye { refused: true, .. }, ..]));
    let next = recovery(&actions, 1).expect("a membership without it").0;
    assert_eq!(active(&next), [1, 3]);
    assert!(
        bench.says(1, FromWorker::Mismatched(Mismatch { verdict, ..mismatch })).is_empty(),
        "it is known"
    );
    for worker in [1, 3] {
        let ready = FromWorker::Ready { epoch: next.epoch, step: 5, last: 0, trained: (mismatch.epoch, 1) };
        actions.extend(bench.says(worker, ready));
    }
    actions.extend(bench.take(Event::Tick));
    assert!(actions.iter().any(|action| matches!(action, Action::Spawn(_))), "{actions:?}");
    assert!(bench.coordinator.refusal(2, 77).is_some(), "another process of its number is not let in");
    assert_eq!(bench.coordinator.progress().mismatches[0].wrong, Some(2));
    assert_eq!(bench.coordinator.progress().committed(), 5);
}

#[test]
fn where_it_cannot_be_told_the_run_ends_before_the_step() {
    let (mut bench, mismatch) = three(false);
    let open = FromWorker::Mismatched(Mismatch { verdict: Verdict::Open, ..mismatch });
    let mut actions = Vec::new();
    for worker in 1..=3 {
        actions.extend(bench.says(worker, open.clone()));
        actions.extend(bench.says(worker, FromWorker::Finished { step: 5, digest: [1; 32] }));
    }
    actions.extend(bench.take(Event::Checkpoint(5, Ok(()))));
    let end = actions.iter().find_map(|action| match action {
        Action::End(end) => Some(end),
        _ => None,
    });
    let end = end.expect("an end");
    assert_eq!(end.how.word(), "failed");
    for word in ["workers 2 and 3", "virtual node 4", "step 5"] {
        assert!(end.how.reason().contains(word), "{}", end.how.reason());
    }
}

#[test]
fn a_member_applies_nothing_of_a_step_that_differs() {
    let mismatch = |verdict| Mismatch { epoch: 1, step: 0, node: 0, worker: 1, checker: 2, verdict };
    let mut member = running_member(1, &[1, 2, 3], 0);
    let before = member.step();
    assert!(member.mismatched(&mismatch(Verdict::Open)).is_empty());
    assert_eq!((member.step(), member.next_task()), (before, Task::Finish));
    let mut member = running_member(1, &[1, 2, 3], 0);
    let effects = member.mismatched(&mismatch(Verdict::Wrong { worker: 2, judge: 3 }));
    assert!(matches!(effects[..], [Effect::Send(FromWorker::Lost { peer: None, .. })]), "{effects:?}");
    assert_eq!((member.step(), member.next_task()), (before, Task::Wait));
    assert!(before < RULES.total_steps);
    member.message(ToWorker::Bye { reason: "the run is over".into(), refused: false });
    assert!(member.mismatched(&mismatch(Verdict::Wrong { worker: 2, judge: 3 })).is_empty());
    assert!(matches!(member.next_task(), Task::Exit { .. }), "it was told to go");
}
