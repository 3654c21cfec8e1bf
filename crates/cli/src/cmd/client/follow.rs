//! `bellwether watch`, and how jobs of a daemon are followed until they end.

use std::process::ExitCode;
use std::slice::from_ref;
use std::time::{Duration, Instant};

use bellwether_serve::snapshot::{JobState, Phase};

use super::args::JobArguments;
use super::daemon::{Daemon, json};
use super::target::{Places, Target};
use super::words;
use crate::by_hand;
use crate::failure::Failure;
use crate::options::Format;
use crate::printer::Printer;

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(250);

/// Time between two lines on how far a job is.
const PERIOD: Duration = Duration::from_secs(5);

/// How long a daemon may be away while its jobs are followed: they go on without it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Follows jobs until all have ended; tells of each what changed. `say` may end it by giving false.
pub(super) fn follow(
    daemon: &Daemon,
    names: &[String],
    mut say: impl FnMut(&JobState) -> bool,
) -> Result<Vec<JobState>, Failure> {
    let mut told: Vec<Option<(JobState, Instant)>> = names.iter().map(|_| None).collect();
    let mut ended: Vec<Option<JobState>> = names.iter().map(|_| None).collect();
    loop {
        for ((name, told), ended) in names.iter().zip(&mut told).zip(&mut ended).filter(|(_, e)| e.is_none())
        {
            let job = daemon.job(name)?;
            let is_news = told.as_ref().is_none_or(|(before, when)| {
                let shape = |job: &JobState| (job.state, job.workers, job.target_workers, job.why.clone());
                shape(before) != shape(&job) || when.elapsed() >= PERIOD && before.step != job.step
            });
            if is_news {
                *told = Some((job.clone(), Instant::now()));
                if !say(&job) {
                    return Ok(Vec::new());
                }
            }
            if job.state.has_ended() {
                *ended = Some(job);
            }
        }
        if ended.iter().all(Option::is_some) {
            return Ok(ended.into_iter().flatten().collect());
        }
        std::thread::sleep(LOOK);
    }
}

/// 0 when all are finished, 1 when one failed or was cancelled.
pub(super) fn exit_code(jobs: &[JobState]) -> ExitCode {
    let finished = jobs.iter().all(|job| job.state == Phase::Finished);
    if finished { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

/// `watch` of a job, until it ends.
pub(crate) fn watch(arguments: &JobArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let format = arguments.daemon.state.format;
    let mut places = Places::of(&arguments.daemon, from_ref(&arguments.job), printer)?;
    let job = match places.find(&arguments.job, printer)? {
        Target::Served(job) => job,
        Target::ByHand(run) => return by_hand::watch(&run, format, printer),
    };
    let Some(daemon) = places.daemon.take() else { return Ok(ExitCode::SUCCESS) };
    let ended = follow(&patient(daemon), &[job.name], |job| match format {
        Format::Json => json(job).is_ok_and(|text| printer.line(text)),
        Format::Table => printer.line(words::line(job, words::now_s())),
    })?;
    Ok(exit_code(&ended))
}

/// The daemon with the patience of somebody who follows jobs.
pub(super) fn patient(daemon: Daemon) -> Daemon {
    daemon.patient(PATIENCE)
}
