//! Performance models: what will a configuration cost, and how sure are we?
//!
//! One module per model; each header is its specification. A model is a plain function over numbers; it
//! reads no file and no clock, and knows no cluster and no policy.
//!
//! Parts of a step:
//!
//! - [`compute`]: computing, by batch and of the slowest worker;
//! - [`batch_times`]: a micro-batch by its size, from a few sizes that were measured;
//! - [`collective`]: an all-reduce, and how much of it the backward pass hides.
//!
//! Whole steps:
//!
//! - [`phase`]: synchronous steps and gossip, phase after phase;
//! - [`queueing`]: asynchronous steps through servers, as a closed network;
//! - [`event`]: steps through servers, simulated operation by operation;
//! - [`predict`]: any configuration from the profile of one worker, by the models above;
//! - [`rescale`]: another number of workers, from the first steps of a run.
//!
//! Memory:
//!
//! - [`memory`]: of a worker, by its micro-batch and its virtual nodes.
//!
//! Whole runs:
//!
//! - [`hybrid`]: the time of a run whose protocol changes;
//! - [`staleness`]: how stale gradients are, and what that costs.
//!
//! Whole jobs, for schedulers:
//!
//! - [`early_end`]: jobs that end before their nominal work is done;
//! - [`speedup`]: a declared law of the number of devices;
//! - [`throughput_table`]: measured tables by type of job, type of device and count;
//! - [`elastic::jobs`]: measured applications whose batch may change, believed and true;
//! - [`profiles`]: profiles by name;
//! - [`observed`]: what was measured while jobs ran, and what follows from it;
//! - [`colocation`]: what two jobs lose that share a device;
//! - [`shared_links`]: what jobs lose whose exchanges go over the same links;
//! - [`biased`]: any of them with a known error;
//! - [`named`]: all of them by the words of a command line.
//!
//! Blocks of kernels that share a GPU:
//!
//! - [`gpu`]: where they are placed, by whose rules, and what that costs.
//!
//! Servers that may vanish:
//!
//! - [`transient`]: their lifetimes, checkpoints, finish time and cost of a job on them.
//!
//! From data to models:
//!
//! - [`calibrate`]: measured throughput, synchronous or asynchronous, to parameters and intervals;
//! - [`scaling`]: synchronous training on counts of devices that were not measured, from a handful that were;
//! - [`elastic`]: throughput at any batch, and goodput;
//! - [`convergence`]: the training that a target loss takes;
//! - [`regression`]: step and checkpoint times of a network that was never run.
//!
//! From traces to profiles:
//!
//! - [`import`]: what the profilers of PyTorch and TensorFlow write.
//!

pub mod batch_times;
pub mod biased;
pub mod calibrate;
pub mod collective;
pub mod colocation;
mod common;
pub mod compute;
pub mod convergence;
pub mod early_end;
pub mod elastic;
pub mod event;
pub mod gpu;
pub mod hybrid;
pub mod import;
pub mod memory;
pub mod named;
pub mod observed;
pub mod phase;
pub mod predict;
pub mod profiles;
pub mod queueing;
pub mod regression;
pub mod rescale;
pub mod scaling;
pub mod shared_links;
pub mod speedup;
pub mod staleness;
pub mod throughput_table;
pub mod transient;
