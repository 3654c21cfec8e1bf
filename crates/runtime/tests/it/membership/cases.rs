//! Targeted histories: the cases in which the protocol is easy to get wrong.

use std::collections::BTreeMap;

use bellwether_core::plan::Synchronisation;
use bellwether_core::record::{Event as Journal, RunOutcome};
use bellwether_runtime::membership::coordinator::{Action, Config, Coordinator, End, Event, Resumed};
use bellwether_runtime::membership::member::{Effect, Member, Rules, Task};
use bellwether_runtime::membership::{Active, FromWorker, Load, Membership, Report, Shadow, SwitchRecord};
use bellwether_runtime::membership::{ToWorker, WorkerId, WorkloadDescription};

use super::scenario::{Fault, Scenario};
use super::world::{Happening, World};

pub(crate) const RULES: Rules = Rules {
    total_steps: 100,
    evaluate_every: 0,
    checkpoint_every: 0,
    slices: false,
    sharded: false,
    verdict_every: 0,
    batches: None,
    rounds: None,
};

pub(crate) fn config(wanted: u32) -> Config {
    Config {
        virtual_nodes: 8,
        wanted,
        min_workers: wanted,
        max_workers: wanted,
        schedule: Vec::new(),
        spawns: false,
        speeds: BTreeMap::new(),
        heartbeat_timeout_s: 100.0,
        boot_timeout_s: 100.0,
        reattach_grace_s: 1.0,
        max_barren_crashes: 10,
        max_accumulation: 1,
        synchronisation: Synchronisation::default(),
        units_per_step: 8,
        evaluate_every: 0,
        checkpoint_every: 0,
        slices: false,
        sharded: false,
        verdict_every: 0,
        verdict_needs_state: true,
        checkpoint_period_s: 0.0,
        last_checkpoint_wait_s: 300.0,
        expected_step_s: None,
        replaces_alone: false,
        resumed: None,
        checkpoint: None,
        workload: None,
    }
}

/// What a worker says that has formed a recovery and applied these steps one by one.
pub(crate) fn ready(epoch: u64, step: u64) -> FromWorker {
    FromWorker::Ready { epoch, step, last: step.min(1), trained: (1, 1) }
}

/// A coordinator under test, and what it said to whom.
pub(crate) struct Bench {
    pub(crate) coordinator: Coordinator,
    pub(crate) now_s: f64,
}

impl Bench {
    pub(crate) fn new(config: Config) -> Bench {
        let mut coordinator = Coordinator::new(config, 0.0);
        coordinator.set_total_steps(RULES.total_steps);
        Bench { coordinator, now_s: 0.0 }
    }

    pub(crate) fn take(&mut self, event: Event) -> Vec<Action> {
        self.now_s += 0.01;
        self.coordinator.handle(event, self.now_s)
    }

    pub(crate) fn says(&mut self, worker: WorkerId, message: FromWorker) -> Vec<Action> {
        self.take(Event::Said(worker, message))
    }

    pub(crate) fn attach(&mut self, worker: WorkerId, held: Option<(u64, u64)>, warm: bool) -> Vec<Action> {
        let workload = warm.then(WorkloadDescription::default);
        self.take(Event::Attached {
            worker,
            address: format!("host:{worker}"),
            process: 1,
            instance: worker,
            waited_s: 0.0,
            held,
            workload,
        })
    }

    /// A coordinator with these workers in step at step 0.
    pub(crate) fn running(config: Config, workers: WorkerId) -> Bench {
        let mut bench = Bench::new(config);
        for worker in 1..=workers {
            bench.attach(worker, None, true);
        }
        let epoch = bench.coordinator.membership().epoch;
        for worker in 1..=workers {
            bench.says(worker, ready(epoch, 0));
        }
        assert_eq!(bench.coordinator.lifecycle(), "training");
        bench
    }

    pub(crate) fn reports(&mut self, worker: WorkerId, epoch: u64, step: u64) -> Vec<Action> {
        let switches = vec![SwitchRecord { epoch, step, stall_s: 0.0 }];
        self.says(worker, FromWorker::Report(Report { epoch, step, switches, ..Report::default() }))
    }
}

pub(crate) fn sent(actions: &[Action], to: WorkerId) -> Vec<&ToWorker> {
    let message = |action| match action {
        &Action::Send(worker, ref message) if worker == to => Some(message),
        _ => None,
    };
    actions.iter().filter_map(message).collect()
}

