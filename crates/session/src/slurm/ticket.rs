//! The tickets of a run, by number.

use std::fs;
use std::io;
use std::path::PathBuf;

use bellwether_runtime::run_dir::{RunDir, Ticket};

/// The tickets of a run.
#[derive(Debug)]
pub(super) struct Tickets {
    folder: PathBuf,
    last: u64,
}

impl Tickets {
    /// Those of this run, which need not have been given any.
    pub(super) fn of(run: &RunDir) -> Tickets {
        let folder = run.tickets();
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
    fn no_number_is_given_twice() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDir::at(folder.path());
        let mut tickets = Tickets::of(&run);
        assert!(tickets.is_empty());
        assert_eq!(tickets.next(), 1);
        tickets.write(1, &Ticket { join: "10.0.0.1:7000".into(), number: 3 }).unwrap();
        assert_eq!(Tickets::of(&run).next(), 2);
        tickets.remove(1);
        assert!(Ticket::read(&tickets.file(1)).is_err());
    }
}
