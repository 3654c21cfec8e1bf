//! Tests of elastic training: seeded simulations of the protocols, the data plane between threads, and files.

mod clerk;
mod digests;
mod files;
mod flood;
mod gossip;
mod membership;
mod noise;
mod notices;
mod optimizer;
mod parameters;
mod stretch;
mod stretches;
mod wire;
