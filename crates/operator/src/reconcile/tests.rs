//! Single situations, and a world in which anything happens.

use proptest::prelude::*;

use super::*;

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
        },
        desired: Some(desired),
        terms: Terms {
            backend: Backend::Native,
            min_workers: 1,
            grace_s: 30,
            start_timeout_s: 100,
            cooldown_s: 0,
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

/// A cluster that does what it is told, late, and loses things.
struct World {
    seen: Observed,
    /// What the next look shows, which may be behind.
    shown: Observed,
    names: BTreeSet<String>,
    engine: Option<String>,
}

impl World {
    fn new() -> World {
        let seen = Observed {
            pods: Vec::new(),
            allocation: Allocation::default(),
            desired: None,
            now_s: 1000.0,
            ..training()
        };
        World { shown: seen.clone(), seen, names: BTreeSet::new(), engine: None }
    }

    /// Nodes that answer; one of them always does.
    fn answering(&mut self) -> Vec<&'static str> {
        let lost = &mut self.seen.nodes.lost;
        if lost.len() == NODES.len() {
            lost.clear();
        }
        NODES.into_iter().filter(|node| !lost.contains(*node)).collect()
    }

    fn want(&mut self, workers: u32, servers: u32, spread: u32) {
        let mut places = BTreeMap::new();
        let nodes = self.answering();
        for slot in 0..if workers == 0 { 0 } else { workers + servers } {
            *places.entry(nodes[(slot + spread) as usize % nodes.len()].to_owned()).or_default() += 1;
        }
        let known_end = self.seen.desired.as_ref().and_then(|desired| desired.known_end);
        self.seen.desired = Some(Desired { workers, servers, places, known_end, reason: String::new() });
    }

    /// Carries out what is asked; the API server answers 409 where that was asked before, and some calls are lost.
    fn act(&mut self, lost: u64) -> usize {
        let todo = reconcile(&self.shown);
        let mut done = 0;
        for (index, action) in todo.actions.iter().enumerate() {
            let is_lost = lost >> (index % 64) & 1 == 1;
            if is_lost {
                // The first failure ends the attempt.
                return done + 1;
            }
            done += usize::from(self.carry_out(action));
        }
        done
    }

    fn carry_out(&mut self, action: &Action) -> bool {
        match action {
            Action::Allocate(next, _) => {
                if next.generation == self.seen.allocation.generation + 1 {
                    self.seen.allocation = next.clone();
                }
            }
            Action::Replace { allocation: next, is_fault, .. } => {
                if next.generation == self.seen.allocation.generation + 1 {
                    self.seen.allocation = next.clone();
                    self.seen.restarts.crash += u32::from(*is_fault);
                }
            }
            Action::Create(new) => {
                assert_eq!(new.generation, self.shown.allocation.generation);
                let name = format!("{}-{}-{}", new.role.label(), new.generation, new.rank);
                if self.seen.pods.iter().any(|pod| pod.name == name) {
                    return true;
                }
                self.names.insert(name.clone());
                let node = new.node.clone().unwrap_or_else(|| self.answering()[0].into());
                let (life, generation, created_s) = (Life::Pending, new.generation, self.seen.now_s);
                let new = pod(new.role, new.rank, &node);
                self.seen.pods.push(PodSeen { name, life, generation, created_s, ..new });
            }
            Action::Delete { pod: name, grace_s: 0, .. } => self.seen.pods.retain(|pod| pod.name != *name),
            Action::Delete { pod: name, .. } => {
                let doomed = self.seen.pods.iter_mut().filter(|pod| pod.name == *name);
                doomed.for_each(|pod| pod.is_deleting = true);
            }
            Action::Count { pod: name, is_fault, .. } => {
                self.seen.restarts.crash += u32::from(*is_fault);
                self.seen.restarts.last_s = self.seen.now_s;
                self.seen.pods.retain(|pod| pod.name != *name);
            }
            Action::Stop => {
                let word = Final { outcome: "stopped".into(), unix_s: self.seen.now_s, ..Final::default() };
                let exit = Exit { code: Some(0), word: Some(word), ..Exit::default() };
                let live = |pod: &&mut PodSeen| pod.role == Role::Coordinator && pod.is_live();
                if let Some(lead) = self.seen.pods.iter_mut().find(live) {
                    (lead.life, lead.exit) = (Life::Ended, Some(exit));
                }
            }
            Action::Tell(News::Ended(word)) => {
                if let Some(desired) = &mut self.seen.desired {
                    desired.known_end = Some(word.unix_s.to_bits());
                }
                self.engine = Some(word.outcome.clone());
            }
            Action::Tell(News::Failed(_) | News::Lost(_) | News::Unplaced(_)) => {
                self.engine = Some("lost".into());
                return false;
            }
            Action::Tell(News::Settled(_)) => return false,
        }
        true
    }

    /// Time passes: pods start, and leave. A look sees all of it, or nothing.
    fn pass(&mut self, looks: bool) {
        self.seen.now_s += 1.0;
        let lost = self.seen.nodes.lost.clone();
        self.seen.pods.retain(|pod| !pod.is_deleting || lost.contains(&pod.node));
        for pod in &mut self.seen.pods {
            if pod.life == Life::Pending && !lost.contains(&pod.node) {
                pod.life = Life::Running { ready: true };
            }
        }
        let Allocation { generation, workers, .. } = self.seen.allocation;
        let of_set =
            |pod: &&PodSeen| pod.generation == generation && pod.role == Role::Worker && pod.is_ready();
        let is_group = self.seen.terms.backend == Backend::Group;
        if is_group && workers > 0 && self.seen.pods.iter().filter(of_set).count() == workers as usize {
            self.seen.whole = Some(generation);
        }
        if looks {
            self.shown = self.seen.clone();
        }
        // What the engine wants is known at once.
        self.shown.desired = self.seen.desired.clone();
        self.shown.now_s = self.seen.now_s;
    }

    fn on(&self, node: &str) -> u32 {
        let computing = |pod: &&PodSeen| pod.role != Role::Coordinator && pod.node == node && pod.is_live();
        self.seen.pods.iter().filter(computing).count() as u32
    }
}

