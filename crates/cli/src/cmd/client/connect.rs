//! The daemon that a user means, and what is said where it does not answer.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bellwether_client::{Client, ClientError, Endpoint, UNIX};
use bellwether_core::InputError;
use bellwether_serve::daemon::socket_file;

use super::args::DaemonArguments;
use crate::failure::Failure;
use crate::kubernetes;
use crate::printer::Printer;
use crate::runs::StateDir;

/// How long verbs that can do without a daemon wait for one.
const SHORT_PATIENCE: Duration = Duration::from_millis(500);

/// How long a daemon may be away while its jobs are followed: they go on without it.
const LONG_PATIENCE: Duration = Duration::from_secs(60);

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        let hint = match &error {
            ClientError::Refused { error, .. } => {
                let hint = error.hint.replace("GET /v1/jobs lists all", "`bellwether jobs` lists all jobs");
                return InputError { hint, ..error.clone() }.into();
            }
            ClientError::Silent { .. } if kubernetes::is_asked() => {
                "the program `bellwether-operator client` has ended before this command; try again"
            }
            ClientError::Silent { .. } => {
                "start one with `bellwether serve --policy srtf --slots 4`; --state-dir or --server says where to look"
            }
            ClientError::NotADaemon { .. } => "another program may have the port; --server names a daemon",
            ClientError::OtherVersion { .. } => "compare `bellwether --version` on both sides",
            ClientError::Distrusted { .. } => {
                "if the daemon has another certificate now, copy `.serve/connection.json` of its state directory again; \
                 if not, another program answers in its place, and has been told nothing"
            }
        };
        error.located().hint(hint).into()
    }
}

/// The daemon that the user means.
pub(super) fn find(arguments: &DaemonArguments, printer: &Printer) -> Result<Client, Failure> {
    let printer = *printer;
    Ok(Client::new(endpoint(arguments)?).on_wait(move |why| printer.note(why)))
}

/// The same, for verbs that follow jobs.
pub(super) fn find_patiently(arguments: &DaemonArguments, printer: &Printer) -> Result<Client, Failure> {
    Ok(find(arguments, printer)?.patient(LONG_PATIENCE))
}

/// The daemon that a verb can do without, if there are signs of one.
pub(super) fn look(arguments: &DaemonArguments, printer: &Printer) -> Result<Option<Client>, Failure> {
    let daemon = find(arguments, printer)?;
    match daemon.endpoint() {
        Endpoint::StateDir(folder) if !socket_file(folder).exists() => Ok(None),
        Endpoint::StateDir(_) => Ok(Some(daemon.patient(SHORT_PATIENCE))),
        _ => Ok(Some(daemon)),
    }
}

/// Whether it was named by its address, so that no state directory here is its own.
pub(super) fn is_remote(daemon: &Client) -> bool {
    !matches!(daemon.endpoint(), Endpoint::StateDir(_))
}

/// Its address, if it was named by one.
pub(super) fn url(daemon: &Client) -> Option<&str> {
    match daemon.endpoint() {
        Endpoint::Address(address) => Some(&address.url),
        _ => None,
    }
}

fn endpoint(arguments: &DaemonArguments) -> Result<Endpoint, Failure> {
    if arguments.kubernetes {
        return Ok(kubernetes::endpoint(arguments.namespace.as_deref())?);
    }
    let here = arguments.state.state_dir.is_some();
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !here && !value.is_empty());
    let server = arguments.server.clone().or_else(|| variable("BELLWETHER_SERVER"));
    let file = arguments.connection.clone();
    let file = file.or_else(|| variable("BELLWETHER_CONNECTION").map(PathBuf::from));
    match (server.as_deref(), file.as_deref()) {
        (Some(path), _) if path.starts_with(UNIX) => {
            Ok(Endpoint::Socket(Path::new(&path[UNIX.len()..]).into()))
        }
        (server, Some(file)) => Ok(Endpoint::from_connection_file(file, server, arguments.plain_http)?),
        (Some(url), None) => {
            let what = format!("nothing tells how to recognise the daemon at {url}");
            let hint = "copy the file `.serve/connection.json` of its state directory, and name it here or in BELLWETHER_CONNECTION";
            Err(InputError::new("--connection", what).hint(hint).into())
        }
        (None, None) => {
            let state = StateDir::find(arguments.state.state_dir.clone())?;
            Ok(Endpoint::StateDir(state.path().into()))
        }
    }
}
