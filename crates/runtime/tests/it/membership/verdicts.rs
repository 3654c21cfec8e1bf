//! Verdicts: what the lead of the simulation says, what must hold of it, and targeted histories.

use std::ops::Range;

use bellwether_core::record::{EarlyEnd, Event as Journal, RunOutcome};
use bellwether_runtime::membership::coordinator::{Action, Config, End, Event, Resumed};
use bellwether_runtime::membership::member::{Member, Rules, Task};
use bellwether_runtime::membership::{FromWorker, Load, Membership, Offer, Position, ToWorker, WorkerId};

use super::cases::{Bench, RULES, config, membership, plan, ready, recovery, sent};
use super::world::{Happening, World};

impl World {
    /// The lead answers what is due once it has the checkpoint; at times it is wrong about what is due.
    pub(crate) fn lead(&mut self) {
        let every = self.scenario.rules.verdict_every;
        let due =
            self.coordinator.as_ref().filter(|_| self.still.is_none()).and_then(|c| c.awaited_verdict());
        let due = due.filter(|step| self.is_known(*step));
        if let Some(step) = due.filter(|_| self.random.chance(0.8)) {
            let ends = self.random.chance(0.06).then(|| "enough".to_string());
            self.tell(Event::Verdict(step, ends));
        } else if self.random.chance(0.05) {
            let step = self.random.below(self.scenario.rules.total_steps / every + 2) * every;
            let ends = self.random.chance(0.5).then(|| "wrong".to_string());
            let known = self.watch.verdicts.contains_key(&step) || self.is_known(step);
            if due != Some(step) && known {
                self.tell(Event::Verdict(step, ends));
            }
        }
        let delay = self.random.between(0.01, 0.08);
        self.after(delay, Happening::Lead);
    }

    /// Whether what a verdict after this step is about is known: the state, or the held-out results.
    fn is_known(&self, step: u64) -> bool {
        let is_result = |event: &Journal| matches!(event, Journal::Evaluated { step: at, .. } if *at == step);
        match self.scenario.by_results {
            true => self.journal.iter().any(is_result),
            false => self.stored.contains_key(&step),
        }
    }

    /// Steps of the whole run.
    pub(crate) fn last_step(&self) -> u64 {
        let early = self.watch.verdicts.iter().find_map(|(step, ends)| ends.then_some(*step));
        early.unwrap_or(self.scenario.rules.total_steps)
    }

    /// No step is done beyond a boundary that is not decided, or at which the run ends.
    pub(crate) fn check_decided(&mut self, steps: &Range<u64>) {
        let every = self.scenario.rules.verdict_every;
        let before = steps.start.checked_div(every).map_or(0, |boundaries| boundaries * every);
        if before > 0 && self.watch.verdicts.get(&before) != Some(&false) {
            self.violate(format!(
                "steps {steps:?} are done, and no verdict let the run go on after {before}"
            ));
        }
    }

    /// A verdict is given once, on what all have done and the lead has seen.
    pub(crate) fn check_verdict(&mut self, step: u64, ends: bool) {
        let (committed, last) = (self.watch.committed, self.last_step());
        if self.watch.verdicts.insert(step, ends).is_some() {
            self.violate(format!("step {step} is decided twice"));
        }
        if step != committed || step >= last || !self.is_known(step) {
            self.violate(format!("step {step} is decided with {committed} steps done of {last}"));
        }
    }
}

fn deciding() -> Config {
    Config { verdict_every: 10, heartbeat_timeout_s: 1e9, ..config(2) }
}

/// Two workers that wait after step 10.
fn waiting(config: Config) -> (Bench, Vec<Action>) {
    let mut bench = Bench::running(config, 2);
    let epoch = bench.coordinator.membership().epoch;
    assert_eq!(bench.coordinator.membership().decided, 0);
    bench.reports(1, epoch, 10);
    assert_eq!(bench.coordinator.awaited_verdict(), None, "one has not done it");
    let actions = bench.reports(2, epoch, 10);
    assert_eq!(bench.coordinator.awaited_verdict(), Some(10));
    (bench, actions)
}

