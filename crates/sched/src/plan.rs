//! Which machines one job should have: how many of which kind, at a price, on servers that may vanish.
//!
//! [`plan`] is a pure function of a [`Question`], a [`Catalogue`] and a step model. It
//!
//! 1. lists configurations: kinds, numbers, on demand, transient or both, and two kinds of devices together;
//! 2. computes expected time and cost of each in closed form
//!    ([`transient::expected`](bellwether_model::transient::expected));
//! 3. simulates those near the best, and whatever the choice needs
//!    ([`transient::simulate`](bellwether_model::transient::simulate)), all with the same luck; from there on only
//!    simulated figures count;
//! 4. chooses: with a deadline the cheapest that meets it with the wished probability (and fits the budget, if there is
//!    one); with a budget alone the fastest that is expected to fit it, of nearly equal ones the cheapest; with neither
//!    the one with the least product of expected time and expected cost, so that a per cent of time is worth a per cent
//!    of money;
//! 5. where nothing fits, finds out which one wish would have to be relaxed, and to what.
//!
//! Training is synchronous and elastic, unless the question names other [`SyncStrategy`]s: all wait for all, every
//! worker holds the whole state, a lost one is replaced while the others go on. Each way is a configuration of its own
//! ([`strategies`]); a run that switches is as fast as its phases in their shares. Parameter servers run on the
//! machines of the workers, one on each at most, and cost nothing more.
//!
//! [`local`] chooses the number of workers on one machine, without a catalogue.

mod catalogue;
mod evaluate;
mod format;
mod local;
mod relax;
mod search;
mod space;
mod speed;
pub mod strategies;

use bellwether_core::InputError;
use bellwether_core::plan::{
    Basis, Candidate, Constraints, Kind, Machines, PLAN_VERSION, Plan, SyncStrategy, TransientTerms,
};
use bellwether_core::prediction::{JobDescription, Link, StepModel};
use bellwether_model::predict::ProfileModel;
use bellwether_model::transient::checkpoint_s;

pub use bellwether_core::span::written as duration;
pub use catalogue::{Catalogue, KindProfile, Machine, ReadFile, Transient};
pub use local::{Local, NEARLY_FASTEST, local};
pub use strategies::order_parts;

use evaluate::Evaluator;
use search::{Known, Search};
use space::Setup;
use speed::Speeds;
use strategies::Staleness;

/// Most workers that may be asked for: each is a prediction for every kind of machine.
pub const WORKERS_MAX: u32 = 4_096;

/// Most workers, unless the question says otherwise or the job has fewer virtual nodes.
const WORKERS: u32 = 64;

/// Simulated runs of a configuration, unless the question says otherwise.
pub const RUNS: u32 = 1_000;

/// What is to be planned.
#[derive(Debug, Clone)]
pub struct Question<'a> {
    /// The job, in the words of the step model.
    pub job: &'a JobDescription,
    /// Virtual nodes that share the batch; 1 where each worker has a batch of its own.
    pub virtual_nodes: u32,
    /// Samples of a step: of all workers where they share the batch, else of one.
    pub batch: u64,
    /// Samples to train on, each counted as often as it is seen.
    pub samples: f64,
    /// The measured link, for machines of which the catalogue says none.
    pub link: Option<Link>,
    /// Seconds to write or to read a checkpoint.
    pub checkpoint_s: f64,
    /// Seconds until the job must end.
    pub deadline_s: Option<f64>,
    /// The most that the job may be expected to cost, in dollars.
    pub budget_dollars: Option<f64>,
    /// The probability with which the deadline must be met, above 0 and below 1.
    pub confidence: f64,
    /// Whether transient servers are allowed.
    pub transient: bool,
    /// Most workers.
    pub max_workers: u32,
    /// Regions that are allowed; all when empty.
    pub regions: &'a [String],
    /// How workers may be kept together; synchronous and without servers when empty.
    pub ways: &'a [SyncStrategy],
    /// Virtual nodes that make one update through servers.
    pub nodes_per_update: u32,
    /// What decides how much staleness costs, where the work is what a target loss takes; else it costs nothing.
    pub staleness: Option<Staleness>,
    /// Seed of the simulated runs.
    pub seed: u64,
    /// Simulated runs of a configuration.
    pub runs: u32,
}

