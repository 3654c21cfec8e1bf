//! `nas`: how well supernets rank architectures, one-shot and few-shot, beside training from scratch.
//!
//! The truth is a sample of architectures, each trained from scratch with several seeds. One-shot, few-shot, and
//! one-shot with as many epochs in all as few-shot score the same sample, with several seeds of the supernets.
//! Everything is kept in a file line by line, so that a measurement of hours can be stopped and goes on.

use std::path::PathBuf;
use std::time::Instant;

use bellwether_core::InputError;
use bellwether_core::job::{Cell, CheckedJob, Job, Model, architecture_text};
use bellwether_core::parse;
use bellwether_runtime::run_dir::StateDir;
use bellwether_sched::evolution::{Method, Search};
use bellwether_session::Spawn;
use bellwether_session::nas::devices::with_architecture;
use bellwether_session::nas::{Architecture, NasError, Oracle, Scorer, Sessions, Trainer, family, train_all};
use bellwether_workloads::Supernet;
use clap::Args;
use serde_json::json;

use super::OutputArguments;
use super::published::NAS;
use super::report::Report;
use crate::failure::Failure;
use crate::folder::Folder;
use crate::printer::Printer;

mod rank;
mod record;
mod summary;

use record::{Line, Record};

#[derive(Debug, Args)]
pub(super) struct NasArguments {
    /// File to which every result is appended; what it holds is not measured again
    #[arg(long, value_name = "FILE.jsonl", default_value = "nas.jsonl")]
    record: PathBuf,
    /// Architectures of the sample
    #[arg(long, value_name = "N", default_value_t = 100)]
    architectures: usize,
    /// Seeds with which each is trained from scratch
    #[arg(long, value_name = "N", default_value_t = 3)]
    truths: u64,
    /// Seeds of the supernets
    #[arg(long, value_name = "N", default_value_t = 5)]
    seeds: u64,
    /// Epochs from scratch
    #[arg(long, value_name = "N", default_value_t = 30)]
    truth_epochs: u64,
    /// Epochs of the one-shot supernet; sub-supernets have half as many
    #[arg(long, value_name = "N", default_value_t = 60)]
    epochs: u64,
    /// Channels of the network
    #[arg(long, value_name = "N", default_value_t = 8)]
    channels: usize,
    /// Supernets, or architectures, that are trained at the same time
    #[arg(long, value_name = "N", default_value_t = 1)]
    at_once: usize,
    #[command(flatten)]
    pub(super) output: OutputArguments,
}

/// Length of a sub-supernet over that of the one-shot supernet.
const SHARE: f64 = 0.5;

/// What is compared, by the level of the split; the control has the epochs of all supernets up to level 1.
const METHODS: [&str; 3] = ["one-shot", "few-shot, 5", "few-shot, 25"];
const CONTROL: &str = "one-shot, as many epochs";

pub(super) fn measure(arguments: &NasArguments, printer: &Printer) -> Result<Report, Failure> {
    let NasArguments { architectures, truths, seeds, truth_epochs, epochs, channels, .. } = *arguments;
    let settings = json!({
        "architectures": architectures, "truths": truths, "seeds": seeds, "truth_epochs": truth_epochs,
        "epochs": epochs, "channels": channels, "share": SHARE,
    });
    // More architectures and more seeds add to what was measured.
    let trained =
        json!({ "truth_epochs": truth_epochs, "epochs": epochs, "channels": channels, "share": SHARE });
    let mut record = Record::open(&arguments.record, &trained)?;
    let job = job(channels, epochs)?;
    let Model::Cell(cell) = job.model.clone() else { return Err(Failure::at("model.kind", "is not a cell")) };
    let sample = sample(&cell, architectures);
    truth(arguments, &job, &sample, &mut record, printer)?;
    for seed in 0..seeds {
        supernets(arguments, (&job, seed), &sample, &mut record, printer)?;
    }
    let mut report = Report::begin("nas", settings, NAS);
    summary::add(&mut report, &record, &sample);
    report.note(
        "Accuracies are of half of the 1,797 digits, held out. Kendall's τ is τ-b: many accuracies are equal. Intervals \
         are Student's, over the seeds of the supernets, and paired where two methods are compared. The ceiling is τ \
         between the accuracies from scratch with two seeds.",
    );
    Ok(report)
}

/// The supernet of the whole space: five operations, four nodes, one cell.
fn job(channels: usize, epochs: u64) -> Result<CheckedJob, Failure> {
    let text = format!(
        "name = \"cells\"\nepochs = {epochs}\nworkers = 1\n[model]\nkind = \"cell\"\nchannels = {channels}\n\
         [data]\nkind = \"digits\"\nheld_out = 0.5\n[batch]\nsize = 64\nvirtual_nodes = 1\n\
         [optimizer]\nkind = \"sgd\"\nlearning_rate = 0.05\nmomentum = 0.9\nnesterov = true\nweight_decay = 1e-4\n\
         [schedule]\nkind = \"cosine\"\nfloor = 0.04\n[checkpoint]\nevery = \"0s\"\nkeep = 1\n"
    );
    Ok(parse::job(&text, "nas", &[])?)
}

