//! Other batches than the profiled one.

use bellwether_core::prediction::{Configuration, Protocol};

use super::{LEVEL_95, LINK_UNCERTAINTY, ProfileModel};
use crate::batch_times::Estimate;
use crate::compute::Durations;

impl ProfileModel {
    /// How many samples more than a step of the profile this batch has: all workers' step where they share it, else one
    /// worker's.
    pub(super) fn batch_factor(&self, configuration: &Configuration) -> f64 {
        let shared = self.shares_batch() && configuration.protocol.waits_for_all();
        let own = if shared { 1.0 } else { f64::from(configuration.workers()) };
        configuration.batch as f64 / own / self.profile.batch as f64
    }

    /// How much longer than a step of the profile this batch is computed on one worker of the profiled device:
    /// [`batch_factor`](Self::batch_factor) times as long, unless more is known of micro-batches of its size.
    pub(super) fn compute_factor(&self, configuration: &Configuration) -> f64 {
        let factor = self.batch_factor(configuration);
        match self.micro_batch(configuration) {
            Some((_, proportional, estimate)) => factor * estimate.seconds / proportional,
            None => factor,
        }
    }

    /// Samples of a micro-batch of this batch, what it would take if each sample took as long as in the profile, and
    /// what it is expected to take; `None` where it has the profile's size or nothing is known of others.
    pub(super) fn micro_batch(&self, configuration: &Configuration) -> Option<(f64, f64, Estimate)> {
        let times = self.batches.as_ref()?;
        let factor = self.batch_factor(configuration);
        if (factor - 1.0).abs() < 1e-9 || self.is_whole_units(configuration) {
            return None;
        }
        let profiled = self.profile.micro_batch();
        // Where not all wait for all, a unit of another size is cut as the units of this size are.
        let pieces = match configuration.protocol {
            Protocol::Bsp | Protocol::Local(_) => f64::from(self.profile.virtual_nodes),
            _ => f64::from(configuration.accumulation.clamp(1, self.profile.virtual_nodes)),
        };
        let samples = factor * self.profile.batch as f64 / pieces;
        Some((samples, times.at(profiled).seconds * samples / profiled, times.at(samples)))
    }

    /// Why this batch lies beyond what was measured, if it does.
    pub(super) fn other_batch(&self, configuration: &Configuration) -> Option<&'static str> {
        let other =
            (self.batch_factor(configuration) - 1.0).abs() > 1e-9 && !self.is_whole_units(configuration);
        match self.micro_batch(configuration) {
            Some((_, _, estimate)) if estimate.inside => None,
            Some(_) => Some("a micro-batch beyond the measured ones"),
            None => other.then_some("another batch than the profiled one"),
        }
    }

    /// Half the 95 % interval of a step's throughput, relative to it: of what was measured only now and then, and of
    /// what goes over links, which take `link_s` of the `step_s`.
    pub fn uncertainty(&self, step_s: f64, link_s: f64) -> f64 {
        let steps_s = self.gradients_s();
        let variation =
            Durations::new(&steps_s).map_or(0.0, |durations| durations.squared_variation().sqrt());
        let own_s = (step_s - link_s).max(0.0);
        let apart = self.profile.apart.unwrap_or_default();
        let own_error = (variation / (steps_s.len() as f64).sqrt()).hypot(apart.step_error);
        let own_error = own_error.hypot(self.contention() / LEVEL_95);
        let link_error = LINK_UNCERTAINTY.hypot(apart.link_error);
        LEVEL_95 * (own_error * own_s).hypot(link_error * link_s) / step_s
    }

    /// [`uncertainty`](Self::uncertainty) of a configuration, with what is not known of its batch.
    pub(super) fn uncertainty_at(&self, configuration: &Configuration, step_s: f64, link_s: f64) -> f64 {
        let own = (step_s - link_s).max(0.0) / step_s;
        let measured = self.profile.batches.iter().map(|batch| batch.error).fold(0.0, f64::max);
        let error = self.micro_batch(configuration).map_or(0.0, |(_, _, estimate)| {
            // The law's own distance is of its best beliefs, and no standard error.
            estimate.error.hypot(LEVEL_95 * measured)
        });
        self.uncertainty(step_s, link_s).hypot(error * own)
    }

    /// Seconds of one virtual node on a lone device, with its share of waiting for samples.
    pub(super) fn lone_node_s(&self, configuration: &Configuration) -> Option<f64> {
        let all_s = self.mean_compute_s() * self.compute_factor(configuration)
            / self.mean_speed(configuration).ok()?;
        let nodes = self.profile.virtual_nodes;
        Some((all_s + self.waiting_s(configuration, nodes)) / f64::from(nodes))
    }
}
