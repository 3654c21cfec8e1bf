//! Tests of the `bellwether` command from outside: real processes, real signals, real sockets.
//!
//! Every test has folders of its own and ends only processes that it started. What is compared is what
//! happened, never how long it took; the generous time limits only turn a hang into a failure.

#![allow(clippy::print_stdout, reason = "a failed test tells its seed")]

mod applied;
mod asynchronous;
mod autoscale;
mod bad_input;
mod by_hand;
mod capacity;
mod checkpoints;
mod compaction;
mod coordinator;
mod crash;
mod custom;
mod descriptors;
mod disk;
mod door;
mod examples;
mod exchange_model;
mod federate;
mod first_steps;
mod fit;
mod frameworks;
mod goodput;
mod hangs;
mod harness;
mod jobs;
mod kinds;
mod links;
mod local_steps;
mod machines;
mod named_data;
mod nas;
mod notices;
mod one_world;
mod output;
mod pages;
mod pauses;
mod place;
mod plain_transport;
mod plan;
mod predict;
mod profile;
mod profiled;
mod random_schedule;
mod replay;
mod runner;
mod same_bits;
mod script;
mod serve_client;
mod served;
mod sharded;
mod signals;
mod simulate;
mod simulate_queues;
mod slices;
mod snapshots;
mod steered;
mod stop_rules;
mod strangers;
mod streamed;
mod sweep;
mod taken_up;
mod transient;
mod tune;
mod users;
mod verdicts;
mod verify;
mod wire;