/// Different architectures, uniformly from the space.
fn sample(cell: &Cell, count: usize) -> Vec<Architecture> {
    let edges = cell.edges();
    let mut search = Search::new(Method::Random, edges.iter().map(Vec::len).collect(), 2021);
    let mut sample: Vec<Architecture> = Vec::new();
    while sample.len() < count.min(cell.count() as usize) {
        let drawn = search.draw();
        let architecture = drawn.iter().zip(&edges).map(|(choice, edge)| edge[*choice]).collect();
        if !sample.contains(&architecture) {
            sample.push(architecture);
        }
    }
    sample
}

fn sessions(folder: &Folder) -> Result<Sessions, Failure> {
    let state =
        StateDir::find(Some(folder.path().join("runs"))).map_err(|error| Failure::at("runs", error))?;
    Ok(Sessions::new(state, Spawn::Threads, |job: &Job| bellwether_workloads::build(job, &closed)))
}

/// The digits need no file.
fn closed(_: &std::path::Path) -> std::io::Result<Vec<u8>> {
    Err(std::io::ErrorKind::NotFound.into())
}

fn failed(error: NasError) -> Failure {
    Failure::at("nas", error)
}

/// Trains the sample from scratch.
fn truth(
    arguments: &NasArguments,
    job: &CheckedJob,
    sample: &[Architecture],
    record: &mut Record,
    printer: &Printer,
) -> Result<(), Failure> {
    for seed in 0..arguments.truths {
        let missing: Vec<&Architecture> =
            sample.iter().filter(|one| record.truth(seed, &architecture_text(one)).is_none()).collect();
        printer.note(format_args!(
            "from scratch, seed {seed}: {} of {} to train",
            missing.len(),
            sample.len()
        ));
        for some in missing.chunks(arguments.at_once.max(1)) {
            let folder = Folder::new("nas")?;
            let sessions = sessions(&folder)?;
            let one = |number: usize, architecture: &Architecture| -> Result<Line, Failure> {
                let job = with_architecture(job, architecture)?.edit(|job| {
                    // Seeds of the truth are not those of the supernets.
                    (job.seed, job.epochs) = (1000 + seed, Some(arguments.truth_epochs));
                })?;
                let clock = Instant::now();
                let trained = sessions.train(&format!("truth-{number}"), &job).map_err(failed)?;
                let seconds = clock.elapsed().as_secs_f64();
                let architecture = architecture_text(architecture);
                Ok(Line::Truth {
                    seed,
                    architecture,
                    accuracy: trained.accuracy.unwrap_or(f64::NAN),
                    seconds,
                })
            };
            let lines: Vec<Result<Line, Failure>> = std::thread::scope(|scope| {
                let started: Vec<_> = some
                    .iter()
                    .enumerate()
                    .map(|(number, architecture)| scope.spawn(move || one(number, architecture)))
                    .collect();
                let joined = started.into_iter().map(|thread| thread.join());
                joined
                    .map(|line| line.unwrap_or_else(|_| Err(Failure::at("nas", "a thread panicked"))))
                    .collect()
            });
            for line in lines {
                record.add(line?)?;
            }
        }
    }
    Ok(())
}

/// Trains and asks the supernets of one seed.
fn supernets(
    arguments: &NasArguments,
    (job, seed): (&CheckedJob, u64),
    sample: &[Architecture],
    record: &mut Record,
    printer: &Printer,
) -> Result<(), Failure> {
    let job = job.clone().edit(|job| job.seed = seed)?;
    let control = job.clone().edit(|job| {
        let sub = (arguments.epochs as f64 * SHARE).ceil() as u64;
        job.epochs = Some(arguments.epochs + 5 * sub);
    })?;
    let levels = [(&job, vec![vec![0], vec![1]]), (&control, Vec::new())];
    for (job, split) in levels {
        let names: &[&str] = if split.is_empty() { &[CONTROL] } else { &METHODS };
        if names.iter().all(|method| record.has_scores(method, seed, sample.len())) {
            continue;
        }
        let folder = Folder::new("nas")?;
        let family = family(job, &split, SHARE)?;
        printer.note(format_args!("seed {seed}: {} supernets", family.len()));
        let sessions = sessions(&folder)?;
        let trained =
            train_all(&family, &job.name, &sessions, arguments.at_once.max(1), &|_| {}).map_err(failed)?;
        for (level, method) in names.iter().enumerate() {
            let members = family.iter().zip(&trained);
            let train_s =
                members.clone().filter(|(one, _)| one.level <= level).map(|(_, one)| one.seconds).sum();
            let leaves = members.filter(|(one, _)| one.level == level);
            let leaves =
                leaves.map(|(member, one)| (member.cell.clone(), member.job.clone().into_job(), one.clone()));
            let mut oracle = Oracle::new(leaves.collect(), &open_scorer);
            let clock = Instant::now();
            let mut scores = Vec::new();
            for architecture in sample {
                let score = oracle.score(architecture).map_err(failed)?;
                scores.push((architecture_text(architecture), score.accuracy));
            }
            let score_s = clock.elapsed().as_secs_f64();
            record.add(Line::Scores { method: (*method).into(), seed, scores, train_s, score_s })?;
        }
    }
    Ok(())
}

fn open_scorer(job: &Job) -> Result<Scorer, InputError> {
    let mut supernet = Supernet::open(job, &closed)?;
    Ok(Box::new(move |weights, path| supernet.score(weights, path)))
}
