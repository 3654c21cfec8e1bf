//! How often members report their steps.

use std::time::Duration;

/// Time between two reports of a member when steps are short, ...
const LEAST: Duration = Duration::from_millis(20);

/// ... and for each member, so that all of them together send no more than 4,000 a second, ...
const EACH: Duration = Duration::from_micros(250);

/// ... but no longer than this: what is known of the members is not to be older than half a second.
const MOST: Duration = Duration::from_millis(300);

/// Time between two reports of a member, one of this many, when steps are short; otherwise it reports each step.
pub fn period(members: usize) -> Duration {
    EACH.saturating_mul(u32::try_from(members).unwrap_or(u32::MAX)).clamp(LEAST, MOST)
}

/// Seconds that they take longer than those of a few members.
pub(crate) fn longer_s(members: usize) -> f64 {
    (period(members) - LEAST).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_members_report_as_ever_and_many_no_more_than_the_coordinator_can_take_in() {
        assert_eq!([0, 1, 80].map(period), [LEAST; 3]);
        assert_eq!((longer_s(80), period(1024), period(1 << 40)), (0.0, Duration::from_millis(256), MOST));
    }
}
