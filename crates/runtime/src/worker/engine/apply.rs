//! The update: the reduced sums of some steps, applied by the job's rule to what is here of the state.

use std::ops::Range;
use std::sync::{Arc, RwLock};

use bellwether_core::virtual_shards::VirtualShards;

use super::{Applied, Engine, Fault};
use crate::membership::Activity;
use crate::noise::{self, Measured, Noise};
use crate::optimizer::{OwnRule, Update, UpdateRule};
use crate::order::SampleOrder;
use crate::state::{Reduced, TrainingState, all_finite};
use crate::transfer::{read, write};
use crate::worker::incoming::{Incoming, NotApplied};

/// What an update is, as it follows from what all members said.
#[derive(Debug, Clone, Copy)]
pub(super) struct Decided {
    pub(super) update: Update,
    /// Samples of the update.
    pub(super) samples: u64,
    /// The noise as it is known after the update.
    pub(super) noise: Noise,
    /// Mean loss of its samples.
    loss: f64,
}

impl Engine {
    /// Applies the sums in `out` as the result of these steps.
    pub(super) fn apply(
        &mut self,
        steps: Range<u64>,
        incoming: Option<&Incoming>,
        urgent: &dyn Fn() -> bool,
    ) -> Result<Applied, Fault> {
        let parameters = read(&self.state).parameters.len();
        let gradient = &self.out[..parameters];
        let needed = self.needs_square_sum(&steps);
        let square_sum = if needed { gradient_square_sum(gradient) } else { 0.0 };
        let decided = self.decide(&steps, square_sum)?;
        if !all_finite(gradient) {
            return Err(Fault::NotFinite("the gradient is not finite".into()));
        }
        let Decided { update, samples, noise, .. } = decided;
        let is_finite = self.apply_reduced(update, samples, noise, incoming, urgent)?;
        self.version += 1;
        Ok(self.applied(decided, is_finite))
    }

    /// Steps among these in which the noise of the gradient is measured.
    fn measured(&self, steps: &Range<u64>) -> impl Iterator<Item = u64> {
        let moves = self.optimizer.moves();
        steps.clone().filter(move |step| moves && noise::measures(*step))
    }

    /// Whether the update of these steps depends on the square norm of the whole gradient.
    pub(super) fn needs_square_sum(&self, steps: &Range<u64>) -> bool {
        let clips = self.optimizer.clips() && !self.is_local(steps.start);
        clips || self.measured(steps).next().is_some()
    }

    /// What the update of these steps is; `square_sum` is that of the whole gradient, where it is needed.
    pub(super) fn decide(&self, steps: &Range<u64>, square_sum: f64) -> Result<Decided, Fault> {
        let loss = self.last.loss / self.last.weight;
        if !loss.is_finite() {
            return Err(Fault::NotFinite(format!("the loss is {loss}")));
        }
        let samples: u64 = steps.clone().map(|step| self.order.samples_in(step)).sum();
        let sum =
            |of: fn(&SampleOrder, u64) -> u64| self.measured(steps).map(|step| of(&self.order, step)).sum();
        let found = Measured {
            squares: self.last.squares,
            total: square_sum,
            samples,
            measured: sum(SampleOrder::samples_in),
            measured_squared: sum(SampleOrder::samples_squared),
            population: self.order.samples,
        };
        let noise = read(&self.state).noise.with(&found, self.measured(steps).count() as u64);
        let count = steps.end - steps.start;
        let is_outer = self.is_local(steps.start);
        let rate_factor = self.optimizer.rate_factor(count, noise.scale());
        let scale = match is_outer {
            true => (1.0 / samples as f64) as f32,
            false => self.optimizer.scale(self.last.weight, square_sum),
        };
        let update = Update { steps: count, rate_factor, is_outer, ..Update::single(steps.start, scale) };
        Ok(Decided { update, samples, noise, loss })
    }

    /// What is told of an update.
    pub(super) fn applied(&self, decided: Decided, is_finite: bool) -> Applied {
        let moves = self.optimizer.moves();
        Applied {
            loss: decided.loss,
            is_finite,
            noise_scale: decided.noise.scale().filter(|_| moves),
            rate_factor: moves.then_some(decided.update.rate_factor),
        }
    }

    /// Applies the sums in `out` by the job's rule to what is here of the state; says whether all is finite.
    fn apply_reduced(
        &mut self,
        update: Update,
        samples: u64,
        noise: Noise,
        incoming: Option<&Incoming>,
        urgent: &dyn Fn() -> bool,
    ) -> Result<bool, Fault> {
        let state = Arc::clone(&self.state);
        if incoming.is_none() {
            self.wait_for_readers(&state, update.step);
        }
        let reduced = Reduced { sums: &self.out, samples, update, noise };
        let (mut own, mut given);
        let rule: &mut dyn UpdateRule = if self.optimizer.is_own() {
            own = OwnRule::new(self.workload.as_mut(), &mut self.mean);
            &mut own
        } else {
            given = &self.optimizer;
            &mut given
        };
        apply_here(&state, incoming, rule, reduced, urgent)
    }

    /// Waits until no other thread reads the state: what is on its way to a checkpoint is the state of one step.
    pub(super) fn wait_for_readers(&self, state: &RwLock<TrainingState>, step: u64) {
        if state.try_write().is_err() {
            self.part(Activity::Checkpointing, step);
            drop(write(state));
            self.part(Activity::Updating, step);
        }
    }
}

/// Applies a result to the state, or to what has come of it so far; says whether all is finite.
pub(super) fn apply_here(
    state: &RwLock<TrainingState>,
    incoming: Option<&Incoming>,
    rule: &mut dyn UpdateRule,
    reduced: Reduced<'_>,
    urgent: &dyn Fn() -> bool,
) -> Result<bool, Fault> {
    let failed = |error| Fault::Workload(error, None);
    match incoming {
        None => write(state).apply(rule, reduced).map_err(failed),
        // The members look at what they hold.
        Some(incoming) => match incoming.apply(reduced.update.step, rule, reduced, urgent) {
            Ok(()) => Ok(true),
            Err(NotApplied::Workload(error)) => Err(failed(error)),
            Err(why) => Err(Fault::Collective(None, format!("the state did not come: {why}"))),
        },
    }
}

/// Sum of squares of a whole gradient: of each virtual shard, and then over the shards, so that workers who share the
/// optimizer's state come to the same number.
pub(super) fn gradient_square_sum(gradient: &[f32]) -> f64 {
    let cut = VirtualShards::of(gradient.len());
    (0..cut.count()).map(|shard| square_sum(&gradient[cut.range(shard)])).sum()
}

/// Sum of squares in a fixed order that vectorises: sixteen lanes, added up at the end.
pub(super) fn square_sum(values: &[f32]) -> f64 {
    let mut lanes = [0.0f64; 16];
    let (blocks, rest) = values.as_chunks::<16>();
    for block in blocks {
        for (lane, value) in lanes.iter_mut().zip(block) {
            *lane += f64::from(*value) * f64::from(*value);
        }
    }
    let rest: f64 = rest.iter().map(|v| f64::from(*v) * f64::from(*v)).sum();
    lanes.iter().sum::<f64>() + rest
}