fn asked(actions: &[Action]) -> Vec<WorkerId> {
    let asked = |action: &Action| match action {
        Action::Send(worker, ToWorker::SendCheckpoint { step: 10, .. }) => Some(*worker),
        _ => None,
    };
    actions.iter().filter_map(asked).collect()
}

fn verdicts(actions: &[Action]) -> Vec<Journal> {
    let verdict = |action: &Action| match action {
        Action::Journal(event @ Journal::Verdict { .. }) => Some(event.clone()),
        _ => None,
    };
    actions.iter().filter_map(verdict).collect()
}

/// Who was told to go on, and after which step.
fn told(actions: &[Action]) -> Vec<(WorkerId, u64)> {
    let told = |action: &Action| match action {
        Action::Send(worker, ToWorker::GoOn { step }) => Some((*worker, *step)),
        _ => None,
    };
    actions.iter().filter_map(told).collect()
}

fn enough() -> Option<String> {
    Some("enough".into())
}

#[test]
fn members_wait_for_a_verdict_and_go_on_to_the_next() {
    let (mut bench, _) = waiting(deciding());
    assert_eq!(bench.coordinator.lifecycle(), "waiting for the lead's verdict after step 10");
    for (step, ends, why) in [
        (5, false, "the workers wait after every 10 steps"),
        (100, true, "but for the last"),
        (20, false, "10 steps are done"),
        (0, false, "no verdict is due"),
    ] {
        let refusal = bench.coordinator.verdict_refusal(step, ends).expect("it is not due");
        assert!(refusal.contains(why), "{refusal}");
        assert_eq!(verdicts(&bench.take(Event::Verdict(step, ends.then(|| "no".into())))), []);
    }
    let actions = bench.take(Event::Verdict(10, None));
    assert!(matches!(actions[0], Action::Journal(Journal::Verdict { step: 10, ends: None })), "{actions:?}");
    assert_eq!((told(&actions), plan(&actions, 1)), (vec![(1, 10), (2, 10)], None), "no membership changes");
    assert_eq!(bench.coordinator.lifecycle(), "training");
    assert_eq!(bench.coordinator.verdict_refusal(10, false), None, "it may be said again");
    assert!(bench.coordinator.verdict_refusal(10, true).expect("decided").contains("goes on after step 10"));
    for again in [None, enough()] {
        assert_eq!(verdicts(&bench.take(Event::Verdict(10, again))), []);
    }
    let epoch = bench.coordinator.membership().epoch;
    bench.reports(1, epoch, 20);
    bench.reports(2, epoch, 20);
    assert_eq!(bench.coordinator.awaited_verdict(), Some(20));
}

#[test]
fn a_verdict_on_a_state_that_was_written_waits_for_the_members_that_tell_late() {
    let mut bench = Bench::running(deciding(), 2);
    let epoch = bench.coordinator.membership().epoch;
    bench.reports(1, epoch, 10);
    assert!(bench.coordinator.verdict_refusal(10, false).expect("none has seen it").contains("not due"));
    bench.take(Event::Received(10));
    bench.take(Event::Checkpoint(10, Ok(())));
    // Who gave it may give it again until the journal has it.
    for _ in 0..2 {
        assert_eq!(bench.coordinator.verdict_refusal(10, false), None, "its checkpoint was seen");
        assert_eq!(verdicts(&bench.take(Event::Verdict(10, None))), []);
    }
    let actions = bench.reports(2, epoch, 10);
    assert_eq!(verdicts(&actions), [Journal::Verdict { step: 10, ends: None }]);
    assert_eq!(told(&actions), [(1, 10), (2, 10)]);
}

