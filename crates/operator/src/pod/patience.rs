//! How long to wait before something is tried again, and what is said about it.

use std::fmt;
use std::time::Duration;

use super::say;

/// The first pause, and the longest.
const FIRST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(5);

/// Tries without a limit.
#[derive(Debug)]
pub(super) struct Patience {
    what: &'static str,
    pause: Duration,
    has_complained: bool,
}

impl Patience {
    /// With what is tried, such as `the copy is kept`.
    pub(super) fn with(what: &'static str) -> Patience {
        Patience { what, pause: FIRST, has_complained: false }
    }

    /// It failed: says so once, and how long to wait.
    pub(super) fn failed(&mut self, why: &dyn fmt::Display) -> Duration {
        if !std::mem::replace(&mut self.has_complained, true) {
            say(format_args!("{}: {why}; it is tried again until it goes well", self.what));
        }
        let pause = self.pause;
        self.pause = (2 * pause).min(LONGEST);
        pause
    }

    /// It went well.
    pub(super) fn went_well(&mut self) {
        if std::mem::take(&mut self.has_complained) {
            say(format_args!("{}: it goes well again", self.what));
        }
        self.pause = FIRST;
    }
}
