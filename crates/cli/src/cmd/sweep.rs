//! `bellwether sweep`: many trials of a job, of which the promising ones grow and the others wait or end.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bellwether_core::InputError;
use bellwether_core::parse;
use bellwether_core::sweep::{self, Ladder, Sample, Sweep, Unit, overrides};
use bellwether_runtime::ending;
use bellwether_sched::search::{Plan, Search};
use bellwether_serve::ledger::Task;
use bellwether_serve::secret::Secret;
use bellwether_serve::sweep::ledger::Entry;
use bellwether_serve::sweep::{Drive, Embedded, Jobs, Laid, Means, Room, State, Summary, SweepError, ledger};
use bellwether_session::kind;
use clap::Args;

use crate::daemon;
use crate::failure::Failure;
use crate::files;
use crate::job::{self, Purpose, ScriptArguments};
use crate::options::{Format, picture};
use crate::printer::Printer;
use crate::session::program;

mod foresee;
mod plot;
mod show;

/// Files in the folder of a sweep.
const LEDGER: &str = "sweep.jsonl";
const RUNS: &str = "runs";
const WINNER: &str = "winner.toml";
const SUMMARY: &str = "summary.json";
const LOCK: &str = "lock";

#[derive(Debug, Args)]
pub(crate) struct SweepArguments {
    /// The sweep file
    #[arg(value_name = "SWEEP.toml")]
    pub(crate) sweep: PathBuf,
    /// Folder of the sweep: its ledger, its trials and the winner's job file; a sweep that is there goes on [default:
    /// the sweep file's name with .sweep, in the working directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// Slots for the workers of all trials [default: the sweep file's, or one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) workers: Option<u32>,
    /// Let the trials be jobs of the daemon of this state directory, instead of starting an engine in this process
    #[arg(long, value_name = "DIR", conflicts_with = "workers")]
    pub(crate) daemon: Option<PathBuf>,
    /// Say what the sweep would come to, from a measurement of one trial; train no trial
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Draw the trials and the best figure over the cost as SVG into this file
    #[arg(long, value_name = "FILE.svg", value_parser = picture)]
    pub(crate) plot: Option<PathBuf>,
    /// How the result is printed
    #[arg(long, value_enum, default_value = "table")]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) script: ScriptArguments,
}

/// A sweep file that was read, and the job that it names.
struct Opened<'a> {
    sweep: Sweep,
    place: String,
    base: PathBuf,
    script: &'a ScriptArguments,
}

impl Opened<'_> {
    /// Lays a sample over the job file.
    fn lay(&self, sample: &Sample) -> Result<Laid, InputError> {
        let (mut keys, mut arguments) = overrides(&self.sweep.file.set);
        let (more, values) = overrides(sample);
        keys.extend(more);
        arguments.extend(values);
        let mut script = self.script.clone();
        script.arguments.extend(arguments);
        let located = |failure: Failure| match failure {
            Failure::Input(error) => error,
            other => InputError::new(self.base.display().to_string(), other),
        };
        let opened = job::open(&self.base, &script, &keys, Purpose::Declare).map_err(located)?;
        let task = Task::of(&opened.describe()?);
        Ok(Laid { job: opened.job, task })
    }

    /// The same for the first sample: what is wrong with it is wrong with the sweep.
    fn first(&self, sample: &Sample) -> Result<Laid, Failure> {
        self.lay(sample).map_err(|error| {
            let keys = sample.iter().map(|(key, value)| format!("{key} = {value}"));
            let at = keys.collect::<Vec<_>>().join(", ");
            // The keys of a sample are set as the command's option sets them.
            let place = error.place.replace(" with --set", "").replace("--set ", "");
            let place = format!("{}: [space] laid over {place}", self.place);
            let hint = match error.hint.is_empty() {
                true => format!("the first trial has {at}"),
                false => format!("{}; the first trial has {at}", error.hint),
            };
            InputError { place, hint, ..error }.into()
        })
    }
}

fn open(arguments: &SweepArguments) -> Result<Opened<'_>, Failure> {
    let path = &arguments.sweep;
    let place = path.display().to_string();
    let text = fs::read_to_string(path).map_err(|error| {
        InputError::new(&place, format!("the sweep file cannot be read: {error}"))
            .hint("`bellwether sweep SWEEP.toml` takes the path of a sweep file; docs/sweep.md describes it")
    })?;
    let sweep = sweep::read(&text, &place)?;
    let base = path.parent().unwrap_or(Path::new("")).join(&sweep.file.job);
    if !base.exists() {
        let error = InputError::new(format!("{place}: job"), format!("there is no {}", base.display()));
        return Err(error.hint("a relative path starts at the sweep file's folder").into());
    }
    Ok(Opened { sweep, place, base, script: &arguments.script })
}

