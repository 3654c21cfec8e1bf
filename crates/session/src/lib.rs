//! Runs as values: a job is trained, measured or searched from a program of one's own.
//!
//! A [`Session`] gathers what a run needs and trains it: it starts workers (as processes or threads), steers
//! them, resizes them, replaces those that are lost, and returns what came of it. [`profile`] measures a job
//! for a moment, [`tune`] trains it again and again to find out how it is trained best.
//!
//! Nothing here reads a command line or prints: options are arguments, and what happens is told to a function
//! of the caller.
//!
//! ```no_run
//! use bellwether_core::{InputError, job::Job, parse};
//! use bellwether_runtime::workload::Workload;
//! use bellwether_session::{Session, Spawn};
//!
//! type Build = fn(&Job) -> Result<Box<dyn Workload>, InputError>;
//!
//! fn train(build: Build) -> Result<(), Box<dyn std::error::Error>> {
//!     let job = parse::job(&std::fs::read_to_string("job.toml")?, "job.toml", &[])?;
//!     let session = Session::builder(job).workload(build).workers(1..=4).spawn(Spawn::Threads);
//!     let (summary, outcome) = session.run(&mut |_| {})?;
//!     assert_eq!(outcome, bellwether_core::record::RunOutcome::Finished);
//!     assert!(summary.params_digest.is_some());
//!     Ok(())
//! }
//! ```

mod begin;
mod compare;
pub mod curves;
mod director;
pub mod doctor;
mod error;
pub mod export;
pub mod gpus;
mod initial;
pub mod kind;
mod logs;
pub mod machines;
mod metrics;
pub mod nas;
mod options;
mod outlook;
pub mod pressure;
pub mod process;
pub mod profile;
mod program;
mod programs;
mod progress;
mod run;
mod scratch;
pub mod script;
pub mod slurm;
mod spawn;
mod threads;
pub mod tune;
pub mod work;
mod workload;

pub use begin::planned::apply as apply_plan;
pub use director::autoscale::Autoscale;
pub use director::revocations::Vanishing;
pub use director::shares::Sharing;
pub use error::RunError;
pub use options::{Timeouts, reachable};
pub use outlook::Outlook;
pub use program::Program;
pub use progress::{Note, Observe, Progress, Role};
pub use run::Session;
pub use run::builder::Builder;
pub use spawn::Spawn;
use workload::WorkloadBuilder;
