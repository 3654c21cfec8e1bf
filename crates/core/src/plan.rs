//! The machines that one job should have, and what else it might have: the third arrow of the road, from modelling to
//! running.
//!
//! A plan is a file of JSON: what was wished, the configurations of which none is better than another in everything,
//! the one that was chosen, and why. Where nothing fits there is no choice, but what would have to be given up.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::InputError;
use crate::job::SyncPolicy;
pub use crate::machines::Market;
use crate::machines::Obtain;
use crate::prediction::Protocol;

/// Version of the file format that this program writes and reads.
pub const PLAN_VERSION: u32 = 1;

/// Which waiting part a connection serves next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransmissionOrder {
    /// The one that was asked for first, to its end.
    Fifo,
    /// In turns.
    RoundRobin {
        /// Bytes of a turn; 0 for the limit in which all parts are served at the same time.
        window_bytes: u64,
    },
    /// Downloads by the level of their part, smaller first, to their end; first come first served among
    /// equals. One level per part of the profile. Uploads go as gradients become ready.
    Priority(Vec<u32>),
}

/// How a run's workers are kept together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Synchronisation {
    /// The first step of each phase and its protocol, rising; the first is 0.
    #[serde(rename = "stretches")]
    pub phases: Vec<(u64, Protocol)>,
    /// Parameter servers, where there are any.
    pub servers: u32,
    /// Whether synchronous phases sum at the servers too.
    pub reduce_at_servers: bool,
    /// Whether each server has a replica.
    pub replica: bool,
    /// Which waiting part a connection to a server serves next.
    pub order: TransmissionOrder,
}

impl Default for Synchronisation {
    /// Synchronous, without servers.
    fn default() -> Self {
        Synchronisation {
            phases: vec![(0, Protocol::Bsp)],
            servers: 0,
            reduce_at_servers: false,
            replica: false,
            order: TransmissionOrder::Fifo,
        }
    }
}

/// One way to keep a run's workers together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SyncStrategy {
    /// Who waits for whom, and when that changes.
    pub policy: SyncPolicy,
    /// Parameter servers, on the machines of the workers; 0 for none.
    pub servers: u32,
}

/// Machines for one job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Version of the format, [`PLAN_VERSION`].
    pub version: u32,
    /// Name of the job.
    pub job: String,
    /// Digest of what its workers compute, as its profile has it; absent where the profile has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub computation: Option<String>,
    /// Samples that it trains on, each counted as often as it is seen.
    pub samples: f64,
    /// What was wished.
    #[serde(rename = "wishes")]
    pub constraints: Constraints,
    /// Number in `candidates` of the one that was chosen; absent when none fits the wishes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choice: Option<usize>,
    /// Why, in one sentence.
    pub reason: String,
    /// When nothing fits: what would, each by giving up one wish.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relaxations: Vec<Relaxation>,
    /// The Pareto set: no configuration that was looked at is better than one of these in one figure and no worse in
    /// the others (expected time, time of 95 % of runs, expected cost, and with a deadline the probability to meet it).
    /// Fastest first.
    pub candidates: Vec<Candidate>,
    /// The same of machines on demand alone, for comparison; empty where nothing else was allowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_demand: Vec<Candidate>,
    /// How the workers are to be kept together; as the job file says when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub synchronisation: Option<Synchronisation>,
    /// Configurations whose expected time and cost were computed.
    pub searched: u64,
    /// Of those, how many were simulated.
    pub simulated: u64,
    /// What it was made from, as far as a run that carries it out needs it; absent in plans of earlier programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

/// What a plan was made from, as far as that is needed to carry it out, and to plan again with what was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Basis {
    /// Samples of a step.
    pub batch: u64,
    /// Virtual nodes that share the batch; 1 where each worker has a batch of its own.
    pub virtual_nodes: u32,
    /// Seconds to write or to read a checkpoint.
    pub checkpoint_s: f64,
    /// What runs beside the workers, in dollars per hour.
    pub fixed_dollars_per_hour: f64,
    /// Kinds of machines that the plan might use, in the order of the catalogue.
    pub kinds: Vec<Kind>,
}

