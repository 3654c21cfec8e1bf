//! Which cluster, under which policy, is the cheapest that holds a service level for a workload.
//!
//! What a cluster comes to is found out by simulation, which this crate does not know: an [`Oracle`] says it.
//!
//! - [`objective`]: service levels, such as `p95 completion < 2h`;
//! - [`grid`]: the clusters that a catalogue allows;
//! - [`bounds`]: what no policy can beat on any cluster of some size;
//! - [`search`]: the cheapest candidate, without a look at most of them.
//!
//! Pruning is exact: a candidate is left out only where a bound proves that it cannot be the answer. Nothing here takes
//! for granted that more machines serve better, which is wrong under some policies.

pub mod bounds;
pub mod grid;
pub mod objective;
pub mod search;

pub use grid::{Grid, Part, Wishes};
pub use objective::{Comparison, Figure, Limit, Objective, Statistic};
pub use search::{Counts, Measured, Oracle, Outcome, Search};