pub(crate) fn recovery(actions: &[Action], to: WorkerId) -> Option<(Membership, Option<Load>)> {
    sent(actions, to).into_iter().find_map(|message| match message {
        ToWorker::Recover { membership, load, .. } => Some((membership.clone(), *load)),
        _ => None,
    })
}

pub(crate) fn plan(actions: &[Action], to: WorkerId) -> Option<Membership> {
    sent(actions, to).into_iter().find_map(|message| match message {
        ToWorker::Prepare(membership) => Some(membership.clone()),
        _ => None,
    })
}

pub(crate) fn active(membership: &Membership) -> Vec<WorkerId> {
    membership.active.iter().map(|m| m.worker).collect()
}

pub(crate) fn membership(epoch: u64, workers: &[WorkerId], shadows: &[WorkerId]) -> Membership {
    let address = |id: &WorkerId| format!("host:{id}");
    let nodes = |rank: usize| rank as u32..rank as u32 + 1;
    let member =
        |(rank, id): (usize, &WorkerId)| Active { worker: *id, address: address(id), nodes: nodes(rank) };
    Membership {
        epoch,
        active: workers.iter().enumerate().map(member).collect(),
        shadows: shadows.iter().map(|id| Shadow { worker: *id, address: address(id) }).collect(),
        ..Membership::default()
    }
}

/// A member that is in step in epoch 1 after `step` steps.
pub(crate) fn running_member(id: WorkerId, workers: &[WorkerId], step: u64) -> Member {
    let mut member = Member::new(id, RULES);
    member.message(ToWorker::Recover {
        membership: membership(1, workers, &[]),
        load: Some(Load::Fresh),
        keep: false,
    });
    assert!(matches!(member.next_task(), Task::Form { .. }));
    member.formed(1, Some(step), Ok(()));
    member.message(ToWorker::Start { epoch: 1, step, behind: vec![], source: id, accumulation: 1 });
    assert_eq!(member.next_task(), Task::Train);
    member
}

#[test]
fn a_member_that_missed_the_last_result_gets_it_from_one_that_has_it() {
    let mut bench = Bench::running(config(3), 3);
    let actions = bench.take(Event::Gone(3, "killed".into()));
    let (next, load) = recovery(&actions, 1).expect("a crash begins a recovery");
    assert_eq!((active(&next), load), (vec![1, 2], None));
    bench.says(1, ready(next.epoch, 5));
    let actions = bench.says(2, ready(next.epoch, 4));
    let start = ToWorker::Start { epoch: next.epoch, step: 5, behind: vec![2], source: 1, accumulation: 1 };
    assert_eq!(sent(&actions, 2), [&start]);

    let mut member = running_member(2, &[1, 2, 3], 4);
    member.message(ToWorker::Recover { membership: next.clone(), load: None, keep: false });
    member.formed(next.epoch, None, Ok(()));
    member.message(start);
    assert_eq!(member.next_task(), Task::CatchUp { source: 1, behind: vec![2], from: 4, to: 5 });
    // Even if another recovery begins while the result is being applied, it counts.
    member.message(ToWorker::Recover { membership: membership(9, &[2], &[]), load: None, keep: false });
    member.caught_up_with_result();
    assert_eq!(member.step(), 5);
}

#[test]
fn a_joiner_that_dies_before_the_switch_costs_the_members_nothing() {
    let mut bench = Bench::running(config(2), 2);
    bench.take(Event::Scale(3));
    let actions = bench.attach(3, None, true);
    let shadowed = plan(&actions, 1).expect("the newcomer becomes a shadow");
    assert!(shadowed.shadows(3));
    let actions = bench.take(Event::Gone(3, "killed".into()));
    assert!(recovery(&actions, 1).is_none());
    // A later newcomer is asked in; the members may adopt both plans, one after the other.
    let actions = bench.attach(4, None, true);
    let next = plan(&actions, 1).expect("a plan");
    assert!(next.shadows(4) && !next.shadows(3));
    for epoch in [shadowed.epoch, next.epoch] {
        bench.reports(1, epoch, 4);
        assert_eq!(bench.coordinator.membership().epoch, epoch);
    }
}

