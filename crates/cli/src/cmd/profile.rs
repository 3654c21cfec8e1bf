//! `bellwether profile`: measures a job on one worker and on two, or reads another framework's trace.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use bellwether_core::InputError;
use bellwether_core::profile::Profile;
use bellwether_model::import::Apart;
use bellwether_session::profile::{How, measure, trace};
use bellwether_session::{Progress, Spawn};
use bellwether_workloads::data::gzip;

use crate::elsewhere::Elsewhere;
use crate::failure::Failure;
use crate::job::Purpose;
use crate::printer::Printer;
use crate::runs::{RunDir, StateDir};
use crate::{files, job, session};

mod args;
mod show;

pub(crate) use args::ProfileArguments;

pub(crate) fn profile(arguments: &ProfileArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    if let Some(path) = &arguments.output {
        files::check_folder(path)?;
    }
    let profile = match (&arguments.import, &arguments.job) {
        (Some(trace), _) => import(trace, arguments.apart.as_deref(), printer)?,
        (None, Some(job)) => measured(job, arguments, printer)?,
        (None, None) => return Err(Failure::at("profile", "no job file is named")),
    };
    profile.check().map_err(|error| InputError { hint: String::new(), ..error })?;
    let text = serde_json::to_string(&profile).map_err(|e| Failure::at("profile", e))?;
    match &arguments.output {
        Some(path) => {
            files::write_whole(path, text.as_bytes())?;
            printer.out(show::table(&profile));
            printer.note(format_args!("`bellwether predict {}` says what it means", path.display()));
        }
        None => printer.out(text),
    }
    Ok(ExitCode::SUCCESS)
}

fn measured(path: &Path, arguments: &ProfileArguments, printer: &Printer) -> Result<Profile, Failure> {
    let opened = job::open(path, &arguments.script, &arguments.set, Purpose::Measure)?;
    let ProfileArguments { steps, peer_by_hand, .. } = *arguments;
    let trained = opened.trained.as_ref();
    if arguments.framework_trace.is_some() && trained.is_none() {
        let what = "only a Python script computes by a framework that has a profiler of its own";
        return Err(InputError::new("--framework-trace", what)
            .hint("leave it out: the profile itself says what each virtual node of a job file takes")
            .into());
    }
    // A job of a daemon is measured where it will train.
    let run = RunDir::open(path);
    let moves = arguments.listen.is_none();
    let pace = arguments.speed.map(|pace| format!("--speed={pace}"));
    let program = session::program_of(trained)?.arguments(move |_| pace.iter().cloned().collect());
    let Elsewhere { spawn, listen, .. } = arguments.elsewhere.place(program, run.as_ref(), moves, printer)?;
    let is_here = listen.is_none() && !matches!(spawn, Spawn::Slurm(..));
    if peer_by_hand && !is_here {
        let what = "the second worker is to join by hand, and all workers are to be started elsewhere";
        return Err(InputError::new("--peer-by-hand", what).hint("leave it out, or say --on here").into());
    }
    let folder = match (&run, is_here) {
        (_, true) => None,
        (Some(run), false) => Some(run.path.clone()),
        (None, false) => {
            let state_dir = StateDir::find(arguments.state_dir.clone())?;
            state_dir.make()?;
            Some(state_dir.path().to_path_buf())
        }
    };
    let how = How {
        listen: arguments.listen.or(listen),
        peer_by_hand,
        initial_weights: opened.initial_weights(),
        batches: arguments.batches.clone(),
        folder,
        of_run: run,
        ..How::new(steps, spawn)
    };
    let show = &mut |progress: Progress<'_>| {
        if let Progress::Note(note) = progress {
            session::show(&note, printer);
        }
    };
    let profile = measure(&opened.job, session::build_of(trained), &how, show)?;
    if let Some(folder) = &arguments.framework_trace {
        // A measurement that was interrupted has nothing that a trace could be laid beside.
        profile.check()?;
        for file in trace(&opened.job, session::build_of(trained), &how, folder, show)? {
            printer.note(format_args!("the framework's trace is in {}", file.display()));
        }
    }
    Ok(profile)
}

/// Reads a trace, packed or not, and what was measured `apart` from it.
fn import(path: &Path, apart: Option<&Path>, printer: &Printer) -> Result<Profile, Failure> {
    let place = path.display().to_string();
    let bytes = fs::read(path).map_err(|e| {
        InputError::new(&place, format!("the trace cannot be read: {e}"))
            .hint("--import takes a trace of the PyTorch or TensorFlow profiler, .json or .json.gz")
    })?;
    let unpacked = gzip::expand(&place, bytes)
        .map_err(|e| InputError { what: format!("the trace cannot be unpacked: it {}", e.what), ..e })?;
    let mut imported = bellwether_model::import::read_with_notes(&unpacked, &place)?;
    imported.notes.iter().for_each(|note| printer.note(note));
    if let Some(path) = apart {
        let place = path.display().to_string();
        let text = fs::read_to_string(path)
            .map_err(|e| InputError::new(&place, format!("the measurements cannot be read: {e}")))?;
        Apart::read(&text, &place)?.complete(&mut imported.profile, &place)?;
    }
    Ok(imported.profile)
}
