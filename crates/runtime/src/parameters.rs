//! Parameter servers: who holds which piece of the state, how pieces travel, and how gradients are applied to them.
//!
//! A [`Server`] holds the pieces that the [`ShardMap`] gives it, each with its optimizer slots and its *version*, the
//! number of updates that it got. A worker's [`Client`] pulls all pieces at the start of a *unit* of work (the gradient
//! of some virtual nodes of one step), hands them to the workload as they come, and pushes gradients as they become
//! ready. Unit number n of step t is `t * units_per_step + n`.
//!
//! # What is promised
//!
//! 1. *Whole pieces.* A piece that is pulled is of one version.
//! 2. *Exactly once.* A gradient counts once per unit and piece, however often it is sent: when a unit is done again,
//!    its pieces that were applied before are acknowledged and skipped.
//! 3. *The same bits.* With [`Rule::Together`] the state after a step is that of the all-reduce, bit for bit, where
//!    units are complete nodes of the canonical tree: a power of two of virtual nodes, or all of them. Gradients are
//!    not clipped.
//! 4. *Nothing acknowledged is lost* while a replica lives: it has received what its primary acknowledges.
//! 5. *The order is decided late.* What waits for a connection goes in the [`TransmissionOrder`], piece by piece;
//!    little is handed to the system ahead.
//!
//! [`TransmissionOrder`]: bellwether_core::plan::TransmissionOrder

pub mod client;
pub mod map;
pub mod outbox;
mod pipe;
pub mod server;
pub mod wire;

pub use client::{Client, ClientOptions, Fault, Handle, UnitAccount, Work};
pub use map::{Piece, ShardMap};
pub use server::{Account, Phase, Progress, Rule, Server, ServerOptions, Told};
