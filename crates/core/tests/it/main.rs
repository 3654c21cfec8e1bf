//! Tests of the words that all crates share, from outside.

mod job_file;
mod queue;
mod virtual_shards;
