//! One piece at its server: its values, its slots, and what was applied to it.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use super::account::Progress;
use super::connection::Connection;
use crate::optimizer::{Optimizer, Update};
use crate::parameters::wire::Header;
use crate::tree::{add_assign, children};

/// A piece, under its lock.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub(super) values: Vec<f32>,
    pub(super) slots: Vec<Vec<f32>>,
    /// With [`Rule::Together`](super::Rule::Together): the values of the step before, none before the phase's first. A
    /// worker may die when it has pushed its gradient to some pieces only: the worker that does the unit again needs
    /// the values of its step. No piece is further ahead of another.
    pub(super) previous: Vec<f32>,
    /// Updates since the server was loaded.
    pub(super) version: u64,
    /// With [`Rule::Together`](super::Rule::Together): the step whose units are gathered.
    pub(super) step: u64,
    /// Units that were applied (or gathered); those that are complete may be missing.
    pub(super) applied: BTreeSet<u64>,
    /// Above this number, complete ones are forgotten.
    many: usize,
    /// Gradients of the step's units by their place, until all are there.
    pub(super) gathered: Vec<Option<(Header, Vec<f32>)>>,
    /// Buffers for gradients.
    pub(super) spare: Vec<Vec<f32>>,
    /// Pulls that wait for a later step.
    pub(super) waiting: Vec<(Arc<Connection>, Header)>,
    /// Gradients of later steps, at most one of each worker.
    pub(super) early: Vec<(Arc<Connection>, Header, Vec<f32>)>,
    /// Whether what is applied is forwarded to the replica.
    pub(super) forwarded: bool,
    /// Seconds that updates took.
    pub(super) applying_s: f64,
}

/// What need not wait any longer after a step.
#[derive(Debug, Default)]
pub(super) struct Freed {
    pub(super) pulls: Vec<(Arc<Connection>, Header)>,
    pub(super) pushes: Vec<(Arc<Connection>, Header, Vec<f32>)>,
}

impl Held {
    /// Applies the gradient (or the difference of the model state) of one unit.
    pub(super) fn each(&mut self, optimizer: &Optimizer, push: &Header, state: bool, gradient: &[f32]) {
        if state {
            for (value, difference) in self.values.iter_mut().zip(gradient) {
                *value += push.share * difference;
            }
        } else {
            let rate_factor = f64::from(push.share);
            let update = Update { rate_factor, ..Update::single(push.step, push.scale) };
            self.update(optimizer, update, gradient);
        }
        self.version += 1;
    }

    /// Keeps the gradient of one unit of the current step; `gradient` becomes some buffer of the same length.
    pub(super) fn gather(&mut self, place: usize, push: &Header, gradient: &mut Vec<f32>) {
        let mut buffer = self.spare.pop().unwrap_or_else(|| vec![0.0; gradient.len()]);
        std::mem::swap(gradient, &mut buffer);
        self.gathered[place] = Some((*push, buffer));
    }

    /// Applies the sum of the step's gradients once all are there; says whether they were.
    pub(super) fn step_if_whole(&mut self, optimizer: &Optimizer, state: bool) -> bool {
        if self.gathered.iter().any(Option::is_none) {
            return false;
        }
        let (pushes, mut leaves): (Vec<Header>, Vec<Vec<f32>>) = self.gathered.drain(..).flatten().unzip();
        let units = leaves.len();
        sum(0..units as u32, &mut leaves);
        let scale = pushes[0].scale;
        self.previous.clone_from(&self.values);
        if state {
            for (value, sum) in self.values.iter_mut().zip(&leaves[0]) {
                *value = sum / scale;
            }
        } else {
            self.update(optimizer, Update::single(self.step, scale), &leaves[0]);
        }
        self.spare.append(&mut leaves);
        self.gathered.resize_with(units, || None);
        self.version += 1;
        self.step += 1;
        true
    }

    /// Keeps a worker's gradient of a later step; one that it had there is forgotten.
    pub(super) fn keep_early(&mut self, worker: &Arc<Connection>, push: &Header, gradient: &[f32]) {
        self.early.retain(|(other, ..)| !Arc::ptr_eq(other, worker));
        self.early.push((Arc::clone(worker), *push, gradient.to_vec()));
    }

    /// Takes what waited for the step that has come.
    pub(super) fn free(&mut self) -> Freed {
        let step = self.step;
        Freed {
            pulls: self.waiting.extract_if(.., |(_, pull)| pull.step <= step).collect(),
            pushes: self.early.extract_if(.., |(_, push, _)| push.step <= step).collect(),
        }
    }

    /// Remembers a unit that was applied, and forgets those that are complete once they are many.
    pub(super) fn remember(&mut self, unit: u64, progress: &Progress) {
        const MANY: usize = 64;
        self.applied.insert(unit);
        if self.applied.len() > self.many.max(MANY) {
            self.applied.retain(|unit| !progress.has(*unit));
            self.many = 2 * self.applied.len();
        }
    }

    fn update(&mut self, optimizer: &Optimizer, update: Update, gradient: &[f32]) {
        let slots = self.slots.iter_mut().take(optimizer.slots().len());
        let mut slots: Vec<&mut [f32]> = slots.map(Vec::as_mut_slice).collect();
        optimizer.update(update, &mut self.values, &mut slots, gradient);
    }

    /// Begins a phase at `step` with this many units to gather (0 when each is applied at once).
    pub(super) fn begin(&mut self, step: u64, units: usize) {
        self.step = step;
        self.previous = Vec::new();
        self.applied.clear();
        self.gathered.clear();
        self.gathered.resize_with(units, || None);
        if units == 0 {
            self.spare = Vec::new();
        }
    }
}

/// Adds up the leaves of a node of the canonical tree; the sum is left in its first one.
fn sum(node: Range<u32>, leaves: &mut [Vec<f32>]) {
    let Some((left, right)) = children(&node) else { return };
    let middle = (right.start - node.start) as usize;
    let (of_left, of_right) = leaves.split_at_mut(middle);
    sum(left, of_left);
    sum(right, of_right);
    add_assign(&mut of_left[0], &of_right[0]);
}
