//! The machines that one job should have, from its profile and a price catalogue.

use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use bellwether_core::deadline::Deadline;
use bellwether_core::plan::{Plan, SyncStrategy};
use bellwether_core::profile::Profile;
use bellwether_core::units::Dollars;
use bellwether_core::{InputError, ParseError};
use bellwether_sched::plan::{self, Catalogue, Machine, Question};

use crate::Refusal;
use crate::options::Options;
use crate::predict::{BATCH, profiled};
use crate::simulate::read_beside;

mod nodes;
mod ways;
mod work;

pub use nodes::VirtualNodes;
pub use ways::Ways;
pub use work::Work;

/// The confidence that is meant when none is said.
pub const CONFIDENCE: f64 = 0.95;
/// Seconds of a worker's start from which on people are told that a plan counts with them.
const NOTED_JOIN_S: f64 = 1.0;
/// Numbers of simulated runs.
pub const RUNS: RangeInclusive<u64> = 100..=10_000;
/// Numbers of workers.
pub const WORKERS: RangeInclusive<u64> = 1..=plan::WORKERS_MAX as u64;

/// What is asked.
#[derive(Debug, Clone)]
pub struct Request {
    /// The file of the profile.
    pub profile: PathBuf,
    /// The file of the price catalogue.
    pub catalog: PathBuf,
    /// When the job must end.
    pub deadline: Option<Deadline>,
    /// The most that it may be expected to cost.
    pub budget: Option<Dollars>,
    /// The probability with which the deadline must be met.
    pub confidence: f64,
    /// How much there is to train.
    pub work: Work,
    /// How workers may be kept together.
    pub ways: Ways,
    /// Whether servers may be transient.
    pub transient: bool,
    /// Samples per step, of all workers where they share a batch, else of one; `None`: as profiled.
    pub batch: Option<u64>,
    /// Virtual nodes that it is cut into; `None`: as profiled.
    pub virtual_nodes: Option<VirtualNodes>,
    /// Most workers; `None`: 64, or as many as there are virtual nodes.
    pub max_workers: Option<u32>,
    /// Regions that may be used; empty: all.
    pub regions: Vec<String>,
    /// Simulated runs of each configuration that matters.
    pub runs: u32,
    /// Seed of the simulated runs.
    pub seed: u64,
}

impl Request {
    /// The request with these options.
    ///
    /// # Errors
    ///
    /// An option that is unknown, that contradicts another one, or whose value cannot be read.
    pub fn of(mut options: Options) -> Result<Request, InputError> {
        let request = Request {
            profile: options.needed("profile")?.into(),
            catalog: options.needed("catalog")?.into(),
            deadline: options.parsed("deadline", str::parse)?,
            budget: options.parsed("budget", budget)?,
            confidence: options.number("confidence")?.unwrap_or(CONFIDENCE),
            work: Work::of(&mut options)?,
            ways: Ways::of(&mut options)?,
            transient: options.is_set("transient"),
            batch: options.whole("batch", BATCH)?,
            virtual_nodes: options.parsed("virtual_nodes", str::parse)?,
            max_workers: options.whole("max_workers", WORKERS)?,
            regions: options.list("region"),
            runs: options.whole("runs", RUNS)?.unwrap_or(plan::RUNS),
            seed: options.whole("seed", 0..=u64::MAX)?.unwrap_or(0),
        };
        options.end()?;
        if request.batch.is_some() && request.virtual_nodes.is_some() {
            let what = "a plan changes the batch or its cut, and not both";
            return Err(InputError::new("--virtual-nodes", what).hint("profile the job with the other batch"));
        }
        Ok(request)
    }