impl<'a> Question<'a> {
    /// The question whose fields are the defaults: the best compromise of time and money to train on `samples`
    /// samples, on demand, without servers.
    pub fn new(
        job: &'a JobDescription,
        model: &ProfileModel,
        catalogue: &Catalogue,
        samples: f64,
    ) -> Question<'a> {
        let profile = model.profile();
        let virtual_nodes = if model.shares_batch() { profile.virtual_nodes } else { 1 };
        let measured_s = profile.checkpoint_s.filter(|seconds| *seconds > 0.0);
        let estimated_s = || checkpoint_s(profile.parameter_bytes as f64 / 1e6);
        Question {
            job,
            virtual_nodes,
            batch: profile.batch,
            samples,
            link: profile.network.map(Link::from),
            checkpoint_s: catalogue.checkpoint_s.or(measured_s).unwrap_or_else(estimated_s),
            deadline_s: None,
            budget_dollars: None,
            confidence: 0.95,
            transient: false,
            max_workers: if model.shares_batch() { virtual_nodes.min(WORKERS) } else { WORKERS },
            regions: &[],
            ways: &[],
            nodes_per_update: 1,
            staleness: None,
            seed: 0,
            runs: RUNS,
        }
    }
}

impl Question<'_> {
    /// Whether workers share one batch.
    pub(crate) fn shares_batch(&self) -> bool {
        self.virtual_nodes > 1
    }

    /// Its wishes, as data.
    fn constraints(&self) -> Constraints {
        Constraints {
            deadline_s: self.deadline_s,
            budget_dollars: self.budget_dollars,
            confidence: self.confidence,
            transient: self.transient,
            max_workers: self.max_workers,
            regions: self.regions.to_vec(),
        }
    }

    fn check(&self, catalogue: &Catalogue) -> Result<(), InputError> {
        let wrong = |flag: &str, what: String, hint: &str| Err(InputError::new(flag, what).hint(hint));
        let positive = |value: f64| value.is_finite() && value > 0.0;
        if !positive(self.samples) || self.batch == 0 {
            let what = format!("{} samples in steps of {} do not make any work", self.samples, self.batch);
            return wrong("work", what, "train for at least one step");
        }
        if let Some(deadline_s) = self.deadline_s.filter(|deadline_s| !positive(*deadline_s)) {
            let what = format!("{deadline_s} s from now is in the past");
            return wrong("--deadline", what, "write a time that is left, for example 2h");
        }
        if let Some(budget) = self.budget_dollars.filter(|budget| !positive(*budget)) {
            let what = format!("a budget of ${budget} buys nothing");
            return wrong("--budget", what, "write for example '$20', or leave it out");
        }
        if !(self.confidence > 0.0 && self.confidence < 1.0) {
            let what = format!("{} is not a probability above 0 and below 1", self.confidence);
            return wrong("--confidence", what, "write for example 0.95");
        }
        if self.max_workers == 0 || self.max_workers > WORKERS_MAX {
            let what = format!("{} workers", self.max_workers);
            return wrong("--max-workers", what, &format!("ask for 1 to {WORKERS_MAX}"));
        }
        if !positive(self.checkpoint_s) || self.runs == 0 {
            let what = format!("a checkpoint of {} s, {} simulated runs", self.checkpoint_s, self.runs);
            return wrong("plan", what, "both are above 0");
        }
        strategies::check(self)?;
        catalogue.check_regions(self.regions)
    }
}

