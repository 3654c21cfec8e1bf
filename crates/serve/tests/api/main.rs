//! The HTTP API over an engine that only keeps a table: what it answers, and that it lives through anything.

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
