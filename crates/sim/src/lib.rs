//! The simulated cluster: what policies decide is carried out here, with what is true.
//!
//! - [`cluster`]: the machines, from a file or a few words;
//! - [`trace`]: the jobs;
//! - [`workload`]: generators of traces, and what a trace is like;
//! - [`world`]: the cluster as a [`Backend`](bellwether_core::policy::Backend);
//! - [`report`]: what a simulation says of a policy.

pub mod cluster;
pub mod report;
pub mod spans;
pub mod trace;
pub mod workload;
pub mod world;
