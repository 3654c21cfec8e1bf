//! Tickets: what a job of Slurm's that begins is told.
//!
//! A job may wait for hours, and its coordinator may have died and come back elsewhere meanwhile. So its script names
//! a file, its ticket, which says where the coordinator is and which worker the job is, and which the coordinator may
//! write again for as long as the job waits.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use bellwether_core::InputError;
use bellwether_runtime::checkpoint::write_atomically;
use serde::{Deserialize, Serialize};

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
        let place = || path.display().to_string();
        let length = fs::metadata(path).map_err(|e| InputError::new(place(), e.to_string()))?.len();
        if length > BYTES_MAX {
            return Err(InputError::new(place(), "it is too long to be a ticket"));
        }
        let text = fs::read(path).map_err(|e| InputError::new(place(), e.to_string()))?;
        let ticket = serde_json::from_slice::<Ticket>(&text).ok();
        ticket.filter(|ticket| ticket.join.parse::<SocketAddr>().is_ok()).ok_or_else(|| {
            InputError::new(place(), "it is not a ticket").hint("only coordinators write them")
        })
    }

    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        let text = serde_json::to_vec(self).expect("a ticket is plain data");
        write_atomically(&path.with_extension("part"), path, &text)
    }
}

/// The tickets of a run.
#[derive(Debug)]
pub(super) struct Tickets {
    folder: PathBuf,
    last: u64,
}

impl Tickets {
    /// Those in this folder, which need not be there yet.
    pub(super) fn of(folder: PathBuf) -> Tickets {
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        let numbers = entries.filter_map(|entry| entry.path().file_stem()?.to_str()?.parse().ok());
        Tickets { last: numbers.max().unwrap_or(0), folder }
    }

    /// The number of a further one.
    pub(super) fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Whether none was ever given.
    pub(super) fn is_empty(&self) -> bool {
        self.last == 0
    }

    /// No number up to this one is given again.
    pub(super) fn skip(&mut self, number: u64) {
        self.last = self.last.max(number);
    }

    pub(super) fn file(&self, number: u64) -> PathBuf {
        self.folder.join(format!("{number}.json"))
    }

    pub(super) fn write(&self, number: u64, ticket: &Ticket) -> io::Result<()> {
        bellwether_runtime::private::folder(&self.folder)?;
        ticket.write(&self.file(number))
    }

    pub(super) fn remove(&self, number: u64) {
        // One that stays is read by no job.
        let _ = fs::remove_file(self.file(number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_are_read_as_they_were_written_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let mut tickets = Tickets::of(folder.path().join("slurm"));
        let ticket = Ticket { join: "10.0.0.1:7000".into(), number: 3 };
        assert_eq!(tickets.next(), 1);
        tickets.write(1, &ticket).unwrap();
        assert_eq!(Ticket::read(&tickets.file(1)), Ok(ticket));
        assert_eq!(Tickets::of(folder.path().join("slurm")).next(), 2);
        for text in ["", "{}", "{\"join\":\"everywhere\",\"number\":1}", &"x".repeat(5000)] {
            fs::write(tickets.file(1), text).unwrap();
            assert!(Ticket::read(&tickets.file(1)).is_err(), "{text:.20}");
        }
        tickets.remove(1);
        assert!(Ticket::read(&tickets.file(1)).is_err());
    }
}
