//! The simulated cluster: what policies decide is carried out here, with what is true.
//!
//! - [`cluster`]: the machines, from a file or a few words;
//! - [`trace`]: the jobs;
//! - [`workload`]: generators of traces, and what a trace is like;
//! - [`world`]: the cluster as a [`Backend`](bellwether_core::policy::Backend);
//! - [`report`]: what a simulation says of a policy;
//! - [`outlook`]: when the jobs of a living cluster may start and end.

pub mod cluster;
pub mod outlook;
pub mod report;
pub mod spans;
pub mod trace;
pub mod workload;
pub mod world;
