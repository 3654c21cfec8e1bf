//! What changed between two snapshots, as events.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::time::sleep;

use super::super::access::Caller;
use super::super::call::Call;
use super::super::failure::Failure;
use super::super::scope;
use super::{Gone, send, stream};
use crate::snapshot::{ClusterState, DecisionState, JobState, Snapshot, Span};

/// The shortest time between two events.
const PACE: Duration = Duration::from_millis(200);

/// Jobs that have ended of which the first event tells.
const ENDED: usize = 50;

/// Data of the event `state`: how things are, as far as that changed since the event before. The first one has all jobs
/// that have not ended, the newest 50 that have, all decisions and all spans that are kept.
#[derive(Debug, Serialize, JsonSchema)]
pub(in super::super) struct StateEvent<'s> {
    /// Grows with every change.
    version: u64,
    /// The slots and who decides.
    cluster: Cow<'s, ClusterState>,
    /// Jobs that are new or changed, in order of submission.
    jobs: Vec<&'s JobState>,
    /// Decisions that are new or of which more is known, oldest first.
    decisions: Vec<Cow<'s, DecisionState>>,
    /// Spans that are new or have ended; node, slot and start tell them apart.
    spans: Vec<&'s Span>,
}

/// What is different in `now`, as far as the caller sees it; everything that matters where there is no `before`.
fn changes<'s>(before: Option<&Snapshot>, now: &'s Snapshot, caller: &Caller) -> StateEvent<'s> {
    let (mut jobs, decisions, mut spans) = match before {
        None => (first_jobs(now, caller), now.decisions.iter().collect(), now.spans.iter().collect()),
        Some(before) => {
            (changed_jobs(before, now), changed_decisions(before, now), changed_spans(before, now))
        }
    };
    if caller.is_limited() {
        jobs.retain(|job| caller.sees(job));
        spans.retain(|span| scope::sees(now, caller, &span.job));
    }
    let decisions = decisions.into_iter().map(|decision| scope::decision(now, caller, decision)).collect();
    StateEvent { version: now.version, cluster: scope::cluster(now, caller), jobs, decisions, spans }
}

fn first_jobs<'s>(now: &'s Snapshot, caller: &Caller) -> Vec<&'s JobState> {
    let mut ended = 0;
    let newest = now.order.iter().rev().filter_map(|name| now.jobs.get(name));
    let newest = newest.filter(|job| caller.sees(job));
    let mut jobs: Vec<&JobState> = newest
        .filter(|job| {
            ended += usize::from(job.state.has_ended());
            !job.state.has_ended() || ended <= ENDED
        })
        .map(|job| &**job)
        .collect();
    jobs.reverse();
    jobs
}

fn changed_jobs<'s>(before: &Snapshot, now: &'s Snapshot) -> Vec<&'s JobState> {
    let jobs = now.order.iter().filter_map(|name| now.jobs.get(name));
    // A job that did not change is still the same one in memory.
    let same =
        |job: &Arc<JobState>| before.jobs.get(&job.name).is_some_and(|before| Arc::ptr_eq(before, job));
    jobs.filter(|job| !same(job)).map(|job| &**job).collect()
}

fn changed_decisions<'s>(before: &Snapshot, now: &'s Snapshot) -> Vec<&'s DecisionState> {
    if Arc::ptr_eq(&before.decisions, &now.decisions) {
        return Vec::new();
    }
    let same = |decision: &DecisionState| {
        let found = before.decisions.binary_search_by_key(&decision.number, |decision| decision.number);
        found.is_ok_and(|place| before.decisions[place] == *decision)
    };
    now.decisions.iter().filter(|decision| !same(decision)).collect()
}

fn changed_spans<'s>(before: &Snapshot, now: &'s Snapshot) -> Vec<&'s Span> {
    if Arc::ptr_eq(&before.spans, &now.spans) {
        return Vec::new();
    }
    let key = |span: &Span| (span.node, span.slot, span.start_s.to_bits(), span.end_s.map(f64::to_bits));
    let known: BTreeSet<_> = before.spans.iter().map(key).collect();
    now.spans.iter().filter(|span| !known.contains(&key(span))).collect()
}

pub(in super::super) async fn events(call: Call) -> Result<Response, Failure> {
    let mut snapshots = call.api.engine.snapshots.clone();
    let caller = call.caller.clone();
    Ok(stream(&call, move |sender| async move {
        let mut before: Option<Arc<Snapshot>> = None;
        loop {
            let now = snapshots.borrow_and_update().clone();
            send(&sender, "state", &changes(before.as_deref(), &now, &caller)).await?;
            before = Some(now);
            sleep(PACE).await;
            // Without the engine nothing changes any more.
            snapshots.changed().await.map_err(|_| Gone)?;
        }
    }))
}
