//! Why a line of a ledger cannot be true.

use bellwether_core::cluster::{AllocationError, JobId};

use crate::machine::{MachineError, Slot};

/// Why a line of a ledger cannot be true after the lines before it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum LineError {
    /// The first line is another one than that which opens a ledger.
    #[error("the first line does not open a ledger")]
    NotOpened,
    /// A later line opens the ledger again.
    #[error("a ledger is opened twice")]
    OpenedTwice,
    /// The line says a time of the calendar, or a time scale, that cannot be.
    #[error("its clock makes no sense")]
    Clock,
    /// The line is earlier than the one before.
    #[error("time goes back from {from_s} to {to_s}")]
    TimeGoesBack {
        /// Time of the line before, in seconds.
        from_s: f64,
        /// Time of the line.
        to_s: f64,
    },
    /// The machine that the line describes cannot be.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The line is about a job that the ledger does not know.
    #[error("there is no job number {}", .0.0)]
    UnknownJob(JobId),
    /// Two lines give a job the same name or number.
    #[error("job `{name}` is submitted twice")]
    JobTwice {
        /// Its name.
        name: String,
    },
    /// A job holds devices that the machine does not have, or that another job holds.
    #[error("job `{name}` holds devices that are not there")]
    Devices {
        /// Its name.
        name: String,
    },
    /// The queues that the line describes cannot be those of this machine.
    #[error("{0}")]
    Queues(String),
    /// The job is not in a state in which this can happen.
    #[error("{0}")]
    Job(&'static str),
    /// A job that is suspended or has ended makes progress.
    #[error("job number {} makes progress, and is not there", .0.0)]
    Idle(JobId),
    /// Two jobs hold one slot.
    #[error("slot {} of node {} is held by jobs {} and {}", slot.index, slot.node.0, holders[0].0, holders[1].0)]
    SlotTwice {
        /// The slot.
        slot: Slot,
        /// The jobs.
        holders: [JobId; 2],
    },
    /// A decision gives a job what it may not hold.
    #[error("job number {} {error}", job.0)]
    Allocation {
        /// The job.
        job: JobId,
        /// Which rule is broken.
        error: AllocationError,
    },
    /// A decision names a job that it cannot be about.
    #[error("job number {} {what}", job.0)]
    Decision {
        /// The job.
        job: JobId,
        /// What is wrong, to be said after its name.
        what: &'static str,
    },
    /// The line belongs elsewhere in a ledger.
    #[error("{0}")]
    Misplaced(&'static str),
}

impl From<LineError> for String {
    /// For readers of ledgers whose errors are sentences.
    fn from(error: LineError) -> String {
        error.to_string()
    }
}
