//! Which devices queues give back that hold more than they are entitled to, when another queue claims its own.
//!
//! Jobs that can go on with fewer devices shrink first, those that got theirs last before the others; then jobs stop,
//! those that started last before the others. What is offered to the queue that claims is only taken if its policy uses
//! it.

use std::cmp::Reverse;

use bellwether_core::cluster::{Allocation, Batch, ClusterView, JobId, JobView, Share};
use bellwether_core::policy::{Action, PolicyInput};

use super::leaf::Leaf;
use super::stopped;
use crate::greedy::bits;

/// Devices that a job may have to give back.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Offer {
    /// The place of its queue among the leaves.
    pub(super) leaf: usize,
    pub(super) job: JobId,
    /// The devices, by node.
    pub(super) shares: Vec<Share>,
    /// Whether the job has to stop for them.
    pub(super) stops: bool,
}

/// What a leaf has to give.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Lent {
    /// Devices that it holds beyond what it is entitled to.
    pub(super) excess: u32,
    /// Leaves give in this order: those below a full queue make room in it for those outside. 0 where no queue is full,
    /// and jobs that stop may give more than the excess.
    pub(super) turn: usize,
}

/// Devices of one type, `needed` of them if there are as many, that leaves have lent (by leaf).
pub(super) fn offers(
    leaves: &[Leaf],
    view: &ClusterView,
    kind: u16,
    mut needed: u32,
    mut lent: Vec<Lent>,
) -> Vec<Offer> {
    let mut offers: Vec<Offer> = Vec::new();
    let over = |lent: &[Lent]| (0..leaves.len()).filter(|leaf| lent[*leaf].excess > 0).collect::<Vec<_>>();
    let running = |leaf: usize| {
        let jobs = leaves[leaf].view.jobs.iter().filter(|(_, seen)| of_kind(view, seen, kind) > 0);
        jobs.map(move |(&id, seen)| (leaf, id, seen))
    };
    let mut elastic: Vec<_> = over(&lent).into_iter().flat_map(running).collect();
    elastic.retain(|(leaf, _, seen)| {
        seen.beside.is_none() && seen.allocation.devices() > leaves[*leaf].least(&seen.job)
    });
    elastic.sort_by_key(|(_, id, seen)| Reverse((bits(seen.allocated_s), *id)));
    for (leaf, job, seen) in elastic {
        let more = seen.allocation.devices() - leaves[leaf].least(&seen.job);
        let devices = more.min(needed).min(lent[leaf].excess);
        if devices > 0 {
            let shares = smallest_first(view, seen, kind, devices);
            needed -= devices;
            lent[leaf].excess -= devices;
            offers.push(Offer { leaf, job, shares, stops: false });
        }
    }
    let mut all: Vec<_> = over(&lent).into_iter().flat_map(running).collect();
    all.retain(|(_, id, seen)| seen.beside.is_none_or(|other| *id < other));
    all.sort_by_key(|(_, id, seen)| Reverse((seen.started_s.map_or(0, bits), *id)));
    for (leaf, job, seen) in all {
        if needed == 0 {
            break;
        }
        if lent[leaf].excess == 0 {
            continue;
        }
        let held = of_kind(view, seen, kind);
        let place = offers.iter().position(|offer| offer.job == job);
        let known: u32 = place.map_or(0, |at| offers[at].shares.iter().map(|share| share.devices).sum());
        let most = if lent[leaf].turn == 0 { held } else { lent[leaf].excess };
        let devices = (held - known).min(needed).min(most);
        let shares = smallest_first(view, seen, kind, known + devices);
        needed -= devices;
        lent[leaf].excess = lent[leaf].excess.saturating_sub(held - known);
        match place {
            Some(at) => (offers[at].shares, offers[at].stops) = (shares, true),
            None => offers.push(Offer { leaf, job, shares, stops: true }),
        }
    }
    offers.sort_by_key(|offer| lent[offer.leaf].turn);
    offers
}

/// Devices of a type that a job holds.
pub(super) fn of_kind(view: &ClusterView, seen: &JobView, kind: u16) -> u32 {
    let is_of_kind = |share: &&Share| view.nodes[share.node.0 as usize].device_type == kind;
    seen.allocation.shares().iter().filter(is_of_kind).map(|share| share.devices).sum()
}

