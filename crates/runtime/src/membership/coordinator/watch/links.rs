//! Pairs of members that cannot reach each other, though both reach the coordinator.

use std::collections::BTreeMap;

use super::{Coordinator, Late, Stage, Watch};
use crate::membership::{Position, Reason, WorkerId};

/// A pair between which nothing moves, the one to cut first.
fn pair(
    positions: &BTreeMap<WorkerId, Position>,
    finished: impl Fn(WorkerId) -> bool,
    loss: impl Fn(WorkerId) -> usize,
) -> Option<(WorkerId, WorkerId)> {
    let waits =
        |a: WorkerId, b: WorkerId| positions.get(&a).is_some_and(|p| p.waits() && p.waits_for.contains(&b));
    // A member that is further, and waits for no other, has done its part: what it sent last did not arrive.
    let done = |a: &Position, b: WorkerId| {
        positions.get(&b).is_some_and(|p| !p.waits() && (p.epoch, p.step) > (a.epoch, a.step)) || finished(b)
    };
    let mut pairs: Vec<(WorkerId, WorkerId)> = Vec::new();
    for (a, position) in positions.iter().filter(|(_, position)| position.waits()) {
        for b in position.waits_for.iter().filter(|b| positions.contains_key(b)) {
            if done(position, *b) || waits(*b, *a) {
                pairs.push((*a, *b));
            }
        }
    }
    if pairs.is_empty() {
        let awaited = |p: &Position| p.waits_for.iter().copied().find(|b| positions.contains_key(b));
        let waiting = || positions.iter().filter(|(_, p)| p.waits() && awaited(p).is_some());
        let told = |b: &WorkerId| positions.get(b).is_some_and(|p| !p.waits());
        if waiting().any(|(_, position)| position.waits_for.iter().any(told)) {
            // One waits for a member that is not waiting itself, and will hear from it.
            return None;
        }
        // They wait in a ring; the one that has waited longest is next to the gap.
        let (a, position) = waiting().max_by(|a, b| a.1.since_s.total_cmp(&b.1.since_s))?;
        pairs.push((*a, awaited(position)?));
    }
    let broken = |id: WorkerId| pairs.iter().filter(|(a, b)| *a == id || *b == id).count();
    // Without the one that has most broken links most can go on; of equals the one that is missed least.
    let cut = |id: WorkerId| (broken(id), std::cmp::Reverse(loss(id)), id);
    let (a, b) = pairs.iter().copied().max_by_key(|(a, b)| cut(*a).max(cut(*b)))?;
    Some(if cut(a) >= cut(b) { (a, b) } else { (b, a) })
}

impl Watch {
    /// A member of a recovery has no connection to another.
    pub(in crate::membership::coordinator) fn cannot_reach(&mut self, worker: WorkerId, peer: WorkerId) {
        self.unreachable.insert((worker.min(peer), worker.max(peer)));
    }

    /// A membership was formed.
    pub(in crate::membership::coordinator) fn all_reach_all(&mut self) {
        self.unreachable.clear();
    }
}

impl Coordinator {
    /// Recoveries fail because these two do not reach each other: one of them has to go for good. If it came back, the
    /// next recovery would fail as the last ones did.
    pub(in crate::membership::coordinator) fn cut_one_of(&mut self, a: WorkerId, b: WorkerId, why: &str) {
        let committed = self.progress.committed();
        let holds = |id: &WorkerId| self.workers.get(id).is_some_and(|w| w.step >= committed);
        let members = || self.current.active.iter().map(|member| member.worker);
        let spare = |id: WorkerId| members().any(|other| other != id && holds(&other));
        let pairs = &self.watch.unreachable;
        let broken = |id: WorkerId| pairs.iter().filter(|(a, b)| *a == id || *b == id).count();
        let rank = |id: WorkerId| (spare(id), broken(id), std::cmp::Reverse(self.loss(id)), id);
        let (goes, stays) = if rank(a) >= rank(b) { (a, b) } else { (b, a) };
        self.expel(goes, &format!("worker {stays} cannot reach it: {why}"));
    }

    /// Members do not reach this newcomer. It may try once more; then another is to come.
    pub(in crate::membership::coordinator) fn turn_away(&mut self, newcomer: WorkerId, why: &str) {
        if self.watch.turned_away.insert(newcomer) {
            self.gone(newcomer, why);
        } else {
            self.watch.turned_away.remove(&newcomer);
            self.expel(newcomer, why);
        }
    }

    /// What a member's end would cost: its virtual nodes, unless it goes anyway.
    fn loss(&self, id: WorkerId) -> usize {
        let goes = self.workers.get(&id).is_none_or(|w| w.stage == Stage::Leaving);
        let nodes = self.current.rank(id).map_or(0, |rank| self.current.active[rank].nodes.len());
        if goes || self.replacing.contains(&id) { 0 } else { nodes }
    }