/// Finds the machines; see the [module](self).
///
/// # Errors
///
/// Returns an error for a question without sense, a machine that the model cannot speak of, no machine that may be had
/// at all. If nothing fits the constraints, the result is not an error but a plan without a choice.
pub fn plan(question: &Question, catalogue: &Catalogue, model: &dyn StepModel) -> Result<Plan, InputError> {
    let mut search = begin(question, catalogue, model)?;
    search.simulate_near()?;
    let choice = search.best(&question.constraints())?;
    let relaxations = match choice {
        Some(_) => Vec::new(),
        None => relax::relaxations(&mut search, model)?,
    };
    let reason = match choice {
        Some(choice) => relax::why(&mut search, choice)?,
        None => relax::why_not(&mut search)?,
    };
    let reason = match search.evaluator.speeds.left_out() {
        Some(why) => format!("{reason} {why}."),
        None => reason,
    };
    search.simulate_on_demand()?;
    let front = search.front(choice, |_| true);
    let on_demand =
        if question.transient { search.front(None, |setup| !setup.is_transient()) } else { Vec::new() };
    let shown = |places: &[usize]| places.iter().filter_map(|place| search.candidate(*place)).collect();
    let chosen = choice.filter(|_| !question.ways.is_empty()).and_then(|choice| search.candidate(choice));
    Ok(Plan {
        version: PLAN_VERSION,
        job: question.job.name.clone(),
        computation: None,
        samples: question.samples,
        constraints: question.constraints(),
        choice: choice.and_then(|choice| front.iter().position(|place| *place == choice)),
        reason,
        relaxations,
        candidates: shown(&front),
        on_demand: shown(&on_demand),
        synchronisation: chosen.map(|chosen| strategies::synchronisation(question, &chosen)),
        searched: search.len() as u64,
        simulated: search.simulated(),
        basis: Some(basis(&search, choice)),
    })
}

/// What it takes to carry the plan out, and to make it again with other speeds.
fn basis(search: &Search, choice: Option<usize>) -> Basis {
    let Evaluator { question, catalogue, speeds, .. } = &search.evaluator;
    let way = choice.map_or(0, |choice| search.setup(choice).way);
    let allowed = |machine: &&Machine| {
        let region = machine.region.as_ref();
        question.regions.is_empty() || region.is_some_and(|region| question.regions.contains(region))
    };
    let kind = |machine: &Machine| {
        let place = catalogue.machines.iter().position(|other| other.name == machine.name).unwrap_or(0);
        let rate = |count| speeds.alone(way, place, count).map(|speed| speed.examples_per_s);
        Kind {
            machine: machine.name.clone(),
            device: machine.device.clone(),
            devices: machine.devices,
            region: machine.region.clone(),
            on_demand: machine.on_demand,
            transient: machine.transient.as_ref().filter(|_| question.transient).map(|transient| {
                TransientTerms { dollars_per_hour: transient.dollars_per_hour, law: transient.words.clone() }
            }),
            provision_s: machine.provision_s,
            join_s: machine.join_s,
            limit: Some(machine.limit).filter(|limit| *limit < u32::MAX),
            examples_per_s: (1..=speeds.most(way, place)).map_while(rate).collect(),
            obtain: machine.obtain.clone(),
        }
    };
    Basis {
        batch: question.batch,
        virtual_nodes: question.virtual_nodes,
        checkpoint_s: question.checkpoint_s,
        fixed_dollars_per_hour: catalogue.fixed_dollars_per_hour,
        kinds: catalogue.machines.iter().filter(allowed).map(kind).collect(),
    }
}

