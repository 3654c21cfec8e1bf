//! The HTTP API over an engine that only keeps a table: what it answers, and that it lives through anything.

mod client;
mod fake;
mod statuses;
mod streams;