#[derive(Debug, Clone)]
enum Fate {
    Want { workers: u32, servers: u32, spread: u32 },
    Kill { which: usize, code: i32 },
    Pass { lost: u64, looks: bool },
    Drain(usize),
    Lose(usize),
    Vanish(usize),
}

fn fates() -> impl Strategy<Value = Vec<Fate>> {
    let want = (0..6_u32, 0..2_u32, 0..3_u32).prop_map(|(workers, servers, spread)| Fate::Want {
        workers,
        servers,
        spread,
    });
    let kill = (0..8_usize, prop_oneof![Just(137), Just(143), Just(1)])
        .prop_map(|(which, code)| Fate::Kill { which, code });
    let pass = (prop_oneof![3 => Just(0), 1 => any::<u64>()], any::<bool>())
        .prop_map(|(lost, looks)| Fate::Pass { lost, looks });
    let drain = (0..3_usize).prop_map(Fate::Drain);
    let lose = (0..3_usize).prop_map(Fate::Lose);
    let vanish = (0..8_usize).prop_map(Fate::Vanish);
    let any = prop_oneof![2 => want, 2 => kill, 6 => pass, 1 => drain, 1 => lose, 1 => vanish];
    prop::collection::vec(any, 1..60)
}

proptest! {
    /// From any state, with calls that are lost and looks that are behind, it gets where it should, and stays there.
    #[test]
    fn it_converges_from_any_state(
        fates in fates(),
        workers in 1..6_u32,
        servers in 0..2_u32,
        is_group in any::<bool>(),
    ) {
        let mut world = World::new();
        if is_group {
            world.seen.terms.backend = Backend::Group;
            world.shown.terms.backend = Backend::Group;
        }
        let servers_of = |servers| if is_group { 0 } else { servers };
        world.seen.terms.failure.max_restarts = u32::MAX;
        for fate in fates {
            match fate {
                Fate::Want { workers, servers, spread } => world.want(workers, servers_of(servers), spread),
                Fate::Kill { which, code } => {
                    let exit = Exit { code: Some(code), ..Exit::default() };
                    if let Some(pod) = world.seen.pods.get_mut(which) {
                        (pod.life, pod.exit) = (Life::Ended, Some(exit));
                    }
                }
                Fate::Pass { lost, looks } => { world.act(lost); world.pass(looks); }
                Fate::Drain(node) => { world.seen.nodes.draining.insert(NODES[node].into()); }
                Fate::Vanish(which) => {
                    let mut place = 0..;
                    world.seen.pods.retain(|_| place.next() != Some(which));
                }
                Fate::Lose(node) => { world.seen.nodes.lost.insert(NODES[node].into()); }
            }
        }
        world.want(workers, servers_of(servers), 1);
        // Whatever failed before is long ago.
        world.seen.now_s += 400.0;
        world.seen.watched_since_s = world.seen.now_s;
        world.pass(true);
        for _ in 0..200 {
            world.act(0);
            world.pass(true);
        }
        let todo = reconcile(&world.shown);
        prop_assert_eq!(&todo.actions[..], &[Action::Tell(News::Settled(workers))], "{:?}", world.seen);
        let desired = world.seen.desired.clone().unwrap();
        for node in NODES {
            prop_assert_eq!(world.on(node), desired.places.get(node).copied().unwrap_or(0));
        }
        let leads = world.seen.pods.iter().filter(|pod| pod.role == Role::Coordinator);
        prop_assert_eq!(leads.count(), usize::from(!is_group));
    }

    /// Without news nothing is created twice, however often it is asked.
    #[test]
    fn it_never_acts_twice(workers in 1..6_u32, servers in 0..2_u32, asked in 1..5_usize) {
        let mut world = World::new();
        world.want(workers, servers, 0);
        world.pass(true);
        world.act(0);
        world.pass(true);
        for _ in 0..asked {
            // The looks are behind: they show none of the pods.
            world.act(0);
            world.pass(false);
        }
        prop_assert_eq!(world.seen.pods.len() as u32, workers + servers + 1);
    }
}
