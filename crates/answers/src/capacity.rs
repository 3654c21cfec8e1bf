//! The cheapest cluster, and the policy on it, that hold a service level for a workload: by simulation of candidates.
//!
//! `sched::capacity` says which candidates there are and which of them have to be simulated, `sim` simulates them. A
//! candidate's cluster is written as a cluster file and read back, so that what is simulated here is what `simulate`
//! does with that file.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Mutex;

use bellwether_core::plan::Market;
use bellwether_core::units::Seconds;
use bellwether_core::{InputError, ParseError};
use bellwether_sched::capacity::search::Limits;
use bellwether_sched::capacity::{Figure, Grid, Measured, Objective, Oracle, Part, Search, Wishes};
use bellwether_sched::plan::{Catalogue, KindProfile, Machine};
use bellwether_sched::registry::Registry;
use bellwether_sim::world::{Knowledge, Revocations};

use crate::Refusal;
use crate::options::Options;
use crate::plan::read_catalogue;
use crate::simulate::{self, TRUTH};

mod answer;
mod cluster_file;
mod figures;
mod kinds;
mod simulator;

pub use answer::{Answer, CandidateRow, FrontPoint, MachineRow, Relaxation};

use cluster_file::{Writer, replacement_s};
use kinds::Kinds;
use simulator::Simulator;

/// Numbers of machines.
pub const MACHINES: RangeInclusive<u64> = 1..=4_096;
/// Numbers of kinds of machines in one cluster.
pub const KINDS: RangeInclusive<u64> = 1..=4;
/// Numbers of runs.
pub const RUNS: RangeInclusive<u64> = 1..=1_000;
/// Most machines of a cluster, when nothing is said.
pub const MACHINES_MAX: u32 = 32;
/// Runs of a candidate, when nothing is said and something is drawn.
pub const RUNS_USUAL: u64 = 5;
/// Policies that are tried, when none is named.
pub const POLICIES: [&str; 4] = ["fifo", "easy", "srtf", "las2d"];

/// A transient machine has to live for longer than this on average.
const LIFE_MIN_S: f64 = 60.0;
/// Most lives of a machine within the arrivals of a workload.
const LIVES_MAX: f64 = 1e5;

/// What is asked.
#[derive(Debug, Clone)]
pub struct Request {
    /// The jobs, and how they are simulated; its cluster is not looked at.
    pub jobs: simulate::Request,
    /// The file of the price catalogue.
    pub catalog: PathBuf,
    /// What has to hold.
    pub objectives: Vec<Objective>,
    /// Whether machines may be transient.
    pub transient: bool,
    /// Most machines of a cluster.
    pub max_machines: u32,
    /// Most kinds of machines in one cluster.
    pub max_kinds: u32,
    /// Regions that may be used; empty: all.
    pub regions: Vec<String>,
    /// How often a job saves its state: work since then is lost with a machine. `None`: nothing is lost.
    pub checkpoint: Option<Seconds>,
    /// The first seed.
    pub seed: u64,
    /// Runs of a candidate, each with a seed of its own.
    pub runs: u64,
    /// Also find the cheapest candidates for stricter and for looser service levels.
    pub front: bool,
    /// Simulate every candidate to its end.
    pub exhaustive: bool,
}

impl Request {
    /// The request with these options.
    ///
    /// # Errors
    ///
    /// An option that is unknown, or whose value cannot be read.
    pub fn of(mut options: Options) -> Result<Request, InputError> {
        let objectives =
            options.list("objective").iter().map(|text| objective(text)).collect::<Result<_, _>>();
        let policies = options.list("policy");
        let remaining = options.parsed("remaining", str::parse)?.unwrap_or(Knowledge::Exact);
        let request = Request {
            jobs: simulate::Request {
                cluster: String::new(),
                trace: options.needed("workload")?.into(),
                policies: if policies.is_empty() { usual_policies(remaining) } else { policies },
                remaining,
                truth: options.text("truth").unwrap_or_else(|| TRUTH.into()),
                belief: options.text("belief"),
                seeds: 1,
                trace_format: options.parsed("trace_format", str::parse)?,
                restart: options.parsed("restart", str::parse)?,
                start: options.parsed("start", str::parse)?,
                round: options.parsed("round", str::parse)?,
                packing: false,
                shared_links: options.is_set("shared_links"),
                elastic: options.parsed("elastic", str::parse)?,
                early: options.parsed("early", str::parse)?,
                queues: None,
                keep_spans: false,
                keep_decisions: false,
            },
            catalog: options.needed("catalog")?.into(),
            objectives: objectives?,
            transient: options.is_set("transient"),
            max_machines: options.whole("max_machines", MACHINES)?.unwrap_or(MACHINES_MAX),
            max_kinds: options.whole("kinds", KINDS)?.unwrap_or(1),
            regions: options.list("region"),
            checkpoint: options.parsed("checkpoint", str::parse)?,
            seed: options.whole("seed", 0..=u64::MAX)?.unwrap_or(1),
            runs: options.whole("runs", RUNS)?.unwrap_or(RUNS_USUAL),
            front: options.is_set("front"),
            exhaustive: options.is_set("exhaustive"),
        };
        options.end()?;
        Ok(request)
    }

