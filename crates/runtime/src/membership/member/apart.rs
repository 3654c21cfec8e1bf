//! A worker's half of a stretch without a membership: which unit is next.

use std::collections::VecDeque;

use super::{Effect, Member, Stage, Task};
use crate::membership::{Membership, Stretch};

/// What the worker knows of the stretch.
#[derive(Debug, Clone, Default)]
pub(super) struct Apart {
    stretch: Option<Stretch>,
    granted: VecDeque<u64>,
    evaluate: Option<u64>,
    hand_over: Option<u64>,
}

impl Apart {
    fn is(&self, epoch: u64) -> bool {
        self.stretch.as_ref().is_some_and(|stretch| stretch.epoch == epoch)
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
    /// Takes a stretch in; the same again tells other addresses.
    pub(super) fn begin_apart(&mut self, stretch: Stretch) -> Vec<Effect> {
        if !self.apart.is(stretch.epoch) || self.stage != Stage::Apart {
            if stretch.epoch < self.membership.epoch {
                return vec![];
            }
            self.prepared.clear();
            self.agreed = None;
            self.catch_up = None;
            self.has_state = false;
            self.halted = false;
            self.membership = Membership { epoch: stretch.epoch, ..Membership::default() };
            self.stage = Stage::Apart;
            self.apart = Apart::default();
        }
        self.apart.stretch = Some(stretch);
        vec![Effect::Interrupt]
    }

    /// The stretch that is trained without a membership, while there is one.
    pub fn stretch(&self) -> Option<&Stretch> {
        self.apart.stretch.as_ref().filter(|_| self.stage == Stage::Apart)
    }

    /// Units that are granted and not done.
    pub fn granted(&self) -> usize {
        self.apart.granted.len()
    }

    /// [`Task::Unit`] was carried out.
    pub fn unit_done(&mut self, unit: u64) {
        self.apart.granted.retain(|granted| *granted != unit);
    }

    /// [`Task::EvaluateAlone`] was carried out.
    pub fn evaluated_alone(&mut self) {
        self.apart.evaluate = None;
    }

    /// [`Task::HandOver`] was carried out.
    pub fn handed_over(&mut self) {
        self.apart.hand_over = None;
    }
}
