//! A sweep: many trials of one job, of which the promising ones grow and the others wait or end.
//!
//! ```text
//!  evaluations of runs ──► facts ──► ledger ──► State (a fold) ──► next decision ──► ledger
//!                                                  │
//!                                                  └──► what each job should be ──► engine: submit, limit, suspend …
//! ```
//!
//! A fact or decision is on disk before anything follows from it, and what each job should be follows from the state
//! alone and is asked again until it is so. So a sweep that was killed goes on where it was: nothing is lost, and
//! nothing is done twice. A trial is a job of an engine, in this process or in a daemon; that it waits, moves or has
//! another number of workers changes no bit of what is trained.

mod drive;
pub mod jobs;
pub mod ledger;
mod measure;
pub mod state;
mod submission;
mod summary;

pub use drive::{Drive, Means, SweepError, Told};
pub use jobs::{Act, Embedded, Jobs, Room, Trouble};
pub use ledger::Predicted;
pub use measure::{Measured, measure};
pub use state::{Progress, State};
pub use submission::Laid;
pub use summary::{Summary, TrialSummary};