    /// The plan; it has no choice where nothing fits. `note` hears what was assumed.
    ///
    /// # Errors
    ///
    /// Files that cannot be read or used; a loss that is out of reach.
    pub fn answer(&self, note: &mut dyn FnMut(String)) -> Result<Plan, Refusal> {
        let deadline_s = self.deadline.map(left_s).transpose()?;
        let mut catalogue = read_catalogue(&self.catalog)?;
        catalogue.check_regions(&self.regions)?;
        let mut model = catalogue.speeds_of(profiled(&self.profile)?)?;
        if let Some(virtual_nodes) = self.virtual_nodes {
            model = virtual_nodes.cut(model, &catalogue, note)?;
        }
        let profile = model.profile();
        note_join(&mut catalogue, profile, note);
        let batch = self.batch.unwrap_or(profile.batch);
        if batch != profile.batch && self.work.target_loss.is_some() {
            let what = "a curve says how many steps of its own batch a loss takes, and nothing of another";
            return Err(InputError::new("--batch", what)
                .hint("leave it out, or say --steps or --epochs")
                .into());
        }
        let amount = self.work.samples(profile, batch, note)?;
        note_link(&catalogue, profile, note);
        let job = model.job();
        let ways: Vec<SyncStrategy> = self.ways.list()?;
        let usual = Question::new(&job, &model, &catalogue, amount.samples);
        let question = Question {
            batch,
            deadline_s,
            budget_dollars: self.budget.map(Dollars::get),
            confidence: self.confidence,
            transient: self.transient,
            max_workers: self.max_workers.unwrap_or(usual.max_workers),
            regions: &self.regions,
            ways: &ways,
            nodes_per_update: self.ways.nodes_per_update,
            staleness: self.ways.staleness(&amount, usual.virtual_nodes, note)?,
            seed: self.seed,
            runs: self.runs,
            ..usual
        };
        let mut found = plan::plan(&question, &catalogue, &model)?;
        plan::order_parts(&mut found, profile);
        // A job with another batch is another job.
        found.computation = profile.computation.clone().filter(|_| batch == profile.batch);
        Ok(found)
    }
}

/// An amount above zero: a shell makes `0` of an unquoted `$20`.
///
/// # Errors
///
/// Another text.
pub fn budget(text: &str) -> Result<Dollars, ParseError> {
    let dollars: Dollars = text.parse()?;
    if dollars.get() > 0.0 {
        return Ok(dollars);
    }
    let expected = "more than zero (a shell makes `0` of an unquoted `$20`: write 20, 20usd or '$20')";
    Err(ParseError::out_of_range("budget", text, expected))
}

/// Says that machines are assumed to be as near to each other as the profile's workers were.
fn note_link(catalogue: &Catalogue, profile: &Profile, note: &mut dyn FnMut(String)) {
    if catalogue.link.is_some() {
        return;
    }
    let network = |machine: &Machine| {
        let measured = catalogue.measured(&machine.device).and_then(|measured| measured.profile.network);
        measured.or(profile.network).map(|network| network.bandwidth_bytes_per_s)
    };
    let unsaid = catalogue.machines.iter().filter(|machine| machine.link.is_none());
    let Some(slowest) = unsaid.filter_map(network).reduce(f64::min) else { return };
    let gigabits = slowest * 8e-9;
    let measured = catalogue.machines.iter().any(|machine| machine.profile.is_some());
    let whose = if measured {
        "the workers of their profiles were, by at least"
    } else {
        "the profile's workers were, by"
    };
    note(format!("the catalogue says no [network]: machines are linked as {whose} {gigabits:.1} Gbit/s"));
}

/// Lets the workers of machines of which nothing is said join as the first worker of their profile did, and says so
/// where it takes long enough to matter.
fn note_join(catalogue: &mut Catalogue, profile: &Profile, note: &mut dyn FnMut(String)) {
    let boot = |machine: &Machine| {
        let measured = catalogue.measured(&machine.device).and_then(|measured| measured.profile.boot);
        measured.or(profile.boot).filter(|_| machine.join_s == 0.0)
    };
    let boots: Vec<_> = catalogue.machines.iter().map(boot).collect();
    let longest = boots.iter().flatten().max_by(|one, other| one.total_s().total_cmp(&other.total_s()));
    if let Some(boot) = longest.filter(|boot| boot.total_s() >= NOTED_JOIN_S) {
        note(format!(
            "the catalogue says no `join` for some machines: their workers join as the profile's first one did, in {}",
            boot.sentence()
        ));
    }
    for (machine, boot) in catalogue.machines.iter_mut().zip(boots) {
        machine.join_s = boot.map_or(machine.join_s, |boot| boot.total_s());
    }
}

/// Seconds from now.
fn left_s(deadline: Deadline) -> Result<f64, InputError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    deadline.left_s(now.as_secs_f64()).map_err(|what| {
        InputError::new("--deadline", what)
            .hint("write a time that is left, for example 2h, or a moment to come")
    })
}

/// A catalogue, and the files that it names beside it.
pub(crate) fn read_catalogue(path: &Path) -> Result<Catalogue, InputError> {
    let place = path.display().to_string();
    let text = fs::read_to_string(path).map_err(|e| {
        InputError::new(&place, format!("the catalogue cannot be read: {e}"))
            .hint("examples/plan has one; `bellwether schema catalog` prints its form")
    })?;
    Catalogue::read(&text, &place, &|name| read_beside(path, "the catalogue", name))
}
