//! `bellwether predict`: throughput of any configuration from the profile of one worker.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bellwether_answers::fit;
use bellwether_answers::predict::{Request, on_command_line};
use bellwether_core::InputError;
use bellwether_core::fitted::FittedFile;
use bellwether_model::predict::Question;

use crate::failure::Failure;
use crate::files;
use crate::printer::Printer;

mod args;
mod estimate;
mod plot;
mod run;
mod show;

pub(crate) use args::PredictArguments;

pub(crate) fn predict(arguments: &PredictArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    if let Some(network) = &arguments.network {
        estimate::show(network, arguments, printer)?;
        if !arguments.asks_for_workers() {
            return Ok(ExitCode::SUCCESS);
        }
    }
    if let Some(path) = &arguments.profile
        && let Some(file) = fit::read(path)?
    {
        return of_fitted(file, path, arguments, printer);
    }
    let request = arguments.request();
    let model = request.model()?;
    let question = request.question(&model)?;
    match arguments.steps {
        Some(steps) => whole_run(arguments, &request, question, steps, printer)?,
        None => throughput(arguments, &request, question.reduced(), printer)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Predicts from fitted models.
fn of_fitted(
    file: FittedFile,
    place: &Path,
    arguments: &PredictArguments,
    printer: &Printer,
) -> Result<ExitCode, Failure> {
    if arguments.trace.is_some() {
        let what = "fitted models know nothing of single operations";
        return Err(InputError::new("--trace", what).hint("leave it out, or predict from a profile").into());
    }
    if let Some(path) = &arguments.plot {
        files::check_folder(path)?;
    }
    let question = fit::Question::of(file, place, arguments.kind.as_deref(), &arguments.request())?;
    let kind = question.kind()?;
    let answers = question.answers(kind)?;
    if let Some(path) = &arguments.plot {
        files::write_whole(path, plot::svg(&answers, &kind.name)?.as_bytes())?;
    }
    printer.out(printer.marked(&show::render(&answers, arguments.format), "← knee"));
    Ok(ExitCode::SUCCESS)
}

fn throughput(
    arguments: &PredictArguments,
    request: &Request,
    question: Question<'_>,
    printer: &Printer,
) -> Result<(), Failure> {
    for path in [&arguments.plot, &arguments.trace].into_iter().flatten() {
        files::check_folder(path)?;
    }
    question.check(arguments.trace.is_some()).map_err(on_command_line)?;
    let mut noted = Instant::now();
    let answers = request.throughput(&question, &mut |number, count| {
        if noted.elapsed() >= Duration::from_secs(1) {
            noted = Instant::now();
            printer.note(format_args!("{number} of {count} predictions made"));
        }
    })?;
    let trace = match (&arguments.trace, answers.last()) {
        (Some(path), Some(answer)) => Some((path, question.trace(answer.workers).map_err(on_command_line)?)),
        _ => None,
    };
    if let Some(path) = &arguments.plot {
        files::write_whole(path, plot::svg(&answers, &question.model.profile().job)?.as_bytes())?;
    }
    if let Some((path, text)) = trace {
        files::write_whole(path, text.as_bytes())?;
    }
    printer.out(printer.marked(&show::render(&answers, arguments.format), "← knee"));
    if let Some(why) = question.left_out(request.workers) {
        printer.note(why);
    }
    Ok(())
}

fn whole_run(
    arguments: &PredictArguments,
    request: &Request,
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
    let question = request.over(question, steps);
    printer.out(run::render(&request.whole_run(&question)?, arguments.format));
    if let Some(why) = question.left_out(request.workers) {
        printer.note(why);
    }
    Ok(())
}
