//! The data plane: collectives over the members of one epoch, as far as the protocol can see them.
//!
//! A round completes when all active members have arrived. Each then gets the result at its own time. If a member goes
//! away, members that do not have its whole contribution fail; the others do not.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use bellwether_runtime::membership::{Membership, Offer, WorkerId};

use super::process::Activity;
use super::world::{Happening, World};
use crate::digests::contribution;

/// What a round is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Gradients.
    Train,
    /// Headers only.
    Hold,
    /// The held-out set.
    Evaluate,
}

/// One collective.
#[derive(Debug, Clone)]
pub(crate) struct Round {
    pub(crate) kind: Kind,
    pub(crate) step: u64,
    /// Steps of the update; 0 for other rounds.
    pub(crate) update: u64,
    /// Digest of the state that the members begin with.
    pub(crate) digest: u64,
    /// What each active member offered.
    pub(crate) arrived: BTreeMap<WorkerId, Offer>,
    /// Sum of the contributions.
    pub(crate) sum: u64,
    pub(crate) complete: bool,
    pub(crate) waiting: BTreeSet<WorkerId>,
    /// Those who lack a contribution.
    pub(crate) doomed: BTreeSet<WorkerId>,
}

impl Round {
    /// The steps of the update.
    pub(crate) fn update_steps(&self) -> Range<u64> {
        self.step..self.step + self.update
    }

    /// The same as indices.
    pub(crate) fn steps(&self) -> Range<usize> {
        self.step as usize..(self.step + self.update) as usize
    }
}

/// All rounds of one membership.
#[derive(Debug, Clone)]
pub(crate) struct Epoch {
    pub(crate) membership: Membership,
    /// For each worker that has begun the epoch: how many rounds it has done.
    pub(crate) position: BTreeMap<WorkerId, usize>,
    pub(crate) rounds: Vec<Round>,
    /// Boundary and digest of a planned switch into this epoch.
    pub(crate) begun: Option<(u64, u64)>,
    /// Those who have gone, and whether they delivered all they had sent.
    out: BTreeMap<WorkerId, bool>,
    /// Those who wait for the sources' first chunks.
    joining: BTreeSet<WorkerId>,
    /// Those who take part in handing on the last result.
    catching_up: BTreeSet<WorkerId>,
    handed_on: bool,
    /// Those whose listeners expect the epoch's connections, and those who have them all.
    forming: BTreeSet<WorkerId>,
}

/// Whether these two exchange with each other.
pub(crate) fn linked(membership: &Membership, a: WorkerId, b: WorkerId) -> bool {
    membership.peers(a).iter().any(|(peer, _)| *peer == b)
}

/// All epochs, and the connections that are broken.
#[derive(Debug, Clone, Default)]
pub(crate) struct DataPlane {
    pub(crate) epochs: BTreeMap<u64, Epoch>,
    pub(crate) broken: BTreeSet<(WorkerId, WorkerId)>,
    /// What these send each other vanishes.
    pub(crate) silent: BTreeSet<(WorkerId, WorkerId)>,
}

pub(crate) fn pair(a: WorkerId, b: WorkerId) -> (WorkerId, WorkerId) {
    (a.min(b), a.max(b))
}

impl Epoch {
    fn new(membership: Membership) -> Self {
        Epoch {
            membership,
            position: BTreeMap::new(),
            rounds: Vec::new(),
            begun: None,
            out: BTreeMap::new(),
            joining: BTreeSet::new(),
            catching_up: BTreeSet::new(),
            handed_on: false,
            forming: BTreeSet::new(),
        }
    }

    fn active(&self) -> Vec<WorkerId> {
        self.membership.active.iter().map(|m| m.worker).collect()
    }
}

impl World {
    /// The record of this membership's epoch; two memberships never share one.
    pub(crate) fn epoch(&mut self, membership: &Membership) -> &mut Epoch {
        let epoch = membership.epoch;
        let known = self.data.epochs.entry(epoch).or_insert_with(|| Epoch::new(membership.clone()));
        if known.membership != *membership {
            let text =
                format!("two memberships are called {epoch}: {:?} and {membership:?}", known.membership);
            self.violate(text);
        }
        self.data.epochs.get_mut(&epoch).expect("just entered")
    }

    /// A worker begins an epoch at a boundary, on connections that stand.
    pub(crate) fn enter(&mut self, id: WorkerId, membership: &Membership, boundary: Option<(u64, u64)>) {
        let active = membership.rank(id).is_some();
        let epoch = self.epoch(membership);
        epoch.position.insert(id, 0);
        if let Some(boundary) = boundary.filter(|_| active) {
            let begun = *epoch.begun.get_or_insert(boundary);
            if begun != boundary {
                let number = membership.epoch;
                self.violate(format!(
                    "epoch {number} begins at {begun:?} for some, for {id} at {boundary:?}"
                ));
            }
        }
        self.serve_shadows(membership.epoch);
    }

