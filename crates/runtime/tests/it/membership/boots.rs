//! Targeted histories of workers that cannot train yet: their stages, their failures, and when they are started.

use bellwether_core::record::{Boot, Event as Journal};
use bellwether_runtime::membership::coordinator::{Action, Config, Event};
use bellwether_runtime::membership::{Activity, FromWorker, Position, ToWorker, WorkerId};

use super::cases::{Bench, config, sent};

fn spawned(actions: &[Action]) -> Vec<WorkerId> {
    let who = |action: &Action| match action {
        Action::Spawn(worker) => Some(*worker),
        _ => None,
    };
    actions.iter().filter_map(who).collect()
}

fn warnings(actions: &[Action]) -> String {
    let text = |action: &Action| match action {
        Action::Journal(Journal::Warning { message }) => Some(format!("{message}\n")),
        _ => None,
    };
    actions.iter().filter_map(text).collect()
}

fn is_dismissed(actions: &[Action], worker: WorkerId) -> bool {
    sent(actions, worker).iter().any(|message| matches!(message, ToWorker::Bye { refused: true, .. }))
}

fn at(activity: Activity, allowance_s: f64) -> FromWorker {
    FromWorker::At(Position { activity, allowance_s: Some(allowance_s), ..Position::default() })
}

fn user_failed(what: &str) -> FromWorker {
    FromWorker::UserFailed { what: what.into(), step: 0, node: 0 }
}

/// Time passes; a coordinator that had not looked for long would charge no worker with it.
fn wait(bench: &mut Bench, seconds: f64) -> Vec<Action> {
    let until_s = bench.now_s + seconds;
    let mut actions = Vec::new();
    while bench.now_s < until_s {
        bench.now_s += 0.05;
        actions.extend(bench.take(Event::Tick));
    }
    actions
}

/// A run that starts its own workers, of which the first has a session.
fn started(wanted: u32) -> Bench {
    let mut bench = Bench::new(Config { spawns: true, ..config(wanted) });
    let first = bench.take(Event::Tick);
    assert_eq!(spawned(&first), (1..=WorkerId::from(wanted)).collect::<Vec<_>>());
    bench.attach(1, None, false);
    bench
}

#[test]
fn each_stage_has_an_allowance_and_a_worker_that_exceeds_it_is_told_to_go() {
    let mut bench = started(1);
    bench.says(1, at(Activity::Importing, 30.0));
    assert!(!is_dismissed(&wait(&mut bench, 29.0), 1));
    // The next stage has its own.
    bench.says(1, at(Activity::Compiling, 20.0));
    assert!(!is_dismissed(&wait(&mut bench, 19.0), 1));
    let actions = wait(&mut bench, 2.0);
    assert!(is_dismissed(&actions, 1), "one that joined by hand would not hear of it otherwise");
    assert!(warnings(&actions).contains("it was still compiling after 20 s"), "{}", warnings(&actions));
    assert_eq!(spawned(&actions), [2], "another takes its place");
}

#[test]
fn a_start_is_journaled_with_what_it_took() {
    let mut bench = Bench::new(Config { spawns: true, ..config(1) });
    wait(&mut bench, 3.0);
    bench.attach(1, None, false);
    let took = Boot { start_s: 0.0, importing_s: 2.0, building_s: 0.5, compiling_s: 1.0 };
    let actions = bench.says(1, FromWorker::Booted(took));
    let Some(Action::Journal(Journal::WorkerWarm { worker: 1, boot })) = actions.first() else {
        panic!("{actions:?}")
    };
    assert!((boot.start_s - 3.0).abs() < 0.1 && (boot.total_s() - 6.5).abs() < 0.1, "{boot:?}");
    let nonsense = FromWorker::Booted(Boot { importing_s: -1.0, ..took });
    assert!(is_dismissed(&bench.says(1, nonsense), 1));
}

#[test]
fn a_worker_whose_process_cannot_begin_yet_is_not_late() {
    let mut bench = Bench::new(Config { spawns: true, ..config(1) });
    for _ in 0..600 {
        assert_eq!(warnings(&wait(&mut bench, 0.5)), "");
        bench.coordinator.await_start(1);
    }
    let actions = wait(&mut bench, 101.0);
    assert!(warnings(&actions).contains("it was not there 100 s after its start"), "{}", warnings(&actions));
}

#[test]
fn a_script_that_fails_before_it_trains_ends_the_run_unless_somebody_brought_it_by_hand() {
    let mut bench = started(1);
    let by_hand = bench.coordinator.new_worker();
    bench.attach(by_hand, None, false);
    bench.says(by_hand, at(Activity::Importing, 600.0));
    let actions = bench.says(by_hand, user_failed("train.py:1: no torch"));
    assert!(
        warnings(&actions).contains("train.py:1: no torch (worker 2, importing)"),
        "{}",
        warnings(&actions)
    );
    assert!(spawned(&wait(&mut bench, 1.0)).is_empty(), "the run goes on with its own");
    bench.says(1, at(Activity::Importing, 600.0));
    bench.says(1, user_failed("train.py:1: no torch"));
    assert!(spawned(&wait(&mut bench, 1.0)).is_empty(), "another would fail as well");
}
