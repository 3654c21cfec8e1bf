//! How workers may be kept together, and what staleness costs where a loss is the target.

use bellwether_answers::plan::Ways;
use bellwether_answers::predict::NODES_PER_UPDATE;
use bellwether_core::job::{SyncPolicy, WorkerRange};
use clap::Args;

use crate::options::of_u32;

#[derive(Debug, Args)]
pub(super) struct WayArguments {
    /// How workers may be kept together: bsp, asp, ssp:K, gossip, local:H, switch:SHARE[:PROTOCOL] [default: all
    /// wait for all]
    #[arg(long, value_name = "POLICY,…", value_delimiter = ',')]
    protocols: Vec<SyncPolicy>,
    /// Parameter servers where a protocol has them; they run on the workers' machines
    #[arg(long, value_name = "N|MIN..MAX", default_value = "1", requires = "protocols")]
    servers: WorkerRange,
    /// Virtual nodes whose gradients make one update through servers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(of_u32(NODES_PER_UPDATE)))]
    nodes_per_update: u32,
    /// Gradient noise scale in samples, which softens the cost of staleness to a target loss [default: as the curve's run
    /// measured it, else 0]
    #[arg(long, value_name = "SAMPLES", requires = "target_loss")]
    noise_scale: Option<f64>,
}

impl WayArguments {
    /// What they say.
    pub(super) fn ways(&self) -> Ways {
        Ways {
            protocols: self.protocols.clone(),
            servers: self.servers,
            nodes_per_update: self.nodes_per_update,
            noise_scale: self.noise_scale,
        }
    }
}
