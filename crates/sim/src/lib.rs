//! The simulated cluster: what policies decide is carried out here, with what is true.
//!
//! - [`trace`]: the jobs;
//! - [`world`]: the cluster as a [`Backend`](bellwether_core::policy::Backend).

pub mod trace;
pub mod world;
