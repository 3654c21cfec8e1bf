//! What the tests of several crates share: random numbers, a search through seeds, a metadata server that plays, a
//! small object store.

pub mod metadata_server;
mod random;
pub mod s3_server;
pub mod search;

pub use random::{Random, finalize};
