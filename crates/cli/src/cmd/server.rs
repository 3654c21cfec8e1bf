//! `bellwether server`: joins a run as a parameter server.

use std::process::ExitCode;
use std::time::Duration;

use bellwether_core::InputError;
use bellwether_runtime::notice::Listening;
use bellwether_runtime::server::run;
use bellwether_runtime::worker::{Options, WorkerError};

use crate::args::ServerArguments;
use crate::failure::Failure;
use crate::printer::Printer;
use crate::runs::read_token;

pub(crate) fn server(arguments: ServerArguments) -> Result<ExitCode, Failure> {
    super::run::reachable("--listen", arguments.listen)?;
    let options = Options {
        token: read_token(&arguments.token_file)?,
        coordinator: arguments.join.clone(),
        worker: arguments.server_id,
        listen: arguments.listen,
        orphan_timeout: Duration::from_secs_f64(arguments.orphan_timeout.get()),
        notices: Listening {
            sources: Vec::new(),
            interval: Duration::from_secs(5),
            log: |line| Printer::new().note(line),
        },
    };
    match run(options) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(WorkerError::Refused(why)) => Err(InputError::new("this server was refused", why).into()),
        Err(error @ WorkerError::Orphaned(_)) => Err(Failure::No(error.to_string())),
        Err(error) => Err(Failure::at("server", error)),
    }
}