/// A kind of machine, and what a plan knows of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kind {
    /// The catalogue's name of such a machine.
    pub machine: String,
    /// Type of its devices.
    pub device: String,
    /// Devices of each, which are workers.
    pub devices: u32,
    /// Where it stands, if the catalogue says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Dollars per hour on demand; absent where it is not offered so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_demand: Option<f64>,
    /// What is known of it as a transient machine; absent where it is not offered so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transient: Option<TransientTerms>,
    /// Seconds from the request of one until it runs.
    pub provision_s: f64,
    /// Seconds from then until its workers are at work.
    pub join_s: f64,
    /// How many may be had at once, if the catalogue says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Samples per second of 1, 2, … machines of this kind, in the plan's way to keep workers together.
    pub examples_per_s: Vec<f64>,
    /// How one is asked for.
    #[serde(default)]
    pub obtain: Obtain,
}

/// The terms of a machine that its provider may take away.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransientTerms {
    /// Dollars per hour.
    pub dollars_per_hour: f64,
    /// How long one lives, in the words of the catalogue.
    pub law: String,
}

/// What a plan has to fulfil.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constraints {
    /// Seconds from the request of the machines within which the job must end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_s: Option<f64>,
    /// The most that it may be expected to cost, in dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_dollars: Option<f64>,
    /// The probability with which the deadline must be met, 0 to 1.
    pub confidence: f64,
    /// Whether servers may be transient: the provider may take them away.
    pub transient: bool,
    /// Most workers.
    pub max_workers: u32,
    /// Regions that may be used; any when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub regions: Vec<String>,
}

/// One configuration, and what is expected of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Candidate {
    /// The machines, in groups of equal ones.
    pub machines: Vec<Machines>,
    /// Workers of all machines together: one for each device.
    pub workers: u32,
    /// Samples per second while all are at work.
    pub examples_per_s: f64,
    /// Seconds of work between checkpoints; absent where none is worth writing before the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_period_s: Option<f64>,
    /// Expected time from the request of the machines to the end of the job, in seconds.
    pub time_s: f64,
    /// The time within which 95 % of all runs end, in seconds.
    pub p95_time_s: f64,
    /// Expected cost in dollars.
    pub cost_dollars: f64,
    /// The cost that 95 % of all runs do not exceed, in dollars.
    pub p95_cost_dollars: f64,
    /// Probability that the deadline is met; absent without a deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meets_deadline: Option<f64>,
    /// Servers that are lost in an expected run.
    pub losses: f64,
    /// Simulated runs behind these figures; 0 where nothing is left to chance.
    pub runs: u32,
    /// How its workers are kept together; synchronous and without servers when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub way: Option<SyncStrategy>,
    /// Updates by others, on average, between reading parameters and applying a gradient, at their stalest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staleness: Option<f64>,
    /// With a target loss: samples that the whole run is predicted to take over those of a synchronous one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_factor: Option<f64>,
    /// Why its speed lies beyond what was measured, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extrapolated: Option<String>,
}

/// Equal machines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machines {
    /// The catalogue's name of such a machine.
    pub machine: String,
    /// How many.
    pub count: u32,
    /// Type of its devices.
    pub device: String,
    /// Devices of each, which are workers.
    pub devices: u32,
    /// Where it stands, if the catalogue says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// How it is rented.
    pub market: Market,
    /// Price of one, in dollars per hour.
    pub dollars_per_hour: f64,
    /// Virtual nodes of each worker, where types of devices are mixed and each has its own share.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub virtual_nodes: Vec<u32>,
}

/// A wish that could be given up, and what it would give.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Relaxation {
    /// What to say instead, in the words of the command line: `--deadline 1h24min`.
    pub say: String,
    /// The machines that would be chosen then.
    pub machines: String,
    /// Expected time, in seconds.
    pub time_s: f64,
    /// Expected cost, in dollars.
    pub cost_dollars: f64,
}

