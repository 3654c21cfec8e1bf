//! Parameter servers in one process: the same bits as a sum at one place, each gradient once, orders on the wire, replicas.

#[path = "parameters/harness.rs"]
mod harness;
#[path = "parameters/rules.rs"]
mod rules;
