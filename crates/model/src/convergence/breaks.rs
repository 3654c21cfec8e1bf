//! Where a curve stops following its form: a fall of the learning rate, or a rise.

use std::collections::VecDeque;
use std::ops::Range;

use super::curve::{Curve, Observation, fit, misfit};
use super::smooth::median;

/// Chance that the errors of a curve that follows its form are taken for a break. Fitting makes errors change their
/// sign more often than a coin would, so that the true rate is lower.
pub(super) const LEVEL: f64 = 0.01;

/// Fewest points on each side of a break: twice as many as a form has parameters.
pub(super) const FEWEST_BESIDE: usize = 8;

/// Runs of one sign whose ends are tried as the break.
const RUNS_TRIED: usize = 8;

/// Known falls that are tried at once: a longer list is a schedule that falls all the time.
const FALLS_TRIED: usize = 16;

/// A place where a loss curve stops following its form.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Break {
    /// Progress of the last point before it.
    pub progress: f64,
    /// Why it is believed.
    pub reason: BreakReason,
}

/// What is known of the descent after a break.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum After {
    /// It slows down or lies still: a curve of it alone tells where it goes.
    Alone,
    /// It goes on straight, which does not tell where it ends: the earlier losses are kept, times this factor.
    Scaled(f64),
}

/// Why a break is believed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BreakReason {
    /// Errors of the fit had one sign for too long to be chance.
    Run {
        /// Points in a row on one side of the fitted curve.
        points: usize,
        /// Probability that independent errors show a run as long.
        probability: f64,
    },
    /// The learning rate was known to fall there, and two curves follow the points better than one.
    KnownFall,
}

/// Probability that `tosses` throws of a fair coin have `run` or more equal results in a row.
///
/// The throws are cut into runs, each shorter than `run`: with `s(n)` for the probability of such a cut,
/// `s(n) = sum of s(n - j) / 2^j over j < run`, and twice that as the first result is either. (Feller, An Introduction
/// to Probability Theory and Its Applications, vol. 1, XIII.7.)
pub fn run_probability(tosses: usize, run: usize) -> f64 {
    if run <= 1 || tosses < run {
        return if tosses == 0 || run > tosses { 0.0 } else { 1.0 };
    }
    // Beyond that many equal results the bound by the number of places is exact enough, and the sum would be long.
    if run > 60 {
        return ((tosses - run + 2) as f64 * (-(run as f64) * std::f64::consts::LN_2).exp()).min(1.0);
    }
    // The newest first; older ones than a run is long are not needed.
    let mut cuts = VecDeque::from([1.0_f64]);
    for _ in 0..tosses {
        let part = |(last, cut): (usize, &f64)| cut * 0.5_f64.powi(last as i32 + 1);
        let sum: f64 = cuts.iter().take(run - 1).enumerate().map(part).sum();
        cuts.push_front(sum);
        cuts.truncate(run);
    }
    (1.0 - 2.0 * cuts[0]).clamp(0.0, 1.0)
}

/// Runs of errors of one sign as ranges of points; an error of exactly 0 belongs to no run.
fn runs(curve: &Curve, points: &[Observation]) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    let mut before = 0.0;
    for (index, point) in points.iter().enumerate() {
        let error = point.loss - curve.loss(point.progress);
        let sign = if error == 0.0 { 0.0 } else { error.signum() };
        match found.last_mut() {
            Some(run) if sign == before && sign != 0.0 => run.end = index + 1,
            _ if sign != 0.0 => found.push(index..index + 1),
            _ => {}
        }
        before = sign;
    }
    found
}

/// The first point after a break of the curve `points`, at or after the point `from`, why it is believed, and how to go
/// on; `None` without one. `curves` follow the points, the best one first; `jitter` is that of the points, and `falls`
/// is where the learning rate is known to fall.
pub(super) fn find(
    points: &[Observation],
    from: usize,
    floor: f64,
    jitter: f64,
    curves: &[Curve],
    falls: &[f64],
) -> Option<(usize, BreakReason, After)> {
    let places = from.max(FEWEST_BESIDE)..(points.len() + 1).saturating_sub(FEWEST_BESIDE);
    let chosen = curves.first()?;
    let whole = misfit(chosen, points, jitter);
    // What the points must be better explained for each number that is fitted in addition (Schwarz 1978).
    let price = (points.len() as f64).ln();
    let best_of = |tried: Vec<usize>, worth: f64, reason: BreakReason| {
        let halves_at = |at: usize| {
            let (before, after) = halves(points, at, floor, chosen);
            let gain = whole - misfit(&before, &points[..at], jitter) - misfit(&after, &points[at..], jitter);
            (gain, at, before, after)
        };
        let tried = tried.into_iter().filter(|at| places.contains(at)).map(halves_at);
        let (gain, at, before, after) = tried.max_by(|a, b| a.0.total_cmp(&b.0))?;
        let how = (gain > worth).then(|| how_on(points, at, &before, &after, jitter))??;
        Some((at, reason, how))
    };

    let first_after = |fall: &f64| points.partition_point(|point| point.progress <= *fall);
    let mut known: Vec<usize> = falls.iter().map(first_after).filter(|at| places.contains(at)).collect();
    known.dedup();
    known.truncate(FALLS_TRIED);
    if let Some(found) = best_of(known, 4.0 * price, BreakReason::KnownFall) {
        return Some(found);
    }

    let longest = |curve: &Curve| runs(curve, points).iter().map(ExactSizeIterator::len).max().unwrap_or(0);
    // A run that another form does not show says that the form is wrong, not that the curve broke.
    let run = curves.iter().map(longest).min()?;
    let probability = run_probability(points.len(), run);
    if probability > LEVEL {
        return None;
    }
    let mut runs = runs(chosen, points);
    runs.sort_by_key(|run| std::cmp::Reverse(run.len()));
    let mut tried: Vec<usize> = runs.iter().take(RUNS_TRIED).flat_map(|run| [run.start, run.end]).collect();
    tried.sort_unstable();
    tried.dedup();
    best_of(tried, price, BreakReason::Run { points: run, probability })
}

/// How a curve goes on that breaks before the point `at`; `None` where it goes straight on at the same level, which is
/// no break that a forecast could use.
fn how_on(points: &[Observation], at: usize, before: &Curve, after: &Curve, jitter: f64) -> Option<After> {
    let (begin, end) = (after.origin, points[points.len() - 1].progress);
    let [begin, middle, end] = [begin, 0.5 * (begin + end), end].map(|progress| after.loss(progress));
    if begin - middle >= 2.0 * (middle - end) || middle - end < jitter {
        return Some(After::Alone);
    }
    // Levels on both sides, less what the curve would have fallen by itself meanwhile.
    let (left, right) = (&points[at - FEWEST_BESIDE..at], &points[at..at + FEWEST_BESIDE]);
    let middle = |side: &[Observation]| 0.5 * (side[0].progress + side[side.len() - 1].progress);
    let due = median(left) * before.loss(middle(right)) / before.loss(middle(left)).max(f64::MIN_POSITIVE);
    let factor = median(right) / due;
    ((median(right) - due).abs() > 4.0 * jitter && factor.is_finite() && factor > 0.0)
        .then_some(After::Scaled(factor))
}

/// Two curves, one for the points up to the `at`-th and one from there.
fn halves(points: &[Observation], at: usize, floor: f64, near: &Curve) -> (Curve, Curve) {
    let (head, tail) = points.split_at(at);
    let before = fit(near.form, head, near.origin, floor, Some(near));
    (before, fit(near.form, tail, head[head.len() - 1].progress, floor, None))
}
