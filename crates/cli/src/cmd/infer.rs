//! `bellwether infer`: applies a trained model to rows, by workers that come and go.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use bellwether_core::InputError;
use bellwether_render::figure::rate;
use bellwether_render::words::count;
use bellwether_render::{duration, json};
use bellwether_runtime::inference::coordinator::{News, Options, Work, run};
use bellwether_runtime::inference::{Answer, Request};
use bellwether_runtime::workload::Layout;
use bellwether_session::Spawn;
use bellwether_workloads::data::rows::{Columns, Form, Predicted};
use clap::Args;
use serde_json::json;

use crate::applied::{Model, ModelArguments, Purpose};
use crate::failure::Failure;
use crate::files;
use crate::options::{Format, StateArguments};
use crate::printer::Printer;

mod output;
mod source;

use output::{Identity, Output};
use source::{Source, Unit};

#[derive(Debug, Args)]
pub(crate) struct InferArguments {
    #[command(flatten)]
    pub(crate) model: ModelArguments,
    /// File with the rows, in the form of the training data, with or without labels; `-` reads standard input
    #[arg(long, value_name = "IN")]
    pub(crate) data: PathBuf,
    /// CSV file with a line per row, in the order of the rows: index, prediction, and what --scores adds; `-` writes to
    /// standard output
    #[arg(short, long, value_name = "OUT.csv")]
    pub(crate) output: PathBuf,
    /// Write the probability of each class, too
    #[arg(long)]
    pub(crate) scores: bool,
    /// Wait for rows that are still written, and answer each as it comes, until this is interrupted or the input ends
    #[arg(long)]
    pub(crate) follow: bool,
    /// Where workers of other machines join, which `bellwether worker --infer` starts
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    #[command(flatten)]
    pub(crate) state: StateArguments,
}

/// Rows become numbers, and scores become lines.
struct Rowwise {
    form: Arc<Form>,
    name: String,
    columns: Columns,
}

impl Work for Rowwise {
    type Unit = Unit;
    type Output = (Predicted, String);

    fn request(&self, unit: &Unit) -> Result<Request, InputError> {
        let mut values = Vec::new();
        let width = self.form.decode(&self.name, &unit.rows, &mut values)?;
        Ok(Request::Predict { first: unit.rows.first, width, values })
    }

    fn output(&self, unit: &Unit, answer: Answer) -> Result<Self::Output, InputError> {
        let Answer::Scores(scores) = answer else {
            return Err(InputError::new("worker", "answers another question"));
        };
        Ok((self.form.predicted(&unit.rows, &scores, self.columns)?, unit.digest.clone()))
    }
}

/// What is counted for the end.
#[derive(Debug, Default)]
struct Counts {
    rows: u64,
    lost: u32,
    workers: usize,
}

pub(crate) fn infer(arguments: &InferArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let began = Instant::now();
    bellwether_session::reachable(arguments.listen)?;
    let model = Model::open(&arguments.model, arguments.state.state_dir.clone())?;
    let form = Form::from_files(&model.job, &files::data(u64::MAX))?.with_header(arguments.model.header);
    let purpose = Purpose::Predict { image: form.image(), classes: form.classes() };
    let weights = model.weights(&layout(&model, &purpose)?, printer)?;
    let mut hasher = blake3::Hasher::new();
    for values in [&weights.values.0, &weights.values.1] {
        values.iter().for_each(|value| {
            hasher.update(&value.to_le_bytes());
        });
    }
    let identity = Identity {
        weights: hasher.finalize().to_hex()[..32].to_owned(),
        scores: arguments.scores,
        header: arguments.model.header,
        follows: arguments.follow,
    };
    let form = Arc::new(form);
    let mut source = Source::open(&form, &arguments.data, arguments.follow)?;
    let (output, past) = Output::open(&arguments.output, &model.job, &identity)?;
    if past.rows > 0 {
        source.pass_over(past.rows, &past.read)?;
        printer.note(format_args!("{} rows were predicted before; this goes on after them", past.rows));
    }
    let work = Rowwise {
        form: Arc::clone(&form),
        name: arguments.data.display().to_string(),
        columns: Columns { scores: arguments.scores },
    };
    let options = Options {
        run: output.run.clone(),
        job: (*model.job).clone(),
        description: purpose.text(),
        weights: weights.values,
        listen: arguments.listen,
        workers: arguments.model.workers,
        spawn: Some(Spawn::of_inference(&output.run, &model.program(&arguments.model)?)?),
        first: 0,
        class: past.class.clone(),
        work: Arc::new(work),
    };
    let (output, counts) =
        predict(options, source, output, (&form, arguments), past.class.is_none(), printer)?;
    if counts.rows == 0 && past.rows == 0 {
        output.forget();
        let error = InputError::new(arguments.data.display().to_string(), "holds no row");
        return Err(error.hint("name a file with a row for each sample").into());
    }
    output.finish()?;
    show(arguments, &counts, past.rows, began.elapsed().as_secs_f64(), printer);
    Ok(ExitCode::SUCCESS)
}

