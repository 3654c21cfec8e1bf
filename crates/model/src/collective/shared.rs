//! Buckets that are exchanged beside a backward pass on the same processor.

use bellwether_core::InputError;

use super::{Bucket, Overlap, PLACE};
use crate::common::check;

/// As [`overlap`](super::overlap), for exchanges that take processor time from the backward pass: `handling_s` of each
/// bucket's, in the same order.
///
/// An exchange that needs up to half of the processor gets what it needs, as a thread that mostly waits does; one that
/// needs more gets half while the backward pass runs, and is slowed by that.
///
/// # Errors
///
/// Same errors as [`overlap`](super::overlap), for negative times of handling, and for another number of them.
pub fn overlap_on_one_processor(
    buckets: &[Bucket],
    handling_s: &[f64],
    backward_end_s: f64,
) -> Result<Overlap, InputError> {
    super::overlap(buckets, backward_end_s)?;
    if buckets.len() != handling_s.len() {
        let what = format!("{} buckets, and times of handling for {}", buckets.len(), handling_s.len());
        return Err(InputError::new(PLACE, what).hint("give one for each bucket"));
    }
    // `done_s` of the backward pass is computed when the clock shows `now_s`.
    let (mut now_s, mut done_s, mut exchange_s) = (0.0, 0.0, 0.0);
    for (bucket, handling_s) in buckets.iter().zip(handling_s) {
        check::negative(PLACE, "handling a bucket in seconds", *handling_s)?;
        if bucket.ready_s > done_s {
            now_s += bucket.ready_s - done_s;
            done_s = bucket.ready_s;
        }
        let alone_s = bucket.exchange_s.max(*handling_s);
        exchange_s += alone_s;
        if alone_s == 0.0 {
            continue;
        }
        let wants = handling_s / alone_s;
        let (own, pace) = if wants <= 0.5 { (1.0 - wants, 1.0) } else { (0.5, 0.5 / wants) };
        // Both until one of them is done; then the exchange alone, or later the backward pass.
        let both_s = (alone_s / pace).min((backward_end_s - done_s) / own);
        let left_s = (alone_s - both_s * pace).max(0.0);
        done_s = (done_s + both_s * own).min(backward_end_s);
        now_s += both_s + left_s;
    }
    // Rounding would make it end before the backward pass.
    let finish_s = (now_s + (backward_end_s - done_s)).max(backward_end_s);
    let exposed_s = finish_s - backward_end_s;
    Ok(Overlap { finish_s, exposed_s, hidden_s: (exchange_s - exposed_s).max(0.0) })
}
