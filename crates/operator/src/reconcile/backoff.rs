//! How long a job whose pods fail waits before others are created.

use super::Restarts;

/// Seconds after the first failure, doubled with each that follows, and the most.
const FIRST_S: f64 = 1.0;
const MOST_S: f64 = 300.0;

/// Seconds to wait from the last failure on: none before the first one.
///
/// ```
/// # use bellwether_operator::reconcile::{Restarts, pause_s};
/// let after = |crash| pause_s(&Restarts { crash, ..Restarts::default() });
/// assert_eq!([after(0), after(1), after(4), after(99)], [0.0, 1.0, 8.0, 300.0]);
/// ```
pub fn pause_s(restarts: &Restarts) -> f64 {
    match restarts.crash {
        0 => 0.0,
        crashes => (FIRST_S * 2_f64.powi(crashes.min(20) as i32 - 1)).min(MOST_S),
    }
}