impl Plan {
    /// Reads a plan; `place` names it in errors.
    ///
    /// # Errors
    ///
    /// Returns an error for JSON that is not of this form, another version, a choice that is not among the
    /// candidates.
    pub fn read(text: &str, place: &str) -> Result<Plan, InputError> {
        let again = "make it again with `bellwether plan … --format json`";
        let plan: Plan = serde_json::from_str(text)
            .map_err(|e| InputError::new(place, format!("invalid plan: {e}")).hint(again))?;
        plan.check(place)?;
        Ok(plan)
    }

    /// Checks a plan that was read with something else; `place` names it in errors.
    ///
    /// # Errors
    ///
    /// Returns an error for another version, a choice that is not among the candidates or has no workers.
    pub fn check(&self, place: &str) -> Result<(), InputError> {
        let again = "make it again with `bellwether plan … --format json`";
        let wrong = |what: String| Err(InputError::new(place, what).hint(again));
        if self.version != PLAN_VERSION {
            return wrong(format!(
                "a plan of version {}, and this program reads {PLAN_VERSION}",
                self.version
            ));
        }
        if self.choice.is_some_and(|choice| choice >= self.candidates.len()) {
            return wrong("the choice is not among the candidates".into());
        }
        if self.chosen().is_some_and(|chosen| chosen.workers == 0) {
            return wrong("the choice has no workers".into());
        }
        Ok(())
    }

    /// The kind of machine of this name.
    pub fn kind(&self, machine: &str) -> Option<&Kind> {
        self.basis.as_ref()?.kinds.iter().find(|kind| kind.machine == machine)
    }

    /// The configuration that was chosen.
    pub fn chosen(&self) -> Option<&Candidate> {
        self.candidates.get(self.choice?)
    }
}

impl Kind {
    /// Dollars per hour of one that is rented so; `None` where it is not offered.
    pub fn dollars_per_hour(&self, market: Market) -> Option<f64> {
        match market {
            Market::OnDemand => self.on_demand,
            Market::Transient => self.transient.as_ref().map(|terms| terms.dollars_per_hour),
        }
    }
}

impl Candidate {
    /// The machines in a few words, and how their workers are kept together where that was to be chosen:
    /// `2 k80 + 6 k80 transient`, `8 k80, switch:0.0625 with 2 servers`.
    pub fn words(&self) -> String {
        let groups: Vec<String> = self.machines.iter().map(ToString::to_string).collect();
        match &self.way {
            Some(way) => format!("{}, {way}", groups.join(" + ")),
            None => groups.join(" + "),
        }
    }

    /// Whether servers may be taken away.
    pub fn has_transient(&self) -> bool {
        self.machines.iter().any(|machines| machines.market == Market::Transient)
    }
}

impl fmt::Display for SyncStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.servers {
            0 => write!(f, "{}", self.policy),
            1 => write!(f, "{} with 1 server", self.policy),
            more => write!(f, "{} with {more} servers", self.policy),
        }
    }
}

impl fmt::Display for Machines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.count, self.machine)?;
        if self.market == Market::Transient { write!(f, " transient") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_plan_is_refused() {
        let constraints = Constraints {
            deadline_s: None,
            budget_dollars: None,
            confidence: 0.95,
            transient: false,
            max_workers: 4,
            regions: Vec::new(),
        };
        let plan = Plan {
            version: PLAN_VERSION,
            job: "job".into(),
            computation: None,
            samples: 1e6,
            constraints,
            choice: None,
            reason: "nothing fits".into(),
            relaxations: Vec::new(),
            candidates: Vec::new(),
            on_demand: Vec::new(),
            synchronisation: None,
            searched: 0,
            simulated: 0,
            basis: None,
        };
        let read = |plan: &Plan| Plan::read(&serde_json::to_string(plan).expect("JSON"), "plan.json");
        assert_eq!(read(&plan).as_ref(), Ok(&plan));
        let other = Plan { version: 9, ..plan.clone() };
        assert!(read(&other).is_err_and(|error| error.what.contains("version 9")));
        let beyond = Plan { choice: Some(0), ..plan };
        assert!(read(&beyond).is_err_and(|error| error.what.contains("choice")));
        assert!(Plan::read("{}", "plan.json").is_err_and(|error| error.hint.contains("bellwether plan")));
    }
}