#[test]
fn a_plan_that_cannot_be_prepared_is_replaced() {
    let mut bench = Bench::running(config(3), 3);
    let actions = bench.says(2, FromWorker::Leave { replace: false });
    let first = plan(&actions, 1).expect("a plan without worker 2").epoch;
    bench.attach(4, None, true);
    bench.take(Event::Scale(4));
    bench.says(3, FromWorker::Leave { replace: false });
    let actions = bench.reports(1, first, 4);
    let second = plan(&actions, 1).expect("a plan without worker 3");
    assert_eq!((active(&second), second.shadows(4)), (vec![1], true));
    // Not all members can connect to the newcomer, so not all can agree to the plan.
    let actions = bench.take(Event::Gone(4, "killed".into()));
    let third = plan(&actions, 1).expect("the same without the newcomer");
    assert_eq!((active(&third), third.shadows.len()), (vec![1], 0));
}

#[test]
fn a_worker_that_is_asked_twice_leaves_once() {
    let mut bench = Bench::running(config(4), 4);
    let actions = bench.says(2, FromWorker::Leave { replace: false });
    let next = plan(&actions, 1).expect("a plan");
    assert_eq!(active(&next), [1, 3, 4]);
    bench.says(2, FromWorker::Leave { replace: false });
    assert_eq!(bench.coordinator.wanted(), 3);
    let actions = bench.says(2, FromWorker::Left { epoch: next.epoch, step: 4 });
    assert!(recovery(&actions, 1).is_none() && actions.contains(&Action::Close(2)));
    assert_eq!(bench.coordinator.membership().epoch, next.epoch);
}

#[test]
fn a_shadow_whose_connection_broke_begins_again() {
    let mut bench = Bench::running(config(1), 1);
    bench.take(Event::Scale(2));
    let actions = bench.attach(2, None, true);
    let epoch = plan(&actions, 1).expect("a plan").epoch;
    bench.reports(1, epoch, 4);
    let lost = FromWorker::Lost { epoch, step: 4, peer: Some(1), why: "reset".into() };
    let actions = bench.says(2, lost);
    assert!(recovery(&actions, 1).is_none(), "the members lack nothing");
    let again = plan(&actions, 2).expect("another plan");
    assert!(again.shadows(2) && again.epoch > epoch);
}

#[test]
fn a_run_has_no_more_members_than_virtual_nodes() {
    let resumed = Resumed {
        epoch: 4,
        last_worker: 2,
        active: vec![1, 2],
        committed: 7,
        accumulation: 1,
        ..Resumed::default()
    };
    let mut bench = Bench::new(Config { virtual_nodes: 1, resumed: Some(resumed), ..config(1) });
    bench.attach(1, Some((4, 7)), true);
    let actions = bench.attach(2, Some((4, 7)), true);
    assert_eq!(active(&recovery(&actions, 1).expect("all are back").0), [1]);
}

#[test]
fn a_joiner_that_dies_around_its_promotion_begins_a_recovery() {
    for adopted in [false, true] {
        let mut bench = Bench::running(config(2), 2);
        bench.take(Event::Scale(3));
        let actions = bench.attach(3, None, true);
        let shadowed = plan(&actions, 1).expect("a plan").epoch;
        bench.reports(1, shadowed, 4);
        let actions = bench.says(3, FromWorker::CaughtUp { epoch: shadowed, step: 6 });
        let promoted = plan(&actions, 1).expect("a plan");
        assert_eq!((active(&promoted), &promoted.promoted), (vec![1, 2, 3], &vec![3]));
        if adopted {
            bench.reports(1, promoted.epoch, 8);
        }
        // The members may have switched without our knowing, so they may wait for it.
        let actions = bench.take(Event::Gone(3, "killed".into()));
        let (next, load) = recovery(&actions, 1).expect("a recovery");
        assert_eq!((active(&next), load), (vec![1, 2], None));
        assert!(next.epoch > promoted.epoch);
    }
}

#[test]
fn a_plan_that_replaces_another_promotes_no_worker_that_may_have_begun_again() {
    let mut bench = Bench::running(config(1), 1);
    bench.take(Event::Scale(3));
    let actions = bench.attach(2, None, true);
    let first = plan(&actions, 1).expect("a plan").epoch;
    bench.reports(1, first, 4);
    // Worker 2 begins again in this plan, beside worker 3, which dies.
    let actions = bench.attach(3, None, true);
    assert!(plan(&actions, 1).is_none(), "a shadow that receives is not disturbed");
    let actions = bench.says(2, FromWorker::CaughtUp { epoch: first, step: 5 });
    let second = plan(&actions, 1).expect("a plan");
    assert_eq!((active(&second), second.shadows(3)), (vec![1, 2], true));
    let actions = bench.take(Event::Gone(3, "killed".into()));
    let third = plan(&actions, 1).expect("a plan without the dead");
    assert_eq!((active(&third), third.shadows.len()), (vec![1, 2], 0));
}

