//! What a user may type: a verb each, in a file or folder of its own.

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::colour::When;
use crate::failure::Failure;
use crate::printer::Printer;
use crate::version::long_version;

mod audit;
mod capacity;
mod client;
mod completions;
mod describe;
mod doctor;
mod evaluate;
mod export;
mod federate;
mod fit;
mod infer;
mod init;
mod machines;
mod nas;
mod place;
mod plan;
mod policies;
mod predict;
mod profile;
mod run;
mod schema;
mod serve;
mod server;
mod simulate;
mod sweep;
mod trace;
mod tune;
pub(crate) mod verbs;
mod version;
mod worker;

/// Trains deep-learning models elastically: workers join, leave and die, the result stays the same.
#[derive(Debug, Parser)]
#[command(name = "bellwether", version, long_version = long_version(), max_term_width = 100)]
pub(crate) struct Arguments {
    /// When output has colours
    #[arg(
        long = "color",
        value_name = "auto|always|never",
        value_enum,
        default_value = "auto",
        global = true,
        hide_possible_values = true,
        hide_default_value = true
    )]
    pub(crate) colour: When,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Train a job on this machine, and on machines that join by hand
    Run(Box<run::RunArguments>),
    /// Measure a job on one worker, for `predict` and `plan`
    Profile(profile::ProfileArguments),
    /// Predict the throughput of other configurations from a profile
    Predict(predict::PredictArguments),
    /// Fit models to what was measured: tables, runs and profiles, for `predict` and `simulate`
    Fit(fit::FitArguments),
    /// Choose the machines for a job from a price catalogue, by deadline and budget
    Plan(plan::PlanArguments),
    /// Choose the cheapest cluster and policy that hold a service level for a workload, from a price catalogue
    Capacity(Box<capacity::CapacityArguments>),
    /// Find out, by training a recurring job again and again, how it is trained best
    Tune(tune::TuneArguments),
    /// Search for an architecture with the weights of a supernet, one-shot or few-shot
    Nas(nas::NasArguments),
    /// Search for the best values of a job's keys: many trials, of which the promising ones grow
    Sweep(sweep::SweepArguments),
    /// Run a trace of jobs on a simulated cluster under any scheduling policies
    Simulate(simulate::SimulateArguments),
    /// Show where a GPU puts the thread blocks of kernels that run side by side, and what that costs them
    Place(place::PlaceArguments),
    /// Explain the scheduling policies
    Policies(policies::PoliciesArguments),
    /// Describe a trace of jobs, or draw one from a generator
    Trace(trace::TraceArguments),
    /// Find out whether datacenters should share, how much, and who pays whom
    Federate(federate::FederateArguments),
    /// Share this machine among many jobs under any policy, with an HTTP API and a dashboard
    Serve(serve::ServeArguments),
    /// Learn the size of the job on standard input, for a daemon
    #[command(hide = true)]
    Describe(describe::DescribeArguments),
    /// Join a run as a worker
    Worker(worker::WorkerArguments),
    /// Join a run as a parameter server
    Server(server::ServerArguments),
    /// Give jobs to a daemon (`bellwether serve`), which runs them as its policy says
    Submit(client::SubmitArguments),
    /// List jobs, the newest last
    Jobs(client::JobsArguments),
    /// Show all that is known of a job: how far it is, or its result
    #[command(alias = "job")]
    Show(client::JobArguments),
    /// Print what happened in a job and what its processes said
    Logs(client::LogsArguments),
    /// Stop jobs, each with a checkpoint; they wait until they are resumed
    #[command(alias = "suspend")]
    Stop(client::ActArguments),
    /// Let stopped jobs go on: a daemon's in the background, a run by hand here
    Resume(client::ActArguments),
    /// End a daemon's jobs for good
    Cancel(client::ActArguments),
    /// Remove jobs that are not running, with their folders
    Rm(client::RmArguments),
    /// Print an address that opens a daemon's dashboard in a browser, once
    Dashboard(client::DashboardArguments),
    /// Show or change the policy by which a daemon decides
    Policy(client::PolicyArguments),
    /// Show or choose the queues that divide a daemon's slots
    Queues(client::QueuesArguments),
    /// Show who may ask a daemon, let users in and take their tokens back
    Users(client::UsersArguments),
    /// Change the number of workers of a job
    Scale(client::ScaleArguments),
    /// Follow a job until it ends
    Watch(client::JobArguments),
    /// List the machines that runs hold of a provider, and what they cost; give back those whose run is gone
    Machines(machines::MachinesArguments),
    /// Prove from a run's journal that each sample was in exactly one committed step
    Audit(audit::AuditArguments),
    /// Print the JSON schema of a file format
    Schema(schema::SchemaArguments),
    /// Write learning curves or weights for other programs: CSV, TensorBoard, safetensors
    Export(export::ExportArguments),
    /// Measure a trained model on held-out samples: loss, accuracy and classes, with intervals
    Evaluate(evaluate::EvaluateArguments),
    /// Apply a trained model to rows, by workers that may come and go
    Infer(infer::InferArguments),
    /// Write a job file to begin with, for the digits or for a CSV file of your own
    Init(init::InitArguments),
    /// Find out whether this machine can train, and what to do where it cannot
    Doctor(doctor::DoctorArguments),
    /// Print a script that lets a shell complete commands
    Completions(completions::CompletionsArguments),
    /// Write the manual's pages
    #[command(hide = true)]
    Man(completions::ManArguments),
    /// Say which program this is, with the kernels that decide bits
    Version(version::VersionArguments),
}

