//! The update: the reduced sums of some steps, applied by the job's rule to what is here of the state.

use std::ops::Range;
use std::sync::{Arc, RwLock};

use super::{Applied, Engine, Fault};
use crate::membership::Activity;
use crate::noise::{self, Measured, Noise};
use crate::optimizer::{OwnRule, Update, UpdateRule};
use crate::order::SampleOrder;
use crate::state::{Reduced, TrainingState, all_finite};
use crate::transfer::{read, write};
use crate::worker::incoming::{Incoming, NotApplied};

impl Engine {
    /// Applies the sums in `out` as the result of these steps.
    pub(super) fn apply(
        &mut self,
        steps: Range<u64>,
        incoming: Option<&Incoming>,
        urgent: &dyn Fn() -> bool,
    ) -> Result<Applied, Fault> {
        let samples: u64 = steps.clone().map(|step| self.order.samples_in(step)).sum();
        let (parameters, noise) = {
            let state = read(&self.state);
            (state.parameters.len(), state.noise)
        };
        let gradient = &self.out[..parameters];
        let moves = self.optimizer.moves();
        let measured: Vec<u64> = steps.clone().filter(|step| moves && noise::measures(*step)).collect();
        let needed = !measured.is_empty() || self.optimizer.clips();
        let square_sum = if needed { square_sum(gradient) } else { 0.0 };
        let loss = self.last.loss / self.last.weight;
        if !loss.is_finite() {
            return Err(Fault::NotFinite(format!("the loss is {loss}")));
        }
        if !all_finite(gradient) {
            return Err(Fault::NotFinite("the gradient is not finite".into()));
        }
        let count = steps.end - steps.start;
        let sum = |of: fn(&SampleOrder, u64) -> u64| measured.iter().map(|step| of(&self.order, *step)).sum();
        let found = Measured {
            squares: self.last.squares,
            total: square_sum,
            samples,
            measured: sum(SampleOrder::samples_in),
            measured_squared: sum(SampleOrder::samples_squared),
            population: self.order.samples,
        };
        let noise = noise.with(&found, measured.len() as u64);
        let rate_factor = self.optimizer.rate_factor(count, noise.scale());
        let scale = self.optimizer.scale(self.last.weight, square_sum);
        let update = Update { step: steps.start, steps: count, rate_factor, scale };
        let is_finite = self.apply_reduced(update, samples, noise, incoming, urgent)?;
        self.version += 1;
        Ok(Applied {
            loss,
            is_finite,
            noise_scale: noise.scale().filter(|_| moves),
            rate_factor: moves.then_some(rate_factor),
        })
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
        let failed = |error| Fault::Workload(error, None);
        match incoming {
            None => write(&state).apply(rule, reduced).map_err(failed),
            // The members look at what they hold.
            Some(incoming) => match incoming.apply(update.step, rule, reduced, urgent) {
                Ok(()) => Ok(true),
                Err(NotApplied::Workload(error)) => Err(failed(error)),
                Err(why) => Err(Fault::Collective(None, format!("the state did not come: {why}"))),
            },
        }
    }

    /// Waits until no other thread reads the state: what is on its way to a checkpoint is the state of one step.
    fn wait_for_readers(&self, state: &RwLock<TrainingState>, step: u64) {
        if state.try_write().is_err() {
            self.part(Activity::Checkpointing, step);
            drop(write(state));
            self.part(Activity::Updating, step);
        }
    }
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
