//! The module for Python without an interpreter: its rendezvous, what it compares, and its workload.
//!
//! The module itself can only be loaded by an interpreter, which resolves its symbols. So those of its files that know
//! no Python are compiled into this program too.

#![allow(clippy::unwrap_used, reason = "these are tests, helpers included")]
#![expect(dead_code, reason = "the module uses more of these files than their tests")]

#[path = "../../src/ask.rs"]
mod ask;
#[path = "../../src/declaration.rs"]
mod declaration;
#[path = "../../src/probe.rs"]
mod probe;
#[path = "../../src/workload.rs"]
mod workload;

mod asked;
mod declared;
mod fake;
mod probed;
