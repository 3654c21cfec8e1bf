//! What a run with stretches tells of them.

use bellwether_core::prediction::Protocol;
use bellwether_core::record::{Event as Journal, Staleness, StretchSummary};

use super::{Coordinator, Part};
use crate::membership::coordinator::Phase;

impl Coordinator {
    /// How stale the updates of the stretch were that ends before `step`.
    pub(super) fn keep_staleness(&mut self, step: u64) {
        let mut staleness = Staleness::default();
        let reports = std::mem::take(&mut self.apart.reports);
        reports.values().for_each(|report| staleness.merge(&report.staleness));
        if staleness.updates() > 0 {
            self.apart.staleness.merge(&staleness);
            let apply_s = reports.values().map(|report| report.apply_s).sum();
            self.journal(Journal::Stale { step, staleness, apply_s });
        }
    }

    /// Whether units are granted, and somebody holds every shard of what they begin with.
    pub(in crate::membership::coordinator) fn grants_units(&self) -> bool {
        self.phase == Phase::Apart && self.apart.part == Part::Training && self.are_served()
    }

    /// Whether workers average with each other under way.
    pub(in crate::membership::coordinator) fn gossips(&self) -> bool {
        self.phase == Phase::Apart && self.apart.protocol == Protocol::Gossip
    }

    /// Whether no worker holds any of the state.
    pub(in crate::membership::coordinator) fn is_state_at_servers(&self) -> bool {
        self.phase == Phase::Apart && self.apart.protocol != Protocol::Gossip
    }

    /// Shards that servers hold in the stretch under way.
    pub fn shards(&self) -> usize {
        self.apart.shards.len()
    }

    /// Stretches by protocol; empty for a run that knows only all-reduce.
    pub fn stretches(&self) -> Vec<StretchSummary> {
        let (now_s, committed) = (self.now_s, self.progress.committed());
        let close = |open: &StretchSummary| match open.seconds < 0.0 {
            true => {
                let steps = committed.saturating_sub(open.step);
                StretchSummary { steps, seconds: open.seconds + now_s, ..open.clone() }
            }
            false => open.clone(),
        };
        self.apart.summaries.iter().map(close).collect()
    }

    /// How stale all asynchronous updates were, if there were any.
    pub fn staleness(&self) -> Option<Staleness> {
        let mut staleness = self.apart.staleness.clone();
        self.apart.reports.values().for_each(|report| staleness.merge(&report.staleness));
        (staleness.updates() > 0).then_some(staleness)
    }
}
