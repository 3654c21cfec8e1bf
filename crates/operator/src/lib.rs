//! Kubernetes: elastic jobs as custom resources, scheduled by the daemon's engine.

pub mod crd;
pub mod exchange;
pub mod pod;