    /// A worker waits until all sources have begun the epoch.
    pub(crate) fn join(&mut self, id: WorkerId, epoch: u64) {
        self.data.epochs.get_mut(&epoch).expect("it switched into it").joining.insert(id);
        if let Some(peer) = self.unreachable(id, epoch, None) {
            return self.fail_soon(id, Some(peer));
        }
        self.serve_shadows(epoch);
    }

    fn serve_shadows(&mut self, number: u64) {
        let epoch = self.data.epochs.get_mut(&number).expect("it exists");
        if !epoch.active().iter().all(|id| epoch.position.contains_key(id)) {
            return;
        }
        for id in std::mem::take(&mut epoch.joining) {
            let delay = self.random.between(0.0005, 0.02);
            let serial = self.processes[&id].serial;
            self.after(delay, Happening::Receipt(id, serial));
        }
    }

    /// An active member that `id` cannot hear, unless it has heard all its parts in round `index`.
    fn unreachable(&mut self, id: WorkerId, number: u64, index: Option<usize>) -> Option<WorkerId> {
        let epoch = &self.data.epochs[&number];
        let mut suspects = Vec::new();
        for peer in epoch.active().into_iter().filter(|peer| *peer != id) {
            let graceful = epoch.out.get(&peer).copied();
            let alive = self.processes.get(&peer).is_some_and(|p| p.alive);
            let broken = self.data.broken.contains(&pair(id, peer)) && linked(&epoch.membership, id, peer);
            if alive && graceful.is_none() && !broken {
                continue;
            }
            let heard = index.is_some_and(|i| epoch.rounds[i].arrived.contains_key(&peer));
            suspects.push((peer, heard, graceful == Some(true)));
        }
        suspects
            .into_iter()
            .find(|(_, heard, graceful)| !(*heard && (*graceful || self.random.chance(0.5))))
            .map(|(peer, ..)| peer)
    }

    fn fail_soon(&mut self, id: WorkerId, peer: Option<WorkerId>) {
        let serial = self.processes[&id].serial;
        let delay = self.random.between(0.0002, 0.03);
        self.after(delay, Happening::Fails(id, serial, peer));
    }

    /// A worker takes part in the next round of its epoch; tells which round that is.
    pub(crate) fn arrive(&mut self, id: WorkerId, number: u64, kind: Kind, step: u64, offer: Offer) -> usize {
        let process = &self.processes[&id];
        let update = if kind == Kind::Train { process.member.update() } else { 0 };
        let held = process.state.as_ref().map(|s| s.digest).filter(|_| process.member.is_active());
        let epoch = self.data.epochs.get_mut(&number).expect("it is in the epoch");
        let index = epoch.position[&id];
        if epoch.rounds.len() == index {
            epoch.rounds.push(Round {
                kind,
                step,
                update,
                digest: held.unwrap_or_default(),
                arrived: BTreeMap::new(),
                sum: 0,
                complete: false,
                waiting: BTreeSet::new(),
                doomed: BTreeSet::new(),
            });
        }
        let rank = epoch.membership.rank(id);
        let round = &mut epoch.rounds[index];
        if round.digest == 0 {
            round.digest = held.unwrap_or_default();
        }
        let differs = held.is_some_and(|digest| digest != round.digest);
        if (round.kind, round.step, round.update) != (kind, step, update) || differs {
            let text = format!(
                "worker {id} comes to round {index} of epoch {number} for {kind:?} {step}, others for {:?} {} + {}",
                round.kind, round.step, round.update
            );
            self.violate(text);
            return index;
        }
        round.waiting.insert(id);
        if let Some(rank) = rank {
            round.arrived.insert(id, offer);
            if kind == Kind::Train {
                let nodes = epoch.membership.active[rank].nodes.clone();
                let part = contribution(&round.update_steps(), nodes, round.digest);
                round.sum = round.sum.wrapping_add(part);
            }
            self.bring_on(id, number, index);
        }
        index
    }

