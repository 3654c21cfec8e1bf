//! Tests of `serve` with real processes: the command is that of this crate.

#[path = "../cli/harness.rs"]
#[allow(dead_code, reason = "the tests of the other verbs use the rest")]
mod harness;
#[path = "../cli/jobs.rs"]
#[allow(dead_code, reason = "the tests of the other verbs use the rest")]
mod jobs;

mod crew;
