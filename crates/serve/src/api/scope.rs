//! What a caller sees of what concerns all jobs: of jobs of other queues neither names nor numbers of their own.

use std::borrow::Cow;
use std::sync::Arc;

use super::access::Caller;
use crate::snapshot::{ClusterState, DecisionState, Snapshot};

/// Who holds a slot, for those who do not see the job.
const OTHER: &str = "(a job of another queue)";

/// What those who do not see all jobs are told where nothing is foreseen: the reason may name any of them.
const NO_OUTLOOK: &str = "the daemon's owner can see why";

/// Whether the caller sees the job of this name.
pub(super) fn sees(now: &Snapshot, caller: &Caller, job: &str) -> bool {
    !caller.is_limited() || now.jobs.get(job).is_some_and(|job| caller.sees(job))
}

/// The cluster. How much each queue holds, everybody sees.
pub(super) fn cluster<'s>(now: &'s Snapshot, caller: &Caller) -> Cow<'s, ClusterState> {
    if !caller.is_limited() {
        return Cow::Borrowed(&now.cluster);
    }
    let mut cluster = ClusterState::clone(&now.cluster);
    cluster.no_outlook = cluster.no_outlook.map(|_| NO_OUTLOOK.into());
    for holder in Arc::make_mut(&mut cluster.nodes).iter_mut().flat_map(|node| &mut node.slots).flatten() {
        if !sees(now, caller, holder) {
            OTHER.clone_into(holder);
        }
    }
    Cow::Owned(cluster)
}

/// A decision, with what it did to jobs that the caller sees.
pub(super) fn decision<'s>(
    now: &Snapshot,
    caller: &Caller,
    decision: &'s DecisionState,
) -> Cow<'s, DecisionState> {
    if !caller.is_limited() {
        return Cow::Borrowed(decision);
    }
    let mut decision = decision.clone();
    decision.actions.retain(|action| sees(now, caller, &action.job));
    Cow::Owned(decision)
}

/// The decisions that are remembered, oldest first.
pub(super) fn decisions<'s>(now: &'s Snapshot, caller: &Caller) -> Vec<Cow<'s, DecisionState>> {
    now.decisions.iter().map(|one| decision(now, caller, one)).collect()
}
