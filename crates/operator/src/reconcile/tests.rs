//! Single situations, and a world in which anything happens.

use super::*;

mod world;

const NODES: [&str; 3] = ["n0", "n1", "n2"];

fn pod(role: Role, rank: u32, node: &str) -> PodSeen {
    PodSeen {
        name: format!("{}-1-{rank}", role.label()),
        role,
        rank,
        generation: 1,
        node: node.into(),
        life: Life::Running { ready: true },
        is_deleting: false,
        is_disrupted: false,
        exit: None,
        waits_for: None,
        address: None,
        created_s: 0.0,
    }
}

fn desired(workers: u32, places: &[(&str, u32)]) -> Desired {
    let places = places.iter().map(|(node, count)| ((*node).to_owned(), *count)).collect();
    Desired { workers, servers: 0, places, known_end: None, reason: String::new() }
}

/// A job that trains with two workers, one on each of two nodes.
fn training() -> Observed {
    let desired = desired(2, &[("n0", 1), ("n1", 1)]);
    Observed {
        allocation: Allocation {
            generation: 1,
            workers: 2,
            servers: 0,
            places: desired.places.clone(),
            since_s: 0.0,
            ran_s: 0,
        },
        desired: Some(desired),
        terms: Terms {
            backend: Backend::Native,
            min_workers: 1,
            grace_s: 30,
            start_timeout_s: 100,
            cooldown_s: 0,
            active_deadline_s: None,
            total_steps: 100,
            failure: FailurePolicy { max_restarts: 3, ..FailurePolicy::default() },
        },
        pods: vec![pod(Role::Coordinator, 0, "n2"), pod(Role::Worker, 0, "n0"), pod(Role::Worker, 1, "n1")],
        whole: None,
        nodes: Nodes::default(),
        restarts: Restarts::default(),
        is_over: false,
        watched_since_s: 0.0,
        now_s: 10.0,
    }
}

fn created(todo: &Todo) -> Vec<(Role, u32, Option<&str>)> {
    let created = |action| match action {
        &Action::Create(NewPod { role, rank, ref node, .. }) => Some((role, rank, node.as_deref())),
        _ => None,
    };
    todo.actions.iter().filter_map(created).collect()
}

fn deleted<'t>(todo: &'t Todo) -> Vec<&'t str> {
    let deleted = |action: &'t Action| match action {
        Action::Delete { pod, .. } => Some(pod.as_str()),
        _ => None,
    };
    todo.actions.iter().filter_map(deleted).collect()
}

#[test]
fn nothing_is_done_until_the_engine_has_spoken() {
    assert_eq!(reconcile(&Observed { desired: None, ..training() }), Todo::default());
}

#[test]
fn what_is_as_wanted_is_left_alone() {
    assert_eq!(reconcile(&training()).actions, [Action::Tell(News::Settled(2))]);
}

#[test]
fn a_decision_is_written_before_anything_else() {
    let mut seen = training();
    seen.desired = Some(desired(3, &[("n0", 1), ("n1", 2)]));
    let todo = reconcile(&seen);
    let [Action::Allocate(allocation, _)] = &todo.actions[..] else { panic!("{todo:?}") };
    assert_eq!((allocation.generation, allocation.workers), (2, 3));
    seen.allocation = allocation.clone();
    assert_eq!(created(&reconcile(&seen)), [(Role::Worker, 2, Some("n1"))]);
}

#[test]
fn the_highest_ranks_go_first() {
    let mut seen = training();
    seen.pods.push(pod(Role::Worker, 2, "n0"));
    let todo = reconcile(&seen);
    assert_eq!((deleted(&todo), created(&todo)), (vec!["worker-1-2"], vec![]));
}

#[test]
fn a_drained_node_is_left_once_a_successor_is_ready() {
    let mut seen = training();
    seen.nodes.draining.insert("n1".into());
    let places = desired(2, &[("n0", 2)]);
    seen.allocation = Allocation { generation: 2, places: places.places.clone(), ..seen.allocation };
    seen.desired = Some(places);
    let todo = reconcile(&seen);
    assert_eq!((deleted(&todo), created(&todo)), (vec![], vec![(Role::Worker, 2, Some("n0"))]));
    seen.pods.push(PodSeen { life: Life::Pending, ..pod(Role::Worker, 2, "n0") });
    assert_eq!(reconcile(&seen).actions, [], "it starts");
    seen.pods[3].life = Life::Running { ready: true };
    assert_eq!(deleted(&reconcile(&seen)), ["worker-1-1"]);
    seen.pods[3].life = Life::Pending;
    seen.now_s = 61.0;
    assert_eq!(deleted(&reconcile(&seen)), ["worker-1-1"], "no longer than a minute");
}