    /// The answer; it has no choice where nothing holds the objectives. `note` hears what was assumed, and `watch` how
    /// many candidates were simulated.
    ///
    /// # Errors
    ///
    /// Files that cannot be read or used, a policy that breaks a law, a model that does not know a job or a device.
    pub fn answer(
        &self,
        note: &mut dyn FnMut(String),
        watch: &mut dyn FnMut(usize),
    ) -> Result<Answer, Refusal> {
        self.check()?;
        let catalogue = read_catalogue(&self.catalog)?;
        catalogue.check_regions(&self.regions)?;
        let policies = self.jobs.all_policies();
        let wishes = Wishes {
            max_machines: self.max_machines,
            max_kinds: self.max_kinds,
            transient: self.transient,
            regions: &self.regions,
        };
        let grid = Grid::new(&catalogue, &wishes, policies.len())?;
        note_speeds(&catalogue, &self.jobs.truth, note);
        let simulator = self.simulator(&catalogue, &grid, &policies, note)?;
        let candidates = Candidates {
            simulator: &simulator,
            watch: RefCell::new(watch),
            costs: RefCell::default(),
            levels: RefCell::default(),
        };
        let mut search = Search::new(&candidates, grid.len());
        if self.exhaustive {
            search.exhaust()?;
        }
        answer::answer(&simulator, &mut search)
    }

    /// The cluster of a candidate of this request as a cluster file.
    ///
    /// # Errors
    ///
    /// A catalogue that cannot be read, or that does not have its machines.
    pub fn cluster_file(&self, machines: &[MachineRow]) -> Result<String, InputError> {
        let catalogue = read_catalogue(&self.catalog)?;
        let mut parts: Vec<Part> = Vec::new();
        for row in machines {
            let names = || catalogue.machines.iter().map(|machine| machine.name.as_str());
            let kind = names()
                .position(|name| name == row.machine)
                .ok_or_else(|| ParseError::one_of("machine", &row.machine, names()).at("catalogue"))?;
            if parts.last().is_none_or(|part| part.kind != kind) {
                parts.push(Part { kind, on_demand: 0, transient: 0 });
            }
            if let Some(part) = parts.last_mut() {
                match row.market {
                    Market::OnDemand => part.on_demand = row.count,
                    Market::Transient => part.transient = row.count,
                }
            }
        }
        Ok(self.writer(&catalogue).text(&parts))
    }

    fn writer<'a>(&'a self, catalogue: &'a Catalogue) -> Writer<'a> {
        Writer {
            catalogue,
            path: &self.catalog,
            restart_s: self.jobs.restart.map(Seconds::get),
            checkpoint_s: self.checkpoint.map(Seconds::get),
            shared_links: self.jobs.shared_links,
        }
    }

    /// Whether simulations of the same jobs differ by their seed.
    fn is_random(&self) -> bool {
        self.jobs.early.is_some() || matches!(self.jobs.remaining, Knowledge::Estimated(_))
    }

    fn check(&self) -> Result<(), InputError> {
        if self.objectives.is_empty() {
            return Err(InputError::new("--objective", "names nothing that has to hold")
                .hint("write for example --objective 'p95 completion < 2h'"));
        }
        for (place, objective) in self.objectives.iter().enumerate() {
            if self.objectives[..place].iter().any(|other| other.figure == objective.figure) {
                let what = format!("there are two limits of {}", objective.figure);
                return Err(InputError::new("--objective", what).hint("leave out the looser one"));
            }
        }
        if self.checkpoint.is_some_and(|period| period.get() <= 0.0) {
            return Err(InputError::new("--checkpoint", "a period takes no time")
                .hint("write for example 10min, or leave it out where nothing is lost"));
        }
        Ok(())
    }

