//! The words of the project: units, the job a user describes, and the records a run leaves.
//!
//! Nothing here reads a file, looks at a clock, starts a thread or draws a random number.
//! Every stage of the road (profile, model, plan, schedule, run, observe) speaks in these types.

mod boot;
pub mod check;
pub mod cluster;
pub mod deadline;
pub mod declared;
pub mod error;
pub mod fitted;
pub mod groups;
pub mod job;
pub mod knowledge;
pub mod lease;
pub mod machines;
pub mod mix;
pub mod nas;
pub mod outlook;
pub mod parse;
pub mod plan;
pub mod policy;
pub mod prediction;
pub mod profile;
pub mod queue;
pub mod record;
pub mod shards;
pub mod span;
mod spelling;
pub mod sweep;
pub mod tree;
pub mod units;
pub mod virtual_shards;
pub mod words;

pub use error::{InputError, InputErrorKind, ParseError, ParseErrorKind};
