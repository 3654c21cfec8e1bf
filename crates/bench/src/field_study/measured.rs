//! What is measured: a profile of each kind, and runs of it that the profile knows nothing of.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::kinds::{KINDS, Kind};
use super::{said, said_json};
use crate::failure::Failure;
use crate::folder::Folder;
use crate::printer::Printer;
use crate::programs::bellwether;
use crate::report::{Report, Row};
use crate::statistics::load_average;

/// Numbers of workers that are really run.
const WORKERS: [u32; 4] = [1, 2, 4, 8];

/// Fewest and most steps of such a run.
const STEPS: (f64, f64) = (20.0, 2000.0);

/// The measurements of all kinds, in files.
pub(super) struct Measured {
    pub(super) folder: Folder,
    /// Samples per second with one worker, by the profiles: how much work the jobs of a trace have.
    pub(super) alone: Vec<f64>,
}

impl Measured {
    pub(super) fn profiles(&self) -> PathBuf {
        self.folder.path().join("profiles")
    }

    pub(super) fn profile(&self, kind: &str) -> PathBuf {
        self.profiles().join(format!("{kind}.json"))
    }

    pub(super) fn fitted(&self) -> PathBuf {
        self.folder.path().join("fitted.json")
    }

    pub(super) fn job(&self, kind: &str) -> PathBuf {
        self.folder.path().join(format!("{kind}.toml"))
    }
}

/// Profiles every kind once, runs it for `seconds` with each number of workers, and fits models to the runs.
pub(super) fn measure(report: &mut Report, seconds: f64, printer: &Printer) -> Result<Measured, Failure> {
    let mut measured = Measured { folder: Folder::new("field-study")?, alone: Vec::new() };
    let profiles = measured.profiles();
    std::fs::create_dir(&profiles).map_err(|e| Failure::at(profiles.display().to_string(), e))?;
    for kind in &KINDS {
        printer.note(format_args!("{}: a profile", kind.name));
        let mut command = bellwether()?;
        command.arg("profile").arg(kind.write(&measured.folder)?).args(["--steps", "30", "-o"]);
        said(command.arg(measured.profile(kind.name)))?;
        let speeds = predicted(&measured.profile(kind.name), kind)?;
        measured.alone.push(speeds.first().copied().unwrap_or(f64::NAN));
    }
    let mut runs = Vec::new();
    for kind in &KINDS {
        printer.note(format_args!("{}: runs", kind.name));
        let speeds = predicted(&measured.profile(kind.name), kind)?;
        for workers in WORKERS.into_iter().filter(|workers| *workers <= kind.most) {
            let speed = speeds.get(workers as usize - 1).copied().unwrap_or(f64::NAN);
            runs.push(run(&measured, kind, workers, speed, seconds)?);
        }
    }
    let mut command = bellwether()?;
    command.arg("fit").args(runs.iter().map(|run| &run.folder)).arg("-o").arg(measured.fitted());
    said(&mut command)?;
    rows(report, &measured, &runs)?;
    Ok(measured)
}

/// One run.
struct Run {
    kind: Kind,
    workers: u32,
    folder: PathBuf,
    predicted: f64,
    examples_per_s: f64,
    load_average: Option<f64>,
}

fn run(measured: &Measured, kind: &Kind, workers: u32, speed: f64, seconds: f64) -> Result<Run, Failure> {
    let steps = (seconds * speed / f64::from(kind.batch)).clamp(STEPS.0, STEPS.1).round();
    let mut command = bellwether()?;
    command.arg("run").arg(measured.job(kind.name)).args(["--quiet", "--format", "json", "--state-dir"]);
    command.arg(measured.folder.path().join("runs"));
    command.args(["--workers", &workers.to_string(), "--steps", &steps.to_string()]);
    let summary = said_json(&mut command)?;
    let text = |key: &str| summary[key].as_str().unwrap_or_default();
    if text("outcome") != "finished" {
        return Err(Failure::at(kind.name, text("reason")));
    }
    Ok(Run {
        kind: *kind,
        workers,
        folder: text("run_dir").into(),
        predicted: speed,
        examples_per_s: summary["examples_per_s"].as_f64().unwrap_or(f64::NAN),
        load_average: load_average().map(|load| load[0]),
    })
}

/// Samples per second with 1, 2, … workers by a profile.
fn predicted(profile: &Path, kind: &Kind) -> Result<Vec<f64>, Failure> {
    speeds(profile, kind, &[])
}

fn speeds(file: &Path, kind: &Kind, more: &[&str]) -> Result<Vec<f64>, Failure> {
    let mut command = bellwether()?;
    command.arg("predict").arg(file).args(more).args(["--format", "json", "--workers"]);
    let points = said_json(command.arg(format!("1..{}", kind.most)))?;
    let speed = |point: &Value| point["examples_per_s"].as_f64().unwrap_or(f64::NAN);
    Ok(points.as_array().map(|points| points.iter().map(speed).collect()).unwrap_or_default())
}

fn rows(report: &mut Report, measured: &Measured, runs: &[Run]) -> Result<(), Failure> {
    for run in runs {
        let fitted = speeds(&measured.fitted(), &run.kind, &["--kind", run.kind.name])?;
        let fitted = fitted.get(run.workers as usize - 1).copied().unwrap_or(f64::NAN);
        report.row(
            Row::new(format!("{}, {} workers", run.kind.name, run.workers))
                .with("measured_examples_per_s", run.examples_per_s)
                .with("profile_examples_per_s", run.predicted)
                .with("fitted_examples_per_s", fitted)
                .with("profile_over_fitted", run.predicted / fitted - 1.0)
                .with("load_average", run.load_average),
        );
    }
    for kind in &KINDS {
        let row = Row::new(format!("{}, all numbers of workers", kind.name));
        let fitted = speeds(&measured.fitted(), kind, &["--kind", kind.name])?;
        let profile = predicted(&measured.profile(kind.name), kind)?;
        let errors: Vec<f64> = profile.iter().zip(&fitted).map(|(p, f)| (p / f - 1.0).abs()).collect();
        report.row(
            row.with("mean_profile_error", crate::statistics::mean(&errors))
                .with("worst_profile_error", crate::statistics::largest(&errors))
                .samples("profile_examples_per_s", &profile)
                .samples("fitted_examples_per_s", &fitted),
        );
    }
    Ok(())
}
