//! `bellwether tune sync`: which share of a recurring job's steps has to be synchronous, found by training it again and again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bellwether_core::InputError;
use bellwether_core::job::{Feature, Job, WorkerRange};
use bellwether_core::units::DollarsPerHour;
use bellwether_render::duration::written;
use bellwether_sched::tune::{Outcome, Search};
use bellwether_session::tune::{
    self as search, Progress, Report, SearchError, State, Tuned, sessions_folder,
};
use clap::{Args, Subcommand};

use crate::failure::Failure;
use crate::job::{Opened, Purpose, ScriptArguments};
use crate::options::{TableFormat, assignment};
use crate::printer::Printer;
use crate::runs::StateDir;
use crate::{files, job, session};

mod show;

#[derive(Debug, Args)]
pub(crate) struct TuneArguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Find the least share of synchronous steps with which a recurring job is as accurate as with all
    Sync(SyncArguments),
}

#[derive(Debug, Args)]
struct SyncArguments {
    /// The job file, or a Python script that declares its job
    #[arg(value_name = "JOB.toml|SCRIPT.py")]
    job: PathBuf,
    /// Accuracy that may be lost; of a job that has only a loss, the part by which it may be larger [default: 0.01]
    #[arg(long, value_name = "B", allow_hyphen_values = true)]
    margin: Option<f64>,
    /// Sessions of each share, with different seeds [default: 5]
    #[arg(long, value_name = "R")]
    runs: Option<u32>,
    /// Shares that are tried: 1/2, 1/4 and so on, then between [default: 5]
    #[arg(long, value_name = "M")]
    settings: Option<u32>,
    /// The accuracy that is wanted [default: that of the job with all steps synchronous, which is trained too]
    #[arg(long, value_name = "A", allow_hyphen_values = true)]
    target_accuracy: Option<f64>,
    /// How often the job will be trained: says what the search gains until then
    #[arg(long, value_name = "N")]
    recurrences: Option<u64>,
    /// Price of a worker: says what the search costs
    #[arg(long, visible_alias = "price-per-hour", value_name = "$N/h", allow_hyphen_values = true)]
    price: Option<DollarsPerHour>,
    /// Number of workers [default: the job's, or the fewest of its range]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    workers: Option<u32>,
    /// Set a key of the job file, for example steps=500
    #[arg(long, value_name = "KEY=VALUE", value_parser = assignment)]
    set: Vec<(String, String)>,
    /// Go on with a search that was stopped or killed; a session that was under way is not lost
    #[arg(long)]
    resume: bool,
    /// Where the search is kept, with a folder for its sessions beside it [default: in the state directory]
    #[arg(short, long, value_name = "STATE.json")]
    output: Option<PathBuf>,
    /// Folder of the runs [default: $XDG_STATE_HOME/bellwether or ~/.local/state/bellwether]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// How the result is printed
    #[arg(long, value_enum, default_value = "table")]
    format: TableFormat,
    #[command(flatten)]
    script: ScriptArguments,
}

pub(crate) fn tune(arguments: &TuneArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let What::Sync(arguments) = &arguments.what;
    let state_dir = StateDir::find(arguments.state_dir.clone())?;
    let job = job(arguments)?;
    let workload = job.describe()?;
    let job = job.job;
    let total_steps = job.total_steps(workload.training_samples);
    let path = match &arguments.output {
        Some(path) => {
            files::check_folder(path)?;
            std::path::absolute(path).map_err(|e| Failure::at(path.display().to_string(), e))?
        }
        None => state_dir.make()?.join(format!("tune-{}.json", search::key(&job))),
    };
    let mut state = begin(arguments, &job, &path)?;
    let smallest = 0.5_f64.powi(state.search.max_settings() as i32);
    if smallest * (total_steps as f64) < 1.0 {
        let what = format!("the last of {} settings could be less than a step", state.search.max_settings());
        let hint = format!("the job has {total_steps} steps: give fewer --settings, or more steps");
        return Err(InputError::new("tune", what).hint(hint).into());
    }
    state.write(&path)?;
    let again = format!("`bellwether tune sync {} --resume` goes on", arguments.job.display());
    printer.note(format_args!("the search is in {}; when it is stopped, {again}", path.display()));
    search::search(&mut state, &job, &path, &session::program()?, &mut |told| show_progress(&told, printer))?;
    // Only what was left over lies there.
    let _ = fs::remove_dir_all(sessions_folder(&path));
    conclude(&state, &job, arguments, &state_dir, printer)
}

