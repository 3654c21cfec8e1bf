//! `bellwether evaluate`: what a trained model is worth on held-out samples, or on others of the same kind.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use bellwether_core::InputError;
use bellwether_core::job::{Data, Model as ModelKind};
use bellwether_render::figure::{accuracy, figure};
use bellwether_render::json;
use bellwether_render::table::{NOTHING, aligned, facts};
use bellwether_runtime::evaluation::{parts, total};
use bellwether_runtime::inference::coordinator::{News, Options, Work, run};
use bellwether_runtime::inference::{Answer, Request};
use bellwether_runtime::run_dir::RunDir;
use bellwether_runtime::workload::{Evaluation, Examined, Workload};
use bellwether_session::Spawn;
use clap::Args;
use serde_json::{Value, json};

use crate::applied::{Model, ModelArguments, Purpose};
use crate::failure::Failure;
use crate::options::{Format, StateArguments};
use crate::printer::Printer;

mod metrics;

use metrics::{Metrics, metrics};

/// Most classes whose confusion is shown to people.
const CONFUSION_MAX: usize = 26;

#[derive(Debug, Args)]
pub(crate) struct EvaluateArguments {
    #[command(flatten)]
    pub(crate) model: ModelArguments,
    /// File with labelled samples in the form of the training data [default: the run's own held-out samples]
    #[arg(long, value_name = "FILE")]
    pub(crate) data: Option<PathBuf>,
    /// File with the labels of images in an IDX file
    #[arg(long, value_name = "FILE", requires = "data")]
    pub(crate) labels: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) state: StateArguments,
}

/// Some held-out samples of one virtual node.
struct Part {
    node: u32,
    samples: std::ops::Range<u64>,
}

/// Samples are examined part by part.
struct Partwise;

impl Work for Partwise {
    type Unit = Part;
    type Output = (u32, Evaluation, Vec<Examined>);

    fn request(&self, part: &Part) -> Result<Request, InputError> {
        Ok(Request::Examine(part.samples.clone()))
    }

    fn output(&self, part: &Part, answer: Answer) -> Result<Self::Output, InputError> {
        match answer {
            Answer::Examined(sums, examined) => Ok((part.node, sums, examined)),
            Answer::Scores(_) => Err(InputError::new("worker", "answers another question")),
        }
    }
}

/// A folder that vanishes with what was done in it.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is the system's to clean up.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn evaluate(arguments: &EvaluateArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let model = Model::open(&arguments.model, arguments.state.state_dir.clone())?;
    let (purpose, workload) = examined(&model, arguments)?;
    let weights = model.weights(workload.layout(), printer)?;
    let step = weights.step;
    let samples = workload.held_out_samples();
    if samples == 0 {
        let error = InputError::new(&model.name, "the job holds no samples out");
        return Err(error.hint("name a file of labelled samples: --data FILE").into());
    }
    let nodes = model.job.batch.virtual_nodes;
    let all = (0..nodes)
        .flat_map(move |node| parts(samples, nodes, node).map(move |samples| Part { node, samples }));
    let folder = std::env::temp_dir().join(format!("bellwether-evaluate-{}", std::process::id()));
    let scratch = Scratch(folder);
    let folder = RunDir::at(&scratch.0);
    folder.complete(&model.job)?;
    let options = Options {
        job: (*model.job).clone(),
        description: purpose.text(),
        weights: weights.values,
        listen: ([127, 0, 0, 1], 0).into(),
        workers: arguments.model.workers.max(1),
        spawn: Some(Spawn::of_inference(&folder, &model.program(&arguments.model)?)?),
        first: 0,
        class: None,
        work: Arc::new(Partwise),
        run: folder,
    };
    let mut sums = vec![Evaluation::default(); nodes as usize];
    let mut predictions = Vec::new();
    let mut sink = |_: u64, (node, part, examined): (u32, Evaluation, Vec<Examined>)| {
        let sum = &mut sums[node as usize];
        // As a worker of the run adds them up.
        sum.loss_sum += part.loss_sum;
        sum.correct += part.correct;
        sum.predictions += part.predictions;
        predictions.extend(examined);
        Ok(())
    };
    let mut observe = |news: News| {
        if let News::Lost { why, .. } = news {
            printer.note(format_args!("a worker is gone ({why})"));
        }
    };
    run(options, all.map(Ok), &mut sink, &mut observe)?;
    let names = names(&model, &predictions);
    let found = metrics(total(&sums), samples, &predictions, &names);
    match arguments.state.format {
        Format::Json => {
            let mut value = json!(found);
            value["model"] = json!(model.name);
            value["step"] = json!(step);
            value["data"] = arguments.data.as_ref().map_or(Value::Null, |data| json!(data));
            printer.out(json(&value));
        }
        Format::Table => printer.out(table(&model.name, step, &found)),
    }
    Ok(ExitCode::SUCCESS)
}

