//! Tests of the command on a real Slurm of four nodes, which `cargo xtask slurm test` starts on this machine. Without
//! one they skip, and say so.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a test that skips says so")]

mod answers;
mod cluster;
#[path = "../cli/harness.rs"]
#[allow(dead_code, unused_imports, reason = "the other tests use the rest")]
mod harness;
mod jobs;
mod profiled;
mod provisioned;
mod served;
mod twenty;
