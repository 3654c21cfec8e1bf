//! `bellwether export`: the learning curves of a run, and its weights, for other programs.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bellwether_core::InputError;
use bellwether_render::csv::{Csv, cell};
use bellwether_session::curves::{Curves, EvaluationPoint, tensorboard};
use clap::{Args, ValueEnum};

use crate::failure::Failure;
use crate::files;
use crate::printer::Printer;
use crate::runs::{RunDir, StateDir};
use crate::session::build;

mod plot;

#[derive(Debug, Args)]
pub(crate) struct ExportArguments {
    /// Name of the run, or of the job (its newest run)
    #[arg(value_name = "JOB")]
    pub(crate) job: String,
    /// What is written [default: safetensors or svg where PATH ends so, else csv]
    #[arg(long, value_enum)]
    pub(crate) format: Option<ExportFormat>,
    /// Where to: a file; of `tensorboard` a folder, in which the run gets its own [default: standard output]
    #[arg(short, long, value_name = "PATH")]
    pub(crate) output: Option<PathBuf>,
    /// Folder of the runs [default: $BELLWETHER_STATE_DIR, $XDG_STATE_HOME/bellwether or ~/.local/state/bellwether]
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// A row per step and per evaluation
    Csv,
    /// An event file for TensorBoard
    Tensorboard,
    /// A picture of the losses and the accuracy
    Svg,
    /// The trained weights under the model's own names, which PyTorch, Hugging Face, Keras and JAX load
    Safetensors,
}

pub(crate) fn export(arguments: &ExportArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let run = StateDir::find(arguments.state_dir.clone())?.run(&arguments.job)?;
    let format = arguments.format();
    if format == ExportFormat::Safetensors {
        weights(&run, arguments.output.as_deref(), printer)?;
        return Ok(ExitCode::SUCCESS);
    }
    let curves = Curves::read(&run).map_err(|error| Failure::at(&run.name, error))?;
    if curves.training.is_empty() {
        return Err(Failure::No(format!("{}: no step was done yet", run.name)));
    }
    let output = arguments.output.as_deref();
    match format {
        ExportFormat::Csv | ExportFormat::Safetensors => text(csv(&curves), output, printer)?,
        ExportFormat::Svg => text(plot::svg(&curves, &run.name)?, output, printer)?,
        ExportFormat::Tensorboard => {
            let folder = output.ok_or_else(|| {
                InputError::new("--format tensorboard", "needs a folder to write to").hint("add -o DIR")
            })?;
            let path = events(&curves, &run, folder)?;
            printer.note(format_args!(
                "{} is written; `tensorboard --logdir {}` shows it",
                path.display(),
                folder.display()
            ));
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl ExportArguments {
    /// What is written: as it is asked for, or as the file is called.
    fn format(&self) -> ExportFormat {
        let ending = self.output.as_deref().and_then(Path::extension);
        self.format.unwrap_or(match ending.and_then(OsStr::to_str) {
            Some("safetensors") => ExportFormat::Safetensors,
            Some("svg") => ExportFormat::Svg,
            _ => ExportFormat::Csv,
        })
    }
}

/// Writes the newest weights of a run.
fn weights(run: &RunDir, output: Option<&Path>, printer: &Printer) -> Result<(), Failure> {
    let path = output.ok_or_else(|| {
        InputError::new("--format safetensors", "needs a file to write to").hint("add -o model.safetensors")
    })?;
    files::check_folder(path)?;
    let exported = bellwether_session::export::export(run, |job| Ok(build(job)?.layout().clone()))?;
    for why in &exported.skipped {
        printer.note(format_args!("warning: {why}"));
    }
    files::write_whole(path, &exported.bytes)?;
    printer.note(format_args!("{} has the weights after {} steps", path.display(), exported.step));
    Ok(())
}

fn text(text: String, output: Option<&Path>, printer: &Printer) -> Result<(), Failure> {
    match output {
        Some(path) => {
            files::check_folder(path)?;
            files::write_whole(path, (text + "\n").as_bytes())
        }
        None => {
            printer.out(text);
            Ok(())
        }
    }
}

/// Writes an event file into a folder of the run's name; gives its path.
fn events(curves: &Curves, run: &RunDir, folder: &Path) -> Result<PathBuf, Failure> {
    let folder = folder.join(&run.name);
    fs::create_dir_all(&folder).map_err(|error| Failure::at(folder.display().to_string(), error))?;
    let begin_s = curves.training.first().map_or(0.0, |point| point.time_s);
    let path = folder.join(tensorboard::file_name(begin_s));
    files::write_whole(&path, &tensorboard::events(curves))?;
    Ok(path)
}

/// Rows by steps done; that of an evaluation follows the step before it.
fn csv(curves: &Curves) -> String {
    let mut csv = Csv::new([
        "step",
        "time_s",
        "training_loss",
        "examples_per_s",
        "workers",
        "held_out_loss",
        "accuracy",
        "data_wait_s",
    ]);
    let mut evaluations = curves.evaluations.iter().peekable();
    for point in &curves.training {
        while let Some(evaluation) = evaluations.next_if(|evaluation| evaluation.step < point.step) {
            evaluated(&mut csv, evaluation);
        }
        let [loss, rate] = [point.loss, point.examples_per_s].map(cell);
        csv.row(&[&point.step, &point.time_s, &loss, &rate, &point.workers, &"", &"", &point.data_wait_s]);
    }
    for evaluation in evaluations {
        evaluated(&mut csv, evaluation);
    }
    csv.text()
}

fn evaluated(csv: &mut Csv, evaluation: &EvaluationPoint) {
    let EvaluationPoint { step, time_s, loss, accuracy } = evaluation;
    csv.row(&[step, time_s, &"", &"", &"", loss, &cell(*accuracy), &""]);
}
