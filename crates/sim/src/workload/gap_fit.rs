//! Fits a [law of gaps](super::gaps) to a trace, and says whether it fits better than a law of rates.
//!
//! The gaps are sorted and cut into kinds of about as many each, the longest into finer ones; equal gaps are never cut
//! apart. [Hidden](super::hidden) states are fitted to the kinds of gaps and the classes of jobs: one state, two, and
//! on while the BIC falls. The best law of rates is asked for the same: how likely was each kind of gap, given all
//! arrivals before it? Its classes are drawn without regard to the gaps.

use serde::Serialize;

use super::arrivals::Arrivals;
use super::gaps::GapState;
use super::hidden::{self, Hidden, Seen};
use super::law::Amount;
use super::rival::Kinds;

/// Fewer jobs than this say nothing about the order of their gaps.
const JOBS_MIN: usize = 100;

/// Kinds of gaps, if there are this many jobs for each.
const KINDS_MAX: usize = 14;
const JOBS_PER_KIND: usize = 20;

/// The longest of them are halved this often.
const LONG_KINDS: usize = 4;

/// More states than this are not tried.
const STATES_MAX: usize = 6;

/// This many gaps stand for a kind.
const SAMPLES_MAX: usize = 40;

/// Of longer traces, `RUNS` runs of `RUN_JOBS` jobs are looked at, evenly spread.
const RUNS: usize = 10;
const RUN_JOBS: usize = 2000;

/// A law of gaps that was fitted, and how it compares with the best law of rates.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GapFit {
    /// The law with its parameters.
    pub law: Arrivals,
    /// How many parameters were fitted.
    pub parameters: u32,
    /// Log of the likelihood of the kinds of all gaps, and of the classes of all jobs.
    pub log_likelihood: f64,
    /// Schwarz's criterion; less is better.
    pub bic: f64,
    /// The same of the best law of rates, whose jobs are of each class as often as in the trace.
    pub rates_bic: f64,
}

/// Gaps cut into kinds.
struct Cut {
    /// Between each kind and the next.
    ends_s: Vec<f64>,
    /// The gaps of each kind, in ascending order.
    kinds: Vec<Vec<f64>>,
}

/// Fits to times of arrival in ascending order and to the classes of their jobs; `None` where there are too few.
/// `rates` is the best law of rates, of which `rates_parameters` were fitted.
pub(super) fn fit(
    arrivals_s: &[f64],
    classes: &[usize],
    rates: &Arrivals,
    rates_parameters: u32,
) -> Option<GapFit> {
    if arrivals_s.len() < JOBS_MIN {
        return None;
    }
    let gaps_s: Vec<f64> = arrivals_s.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let cut = Cut::of(&gaps_s);
    // The first job has no gap before it.
    let jobs = gaps_s.iter().zip(&classes[1..]);
    let jobs: Vec<Seen> = jobs.map(|(gap_s, class)| Seen { gap: cut.kind(*gap_s), class: *class }).collect();
    let runs: Vec<(usize, &[Seen])> = spread(&jobs);
    let seen: Vec<&[Seen]> = runs.iter().map(|(_, run)| *run).collect();
    let count: usize = seen.iter().map(|run| run.len()).sum();
    let bic = |parameters: usize, log: f64| parameters as f64 * libm::log(count as f64) - 2.0 * log;
    let (kinds, classes) = (cut.kinds.len(), classes.iter().max()? + 1);
    let mut best: Option<(Hidden, usize, f64)> = None;
    let mut worse = 0;
    for states in 1..=STATES_MAX {
        let (law, log) = hidden::fit(&seen, kinds, classes, states);
        let parameters = states * (states - 1 + kinds - 1 + classes - 1);
        if best.as_ref().is_none_or(|(_, before, reached)| bic(parameters, log) < bic(*before, *reached)) {
            best = Some((law, parameters, log));
            worse = 0;
        } else {
            worse += 1;
        }
        // One more state may not pay where two do.
        if worse == 2 {
            break;
        }
    }
    let (law, parameters, log_likelihood) = best?;
    let of_rates = rates_log_likelihood(rates, arrivals_s, &cut, &runs) + shares_log(&seen, classes);
    Some(GapFit {
        law: cut.law(law),
        parameters: parameters as u32,
        log_likelihood,
        bic: bic(parameters, log_likelihood),
        rates_bic: bic(rates_parameters as usize + classes - 1, of_rates),
    })
}

