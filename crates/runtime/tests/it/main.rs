//! Tests of elastic training: seeded simulations of the protocols, the data plane between threads, and files.

mod booting;
mod digests;
mod files;
mod flood;
mod gossip;
mod membership;
mod noise;
mod notices;
mod optimizer;
mod parameters;
mod phase;
mod phases;
mod slices;
mod wire;
mod work_queue;