#[test]
fn pods_of_a_lost_node_are_replaced_without_grace() {
    let mut seen = training();
    seen.nodes.lost.insert("n1".into());
    let places = desired(2, &[("n0", 2)]);
    seen.allocation = Allocation { generation: 2, places: places.places.clone(), ..seen.allocation };
    seen.desired = Some(places);
    let todo = reconcile(&seen);
    let grace = |action: &Action| matches!(action, Action::Delete { grace_s: 0, .. });
    assert!(todo.actions.iter().any(grace), "{todo:?}");
    assert_eq!(created(&todo), [(Role::Worker, 2, Some("n0"))]);
}

#[test]
fn a_lost_node_within_the_bounds_gets_no_pod() {
    let mut seen = training();
    seen.nodes.lost.insert("n1".into());
    // While a job shrinks, it has more places than workers.
    let places = desired(2, &[("n0", 1), ("n1", 1), ("n2", 2)]);
    seen.allocation = Allocation { places: places.places.clone(), ..seen.allocation };
    seen.desired = Some(places);
    assert_eq!(created(&reconcile(&seen)), [(Role::Worker, 2, Some("n2"))]);
}

#[test]
fn a_job_that_grew_grows_again_once_its_author_lets_it() {
    let mut seen = training();
    seen.terms.cooldown_s = 60;
    seen.desired = Some(desired(3, &[("n0", 2), ("n1", 1)]));
    let todo = reconcile(&seen);
    assert_eq!((&todo.actions[..], todo.again_s), (&[Action::Tell(News::Settled(2))][..], Some(50.0)));
    seen.now_s = 60.0;
    assert!(matches!(&reconcile(&seen).actions[..], [Action::Allocate(next, _)] if next.workers == 3));
    // It shrinks at once.
    seen.now_s = 10.0;
    seen.desired = Some(desired(1, &[("n0", 1)]));
    assert!(matches!(&reconcile(&seen).actions[..], [Action::Allocate(next, _)] if next.workers == 1));
}

#[test]
fn a_job_that_ran_for_as_long_as_it_may_has_failed() {
    let mut seen = training();
    seen.terms.active_deadline_s = Some(100);
    seen.allocation = Allocation { ran_s: 60, since_s: 20.0, ..seen.allocation };
    seen.now_s = 50.0;
    assert_eq!(reconcile(&seen).again_s, Some(10.0), "it ran for 60 s before, and for 30 s now");
    // What it has run is kept with the next decision.
    let wider = Observed { desired: Some(desired(3, &[("n0", 3)])), ..seen.clone() };
    let [Action::Allocate(next, _)] = &reconcile(&wider).actions[..] else { panic!("it is written") };
    assert_eq!(next.ran_s, 90);
    // Pauses do not count.
    let none = desired(0, &[]);
    let paused = Allocation { workers: 0, places: BTreeMap::new(), ..seen.allocation.clone() };
    let resumed = Observed { allocation: paused, pods: Vec::new(), now_s: 500.0, ..seen.clone() };
    let [Action::Allocate(next, _)] = &reconcile(&resumed).actions[..] else { panic!("it is written") };
    assert_eq!(next.ran_s, 60);
    let waits = reconcile(&Observed { desired: Some(none), ..resumed });
    assert!(!waits.actions.iter().any(|action| matches!(action, Action::Tell(News::Failed(_)))), "{waits:?}");
    seen.now_s = 60.0;
    let todo = reconcile(&seen);
    assert!(matches!(&todo.actions[0], Action::Tell(News::Failed(why)) if why.contains("100 s")), "{todo:?}");
    assert_eq!(deleted(&todo).len(), 3, "its pods go");
}

#[test]
fn a_coordinator_that_died_is_replaced_and_one_that_spoke_is_heard() {
    let mut seen = training();
    seen.pods[0].life = Life::Ended;
    seen.pods[0].exit = Some(Exit { code: Some(143), ..Exit::default() });
    let todo = reconcile(&seen);
    assert!(matches!(&todo.actions[0], Action::Count { is_fault: false, was_coordinator: true, .. }));
    assert_eq!(created(&todo), [(Role::Coordinator, 1, None)], "the old name may still be there");
    let word = Final { outcome: "finished".into(), unix_s: 9.0, ..Final::default() };
    seen.pods[0].exit = Some(Exit { code: Some(0), word: Some(word.clone()), ..Exit::default() });
    let todo = reconcile(&seen);
    assert_eq!(todo.actions[0], Action::Tell(News::Ended(word)));
    assert_eq!(deleted(&todo), ["worker-1-0", "worker-1-1"]);
}

