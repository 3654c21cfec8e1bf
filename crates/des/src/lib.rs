//! A discrete-event engine that knows no domain: event queue, clock, random streams, shared resources,
//! statistics.
//!
//! # Order and determinism
//!
//! - Events leave the queue by time; those of equal time leave in the order in which they were scheduled. An
//!   event that is moved to another time counts as scheduled at that moment.
//! - Nothing here reads a wall clock, a hash order or a global generator. The same calls give the same bits
//!   on every machine: logarithms and exponentials come from `libm`.
//! - Time is seconds in `f64`. A time that is not finite, or that lies before the clock, is a fault of the
//!   caller and panics: an event at such a time would silently corrupt the order of all others.
//! - Resources are passive. They say when they will next finish something ([`MaxMinFair::next_time`],
//!   [`ProcessorSharing::next_time`]), and the caller's loop takes the earliest of those and of its own queue.

pub mod fair;
pub mod processor_sharing;
pub mod queue;
pub mod random;
pub mod simulation;
pub mod statistics;

pub use fair::MaxMinFair;
pub use processor_sharing::ProcessorSharing;
pub use queue::{Queue, Ticket};
pub use random::{Stream, Streams};
pub use simulation::Simulation;
