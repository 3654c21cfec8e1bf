//! `inference`: rows per second of `bellwether infer` with one worker, beside a plain loop over the same network and
//! the same file; and the same rows with workers and a coordinator that are killed, byte by byte.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bellwether_core::parse;
use bellwether_runtime::inference::BLOCK;
use bellwether_runtime::order::mix;
use bellwether_runtime::run_dir::RunDir;
use bellwether_runtime::workload::{Inputs, Weights};
use bellwether_session::export;
use bellwether_workloads::data::Cutter;
use bellwether_workloads::data::rows::{Columns, Form};
use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::OutputArguments;
use super::report::{Report, Row};
use super::statistics::{largest, median, smallest};
use crate::failure::Failure;
use crate::folder::Folder;
use crate::printer::Printer;
use crate::programs;

#[derive(Debug, Args)]
pub(super) struct InferenceArguments {
    /// Rows of 64 numbers
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    rows: u64,
    /// Alternations between the command and the plain loop
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: u32,
    /// Widths of the network's hidden layers
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "256,128")]
    hidden: Vec<usize>,
    #[command(flatten)]
    pub(super) output: OutputArguments,
}

/// Least share of the plain loop's speed that one worker may have.
const BOUND: f64 = 0.95;

/// Kills of workers between a start and the next death of the coordinator.
const KILLS: u32 = 6;

/// Time between two kills.
const PAUSE: Duration = Duration::from_millis(400);

fn failed<E: std::fmt::Display>(error: E) -> Failure {
    Failure::at("inference", error)
}

pub(super) fn measure(arguments: &InferenceArguments, printer: &Printer) -> Result<Report, Failure> {
    let InferenceArguments { rows, rounds, hidden, .. } = arguments;
    let settings = json!({ "rows": rows, "rounds": rounds, "hidden": hidden, "features": 64, "threads": 1 });
    let mut report = Report::begin("inference", settings, &[]);
    let folder = Folder::new("bench")?;
    prepare(arguments, &folder)?;
    let (mut plain, mut command) = (Vec::new(), Vec::new());
    for round in 0..*rounds {
        printer.note(format_args!("round {} of {rounds}", round + 1));
        // Alternate who goes first.
        for place in 0..2 {
            match (round + place) % 2 {
                0 => plain.push(*rows as f64 / of_plain(&folder)?),
                _ => command.push(*rows as f64 / of_command(&folder, "one.csv", 1)?),
            }
        }
    }
    let ratios: Vec<f64> = command.iter().zip(&plain).map(|(a, b)| a / b).collect();
    let ratio = median(&ratios);
    report.row(
        Row::new("one worker")
            .with("plain_examples_per_s", median(&plain))
            .with("infer_examples_per_s", median(&command))
            .with("ratio_median", ratio)
            .with("ratio_worst", smallest(&ratios))
            .with("ratio_best", largest(&ratios))
            .samples("ratio_samples", &ratios),
    );
    report.bar("one worker over plain loop, at least", ratio, BOUND, ratio >= BOUND);
    let one = fs::read(folder.path().join("one.csv")).map_err(failed)?;
    let same = read(&folder, "plain.csv")? == one;
    report.bar("outputs of the plain loop that differ, at most", f64::from(u8::from(!same)), 0.0, same);
    printer.note(format_args!("three workers, which are killed with their coordinator"));
    let (kills, starts) = of_killed(&folder)?;
    let same = read(&folder, "killed.csv")? == one;
    report.row(
        Row::new("three workers, killed")
            .with("workers_killed", kills)
            .with("coordinators_killed", starts - 1)
            .with("is_same", u32::from(same)),
    );
    report.bar("outputs after kills that differ, at most", f64::from(u8::from(!same)), 0.0, same);
    report.note("The time of the command is that of the whole call: it reads its training data and starts its worker.");
    Ok(report)
}

fn read(folder: &Folder, name: &str) -> Result<Vec<u8>, Failure> {
    fs::read(folder.path().join(name)).map_err(failed)
}

/// Trains a model for a moment, and writes rows for it.
fn prepare(arguments: &InferenceArguments, folder: &Folder) -> Result<(), Failure> {
    let hidden = &arguments.hidden;
    let job = format!(
        "name = \"bench\"\nseed = 1\nsteps = 40\nworkers = 1\n[model]\nkind = \"mlp\"\nhidden = {hidden:?}\n\
         [data]\nkind = \"digits\"\n[batch]\nsize = 64\nvirtual_nodes = 4\n[optimizer]\nkind = \"sgd\"\nlearning_rate = 0.1\n"
    );
    let path = folder.write("job.toml", job)?;
    let ended = command(folder)?.arg("run").arg(path).stderr(Stdio::null()).status().map_err(failed)?;
    if !ended.success() {
        return Err(failed("the model cannot be trained"));
    }
    let mut file = BufWriter::new(File::create(folder.path().join("rows.csv")).map_err(failed)?);
    for row in 0..arguments.rows {
        for column in 0..64 {
            let end = if column == 63 { '\n' } else { ',' };
            write!(file, "{}{end}", mix(row, column) % 17).map_err(failed)?;
        }
    }
    file.flush().map_err(failed)
}