#[test]
fn members_keep_their_state_when_the_coordinator_dies_during_a_plan() {
    let mut member = running_member(1, &[1, 2], 7);
    let next = membership(3, &[1, 2], &[4]);
    assert_eq!(member.message(ToWorker::Prepare(next.clone())), [Effect::Prepare(next.clone())]);
    member.prepared(next.clone(), Ok(()));
    let offer = member.offer(&Task::Train);
    assert_eq!(offer.epoch, 3);
    member.round_done(&Task::Train, &[offer, offer]);
    assert_eq!(member.next_task(), Task::Switch(next));
    assert_eq!(member.disconnected(), [Effect::Interrupt]);
    assert_eq!((member.next_task(), member.held()), (Task::Wait, Some((1, 8))));

    let resumed = Resumed {
        epoch: 1,
        last_worker: 2,
        active: vec![1, 2],
        committed: 7,
        accumulation: 1,
        ..Resumed::default()
    };
    let mut bench = Bench::new(Config { resumed: Some(resumed), ..config(2) });
    assert!(recovery(&bench.attach(1, Some((1, 8)), true), 1).is_none());
    let actions = bench.attach(2, Some((3, 8)), true);
    let (next, load) = recovery(&actions, 1).expect("all are back");
    assert_eq!((active(&next), load), (vec![1, 2], None));
    assert!(next.epoch > 3, "no epoch is used twice");
}

#[test]
fn a_recovery_of_a_recovery_still_loads() {
    let mut bench = Bench::new(config(2));
    bench.attach(1, None, true);
    let actions = bench.attach(2, None, true);
    assert_eq!(recovery(&actions, 1).expect("the first membership").1, Some(Load::Fresh));
    let actions = bench.take(Event::Gone(2, "killed".into()));
    let (next, load) = recovery(&actions, 1).expect("another");
    assert_eq!((active(&next), load), (vec![1], Some(Load::Fresh)));
}

#[test]
fn no_member_waits_for_the_dead() {
    let mut bench = Bench::running(config(1), 1);
    bench.take(Event::Gone(1, "its session broke".into()));
    // It may come back with the state.
    assert!(recovery(&bench.attach(2, None, true), 2).is_none());
    let (_, load) = recovery(&bench.take(Event::Ended(1)), 2).expect("the recovery waits for no member");
    assert_eq!(load, Some(Load::Fresh));
}

#[test]
fn late_workers_do_not_bring_their_old_state() {
    let mut bench = Bench::running(config(2), 2);
    let actions = bench.take(Event::Gone(2, "its session broke".into()));
    let epoch = recovery(&actions, 1).expect("a recovery").0.epoch;
    bench.says(1, ready(epoch, 3));
    let actions = bench.attach(2, Some((1, 3)), true);
    let next = plan(&actions, 2).expect("it begins again");
    assert!(next.shadows(2) && next.rank(2).is_none());

    let mut member = running_member(2, &[1, 2], 3);
    member.disconnected();
    member.reconnected();
    member.prepared(next.clone(), Ok(()));
    assert_eq!(member.next_task(), Task::Switch(next.clone()));
    member.switched(next);
    assert_eq!((member.held(), member.next_task()), (None, Task::BeginShadow));
}

#[test]
fn a_member_that_opens_a_new_session_stays() {
    let mut bench = Bench::running(config(2), 2);
    let actions = bench.attach(2, Some((1, 3)), true);
    assert!(!actions.contains(&Action::Close(2)), "its new session must not be closed");
    assert_eq!(active(&recovery(&actions, 2).expect("a recovery").0), [1, 2]);
}

