//! Which pods come and go, so that each node has as many of a job's as it should.

use std::collections::BTreeMap;

use super::{Backend, Desired, NewPod, Observed, PodSeen, Role, group};

/// How long a pod on a node that is drained stays for the sake of its successor elsewhere.
const SUCCESSION_S: f64 = 60.0;

/// A pod that has to go.
pub(super) struct Victim {
    pub(super) pod: String,
    pub(super) grace_s: u32,
    pub(super) why: String,
}

/// What has to change.
pub(super) struct Change {
    pub(super) victims: Vec<Victim>,
    pub(super) newcomers: Vec<NewPod>,
    /// Whether as many pods are there as should be, and none beside them.
    pub(super) is_settled: bool,
    pub(super) again_s: Option<f64>,
}

/// The lowest rank that no pod of this role and generation has had as far as is known, nor one of these newcomers.
pub(super) fn free_rank(seen: &Observed, role: Role, newcomers: &[NewPod]) -> u32 {
    // In a set of pods ranks are places, from 0 on, and names tell the sets apart.
    let counts = |pod: &&PodSeen| {
        seen.terms.backend == Backend::Native || pod.generation == seen.allocation.generation
    };
    let of_pods = seen.pods.iter().filter(|pod| pod.role == role).filter(counts).map(|pod| pod.rank);
    let of_newcomers = newcomers.iter().filter(|pod| pod.role == role).map(|pod| pod.rank);
    let mut taken: Vec<u32> = of_pods.chain(of_newcomers).collect();
    taken.sort_unstable();
    taken.dedup();
    let ranks = 0..;
    ranks
        .zip(taken.iter().map(Some).chain(std::iter::repeat(None)))
        .find_map(|(rank, taken)| (taken != Some(&rank)).then_some(rank))
        .unwrap_or(u32::MAX)
}

impl Change {
    pub(super) fn of(seen: &Observed, desired: &Desired) -> Change {
        let mut change =
            Change { victims: Vec::new(), newcomers: Vec::new(), is_settled: false, again_s: None };
        let stay = change.choose(seen, desired);
        change.fill(seen, desired, &stay);
        change.relieve(seen);
        let computing = seen.pods.iter().filter(|pod| pod.role != Role::Coordinator && pod.holds_its_node());
        let total = (desired.workers + desired.servers) as usize;
        // Pods that are told to go hold their nodes until they are gone.
        change.is_settled = computing.count() == total && stay.len() == total && change.victims.is_empty();
        change
    }

    /// Which pods stay; the others are victims.
    fn choose<'s>(&mut self, seen: &'s Observed, desired: &Desired) -> Vec<&'s PodSeen> {
        let mut pods: Vec<&PodSeen> =
            seen.pods.iter().filter(|pod| pod.role != Role::Coordinator && pod.is_live()).collect();
        // Servers first, then workers by rank, so that the highest ranks go.
        pods.sort_by_key(|pod| (pod.role != Role::Server, pod.rank, pod.generation));
        let mut room: BTreeMap<&str, u32> =
            desired.places.iter().map(|(node, count)| (node.as_str(), *count)).collect();
        let mut left = BTreeMap::from([(Role::Worker, desired.workers), (Role::Server, desired.servers)]);
        let mut stay = Vec::new();
        for pod in pods {
            let is_of_group =
                seen.terms.backend == Backend::Native || pod.generation == seen.allocation.generation;
            let on_node = room.get_mut(pod.node.as_str()).filter(|room| **room > 0);
            let of_role = left.get_mut(&pod.role).filter(|left| **left > 0);
            let is_reachable = !seen.nodes.lost.contains(&pod.node);
            match (on_node, of_role) {
                (Some(room), Some(left)) if is_of_group && is_reachable => {
                    (*room, *left) = (*room - 1, *left - 1);
                    stay.push(pod);
                }
                _ => self.victims.push(Victim {
                    pod: pod.name.clone(),
                    grace_s: if is_reachable { seen.terms.grace_s } else { 0 },
                    why: why_it_goes(seen, desired, pod),
                }),
            }
        }
        stay
    }

    /// Pods for the places that are left.
    fn fill(&mut self, seen: &Observed, desired: &Desired, stay: &[&PodSeen]) {
        let has = |role: Role| stay.iter().filter(|pod| pod.role == role).count() as u32;
        let mut servers = desired.servers.saturating_sub(has(Role::Server));
        let mut workers = desired.workers.saturating_sub(has(Role::Worker));
        // A group begins together: the last one has to be gone.
        let others_run = |pod: &PodSeen| pod.holds_its_node() && pod.generation != seen.allocation.generation;
        let others_hold_nodes = seen.terms.backend == Backend::Group && seen.pods.iter().any(others_run);
        if others_hold_nodes || group::is_ending(seen) {
            return;
        }
        // On a node that is gone no pod begins; the places are bounds, and others may have room.
        let answers = |(node, _): &(&String, &u32)| !seen.nodes.lost.contains(*node);
        for (node, count) in desired.places.iter().filter(answers) {
            let on_node = stay.iter().filter(|pod| pod.node == *node).count() as u32;
            for _ in on_node..*count {
                let (role, left) = match servers {
                    0 => (Role::Worker, &mut workers),
                    _ => (Role::Server, &mut servers),
                };
                if *left == 0 {
                    return;
                }
                *left -= 1;
                let rank = free_rank(seen, role, &self.newcomers);
                let generation = seen.allocation.generation;
                self.newcomers.push(NewPod { role, rank, generation, node: Some(node.clone()) });
            }
        }
    }

    /// Where a node is drained and the job moves elsewhere, pods stay until their successors are ready.
    fn relieve(&mut self, seen: &Observed) {
        let is_native = seen.terms.backend == Backend::Native;
        let by_name = |name: &str| seen.pods.iter().find(|pod| pod.name == name);
        let leaves_drained = |victim: &Victim| {
            by_name(&victim.pod)
                .is_some_and(|pod| seen.nodes.draining.contains(&pod.node) && !pod.is_disrupted)
        };
        let newest = |pod: &&PodSeen| pod.role == Role::Worker && pod.is_live();
        let waits = self.newcomers.iter().any(|pod| pod.role == Role::Worker)
            || seen.pods.iter().filter(newest).any(|pod| !pod.is_ready());
        let left_s = seen.allocation.since_s + SUCCESSION_S - seen.now_s;
        if !(is_native && waits && left_s > 0.0) {
            return;
        }
        let before = self.victims.len();
        self.victims.retain(|victim| !leaves_drained(victim));
        if self.victims.len() < before {
            self.again_s = Some(left_s);
        }
    }
}

fn why_it_goes(seen: &Observed, desired: &Desired, pod: &PodSeen) -> String {
    let node = &pod.node;
    if seen.nodes.lost.contains(node) {
        return format!("{node} does not answer");
    }
    if seen.nodes.draining.contains(node) {
        return format!("{node} is drained");
    }
    match desired.reason.as_str() {
        "" => format!("the job has {} workers from now on", desired.workers),
        reason => reason.to_owned(),
    }
}
