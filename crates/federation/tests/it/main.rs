//! Tests of federations: published figures, laws, and general solvers beside our own.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "these are tests, helpers included")]

mod answer;
mod chain;
mod golden;
mod laws;
mod markets;
mod queue_golden;
mod sharing;
mod simulation;
mod simulation_chain;
mod simulation_laws;
mod systems;