    /// What becomes of a worker that has arrived: sooner or later a receipt or a failure.
    pub(crate) fn settle(&mut self, id: WorkerId, number: u64, index: usize) {
        if self.violation.is_some() {
            return;
        }
        if let Some(peer) = self.unreachable(id, number, Some(index)) {
            self.data.epochs.get_mut(&number).expect("exists").rounds[index].doomed.insert(id);
            self.fail_soon(id, Some(peer));
        }
        let epoch = self.data.epochs.get_mut(&number).expect("exists");
        let all = epoch.active();
        let round = &mut epoch.rounds[index];
        if round.complete {
            if !round.doomed.contains(&id) {
                self.deliver(id);
            }
            return;
        }
        if !all.iter().all(|member| round.arrived.contains_key(member)) {
            return;
        }
        round.complete = true;
        let lucky: Vec<WorkerId> = round.waiting.difference(&round.doomed).copied().collect();
        // A member that has gone on to another epoch is not touched by what happens in this one.
        let overwritten: Vec<WorkerId> =
            round.doomed.iter().copied().filter(|member| !epoch.out.contains_key(member)).collect();
        let (kind, steps, digest, sum) = (round.kind, round.update_steps(), round.digest, round.sum);
        if kind == Kind::Train {
            for member in overwritten {
                self.processes.get_mut(&member).expect("a worker").last_result = None;
            }
            self.check_result(number, &steps, digest, sum);
        }
        for member in lucky {
            self.deliver(member);
        }
    }

    pub(crate) fn deliver(&mut self, id: WorkerId) {
        if self.lacks_word(id) {
            return;
        }
        let delay = self.random.between(0.0005, 0.008);
        let delay = if self.random.chance(0.03) { delay * 20.0 } else { delay };
        let lag = if self.processes[&id].member.is_shadow() && self.in_fault_lifecycle() {
            self.scenario.shadow_lag_s
        } else {
            0.0
        };
        let delay = delay + self.random.between(0.0, 1.0) * lag;
        let serial = self.processes[&id].serial;
        self.after(delay, Happening::Receipt(id, serial));
    }

    /// A worker takes a result away, or gives the round up.
    pub(crate) fn depart(&mut self, id: WorkerId, number: u64, index: usize, with_result: bool) {
        let epoch = self.data.epochs.get_mut(&number).expect("exists");
        let round = &mut epoch.rounds[index];
        round.waiting.remove(&id);
        if with_result {
            epoch.position.insert(id, index + 1);
            return;
        }
        round.doomed.insert(id);
        if round.complete && round.kind == Kind::Train {
            self.processes.get_mut(&id).expect("a worker").last_result = None;
        }
    }

    /// Whether the receipt that is due has been overtaken by a fault.
    pub(crate) fn is_doomed(&self, id: WorkerId, number: u64, index: usize) -> bool {
        self.data.epochs[&number].rounds[index].doomed.contains(&id)
    }

    /// A worker is gone from all epochs but `kept`; `gracefully` if what it sent will arrive.
    pub(crate) fn leave_epochs(&mut self, id: WorkerId, kept: Option<u64>, gracefully: bool) {
        let numbers: Vec<u64> = self
            .data
            .epochs
            .iter()
            .filter(|(number, e)| {
                let known = e.position.contains_key(&id) || e.membership.contains(id) && !gracefully;
                Some(**number) != kept && !e.out.contains_key(&id) && known
            })
            .map(|(number, _)| *number)
            .collect();
        for number in numbers {
            let epoch = self.data.epochs.get_mut(&number).expect("just seen");
            epoch.out.insert(id, gracefully);
            epoch.joining.remove(&id);
            epoch.forming.remove(&id);
            if epoch.membership.rank(id).is_some() {
                self.disturb(number, id, None, gracefully);
            }
        }
    }

    /// Every member (or `only`) that waits for the active member `lost` in this epoch may notice.
    fn disturb(&mut self, number: u64, lost: WorkerId, only: Option<WorkerId>, gracefully: bool) {
        let epoch = &self.data.epochs[&number];
        let last = epoch.rounds.len().saturating_sub(2);
        let mut concerned: Vec<(WorkerId, Option<usize>, bool)> = Vec::new();
        for (index, round) in epoch.rounds.iter().enumerate().skip(last) {
            let heard = round.arrived.contains_key(&lost);
            concerned.extend(round.waiting.iter().map(|id| (*id, Some(index), heard)));
        }
        concerned.extend(epoch.joining.iter().map(|id| (*id, None, false)));
        let concerned_in_result = epoch.catching_up.contains(&lost);
        concerned.extend(epoch.catching_up.iter().map(|id| (*id, None, !concerned_in_result)));
        for (id, index, heard) in concerned {
            if id == lost || only.is_some_and(|o| o != id) || !self.processes[&id].alive {
                continue;
            }
            if heard && (gracefully || self.random.chance(0.5)) {
                continue;
            }
            let epoch = self.data.epochs.get_mut(&number).expect("exists");
            match index {
                Some(index) => {
                    epoch.rounds[index].doomed.insert(id);
                }
                None => {
                    epoch.joining.remove(&id);
                }
            }
            self.fail_soon(id, Some(lost));
        }
    }

