//! `bellwether watch`, and how jobs of a daemon are followed until they end.

use std::process::ExitCode;
use std::slice::from_ref;

use bellwether_render::json_line;
use bellwether_serve::snapshot::{JobState, Phase};

use super::args::JobArguments;
use super::connect::find_patiently;
use super::target::{Places, Target};
use super::words;
use crate::by_hand;
use crate::failure::Failure;
use crate::options::Format;
use crate::printer::Printer;

/// 0 when all are finished, 1 when one failed or was cancelled.
pub(super) fn exit_code(jobs: &[JobState]) -> ExitCode {
    let finished = jobs.iter().all(|job| job.state == Phase::Finished);
    if finished { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

/// `watch` of a job, until it ends.
pub(crate) fn watch(arguments: &JobArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let format = arguments.daemon.state.format;
    let places = Places::of(&arguments.daemon, from_ref(&arguments.job), printer)?;
    let job = match places.find(&arguments.job, printer)? {
        Target::Served(job) => job,
        Target::ByHand(run) => return by_hand::watch(&run, format, printer),
    };
    let daemon = find_patiently(&arguments.daemon, printer)?;
    let ended = daemon.follow(&[job.name], |job| match format {
        Format::Json => printer.line(json_line(job)),
        Format::Table => printer.line(words::line(job, words::now_s())),
    })?;
    Ok(exit_code(&ended))
}
