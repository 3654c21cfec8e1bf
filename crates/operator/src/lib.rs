//! Kubernetes: elastic jobs as custom resources, scheduled by the daemon's engine.

pub mod client;
pub mod controller;
pub mod crd;
pub mod desk;
pub mod exchange;
pub mod foresight;
pub mod job;
pub mod labels;
pub mod lease;
pub mod manifest;
pub mod nodes;
pub mod observe;
pub mod operator;
pub mod pace;
pub mod pod;
pub mod queues;
pub mod reconcile;
pub mod spec;
