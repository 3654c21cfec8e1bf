//! What this program gives the sessions that it begins, and how it shows what they tell.

use std::path::PathBuf;

use bellwether_core::InputError;
use bellwether_core::job::Job;
use bellwether_runtime::workload::Workload;
use bellwether_session::script::Trained;
use bellwether_session::{Note, Program, Role};

use crate::failure::Failure;
use crate::files;
use crate::printer::Printer;

/// This program: workers and servers are processes of it.
pub(crate) fn program() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|e| Failure::at("this program", e))
}

/// Builds what a job trains.
pub(crate) fn build(job: &Job) -> Result<Box<dyn Workload>, InputError> {
    bellwether_workloads::build_from(job, &files::data(u64::MAX))
}

/// Builds what a job trains, or takes what its script said of it.
pub(crate) fn build_of(
    trained: Option<&Trained>,
) -> impl Fn(&Job) -> Result<Box<dyn Workload>, InputError> + Send + Sync + use<> {
    let trained = trained.cloned();
    move |job| trained.as_ref().map_or_else(|| build(job), |trained| Ok(trained.workload()))
}

/// This program, whose workers run a script where one trains.
pub(crate) fn program_of(trained: Option<&Trained>) -> Result<Program, Failure> {
    let program = Program::new(program()?);
    Ok(match trained {
        Some(trained) => program.script(trained.clone()),
        None => program,
    })
}

/// Shows what a session found out.
pub(crate) fn show(note: &Note, printer: &Printer) {
    match note {
        Note::NewToken(file) => printer.note(format_args!(
            "warning: {} held no token, as after a power cut; the run has a new one",
            file.display()
        )),
        Note::ScheduleLost(why) => {
            printer.note(format_args!("warning: the scheduled numbers of workers are lost: {why}"));
        }
        Note::OneWorker { warm_up, steps } => {
            printer.note(format_args!("one worker: {warm_up} steps to warm up, {steps} to measure"));
        }
        Note::TwoWorkers => printer.note(format_args!("two workers: as many steps again")),
        Note::OneBatch { batch, steps } => {
            printer.note(format_args!("one worker, batches of {batch}: {steps} steps to measure"));
        }
        Note::OneServer { warm_up, updates } => printer.note(format_args!(
            "one worker and one server: {warm_up} updates to warm up, {updates} to measure"
        )),
        Note::Tracing { warm_up, steps } => printer.note(format_args!(
            "the framework's own trace: {warm_up} steps to warm up, {steps} to record, none of which is measured"
        )),
        Note::Cluster(message) => printer.note(message),
        Note::Invitation { role, control, token_file } => {
            let (what, verb) = match role {
                Role::Worker => ("worker", "worker"),
                Role::Peer => ("peer", "worker"),
                Role::Server => ("server", "server"),
            };
            printer.note(format_args!(
                "now start the {what}: bellwether {verb} --join {control} --listen ITS-ADDRESS:0 --token-file {}",
                token_file.display()
            ));
        }
    }
}
