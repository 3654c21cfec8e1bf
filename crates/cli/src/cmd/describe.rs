//! `bellwether describe`, which a daemon starts for each job that it does not know: loads the data, builds the model, and
//! says how large the task is. It is a process of its own so that it can have a limit of memory.

use std::process::ExitCode;

use bellwether_core::InputError;
use bellwether_core::job::{Data, Job, Model};
use bellwether_core::units::Bytes;
use bellwether_runtime::membership::WorkloadDescription;
use bellwether_serve::ledger::Task;
use bellwether_serve::loading::Answer;
use bellwether_serve::snapshot::ErrorBody;
use clap::Args;
use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};

use crate::failure::Failure;
use crate::files;
use crate::printer::Printer;

/// Addresses beside the data: the program itself, and what its allocator holds in reserve.
const PROGRAM_BYTES: u64 = 2 << 30;

#[derive(Debug, Args)]
pub(crate) struct DescribeArguments {
    /// Memory that it may take; larger files are refused
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Bytes,
}

pub(crate) fn describe(arguments: &DescribeArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let place = "bellwether describe";
    // If the daemon dies, no process waits for the answer.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| Failure::at(place, error))?;
    let limit = Some(arguments.memory.0.saturating_add(PROGRAM_BYTES));
    setrlimit(Resource::As, Rlimit { current: limit, maximum: limit })
        .map_err(|error| Failure::at(place, error))?;
    let job: Job =
        serde_json::from_reader(std::io::stdin().lock()).map_err(|error| Failure::at(place, error))?;
    let answer: Answer = task(&job, arguments.memory.0)
        .map_err(|InputError { what, place, hint, .. }| ErrorBody { error: what, place, hint });
    printer.out(serde_json::json!(answer));
    Ok(ExitCode::SUCCESS)
}

/// The size of a job's task, learnt as a worker would.
fn task(job: &Job, file_limit_bytes: u64) -> Result<Task, InputError> {
    if let (Model::Python { values, .. }, Data::Python { training_samples, .. }) = (&job.model, &job.data) {
        // Its script said so when the job was submitted; no script runs before its turn.
        return Ok(Task { training_samples: *training_samples, bytes: values.saturating_mul(4) });
    }
    let workload = bellwether_workloads::build_from(job, &files::data(file_limit_bytes))?;
    Ok(Task::of(&WorkloadDescription::of(workload.as_ref())))
}
