//! Median stopping: a trial ends whose best figure is worse than the median of what the others had on average.
//!
//! ```text
//! at length t:  stop  if  min cost(trial, u <= t)  >  median over the others of mean cost(other, u <= t)
//! ```
//!
//! The others are the trials that were evaluated at t or later; with fewer than [`OTHERS_MIN`] of them nothing ends.
//! Source: Golovin, Solnik, Moitra, Kochanski, Karro and Sculley, Google Vizier, KDD 2017, section 3.2.2. That few
//! others tell nothing is ours, as in Optuna's pruner, whose default is 5, too.

use super::{Decision, Reason, Search, Trial};

/// Fewest others that tell what is usual.
pub const OTHERS_MIN: usize = 5;

/// Ends the trial, if its last report says so.
pub(super) fn judge(search: &Search, trial: &Trial) -> Option<Decision> {
    let metric = search.plan().metric;
    let ladder = search.plan().ladder?;
    let at = *trial.reports.last_key_value()?.0;
    if at >= ladder.maximum {
        return None;
    }
    let costs = |trial: &Trial| -> Vec<f64> {
        trial.reports.range(..=at).map(|(_, figure)| metric.cost(*figure)).collect()
    };
    let best = costs(trial).into_iter().min_by(f64::total_cmp)?;
    let is_other = |other: &&Trial| {
        other.number != trial.number && other.reports.last_key_value().is_some_and(|(last, _)| *last >= at)
    };
    let others = search.trials.iter().filter(is_other);
    let mut means: Vec<f64> = others
        .map(|other| {
            let costs = costs(other);
            costs.iter().sum::<f64>() / costs.len().max(1) as f64
        })
        .collect();
    if means.len() < OTHERS_MIN {
        return None;
    }
    means.sort_by(f64::total_cmp);
    let middle = means.len() / 2;
    let median = match means.len() % 2 {
        0 => f64::midpoint(means[middle - 1], means[middle]),
        _ => means[middle],
    };
    // The figure of a cost is the cost of that figure.
    let (best_figure, median_figure) = (metric.cost(best), metric.cost(median));
    (best > median).then_some(Decision::Stop {
        trial: trial.number,
        reason: Reason::BelowMedian {
            at,
            best: best_figure,
            median: median_figure,
            others: means.len() as u64,
        },
    })
}
