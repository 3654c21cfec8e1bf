//! One file per verb.

use std::process::ExitCode;

use crate::args::{Arguments, Verb};
use crate::failure::Failure;
use crate::printer::Printer;

mod audit;
pub(crate) mod client;
mod control;
mod describe;
pub(crate) mod federate;
pub(crate) mod models;
pub(crate) mod place;
pub(crate) mod plan;
pub(crate) mod policies;
mod predict;
pub(crate) mod profile;
pub(crate) mod run;
mod schema;
pub(crate) mod serve;
mod server;
pub(crate) mod simulate;
pub(crate) mod trace;
pub(crate) mod tune;
mod worker;

/// Carries out the verb.
pub(crate) fn dispatch(arguments: Arguments, printer: &Printer) -> Result<ExitCode, Failure> {
    match arguments.verb {
        Verb::Run(arguments) => run::run(*arguments, printer),
        Verb::Predict(arguments) => predict::predict(&arguments, printer),
        Verb::Place(arguments) => place::place(&arguments, printer),
        Verb::Plan(arguments) => plan::plan(&arguments, printer),
        Verb::Profile(arguments) => profile::profile(&arguments, printer),
        Verb::Simulate(arguments) => simulate::simulate(&arguments, printer),
        Verb::Policies(arguments) => policies::policies(&arguments, printer),
        Verb::Trace(arguments) => trace::trace(&arguments, printer),
        Verb::Federate(arguments) => federate::federate(&arguments, printer),
        Verb::Tune(arguments) => tune::tune(&arguments, printer),
        Verb::Serve(arguments) => serve::serve(arguments, printer),
        Verb::Describe(arguments) => describe::describe(&arguments, printer),
        Verb::Worker(arguments) => worker::worker(arguments),
        Verb::Server(arguments) => server::server(arguments),
        Verb::Submit(arguments) => client::submit(&arguments, printer),
        Verb::Jobs(arguments) => client::jobs(&arguments, printer),
        Verb::Job(arguments) => client::job(&arguments, printer),
        Verb::Logs(arguments) => client::logs(&arguments, printer),
        Verb::Suspend(arguments) => client::act(client::Act::Suspend, &arguments, printer),
        Verb::Resume(arguments) => client::act(client::Act::Resume, &arguments, printer),
        Verb::Cancel(arguments) => client::act(client::Act::Cancel, &arguments, printer),
        Verb::Dashboard(arguments) => client::dashboard(&arguments, printer),
        Verb::Policy(arguments) => client::policy(&arguments, printer),
        Verb::Scale(arguments) => client::scale(&arguments, printer),
        Verb::Stop(arguments) => control::stop(&arguments, printer),
        Verb::Watch(arguments) => control::watch(&arguments, printer),
        Verb::Audit(arguments) => audit::audit(&arguments, printer),
        Verb::Schema(arguments) => schema::schema(&arguments, printer),
    }
}