#[test]
fn a_job_that_should_leave_is_stopped_and_then_its_end_is_heard() {
    let mut seen = training();
    seen.desired = Some(desired(0, &[]));
    seen.allocation.workers = 0;
    assert_eq!(reconcile(&seen), Todo { actions: vec![Action::Stop], again_s: Some(20.0) });
    seen.now_s = 31.0;
    assert_eq!(deleted(&reconcile(&seen)), ["coordinator-1-0"], "it had its grace");
    seen.pods.clear();
    assert_eq!(reconcile(&seen).actions, [Action::Tell(News::Lost("its pods are gone".into()))]);
}

#[test]
fn a_job_that_shrinks_keeps_its_lowest_rank_and_gets_no_other_pods() {
    let mut seen = training();
    // It may be where it was until the others are gone.
    let shrunk = desired(1, &[("n0", 1), ("n1", 1)]);
    seen.allocation = Allocation { workers: 1, places: shrunk.places.clone(), ..seen.allocation };
    seen.desired = Some(shrunk);
    let todo = reconcile(&seen);
    assert_eq!((created(&todo), deleted(&todo)), (vec![], vec!["worker-1-1"]), "{todo:?}");
    seen.pods.retain(|pod| pod.name != "worker-1-1");
    assert_eq!(reconcile(&seen).actions, [Action::Tell(News::Settled(1))]);
}

#[test]
fn pods_that_fail_by_their_own_fault_are_replaced_after_a_pause_and_not_for_ever() {
    let mut seen = training();
    seen.pods[2].life = Life::Ended;
    seen.pods[2].exit = Some(Exit { code: Some(1), ..Exit::default() });
    let todo = reconcile(&seen);
    assert!(matches!(&todo.actions[0], Action::Count { is_fault: true, .. }), "{todo:?}");
    seen.pods.pop();
    seen.restarts = Restarts { crash: 3, coordinator: 0, last_s: 10.0 };
    let todo = reconcile(&seen);
    assert_eq!((created(&todo), todo.again_s), (vec![], Some(4.0)));
    seen.restarts.crash = 4;
    assert!(matches!(&reconcile(&seen).actions[..], [Action::Tell(News::Failed(_)), ..]));
}

#[test]
fn a_job_that_does_not_become_ready_gives_its_nodes_back() {
    let mut seen = training();
    seen.terms.min_workers = 2;
    seen.pods[2].life = Life::Pending;
    seen.pods[2].waits_for = Some("0/3 nodes are available".into());
    assert_eq!(reconcile(&seen).again_s, Some(90.0));
    seen.now_s = 100.0;
    let todo = reconcile(&seen);
    let [Action::Tell(News::Unplaced(why))] = &todo.actions[..] else { panic!("{todo:?}") };
    assert_eq!(why, "1 of at least 2 pods were ready after 100 s: 0/3 nodes are available");
}

#[test]
fn a_group_begins_again_as_a_whole_when_its_size_changes() {
    let mut seen = training();
    seen.terms.backend = Backend::Group;
    seen.pods.remove(0);
    assert_eq!(reconcile(&seen).actions, [Action::Tell(News::Settled(2))]);
    let more = desired(3, &[("n0", 2), ("n1", 1)]);
    let places = more.places.clone();
    seen.allocation = Allocation { generation: 2, workers: 3, places, ..seen.allocation };
    seen.desired = Some(more);
    let todo = reconcile(&seen);
    assert_eq!((deleted(&todo).len(), created(&todo).len()), (2, 0));
    seen.pods.clear();
    assert_eq!(created(&reconcile(&seen)).len(), 3);
}

#[test]
fn a_group_that_loses_a_pod_begins_again_as_a_whole_once_all_were_there() {
    let mut seen = training();
    seen.terms.backend = Backend::Group;
    seen.pods.remove(0);
    let lost = seen.pods.pop().unwrap();
    // Those that are there wait for it.
    assert_eq!(created(&reconcile(&seen)), [(Role::Worker, 1, Some("n1"))]);
    seen.whole = Some(1);
    let begins_again = |seen: &Observed| match &reconcile(seen).actions[..] {
        [Action::Replace { allocation, is_fault: false, .. }] => allocation.generation == 2,
        other => panic!("{other:?}"),
    };
    assert!(begins_again(&seen));
    seen.pods.push(PodSeen { is_deleting: true, ..lost.clone() });
    assert!(begins_again(&seen), "it is on its way out");
    seen.pods[1] = lost;
    assert_eq!(reconcile(&seen).actions, [Action::Tell(News::Settled(2))]);
}
