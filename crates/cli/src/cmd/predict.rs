//! `bellwether predict`: throughput of any configuration from the profile of one worker.

use std::fs;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bellwether_core::InputError;
use bellwether_core::prediction::Link;
use bellwether_core::profile::Profile;
use bellwether_model::predict::{ProfileModel, Question, QuestionError, RunQuestion};

use crate::failure::Failure;
use crate::files;
use crate::printer::Printer;

mod args;
mod plot;
mod run;
mod show;

pub(crate) use args::PredictArguments;

impl From<QuestionError> for Failure {
    fn from(error: QuestionError) -> Failure {
        match error {
            QuestionError::Option(error) => {
                InputError { place: format!("--{}", error.place), ..error }.into()
            }
            QuestionError::Model(error) => error.into(),
        }
    }
}

pub(crate) fn predict(arguments: &PredictArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let place = arguments.profile.display().to_string();
    let text = fs::read_to_string(&arguments.profile).map_err(|e| {
        InputError::new(&place, format!("the profile cannot be read: {e}"))
            .hint("`bellwether profile JOB.toml -o FILE` makes one")
    })?;
    let profile = Profile::read(&text, &place)?;
    let mut model =
        ProfileModel::new(profile).map_err(|e| InputError { place: format!("{place}: {}", e.place), ..e })?;
    for device in &arguments.device {
        model = model.with_device(&device.name, device.speed)?;
    }
    let question = Question {
        model: &model,
        link: link(arguments, &model)?,
        protocol: arguments.protocol,
        servers: arguments.servers,
        reduce: arguments.reduce,
        devices: &arguments.device,
        batch: arguments.batch,
        nodes_per_update: arguments.nodes_per_update,
        fidelity: arguments.model.into(),
        order: arguments.order,
        seed: arguments.seed,
    };
    match arguments.steps {
        Some(steps) => whole_run(arguments, question, steps, printer)?,
        None => throughput(arguments, question.reduced(), printer)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn throughput(
    arguments: &PredictArguments,
    question: Question<'_>,
    printer: &Printer,
) -> Result<(), Failure> {
    for path in [&arguments.plot, &arguments.trace].into_iter().flatten() {
        files::check_folder(path)?;
    }
    question.check(arguments.trace.is_some())?;
    let counts = question.counts(arguments.workers)?;
    let mut answers = Vec::with_capacity(counts.len());
    let mut noted = Instant::now();
    for (number, workers) in counts.iter().enumerate() {
        if noted.elapsed() >= Duration::from_secs(1) {
            noted = Instant::now();
            printer.note(format_args!("{number} of {} predictions made", counts.len()));
        }
        answers.push(question.answer(*workers)?);
    }
    question.mark_knee(&mut answers)?;
    let trace = match (&arguments.trace, counts.last()) {
        (Some(path), Some(workers)) => Some((path, question.trace(*workers)?)),
        _ => None,
    };
    if let Some(path) = &arguments.plot {
        files::write_whole(path, plot::svg(&answers, &question.model.profile().job)?.as_bytes())?;
    }
    if let Some((path, text)) = trace {
        files::write_whole(path, text.as_bytes())?;
    }
    printer.out(printer.marked(&show::render(&answers, arguments.format), "← knee"));
    Ok(())
}

fn whole_run(
    arguments: &PredictArguments,
    question: Question<'_>,
    steps: u64,
    printer: &Printer,
) -> Result<(), Failure> {
    for (flag, given) in [("--plot", &arguments.plot), ("--trace", &arguments.trace)] {
        if given.is_some() {
            let what = "a whole run has no picture of one protocol";
            return Err(InputError::new(flag, what).hint("leave --steps out and say --protocol").into());
        }
    }
    let policy = arguments.sync.clone().or_else(|| arguments.switch_at.clone());
    let whole = RunQuestion { question, steps, policy, switch_s: arguments.switch_time.get() };
    printer.out(run::render(&whole.answers(arguments.workers)?, arguments.format));
    Ok(())
}

/// The link as it was asked for, or as it was measured.
fn link(arguments: &PredictArguments, model: &ProfileModel) -> Result<Link, Failure> {
    let measured = model.profile().network.map(Link::from);
    let bandwidth = arguments.bandwidth.map(|b| b.get()).or(measured.map(|l| l.bandwidth_bytes_per_s));
    let latency = arguments.latency.map(|l| l.get()).or(measured.map(|l| l.latency_s));
    match bandwidth {
        Some(bandwidth_bytes_per_s) => Ok(Link { bandwidth_bytes_per_s, latency_s: latency.unwrap_or(0.0) }),
        None => Err(InputError::new("--bandwidth", "the profile has no measured link")
            .hint("say how fast a link is, for example --bandwidth 10Gbps --latency 50us")
            .into()),
    }
}
