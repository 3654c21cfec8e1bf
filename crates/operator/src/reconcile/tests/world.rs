//! Whatever happens, a job comes to what is wanted of it.

use proptest::prelude::*;

use super::*;

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
