//! `serve`: what a daemon promises, with real processes: the simulator's decisions and times, nothing lost when it is
//! killed, and answers while many clients ask.

mod client;
mod kills;
mod load;
mod simulated;
pub(super) mod stage;

use clap::Args;
use serde_json::json;

use super::OutputArguments;
use super::report::Report;
use super::statistics::Dice;
use crate::failure::Failure;
use crate::printer::Printer;

#[derive(Debug, Args)]
pub(super) struct ServeArguments {
    /// Policies whose jobs are compared with their simulation
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', default_value = "fifo,hell,wfs")]
    policies: Vec<String>,
    /// Jobs under each policy
    #[arg(long, value_name = "N", default_value_t = 10)]
    jobs: u64,
    /// Factor on the steps of these jobs, and on the time between them: short jobs are mostly start and change
    #[arg(long, value_name = "FACTOR", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    length: u64,
    /// Times that the daemon is killed while jobs run
    #[arg(long, value_name = "N", default_value_t = 50)]
    kills: u64,
    /// Jobs that are submitted within 10 s
    #[arg(long, value_name = "N", default_value_t = 1000)]
    submissions: u64,
    #[command(flatten)]
    pub(super) output: OutputArguments,
}

pub(super) fn measure(arguments: &ServeArguments, printer: &Printer) -> Result<Report, Failure> {
    let settings = json!({
        "policies": arguments.policies, "jobs": arguments.jobs, "length": arguments.length, "kills": arguments.kills,
        "submissions": arguments.submissions, "slots": 4,
    });
    let mut report = Report::begin("serve", settings, &[]);
    let mut dice = Dice::new();
    for policy in arguments.policies.iter().filter(|policy| !policy.is_empty()) {
        printer.note(format_args!("{policy}: {} jobs on 4 slots", arguments.jobs));
        simulated::measure(&mut report, policy, arguments.jobs, arguments.length)?;
    }
    if arguments.kills > 0 {
        printer.note(format_args!("the daemon is killed {} times", arguments.kills));
        kills::measure(&mut report, arguments.kills, &mut dice)?;
    }
    if arguments.submissions > 0 {
        printer.note(format_args!("{} jobs are submitted in 10 s", arguments.submissions));
        load::measure(&mut report, arguments.submissions)?;
    }
    Ok(report)
}
