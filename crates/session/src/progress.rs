//! What the caller that begins a run hears of it while it goes on.

use std::net::SocketAddr;
use std::path::PathBuf;

use bellwether_runtime::coordinator::Observation;
use bellwether_runtime::run_dir::{RunDir, RunDirError};

/// Hears what happens. It is called on other threads; however long it takes, the run goes on.
pub type Observe<'o> = dyn FnMut(Progress<'_>) + Send + 'o;

/// What happens.
#[derive(Debug)]
pub enum Progress<'a> {
    /// Something that its caller should know.
    Note(Note),
    /// The run has its folder; it is coordinated from now on.
    Begins(&'a RunDir),
    /// The coordinator shows what happens.
    Observed(Observation<'a>),
    /// No coordinator leads the run any more.
    Ends,
}

/// Something that the caller of a run or a measurement should know.
#[derive(Debug)]
pub enum Note {
    /// The run's token file held no token, as after a power cut; the run has a new one, in this file.
    NewToken(PathBuf),
    /// The scheduled numbers of workers of the run that is taken up are lost.
    ScheduleLost(RunDirError),
    /// A measurement begins with one worker.
    OneWorker {
        /// Steps that do not count.
        warm_up: u64,
        /// Steps to measure.
        steps: u64,
    },
    /// It goes on with two workers, for as many steps again.
    TwoWorkers,
    /// It goes on with one worker and another batch.
    OneBatch {
        /// Samples of a step.
        batch: u64,
        /// Steps to measure.
        steps: u64,
    },
    /// A measurement begins with one worker and one server.
    OneServer {
        /// Updates that do not count.
        warm_up: u64,
        /// Updates to measure.
        updates: u64,
    },
    /// What was measured is over; in a run of its own a script's framework records some steps by its own profiler.
    Tracing {
        /// Steps that are not recorded.
        warm_up: u64,
        /// Steps to record.
        steps: u64,
    },
    /// What the cluster does on whose nodes a measurement's workers run.
    Cluster(String),
    /// The user should start this by hand now.
    Invitation {
        /// What.
        role: Role,
        /// The coordinator that it joins.
        control: SocketAddr,
        /// File with the run's token.
        token_file: PathBuf,
    },
}

/// What takes part in a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The only worker.
    Worker,
    /// A second worker.
    Peer,
    /// A parameter server.
    Server,
}
