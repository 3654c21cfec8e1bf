//! What a run with phases tells of them.

use bellwether_core::prediction::Protocol;
use bellwether_core::record::{Event as Journal, PhaseSummary, Staleness};

use super::{Coordinator, Part};
use crate::membership::coordinator::Lifecycle;

impl Coordinator {
    /// How stale the updates of the phase were that ends before `step`.
    pub(super) fn keep_staleness(&mut self, step: u64) {
        let mut staleness = Staleness::default();
        let reports = std::mem::take(&mut self.asynchronous.reports);
        reports.values().for_each(|report| staleness.merge(&report.staleness));
        if staleness.updates() > 0 {
            self.asynchronous.staleness.merge(&staleness);
            let apply_s = reports.values().map(|report| report.apply_s).sum();
            self.journal(Journal::Stale { step, staleness, apply_s });
        }
    }

    /// Whether units are granted, and every shard of what they begin with has a holder.
    pub(in crate::membership::coordinator) fn grants_units(&self) -> bool {
        self.lifecycle == Lifecycle::Asynchronous
            && self.asynchronous.part == Part::Training
            && self.are_served()
    }

    /// Whether workers average with each other under way.
    pub(in crate::membership::coordinator) fn gossips(&self) -> bool {
        self.lifecycle == Lifecycle::Asynchronous && self.asynchronous.protocol == Protocol::Gossip
    }

    /// Whether no worker holds any of the state.
    pub(in crate::membership::coordinator) fn is_state_at_servers(&self) -> bool {
        self.lifecycle == Lifecycle::Asynchronous && self.asynchronous.protocol != Protocol::Gossip
    }

    /// Shards that servers hold in the phase under way.
    pub fn shards(&self) -> usize {
        self.asynchronous.shards.len()
    }

    /// Phases by protocol; empty for a run that knows only all-reduce.
    pub fn phases(&self) -> Vec<PhaseSummary> {
        let (now_s, committed) = (self.now_s, self.progress.committed());
        let close = |open: &PhaseSummary| match open.seconds < 0.0 {
            true => {
                let steps = committed.saturating_sub(open.step);
                PhaseSummary { steps, seconds: open.seconds + now_s, ..open.clone() }
            }
            false => open.clone(),
        };
        self.asynchronous.summaries.iter().map(close).collect()
    }

    /// How stale all asynchronous updates were, if there were any.
    pub fn staleness(&self) -> Option<Staleness> {
        let mut staleness = self.asynchronous.staleness.clone();
        self.asynchronous.reports.values().for_each(|report| staleness.merge(&report.staleness));
        (staleness.updates() > 0).then_some(staleness)
    }

    /// Writes down that steps are done by another protocol from here on.
    pub(in crate::membership::coordinator) fn enter_phase(
        &mut self,
        step: u64,
        protocol: Protocol,
        stall_s: f64,
    ) {
        let servers = self.asynchronous.shards.len() as u32;
        self.end_phase(step);
        let reason =
            if self.asynchronous.summaries.is_empty() { "the first phase" } else { "the next phase" };
        self.journal(Journal::Protocol { step, protocol, servers, stall_s, reason: reason.into() });
        self.asynchronous.summaries.push(PhaseSummary {
            step,
            steps: 0,
            protocol,
            servers,
            seconds: -self.now_s,
            stall_s,
        });
    }

    /// The phase under way, if any, has ended before this step.
    pub(super) fn end_phase(&mut self, step: u64) {
        if let Some(open) = self.asynchronous.summaries.last_mut().filter(|open| open.seconds < 0.0) {
            open.steps = step.saturating_sub(open.step);
            open.seconds += self.now_s;
        }
    }

    /// A membership trains again: that is a phase like others, in a run that has others.
    pub(in crate::membership::coordinator) fn back_together(&mut self, step: u64) {
        let open = self.asynchronous.summaries.last().is_some_and(|open| open.seconds < 0.0);
        let first = self.asynchronous.summaries.is_empty();
        let change = self.asynchronous.next_change();
        let has_others = change.is_some() || self.asynchronous.has_local_steps();
        let changes_here = change.is_some_and(|(at, _)| at <= step);
        if open || first && (changes_here || !has_others) {
            return;
        }
        let stall_s = if first { 0.0 } else { self.now_s - self.asynchronous.idle_since_s };
        if self.total_steps.is_none_or(|total| step < total) {
            self.asynchronous.shards.clear();
            self.enter_phase(step, self.asynchronous.together_at(step), stall_s);
        }
    }

    /// The membership in force has passed this step: a phase of it may have begun on the way.
    pub(in crate::membership::coordinator) fn follow_phases(&mut self, step: u64) {
        loop {
            let Some(open) = self.asynchronous.summaries.last() else { return };
            let phases = &self.asynchronous.plan.phases;
            let next = phases.iter().find(|(from, _)| *from > open.step && *from < step);
            match next.copied().filter(|(_, next)| open.protocol.waits_for_all() && next.waits_for_all()) {
                Some((from, protocol)) => self.enter_phase(from, protocol, 0.0),
                None => return,
            }
        }
    }
}
