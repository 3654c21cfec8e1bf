//! How workers may be kept together, and what staleness costs where a loss is the target.

use bellwether_core::InputError;
use bellwether_core::job::{SyncPolicy, WorkerRange};
use bellwether_core::plan::SyncStrategy;
use bellwether_sched::plan::strategies::{Staleness, list};
use clap::Args;

use super::work::Work;
use crate::failure::Failure;
use crate::printer::Printer;

/// Most ways: each is a whole search.
const WAYS_MAX: usize = 64;

#[derive(Debug, Args)]
pub(super) struct WayArguments {
    /// How workers may be kept together: bsp, asp, ssp:K, gossip, switch:SHARE[:PROTOCOL] [default: all wait for all]
    #[arg(long, value_name = "POLICY,…", value_delimiter = ',')]
    protocols: Vec<SyncPolicy>,
    /// Parameter servers where a protocol has them; they run on the workers' machines
    #[arg(long, value_name = "N|MIN..MAX", default_value = "1", requires = "protocols")]
    servers: WorkerRange,
    /// Virtual nodes whose gradients make one update through servers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) nodes_per_update: u32,
    /// Gradient noise scale in samples, which softens the cost of staleness to a target loss [default: as the curve's run
    /// measured it, else 0]
    #[arg(long, value_name = "SAMPLES", requires = "target_loss")]
    noise_scale: Option<f64>,
}

impl WayArguments {
    /// All that was asked for.
    pub(super) fn ways(&self) -> Result<Vec<SyncStrategy>, Failure> {
        let ways = list(
            &self.protocols,
            self.servers.min..=self.servers.max.min(self.servers.min + WAYS_MAX as u32),
        );
        if ways.len() > WAYS_MAX {
            let what = format!(
                "{} named with {} servers each are more than {WAYS_MAX} ways",
                self.protocols.len(),
                self.servers
            );
            return Err(InputError::new("--servers", what).hint("ask for fewer numbers of servers").into());
        }
        Ok(ways)
    }

    /// What decides how much staleness costs, where the work is what a target loss takes.
    pub(super) fn staleness(
        &self,
        work: &Work,
        virtual_nodes: u32,
        printer: &Printer,
    ) -> Result<Option<Staleness>, Failure> {
        let Some(earlier) = work.earlier.as_ref().filter(|_| !self.protocols.is_empty()) else {
            return Ok(None);
        };
        if let Some(wrong) = self.noise_scale.filter(|phi| !(phi.is_finite() && *phi >= 0.0)) {
            let what = format!("a noise scale of {wrong} samples");
            return Err(InputError::new("--noise-scale", what).hint("it is 0 or more").into());
        }
        let noise_scale = self.noise_scale.or(earlier.noise_scale);
        let staleness = Staleness::of(
            earlier.job.as_ref(),
            noise_scale.unwrap_or(0.0),
            self.nodes_per_update,
            virtual_nodes,
        );
        let momentum = staleness.momentum;
        let known = match noise_scale {
            Some(phi) => format!("a gradient noise scale of {phi:.0} samples"),
            None => "no known gradient noise, the worst case (--noise-scale says another)".to_string(),
        };
        printer.note(format_args!(
            "stale updates are counted for less, by a momentum of {momentum} and {known}; a lower accuracy at the end is not in it"
        ));
        Ok(Some(staleness))
    }
}
