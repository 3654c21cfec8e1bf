//! Elastic training: workers join, leave, slow down and die between two steps, and the trained model is
//! the same, bit for bit.
//!
//! # What is promised
//!
//! 1. *The same bits.* Parameters after step t depend on the job (model, data, seed, global batch,
//!    virtual nodes, optimizer) and on the kernel class; not on the number of workers, their mapping to
//!    virtual nodes, or any resize, crash or restart.
//! 2. *The global batch never changes*, unless the job says that it may (mode `goodput`); then the same changes of the
//!    batch give the same bits.
//! 3. *A step is a transaction.* It commits on all members or is redone by those who remain; a committed
//!    step is never lost while one worker lives; a sample of an epoch is in exactly one committed step.
//! 4. *Resizing is not an interruption.* A newcomer boots, warms up and receives state while the others
//!    train; it takes its virtual nodes at a step boundary.
//! 5. *A crash costs at most the step in flight.* A broken connection is evidence at once.
//! 6. *No process joins without the job's token*, and no message is trusted for its length.
//!
//! # What it assumes
//!
//! - The workload keeps the laws of [`workload::Workload`]: its gradients are pure.
//! - All workers of a run are of one kernel class; others are refused.
//! - The machine's memory and the network do not change bits unnoticed (on one machine; between machines every record
//!   has a tag); [`verification`] looks for machines that do.
//! - The token's file is private. The network between machines need not be: see [`channel`].

pub mod append;
pub mod bfloat;
pub mod channel;
pub mod checkpoint;
pub mod collective;
pub mod control;
pub mod coordinator;
pub mod ending;
pub mod evaluation;
pub mod frame;
pub mod gossip;
pub mod inference;
pub mod journal;
pub mod listing;
pub mod membership;
pub mod mesh;
pub mod metrics;
pub mod noise;
pub mod notice;
pub mod objects;
pub mod optimizer;
pub mod order;
pub mod parameters;
pub mod private;
pub mod probe;
mod progress;
pub mod rounds;
pub mod run_dir;
pub mod server;
pub mod sharding;
pub mod slices;
pub mod state;
pub mod tail;
mod threads;
pub mod timed;
pub mod transfer;
pub mod tree;
pub mod verification;
mod whole;
pub mod worker;
pub mod workload;