/// The tensors of the model.
fn layout(model: &Model, purpose: &Purpose) -> Result<Layout, InputError> {
    Ok(match &model.trained {
        Some(trained) => trained.workload().layout().clone(),
        None => purpose.workload(&model.job)?.layout().clone(),
    })
}

/// Predicts all rows of the source.
fn predict(
    options: Options<Rowwise>,
    source: Source,
    output: Output,
    (form, arguments): (&Form, &InferArguments),
    is_first: bool,
    printer: &Printer,
) -> Result<(Output, Counts), Failure> {
    let columns = Columns { scores: arguments.scores };
    let output = std::cell::RefCell::new(output);
    let (mut rows, mut lost, mut most, mut knows_class) = (0, 0, 0, !is_first);
    let mut sink = |_: u64, (predicted, read): (Predicted, String)| {
        let mut output = output.borrow_mut();
        let text = match output.is_empty() {
            true => [form.header(columns, predicted.outputs).into_bytes(), predicted.text].concat(),
            false => predicted.text,
        };
        rows += predicted.rows as u64;
        output.write(&text, predicted.rows, &read, printer)
    };
    let mut trouble = None;
    let mut observe = |news: News| match news {
        News::Listening(address) if arguments.model.workers == 0 => {
            let token = output.borrow().run.token_file();
            printer.note(format_args!(
                "now start workers: bellwether worker --infer --join {address} --token-file {}",
                token.display()
            ));
        }
        News::Joined { class, workers } => {
            most = most.max(workers);
            if !std::mem::replace(&mut knows_class, true) {
                trouble = output.borrow_mut().class(&class).err();
            }
        }
        News::Lost { why, workers } => {
            lost += 1;
            printer.note(format_args!("a worker is gone ({why}); {} left", count(workers, "worker")));
        }
        News::Listening(_) | News::Scaled(_) => {}
    };
    let result = run(options, source, &mut sink, &mut observe);
    let output = output.into_inner();
    if let Some(error) = trouble {
        return Err(error.into());
    }
    match result {
        Ok(()) => Ok((output, Counts { rows, lost, workers: most })),
        Err(error) => {
            output.forget();
            Err(error.into())
        }
    }
}

fn show(arguments: &InferArguments, counts: &Counts, before: u64, elapsed_s: f64, printer: &Printer) {
    let Counts { rows, lost, workers } = counts;
    let rows_per_s = *rows as f64 / elapsed_s;
    let path = arguments.output.display();
    match arguments.state.format {
        Format::Json if arguments.output.as_os_str() != "-" => printer.out(json(&json!({
            "output": path.to_string(),
            "rows": rows + before,
            "rows_before": before,
            "elapsed_s": elapsed_s,
            "rows_per_s": rows_per_s,
            "workers": workers,
            "workers_lost": lost,
        }))),
        _ => printer.note(format_args!(
            "{path}: {} rows in {}, {} rows/s",
            rows + before,
            duration::brief(elapsed_s),
            rate(rows_per_s)
        )),
    }
}
