//! Decisions: who runs where, on how many devices.
//!
//! Nothing here reads a file or a clock, and nothing here knows whether the cluster is a simulated one.
//!
//! - [`policy`]: the policies, a file each;
//! - [`registry`]: the policies that can be named, those of one's own too;
//! - [`drive`]: the loop that asks a policy and hands its decisions to a backend;
//! - [`autoscale`]: how many workers one job that runs should have;
//! - [`plan`]: which machines one job should have, at a price, on servers that may vanish;
//! - [`capacity`]: which cluster is the cheapest that holds a service level for many jobs;
//! - [`batch`]: how large the batch of one job that runs should be;
//! - [`mapping`]: how many virtual nodes each worker runs, when some are faster;
//! - [`stragglers`]: which workers are slow for no known reason, and when to replace them;
//! - [`synchronise`]: when the workers of one job that runs wait for each other, and for whom they no longer do;
//! - [`evolution`]: which architecture of a space is best, by asking for the score of one after another;
//! - [`fleet`]: which machines one run asks for and gives back, whatever becomes of them;
//! - [`promise`]: how likely one run keeps its deadline and its budget, and which machines would keep them;
//! - [`tune`]: which share of a job's steps has to be synchronous, found by training it again and again;
//! - [`search`]: which values of its keys a job is tried with, and which trials go on;
//! - [`options`]: what stands after the colon of a policy's name.
//!
//! What policies share:
//!
//! - [`free_devices`]: which nodes a gang is placed on;
//! - [`decision_builder`]: a decision while it is being made;
//! - [`greedy`]: gangs in an order of preference: each that still fits runs;
//! - [`allocation`]: from how many devices each job is to hold to a decision;
//! - [`queues`]: a guaranteed share for each group of jobs, around any policy;
//! - [`enforce_limits`]: what a job may not hold is taken from it before a policy is asked;
//! - [`packing`]: which two jobs may share devices;
//! - [`speed`]: how fast a job would be, remembered by kind of job;
//! - [`curve`]: what a job makes of few and of many devices;
//! - [`program`]: linear and integer programs;
//! - [`goodput`]: a cluster shared so that speed-ups are fair and large.

pub mod allocation;
pub mod autoscale;
pub mod batch;
pub mod bottleneck;
pub mod capacity;
pub mod curve;
pub mod decision_builder;
pub mod drive;
pub mod enforce_limits;
pub mod evolution;
pub mod fleet;
pub mod free_devices;
pub mod goodput;
pub mod greedy;
pub mod mapping;
pub mod options;
pub mod packing;
pub mod plan;
pub mod policy;
pub mod program;
pub mod promise;
pub mod queues;
pub mod registry;
pub mod search;
pub mod shares;
pub mod speed;
pub mod stragglers;
pub mod synchronise;
pub mod tune;
