//! Lets the framework of a script record some of its steps by its own profiler, in a short run of their own: a profiler
//! slows what it records down, so its steps must not be those that are measured.

use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;

use bellwether_core::InputError;
use bellwether_core::job::{CheckedJob, Job, WorkerRange};
use bellwether_core::record::{Event, RunOutcome, StepRecord};
use bellwether_runtime::coordinator::{self, Observation, Options};
use bellwether_runtime::membership::WorkloadDescription;
use bellwether_runtime::workload::Workload;

use super::How;
use super::setup::{Ask, MeasuredRun, endless, help, tell};
use crate::error::{RunError, at};
use crate::metrics::{self, WARM_UP_STEPS};
use crate::{Note, Observe, Progress, WorkloadBuilder};

/// The variable that tells a worker's process which steps it records, and where to.
const VARIABLE: &str = "BELLWETHER_TRACE";

/// Steps that are recorded: enough to see what repeats, and few enough for a file that can be looked at.
const STEPS: u64 = 3;

/// Trains a script's job for a moment on one worker, whose framework records some steps after the warm-up; the files
/// that are in `folder` then.
///
/// # Errors
///
/// Returns what keeps the job from being trained, or its framework from leaving a trace.
pub fn trace(
    job: &CheckedJob,
    build: impl Fn(&Job) -> Result<Box<dyn Workload>, InputError> + Send + Sync + 'static,
    how: &How,
    folder: &Path,
    observe: &mut Observe<'_>,
) -> Result<Vec<PathBuf>, RunError> {
    let place = folder.display().to_string();
    let folder = std::path::absolute(folder).map_err(|e| at(&place, e))?;
    std::fs::create_dir_all(&folder).map_err(|e| at(&place, e))?;
    let before = files(&folder).map_err(|e| at(&place, e))?;
    let first = WARM_UP_STEPS as u64;
    let told = serde_json::json!({ "folder": folder, "first": first, "steps": STEPS });
    let spawn = how
        .spawn
        .variable(VARIABLE, told.to_string())
        .ok_or_else(|| at(&place, "only a worker that is a process of a script has a framework to trace"))?;
    let how = How { spawn, ..how.clone() };
    let workload = WorkloadBuilder::new(build).with_initial_weights(how.initial_weights.clone());
    observe(Progress::Note(Note::Tracing { warm_up: first, steps: STEPS }));
    // The step after the last one begins once the trace is written.
    train(job, &workload, (&how, observe), first + STEPS + 1, 0)?;
    let new: Vec<PathBuf> = files(&folder)
        .map_err(|e| at(&place, e))?
        .into_iter()
        .filter(|file| !before.contains(file))
        .collect();
    if new.is_empty() {
        return Err(at(&place, "the framework's profiler wrote no file").into());
    }
    Ok(new)
}

/// What a short run leaves.
pub(super) struct Trained {
    /// All its steps.
    pub(super) steps: Vec<StepRecord>,
    /// Largest resident memory of its worker, in bytes, where it is known.
    pub(super) peak_resident_bytes: Option<u64>,
}

/// Trains this many steps on one worker, in a folder that vanishes; the held-out set is evaluated after each
/// `evaluated_steps` of them, or never (0).
///
/// # Errors
///
/// Returns what keeps the job from being trained.
pub(super) fn train(
    original: &CheckedJob,
    workload: &WorkloadBuilder,
    (how, observe): (&How, &mut Observe<'_>),
    steps: u64,
    evaluated_steps: u64,
) -> Result<Trained, RunError> {
    let job = original.clone().edit(|edited| {
        endless(edited);
        edited.evaluation.every_steps = evaluated_steps;
        edited.workers = WorkerRange { min: 1, max: 1 };
        let sync = std::mem::take(&mut edited.sync);
        if sync.has_outer_steps() {
            (edited.sync.policy, edited.sync.outer_momentum) = (sync.policy, sync.outer_momentum);
        }
    })?;
    let description = WorkloadDescription::of(workload.build(&job)?.as_ref());
    let measured = MeasuredRun::create(&job, how)?;
    let run = &measured.run;
    let options = Options {
        spawn: how.spawn.workers(run, workload)?,
        ..measured.options(job, (&description, workload), how)?
    };
    let (asks, asked) = channel();
    let helper = help(run.clone(), asked);
    let mut over = false;
    let ended = coordinator::run(options, &mut |seen: Observation<'_>| {
        tell(&seen, observe);
        if let Observation::Journal(Event::Committed { last, .. }) = seen
            && !over
            && last + 1 >= steps
        {
            over = true;
            // The helper ends only after this sender.
            let _ = asks.send(Ask::Stop);
        }
    });
    drop(asks);
    let _ = helper.join();
    let (summary, outcome) = ended.map_err(|e| at("profile", e))?;
    match outcome {
        RunOutcome::Stopped => Ok(Trained {
            steps: metrics::read(&run.path).collect(),
            peak_resident_bytes: Some(summary.peak_resident_bytes).filter(|bytes| *bytes > 0),
        }),
        _ => {
            let what = format!("it could not be measured: {}", summary.outcome.reason());
            Err(at(&original.name, what).into())
        }
    }
}

/// All files below a folder, in order.
fn files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_path_buf()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            match entry.file_type()?.is_dir() {
                true => folders.push(entry.path()),
                false => found.push(entry.path()),
            }
        }
    }
    found.sort();
    Ok(found)
}
