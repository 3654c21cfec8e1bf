//! What is said about the operator's copy.

use std::io;

use bellwether_runtime::run_dir::RunFile;

use crate::exchange::ClientError;

/// What the copier says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    /// The folder holds what the operator knows of the run.
    Ready,
    /// All was sent, or could not be within the time for that.
    Sent,
    /// Another pod leads the run.
    Replaced,
    /// The operator has other bytes of this file than those that lie here.
    Astray(RunFile),
}

/// Why files are sent no more.
pub(super) enum Fault {
    /// It may go well the next time.
    Passing(String),
    /// It never will.
    Lasting(Said),
}

impl From<ClientError> for Fault {
    fn from(error: ClientError) -> Fault {
        match error {
            ClientError::Replaced => Fault::Lasting(Said::Replaced),
            error => Fault::Passing(error.to_string()),
        }
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        Fault::Passing(error.to_string())
    }
}
