//! Simulations: the jobs of a trace on a cluster, under any policy, with what is true of their speed and what the
//! policy believes of it.

pub use bellwether_answers::simulate::{
    Experiment, ExperimentError, Jobs, Outcome, PolicyResult, QueueReport, simulate,
};
pub use bellwether_sim::cluster::Cluster;
pub use bellwether_sim::report::{Report, report};
pub use bellwether_sim::trace::{self, Entry, Format, ReadOptions, Trace};
pub use bellwether_sim::workload::{self as generator, Workload as Generator, generate};
pub use bellwether_sim::world::{
    EarlyTermination, Failures, JobRecord, Knowledge, Outage, Recording, Revocations, Scenario, Span,
};

pub mod replay;
