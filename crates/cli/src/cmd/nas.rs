//! `bellwether nas`: which architecture is best, found with the weights of a supernet, one-shot or few-shot.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bellwether_core::job::{Cell, CheckedJob, Job, Model};
use bellwether_core::nas::NasFile;
use bellwether_core::{InputError, parse};
use bellwether_render::duration::{precise, written};
use bellwether_session::Spawn;
use bellwether_session::nas::devices::with_architecture;
use bellwether_session::nas::{
    Findings, Member, NasError, Oracle, Predictor, Progress, Scorer, Sessions, Trained, Trainer,
    check_limits, family, measure_all, search, train_all,
};
use bellwether_workloads::Supernet;
use clap::Args;

use crate::failure::Failure;
use crate::job::{Opened, Purpose, ScriptArguments};
use crate::options::{Format, assignment, picture};
use crate::printer::Printer;
use crate::runs::StateDir;
use crate::{files, job, session};

mod jobs;
mod plot;
mod show;

#[derive(Debug, Args)]
pub(crate) struct NasArguments {
    /// The file of the search: docs/search.md describes it
    #[arg(value_name = "SEARCH.toml")]
    search: PathBuf,
    /// Where the supernets are trained; what is there already is not trained again [default: in the state directory]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// The job file of the best architecture [default: best.toml in the folder]
    #[arg(short, long, value_name = "JOB.toml")]
    output: Option<PathBuf>,
    /// Draw the scores over the predicted step times
    #[arg(long, value_name = "FILE.svg", value_parser = picture)]
    plot: Option<PathBuf>,
    /// Supernets that are trained at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    at_once: u32,
    /// Let the supernets be jobs of the daemon of this state directory, beside its other jobs; it decides how many are
    /// trained at the same time
    #[arg(long, value_name = "DIR", conflicts_with_all = ["at_once", "threads"])]
    daemon: Option<PathBuf>,
    /// Train by threads of this process: quicker to start, but the memory of a worker is not measured
    #[arg(long)]
    threads: bool,
    /// Set a key of the supernet's job file, for example epochs=20
    #[arg(long, value_name = "KEY=VALUE", value_parser = assignment)]
    set: Vec<(String, String)>,
    /// Folder of the runs [default: $XDG_STATE_HOME/bellwether or ~/.local/state/bellwether]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// How the result is printed
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

/// What a search came to.
struct Outcome<'a> {
    file: &'a NasFile,
    family: &'a [Member],
    trained: &'a [Trained],
    findings: &'a Findings,
    predictor: Option<&'a Predictor>,
    winner: &'a Path,
}

pub(crate) fn nas(arguments: &NasArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    for path in arguments.output.iter().chain(&arguments.plot) {
        files::check_folder(path)?;
    }
    let (file, job, cell) = read(arguments)?;
    if arguments.plot.is_some() && file.device.measured == 0 {
        let error = InputError::new("--plot", "it draws scores over step times, and device.measured is 0");
        return Err(error.hint("leave --plot out, or device.measured").into());
    }
    let folder = StateDir::find(Some(folder(arguments)?))?;
    folder.make()?;
    let spawn = match arguments.threads {
        true => Spawn::Threads,
        false => Spawn::Processes(session::program_of(None)?),
    };
    let predictor = predictor(&file, (&job, &cell), &spawn, folder.path(), printer)?;
    let edges = cell.edges();
    if let Some(predictor) = &predictor {
        check_limits(&file.limits, &edges, predictor).map_err(|error| at_file(&arguments.search, error))?;
    }
    let family = family(&job, &file.split, file.share)?;
    let (trainer, at_once): (Box<dyn Trainer>, usize) = match &arguments.daemon {
        Some(daemon) => (Box::new(jobs::Jobs::of(daemon, printer)?), family.len()),
        None => (Box::new(Sessions::new(folder.clone(), spawn, session::build)), arguments.at_once as usize),
    };
    let tell = |progress: Progress<'_>| show_progress(&progress, family.len(), printer);
    let trained = train_all(&family, &job.name, trainer.as_ref(), at_once, &tell)?;
    let last = family.last().map_or(0, |member| member.level);
    let leaves = family.iter().zip(&trained).filter(|(member, _)| member.level == last);
    let leaves =
        leaves.map(|(member, trained)| (member.cell.clone(), member.job.clone().into_job(), trained.clone()));
    let mut oracle = Oracle::new(leaves.collect(), &open_scorer);
    let findings = search(&file.search, &file.limits, &edges, &mut oracle, predictor.as_ref())?;
    let winner = arguments.output.clone().unwrap_or_else(|| folder.path().join("best.toml"));
    write_winner(&job, &findings, &winner)?;
    let outcome = Outcome {
        file: &file,
        family: &family,
        trained: &trained,
        findings: &findings,
        predictor: predictor.as_ref(),
        winner: &winner,
    };
    printer.out(show::render(&outcome, arguments.format));
    if let Some(path) = &arguments.plot {
        files::write_whole(path, plot::svg(&outcome, &job.name)?.as_bytes())?;
        printer.note(format_args!("the picture is in {}", path.display()));
    }
    Ok(ExitCode::SUCCESS)
}