    /// Reads the jobs for all kinds of machines that a cluster of the grid has.
    fn simulator<'a>(
        &'a self,
        catalogue: &'a Catalogue,
        grid: &'a Grid,
        policies: &'a [String],
        note: &mut dyn FnMut(String),
    ) -> Result<Simulator<'a>, InputError> {
        let writer = self.writer(catalogue);
        let together: BTreeSet<Vec<usize>> =
            grid.clusters.iter().map(|parts| parts.iter().map(|part| part.kind).collect()).collect();
        let all: BTreeSet<usize> = together.iter().flatten().copied().collect();
        let markets = catalogue.machines.iter().map(market).collect();
        let mut kinds = BTreeMap::new();
        let mut first_error = None;
        for together in together {
            match self.kinds(&writer, &together) {
                Ok(read) => {
                    kinds.insert(together, Ok(read));
                }
                Err(error) => {
                    kinds.insert(together, Err(format!("{}: {}", error.place, error.what)));
                    first_error.get_or_insert(error);
                }
            }
        }
        let readable = || kinds.values().filter_map(|read| read.as_ref().ok());
        let Some(one) = readable().next() else {
            return Err(first_error.unwrap_or_else(|| InputError::new("catalogue", "it has no machines")));
        };
        self.check_jobs(one)?;
        for kind in all.iter().filter(|_| self.transient) {
            check_lives(&catalogue.machines[*kind], one)?;
        }
        // A row that only some machines can serve is refused with the others, which are left out then.
        let refused = |read: &Kinds| read.inputs.trace.as_ref().map_or(0, |trace| trace.refused.len());
        let least = readable().map(refused).min().unwrap_or(0);
        for (together, read) in &mut kinds {
            let names = || together.iter().map(|kind| catalogue.machines[*kind].name.as_str());
            if read.as_ref().is_ok_and(|read| refused(read) > least) {
                *read = Err("a job asks for a device that the cluster does not have".into());
            }
            if let Err(why) = read {
                note(format!("{} cannot serve the workload: {why}", names().collect::<Vec<_>>().join(" + ")));
            }
        }
        let (runs, details) = (self.runs, Mutex::new(BTreeMap::new()));
        Ok(Simulator { request: self, catalogue, grid, policies, writer, markets, kinds, runs, details })
    }

    fn kinds(&self, writer: &Writer<'_>, together: &[usize]) -> Result<Kinds, InputError> {
        let most = |kind: &usize| {
            let limit = writer.catalogue.machines[*kind].limit.min(self.max_machines);
            Part { kind: *kind, on_demand: limit, transient: 0 }
        };
        let parts: Vec<Part> = together.iter().map(most).collect();
        Kinds::read(self, writer.cluster(&parts)?, self.runs)
    }

    /// Refuses an objective that says nothing of these jobs.
    fn check_jobs(&self, kinds: &Kinds) -> Result<(), InputError> {
        let has_deadlines = kinds.run(0).entries.iter().any(|entry| entry.job.deadline_s.is_some());
        if !has_deadlines && self.objectives.iter().any(|objective| objective.figure == Figure::Deadlines) {
            return Err(InputError::new("--objective", "no job of the workload has a deadline").hint(
                "a trace says them in its column `deadline`, a class of a generator by `slack`; or name another figure",
            ));
        }
        Ok(())
    }
}

/// An objective as the command line has it.
///
/// # Errors
///
/// Returns what is wrong with the text, and what is near.
pub fn objective(text: &str) -> Result<Objective, InputError> {
    text.parse::<Objective>().map_err(|error| error.at("--objective"))
}

/// The policies that are tried where none is named: those that can decide with what is known of remaining work.
pub fn usual_policies(remaining: Knowledge) -> Vec<String> {
    let registry = Registry::built_in();
    let decides = |name: &&str| {
        remaining != Knowledge::Unknown || registry.find(name).is_some_and(|about| !about.needs_remaining)
    };
    POLICIES.into_iter().filter(decides).map(str::to_owned).collect()
}

