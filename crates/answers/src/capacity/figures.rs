//! Figures of a simulation, whole or in its midst: as [`bellwether_sim::report`] defines them.

use bellwether_sched::capacity::bounds::Least;
use bellwether_sched::capacity::{Figure, Statistic};
use bellwether_sim::report::JobTimes;
use bellwether_sim::trace::Entry;

/// The level of a figure where all jobs have ended. In the midst of a simulation it is one that the level then is not
/// below: each time is no less than it has come to so far, and no less than the job's least.
pub(super) fn level(
    figure: Figure,
    entries: &[Entry],
    times: &[JobTimes],
    least: &[Least],
    span_s: f64,
) -> f64 {
    let of_times = |of: &dyn Fn(&JobTimes, &Least) -> Option<f64>| -> Vec<f64> {
        times.iter().zip(least).filter_map(|(times, least)| of(times, least)).collect()
    };
    match figure {
        Figure::Completion(statistic) => {
            let at_least = |times: &JobTimes, least: &Least| match times.has_ended {
                true => Some(times.completion_s),
                false => Some(times.completion_s.max(least.alone_s)),
            };
            value(statistic, of_times(&at_least))
        }
        Figure::Wait(statistic) => value(statistic, of_times(&|times, _| Some(times.wait_s))),
        // A job that has not come may turn out to be without work, and does not count then: until it is known, it is
        // the least of all.
        Figure::Slowdown(statistic) => {
            let slowdown = |times: &JobTimes, _: &Least| {
                times.slowdown().or((!times.has_ended && times.alone_s == 0.0).then_some(0.0))
            };
            value(statistic, of_times(&slowdown))
        }
        Figure::Makespan => span_s,
        Figure::Deadlines => {
            let due = |entry: &Entry| entry.job.deadline_s;
            let count = entries.iter().filter_map(due).count();
            let misses = |(entry, times): &(&Entry, &JobTimes)| {
                due(entry).is_some_and(|deadline_s| times.misses(entry.job.arrival_s, deadline_s))
            };
            let missed = entries.iter().zip(times).filter(misses).count();
            missed as f64 / count.max(1) as f64
        }
    }
}

/// A statistic of values; 0 of none.
pub(super) fn value(statistic: Statistic, mut values: Vec<f64>) -> f64 {
    if statistic == Statistic::Mean {
        // As the report adds them up: in the order of the trace, or for relative figures in their own.
        values.sort_unstable_by(f64::total_cmp);
        return (values.iter().sum::<f64>() + 0.0) / values.len().max(1) as f64;
    }
    let (values, place) = match place(statistic, values.len()) {
        Some(place) => (&mut values[..], place),
        None => return 0.0,
    };
    *values.select_nth_unstable_by(place, f64::total_cmp).1
}

/// Which element of the ascending list a statistic is, counted from 0; nothing of a mean or an empty list.
pub(super) fn place(statistic: Statistic, count: usize) -> Option<usize> {
    let last = count.checked_sub(1)?;
    match statistic {
        Statistic::Mean => None,
        Statistic::Median => Some(last / 2),
        Statistic::Percentile(p) => Some(((count as f64 * p / 100.0).floor() as usize).max(1) - 1),
        Statistic::Max => Some(last),
    }
}

#[cfg(test)]
mod tests {
    use bellwether_sim::report::percentile;

    use super::*;

    #[test]
    fn percentiles_are_those_of_the_report() {
        for count in 0..60_u32 {
            let values: Vec<f64> = (0..count).rev().map(f64::from).collect();
            let sorted: Vec<f64> = (0..count).map(f64::from).collect();
            for p in [0.5, 50.0, 95.0, 99.0] {
                assert_eq!(
                    value(Statistic::Percentile(p), values.clone()),
                    percentile(&sorted, p),
                    "{count} {p}"
                );
            }
        }
        assert_eq!(value(Statistic::Median, vec![4.0, 1.0, 3.0, 2.0]), 2.0);
        assert_eq!(value(Statistic::Max, vec![4.0, 1.0]), 4.0);
        assert_eq!(value(Statistic::Mean, Vec::new()), 0.0);
    }
}
