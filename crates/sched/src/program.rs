//! Linear and integer programs of scheduling, as functions of numbers: they know no cluster and no policy.
//!
//! All of them but one are one problem in disguise, that of [`grouped`](bellwether_numerics::grouped): each job takes
//! one of a few columns (or a mixture of them), every column takes something of a handful of types of device, and types
//! have capacities.
//!
//! - [`shares`]: which share of time each job should spend on each type (Gavel's programs);
//! - [`packed`]: the same of pairs of jobs that share devices, by a general solver;
//! - [`choice`]: which one configuration each job should have (Sia's program);
//! - `level`: the highest level that all jobs can have at once, by Newton's method over that program.

pub mod choice;
mod level;
pub mod packed;
pub mod shares;