#[test]
fn the_last_step_needs_no_verdict() {
    let resumed = Resumed { epoch: 4, last_worker: 2, committed: 90, decided: 80, ..Resumed::default() };
    let mut bench = Bench::new(Config { resumed: Some(resumed), checkpoint: Some(90), ..deciding() });
    bench.attach(1, None, true);
    let actions = bench.attach(2, None, true);
    assert_eq!(recovery(&actions, 1).expect("it is formed").0.decided, 80, "90 is not decided");
    assert_eq!(told(&bench.take(Event::Verdict(90, None))), [(1, 90), (2, 90)]);
    let epoch = bench.coordinator.membership().epoch;
    bench.says(1, ready(epoch, 90));
    bench.says(2, ready(epoch, 90));
    bench.take(Event::Tick);
    bench.reports(1, epoch, 100);
    bench.reports(2, epoch, 100);
    assert_eq!((bench.coordinator.progress().committed(), bench.coordinator.awaited_verdict()), (100, None));
}

#[test]
fn a_verdict_ends_the_run_well_and_is_the_last() {
    let (mut bench, _) = waiting(deciding());
    let actions = bench.take(Event::Verdict(10, enough()));
    assert_eq!(verdicts(&actions), [Journal::Verdict { step: 10, ends: enough() }]);
    let next = plan(&actions, 2).expect("the members hear of it");
    assert_eq!((told(&actions), next.decided), (vec![], 9), "they wait until it begins");
    assert!(next.stop && bench.coordinator.lifecycle() == "stopping");
    assert!(
        bench.coordinator.verdict_refusal(10, false).expect("decided").contains("ends early after step 10")
    );
    assert!(bench.coordinator.verdict_refusal(20, false).is_some());
    assert_eq!(bench.coordinator.verdict_refusal(10, true), None);
    for worker in [1, 2] {
        bench.reports(worker, next.epoch, 10);
        bench.says(worker, FromWorker::Finished { step: 10, digest: [7; 32] });
    }
    let actions = bench.take(Event::Checkpoint(10, Ok(())));
    let end = End { how: RunOutcome::Finished, digest: Some([7; 32]) };
    assert!(actions.contains(&Action::End(end)), "{actions:?}");
}

#[test]
fn what_was_decided_is_followed_by_the_next_coordinator() {
    let end = EarlyEnd { step: 10, reason: "enough".into() };
    let resumed = Resumed {
        epoch: 4,
        last_worker: 2,
        active: vec![1, 2],
        committed: 10,
        decided: 10,
        ended_early: Some(end.clone()),
        ..Resumed::default()
    };
    let mut bench = Bench::new(Config { resumed: Some(resumed), ..deciding() });
    bench.attach(1, Some((4, 10)), true);
    let actions = bench.attach(2, Some((4, 10)), true);
    let formed = recovery(&actions, 1).expect("both are back").0;
    assert_eq!(formed.decided, 9, "no step is done that was decided not to be");
    bench.says(1, ready(formed.epoch, 10));
    bench.says(2, ready(formed.epoch, 10));
    let actions = bench.take(Event::Tick);
    assert!(plan(&actions, 1).expect("the end").stop);
    assert_eq!((bench.coordinator.awaited_verdict(), bench.coordinator.ended_early()), (None, Some(&end)));
}

#[test]
fn boundaries_that_were_passed_are_decided_whatever_became_of_the_journal() {
    let resumed = Resumed { epoch: 4, last_worker: 2, committed: 35, ..Resumed::default() };
    let mut bench = Bench::new(Config { resumed: Some(resumed), checkpoint: Some(35), ..deciding() });
    bench.attach(1, None, true);
    let actions = bench.attach(2, None, true);
    assert_eq!(recovery(&actions, 1).expect("it is formed").0.decided, 30);
}

