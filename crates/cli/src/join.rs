//! How a worker or a parameter server is told which run it joins.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use bellwether_core::units::Seconds;
use bellwether_core::{InputError, ParseError};
use bellwether_runtime::control::Token;
use bellwether_runtime::run_dir::{CoordinatorAddress, Ticket};
use bellwether_session::reachable;
use bellwether_session::slurm::route_to;
use clap::Args;

use crate::failure::Failure;
use crate::options::host_and_port;
use crate::runs::read_token;

#[derive(Debug, Args)]
pub(crate) struct JoinArguments {
    /// The coordinator of the run
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port, required_unless_present = "ticket")]
    join: Option<String>,
    /// File in which the coordinator says where it is, for a job that waits in a cluster's queue
    #[arg(long, value_name = "FILE", hide = true, conflicts_with = "join")]
    ticket: Option<PathBuf>,
    /// File with the run's token
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: PathBuf,
    /// Address on which others of the run reach this process; `auto` is the one by which it reaches the coordinator.
    /// Anything but loopback must be asked for
    #[arg(long, value_name = "HOST:PORT|auto", default_value = "127.0.0.1:0", value_parser = listen)]
    listen: Listen,
    /// How long to keep the state and wait when the coordinator is gone
    #[arg(long, value_name = "TIME", default_value = "10min")]
    pub(crate) orphan_timeout: Seconds,
}

/// Where a worker listens.
#[derive(Debug, Clone, Copy)]
enum Listen {
    Auto,
    At(SocketAddr),
}

fn listen(text: &str) -> Result<Listen, ParseError> {
    match text {
        "auto" => Ok(Listen::Auto),
        _ => text.parse().map(Listen::At).map_err(|_| {
            ParseError::new("address", text, "HOST:PORT with the address of an interface, or auto")
        }),
    }
}

/// What a process needs to join a run.
pub(crate) struct Joining {
    pub(crate) coordinator: CoordinatorAddress,
    /// The file that says where that is, of a job of a cluster.
    pub(crate) ticket: Option<PathBuf>,
    /// Its number; 0 where the coordinator did not start it.
    pub(crate) number: u64,
    pub(crate) listen: SocketAddr,
}

impl JoinArguments {
    /// Which run it joins, with the number that the command line gives it.
    ///
    /// # Errors
    ///
    /// A file that is not a ticket, an address that cannot be told to others.
    pub(crate) fn joining(&self, number: u64) -> Result<Joining, Failure> {
        let ticket = self.ticket.as_deref().map(|file| {
            // It is read again later, wherever the process is by then.
            std::path::absolute(file).map_err(|e| Failure::at(file.display().to_string(), e))
        });
        let ticket = ticket.transpose()?;
        let (coordinator, number) = match (&self.join, &ticket) {
            (Some(join), _) => (CoordinatorAddress::fixed(join), number),
            (None, Some(file)) => (CoordinatorAddress::told(file.clone())?, Ticket::read(file)?.number),
            (None, None) => return Err(Failure::at("--join", "no coordinator is named")),
        };
        let listen = match self.listen {
            Listen::At(address) => address,
            Listen::Auto => SocketAddr::new(self.own_address(&coordinator.now())?, 0),
        };
        reachable(listen)?;
        Ok(Joining { coordinator, ticket, number, listen })
    }

    fn own_address(&self, coordinator: &str) -> Result<IpAddr, InputError> {
        route_to(coordinator).map_err(|error| {
            InputError::new("--listen auto", format!("no way leads to {coordinator}: {error}"))
                .hint("name an address of this machine")
        })
    }

    /// The run's token.
    ///
    /// # Errors
    ///
    /// A file that cannot be read or holds none.
    pub(crate) fn token(&self) -> Result<Token, Failure> {
        Ok(read_token(&self.token_file)?)
    }
}
