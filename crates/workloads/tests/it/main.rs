//! Tests of what is trained: gradients, laws, and training to an accuracy.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "these are tests, helpers included")]

mod common;
mod examples;
mod gradient;
mod laws;
mod reference;
