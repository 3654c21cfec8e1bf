//! Why a job may not hold certain devices.

use std::fmt;

use super::JobId;

/// Why a job may not hold certain devices. Its text is to be said after the job's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllocationError {
    /// There are more or fewer than the job can use.
    Count {
        /// Devices that it would hold.
        given: u32,
        /// The fewest that it can use.
        least: u32,
        /// The most that it can use.
        most: u32,
    },
    /// The cluster has no such node.
    NoSuchNode {
        /// Number of the node.
        node: u32,
        /// How many nodes there are.
        nodes: usize,
    },
    /// The node is down.
    Down {
        /// Number of the node.
        node: u32,
    },
    /// The job does not accept the devices of the node.
    DeviceType {
        /// Number of the node.
        node: u32,
        /// Name of its type of device.
        device: String,
    },
    /// Other jobs hold too many devices of the node.
    NotFree {
        /// Number of the node.
        node: u32,
        /// Devices of the node that the job would hold.
        given: u32,
        /// Devices of the node that no other job holds.
        free: u32,
        /// Devices of the node.
        devices: u32,
    },
    /// The job may not share the devices of another.
    Sharing {
        /// The other job.
        with: JobId,
        /// Why not.
        why: SharingError,
    },
}

/// Why two jobs may not use the same devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharingError {
    /// No devices are shared in this cluster.
    NotHere,
    /// The other job holds no devices, or does not exist.
    HoldsNothing,
    /// The other job already shares its devices with a third one.
    Taken,
    /// The jobs would hold different devices.
    OtherDevices,
    /// The job cannot use the devices of the other: their number or their type.
    Unsuitable,
}

impl fmt::Display for AllocationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AllocationError::Count { given, least, most } => {
                write!(f, "is given {given} devices, and takes {least} to {most}")
            }
            AllocationError::NoSuchNode { node, nodes } => {
                write!(f, "is placed on node {node}, and there are {nodes}")
            }
            AllocationError::Down { node } => write!(f, "is placed on node {node}, which is down"),
            AllocationError::DeviceType { node, device } => {
                write!(f, "is placed on node {node} with {device}, which it does not accept")
            }
            AllocationError::NotFree { node, given, free, devices } => write!(
                f,
                "is given {given} devices of node {node}, over its capacity: {free} of {devices} are free"
            ),
            AllocationError::Sharing { with, why } => {
                let why = match why {
                    SharingError::NotHere => "and no devices are shared here",
                    SharingError::HoldsNothing => "which holds nothing",
                    SharingError::Taken => "which shares its devices already",
                    SharingError::OtherDevices => "and is not given the same devices",
                    SharingError::Unsuitable => "whose devices do not suit it",
                };
                write!(f, "is put beside job number {}, {why}", with.0)
            }
        }
    }
}

impl std::error::Error for AllocationError {}
