//! `bellwether profile`: measures a job on one worker and on two, or reads another framework's trace.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use bellwether_core::InputError;
use bellwether_core::profile::Profile;

use crate::args::ProfileArguments;
use crate::failure::Failure;
use crate::files;
use crate::printer::Printer;

mod build;
mod measure;
mod show;

pub(crate) use build::StepLine;

/// Most bytes that a trace may have when it is unpacked.
const TRACE_BYTES_MAX: u64 = 4 << 30;

pub(crate) fn profile(arguments: &ProfileArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    if let Some(path) = &arguments.output {
        check_folder(path)?;
    }
    let profile = match (&arguments.import, &arguments.job) {
        (Some(trace), _) => import(trace, printer)?,
        (None, Some(job)) => measure::measure(job, arguments, printer)?,
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

/// Refuses a file whose folder is not there, before the work for it is done.
pub(crate) fn check_folder(path: &Path) -> Result<(), Failure> {
    let folder = match path.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
        None => return Err(Failure::at(path.display().to_string(), "is no name of a file")),
    };
    if path.is_dir() {
        return Err(Failure::at(path.display().to_string(), "this is a folder; name a file in it"));
    }
    if folder.is_dir() {
        return Ok(());
    }
    let what = format!("there is no folder `{}`", folder.display());
    Err(InputError::new(path.display().to_string(), what)
        .hint("make the folder first, or name another")
        .into())
}

/// Reads a trace, packed or not.
fn import(path: &Path, printer: &Printer) -> Result<Profile, Failure> {
    let place = path.display().to_string();
    let bytes = fs::read(path).map_err(|e| {
        InputError::new(&place, format!("the trace cannot be read: {e}"))
            .hint("--import takes a trace of the PyTorch or TensorFlow profiler, .json or .json.gz")
    })?;
    let unpacked = if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut unpacked = Vec::new();
        let mut reader = flate2::read::MultiGzDecoder::new(bytes.as_slice()).take(TRACE_BYTES_MAX);
        reader.read_to_end(&mut unpacked).map_err(|e| {
            InputError::new(&place, format!("the trace cannot be unpacked: {e}"))
                .hint("copy it again: a whole file of gzip was expected")
        })?;
        unpacked
    } else {
        bytes
    };
    let imported = bellwether_model::import::read_with_notes(&unpacked, &place)?;
    imported.notes.iter().for_each(|note| printer.note(note));
    Ok(imported.profile)
}