/// What workers are to build, and the same here, which says how many samples there are.
fn examined(model: &Model, arguments: &EvaluateArguments) -> Result<(Purpose, Box<dyn Workload>), Failure> {
    let absolute = |path: &Option<PathBuf>| {
        let path = path.as_deref().map(std::path::absolute).transpose();
        path.map_err(|error| Failure::at("--data", error))
    };
    let purpose = Purpose::Examine {
        data: absolute(&arguments.data)?,
        labels: absolute(&arguments.labels)?,
        header: arguments.model.header,
    };
    let workload = match &model.trained {
        Some(_) if arguments.data.is_some() => {
            let error = InputError::new("--data", "only the model's script knows how its samples are read");
            return Err(error
                .hint("leave it out to evaluate on the script's held-out data, or let `bellwether infer` read rows")
                .into());
        }
        Some(trained) => trained.workload(),
        None => purpose.workload(&model.job)?,
    };
    Ok((purpose, workload))
}

/// The names of the classes; none of a text, whose bytes have no names, and where single predictions are not known.
fn names(model: &Model, examined: &[Examined]) -> Vec<String> {
    if matches!(model.job.model, ModelKind::Transformer { .. }) || examined.is_empty() {
        return Vec::new();
    }
    let most = examined.iter().map(|one| one.target.max(one.predicted)).max().unwrap_or(0) as usize;
    let named = if let Data::Csv { classes, .. } = &model.job.data { &classes[..] } else { &[] };
    (0..named.len().max(most + 1))
        .map(|class| named.get(class).cloned().unwrap_or_else(|| class.to_string()))
        .collect()
}

fn between(interval: Option<[f64; 2]>, figure: impl Fn(f64) -> String) -> String {
    interval.map_or(String::new(), |[low, high]| format!("  (95 %: {} to {})", figure(low), figure(high)))
}

fn table(name: &str, step: u64, found: &Metrics) -> String {
    let mut rows = vec![
        ("model", format!("{name}, after {step} steps")),
        ("samples", found.samples.to_string()),
        ("loss", format!("{}{}", figure(found.loss), between(found.loss_interval, figure))),
    ];
    if let Some(perplexity) = found.perplexity {
        let interval = between(found.perplexity_interval, figure);
        rows.push(("perplexity", format!("{}{interval}", figure(perplexity))));
        rows.push(("predictions", format!("{} bytes", found.predictions)));
    }
    if let Some(share) = found.accuracy {
        rows.push(("accuracy", format!("{}{}", accuracy(share), between(found.accuracy_interval, accuracy))));
    }
    let mut text = facts(&rows);
    if !found.classes.is_empty() {
        let share = |share: Option<f64>| share.map_or_else(|| NOTHING.to_owned(), accuracy);
        let mut lines = vec![["class", "precision", "recall", "F1", "samples"].map(str::to_owned).to_vec()];
        lines.extend(found.classes.iter().map(|class| {
            let [precision, recall, f1] = [class.precision, class.recall, class.f1].map(share);
            vec![class.name.clone(), precision, recall, f1, class.samples.to_string()]
        }));
        let _ = write!(text, "\n\n{}", aligned(&lines).trim_end());
    }
    if (1..=CONFUSION_MAX).contains(&found.confusion.len()) {
        let names = || found.classes.iter().map(|class| class.name.clone());
        let mut lines =
            vec![std::iter::once("is \\ predicted".to_owned()).chain(names()).collect::<Vec<_>>()];
        lines.extend(
            names().zip(&found.confusion).map(|(name, row)| {
                std::iter::once(name).chain(row.iter().map(ToString::to_string)).collect()
            }),
        );
        let _ = write!(text, "\n\n{}", aligned(&lines).trim_end());
    }
    text
}
