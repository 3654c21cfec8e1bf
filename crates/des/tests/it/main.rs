//! Tests of the discrete-event engine, from outside.

mod queue;
mod sharing;
mod statistics;
mod theory;