/// All jobs, or of very many some runs; each with the place where it begins.
fn spread(jobs: &[Seen]) -> Vec<(usize, &[Seen])> {
    if jobs.len() <= RUNS * RUN_JOBS {
        return vec![(0, jobs)];
    }
    let begin = |run: usize| run * (jobs.len() - RUN_JOBS) / (RUNS - 1);
    (0..RUNS).map(|run| (begin(run), &jobs[begin(run)..begin(run) + RUN_JOBS])).collect()
}

fn rates_log_likelihood(law: &Arrivals, arrivals_s: &[f64], cut: &Cut, runs: &[(usize, &[Seen])]) -> f64 {
    let kinds = Kinds { ends_s: &cut.ends_s };
    let of_run = |(begin, run): &(usize, &[Seen])| {
        let gaps: Vec<usize> = run.iter().map(|job| job.gap).collect();
        kinds.log_likelihood(law, &arrivals_s[*begin..=begin + run.len()], &gaps)
    };
    runs.iter().map(of_run).sum()
}

/// The log-likelihood of classes that are drawn by their shares.
fn shares_log(runs: &[&[Seen]], classes: usize) -> f64 {
    let mut counts = vec![0.0; classes];
    for job in runs.iter().copied().flatten() {
        counts[job.class] += 1.0;
    }
    let jobs: f64 = counts.iter().sum();
    counts.iter().filter(|count| **count > 0.0).map(|count| count * libm::log(count / jobs)).sum()
}

impl Cut {
    fn of(gaps_s: &[f64]) -> Cut {
        let mut sorted = gaps_s.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let wanted = (sorted.len() / JOBS_PER_KIND).clamp(2, KINDS_MAX);
        let mut lasts: Vec<usize> = (1..wanted).map(|kind| kind * sorted.len() / wanted).collect();
        // The few longest gaps take most of the time, so nights are told from pauses.
        let mut rest = sorted.len() - lasts[wanted - 2];
        while rest >= 2 * JOBS_PER_KIND && lasts.len() < KINDS_MAX + LONG_KINDS {
            rest /= 2;
            lasts.push(sorted.len() - rest);
        }
        lasts.push(sorted.len());
        let (mut ends_s, mut kinds, mut begin) = (Vec::new(), Vec::new(), 0);
        for last in lasts {
            // The last gap of a kind, and all that are equal to it.
            let last_s = sorted[last.max(1) - 1];
            let end = sorted.partition_point(|gap_s| *gap_s <= last_s);
            if end == begin {
                continue;
            }
            kinds.push(sorted[begin..end].to_vec());
            if let Some(next_s) = sorted.get(end) {
                ends_s.push(f64::midpoint(last_s, *next_s));
            }
            begin = end;
        }
        Cut { ends_s, kinds }
    }

    fn kind(&self, gap_s: f64) -> usize {
        self.ends_s.partition_point(|end_s| *end_s < gap_s)
    }

    /// The law of these gaps and states, as a file holds it.
    fn law(&self, hidden: Hidden) -> Arrivals {
        let rows = hidden.gaps.into_iter().zip(hidden.next).zip(hidden.classes);
        let state = |((gaps, next), classes): ((Vec<f64>, Vec<f64>), Vec<f64>)| GapState {
            gaps: rounded(gaps),
            next: rounded(next),
            // A single class needs no odds.
            classes: if classes.len() == 1 { Vec::new() } else { rounded(classes) },
        };
        let gaps = self.kinds.iter().map(|kind| stand_for(kind)).collect();
        Arrivals::Gaps { gaps, states: rows.map(state).collect() }
    }
}

/// Odds with six digits behind the point; none of them becomes impossible, so every state is reached and left.
fn rounded(odds: Vec<f64>) -> Vec<f64> {
    odds.into_iter().map(|odd| ((odd * 1e6).round() / 1e6).max(1e-6)).collect()
}

/// The means of equal parts of sorted gaps, so that the mean stays; to the millisecond where they are longer than a
/// second.
fn stand_for(sorted_s: &[f64]) -> Vec<Amount> {
    let parts = sorted_s.len().min(SAMPLES_MAX);
    let bound = |part: usize| part * sorted_s.len() / parts;
    let mean = |part: usize| {
        let gaps_s = &sorted_s[bound(part)..bound(part + 1)];
        let mean_s = gaps_s.iter().sum::<f64>() / gaps_s.len() as f64;
        Amount(if (1.0..1e12).contains(&mean_s) {
            (mean_s * 1000.0).round() / 1000.0
        } else {
            mean_s.min(1e12)
        })
    };
    let values: Vec<Amount> = (0..parts).map(mean).collect();
    // A kind of equal gaps is one gap.
    if values.windows(2).all(|pair| pair[0] == pair[1]) { values[..1].to_vec() } else { values }
}
