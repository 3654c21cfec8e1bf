//! Follows jobs of a daemon until they end; and what `watch` and `stop` do with such a job.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use bellwether_core::InputError;
use bellwether_serve::snapshot::{JobState, Phase};

use super::args::ServedArguments;
use super::daemon::{Daemon, Trouble, json};
use super::words;
use crate::by_hand;
use crate::failure::Failure;
use crate::options::Format;
use crate::printer::Printer;
use crate::runs::StateDir;

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

/// The job that the user means, if a daemon serves it: by its own name, or as the newest run of a job with this name.
pub(super) fn served(
    arguments: &ServedArguments,
    printer: &Printer,
) -> Result<Option<(Daemon, JobState)>, Failure> {
    let asked = &arguments.job;
    let Some(daemon) = Daemon::look(&arguments.daemon, printer)? else { return Ok(None) };
    let mut found = daemon.job(asked);
    if let (Err(Trouble::Refused(404, _)), false) = (&found, daemon.is_remote()) {
        let run = StateDir::find(arguments.daemon.state.state_dir.clone())?.run(asked);
        if let Some(run) = run.ok().filter(|run| run.name != *asked) {
            found = daemon.job(&run.name);
        }
    }
    match found {
        Ok(job) => Ok(Some((daemon, job))),
        Err(trouble) if daemon.is_remote() => Err(trouble.into()),
        Err(Trouble::Refused(404, _)) => Ok(None),
        Err(Trouble::Silent(error)) => {
            printer.note(format_args!("note: {}: {}; looking at the files alone", error.place, error.what));
            Ok(None)
        }
        Err(trouble) => Err(trouble.into()),
    }
}

/// `watch` of a served job or of a run by hand.
pub(crate) fn watch(arguments: &ServedArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let state = &arguments.daemon.state;
    let Some((daemon, job)) = served(arguments, printer)? else {
        return by_hand::watch(&arguments.job, state, printer);
    };
    let format = state.format;
    let ended = follow(&patient(daemon), &[job.name], |job| match format {
        Format::Json => json(job).is_ok_and(|text| printer.line(text)),
        Format::Table => printer.line(words::line(job, words::now_s())),
    })?;
    Ok(exit_code(&ended))
}

/// Stops a run by hand; of a served job its user has to say whether it should wait or end.
pub(crate) fn stop(arguments: &ServedArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let Some((_, job)) = served(arguments, printer)? else {
        return by_hand::stop(&arguments.job, &arguments.daemon.state, printer);
    };
    let name = &job.name;
    if job.state.has_ended() {
        let what = format!("the job is {}", job.state.name());
        return Err(InputError::new(name, what).hint("`bellwether jobs` lists all jobs").into());
    }
    let hint = format!(
        "`bellwether suspend {name}` lets it wait with a checkpoint until `bellwether resume {name}`; \
         `bellwether cancel {name}` ends it"
    );
    Err(InputError::new(name, "a daemon serves this job").hint(hint).into())
}

/// The daemon with the patience of somebody who follows jobs.
pub(super) fn patient(daemon: Daemon) -> Daemon {
    daemon.patient(PATIENCE)
}
