//! Waiting for samples and the rest of a step, which no device shortens.

use std::borrow::Cow;

use bellwether_core::prediction::{Bottleneck, Configuration, PredictError};
use bellwether_core::profile::{OperationKind, Profile};
use bellwether_core::record::BUSY;

use super::ProfileModel;

impl ProfileModel {
    /// Seconds of each measured step until a worker had its gradients.
    pub(super) fn gradients_s(&self) -> Vec<f64> {
        let waits_s = self.profile.data_wait_s();
        self.profile.compute_s().iter().zip(waits_s).map(|(compute_s, wait_s)| compute_s + wait_s).collect()
    }

    /// Seconds that a worker waits for the samples of this many virtual nodes.
    pub(super) fn waiting_s(&self, configuration: &Configuration, nodes: u32) -> f64 {
        let share = f64::from(nodes) / f64::from(self.profile.virtual_nodes);
        self.data_wait_s * share * self.batch_factor(configuration)
    }

    /// The profile with its waiting for samples as a part of computing, for devices of `speed`: they compute what is
    /// in it faster, but do not wait less.
    pub(super) fn with_waiting(&self, speed: f64) -> Cow<'_, Profile> {
        if self.data_wait_s == 0.0 {
            return Cow::Borrowed(&self.profile);
        }
        let more = 1.0 + self.data_wait_s * speed / self.mean_compute_s();
        let mut profile = self.profile.clone();
        for step in &mut profile.steps {
            for (seconds, operation) in step.operations_s.iter_mut().zip(&self.profile.operations) {
                if operation.kind == OperationKind::Compute {
                    *seconds *= more;
                }
            }
            step.data_wait_s = 0.0;
        }
        Cow::Owned(profile)
    }

    /// Adds the rest of a step, which is neither computed, sent nor waited for, to what is computed first in a turn,
    /// for workers that compute `speed` times as fast as was measured: the rest they do no faster.
    pub(super) fn add_rest(&self, turn: &mut Cow<'_, Profile>, speed: f64) {
        let first = turn.operations.iter().position(|operation| operation.kind == OperationKind::Compute);
        let Some(first) = first.filter(|_| self.rest_s > 0.0) else { return };
        for step in &mut turn.to_mut().steps {
            step.operations_s[first] += self.rest_s * speed;
            step.step_s += self.rest_s * speed;
        }
    }

    /// The part of a step that may have been waiting for a processor, if the machine was busy while it was profiled: a
    /// step may have waited all that time, or none of it.
    pub(super) fn contention(&self) -> f64 {
        self.profile().processor_wait.filter(|share| *share > BUSY).unwrap_or(0.0)
    }

    /// What bounds a step, where a worker that is busy all the time may only wait.
    pub(super) fn or_data(
        &self,
        bottleneck: Bottleneck,
        configuration: &Configuration,
    ) -> Result<Bottleneck, PredictError> {
        let waits = self.data_wait_s > self.mean_compute_s() / self.mean_speed(configuration)?;
        Ok(if bottleneck == Bottleneck::Compute && waits { Bottleneck::Data } else { bottleneck })
    }
}