#[test]
fn the_state_that_a_verdict_is_about_is_asked_for_until_it_is_written() {
    let (mut bench, actions) = waiting(deciding());
    assert_eq!(asked(&actions), [1], "the job's rule asks for no checkpoint there");
    let mut waits_s = Vec::new();
    for _ in 0..4 {
        bench.take(Event::Checkpoint(10, Err("no space".into())));
        let began_s = bench.now_s;
        while asked(&bench.take(Event::Tick)).is_empty() {
            assert!(bench.now_s - began_s < 20.0, "no holder is asked");
        }
        waits_s.push(bench.now_s - began_s);
    }
    assert!(waits_s.windows(2).all(|pair| pair[1] > 1.5 * pair[0]), "ever more rarely: {waits_s:?}");
    bench.take(Event::Received(10));
    bench.take(Event::Checkpoint(10, Ok(())));
    assert!((0..10_000).all(|_| asked(&bench.take(Event::Tick)).is_empty()), "it is written");

    let (mut bench, actions) = waiting(Config { checkpoint_every: 5, ..deciding() });
    assert!(asked(&actions).is_empty(), "the first member sends it unasked");
    bench.take(Event::Received(10));
    bench.take(Event::Checkpoint(10, Ok(())));
    assert!((0..10_000).all(|_| asked(&bench.take(Event::Tick)).is_empty()));
}

#[test]
fn people_hear_of_a_lead_that_does_not_answer_and_no_worker_is_accused() {
    let (mut bench, _) = waiting(deciding());
    bench.take(Event::Checkpoint(10, Ok(())));
    let mut warnings = Vec::new();
    while bench.now_s < 200.0 {
        let mut actions = bench.take(Event::Tick);
        for worker in [1, 2] {
            let inquired = sent(&actions, worker).iter().any(|m| matches!(m, ToWorker::Inquire { .. }));
            if inquired {
                actions
                    .extend(bench.says(worker, FromWorker::At(Position { step: 10, ..Position::default() })));
            }
        }
        for action in actions {
            match action {
                Action::Journal(Journal::Warning { message }) => warnings.push((bench.now_s, message)),
                Action::Journal(event) => panic!("{event:?}"),
                _ => {}
            }
        }
    }
    let [(at_s, message)] = warnings.as_slice() else { panic!("once: {warnings:?}") };
    assert!((60.0..62.0).contains(at_s) && message.contains("after step 10"), "{at_s}: {message}");
    assert!(verdicts(&bench.take(Event::Verdict(10, None))).len() == 1);
}

#[test]
fn a_worker_that_dies_while_all_wait_changes_nothing_of_the_wait() {
    let (mut bench, _) = waiting(deciding());
    let actions = bench.take(Event::Gone(1, "killed".into()));
    let formed = recovery(&actions, 2).expect("a crash begins a recovery").0;
    assert_eq!((formed.decided, bench.coordinator.awaited_verdict()), (0, None));
    bench.says(2, ready(formed.epoch, 10));
    let actions = bench.take(Event::Tick);
    assert_eq!((bench.coordinator.awaited_verdict(), asked(&actions)), (Some(10), vec![2]));
    bench.take(Event::Verdict(10, None));
    assert_eq!(bench.coordinator.awaited_verdict(), None);
}

#[test]
fn a_scheduled_change_does_not_lead_past_a_verdict() {
    let mut bench = Bench::running(Config { schedule: vec![(10, 1), (50, 2)], ..deciding() }, 2);
    let epoch = bench.coordinator.membership().epoch;
    bench.reports(1, epoch, 10);
    bench.reports(2, epoch, 10);
    bench.reports(1, epoch + 1, 10);
    let changed = bench.coordinator.membership();
    assert_eq!((changed.active.len(), changed.decided), (1, 0), "it is not decided yet");
    assert_eq!(bench.coordinator.awaited_verdict(), Some(10));
}

#[test]
fn a_verdict_does_not_make_newcomers_begin_again() {
    let (mut bench, _) = waiting(deciding());
    bench.take(Event::Scale(3));
    let invited = plan(&bench.attach(3, None, true), 1).expect("a newcomer is invited").epoch;
    bench.reports(1, invited, 10);
    bench.reports(2, invited, 10);
    let actions = bench.take(Event::Verdict(10, None));
    assert_eq!((told(&actions), plan(&actions, 3)), (vec![(1, 10), (2, 10), (3, 10)], None));
    let actions = bench.says(3, FromWorker::CaughtUp { epoch: invited, step: 11 });
    assert_eq!(plan(&actions, 3).expect("it becomes a member").decided, 10);
}