#[test]
fn a_stale_end_is_not_the_end() {
    let mut bench = Bench::running(config(2), 2);
    let finished = |step, byte| FromWorker::Finished { step, digest: [byte; 32] };
    bench.take(Event::Stop);
    bench.says(1, finished(3, 1));
    let actions = bench.take(Event::Gone(2, "killed".into()));
    let epoch = recovery(&actions, 1).expect("a recovery").0.epoch;
    // This was said before the recovery was heard of.
    bench.says(1, finished(3, 1));
    bench.says(1, ready(epoch, 3));
    let actions = bench.take(Event::Tick);
    let stop = plan(&actions, 1).expect("the run still has to stop").epoch;
    bench.take(Event::Checkpoint(3, Ok(())));
    assert_eq!(bench.coordinator.lifecycle(), "stopping");
    bench.reports(1, stop, 4);
    bench.says(1, finished(4, 2));
    // Uploads may overtake one another.
    bench.take(Event::Checkpoint(4, Ok(())));
    let end = End { how: RunOutcome::Stopped, digest: Some([2; 32]) };
    let ended = |a: &Action| *a == Action::End(end.clone());
    assert_eq!(bench.coordinator.lifecycle(), "ended");
    let mut bench = Bench::running(config(1), 1);
    let actions = bench.take(Event::Stop);
    bench.reports(1, plan(&actions, 1).expect("a plan").epoch, 4);
    bench.says(1, finished(4, 2));
    bench.take(Event::Checkpoint(4, Ok(())));
    assert_eq!(bench.coordinator.lifecycle(), "ended");
    let mut bench = Bench::running(config(1), 1);
    let actions = bench.take(Event::Stop);
    bench.reports(1, plan(&actions, 1).expect("a plan").epoch, 4);
    bench.take(Event::Checkpoint(4, Ok(())));
    bench.take(Event::Checkpoint(2, Ok(())));
    assert!(bench.says(1, finished(4, 2)).iter().any(ended));
}

#[test]
fn a_member_that_broke_before_a_switch_is_not_forgotten() {
    let mut bench = Bench::running(config(2), 2);
    bench.take(Event::Scale(3));
    let actions = bench.attach(3, None, true);
    let next = plan(&actions, 1).expect("a plan").epoch;
    bench.reports(1, next, 4);
    let lost = FromWorker::Lost { epoch: next - 1, step: 3, peer: Some(1), why: "reset".into() };
    let mut actions = bench.says(2, lost);
    bench.now_s += 0.1;
    actions.extend(bench.take(Event::Tick));
    assert_eq!(active(&recovery(&actions, 1).expect("it keeps the others waiting").0), [1, 2]);
}

#[test]
fn what_a_recovery_overtakes_has_no_effect() {
    let mut member = running_member(1, &[1, 2], 7);
    let next = membership(2, &[1], &[]);
    let recovery = membership(3, &[1], &[]);
    member.message(ToWorker::Recover { membership: recovery.clone(), load: None, keep: false });
    member.switched(next);
    assert_eq!(member.next_task(), Task::Form { membership: recovery, load: None });
    assert_eq!(member.finished([0; 32]), []);
    assert_eq!(member.failed(1, Some(2), "too late".into()), []);
    assert!(matches!(member.next_task(), Task::Form { .. }));
    member.formed(3, None, Ok(()));
    member.message(ToWorker::Start { epoch: 3, step: 7, behind: vec![], source: 1, accumulation: 1 });
    // A loss that is not finite is seen by all who do the step, so it is done again.
    member.not_finite("the loss".into());
    assert_eq!(member.next_task(), Task::Finish);
    member.message(ToWorker::Recover { membership: membership(4, &[1], &[]), load: None, keep: false });
    member.formed(4, None, Ok(()));
    member.message(ToWorker::Start { epoch: 4, step: 7, behind: vec![], source: 1, accumulation: 1 });
    assert_eq!(member.next_task(), Task::Train);
}

#[test]
fn only_workers_that_someone_starts_raise_the_number() {
    let resumed = Resumed {
        epoch: 1,
        last_worker: 5,
        active: vec![],
        committed: 0,
        accumulation: 1,
        ..Resumed::default()
    };
    let mut bench = Bench::new(Config { resumed: Some(resumed), max_workers: 8, ..config(2) });
    // Started by the coordinator before, and still booting when that died.
    bench.attach(5, None, false);
    assert_eq!(bench.coordinator.wanted(), 2);
    for (number, wanted) in [(6, 2), (7, 3)] {
        // The first fills an open place, the second is one more.
        let worker = bench.coordinator.new_worker();
        bench.attach(worker, None, false);
        assert_eq!((worker, bench.coordinator.wanted()), (number, wanted));
    }
}

