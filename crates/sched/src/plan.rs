//! Which machines one job should have: how many of which kind, at a price, on servers that may vanish.
//!
//! [`local`] chooses the number of workers on one machine, without a catalogue.

mod local;
mod words;

pub use local::{Local, NEARLY_FASTEST, local};
pub use words::duration;