/// A member of these that has begun at step 10, at which a verdict is due.
fn member_at_10(id: WorkerId, members: &[WorkerId], checkpoint_every: u64) -> Member {
    let mut member = Member::new(id, Rules { checkpoint_every, verdict_every: 10, ..RULES });
    let membership = membership(1, members, &[]);
    member.message(ToWorker::Recover { membership, load: Some(Load::Checkpoint(10)), keep: false });
    member.formed(1, Some(10), Ok(()));
    member.message(ToWorker::Start { epoch: 1, step: 10, behind: vec![], source: 1, accumulation: 1 });
    member
}

/// All take part in a round in which they wait.
fn confer(members: &mut [Member]) {
    let offers: Vec<Offer> = members.iter_mut().map(|member| member.offer(&Task::Hold)).collect();
    members.iter_mut().for_each(|member| member.round_done(&Task::Hold, &offers));
}

#[test]
fn members_go_on_after_the_round_in_which_all_have_heard() {
    let mut members = [1, 2].map(|id| member_at_10(id, &[1, 2], 0));
    let tasks = |members: &[Member]| members.iter().map(Member::next_task).collect::<Vec<_>>();
    assert_eq!(tasks(&members), [Task::Wait, Task::Wait]);
    members[0].message(ToWorker::GoOn { step: 10 });
    assert_eq!(tasks(&members), [Task::Hold, Task::Wait], "the other has nothing to say yet");
    // It has something else to say meanwhile.
    let next = Membership { decided: 0, ..membership(2, &[1, 2], &[]) };
    members[1].prepared(next.clone(), Ok(()));
    assert_eq!(tasks(&members), [Task::Hold, Task::Hold]);
    confer(&mut members);
    assert_eq!(tasks(&members), [Task::Hold, Task::Wait], "it hears of the verdict soon");
    members[1].message(ToWorker::GoOn { step: 10 });
    assert_eq!(tasks(&members), [Task::Hold, Task::Hold]);
    confer(&mut members);
    assert_eq!(tasks(&members), [Task::Train, Task::Train]);
    // A membership that was made before the verdict asks once more, and who joins by it as they do.
    members[0].prepared(next.clone(), Ok(()));
    for member in &mut members {
        member.switched(next.clone());
    }
    assert_eq!(tasks(&members), [Task::Hold, Task::Hold]);
    confer(&mut members);
    assert_eq!(tasks(&members), [Task::Train, Task::Train]);
}

#[test]
fn what_an_earlier_coordinator_said_lets_no_member_go_on() {
    let mut member = member_at_10(1, &[1], 0);
    member.message(ToWorker::GoOn { step: 10 });
    assert_eq!(member.next_task(), Task::Hold);
    member.disconnected();
    member.reconnected();
    let membership = membership(2, &[1], &[]);
    member.message(ToWorker::Recover { membership, load: None, keep: true });
    member.formed(2, None, Ok(()));
    member.message(ToWorker::Start { epoch: 2, step: 10, behind: vec![], source: 1, accumulation: 1 });
    assert_eq!(member.next_task(), Task::Wait, "its journal may be lost");
}

#[test]
fn a_member_that_waits_sends_its_state_once_more() {
    let mut member = member_at_10(1, &[1], 10);
    assert_eq!(member.next_task(), Task::Checkpoint);
    member.checkpointed();
    assert!(member.next_task() == Task::Wait && member.awaits_verdict());
    member.message(ToWorker::SendCheckpoint { epoch: 1, step: 10 });
    assert_eq!(member.next_task(), Task::Checkpoint, "it did not become a checkpoint");
    member.checkpointed();
    assert_eq!(member.next_task(), Task::Wait);
}
