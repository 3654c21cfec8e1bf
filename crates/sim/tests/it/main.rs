//! Tests of the simulated cluster, of traces, and of policies that are driven through it.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "these are tests, helpers included")]

mod gavel_trace;
mod outlook;
mod packing;
mod policies;
mod pollux;
mod revocations;
mod shared_links;
mod trace;
mod workload;
mod workload_arrivals;
mod workload_describe;
