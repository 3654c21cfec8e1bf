//! `checkpoints`: what checkpoints in slices cost while a run goes on: how long training stands still, beside a step
//! and a plain copy of a worker's slice; the coordinator's memory; and a start on another number of workers.

use std::hint::black_box;
use std::time::Instant;

use bellwether_core::record::Event;
use bellwether_core::units::Bytes;
use clap::Args;
use serde_json::json;

use super::OutputArguments;
use super::jobs::{ENDLESS, Synthetic};
use super::report::{Report, Row};
use super::statistics::{largest, median};
use super::trial::{Trial, peak_resident_bytes};
use crate::failure::Failure;
use crate::printer::Printer;

#[derive(Debug, Args)]
pub(super) struct CheckpointsArguments {
    /// Bytes of the whole state: parameters and Adam's two moments
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = super::size)]
    state: Bytes,
    /// Workers that write
    #[arg(long, value_name = "N", default_value_t = 2)]
    workers: u32,
    /// Workers that go on from the last checkpoint
    #[arg(long, value_name = "N", default_value_t = 3)]
    then: u32,
    /// Checkpoints to wait for
    #[arg(long, value_name = "N", default_value_t = 5)]
    checkpoints: usize,
    #[command(flatten)]
    pub(super) output: OutputArguments,
}

const VIRTUAL_NODES: u32 = 4;

/// Steps between two checkpoints.
const EVERY: u64 = 3;

/// Copies of which the median counts.
const COPIES: usize = 9;

/// What of the coordinator's memory may differ by chance: its allocator's.
const CHANCE_BYTES: f64 = (16 << 20) as f64;

fn job(parameters: Bytes, url: Option<&str>) -> String {
    let job = Synthetic { step_ms: 1, parameters, virtual_nodes: VIRTUAL_NODES, steps: ENDLESS, adam: true };
    let url = url.map_or(String::new(), |url| format!("url = \"{url}\"\nevery_steps = {EVERY}\n"));
    format!("{}[checkpoint]\nevery = \"0s\"\nkeep = 2\n{url}", job.text())
}

/// What a checkpoint said of itself.
#[derive(Debug, Clone, Copy)]
struct Written {
    step: u64,
    seconds: f64,
    stall_s: f64,
}

fn written(event: &Event) -> Option<Written> {
    match event {
        Event::Checkpointed { step, seconds, stall_s: Some(stall_s), .. } => {
            Some(Written { step: *step, seconds: *seconds, stall_s: *stall_s })
        }
        _ => None,
    }
}

/// Seconds that a plain copy of this many bytes takes, into memory that is in use already: while the run trains, as the
/// workers' own copies do.
fn copies_s(bytes: u64) -> Vec<f64> {
    let (from, mut to) = (vec![1u8; bytes as usize], vec![2u8; bytes as usize]);
    let copy = |_| {
        let began = Instant::now();
        to.copy_from_slice(black_box(&from));
        black_box(&mut to);
        began.elapsed().as_secs_f64()
    };
    (0..COPIES).map(copy).collect()
}

const NOTE: &str = "Stall: the longest time that a worker copied its slice between two steps, as the journal says. Plain copy: of as \
     many bytes in this process, while the run trains. Written: from the first worker's slice to the manifest.";

fn check(workers: u32, then: u32) -> Result<(), Failure> {
    for (option, number) in [("--workers", workers), ("--then", then)] {
        if !(1..=VIRTUAL_NODES).contains(&number) {
            return Err(Failure::at(option, format!("{number}: choose from 1 to {VIRTUAL_NODES}")));
        }
    }
    Ok(())
}

