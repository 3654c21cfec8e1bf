//! Performance models: what will a configuration cost, and how sure are we?
//!
//! One module per model; each header is its specification. A model is a plain function over numbers; it
//! reads no file and no clock, and knows no cluster and no policy.

pub mod calibrate;
pub mod collective;
pub mod compute;
pub mod convergence;
pub mod elastic;
pub mod event;
pub mod import;
pub mod minimize;
pub mod phase;
pub mod predict;
pub mod queueing;
pub mod regression;
pub mod scaling;