    /// All members have told where they stand, and none works: then some messages do not arrive.
    pub(super) fn judge_links(&mut self, positions: &BTreeMap<WorkerId, Position>, quiet_s: f64) {
        let waiting = || positions.values().filter(|position| position.waits());
        // What one was kept from, all that wait for it were.
        let starved_s: f64 = positions.values().map(|position| position.starved_s).sum();
        let Some(since_s) = waiting().map(|p| p.since_s).min_by(f64::total_cmp) else { return };
        let seconds = (since_s - starved_s).min(quiet_s);
        let limits = waiting().map(|position| self.limits_of(position));
        let (warn_s, lose_s) =
            limits.fold((0.0f64, 0.0f64), |most, next| (most.0.max(next.0), most.1.max(next.1)));
        if seconds <= warn_s {
            return;
        }
        let finished = |id: WorkerId| self.workers.get(&id).is_some_and(|w| w.finished.is_some());
        let Some((worker, peer)) = pair(positions, finished, |id| self.loss(id)) else {
            return self.judge_those_left_behind(positions, (seconds, warn_s, lose_s));
        };
        let doing = format!(
            "nothing arrives between worker {worker} and worker {peer}: {} and {}",
            positions[&worker].sentence(),
            positions[&peer].sentence()
        );
        let late = Late { worker, peer: Some(peer), doing, seconds, warn_s, lose_s };
        let named = self.tell(&late, false);
        if named && seconds > lose_s {
            self.watch.told.remove(&(worker, Some(peer)));
            let why = format!("nothing has arrived between it and worker {peer} for {seconds:.1} s");
            self.expel(worker, &why);
        }
    }
}

impl Coordinator {
    /// No member is waited for: then one waits for a former member whose end it did not hear of. The members form
    /// again.
    fn judge_those_left_behind(
        &mut self,
        positions: &BTreeMap<WorkerId, Position>,
        (seconds, warn_s, lose_s): (f64, f64, f64),
    ) {
        let gone = |b: &WorkerId| !positions.contains_key(b) && !self.is_relied_on(*b);
        let waits = |(id, p): (&WorkerId, &Position)| {
            p.waits().then(|| p.waits_for.iter().copied().find(gone).map(|peer| (*id, peer)))?
        };
        let Some((worker, peer)) = positions.iter().find_map(waits) else { return };
        let sentence = positions[&worker].sentence();
        let doing = format!("worker {worker} waits for worker {peer}, which is gone: {sentence}");
        let named = self.tell(&Late { worker, peer: Some(peer), doing, seconds, warn_s, lose_s }, false);
        if named && seconds > lose_s {
            self.watch.told.remove(&(worker, Some(peer)));
            let evidence = format!("worker {worker} waits for worker {peer}, which is gone");
            self.recover(Reason::Link { evidence });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::Activity;

    fn positions(waits: &[(WorkerId, &[WorkerId])]) -> BTreeMap<WorkerId, Position> {
        let position = |waits_for: &[WorkerId]| {
            let activity = if waits_for.is_empty() { Activity::Idle } else { Activity::Exchanging };
            Position { activity, waits_for: waits_for.to_vec(), since_s: 1.0, ..Position::default() }
        };
        waits.iter().map(|(id, waits_for)| (*id, position(waits_for))).collect()
    }

    /// Has handed everything over.
    const DONE: WorkerId = 7;

    fn found(waits: &[(WorkerId, &[WorkerId])]) -> Option<(WorkerId, WorkerId)> {
        pair(&positions(waits), |id| id == DONE, |_| 1)
    }

    #[test]
    fn a_pair_that_waits_for_each_other_is_found_among_those_who_wait_for_it() {
        assert_eq!(found(&[(1, &[2]), (2, &[1])]), Some((2, 1)));
        assert_eq!(found(&[(1, &[2]), (2, &[1]), (3, &[1, 2]), (4, &[2])]), Some((2, 1)));
        // The one that reaches no other goes.
        assert_eq!(found(&[(1, &[2, 3]), (2, &[1]), (3, &[1])]).map(|p| p.0), Some(1));
        // One has done its part, and the other does not hear of it.
        assert_eq!(found(&[(1, &[DONE]), (DONE, &[])]), Some((DONE, 1)));
        // One waits to be told something, and the other will hear of it.
        assert_eq!(found(&[(1, &[2]), (2, &[])]), None);
        assert_eq!(found(&[(1, &[2]), (2, &[3]), (3, &[1])]).map(|p| p.0.min(p.1)), Some(1));
        assert_eq!(found(&[(1, &[]), (2, &[])]), None);
        assert_eq!(found(&[(1, &[9])]), None, "9 is not a member");
    }

    #[test]
    fn of_a_pair_the_smaller_loss_is_cut() {
        let few = |id: WorkerId| if id == 1 { 1 } else { 7 };
        assert_eq!(pair(&positions(&[(1, &[2]), (2, &[1])]), |_| false, few), Some((1, 2)));
    }
}
