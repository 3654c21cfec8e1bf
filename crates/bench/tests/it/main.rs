//! Tests of the measuring program from outside, small, with real processes of the command beside it.

#![allow(clippy::print_stderr, reason = "a test says which part it cannot try here")]

mod chaos;
mod hang;
mod harness;
mod members;
