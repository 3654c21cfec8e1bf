//! `bellwether plan`: the machines that one job should have, from its profile and a price catalogue.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use bellwether_core::deadline::Deadline;
use bellwether_core::profile::Profile;
use bellwether_core::units::Dollars;
use bellwether_core::{InputError, ParseError};
use bellwether_model::predict::ProfileModel;
use bellwether_sched::plan::{self, Catalogue, Question};
use clap::Args;

use crate::failure::Failure;
use crate::files;
use crate::options::{TableFormat, picture};
use crate::printer::Printer;

mod plot;
mod show;
mod strategies;
mod work;

#[derive(Debug, Args)]
pub(crate) struct PlanArguments {
    /// The profile, made by `bellwether profile`
    #[arg(value_name = "PROFILE")]
    profile: PathBuf,
    /// What may be rented: machines with their prices (examples/plan has a catalogue; `bellwether schema catalog`)
    #[arg(long, value_name = "PRICES.toml")]
    catalog: PathBuf,
    /// When the job must end: a time from now (2h, 1h24min) or a moment (2026-11-21T18:00:00Z)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    deadline: Option<Deadline>,
    /// The most that the job may be expected to cost in dollars: 20, 20usd or '$20'
    #[arg(long, value_name = "DOLLARS", allow_hyphen_values = true, value_parser = budget)]
    budget: Option<Dollars>,
    /// The probability with which the deadline must be met
    #[arg(long, value_name = "P", default_value_t = 0.95)]
    confidence: f64,
    #[command(flatten)]
    work: work::WorkArguments,
    #[command(flatten)]
    ways: strategies::WayArguments,
    /// Allow servers that their provider may take away
    #[arg(long)]
    transient: bool,
    /// Most workers [default: 64, or as many as there are virtual nodes]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(plan::WORKERS_MAX)))]
    max_workers: Option<u32>,
    /// Regions that may be used [default: all of the catalogue]
    #[arg(long, value_name = "REGION,…", value_delimiter = ',')]
    region: Vec<String>,
    /// Simulated runs of each configuration that matters
    #[arg(long, value_name = "N", default_value_t = plan::RUNS, value_parser = clap::value_parser!(u32).range(100..=10_000))]
    runs: u32,
    /// Seed of the simulated runs
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// How the result is printed
    #[arg(long, value_enum, default_value = "table")]
    format: TableFormat,
    /// Draw cost over time
    #[arg(long, value_name = "FILE.svg", value_parser = picture)]
    plot: Option<PathBuf>,
}

/// An amount above zero: a shell makes `0` of an unquoted `$20`.
fn budget(text: &str) -> Result<Dollars, ParseError> {
    let dollars: Dollars = text.parse()?;
    if dollars.get() > 0.0 {
        return Ok(dollars);
    }
    let expected = "more than zero (a shell makes `0` of an unquoted `$20`: write 20, 20usd or '$20')";
    Err(ParseError::out_of_range("budget", text, expected))
}

pub(crate) fn plan(arguments: &PlanArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    if let Some(path) = &arguments.plot {
        files::check_folder(path)?;
    }
    let deadline_s = arguments.deadline.map(left_s).transpose()?;
    let catalogue = read_catalogue(&arguments.catalog)?;
    catalogue.check_regions(&arguments.region)?;
    let model = model(&arguments.profile, &catalogue)?;
    let profile = model.profile();
    let work = work::samples(&arguments.work, profile, printer)?;
    note_link(&catalogue, profile, printer);
    let job = model.job();
    let ways = arguments.ways.ways()?;
    let usual = Question::new(&job, &model, &catalogue, work.samples);
    let question = Question {
        deadline_s,
        budget_dollars: arguments.budget.map(Dollars::get),
        confidence: arguments.confidence,
        transient: arguments.transient,
        max_workers: arguments.max_workers.unwrap_or(usual.max_workers),
        regions: &arguments.region,
        ways: &ways,
        nodes_per_update: arguments.ways.nodes_per_update,
        staleness: arguments.ways.staleness(&work, usual.virtual_nodes, printer)?,
        seed: arguments.seed,
        runs: arguments.runs,
        ..usual
    };
    let mut found = plan::plan(&question, &catalogue, &model)?;
    plan::order_parts(&mut found, profile);
    if let Some(path) = &arguments.plot {
        files::write_whole(path, plot::svg(&found)?.as_bytes())?;
    }
    printer.out(printer.marked(&show::render(&found, arguments.format), "← choice"));
    match found.choice {
        Some(_) => Ok(ExitCode::SUCCESS),
        None => Err(Failure::No(show::refusal(&found))),
    }
}

/// Says that machines are assumed to be as near to each other as the profile's workers were.
fn note_link(catalogue: &Catalogue, profile: &Profile, printer: &Printer) {
    let said = catalogue.link.is_some() || catalogue.machines.iter().all(|machine| machine.link.is_some());
    if let Some(network) = profile.network.filter(|_| !said) {
        let gigabits = network.bandwidth_bytes_per_s * 8e-9;
        printer.note(format_args!(
            "the catalogue says no [network]: machines are linked as the profile's workers were, by {gigabits:.1} Gbit/s"
        ));
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
fn read_catalogue(path: &Path) -> Result<Catalogue, Failure> {
    let place = path.display().to_string();
    let text = fs::read_to_string(path).map_err(|e| {
        InputError::new(&place, format!("the catalogue cannot be read: {e}"))
            .hint("examples/plan has one; `bellwether schema catalog` prints its form")
    })?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let beside = |name: &str| {
        fs::read_to_string(folder.join(name)).map_err(|e| {
            InputError::new(&place, format!("the lifetimes in `{name}` cannot be read: {e}"))
                .hint("a file is looked for beside the catalogue")
        })
    };
    Ok(Catalogue::read(&text, &place, &beside)?)
}

/// The profile's model with the speeds of the catalogue.
fn model(path: &Path, catalogue: &Catalogue) -> Result<ProfileModel, Failure> {
    let place = path.display().to_string();
    let text = fs::read_to_string(path).map_err(|e| {
        InputError::new(&place, format!("the profile cannot be read: {e}"))
            .hint("`bellwether profile JOB.toml -o FILE` makes one")
    })?;
    let profile = Profile::read(&text, &place)?;
    let model =
        ProfileModel::new(profile).map_err(|e| InputError { place: format!("{place}: {}", e.place), ..e })?;
    Ok(catalogue.speeds_of(model)?)
}
