//! `accuracy`: what settings of the job cost in held-out results, such as to exchange gradients in 16 bits.
//!
//! Each of the examples' models is trained from several seeds, with and without the settings from each, so that
//! differences are those of pairs. Results are kept in a file line by line: a measurement that was stopped goes on.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use bellwether_core::job::{CheckedJob, Job};
use bellwether_core::parse;
use bellwether_core::record::{RunOutcome, Summary};
use bellwether_des::statistics::Tally;
use bellwether_runtime::run_dir::StateDir;
use bellwether_session::{Session, Spawn};
use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::OutputArguments;
use super::lines::Lines;
use super::report::{Report, Row};
use crate::failure::Failure;
use crate::folder::Folder;
use crate::printer::Printer;

#[derive(Debug, Args)]
pub(super) struct AccuracyArguments {
    /// A setting of the job file that is compared with the job without it; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = parse::assignment, default_value = "exchange.precision=bf16")]
    sets: Vec<(String, String)>,
    /// File to which every result is appended; what it holds is not measured again
    #[arg(long, value_name = "FILE.jsonl", default_value = "accuracy.jsonl")]
    record: PathBuf,
    /// Models to train
    #[arg(long, value_name = "MODEL,…", value_delimiter = ',', value_parser = ["mlp", "convnet", "resnet", "transformer"],
          default_value = "mlp,convnet,resnet,transformer")]
    models: Vec<String>,
    /// Seeds from which each model is trained with the settings and without
    #[arg(long, value_name = "N", default_value_t = 5)]
    seeds: u64,
    /// Virtual nodes
    #[arg(long, value_name = "N", default_value_t = 8)]
    virtual_nodes: u32,
    #[command(flatten)]
    pub(super) output: OutputArguments,
}

/// Names of the models, and their example files.
const MODELS: [(&str, &str); 4] = [
    ("mlp", include_str!("../../../examples/digits.toml")),
    ("convnet", include_str!("../../../examples/convnet.toml")),
    ("resnet", include_str!("../../../examples/resnet.toml")),
    ("transformer", include_str!("../../../examples/transformer.toml")),
];

/// The text of the transformer's example.
const TEXT: &[u8] = include_bytes!("../../../examples/data/harbour.txt");

/// How often intervals hold the mean.
const LEVEL: f64 = 0.95;

/// What came of one training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Trained {
    model: String,
    seed: u64,
    /// Whether with the settings.
    set: bool,
    loss: f64,
    accuracy: Option<f64>,
    digest: Option<String>,
    seconds: f64,
}

/// Results by model, seed and whether with the settings.
type Results = BTreeMap<(String, u64, bool), Trained>;

pub(super) fn measure(arguments: &AccuracyArguments, printer: &Printer) -> Result<Report, Failure> {
    let AccuracyArguments { sets, models, seeds, virtual_nodes, .. } = arguments;
    let settings = json!({ "set": sets, "models": models, "seeds": seeds, "virtual_nodes": virtual_nodes });
    let mut report = Report::begin("accuracy", settings, &[]);
    // More models and more seeds add to what was measured.
    let (mut lines, held) =
        Lines::open::<Trained>(&arguments.record, &json!({ "virtual_nodes": virtual_nodes, "set": sets }))?;
    let mut results: Results = held.into_iter().map(|one| (key(&one), one)).collect();
    for (model, text) in MODELS.iter().filter(|(model, _)| models.iter().any(|asked| asked == model)) {
        for seed in 0..*seeds {
            for set in [false, true] {
                if results.contains_key(&((*model).to_string(), seed, set)) {
                    continue;
                }
                let job = job(text, (seed, *virtual_nodes), if set { sets } else { &[] })?;
                let one = Trained { set, ..train(model, &job)? };
                printer.note(format_args!(
                    "{model}, seed {seed}, {}: loss {:.4} in {:.1} s",
                    if set { "set" } else { "plain" },
                    one.loss,
                    one.seconds
                ));
                lines.add(&one)?;
                results.insert(key(&one), one);
            }
        }
    }
    for model in models {
        row(&mut report, &results, model);
    }
    report.note(
        "The jobs are those of `examples`, with these virtual nodes and half of the digits held out. Differences are with \
         the settings less without, paired by seed, with Student's 95 % interval of their mean; accuracies are shares.",
    );
    Ok(report)
}

fn key(one: &Trained) -> (String, u64, bool) {
    (one.model.clone(), one.seed, one.set)
}

