//! A worker's half of a phase without a membership: which unit is next.

use std::collections::VecDeque;

use super::{Effect, Member, Stage, Task};
use crate::membership::{Membership, Phase};

/// What the worker knows of the phase.
#[derive(Debug, Clone, Default)]
pub(super) struct Asynchronous {
    phase: Option<Phase>,
    granted: VecDeque<u64>,
    evaluate: Option<u64>,
    hand_over: Option<u64>,
}

impl Asynchronous {
    fn is(&self, epoch: u64) -> bool {
        self.phase.as_ref().is_some_and(|phase| phase.epoch == epoch)
    }

    pub(super) fn grant(&mut self, epoch: u64, units: &[u64]) {
        if self.is(epoch) {
            self.granted.extend(units);
        }
    }

    pub(super) fn ask_evaluation(&mut self, epoch: u64, step: u64) {
        if self.is(epoch) {
            self.evaluate = Some(step);
        }
    }

    pub(super) fn ask_hand_over(&mut self, epoch: u64, step: u64) {
        if self.is(epoch) {
            self.hand_over = Some(step);
        }
    }

    pub(super) fn next_task(&self) -> Task {
        match (self.evaluate, self.granted.front(), self.hand_over) {
            (Some(step), ..) => Task::EvaluateAlone(step),
            (None, Some(unit), _) => Task::Unit(*unit),
            (None, None, Some(step)) => Task::HandOver(step),
            (None, None, None) => Task::Idle,
        }
    }
}

impl Member {
    /// Takes a phase in; the same again tells other addresses.
    pub(super) fn begin_asynchronous(&mut self, phase: Phase) -> Vec<Effect> {
        if !self.asynchronous.is(phase.epoch) || self.stage != Stage::Asynchronous {
            if phase.epoch < self.membership.epoch {
                return vec![];
            }
            self.prepared.clear();
            self.agreed = None;
            self.catch_up = None;
            self.has_state = false;
            self.halted = false;
            self.membership = Membership { epoch: phase.epoch, ..Membership::default() };
            self.stage = Stage::Asynchronous;
            self.asynchronous = Asynchronous::default();
        }
        self.asynchronous.phase = Some(phase);
        vec![Effect::Interrupt]
    }

    /// The phase that is trained without a membership, while there is one.
    pub fn phase(&self) -> Option<&Phase> {
        self.asynchronous.phase.as_ref().filter(|_| self.stage == Stage::Asynchronous)
    }

    /// Units that are granted and not done.
    pub fn granted(&self) -> usize {
        self.asynchronous.granted.len()
    }

    /// [`Task::Unit`] was carried out.
    pub fn unit_done(&mut self, unit: u64) {
        self.asynchronous.granted.retain(|granted| *granted != unit);
    }

    /// [`Task::EvaluateAlone`] was carried out.
    pub fn evaluated_alone(&mut self) {
        self.asynchronous.evaluate = None;
    }

    /// [`Task::HandOver`] was carried out.
    pub fn handed_over(&mut self) {
        self.asynchronous.hand_over = None;
    }
}
