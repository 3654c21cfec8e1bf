//! Parameter servers in one process: the same bits as a sum at one place, each gradient once, orders on the wire,
//! replicas.

mod faults;
mod harness;
mod orders;
mod replica;
mod rules;
mod wire;
