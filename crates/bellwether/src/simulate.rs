//! Simulations: the jobs of a trace on a cluster, under any policy, with what is true of their speed and what the
//! policy believes of it.

use bellwether_core::policy::{Fault, Policy};
use bellwether_core::prediction::StepModel;
use bellwether_sched::drive::drive;

pub use bellwether_sim::cluster::Cluster;
pub use bellwether_sim::report::{Report, report};
pub use bellwether_sim::trace::{self, Entry, Format, ReadOptions, Trace};
pub use bellwether_sim::workload::{self as generator, Workload as Generator, generate};
pub use bellwether_sim::world::{EarlyTermination, JobRecord, Knowledge, Outage, Recording, Scenario, Span};

use bellwether_sim::world::World;

mod experiment;
pub mod replay;
mod timed;

pub use experiment::{Experiment, ExperimentError, Jobs, Outcome, PolicyResult};

/// Lets `policy` decide about the jobs of `entries` (in order of arrival) in the cluster of `scenario`, until the
/// last has ended. Jobs are as fast as `truth` says; `belief` is what the policy is told of that. The figures of the
/// recording are
/// [`report`]'s.
///
/// # Errors
///
/// A policy that breaks a law of [`Policy`]; a model that knows nothing of a job or of its devices.
///
/// # Panics
///
/// When `entries` are not in order.
pub fn simulate(
    policy: &mut dyn Policy,
    entries: &[Entry],
    truth: &dyn StepModel,
    belief: &dyn StepModel,
    scenario: &Scenario,
) -> Result<Recording, Fault> {
    let mut world = World::new(entries, truth, scenario);
    drive(policy, &mut world, belief)?;
    Ok(world.into_recording())
}
