//! How workers may be kept together, and what staleness costs where a loss is the target.

use bellwether_core::InputError;
use bellwether_core::job::{AsyncMomentum, Job, Optimizer, SyncPolicy, WorkerRange};
use bellwether_core::plan::{Plan, SyncStrategy, TransmissionOrder};
use bellwether_core::profile::Profile;
use bellwether_model::event::{priority, with_downloads};
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
        let (synchronous_momentum, momentum) =
            earlier.job.as_ref().map_or((0.0, 0.0), |job| momenta(job, self.nodes_per_update, virtual_nodes));
        let known = match noise_scale {
            Some(phi) => format!("a gradient noise scale of {phi:.0} samples"),
            None => "no known gradient noise, the worst case (--noise-scale says another)".to_string(),
        };
        printer.note(format_args!(
            "stale updates are counted for less, by a momentum of {momentum} and {known}; a lower accuracy at the end is not in it"
        ));
        Ok(Some(Staleness { noise_scale: noise_scale.unwrap_or(0.0), synchronous_momentum, momentum }))
    }
}

/// Lets parts travel in the order in which computing needs them, where the profile tells it.
pub(super) fn order(plan: &mut Plan, profile: &Profile) {
    let Some(way) = plan.synchronisation.as_mut().filter(|way| way.servers > 0) else { return };
    let profile = with_downloads(profile);
    let bandwidth = profile.network.map_or(1e9, |network| network.bandwidth_bytes_per_s);
    // One part has no order, and where the operations tell none it stays as it was.
    if profile.parts.len() > 1
        && let Ok(levels) = priority::tac(&profile, bandwidth)
    {
        way.order = TransmissionOrder::Priority(levels);
    }
}

/// Momentum of a job in synchronous and in asynchronous phases; that of Adam is its first decay rate.
fn momenta(job: &Job, nodes_per_update: u32, virtual_nodes: u32) -> (f64, f64) {
    let own = match &job.optimizer {
        Optimizer::Sgd { momentum, .. } => *momentum,
        Optimizer::Adam { betas, .. } | Optimizer::Adamw { betas, .. } => betas[0],
    };
    let stale = match job.sync.momentum {
        AsyncMomentum::Keep => own,
        AsyncMomentum::Scale => own * f64::from(nodes_per_update) / f64::from(virtual_nodes.max(1)),
        AsyncMomentum::Zero => 0.0,
    };
    (own, stale)
}
