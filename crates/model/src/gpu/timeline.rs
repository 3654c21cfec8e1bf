//! What happens to a device, and when.

pub(super) use bellwether_des::Simulation as Clock;

/// What happens.
#[derive(Debug, Clone, Copy)]
pub(super) enum Event {
    /// A round of a stream arrives.
    Arrive(usize),
    /// The next launch of a stream reaches the device.
    Queue(usize),
    /// The first block of a launch on a multiprocessor ends.
    End { partition: usize, rank: usize, launch: u32 },
    /// The turn of a process is over.
    Slice,
    /// The device has changed over to another process.
    Switched,
}
