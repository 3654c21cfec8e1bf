//! Parameter servers in one process: the same bits as a sum at one place, each gradient once, orders on the wire, replicas.

#[path = "parameters/faults.rs"]
mod faults;
#[path = "parameters/harness.rs"]
mod harness;
#[path = "parameters/orders.rs"]
mod orders;
#[path = "parameters/replica.rs"]
mod replica;
#[path = "parameters/rules.rs"]
mod rules;
#[path = "parameters/wire.rs"]
mod wire;