/// What the search follows, once a first sample was laid over the job.
fn plan(opened: &Opened<'_>, slots: u32) -> Result<(Plan, Laid), Failure> {
    let Sweep { file, space } = &opened.sweep;
    let concurrent = file.concurrent.unwrap_or(slots);
    let plan = Plan {
        space: space.clone(),
        sampler: file.sampler,
        scheduler: file.scheduler,
        ladder: None,
        metric: file.objective.metric,
        trials: file.budget.trials,
        concurrent,
    };
    let Some(sample) = Search::new(plan.clone()).suggest() else {
        return Err(InputError::new(&opened.place, "the sweep has no trial at all").into());
    };
    let laid = opened.first(&sample)?;
    let ladder = file.scheduler.resources().map(|resources| {
        let own = match resources.unit {
            Unit::Epochs => laid.job.epochs,
            Unit::Steps => laid.job.steps,
        };
        let Some(maximum) = resources.maximum.or(own) else {
            let what = format!("the job's length is not in {}", resources.unit.name());
            return Err(InputError::new(format!("{}: scheduler.maximum", opened.place), what)
                .hint("say how long a whole trial is: maximum = N"));
        };
        if maximum < resources.minimum {
            let what = format!("a whole trial has {maximum}, and the first rung {}", resources.minimum);
            return Err(InputError::new(format!("{}: scheduler.minimum", opened.place), what)
                .hint("make it smaller, or name a `maximum`"));
        }
        Ok(Ladder { minimum: resources.minimum, maximum, reduction: resources.reduction })
    });
    Ok((Plan { ladder: ladder.transpose()?, ..plan }, laid))
}

/// One sweep works in a folder at a time.
fn lock(folder: &Path) -> Result<File, Failure> {
    let path = folder.join(LOCK);
    let lock = File::create(&path).map_err(|error| Failure::at(path.display().to_string(), error))?;
    if rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err() {
        let error = InputError::new(folder.display().to_string(), "another sweep is at work there");
        return Err(error.hint("wait until it has ended, or choose another --folder").into());
    }
    Ok(lock)
}

fn folder(arguments: &SweepArguments) -> Result<PathBuf, Failure> {
    let named = arguments.folder.clone().unwrap_or_else(|| {
        let mut name = arguments.sweep.file_stem().unwrap_or_default().to_os_string();
        name.push(".sweep");
        PathBuf::from(name)
    });
    std::path::absolute(&named).map_err(|error| Failure::at(named.display().to_string(), error))
}

pub(crate) fn sweep(arguments: &SweepArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let opened = open(arguments)?;
    if let Some(path) = &arguments.plot {
        files::check_folder(path)?;
    }
    let folder = folder(arguments)?;
    let path = folder.join(LEDGER);
    let known = known(&path, &opened)?;
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    let asked = arguments.workers.or(opened.sweep.file.workers);
    if arguments.dry_run {
        let slots = known.as_ref().map_or(asked.unwrap_or(cores), |state| state.slots);
        let (plan, laid) = plan(&opened, slots)?;
        foresee::dry_run(&opened.sweep, &plan, &laid, (slots, &folder), arguments.format, printer)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut daemon = arguments.daemon.as_deref().map(|folder| daemon::find(folder, printer)).transpose()?;
    let slots = match (&known, &daemon) {
        (Some(state), _) => state.slots,
        (None, Some(daemon)) => daemon.slots()?,
        (None, None) => asked.unwrap_or(cores),
    };
    let first = match &known {
        Some(state) => resumed(state, &opened, asked, printer)?,
        None => begun(&opened, slots, &folder)?,
    };
    fs::create_dir_all(folder.join(RUNS))
        .map_err(|error| Failure::at(folder.display().to_string(), error))?;
    let _lock = lock(&folder)?;
    if known.as_ref().is_none_or(|state| state.over.is_none()) || known.is_some_and(|state| !state.is_over())
    {
        printer.note(format_args!(
            "the sweep is in {}; when it is stopped or killed, the same command goes on",
            folder.display()
        ));
    }
    let summary = match &mut daemon {
        Some(jobs) => carry_on(&path, first, &opened, jobs, printer)?,
        None => {
            let notes = *printer;
            let room = Room {
                folder: folder.join(RUNS),
                slots,
                program: program()?,
                tell: Box::new(move |what| notes.note(format_args!("note: {what}"))),
            };
            let mut engine = Embedded::open(room)?;
            let summary = carry_on(&path, first, &opened, &mut engine, printer);
            let closed = engine.close();
            let summary = summary?;
            closed.map_err(|error| Failure::at("sweep", error))?;
            summary
        }
    };
    conclude(&summary, &opened, &folder, arguments, printer)
}

/// The sweep that is in the folder; it must be the one that the file describes.
fn known(path: &Path, opened: &Opened<'_>) -> Result<Option<State>, Failure> {
    let place = path.display().to_string();
    let lines = ledger::read(path).map_err(|error| Failure::at(&place, error))?;
    let Some(lines) = lines else { return Ok(None) };
    let state = State::fold(&lines).map_err(|error| {
        Failure::from(
            InputError::new(&place, error).hint("name another --folder; the trials are still in this one"),
        )
    })?;
    let mut file = opened.sweep.file.clone();
    // These may change on the way.
    (file.budget, file.concurrent, file.workers) =
        (state.file.budget, state.file.concurrent, state.file.workers);
    let other = match (file == state.file, base(opened)? == state.base) {
        (true, true) => return Ok(Some(state)),
        (false, _) => format!("the sweep there was begun with another {}", opened.place),
        (true, false) => format!("the sweep there was begun with another {}", opened.base.display()),
    };
    Err(InputError::new(place, other)
        .hint("only budget, workers and concurrent may change; name another --folder to start over")
        .into())
}

/// Digest of the job's file.
fn base(opened: &Opened<'_>) -> Result<String, Failure> {
    let bytes =
        fs::read(&opened.base).map_err(|error| Failure::at(opened.base.display().to_string(), error))?;
    Ok(kind::source_digest(&bytes))
}

fn unix_s() -> f64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0.0, |since| since.as_secs_f64())
}

