//! Memory that processes of one machine share.
//!
//! A [`Lane`] carries bytes both ways between two processes, without the system between them: two rings in one stretch
//! of memory, of which each end writes one and reads the other. What one end copies in, the other copies out; a wait
//! needs the system only when one end [says](Lane::will_sleep) that it sleeps.
//!
//! An [`Arena`] holds vectors that another process reads where they lie, through a [`View`]: no byte is copied before
//! the other one needs it.
//!
//! # Trust
//!
//! The other process can write whatever it wants, whenever it wants. Both counters of a ring are checked before a byte
//! is touched, so that it can make bytes wrong, but neither a panic nor an access outside of the ring. The stretch is
//! sealed: it cannot shrink under a process that uses it.
//!
//! # Unsafe code
//!
//! This crate holds all of the project's: to map memory, and to touch what is mapped. Nothing of it leaves the crate.

mod arena;
mod lane;
mod region;

pub use arena::{Arena, Vector, View};
pub use lane::{Broken, Interest, Lane};