pub(super) fn measure(arguments: &CheckpointsArguments, printer: &Printer) -> Result<Report, Failure> {
    let CheckpointsArguments { state, workers, then, checkpoints, .. } = arguments;
    check(*workers, *then)?;
    let parameters = Bytes(state.0.div_ceil(12) * 4);
    let slice_bytes = 3 * parameters.0 / u64::from(*workers);
    let settings = json!({
        "state_bytes": 3 * parameters.0, "workers": workers, "then": then, "every_steps": EVERY,
        "virtual_nodes": VIRTUAL_NODES, "optimizer": "adam", "place": "a folder on this machine's disk",
    });
    let mut report = Report::begin("checkpoints", settings, &[]);
    printer.note(format_args!("without checkpoints"));
    let bare_bytes = without(parameters, *workers)?;
    printer.note(format_args!("{workers} workers write {checkpoints} checkpoints"));
    let place = super::folder::Folder::new("checkpoints")?;
    let url = format!("file://{}", place.path().display());
    let mut trial = Trial::start(&job(parameters, Some(&url)), *workers)?;
    trial
        .wait("the first checkpoint", |trial| trial.since(0).iter().find_map(|line| written(&line.event)))?;
    let copies_s = copies_s(slice_bytes);
    trial.wait("checkpoints", |trial| {
        let count = trial.since(0).iter().filter(|line| written(&line.event).is_some()).count();
        (count >= *checkpoints).then_some(())
    })?;
    let peak_bytes = peak_resident_bytes(trial.coordinator()).unwrap_or(0);
    let all: Vec<Written> = trial.since(0).iter().filter_map(|line| written(&line.event)).collect();
    let steps = trial.steps();
    let stalled: Vec<u64> = all.iter().map(|written| written.step).collect();
    // A step from whose first boundary a checkpoint was written holds the stall.
    let (with, plain): (Vec<_>, Vec<_>) =
        steps.iter().filter(|step| step.step > 1).partition(|step| stalled.contains(&step.step));
    let times = |steps: &[&bellwether_core::record::StepRecord]| -> Vec<f64> {
        steps.iter().map(|step| step.duration_s).collect()
    };
    let (plain_s, with_s) = (median(&times(&plain)), median(&times(&with)));
    let stalls_s: Vec<f64> = all.iter().map(|written| written.stall_s).collect();
    let seconds: Vec<f64> = all.iter().map(|written| written.seconds).collect();
    let (copy_s, restored_s, from) = (median(&copies_s), go_on(&mut trial, *then, printer)?, all.last());
    report.row(
        Row::new("checkpoints")
            .with("checkpoints", all.len())
            .with("slice_bytes", slice_bytes)
            .spread("stall", "s", &stalls_s)
            .spread("plain_copy", "s", &copies_s)
            .with("step_s", plain_s)
            .with("step_after_a_checkpoint_s", with_s)
            .spread("written_after", "s", &seconds),
    );
    report.row(
        Row::new("coordinator")
            .with("peak_bytes", peak_bytes)
            .with("peak_without_checkpoints_bytes", bare_bytes),
    );
    report.row(
        Row::new(format!("from step {} or later on {then} workers", from.map_or(0, |written| written.step)))
            .with("first_step_after_s", restored_s),
    );
    let bound_s = plain_s.max(copy_s);
    report.at_most(
        "longest stall, beside the longer of a step and a plain copy",
        "s",
        largest(&stalls_s),
        bound_s,
    );
    let more_bytes = peak_bytes.saturating_sub(bare_bytes) as f64;
    report.at_most("more memory of the coordinator than without", "bytes", more_bytes, CHANCE_BYTES);
    report.note(NOTE);
    Ok(report)
}

/// The coordinator's peak of the same job that writes no checkpoint.
fn without(parameters: Bytes, workers: u32) -> Result<u64, Failure> {
    let mut trial = Trial::start(&job(parameters, None), workers)?;
    trial.settle(workers as usize, 2 * EVERY)?;
    Ok(peak_resident_bytes(trial.coordinator()).unwrap_or(0))
}

/// Kills all, and goes on from the last checkpoint on other workers; seconds to the first committed step.
fn go_on(trial: &mut Trial, workers: u32, printer: &Printer) -> Result<f64, Failure> {
    printer.note(format_args!("{workers} workers go on from the last checkpoint"));
    let active = trial.members().active.clone();
    trial.kill_coordinator();
    active.iter().for_each(|worker| trial.kill(*worker));
    let mark = trial.mark()?;
    let began = Instant::now();
    trial.resume_with(&["--workers", &workers.to_string(), "--grace", "1s"])?;
    let restored =
        |event: &Event| matches!(event, Event::Membership { reason, .. } if reason.contains("restored"));
    trial.wait("a membership that was restored", |trial| {
        trial.since(mark).iter().find(|line| restored(&line.event)).map(|_| ())
    })?;
    trial.wait("a step after it", |trial| {
        let lines = trial.since(mark);
        let at = lines.iter().position(|line| restored(&line.event))?;
        lines[at..].iter().find(|line| matches!(line.event, Event::Committed { .. })).map(|_| ())
    })?;
    Ok(began.elapsed().as_secs_f64())
}
