//! `bellwether server`: joins a run as a parameter server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use bellwether_core::InputError;
use bellwether_core::units::Seconds;
use bellwether_runtime::notice::Listening;
use bellwether_runtime::server::run;
use bellwether_runtime::worker::{Options, WorkerError};
use clap::Args;

use crate::colour::When;
use crate::failure::Failure;
use crate::options::host_and_port;
use crate::printer::Printer;
use crate::runs::read_token;
use bellwether_session::reachable;

#[derive(Debug, Args)]
pub(crate) struct ServerArguments {
    /// The coordinator of the run
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port)]
    pub(crate) join: String,
    /// File with the run's token
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: PathBuf,
    /// Address on which workers reach this server; anything but loopback must be asked for
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// How long to wait when the coordinator is gone
    #[arg(long, value_name = "TIME", default_value = "10min")]
    pub(crate) orphan_timeout: Seconds,
    /// Number that the coordinator gave to a server it started itself
    #[arg(long, hide = true, default_value_t = 0)]
    pub(crate) server_id: u64,
}

pub(crate) fn server(arguments: ServerArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    // What a coordinator's own servers say is in its log.
    let by_hand = arguments.server_id == 0;
    if by_hand {
        printer.note(format_args!("joins the run at {}", arguments.join));
    }
    reachable(arguments.listen)?;
    let options = Options {
        token: read_token(&arguments.token_file)?,
        coordinator: arguments.join.clone(),
        worker: arguments.server_id,
        listen: arguments.listen,
        orphan_timeout: Duration::from_secs_f64(arguments.orphan_timeout.get()),
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