/// The search, the job of its supernet, and the space.
fn read(arguments: &NasArguments) -> Result<(NasFile, CheckedJob, Cell), Failure> {
    let place = arguments.search.display().to_string();
    let text = fs::read_to_string(&arguments.search).map_err(|error| {
        InputError::new(&place, format!("the file of the search cannot be read: {error}"))
            .hint("`bellwether nas SEARCH.toml` takes a file as docs/search.md describes it; examples/nas/few-shot.toml is one")
    })?;
    let file = NasFile::read(&text, &place)?;
    let beside = arguments.search.parent().unwrap_or(Path::new("")).join(&file.job);
    let Opened { job, .. } =
        job::open(&beside, &ScriptArguments::default(), &arguments.set, Purpose::Declare)?;
    let Model::Cell(cell) = job.model.clone() else {
        let error = InputError::new(
            format!("{}: model.kind", beside.display()),
            "only a network of cells holds architectures to choose from",
        );
        return Err(error.hint("write kind = \"cell\"").into());
    };
    file.check_split(&cell).map_err(|error| at_file(&arguments.search, error))?;
    let workers = file.device.workers.unwrap_or(job.workers.min);
    if workers > job.batch.virtual_nodes {
        let what = format!("{workers} workers cannot share {} virtual nodes", job.batch.virtual_nodes);
        return Err(at_file(&arguments.search, InputError::new("device.workers", what)).into());
    }
    // What is scored has to be held out, and what cannot be built is refused before anything is measured.
    let open = |path: &Path| files::read_data(path);
    Supernet::open(&job, &open)?;
    Ok((file, job, cell))
}

fn at_file(path: &Path, error: InputError) -> InputError {
    InputError { place: format!("{}: {}", path.display(), error.place), ..error }
}

/// Where the search is kept.
fn folder(arguments: &NasArguments) -> Result<PathBuf, Failure> {
    if let Some(folder) = &arguments.folder {
        return Ok(folder.clone());
    }
    let name = arguments.search.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(StateDir::find(arguments.state_dir.clone())?.make()?.join(format!("nas-{name}")))
}

/// Measures some architectures, where that is wanted, and says what the others would take.
fn predictor(
    file: &NasFile,
    (job, cell): (&CheckedJob, &Cell),
    spawn: &Spawn,
    folder: &Path,
    printer: &Printer,
) -> Result<Option<Predictor>, Failure> {
    let device = &file.device;
    if device.measured == 0 {
        return Ok(None);
    }
    let workers = device.workers.unwrap_or(job.workers.min);
    let most = device.measured;
    let mut tell = |number: usize, one: &bellwether_session::nas::devices::Measured| {
        printer.note(format_args!("measured {} of {most}: {} a step", number + 1, precise(one.step_s)));
    };
    let kept = folder.join("measured.json");
    let measured = measure_all((job, cell), (device, workers), spawn, session::build, &kept, &mut tell)?;
    let samples = session::build(job)?.training_samples();
    Ok(Some(Predictor::fit(measured, device, workers, job.total_steps(samples))?))
}

fn show_progress(progress: &Progress<'_>, all: usize, printer: &Printer) {
    match progress {
        Progress::Begins { run, .. } => printer.note(format_args!("{run}, one of {}", supernets(all))),
        Progress::Trained { trained, .. } => {
            let accuracy = trained
                .accuracy
                .map_or(String::new(), |share| format!(", paths are right in {:.1} %", share * 100.0));
            printer.note(format_args!(
                "  {} is trained: {}{accuracy}",
                trained.run,
                written(trained.seconds)
            ));
        }
    }
}

fn supernets(count: usize) -> String {
    bellwether_render::words::count(count, "supernet")
}

/// The best architecture as a job that trains it from the seed, as long as the supernet.
fn write_winner(job: &CheckedJob, findings: &Findings, path: &Path) -> Result<(), Failure> {
    let best = findings.found.first().ok_or_else(|| Failure::No("no architecture was scored".into()))?;
    let winner =
        with_architecture(job, &best.architecture)?.edit(|job| job.name = format!("{}-best", job.name))?;
    files::write_whole(path, parse::to_text(&winner).as_bytes())
}

fn open_scorer(job: &Job) -> Result<Scorer, InputError> {
    let mut supernet = Supernet::open(job, &files::read_data)?;
    Ok(Box::new(move |weights, path| supernet.score(weights, path)))
}

impl From<NasError> for Failure {
    fn from(error: NasError) -> Self {
        match error {
            NasError::Input(error) => error.into(),
            NasError::Run(error) => error.into(),
            NasError::RunDir(error) => error.into(),
            NasError::Workload(error) => Failure::at("search", error),
            NasError::Stopped { run } => {
                Failure::No(format!("{run} was stopped; the same command goes on from there"))
            }
            NasError::Failed { run, folder, why } => {
                let hint = format!("journal.jsonl and the logs in {} tell more", folder.display());
                InputError::new(run, why).hint(hint).into()
            }
        }
    }
}
