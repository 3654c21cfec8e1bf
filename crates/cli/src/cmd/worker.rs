//! `bellwether worker`: joins a run.

use std::process::ExitCode;
use std::time::Duration;

use bellwether_core::InputError;
use bellwether_core::job::Job;
use bellwether_runtime::notice::Listening;
use bellwether_runtime::worker::{Options, Stages, WorkerError, run};

use crate::args::WorkerArguments;
use crate::failure::Failure;
use crate::files;
use crate::printer::Printer;
use crate::runs::read_token;

pub(crate) fn worker(arguments: WorkerArguments) -> Result<ExitCode, Failure> {
    super::run::reachable("--listen", arguments.listen)?;
    let options = Options {
        token: read_token(&arguments.token_file)?,
        coordinator: arguments.join.clone(),
        worker: arguments.worker_id,
        listen: arguments.listen,
        orphan_timeout: Duration::from_secs_f64(arguments.orphan_timeout.get()),
        notices: Listening {
            sources: arguments.notices.0,
            interval: Duration::from_secs_f64(arguments.notice_interval.get()),
            log: |line| Printer::new().note(line),
        },
    };
    let build = |job: &Job, _: &Stages<'_>| {
        let trainee = bellwether_workloads::build(job, &files::read_data).map_err(|e| e.to_string())?;
        let trainee = match arguments.speed {
            Some(pace) => bellwether_workloads::paced(trainee, pace),
            None => trainee,
        };
        Ok(match arguments.flip_bit {
            Some(flip) => bellwether_workloads::flipped(trainee, flip, job.seed),
            None => trainee,
        })
    };
    match run(options, build) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(WorkerError::Refused(why)) => Err(InputError::new("this worker was refused", why).into()),
        Err(error @ WorkerError::Orphaned(_)) => Err(Failure::No(error.to_string())),
        Err(error) => Err(Failure::at("worker", error)),
    }
}