/// The first line of a sweep that begins.
fn begun(opened: &Opened<'_>, slots: u32, folder: &Path) -> Result<Entry, Failure> {
    let (plan, _) = plan(opened, slots)?;
    let id = Secret::random().map_err(|error| Failure::at("random name", error))?.to_text();
    let predicted = foresee::before(folder);
    Ok(Entry::Opened {
        version: env!("CARGO_PKG_VERSION").into(),
        id: id[..12].into(),
        unix_s: unix_s(),
        file: Box::new(opened.sweep.file.clone()),
        plan: Box::new(plan),
        base: base(opened)?,
        slots,
        predicted,
    })
}

/// The line with which a sweep goes on.
fn resumed(
    state: &State,
    opened: &Opened<'_>,
    asked: Option<u32>,
    printer: &Printer,
) -> Result<Entry, Failure> {
    if asked.is_some_and(|asked| asked != state.slots) {
        let what = format!("the sweep was begun with {} slots", state.slots);
        return Err(InputError::new("--workers", what).hint("leave it out to go on as before").into());
    }
    let begun = state.search.trials.len();
    printer.note(format_args!("going on with the sweep: {begun} trials have begun"));
    let file = &opened.sweep.file;
    Ok(Entry::Resumed {
        unix_s: unix_s(),
        budget: file.budget,
        concurrent: file.concurrent.unwrap_or(state.slots),
    })
}

fn carry_on(
    path: &Path,
    first: Entry,
    opened: &Opened<'_>,
    jobs: &mut dyn Jobs,
    printer: &Printer,
) -> Result<Summary, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let heard = Arc::clone(&stop);
    // Where the system does not let us listen, a signal ends the sweep, and the same command goes on.
    std::thread::spawn(move || ending::wait_until_asked().map(|_| heard.store(true, Ordering::Relaxed)));
    let lay = |sample: &Sample| opened.lay(sample);
    let mut tell = |told: bellwether_serve::sweep::Told<'_>| show::progress(&told, printer);
    let is_stopping = || stop.load(Ordering::Relaxed);
    let means = Means { jobs, lay: &lay, tell: &mut tell, is_stopping: &is_stopping };
    let mut drive = Drive::open(path, first, means)?;
    Ok(drive.run()?)
}

impl From<SweepError> for Failure {
    fn from(error: SweepError) -> Failure {
        match error {
            SweepError::Input(error) => error.into(),
            SweepError::Ledger { path, source } => Failure::at(path.display().to_string(), source),
            SweepError::Broken(what) => Failure::Broken(what),
        }
    }
}

/// Keeps what was found, and prints it.
fn conclude(
    summary: &Summary,
    opened: &Opened<'_>,
    folder: &Path,
    arguments: &SweepArguments,
    printer: &Printer,
) -> Result<ExitCode, Failure> {
    let winner = summary.winner.and_then(|winner| summary.trials.get(winner as usize));
    if let Some(winner) = winner {
        let mut laid = opened.lay(&winner.sample)?.job.into_job();
        if let (Some(resources), Some(steps)) = (opened.sweep.file.scheduler.resources(), winner.total_steps)
            && resources.maximum.is_some()
        {
            (laid.epochs, laid.steps) = match resources.unit {
                Unit::Epochs => (resources.maximum, None),
                Unit::Steps => (None, Some(steps)),
            };
        }
        files::write_whole(&folder.join(WINNER), parse::to_text(&laid).as_bytes())?;
    }
    files::write_whole(&folder.join(SUMMARY), bellwether_render::json(summary).as_bytes())?;
    if let Some(path) = &arguments.plot {
        files::write_whole(path, plot::svg(summary, &opened.sweep)?.as_bytes())?;
    }
    match arguments.format {
        Format::Json => printer.out(bellwether_render::json(summary)),
        Format::Table => printer.out(show::table(summary, &folder.join(WINNER))),
    }
    match (&summary.halted, winner) {
        (Some(why), _) => {
            printer.note(format_args!(
                "the sweep waits: {why}; the same command goes on, with a larger budget if that was spent"
            ));
            Ok(ExitCode::from(u8::from(why == "it was stopped")))
        }
        (None, None) => Err(Failure::No("no trial could be trained".into())),
        (None, Some(_)) => Ok(ExitCode::SUCCESS),
    }
}
