//! What the processors at both ends of a connection do for an exchange through servers: a bound that the formulas and
//! the simulation, which know links and parsing, do not have.

use bellwether_core::prediction::{Bottleneck, Configuration, PredictError};

use super::{ProfileModel, Step};

impl ProfileModel {
    /// The step, or a longer one where a processor has more to do than that: a worker's computes and handles what it
    /// pulls and pushes, the busiest server's handles and applies what all workers do.
    ///
    /// Only where handling was measured ([`bellwether_core::profile::MeasuredApart`]).
    pub(super) fn with_handling(
        &self,
        configuration: &Configuration,
        step: Step,
    ) -> Result<Step, PredictError> {
        let handling = self.profile.apart.and_then(|apart| apart.handling);
        let Some(handling) = handling.filter(|_| configuration.servers > 0) else { return Ok(step) };
        let both_ways = self.profile.upload_bytes() as f64 + self.profile.download_bytes() as f64;
        let handled_s =
            handling.fixed_s * self.profile.parts.len() as f64 + handling.s_per_byte * both_ways / 2.0;
        let factor = self.compute_factor(configuration) / self.mean_speed(configuration)?;
        let waiting_s = self.waiting_s(configuration, self.profile.virtual_nodes);
        let worker_s = self.mean_compute_s() * factor + waiting_s + self.rest_s + handled_s;
        let all_s = f64::from(configuration.workers()) * (handled_s + self.update_s);
        let server_s = all_s * self.shares(configuration.servers)?.largest();
        Ok(if server_s > step.step_s.max(worker_s) {
            Step { step_s: server_s, link_s: server_s, bottleneck: Bottleneck::Server }
        } else if worker_s > step.step_s {
            Step { step_s: worker_s, link_s: step.link_s.min(handled_s), bottleneck: step.bottleneck }
        } else {
            step
        })
    }
}