/// All configurations with their rough figures.
fn begin<'a>(
    question: &'a Question<'a>,
    catalogue: &'a Catalogue,
    model: &'a dyn StepModel,
) -> Result<Search<'a>, InputError> {
    question.check(catalogue)?;
    let speeds = Speeds::new(question, catalogue, model)?;
    let mut evaluator = Evaluator::new(question, catalogue, speeds);
    let setups = space::of_one_kind(question, catalogue, &evaluator.speeds);
    if setups.is_empty() {
        if let Some(why) = evaluator.speeds.left_out() {
            return Err(InputError::new("catalogue", format!("no machine is left; {why}"))
                .hint("raise batch.virtual_nodes and profile again, or add machines with more memory"));
        }
        return Err(nothing_to_be_had(question, catalogue));
    }
    let mut known = Known::new();
    known.add(&mut evaluator, setups)?;
    let promising = known.promising_kinds();
    let pairs = space::of_two_kinds(question, catalogue, &mut evaluator.speeds, &promising);
    known.add(&mut evaluator, pairs)?;
    if known.is_empty() {
        return Err(InputError::new("catalogue", "the job would hardly ever end on any of its machines")
            .hint("it takes a century, or servers are lost faster than they begin to work: train less, or allow others"));
    }
    Ok(Search::new(known, evaluator))
}

/// Why not even one machine may be rented.
fn nothing_to_be_had(question: &Question, catalogue: &Catalogue) -> InputError {
    let here = |machine: &&Machine| {
        question.regions.is_empty() || machine.region.as_ref().is_some_and(|r| question.regions.contains(r))
    };
    let mut machines = catalogue.machines.iter().filter(here);
    if !question.transient && !machines.clone().any(|machine| machine.on_demand.is_some()) {
        return InputError::new("catalogue", "no machine has a price on demand")
            .hint("allow those that the provider may take away: --transient; or write price = \"$…/h\"");
    }
    let least = machines.clone().map(|machine| machine.devices).min().unwrap_or(1);
    if least > question.max_workers {
        let what =
            format!("even one machine has {least} devices, and {} workers are allowed", question.max_workers);
        return InputError::new("--max-workers", what).hint(format!("say --max-workers {least} or more"));
    }
    let names: Vec<&str> = machines.by_ref().map(|machine| machine.name.as_str()).collect();
    InputError::new("catalogue", format!("none of {} can run this job", names.join(", "))).hint(
        "the job has too few virtual nodes for one machine: raise batch.virtual_nodes and profile again",
    )
}

/// A configuration as it stands in a plan.
fn candidate(evaluator: &Evaluator, setup: &Setup, found: &search::Found) -> Candidate {
    let question = evaluator.question;
    let catalogue = evaluator.catalogue;
    let shares = match setup.kinds().filter(|_| question.shares_batch()) {
        Some(kinds) => {
            let mapped = evaluator.speeds.mapped(kinds, (setup.groups[0].count, setup.groups[1].count));
            mapped.map_or(Vec::new(), |(mapping, first)| {
                let (one, other) = mapping.counts.split_at(first);
                vec![one.to_vec(), other.to_vec()]
            })
        }
        None => Vec::new(),
    };
    let machines = setup.groups.iter().enumerate().map(|(place, group)| {
        let machine = &catalogue.machines[group.kind];
        Machines {
            machine: machine.name.clone(),
            count: group.count,
            device: machine.device.clone(),
            devices: machine.devices,
            region: machine.region.clone(),
            market: group.market,
            dollars_per_hour: evaluator.dollars_per_hour(group),
            virtual_nodes: shares.get(place).cloned().unwrap_or_default(),
        }
    });
    let figures = &found.figures;
    let speed = evaluator.speed_of(setup);
    Candidate {
        machines: machines.collect(),
        workers: setup.workers(catalogue),
        examples_per_s: evaluator.all(setup).0,
        checkpoint_period_s: found.checkpoint_period_s,
        time_s: figures.time_s,
        p95_time_s: figures.quantile_s(0.95),
        cost_dollars: figures.cost,
        p95_cost_dollars: figures.p95_cost,
        meets_deadline: question.deadline_s.map(|deadline_s| figures.meets(deadline_s)),
        losses: figures.losses,
        runs: if setup.is_transient() { figures.runs } else { 0 },
        way: question.ways.get(setup.way).cloned(),
        staleness: speed.as_ref().and_then(|speed| speed.staleness),
        work_factor: speed.as_ref().and_then(|speed| speed.work_factor),
        extrapolated: evaluator.extrapolated(setup),
    }
}
