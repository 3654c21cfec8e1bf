//! The programs inside pods as processes on addresses of this machine, and an operator's exchange in this process.
//!
//! They start the command `bellwether` that lies beside the operator's program: `cargo build --release -p
//! bellwether-cli` makes it.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "these are tests")]

#[path = "pods/cluster.rs"]
mod cluster;
#[path = "pods/groups.rs"]
mod groups;
#[path = "pods/losses.rs"]
mod losses;
#[path = "pods/members.rs"]
mod members;
