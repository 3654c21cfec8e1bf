//! The jobs of a trace on a cluster, under any policy.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use bellwether_core::InputError;
use bellwether_core::job::WorkerRange;
use bellwether_core::policy::{Fault, Policy};
use bellwether_core::prediction::StepModel;
use bellwether_core::units::Seconds;
use bellwether_sched::drive::drive;
use bellwether_sched::policy::About;
use bellwether_sched::registry::{Registry, names};
use bellwether_sim::cluster::Cluster;
use bellwether_sim::trace::{Entry, Format};
use bellwether_sim::world::{EarlyTermination, Knowledge, Recording, Scenario, World};

use crate::Refusal;
use crate::options::Options;

mod experiment;
mod inputs;
mod queues;
mod timed;

pub use experiment::{Experiment, ExperimentError, Jobs, Outcome, PolicyResult};
pub(crate) use inputs::read_beside;
pub use inputs::{Inputs, read_trace, read_workload};
pub use queues::QueueReport;

/// Numbers of seeds.
pub const SEEDS: RangeInclusive<u64> = 1..=10_000;
/// The shortest round.
const ROUND_MIN_S: f64 = 1e-3;
/// How fast jobs are in truth, when nothing is said.
pub const TRUTH: &str = "declared";

/// What is asked.
#[derive(Debug, Clone)]
pub struct Request {
    /// The machines: a file, or a few words.
    pub cluster: String,
    /// The jobs: a trace, or a generator (TOML) from which each seed draws its own.
    pub trace: PathBuf,
    /// Policies, with options after a colon, or `all`.
    pub policies: Vec<String>,
    /// What a policy knows of remaining work.
    pub remaining: Knowledge,
    /// How fast jobs are in truth.
    pub truth: String,
    /// How fast policies believe that they are; `None`: as in truth.
    pub belief: Option<String>,
    /// Seeds 1 to this.
    pub seeds: u64,
    /// Format of the trace; `None`: by its header.
    pub trace_format: Option<Format>,
    /// What a job pays when it goes on after a stop; `None`: as in the cluster's file.
    pub restart: Option<Seconds>,
    /// What a job pays when it starts for the first time; `None`: nothing.
    pub start: Option<Seconds>,
    /// Policies are asked at multiples of this; `None`: whenever something has changed.
    pub round: Option<Seconds>,
    /// Whether two jobs may share devices.
    pub packing: bool,
    /// Whether jobs that span nodes share the nodes' links.
    pub shared_links: bool,
    /// Devices of every job whose row does not say otherwise.
    pub elastic: Option<WorkerRange>,
    /// How jobs end early.
    pub early: Option<EarlyTermination>,
    /// A file of queues that divide the cluster.
    pub queues: Option<PathBuf>,
    /// Keep who held what when, of the first seed.
    pub keep_spans: bool,
    /// Keep every decision that does something, of the first seed.
    pub keep_decisions: bool,
}

impl Request {
    /// The request with these options.
    ///
    /// # Errors
    ///
    /// An option that is unknown, or whose value cannot be read.
    pub fn of(mut options: Options) -> Result<Request, InputError> {
        let request = Request {
            cluster: options.needed("cluster")?,
            trace: options.needed("trace")?.into(),
            policies: options.list("policy"),
            remaining: options.parsed("remaining", str::parse)?.unwrap_or(Knowledge::Exact),
            truth: options.text("truth").unwrap_or_else(|| TRUTH.into()),
            belief: options.text("belief"),
            seeds: options.whole("seeds", SEEDS)?.unwrap_or(1),
            trace_format: options.parsed("trace_format", str::parse)?,
            restart: options.parsed("restart", str::parse)?,
            start: options.parsed("start", str::parse)?,
            round: options.parsed("round", str::parse)?,
            packing: options.is_set("packing"),
            shared_links: options.is_set("shared_links"),
            elastic: options.parsed("elastic", str::parse)?,
            early: options.parsed("early", str::parse)?,
            queues: options.text("queues").map(PathBuf::from),
            keep_spans: false,
            keep_decisions: false,
        };
        options.end()?;
        Ok(request)
    }

    /// The files, read, after a check of the policies.
    ///
    /// # Errors
    ///
    /// Policies that are not registered or cannot decide with what is known; files that cannot be read or used.
    pub fn inputs(&self) -> Result<Inputs, InputError> {
        self.check()?;
        inputs::read(self)
    }