    /// The connection between two workers breaks.
    pub(crate) fn break_link(&mut self, a: WorkerId, b: WorkerId) {
        self.data.broken.insert(pair(a, b));
        let numbers: Vec<u64> = self
            .data
            .epochs
            .iter()
            .filter(|(_, e)| e.position.contains_key(&a) && e.position.contains_key(&b))
            .filter(|(_, e)| !e.out.contains_key(&a) && !e.out.contains_key(&b))
            .filter(|(_, e)| linked(&e.membership, a, b))
            .map(|(number, _)| *number)
            .collect();
        for number in numbers {
            for (id, peer) in [(a, b), (b, a)] {
                if self.data.epochs[&number].membership.rank(peer).is_some() {
                    self.disturb(number, peer, Some(id), false);
                }
            }
        }
    }

    /// New connections between a worker and these peers stand.
    pub(crate) fn mend(&mut self, id: WorkerId, peers: &[WorkerId]) {
        for peer in peers {
            self.data.broken.remove(&pair(id, *peer));
        }
    }

    /// A worker listens and dials for a recovery; members that have all connections get on.
    pub(crate) fn listen(&mut self, id: WorkerId, membership: &Membership) {
        self.epoch(membership).forming.insert(id);
        let peers: Vec<WorkerId> = membership.peers(id).iter().map(|p| p.0).collect();
        let dead = peers.iter().copied().find(|p| !self.processes.get(p).is_some_and(|p| p.alive));
        if dead.is_some() && self.random.chance(0.5) {
            return self.fail_soon(id, dead);
        }
        let forming = self.data.epochs[&membership.epoch].forming.clone();
        if membership.active.iter().all(|m| forming.contains(&m.worker)) {
            for member in membership.active.iter().map(|m| m.worker) {
                let process = &self.processes[&member];
                if matches!(&process.activity, Activity::Forming { membership: m, .. } if m.epoch == membership.epoch)
                    && self.silent_peer(member, membership).is_none()
                {
                    let serial = process.serial;
                    let delay = self.random.between(0.001, 0.04);
                    self.after(delay, Happening::Receipt(member, serial));
                }
            }
        }
    }

    /// The first peer who does not take part in forming this membership.
    pub(crate) fn missing(&self, id: WorkerId, membership: &Membership) -> Option<WorkerId> {
        let forming = self.data.epochs.get(&membership.epoch).map(|e| &e.forming);
        let here = |peer: WorkerId| forming.is_some_and(|f| f.contains(&peer));
        let absent = membership.peers(id).iter().map(|p| p.0).find(|peer| !here(*peer));
        absent.or_else(|| self.silent_peer(id, membership))
    }

    /// A worker takes part in handing the last result to those behind.
    pub(crate) fn hand_on(&mut self, id: WorkerId, number: u64, source: WorkerId, behind: &[WorkerId]) {
        let epoch = self.data.epochs.get_mut(&number).expect("it formed it");
        epoch.catching_up.insert(id);
        let needed: Vec<WorkerId> = behind.iter().copied().chain([source]).collect();
        let lost = needed.iter().copied().find(|peer| *peer != id && epoch.out.contains_key(peer));
        if let Some(peer) = lost {
            return self.fail_soon(id, Some(peer));
        }
        if !needed.iter().all(|peer| epoch.catching_up.contains(peer)) || epoch.handed_on {
            return;
        }
        epoch.handed_on = true;
        let result = self.processes[&source].last_result.clone();
        let step = self.processes[&behind[0]].member.step();
        match &result {
            Some((of, _)) if of.start == step => {}
            _ => {
                // Only a source that was a shadow, or is of another epoch, may have lost it.
                self.watch.lost_results += 1;
                needed.into_iter().for_each(|member| self.fail_soon(member, None));
                return;
            }
        }
        for member in needed {
            self.processes.get_mut(&member).expect("a worker").handed = result.clone();
            self.deliver(member);
        }
    }

    /// A worker has done its part in handing on, or gives up.
    pub(crate) fn stop_handing_on(&mut self, id: WorkerId, number: u64) {
        self.data.epochs.get_mut(&number).expect("it formed it").catching_up.remove(&id);
    }

    /// The offers of a complete round, in rank order, and its sum.
    pub(crate) fn result(&self, number: u64, index: usize) -> (Vec<Offer>, Range<u64>, u64) {
        let epoch = &self.data.epochs[&number];
        let round = &epoch.rounds[index];
        (epoch.active().iter().map(|id| round.arrived[id]).collect(), round.update_steps(), round.sum)
    }
}
