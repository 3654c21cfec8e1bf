//! A member's half of a verdict: at which boundaries it waits, and when all go on.
//!
//! A verdict to go on changes no membership, so that newcomers go on receiving what they are sent. But all must go on
//! after the same round. So members that wait tell each other in their rounds what they have heard, and go on after the
//! first in which all have heard it. What a member has only heard itself decides nothing.

use super::Member;
use crate::membership::Offer;

/// What a member knows of the run's verdicts.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Verdicts {
    /// The run goes on after every boundary up to this one: so this worker heard from the coordinator.
    heard: u64,
    /// All members know it up to this one. A worker that takes part in the membership comes to the same answer, also a
    /// shadow: it follows from what the membership began with, and from its rounds.
    passed: u64,
    /// In the last round some knew of a verdict that others had not heard of.
    some_know: bool,
}

impl Verdicts {
    /// Up to which boundary this worker heard that the run goes on.
    pub(super) fn heard(&self) -> u64 {
        self.heard
    }

    /// The coordinator said so.
    pub(super) fn hear(&mut self, step: u64) {
        self.heard = self.heard.max(step);
    }

    /// A membership begins, which was made when this much was decided.
    pub(super) fn begin(&mut self, decided: u64) {
        *self = Verdicts { heard: self.heard.max(decided), passed: decided, some_know: false };
    }

    /// A round ended at the boundary after `step` steps.
    pub(super) fn confer(&mut self, offers: &[Offer], step: u64) {
        let decided = || offers.iter().map(|offer| offer.decided);
        self.passed = self.passed.max(decided().min().unwrap_or(0));
        self.some_know = self.passed < step && decided().max().is_some_and(|most| most >= step);
    }
}

impl Member {
    /// Whether this is a boundary at which the members wait.
    pub(super) fn holds(&self) -> bool {
        // The step to wait at may lie within the update before the boundary.
        let is_here = |at: u64| at <= self.step && at.saturating_add(self.reach()) > self.step;
        self.membership.hold_at.is_some_and(is_here) || self.waits_for_verdict()
    }

    fn waits_for_verdict(&self) -> bool {
        let every = self.rules.verdict_every;
        let is_due = every > 0 && self.step.is_multiple_of(every) && self.step < self.rules.total_steps;
        is_due && self.step > self.verdicts.passed
    }

    /// Whether the members wait for a verdict on this step, which is neither part of a step nor of a switch.
    pub fn awaits_verdict(&self) -> bool {
        self.is_active() && self.waits_for_verdict()
    }

    /// Whether there is something to agree on with the others, with whom this worker waits.
    pub(super) fn may_confer(&self) -> bool {
        let waits = self.waits_for_verdict();
        let knows = waits && self.verdicts.heard >= self.step;
        if self.is_shadow() {
            // One that still receives chunks must be free to say when it has them all. But once it heard of the
            // verdict, the others confer without it and go on.
            return self.has_state || knows;
        }
        if knows || waits && self.verdicts.some_know {
            // Who has not heard yet does soon: another round before that would end as the last.
            return knows;
        }
        let floor = self.hold_floor.max(self.membership.epoch.saturating_add(1));
        self.prepared.iter().any(|m| m.epoch >= floor && m.from_step <= self.step)
    }
}