#[test]
fn the_ledger_has_no_gap_when_a_checkpoint_is_ahead_of_the_reports() {
    let resumed = Resumed { epoch: 1, last_worker: 1, committed: 8, accumulation: 1, ..Resumed::default() };
    let mut bench = Bench::new(Config { resumed: Some(resumed), checkpoint: Some(10), ..config(1) });
    let actions = bench.attach(2, None, true);
    assert!(actions.contains(&Action::Journal(Journal::Committed { first: 8, last: 9, accumulation: 1 })));
    assert_eq!(recovery(&actions, 2).expect("a start").1, Some(Load::Checkpoint(10)));
}

/// A history without chance faults.
fn quiet(wanted: u32, schedule: &[(u64, u32)]) -> Scenario {
    Scenario {
        virtual_nodes: 8,
        wanted,
        max_workers: wanted,
        schedule: schedule.to_vec(),
        rules: Rules { total_steps: 60, evaluate_every: 10, checkpoint_every: 7, ..RULES },
        spawns: true,
        scales: Vec::new(),
        poison: None,
        corruption: None,
        stop_at_s: None,
        max_accumulation: 1,
        batches: Vec::new(),
        ..Scenario::new(5)
    }
}

fn run(scenario: Scenario, faults: &[(f64, Fault)]) -> World {
    let mut world = World::new(scenario, false);
    for (time, fault) in faults {
        world.at(*time, Happening::Fault(*fault));
    }
    world.run();
    assert_eq!(world.violation, None);
    assert!(world.finished());
    world
}

#[test]
fn a_schedule_grows_and_shrinks_at_its_steps() {
    let world = run(quiet(2, &[(20, 4), (40, 1)]), &[]);
    let counts = world.workers_by_step();
    assert!(counts[..20].iter().all(|n| *n == 2), "{counts:?}");
    assert!(counts[20..40].iter().all(|n| *n == 4), "{counts:?}");
    assert!(counts[40..].iter().all(|n| *n == 1), "{counts:?}");
}

#[test]
fn the_only_worker_is_killed_and_the_run_goes_on_from_a_checkpoint_or_the_seed() {
    for (every, rolled_back_to) in [(7, true), (0, false)] {
        let mut scenario = quiet(1, &[]);
        scenario.rules.checkpoint_every = every;
        scenario.faults_until_s = 2.0;
        let world = run(scenario, &[(1.3, Fault::KillAll)]);
        let to = world.journal.iter().find_map(|event| match event {
            Journal::RolledBack { to } => Some(*to),
            _ => None,
        });
        assert_eq!(to.expect("steps are lost") > 0, rolled_back_to);
    }
}

#[test]
fn the_only_worker_leaves_when_another_has_taken_its_place() {
    let mut scenario = quiet(1, &[]);
    scenario.rules.total_steps = 200;
    scenario.faults_until_s = 1.0;
    let world = run(scenario, &[(0.95, Fault::Leave)]);
    let lost = |event: &Journal| matches!(event, Journal::RolledBack { .. } | Journal::Crashed { .. });
    assert!(!world.journal.iter().any(lost));
    let switched = |event: &Journal| matches!(event, Journal::Membership { workers, .. } if *workers == [2]);
    assert!(world.journal.iter().any(switched));
}

#[test]
fn a_worker_that_is_asked_to_go_while_none_trains_hands_on_its_state_first() {
    let resumed = Resumed {
        epoch: 1,
        last_worker: 2,
        active: vec![1, 2],
        committed: 7,
        accumulation: 1,
        ..Resumed::default()
    };
    let mut bench = Bench::new(Config { resumed: Some(resumed), ..config(2) });
    bench.attach(1, Some((1, 8)), true);
    assert_eq!(sent(&bench.says(1, FromWorker::Leave { replace: true }), 1), Vec::<&ToWorker>::new());
    let (alone, load) = recovery(&bench.take(Event::Ended(2)), 1).expect("it has the only state");
    assert_eq!((active(&alone), load), (vec![1], None));
    bench.says(1, ready(alone.epoch, 8));
    let shadowed = plan(&bench.attach(3, None, true), 1).expect("a plan in which another receives the state");
    bench.reports(1, shadowed.epoch, 9);
    let actions = bench.says(3, FromWorker::CaughtUp { epoch: shadowed.epoch, step: 10 });
    assert_eq!(active(&plan(&actions, 1).expect("a plan without it")), [3]);
    assert_eq!(bench.coordinator.wanted(), 2, "the job keeps its size");
}

