//! Processes that do not come up: the next try waits twice as long each time, and comes for as long as there is a run.

/// Seconds before the second try.
const FIRST_S: f64 = 0.25;

/// Most seconds between two tries.
const LONGEST_S: f64 = 60.0;

/// Tries that failed one after another.
#[derive(Debug, Clone, Default)]
pub(super) struct Starts {
    failures: u32,
    /// When the next may begin.
    next_s: f64,
}

impl Starts {
    /// A process that was started at `started_s` did not come up; seconds until the next try. What ends all that are
    /// starting is one misfortune.
    pub(super) fn failed(&mut self, started_s: f64, now_s: f64) -> f64 {
        if self.failures == 0 || started_s >= self.next_s {
            let wait_s = (FIRST_S * f64::from(1 << self.failures.min(16))).min(LONGEST_S);
            self.next_s = now_s + wait_s;
            self.failures += 1;
        }
        (self.next_s - now_s).max(0.0)
    }

    /// Tries in a row that failed.
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }

    /// Whether the time of the next try has come.
    pub(super) fn are_due(&self, now_s: f64) -> bool {
        self.failures == 0 || now_s >= self.next_s
    }

    /// One came up, or another number is wanted.
    pub(super) fn restart(&mut self) {
        *self = Starts::default();
    }
}