/// `devices` devices of what a job holds, where it holds fewest first, so that it spans fewer nodes without them.
fn smallest_first(view: &ClusterView, seen: &JobView, kind: u16, devices: u32) -> Vec<Share> {
    let is_of_kind = |share: &&Share| view.nodes[share.node.0 as usize].device_type == kind;
    let mut shares: Vec<Share> = seen.allocation.shares().iter().filter(is_of_kind).copied().collect();
    shares.sort_by_key(|share| (share.devices, share.node));
    let mut left = devices;
    for share in &mut shares {
        share.devices = share.devices.min(left);
        left -= share.devices;
    }
    shares.retain(|share| share.devices > 0);
    shares
}

/// What a job holds on without the devices `given`, by node: the most with which it is believed to run; `None` if it
/// has to stop.
pub(super) fn remainder(
    leaf: &Leaf,
    seen: &JobView,
    given: &[Share],
    input: &PolicyInput<'_>,
) -> Option<(Allocation, Option<Batch>)> {
    let least = leaf.least(&seen.job);
    let keep = |share: &Share| {
        let lost = given.iter().filter(|lost| lost.node == share.node).map(|lost| lost.devices).sum();
        Share { devices: share.devices.saturating_sub(lost), ..*share }
    };
    let mut shares: Vec<Share> = seen.allocation.shares().iter().map(keep).collect();
    loop {
        let allocation = Allocation::new(shares.clone());
        if allocation.devices() < least || allocation.is_empty() {
            return None;
        }
        if let Some(batch) = runs(&leaf.view, seen, &allocation, input) {
            return Some((allocation, batch));
        }
        let smallest = shares.iter_mut().filter(|share| share.devices > 0).min_by_key(|share| share.devices);
        smallest.expect("it holds devices").devices -= 1;
    }
}

/// Whether a job is believed to run on these devices, and with which batch if it may choose that.
pub(super) fn runs(
    view: &ClusterView,
    seen: &JobView,
    allocation: &Allocation,
    input: &PolicyInput<'_>,
) -> Option<Option<Batch>> {
    let description = &seen.job.description;
    if seen.batch.is_some() && seen.job.adaptive_batch {
        let configuration = view.configuration(&seen.job, allocation, None);
        let best = input.model.best_batch(description, &configuration, seen.done(input.now_s)).ok()?;
        return Some(Some(Batch { samples: best.batch, accumulation: best.accumulation }));
    }
    let (_, found) = view.fastest_way(input.model, &seen.job, allocation, None)?;
    (found.examples_per_s.is_finite() && found.examples_per_s > 0.0).then_some(None)
}

/// Lets a job of a leaf hold `rest` from now on, or nothing; returns the devices that are free by that.
pub(super) fn take_back(
    leaf: &mut Leaf,
    id: JobId,
    rest: Option<(Allocation, Option<Batch>)>,
    now_s: f64,
    actions: &mut Vec<Action>,
) -> Allocation {
    let Some(seen) = leaf.view.jobs.get(&id) else { return Allocation::none() };
    let (before, beside) = (seen.allocation.clone(), seen.beside);
    let Some((allocation, batch)) = rest else {
        if let Some(other) = beside {
            stop(leaf, other, now_s, actions);
        }
        return stop(leaf, id, now_s, actions);
    };
    let action = allocate(id, allocation.clone(), batch);
    leaf.carry_out(&action, now_s);
    actions.push(action);
    leaf.changes.revised.push(id);
    leaf.changes.nodes.extend(before.shares().iter().map(|share| share.node));
    let left = |share: &Share| {
        let own = allocation.shares().iter().find(|own| own.node == share.node);
        Share { devices: share.devices - own.map_or(0, |own| own.devices), ..*share }
    };
    Allocation::new(before.shares().iter().map(left).collect())
}

fn stop(leaf: &mut Leaf, id: JobId, now_s: f64, actions: &mut Vec<Action>) -> Allocation {
    let Some(seen) = leaf.view.jobs.get(&id).map(|seen| stopped(seen, now_s)) else {
        return Allocation::none();
    };
    actions.push(stop_action(id));
    let freed = leaf.vacate(id);
    leaf.lose(id, &freed, Some(&seen));
    leaf.touch(id);
    freed
}

/// A job waits from now on.
pub(super) fn stop_action(job: JobId) -> Action {
    allocate(job, Allocation::none(), None)
}

pub(super) fn allocate(job: JobId, allocation: Allocation, batch: Option<Batch>) -> Action {
    Action::Allocate { job, allocation, batch, expected: None, beside: None, way: None }
}
