//! What is trained: models, data sets and the synthetic device, each behind the runtime's
//! [`Workload`](bellwether_runtime::workload::Workload).
//!
//! [`build()`] turns a checked job into a workload. Files are opened by what the caller gives, a function that reads a
//! whole file or [`Files`] of which ranges are read; everything else here is a function of bytes and numbers. Nothing
//! here knows of workers or networks. The synthetic device and a paced one sleep; where samples are read from files, a
//! thread reads ahead, and how long it is waited for is measured.

mod build;
pub mod data;
mod fingerprint;
mod flipped;
mod model;
mod network_workload;
mod paced;
mod prefetch;
mod random;
mod supernet;
mod synthetic;
pub mod template;

pub use build::{Other, applied, build, build_from, examined_on};
pub use data::{Files, Inspected, Ranges, Version, inspect};
pub use fingerprint::{BACK_END, instruction_set};
pub use flipped::{Flip, flipped};
pub use paced::{Hang, Pace, paced};
pub use supernet::Supernet;
