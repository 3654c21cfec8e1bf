//! Kubernetes: elastic jobs as custom resources, scheduled by the daemon's engine.

pub mod crd;
pub mod desk;
pub mod labels;
pub mod lease;
pub mod manifest;
pub mod nodes;
pub mod reconcile;
