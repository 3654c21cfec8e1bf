//! `bellwether server`: joins a run as a parameter server.

use std::process::ExitCode;
use std::time::Duration;

use bellwether_core::InputError;
use bellwether_runtime::notice::Listening;
use bellwether_runtime::server::run;
use bellwether_runtime::worker::{Options, WorkerError};
use clap::Args;

use crate::colour::When;
use crate::failure::Failure;
use crate::join::JoinArguments;
use crate::printer::Printer;

#[derive(Debug, Args)]
pub(crate) struct ServerArguments {
    #[command(flatten)]
    pub(crate) join: JoinArguments,
    /// Number that the coordinator gave to a server it started itself
    #[arg(long, hide = true, default_value_t = 0)]
    pub(crate) server_id: u64,
}

pub(crate) fn server(arguments: ServerArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    // What a coordinator's own servers say is in its log.
    let joining = arguments.join.joining(arguments.server_id)?;
    let by_hand = joining.number == 0;
    if by_hand {
        printer.note(format_args!("joins the run at {}", joining.coordinator.now()));
    }
    let options = Options {
        token: arguments.join.token()?,
        coordinator: joining.coordinator,
        worker: joining.number,
        listen: joining.listen,
        orphan_timeout: Duration::from_secs_f64(arguments.join.orphan_timeout.get()),
        notices: Listening {
            sources: Vec::new(),
            interval: Duration::from_secs(5),
            log: |line| Printer::new(When::default()).note(line),
        },
        leashed: None,
    };
    match run(options) {
        Ok(()) => {
            if by_hand {
                printer.note("left the run: it has ended, or it goes on without this server");
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(WorkerError::Refused(why)) => Err(InputError::new("this server was refused", why).into()),
        Err(error @ WorkerError::Orphaned(_)) => Err(Failure::No(error.to_string())),
        Err(error) => Err(Failure::at("server", error)),
    }
}