/// The job as it is trained, with the workers that it has in every session.
fn job(arguments: &SyncArguments) -> Result<Opened, Failure> {
    let opened = job::open(&arguments.job, &arguments.script, &arguments.set, Purpose::Declare)?;
    let job = &opened.job;
    let place = || arguments.job.display().to_string();
    Feature::TuneSync.check(job).map_err(|error| InputError { place: place(), ..error })?;
    let workers = arguments.workers.unwrap_or(job.workers.initial());
    let nodes = job.batch.virtual_nodes;
    if workers > nodes {
        let what = format!("{workers} workers cannot share {nodes} virtual nodes");
        return Err(InputError::new("--workers", what).hint(format!("use at most {nodes}")).into());
    }
    Ok(opened.edit(|job| {
        job.workers = WorkerRange { min: workers, max: workers };
        // The sessions' checkpoints go with them.
        (job.checkpoint.folder, job.checkpoint.url) = (None, None);
    })?)
}

/// A new search, or the one that is there.
fn begin(arguments: &SyncArguments, job: &Job, path: &Path) -> Result<State, Failure> {
    let SyncArguments { margin, runs, settings, target_accuracy, .. } = *arguments;
    let place = path.display().to_string();
    if arguments.resume {
        let state = State::read(path)?;
        let asked = [
            ("--margin", margin.is_none_or(|margin| margin == state.search.margin())),
            ("--runs", runs.is_none_or(|runs| runs == state.search.runs_per_setting())),
            ("--settings", settings.is_none_or(|settings| settings == state.search.max_settings())),
            (
                "--target-accuracy",
                target_accuracy.is_none() || target_accuracy == state.search.given_target(),
            ),
        ];
        state.check(job, asked).map_err(|error| match error {
            SearchError::Other { .. } => Failure::Input(InputError::new(place, error.to_string()).hint(
                "use the same arguments as then; or start over without --resume, with another --output",
            )),
            error => error.into(),
        })?;
        return Ok(state);
    }
    if path.exists() {
        let hint = "--resume goes on with it, or shows its result; remove the file to start over, or name another with \
                    --output";
        return Err(InputError::new(place, "there is a search already").hint(hint).into());
    }
    let search =
        Search::new(margin.unwrap_or(0.01), runs.unwrap_or(5), settings.unwrap_or(5), target_accuracy)?;
    Ok(State::new(job, search))
}

impl From<SearchError> for Failure {
    fn from(error: SearchError) -> Self {
        match error {
            SearchError::Input(error) => error.into(),
            SearchError::RunDir(error) => error.into(),
            SearchError::Unreadable { path, source } => InputError::new(
                path.display().to_string(),
                format!("the search cannot be read: {source}"),
            )
            .hint("without --resume a new one begins; --output names the file of one that was kept elsewhere")
            .into(),
            SearchError::Stopped { run } => {
                Failure::No(format!("{run} was stopped; with --resume the search goes on from there"))
            }
            error @ SearchError::Other { .. } => Failure::at("search", error),
        }
    }
}

/// Shows how far a search is.
fn show_progress(told: &Progress, printer: &Printer) {
    match told {
        Progress::Session { number, most, fraction, seed } => {
            let share = fraction * 100.0;
            printer
                .note(format_args!("session {number} of at most {most}: {share} % synchronous, seed {seed}"));
        }
        Progress::Step { .. } if printer.quiet => {}
        Progress::Step { committed, total } => {
            let total = total.map_or(String::new(), |total| format!("/{total}"));
            printer.note(format_args!("  step {committed}{total}"));
        }
        Progress::Trained { outcome, seconds } => {
            let score = match outcome {
                Outcome::Accuracy(accuracy) => format!("accuracy {:.2} %", accuracy * 100.0),
                Outcome::Loss(loss) => format!("held-out loss {loss:.4}"),
                Outcome::Diverged => "diverged".into(),
            };
            printer.note(format_args!("  {score}, {}", written(*seconds)));
        }
    }
}

/// Keeps what was found, and prints it.
fn conclude(
    state: &State,
    job: &Job,
    arguments: &SyncArguments,
    state_dir: &StateDir,
    printer: &Printer,
) -> Result<ExitCode, Failure> {
    let result = Report::new(state, job, arguments.recurrences, arguments.price);
    printer.out(show::render(&result, arguments.format));
    let Some(best) = result.best else {
        let what = "training diverges even with all steps synchronous, so no target accuracy can be derived";
        return Err(Failure::No(format!(
            "{what}\n  hint: lower optimizer.learning_rate, or name the accuracy with --target-accuracy"
        )));
    };
    let kept = Tuned { fraction: best, workers: job.workers.min, job: job.name.clone() };
    kept.keep(state_dir, job)?;
    Ok(ExitCode::SUCCESS)
}
