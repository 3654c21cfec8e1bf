//! How often to write a checkpoint.

use bellwether_core::InputError;

use super::law::Law;
use crate::common::check;

const PLACE: &str = "checkpoint period";

/// Survivors below this share do not matter.
const FEW: f64 = 1e-12;
/// Trial periods, from the shortest to the longest, each the same factor longer.
const TRIALS: u32 = 100;
/// Pieces of time for the mean life.
const AREA_STEPS: u32 = 2000;
/// Most cycles of work and checkpoint that are tried to fill a limited life exactly.
const WHOLE_MAX: u32 = 100;
/// Golden section: how much of an interval is left by each step.
const GOLDEN: f64 = 0.618_033_988_749_895;

/// Seconds to write a checkpoint of these megabytes to remote storage, by a straight line through 100 measured ones of
/// 6 to 204 MB (CM-DARE, ICDCS 2020). [`regression`](crate::regression) fits other networks and stores.
pub fn checkpoint_s(megabytes: f64) -> f64 {
    3.652 + 0.01991 * megabytes
}

/// The period in seconds of Young's first-order rule (Communications of the ACM 17, 1974), for failures of a constant
/// rate with this mean and checkpoints of this time.
pub fn young_s(mean_s: f64, checkpoint_s: f64) -> f64 {
    (2.0 * checkpoint_s * mean_s).sqrt()
}

/// The period of Daly's higher-order rule (Future Generation Computer Systems 22, 2006): the mean itself when a
/// checkpoint takes twice as long or longer.
pub fn daly_s(mean_s: f64, checkpoint_s: f64) -> f64 {
    if checkpoint_s >= 2.0 * mean_s {
        return mean_s;
    }
    let ratio = checkpoint_s / (2.0 * mean_s);
    young_s(mean_s, checkpoint_s) * (1.0 + ratio.sqrt() / 3.0 + ratio / 9.0) - checkpoint_s
}

/// The best fixed period of work between checkpoints in seconds, by search: the one whose complete periods add up to
/// the most work within the life of a cluster that ends with the first loss among `workers` servers, and then begins
/// again with others. `None` when none is worth writing: no server is lost.
///
/// # Errors
///
/// Returns an error on any of these: no workers, or a time of a checkpoint that is not above 0: then there is no best
/// period, but the shorter the better.
///
/// ```
/// use bellwether_model::transient::{Law, best_period_s, daly_s};
/// let law = Law::exponential(10.0 * 3600.0, f64::INFINITY).unwrap();
/// // Ten servers of 10 h each: the first is lost after 1 h in the mean.
/// let best_s = best_period_s(&law, 10, 30.0).unwrap().unwrap();
/// assert!((best_s / daly_s(3600.0, 30.0) - 1.0).abs() < 1e-3);
/// ```
pub fn best_period_s(law: &Law, workers: u32, checkpoint_s: f64) -> Result<Option<f64>, InputError> {
    check::workers(PLACE, workers)?;
    check::not_positive(PLACE, "the time of a checkpoint in seconds", checkpoint_s)?;
    let left = |time_s: f64| (1.0 - law.cdf(time_s)).powf(f64::from(workers));
    let Some(longest_s) = end_s(left) else {
        return Ok(None);
    };
    // Whatever the law, a life loses about half a period and costs one checkpoint in each period of its mean length, so
    // the best one is near Young's for that mean. Much shorter ones would only cost time to try.
    let mean_s = mean_s(left, longest_s);
    let shortest_s = 0.25 * young_s(mean_s, checkpoint_s).min(mean_s);
    let saved_s = |period_s: f64| {
        let cycle_s = period_s + checkpoint_s;
        let alive = (1u32..).map(|cycle| left(f64::from(cycle) * cycle_s * (1.0 - 1e-12)));
        period_s * alive.take_while(|share| *share > FEW).sum::<f64>()
    };
    let factor = libm::pow((longest_s / shortest_s).max(1.0), 1.0 / f64::from(TRIALS));
    let trials = (0..=TRIALS).map(|trial| shortest_s * libm::pow(factor, f64::from(trial)));
    // Where all end together, the last checkpoint had better be complete just then.
    let whole = (1..=WHOLE_MAX).map(|cycles| law.limit_s() / f64::from(cycles) - checkpoint_s);
    let trials = trials.chain(whole.filter(|period_s| period_s.is_finite() && *period_s > 0.0));
    let best = trials.map(|period_s| (saved_s(period_s), period_s)).max_by(|a, b| a.0.total_cmp(&b.0));
    let (most_s, trial_s) = best.expect("there are trials");
    if most_s <= 0.0 {
        return Ok(None);
    }
    let refined_s = golden(&saved_s, trial_s / factor, trial_s * factor);
    Ok(Some(if saved_s(refined_s) > most_s { refined_s } else { trial_s }))
}

/// A time by which hardly anything is left, within a factor of 2; `None` when something always is.
fn end_s(left: impl Fn(f64) -> f64) -> Option<f64> {
    let times = (0..60).map(|power| libm::exp2(f64::from(power)));
    times.into_iter().find(|time_s| left(*time_s) <= FEW)
}

/// The area under what is left: the mean life.
fn mean_s(left: impl Fn(f64) -> f64, longest_s: f64) -> f64 {
    let step_s = longest_s / f64::from(AREA_STEPS);
    (0..AREA_STEPS).map(|step| step_s * left((f64::from(step) + 0.5) * step_s)).sum()
}

/// Where a function with one peak between two places is largest.
fn golden(f: &impl Fn(f64) -> f64, low: f64, high: f64) -> f64 {
    let (mut low, mut high) = (low, high);
    let (mut left, mut right) = (high - GOLDEN * (high - low), low + GOLDEN * (high - low));
    let (mut at_left, mut at_right) = (f(left), f(right));
    while high - low > 1e-9 * high {
        if at_left >= at_right {
            (high, right, at_right) = (right, left, at_left);
            left = high - GOLDEN * (high - low);
            at_left = f(left);
        } else {
            (low, left, at_left) = (left, right, at_right);
            right = low + GOLDEN * (high - low);
            at_right = f(right);
        }
    }
    0.5 * (low + high)
}
