//! The HTTP API over an engine that only keeps a table: what it answers, and that it lives through anything.
//!
//! In a process of its own: it measures the memory of its process, raises the limit of open files, and starts programs
//! that it has just written.

#![allow(clippy::unwrap_used, reason = "these are tests, helpers included")]

mod client;
mod contract;
mod doors;
mod fake;
mod limits;
mod loading;
mod schema;
mod statuses;
mod streams;
mod users;
