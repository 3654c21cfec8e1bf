//! Decisions: who runs where, on how many devices.
//!
//! Nothing here reads a file or a clock, and nothing here knows whether the cluster is a simulated one.
//!
//! - [`drive`]: the loop that asks a policy and hands its decisions to a backend;

pub mod drive;
