//! Local steps: virtual nodes train by themselves, and all wait for all once in a round.

use bellwether_core::prediction::{Bottleneck, Configuration};

use super::{PredictError, ProfileModel, Step};
use crate::compute::most_virtual_nodes;

impl ProfileModel {
    /// A step of a round of `steps`. Every virtual node updates parameters of its own in each step, begins a round by a
    /// copy of what all share and ends it by what it has moved, each of which counts as an update; then comes the
    /// exchange, beside which nothing is computed, and the update that all make.
    pub(super) fn local(&self, configuration: &Configuration, steps: u32) -> Result<Step, PredictError> {
        let nodes = match self.shares_batch() {
            true => most_virtual_nodes(self.profile.virtual_nodes, configuration.workers())?,
            false => 1,
        };
        let computing_s = self.slowest_s(configuration, nodes)?;
        let update_s = self.most(configuration, |model| model.update_s);
        let updates_s = f64::from(nodes) * update_s;
        let waiting_s = self.most(configuration, |model| model.waiting_s(configuration, nodes));
        let own_s = computing_s + waiting_s + self.most(configuration, |model| model.rest_s) + updates_s;
        // With nothing to hide it, all of the exchange is left.
        let mut exchange_s = 0.0_f64;
        for model in self.models(configuration) {
            exchange_s = exchange_s.max(model.exposed_s(configuration, 0.0)?);
        }
        let link_s = exchange_s / f64::from(steps.max(1));
        let step_s = own_s + link_s + (2.0 * updates_s + update_s) / f64::from(steps.max(1));
        let bottleneck = if link_s > computing_s { Bottleneck::Link } else { Bottleneck::Compute };
        Ok(Step { step_s, link_s, bottleneck })
    }
}
