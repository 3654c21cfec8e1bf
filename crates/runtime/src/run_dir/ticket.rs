//! Tickets: what a job of a cluster is told when it begins, and again whenever its coordinator is gone.
//!
//! A job may wait for hours, and its coordinator may have died and come back elsewhere meanwhile. So its script names
//! a file, its ticket, which says where the coordinator is and which worker the job is. The coordinator writes it again
//! while the job waits, and the next one while it runs.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use bellwether_core::InputError;
use serde::{Deserialize, Serialize};

use crate::checkpoint::write_atomically;

/// Bytes of a ticket that are read at most.
const BYTES_MAX: u64 = 4096;

/// What a job is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticket {
    /// The coordinator: `HOST:PORT`.
    pub join: String,
    /// The number of the worker, or of the parameter server.
    pub number: u64,
}

impl Ticket {
    /// Reads one.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or holds something else.
    pub fn read(path: &Path) -> Result<Ticket, InputError> {
        let wrong = |what: String| InputError::new(path.display().to_string(), what);
        let length = fs::metadata(path).map_err(|e| wrong(e.to_string()))?.len();
        if length > BYTES_MAX {
            return Err(wrong("it is too long to be a ticket".into()));
        }
        let text = fs::read(path).map_err(|e| wrong(e.to_string()))?;
        Ticket::parse(&text)
            .ok_or_else(|| wrong("it is not a ticket".into()).hint("only coordinators write them"))
    }

    /// The ticket that is written like this; `None` where it is none.
    pub fn parse(text: &[u8]) -> Option<Ticket> {
        let ticket = serde_json::from_slice::<Ticket>(text).ok();
        ticket.filter(|ticket| ticket.join.parse::<SocketAddr>().is_ok())
    }

    /// Writes it, at once or not at all.
    ///
    /// # Errors
    ///
    /// As the file system says.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let text = serde_json::to_vec(self).expect("a ticket is plain data");
        write_atomically(&path.with_extension("part"), path, &text)
    }
}

/// Where the coordinator of a run is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoordinatorAddress {
    address: String,
    ticket: Option<PathBuf>,
}

impl CoordinatorAddress {
    /// At `HOST:PORT`, and the next coordinator will be there, too.
    pub fn fixed(address: impl Into<String>) -> CoordinatorAddress {
        CoordinatorAddress { address: address.into(), ticket: None }
    }

    /// Where this ticket says, which is read again whenever the coordinator is looked for.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be read now.
    pub fn told(ticket: PathBuf) -> Result<CoordinatorAddress, InputError> {
        Ok(CoordinatorAddress { address: Ticket::read(&ticket)?.join, ticket: Some(ticket) })
    }

    /// `HOST:PORT`, as far as is known now: where a ticket cannot be read it is what it said first.
    pub fn now(&self) -> String {
        let told = self.ticket.as_deref().and_then(|file| Ticket::read(file).ok());
        told.map_or_else(|| self.address.clone(), |ticket| ticket.join)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_are_read_as_they_were_written_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("1.json");
        let ticket = Ticket { join: "10.0.0.1:7000".into(), number: 3 };
        ticket.write(&file).unwrap();
        assert_eq!(Ticket::read(&file), Ok(ticket));
        for text in ["", "{}", "{\"join\":\"everywhere\",\"number\":1}", &"x".repeat(5000)] {
            fs::write(&file, text).unwrap();
            assert!(Ticket::read(&file).is_err(), "{text:.20}");
        }
    }

    #[test]
    fn a_coordinator_that_moves_is_found_by_the_ticket() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("1.json");
        let at = |join: &str| Ticket { join: join.into(), number: 1 }.write(&file).unwrap();
        at("10.0.0.1:7000");
        let address = CoordinatorAddress::told(file.clone()).unwrap();
        at("10.0.0.2:7000");
        assert_eq!(address.now(), "10.0.0.2:7000");
        fs::remove_file(&file).unwrap();
        assert_eq!(address.now(), "10.0.0.1:7000");
        assert!(CoordinatorAddress::told(file).is_err());
    }
}
