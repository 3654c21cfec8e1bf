//! The daemon's clock, and what it reads in seconds since the Unix epoch.

use super::{LineError, State};

impl State {
    /// All past times are read again: how long ago they were has not changed.
    pub(super) fn correct_clock(&mut self, unix_s: f64) -> Result<(), LineError> {
        if !unix_s.is_finite() {
            return Err(LineError::Clock);
        }
        let by_s = unix_s - std::mem::replace(&mut self.unix_s, unix_s);
        self.decisions.iter_mut().for_each(|decision| decision.time_s += by_s);
        self.decisions_changed = true;
        self.slots.version += 1;
        self.touched.extend(self.jobs.keys());
        Ok(())
    }

    /// Seconds since the Unix epoch.
    pub fn unix_s(&self, time_s: f64) -> f64 {
        self.unix_s + time_s / self.time_scale
    }
}
