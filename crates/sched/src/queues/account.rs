//! What became of the guarantees: device-seconds that queues could claim, had, and borrowed.

use serde::Serialize;

/// Device-seconds of one queue where jobs are, all types of device together, from the first decision to the last.
/// What is held between two decisions is taken to be what was held after the first of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Account {
    /// What it was guaranteed, as far as its jobs held it or waited for it.
    pub due_device_s: f64,
    /// What it had of that.
    pub received_device_s: f64,
    /// What it held beyond its guarantee.
    pub borrowed_device_s: f64,
}

/// Devices of a queue after a decision, all types together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) due: u32,
    pub(super) received: u32,
    pub(super) borrowed: u32,
}

impl Standing {
    /// Adds the devices of a type; `open` is what jobs asked for that wait.
    pub(super) fn add(&mut self, held: u32, guarantee: u32, open: u64) {
        let demand = u64::from(held).saturating_add(open);
        let due = guarantee.min(u32::try_from(demand).unwrap_or(u32::MAX));
        self.due += due;
        self.received += due.min(held);
        self.borrowed += held.saturating_sub(guarantee);
    }
}

impl Account {
    /// This is how it stood for `seconds`.
    pub(super) fn pass(&mut self, standing: Standing, seconds: f64) {
        self.due_device_s += f64::from(standing.due) * seconds;
        self.received_device_s += f64::from(standing.received) * seconds;
        self.borrowed_device_s += f64::from(standing.borrowed) * seconds;
    }
}