/// The candidates of a search, with who hears how many were simulated.
pub(crate) struct Candidates<'a> {
    simulator: &'a Simulator<'a>,
    watch: RefCell<&'a mut dyn FnMut(usize)>,
    /// Bounds by cluster: they are the same for all policies.
    costs: RefCell<BTreeMap<usize, f64>>,
    levels: RefCell<BTreeMap<usize, Vec<f64>>>,
}

impl Oracle for Candidates<'_> {
    type Error = Refusal;

    fn cost_at_least(&self, candidate: usize) -> f64 {
        let grid = self.simulator.grid;
        let cost = || self.simulator.cost_at_least(grid.candidate(candidate).0);
        *self.costs.borrow_mut().entry(candidate / grid.policies).or_insert_with(cost)
    }

    fn levels_at_least(&self, candidate: usize) -> Vec<f64> {
        let grid = self.simulator.grid;
        let levels = || self.simulator.levels_at_least(grid.candidate(candidate).0);
        self.levels.borrow_mut().entry(candidate / grid.policies).or_insert_with(levels).clone()
    }

    fn measure(&self, candidates: &[usize], limits: &Limits) -> Result<Vec<Measured>, Refusal> {
        let threads =
            std::thread::available_parallelism().map_or(1, usize::from).min(candidates.len()).max(1);
        let (simulator, mut measured) = (self.simulator, Vec::with_capacity(candidates.len()));
        measured.resize_with(candidates.len(), || None);
        std::thread::scope(|scope| {
            let mut running = Vec::new();
            for thread in 0..threads {
                let share = move || {
                    let own = candidates.iter().enumerate().skip(thread).step_by(threads);
                    own.map(|(place, candidate)| (place, simulator.measure(*candidate, limits)))
                        .collect::<Vec<_>>()
                };
                running.push(scope.spawn(share));
            }
            for thread in running {
                match thread.join() {
                    Ok(share) => share.into_iter().for_each(|(place, result)| measured[place] = Some(result)),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
        });
        (self.watch.borrow_mut())(candidates.len());
        measured.into_iter().flatten().collect()
    }
}

/// How long the transient machines of a kind live, and how soon they are replaced.
fn market(machine: &Machine) -> Option<Revocations> {
    let transient = machine.transient.as_ref()?;
    let (name, law) = (machine.name.clone(), transient.law.clone());
    Some(Revocations { name, law, replacement_s: replacement_s(machine) })
}

/// Refuses transient machines that live so shortly that a simulation would be all revocations.
fn check_lives(machine: &Machine, kinds: &Kinds) -> Result<(), InputError> {
    let Some(transient) = &machine.transient else { return Ok(()) };
    let mean_s = transient.law.mean_s();
    let entries = &kinds.run(0).entries;
    let arrival_s =
        |entry: Option<&bellwether_sim::trace::Entry>| entry.map_or(0.0, |entry| entry.job.arrival_s);
    let span_s = arrival_s(entries.last()) - arrival_s(entries.first());
    if mean_s < LIFE_MIN_S || span_s / mean_s > LIVES_MAX {
        let what = format!(
            "a transient `{}` lives for {mean_s:.3e} s on average, and jobs arrive over {span_s:.3e} s",
            machine.name
        );
        return Err(InputError::new("catalogue", what).hint(
            "its `revocations` need times above a minute that suit the workload; or leave out --transient",
        ));
    }
    Ok(())
}

/// Says that a device of which nothing is said is as fast as the one on which the trace declares its durations.
fn note_speeds(catalogue: &Catalogue, truth: &str, note: &mut dyn FnMut(String)) {
    let is_table = ["gavel", "elasticflow", "measured", "goodput"].iter().any(|word| truth.contains(word));
    let devices = catalogue.devices();
    if is_table || devices.len() < 2 {
        return;
    }
    for (device, _) in devices.iter().filter(|(_, speed)| speed.is_none()) {
        note(match catalogue.measured(device) {
            None => format!("the catalogue says no speed of `{device}`: it is taken for 1"),
            Some(KindProfile { file, .. }) => format!(
                "`{file}` is of one job, and a workload has many: the speed of `{device}` is taken for 1, unless \
                 --truth profiles:FOLDER has FOLDER/MODEL/{device}.json"
            ),
        });
    }
}
