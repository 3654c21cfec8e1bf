//! What a daemon recorded, once more: its decisions, and its jobs in the simulator.

use std::io;
use std::path::Path;

use bellwether_core::InputError;
use bellwether_core::policy::Fault;
use bellwether_core::words::count;
use bellwether_sched::registry::Registry;
use bellwether_serve::replay;

mod foresight;
mod simulated;

pub use bellwether_core::outlook::Coverage;
pub use bellwether_serve::replay::{Compacted, Compared, Difference, Given, Recorded};
pub use simulated::{JobTimes, Simulated};

/// A ledger, replayed.
pub struct Replay {
    /// What the ledger tells.
    pub recorded: Recorded,
    /// The recorded decisions beside those of the same policy, asked again; `None` if another policy was asked for.
    pub decisions: Option<Compared>,
    /// The policy of the simulation.
    pub policy: String,
    /// The recorded jobs on the simulated machine.
    pub simulated: Simulated,
}

/// A ledger could not be replayed.
#[derive(Debug)]
pub enum ReplayError {
    /// The ledger cannot be read, or one of its lines cannot follow those before it.
    Ledger(io::Error),
    /// The ledger has no lines.
    Empty,
    /// No policy has decided yet, and none was asked for.
    NoPolicy,
    /// The policy is not registered.
    Policy(InputError),
    /// The simulation failed.
    Simulation {
        /// Under this policy.
        policy: String,
        /// For this reason.
        fault: Fault,
    },
}

impl std::fmt::Display for ReplayError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ReplayError::Ledger(error) => write!(f, "the ledger cannot be replayed: {error}"),
            ReplayError::Empty => f.write_str("the ledger is empty"),
            ReplayError::NoPolicy => f.write_str("no policy has decided yet"),
            ReplayError::Policy(error) => error.fmt(f),
            ReplayError::Simulation { policy, fault } => write!(f, "policy `{policy}`: {fault}"),
        }
    }
}

impl std::error::Error for ReplayError {}

impl Replay {
    /// Replays the ledger in the file `path`: under the recorded policy, whose decisions are compared, or under
    /// `policy`. `restart_s` replaces the measured seconds that a change of devices costs.
    ///
    /// # Errors
    ///
    /// See [`ReplayError`].
    pub fn of(
        path: &Path,
        registry: &Registry,
        policy: Option<String>,
        restart_s: Option<f64>,
    ) -> Result<Replay, ReplayError> {
        let asked_again = policy.is_none().then_some(registry);
        let read = replay::read(path, asked_again).map_err(ReplayError::Ledger)?;
        let (recorded, decisions) = read.ok_or(ReplayError::Empty)?;
        let policy = policy.unwrap_or_else(|| recorded.state.policy.clone());
        if policy.is_empty() {
            return Err(ReplayError::NoPolicy);
        }
        let simulated = simulated::run(&recorded, registry, &policy, restart_s)?;
        Ok(Replay { recorded, decisions, policy, simulated })
    }

    /// Of the jobs of the ledger in the file `path` that waited after a decision: how many started within the first
    /// interval that the daemon foresaw, or would have foreseen.
    ///
    /// # Errors
    ///
    /// Returns [`ReplayError::Ledger`].
    pub fn foresight(path: &Path, registry: &Registry) -> Result<Coverage, ReplayError> {
        foresight::foresight(path, registry).map_err(ReplayError::Ledger)
    }

    /// Mean completion times of the jobs that ended in both worlds: measured, and simulated.
    pub fn means(&self) -> Option<(f64, f64)> {
        let jobs = &self.simulated.jobs;
        let both = || jobs.iter().filter_map(|job| Some((job.measured_s?, job.simulated_s?)));
        let count = both().count() as f64;
        let (measured_s, simulated_s) = both().fold((0.0, 0.0), |(one, other), (measured_s, simulated_s)| {
            (one + measured_s, other + simulated_s)
        });
        (count > 0.0).then(|| (measured_s / count, simulated_s / count))
    }

    /// How many allocations are the same before the first that differs.
    pub fn common(&self) -> usize {
        let both = self.recorded.given.iter().zip(&self.simulated.given);
        both.take_while(|(recorded, simulated)| recorded == simulated).count()
    }

    /// Why the two worlds may differ, in sentences.
    pub fn remarks(&self) -> Vec<String> {
        let recorded = &self.recorded;
        let mut remarks = Vec::new();
        if let Some(Compacted { time_s, jobs, .. }) = recorded.compacted {
            remarks.push(format!(
                "the ledger was compacted at {time_s:.3} s, with {}: the decisions, allocations and starts before are \
                 in ledger.jsonl.before, and the jobs count as arrived when they were submitted",
                count(jobs, "job")
            ));
        }
        if let Some(Compared { skipped: skipped @ 1.., .. }) = self.decisions {
            remarks.push(format!(
                "{} not compared: their policy began before the compaction, and what it remembered is not known",
                match skipped {
                    1 => "1 decision was".into(),
                    skipped => format!("{skipped} decisions were"),
                }
            ));
        }
        if recorded.policies.len() > 1 {
            let policies = recorded.policies.join(", ");
            remarks
                .push(format!("several policies decided ({policies}); simulated is {} alone", self.policy));
        }
        if recorded.interventions > 0 {
            let often = times(recorded.interventions);
            remarks.push(format!(
                "users suspended, resumed or limited jobs {often}; the simulator does not know"
            ));
        }
        if recorded.reopened > 0 {
            let often = times(recorded.reopened);
            remarks.push(format!(
                "the daemon restarted {often}, each time with a fresh policy; the simulation keeps one"
            ));
        }
        let missing = recorded.state.jobs.len() - self.simulated.jobs.len();
        if missing > 0 {
            remarks.push(format!("{} did no work before the end: they are left out", count(missing, "job")));
        }
        remarks
    }
}

/// How often: `once`, `twice`, `3 times`.
fn times(number: u32) -> String {
    match number {
        1 => "once".into(),
        2 => "twice".into(),
        number => format!("{number} times"),
    }
}
