//! How workers may be kept together, and what staleness costs where a loss is the target.

use bellwether_core::InputError;
use bellwether_core::job::{SyncPolicy, WorkerRange};
use bellwether_core::plan::SyncStrategy;
use bellwether_sched::plan::strategies::{Staleness, list};

use super::work::Amount;
use crate::options::Options;
use crate::predict::NODES_PER_UPDATE;

/// Most ways: each is a whole search.
const WAYS_MAX: usize = 64;

/// How workers may be kept together.
#[derive(Debug, Clone)]
pub struct Ways {
    /// Who waits for whom; empty: all for all.
    pub protocols: Vec<SyncPolicy>,
    /// Parameter servers where a protocol has them.
    pub servers: WorkerRange,
    /// Virtual nodes whose gradients make one update through servers.
    pub nodes_per_update: u32,
    /// Gradient noise scale in samples; `None`: as the curve's run measured it, else 0.
    pub noise_scale: Option<f64>,
}

impl Ways {
    pub(super) fn of(options: &mut Options) -> Result<Ways, InputError> {
        let protocols = options.list("protocols");
        let policy =
            |text: &String| text.parse().map_err(|e: bellwether_core::ParseError| e.at("--protocols"));
        Ok(Ways {
            protocols: protocols.iter().map(policy).collect::<Result<_, _>>()?,
            servers: options.parsed("servers", str::parse)?.unwrap_or(WorkerRange { min: 1, max: 1 }),
            nodes_per_update: options.whole("nodes_per_update", NODES_PER_UPDATE)?.unwrap_or(1),
            noise_scale: options.number("noise_scale")?,
        })
    }

    /// All that was asked for.
    pub(super) fn list(&self) -> Result<Vec<SyncStrategy>, InputError> {
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
            return Err(InputError::new("--servers", what).hint("ask for fewer numbers of servers"));
        }
        Ok(ways)
    }

    /// What decides how much staleness costs, where the work is what a target loss takes.
    pub(super) fn staleness(
        &self,
        amount: &Amount,
        virtual_nodes: u32,
        note: &mut dyn FnMut(String),
    ) -> Result<Option<Staleness>, InputError> {
        let Some(earlier) = amount.earlier.as_ref().filter(|_| !self.protocols.is_empty()) else {
            return Ok(None);
        };
        if let Some(wrong) = self.noise_scale.filter(|phi| !(phi.is_finite() && *phi >= 0.0)) {
            let what = format!("a noise scale of {wrong} samples");
            return Err(InputError::new("--noise-scale", what).hint("it is 0 or more"));
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
        note(format!(
            "stale updates are counted for less, by a momentum of {momentum} and {known}; a lower accuracy at the end is not in it"
        ));
        Ok(Some(staleness))
    }
}
