//! Workers of one machine, which exchange through the memory that they share.

use bellwether_core::InputError;
use bellwether_core::prediction::{Configuration, Link};
use bellwether_core::profile::CollectiveCost;

use super::{ProfileModel, units};
use crate::collective::DirectExchange;

impl ProfileModel {
    /// Whether workers that `link` connects are on one machine: as the profiled ones, whose link it is.
    pub(super) fn are_together(&self, link: &Link) -> bool {
        let as_profiled = self.profile.network.map(Link::from).as_ref() == Some(link);
        as_profiled && self.profile.shared_memory.is_some()
    }

    /// What carries the exchanges of this project's runtime: on one machine the memory, as it was measured there.
    pub(super) fn carrier(&self, configuration: &Configuration) -> Link {
        let link = configuration.link;
        let nodes = units::devices_by_node(configuration).into_iter().filter(|count| *count > 0).count();
        let shared = self.profile.shared_memory.filter(|_| nodes == 1 && self.are_together(&link));
        shared.map_or(link, Link::from)
    }

    /// Seconds that the runtime's exchange of `bytes` goes on after a worker's computing, which takes `compute_s`.
    pub(super) fn exposed_of_runtime_s(
        &self,
        configuration: &Configuration,
        compute_s: f64,
        bytes: u64,
    ) -> Result<f64, InputError> {
        let (nodes, workers) = (self.profile.virtual_nodes, configuration.workers());
        let exchange = DirectExchange::new(nodes, workers, bytes)?;
        let free = CollectiveCost { s_per_byte: 0.0, fixed_s: 0.0 };
        let cost = self.profile.collective.unwrap_or(free);
        let exchange_s = exchange.seconds(&self.carrier(configuration), &cost)?;
        let tail_s = self.profile.tail_s.unwrap_or(0.0) * self.compute_factor(configuration);
        // Gradients get ready within the virtual node that they belong to.
        let most = f64::from(nodes.div_ceil(workers));
        exchange.exposed_s(exchange_s, tail_s.min(compute_s / most))
    }
}