/// The job of an example with this seed and number of virtual nodes, and with settings.
fn job(
    text: &str,
    (seed, virtual_nodes): (u64, u32),
    sets: &[(String, String)],
) -> Result<CheckedJob, Failure> {
    let mut sets = sets.to_vec();
    // A fifth of the digits is too few to tell accuracies apart.
    if text.contains("kind = \"digits\"") {
        sets.push(("data.held_out".to_string(), "0.5".to_string()));
    }
    let job = parse::job(text, "accuracy", &sets)?;
    Ok(job.edit(|job| {
        job.seed = seed;
        job.batch.virtual_nodes = virtual_nodes;
        (job.evaluation.every_steps, job.workers) = (0, (1..=1).into());
    })?)
}

/// Trains a job in this process.
fn train(model: &str, job: &CheckedJob) -> Result<Trained, Failure> {
    let folder = Folder::new("accuracy")?;
    let state =
        StateDir::find(Some(folder.path().join("runs"))).map_err(|error| Failure::at("runs", error))?;
    let session = Session::builder(job.clone())
        .workload(|job: &Job| bellwether_workloads::build(job, &open))
        .state_dir(state)
        .spawn(Spawn::Threads);
    let (summary, outcome) = session.run(&mut |_| {}).map_err(|error| Failure::at(model, error))?;
    let Summary { held_out_loss, accuracy, params_digest, elapsed_s, .. } = summary;
    match (outcome, held_out_loss) {
        (RunOutcome::Finished, Some(loss)) => Ok(Trained {
            model: model.into(),
            seed: job.seed,
            set: false,
            loss,
            accuracy,
            digest: params_digest,
            seconds: elapsed_s,
        }),
        (outcome, _) => Err(Failure::at(model, format!("the training ended as {outcome}"))),
    }
}

/// The one file that an example reads.
fn open(path: &Path) -> io::Result<Vec<u8>> {
    match path.ends_with("harbour.txt") {
        true => Ok(TEXT.to_vec()),
        false => Err(io::ErrorKind::NotFound.into()),
    }
}

/// What is compared of two trainings, where it is known.
type Column = fn(&Trained) -> Option<f64>;

/// Adds what was found of a model.
fn row(report: &mut Report, results: &Results, model: &str) {
    let pairs: Vec<(&Trained, &Trained)> = results
        .iter()
        .filter(|((name, _, set), _)| name == model && !set)
        .filter_map(|((_, seed, _), plain)| Some((plain, results.get(&(model.to_string(), *seed, true))?)))
        .collect();
    let mut row = Row::new(model).with("seeds", pairs.len());
    let columns: [(&str, Column); 2] = [("loss", |one| Some(one.loss)), ("accuracy", |one| one.accuracy)];
    for (name, of) in columns {
        let values: Vec<(f64, f64)> =
            pairs.iter().filter_map(|(plain, set)| Some((of(plain)?, of(set)?))).collect();
        let (mut plains, mut sets, mut differences) = (Tally::new(), Tally::new(), Tally::new());
        for (plain, set) in &values {
            plains.add(*plain);
            sets.add(*set);
            differences.add(set - plain);
        }
        let interval = differences.interval(LEVEL);
        row = row
            .with(format!("{name}_plain"), plains.mean())
            .with(format!("{name}_set"), sets.mean())
            .with(format!("{name}_difference"), differences.mean())
            .with(format!("{name}_difference_low"), interval.low())
            .with(format!("{name}_difference_high"), interval.high());
    }
    report.row(row);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_trained_with_the_setting_and_without_from_the_same_seed() {
        let bfloat16 = [parse::assignment("exchange.precision=bf16").expect("a setting")];
        let trained = |set: bool| {
            let short = MODELS[0].1.replace("epochs = 40", "epochs = 2");
            let sets = if set { &bfloat16[..] } else { &[] };
            let job = job(&short, (3, 8), sets).expect("a job");
            Trained { set, ..train("mlp", &job).expect("a training") }
        };
        let (whole, half) = (trained(false), trained(true));
        assert_ne!(whole.digest, half.digest);
        assert!((whole.loss - half.loss).abs() < 0.05, "{whole:?} {half:?}");
        let mut report = Report::begin("accuracy", json!({}), &[]);
        let results = [&whole, &half].map(|one| (key(one), one.clone())).into_iter().collect();
        row(&mut report, &results, "mlp");
        let report: serde_json::Value = serde_json::from_str(&report.finish()).expect("JSON");
        let difference = report["rows"][0]["loss_difference"].as_f64().expect("a number");
        assert!((difference - (half.loss - whole.loss)).abs() < 1e-12, "{report}");
    }
}