#[test]
fn a_server_that_goes_with_notice_does_not_shrink_the_job() {
    let mut bench = Bench::running(Config { spawns: true, ..config(3) }, 3);
    bench.take(Event::Revoked(2));
    let actions = bench.says(2, FromWorker::Leave { replace: false });
    assert_eq!(active(&plan(&actions, 1).expect("a plan without it")), [1, 3]);
    assert_eq!(bench.coordinator.wanted(), 3);
    assert!(actions.contains(&Action::Spawn(4)), "{actions:?}");
}

#[test]
fn a_straggler_leaves_when_another_has_come_for_it() {
    let mut bench = Bench::running(Config { spawns: true, ..config(3) }, 3);
    let actions = bench.take(Event::Replace(2));
    assert!(actions.contains(&Action::Spawn(4)));
    // Asked again, or for one that is not there: no further worker.
    assert_eq!(bench.take(Event::Replace(2)), []);
    assert_eq!(bench.take(Event::Replace(9)), []);
    let actions = bench.attach(4, None, true);
    let shadowed = plan(&actions, 1).expect("a plan in which it receives the state");
    assert_eq!((active(&shadowed), shadowed.shadows(4)), (vec![1, 2, 3], true));
    bench.reports(1, shadowed.epoch, 4);
    let actions = bench.says(4, FromWorker::CaughtUp { epoch: shadowed.epoch, step: 5 });
    let swapped = plan(&actions, 2).expect("a plan without the straggler, which hears of it");
    assert_eq!(active(&swapped), [1, 3, 4]);
    bench.reports(1, swapped.epoch, 7);
    bench.says(2, FromWorker::Left { epoch: swapped.epoch, step: 7 });
    // Nothing is left to do, and no other worker is started.
    assert_eq!(bench.take(Event::Tick), []);
    assert_eq!(bench.coordinator.wanted(), 3);
}

#[test]
fn a_revoked_server_does_not_shrink_the_job() {
    let mut bench = Bench::running(Config { spawns: true, ..config(3) }, 3);
    let actions = bench.says(2, FromWorker::Leave { replace: true });
    assert_eq!(active(&plan(&actions, 1).expect("a plan")), [1, 3]);
    assert!(actions.contains(&Action::Spawn(4)));
    assert_eq!(bench.coordinator.wanted(), 3);
}

#[test]
fn virtual_nodes_are_shared_by_speed() {
    let speeds: BTreeMap<WorkerId, f64> = [(2, 0.5)].into();
    let mut bench = Bench::running(Config { speeds, ..config(3) }, 3);
    let nodes = |m: &Membership| m.active.iter().map(|a| a.nodes.len()).collect::<Vec<_>>();
    assert_eq!(nodes(bench.coordinator.membership()), [3, 2, 3]);
    let actions = bench.take(Event::Speeds([(2, 0.5), (3, 0.5)].into()));
    assert_eq!(nodes(&plan(&actions, 1).expect("a plan of the same workers")), [4, 2, 2]);
    // The same speeds again change nothing.
    let actions = bench.take(Event::Speeds([(2, 0.5), (3, 0.5)].into()));
    assert_eq!(actions, []);
}

#[test]
fn a_worker_that_is_left_out_goes_and_none_comes_in_its_place() {
    let mut bench = Bench::running(Config { spawns: true, ..config(3) }, 3);
    let actions = bench.take(Event::LeaveOut(2));
    assert_eq!(active(&plan(&actions, 1).expect("a plan")), [1, 3]);
    assert!(!actions.iter().any(|action| matches!(action, Action::Spawn(_))), "{actions:?}");
    assert_eq!(bench.coordinator.wanted(), 2);
    // Twice is once; and one worker stays, whatever is asked.
    bench.take(Event::LeaveOut(2));
    assert_eq!(bench.coordinator.wanted(), 2);
    bench.take(Event::LeaveOut(3));
    bench.take(Event::LeaveOut(1));
    assert_eq!(bench.coordinator.wanted(), 1);
}

#[test]
fn every_worker_is_revoked_twice() {
    let mut scenario = quiet(3, &[]);
    scenario.rules.total_steps = 300;
    scenario.faults_until_s = 9.0;
    let notices: Vec<(f64, Fault)> = (0..12).map(|n| (1.0 + 0.6 * f64::from(n), Fault::Revoke)).collect();
    let world = run(scenario, &notices);
    // Shadows and those that boot may be hit, too.
    let changes = world.workers_by_step().windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(changes >= 6, "{changes}");
}
