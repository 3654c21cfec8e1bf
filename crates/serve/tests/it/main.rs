//! Tests of the engine with processes that are played: case by case, and as histories from seeds.

#![allow(clippy::unwrap_used, reason = "these are tests, helpers included")]

mod compaction;
mod early_ends;
mod elsewhere;
mod engine;
mod histories;
mod nodes;
mod outlook;
mod queues;
mod users;
