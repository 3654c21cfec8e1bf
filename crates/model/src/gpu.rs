//! Where the thread blocks of a GPU go when kernels run side by side, and what that costs them.
//!
//! # Model
//!
//! ```text
//! room(s, k) = min over r of floor(free(s, r) / need(k, r))
//! ```
//!
//! over threads, warps (of 32 threads, rounded up block by block), block slots, registers (by warp, rounded up to the
//! grain) and shared memory (with the system's reserve, rounded up to the grain).
//!
//! - *Which launch*: those whose blocks are not all placed wait in the order of arrival (under `priority` by level
//!   first). Only the head of the queue places blocks; while none of its blocks fits, all wait. Blocks never move and
//!   are never interrupted, except by the turns of `time-slice`.
//! - *Where*: the multiprocessor with the most room, of equals the first in the device's order; the room is computed
//!   again after each choice. How many blocks a choice places is a property of the device: [`Issue`].
//! - *How fast*: each block uses shares of four resources ([`Demand`]): issue slots and L1 of its multiprocessor,
//!   memory and bus of the device. Launches take of them in the order in which they reached the device; a launch that
//!   gets less than it wants runs slower by that factor.
//! - Under [`Discipline::Leftover`] and [`Discipline::Priority`] all streams are of one process. In a process, a stream
//!   that runs ahead of the device fills the queue of launches, and then lets the others launch only when one of its
//!   own launches ends: [`Stream::run_ahead`].
//! - [`Discipline`]s differ in who shares a queue, and multiprocessors, with whom.
//!
//! Time is in microseconds throughout.
//!
//! # Source
//!
//! Gilman, Ogden, Guo and Walls, "Demystifying the Placement Policies of the NVIDIA GPU Thread Block Scheduler for
//! Concurrent Kernels", Performance 2020: leftover and most-room policies, precedence of earlier kernels. Gilman and
//! Walls, arXiv 2110.00459: turns, priorities and MPS. That a full queue of launches holds up other threads of the
//! process is reported in the vendor's forum (threads 68937 and 220629). The issue of two blocks at once was found in
//! the traces of `data/thread-blocks`.
//!
//! # Assumes
//!
//! - All registers of a multiprocessor are one pool. The hardware has four; with an odd number of registers per thread
//!   it may hold up to three warps fewer.
//! - Shared memory may take all that the device has; the split between it and L1 is not modelled.
//! - `mps`: a cap limits the multiprocessors on which a process holds blocks at a time, and what a process is denied by
//!   its cap does not hold up others. The vendor documents neither.
//! - `time-slice`: a process keeps its turn in the gaps between launches of a round, and loses it when its round ends.
//! - `mig`: a slice has consecutive multiprocessors, and a fixed share of memory and bus.
//! - Clusters of blocks, dynamic parallelism, copies and graphs do not exist.
//!
//! # Valid
//!
//! Placement: see the evidence that each device of `data/gpus.toml` states. Contention: which of two placements is
//! slower, rather than by how much (`docs/accuracy.md`): what a kernel demands must be measured or guessed, precedence
//! is strict where the hardware's is not, and the earlier kernel is never slowed, as on the hardware it is by up to a
//! third when L1 is what they share. Of mechanisms: the order of their results for long kernels, not the size.
//!
//! # Checked by
//!
//! `tests/it/gpu_placement.rs`: published vectors and traces, block by block. `tests/it/gpu_laws.rs`: limits, queue
//! order, work conservation, and the choice by tree against one by looking. `tests/it/gpu_sharing.rs`: disciplines and
//! contention, by hand and against published orderings.

mod advice;
mod cells;
mod chrome;
mod contention;
mod device;
mod discipline;
mod kernel;
mod occupancy;
mod outcome;
mod partition;
mod report;
mod rooms;
mod simulation;
mod timed;
mod timeline;
mod trace;
mod workload;

pub use advice::Advice;
pub use cells::{Cell, cells};
pub use chrome::{TRACE_BLOCKS_MAX, chrome_trace};
pub use device::{Device, Evidence, Issue, Order, WARP_THREADS, built_in, find, read_devices};
pub use discipline::{Discipline, Slice, TimeSlice};
pub use kernel::{Demand, Kernel};
pub use occupancy::{Amounts, Occupancy, Resource, capacity, occupancy, rooms};
pub use outcome::{BlockRun, Decision, KernelSummary, LaunchRun, Outcome, RoomRow, RoundRun, StreamSummary};
pub use report::{KernelReport, Report, ReportJson};
pub use rooms::Rooms;
pub use simulation::{Options, run};
pub use timed::{Score, TimedRun, read_timed_trace, score_runs};
pub use trace::{
    LaunchScore, RunScore, TRACE_HEADER, TracedLaunch, TracedRun, WrongBlock, compare, read_trace,
};
pub use workload::{Arrivals, Launch, Process, Stream, Workload};