fn command(folder: &Folder) -> Result<Command, Failure> {
    let mut command = programs::bellwether()?;
    command.env("BELLWETHER_STATE_DIR", folder.path().join("state")).current_dir(folder.path());
    Ok(command)
}

/// Seconds of a plain loop: read, decode, apply, write.
fn of_plain(folder: &Folder) -> Result<f64, Failure> {
    let began = Instant::now();
    let run = RunDir::at(folder.path().join("state/bench-1"));
    let job = run.job().map_err(failed)?;
    let job = parse::job(&parse::to_text(&job), "job", &[]).map_err(failed)?;
    let open = |path: &Path| fs::read(path);
    let form = Arc::new(Form::of(&job, &open).map_err(failed)?);
    let mut workload = bellwether_workloads::applied(&job, form.image(), form.classes()).map_err(failed)?;
    let weights = export::weights(&run, &job, workload.layout()).map_err(failed)?;
    let (parameters, state) = &weights.values;
    let weights = Weights { parameters, state, version: 1 };
    let columns = Columns { scores: true };
    let rows = File::open(folder.path().join("rows.csv")).map_err(failed)?;
    let cutter = Cutter::new(Arc::clone(&form), "rows.csv", Box::new(rows), BLOCK, false).map_err(failed)?;
    let mut out = BufWriter::new(File::create(folder.path().join("plain.csv")).map_err(failed)?);
    let (mut values, mut scores) = (Vec::new(), Vec::new());
    for unit in cutter {
        let unit = unit.map_err(failed)?;
        values.clear();
        scores.clear();
        let width = form.decode("rows.csv", &unit, &mut values).map_err(failed)?;
        // The last batch may be smaller, and its bits be others then: the network is given as many rows as before.
        values.resize(BLOCK * width, 0.0);
        workload.predict(weights, Inputs { values: &values, width }, &mut scores).map_err(failed)?;
        let each = scores.len() / BLOCK;
        let predicted = form.predicted(&unit, &scores[..unit.count * each], columns).map_err(failed)?;
        if unit.first == 0 {
            out.write_all(form.header(columns, predicted.outputs).as_bytes()).map_err(failed)?;
        }
        out.write_all(&predicted.text).map_err(failed)?;
    }
    out.flush().map_err(failed)?;
    Ok(began.elapsed().as_secs_f64())
}

fn infer(folder: &Folder, output: &str, workers: u32) -> Result<Command, Failure> {
    let mut command = command(folder)?;
    command.args(["infer", "bench", "--data", "rows.csv", "--scores", "-o", output]);
    command.args(["--workers", &workers.to_string()]).stderr(Stdio::null());
    Ok(command)
}

/// Seconds of the command.
fn of_command(folder: &Folder, output: &str, workers: u32) -> Result<f64, Failure> {
    let began = Instant::now();
    let ended = infer(folder, output, workers)?.status().map_err(failed)?;
    match ended.success() {
        true => Ok(began.elapsed().as_secs_f64()),
        false => Err(failed("the rows cannot be predicted")),
    }
}

/// Predicts by three workers that are killed one after the other, and so is their coordinator; workers killed, and
/// coordinators started.
fn of_killed(folder: &Folder) -> Result<(u32, u32), Failure> {
    let (mut kills, mut starts) = (0, 0);
    loop {
        let mut coordinator = infer(folder, "killed.csv", 3)?.spawn().map_err(failed)?;
        starts += 1;
        for kill in 0..KILLS {
            std::thread::sleep(PAUSE);
            if let Some(ended) = coordinator.try_wait().map_err(failed)? {
                return if ended.success() {
                    Ok((kills, starts))
                } else {
                    Err(failed("it ended with an error"))
                };
            }
            kills += u32::from(kill_a_worker(folder, u64::from(kill)));
        }
        end(&mut coordinator)?;
    }
}

fn end(coordinator: &mut Child) -> Result<(), Failure> {
    coordinator.kill().map_err(failed)?;
    coordinator.wait().map(drop).map_err(failed)
}

/// Kills one of the workers, if there is one.
fn kill_a_worker(folder: &Folder, which: u64) -> bool {
    let token = folder.path().join("killed.csv.infer/token").display().to_string();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().into_string().ok()?.parse::<i32>().ok());
    let is_worker = |process: &i32| {
        let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        line.contains("--infer") && line.contains(&token)
    };
    let workers: Vec<i32> = numbers.filter(is_worker).collect();
    let chosen = workers.get((mix(which, 3) % workers.len().max(1) as u64) as usize).copied();
    chosen.and_then(Pid::from_raw).is_some_and(|worker| kill_process(worker, Signal::KILL).is_ok())
}