    /// The same on another cluster.
    ///
    /// # Errors
    ///
    /// Those of [`inputs`](Request::inputs).
    pub(crate) fn inputs_on(&self, cluster: Cluster) -> Result<Inputs, InputError> {
        self.check()?;
        inputs::read_on(self, cluster)
    }

    fn check(&self) -> Result<(), InputError> {
        if self.round.is_some_and(|round| round.get() < ROUND_MIN_S) {
            return Err(
                InputError::new("--round", "a round takes no time").hint("write a millisecond or more")
            );
        }
        let policies = self.all_policies();
        if policies.is_empty() {
            return Err(InputError::new("--policy", "names no policy")
                .hint("write for example --policy fifo,srtf; `bellwether policies` lists them"));
        }
        for name in &policies {
            let (about, _) = Registry::built_in().parse(name)?;
            if about.needs_remaining && self.remaining == Knowledge::Unknown {
                return Err(InputError::new(
                    format!("policy `{name}`"),
                    "it decides by remaining work, and --remaining unknown says nothing of that",
                )
                .hint("choose --remaining estimated, or a policy such as las or fifo"));
            }
        }
        Ok(())
    }

    /// What happens on a cluster beside what policies decide; the seed is set for each simulation.
    pub(crate) fn scenario(&self, cluster: &Cluster) -> Scenario {
        let mut scenario = Scenario::new(cluster.view.clone());
        scenario.outages.clone_from(&cluster.outages);
        scenario.checkpoint_s = cluster.checkpoint_s;
        scenario.shared_links = cluster.shared_links;
        scenario.knowledge = self.remaining;
        scenario.early_termination = self.early;
        scenario.start_s = self.start.map_or(0.0, Seconds::get);
        scenario.round_s = self.round.map(Seconds::get);
        scenario
    }

    /// Simulates every policy on every seed. `watch` hears how many jobs ended, of all.
    ///
    /// # Errors
    ///
    /// A policy that breaks a law, jobs that cannot be drawn, a model that does not know a job or a device.
    pub fn answer(
        &self,
        inputs: &Inputs,
        watch: &mut dyn FnMut(usize, usize),
    ) -> Result<Vec<PolicyResult>, Refusal> {
        let scenario = self.scenario(&inputs.cluster);
        let experiment = Experiment {
            scenario: &scenario,
            registry: &Registry::built_in(),
            policies: &self.all_policies(),
            seeds: self.seeds,
            truth: inputs.truth(),
            belief: inputs.belief(),
            jobs: &|seed| inputs.entries(seed),
            queues: inputs.queues.as_ref(),
            keep_spans: self.keep_spans,
            keep_decisions: self.keep_decisions,
        };
        let mut results = experiment.run(watch).map_err(|error| self.explain(error))?;
        // Rows that could not be are jobs that were refused, too.
        let rows = inputs.trace.as_ref().map_or(0, |trace| trace.refused.len()) as f64;
        for report in results.iter_mut().flat_map(|result| &mut result.outcomes).map(|one| &mut one.report) {
            (report.jobs, report.refused) = (report.jobs + rows, report.refused + rows);
        }
        Ok(results)
    }

    /// The policies, with `all` as every one that can decide with what is known.
    pub(crate) fn all_policies(&self) -> Vec<String> {
        let names = names(&self.policies);
        if names != ["all"] {
            return names;
        }
        let decides = |about: &&About| self.remaining != Knowledge::Unknown || !about.needs_remaining;
        Registry::built_in().iter().filter(decides).map(|about| about.name.to_owned()).collect()
    }

    pub(crate) fn explain(&self, error: ExperimentError) -> Refusal {
        match error {
            ExperimentError::Input(error) => error.into(),
            ExperimentError::Fault { policy, seed, fault: Fault::Broken(what) } => {
                Refusal::Broken(format!("policy `{policy}`, seed {seed}: {what}"))
            }
            ExperimentError::Fault { policy, seed, fault: Fault::World(what) } => {
                let error = InputError::new(format!("policy `{policy}`, seed {seed}"), what);
                let Some(belief) = &self.belief else { return error.into() };
                let hint = format!(
                    "a policy may choose whatever --belief {belief} can speak of; --truth {} must know that too",
                    self.truth
                );
                error.hint(hint).into()
            }
        }
    }
}

/// Lets `policy` decide about the jobs of `entries` (in order of arrival) in the cluster of `scenario`, until the
/// last has ended. Jobs are as fast as `truth` says; `belief` is what the policy is told of that. The figures of the
/// recording are those of `bellwether_sim::report`.
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