/// Carries out the verb.
pub(crate) fn dispatch(arguments: Arguments, printer: &Printer) -> Result<ExitCode, Failure> {
    match arguments.verb {
        Verb::Run(arguments) => run::run(*arguments, printer),
        Verb::Predict(arguments) => predict::predict(&arguments, printer),
        Verb::Fit(arguments) => fit::fit(&arguments, printer),
        Verb::Place(arguments) => place::place(&arguments, printer),
        Verb::Plan(arguments) => plan::plan(&arguments, printer),
        Verb::Capacity(arguments) => capacity::capacity(&arguments, printer),
        Verb::Profile(arguments) => profile::profile(&arguments, printer),
        Verb::Simulate(arguments) => simulate::simulate(&arguments, printer),
        Verb::Policies(arguments) => policies::policies(&arguments, printer),
        Verb::Trace(arguments) => trace::trace(&arguments, printer),
        Verb::Federate(arguments) => federate::federate(&arguments, printer),
        Verb::Tune(arguments) => tune::tune(&arguments, printer),
        Verb::Nas(arguments) => nas::nas(&arguments, printer),
        Verb::Sweep(arguments) => sweep::sweep(&arguments, printer),
        Verb::Serve(arguments) => serve::serve(arguments, printer),
        Verb::Describe(arguments) => describe::describe(&arguments, printer),
        Verb::Worker(arguments) => worker::worker(arguments, printer),
        Verb::Server(arguments) => server::server(arguments, printer),
        Verb::Submit(arguments) => client::submit(&arguments, printer),
        Verb::Jobs(arguments) => client::jobs(&arguments, printer),
        Verb::Show(arguments) => client::show(&arguments, printer),
        Verb::Logs(arguments) => client::logs(&arguments, printer),
        Verb::Stop(arguments) => act(client::Act::Suspend, arguments, printer),
        Verb::Resume(arguments) => act(client::Act::Resume, arguments, printer),
        Verb::Cancel(arguments) => act(client::Act::Cancel, arguments, printer),
        Verb::Rm(arguments) => client::rm(&arguments, printer),
        Verb::Dashboard(arguments) => client::dashboard(&arguments, printer),
        Verb::Policy(arguments) => client::policy(&arguments, printer),
        Verb::Queues(arguments) => client::queues(&arguments, printer),
        Verb::Users(arguments) => client::users(&arguments, printer),
        Verb::Scale(arguments) => client::scale(&arguments, printer),
        Verb::Watch(arguments) => client::watch(&arguments, printer),
        Verb::Machines(arguments) => machines::machines(arguments, printer),
        Verb::Audit(arguments) => audit::audit(&arguments, printer),
        Verb::Schema(arguments) => schema::schema(&arguments, printer),
        Verb::Export(arguments) => export::export(&arguments, printer),
        Verb::Evaluate(arguments) => evaluate::evaluate(&arguments, printer),
        Verb::Infer(arguments) => infer::infer(&arguments, printer),
        Verb::Init(arguments) => init::init(&arguments, printer),
        Verb::Doctor(arguments) => doctor::doctor(&arguments, printer),
        Verb::Completions(arguments) => {
            Ok(completions::completions(&arguments, Arguments::command(), printer))
        }
        Verb::Man(arguments) => completions::man(&arguments, Arguments::command()),
        Verb::Version(arguments) => Ok(version::version(&arguments, printer)),
    }
}

/// Changes jobs. A run by hand that goes on does so in this process, as `bellwether run --resume` has it.
fn act(act: client::Act, arguments: client::ActArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    match client::act(act, &arguments, printer)? {
        client::Left::Nothing(code) => Ok(code),
        client::Left::Resume(run) => run::resume(&run, arguments.daemon.state, printer),
    }
}
