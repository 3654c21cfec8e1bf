//! What is trained: models, data sets and the synthetic device, each behind the runtime's
//! [`Workload`](bellwether_runtime::workload::Workload).
//!
//! [`build()`] turns a checked job into a workload. Files are opened by a function that the caller gives;
//! everything else here is a function of bytes and numbers. Nothing here knows of workers, networks
//! or clocks, except the synthetic device and a paced one, which sleep.

mod build;
pub mod data;
mod fingerprint;
mod flipped;
mod model;
mod network_workload;
mod paced;
mod random;
mod synthetic;
pub mod template;

pub use build::{Other, applied, build, examined_on};
pub use data::{Inspected, inspect};
pub use fingerprint::{BACK_END, instruction_set};
pub use flipped::{Flip, flipped};
pub use paced::{Hang, Pace, paced};
