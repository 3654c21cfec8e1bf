//! The state that training begins from, and a first look at all memory.

use super::Engine;
use super::local::Local;
use crate::state::TrainingState;
use crate::transfer::{read, write};
use crate::workload::{MicroBatch, Weights, WorkloadError};

impl Engine {
    /// Writes the initial state.
    pub(in crate::worker) fn initialize(&mut self) {
        let mut state = write(&self.state);
        let TrainingState { parameters, model_state, slots, step, noise } = &mut *state;
        slots.iter_mut().for_each(|slot| slot.fill(0.0));
        (*step, *noise) = Default::default();
        self.workload.initialize(self.seed, parameters, model_state);
        self.version += 1;
    }

    /// The state was changed from outside.
    pub(in crate::worker) fn touched(&mut self) {
        self.version += 1;
    }

    /// Computes one micro-batch for nothing, so that the first real one is as fast as the others.
    pub(in crate::worker) fn warm_up(&mut self) -> Result<(), WorkloadError> {
        self.initialize();
        self.order.micro_batch(0, 0, &mut self.samples);
        if self.samples.is_empty() {
            return Ok(());
        }
        // Memory that was never written to is slow at its first use, and the others would wait for it.
        if self.sharded.is_none() {
            self.out.fill(0.0);
        }
        self.local.iter_mut().for_each(Local::touch);
        self.accumulator.assign(self.order.virtual_nodes, 0..1);
        let state = read(&self.state);
        let (gradient, model_state) = self.accumulator.leaf().split_at_mut(state.parameters.len());
        let weights =
            Weights { parameters: &state.parameters, state: &state.model_state, version: self.version };
        let batch = MicroBatch { samples: &self.samples };
        self.workload.gradient(weights, batch, 0, gradient, model_state).map(|_| ())
    }
}
