//! Which law of arrival fits: Poisson, diurnal or modulated, compared on the same counts; and whether a law of gaps
//! fits better than the best of them, compared on the same gaps.
//!
//! Arrivals are counted in bins of an hour, or shorter where the trace is short. Each law is fitted by its likelihood:
//! the Poisson rate and the rates of the hours of the day in closed form, the two-state modulated law
//! [numerically](super::modulated). The law with the least BIC is the best one. The dispersion test asks whether
//! counts vary as those of a Poisson law do: the sum of squared deviations over the mean is then distributed as χ² with
//! one degree of freedom less than there are bins.

use serde::Serialize;
use statrs::distribution::{ChiSquared, ContinuousCDF};

use super::arrivals::{Arrivals, State};
use super::gap_fit::{self, GapFit};
use super::law::Amount;
use super::modulated::{self, Bin, log_poisson};

const HOUR_S: f64 = 3600.0;

/// Fewer arrivals than this say nothing about their law.
const JOBS_MIN: usize = 20;

/// The number of bins of a likelihood, if bins need not be longer than an hour for it.
const BINS_MIN: f64 = 200.0;

/// More bins than this are made longer.
const BINS_MAX: f64 = 20_000.0;

/// Lengths that divide an hour, in seconds.
const LENGTHS_S: [f64; 11] = [3600.0, 1800.0, 900.0, 600.0, 300.0, 120.0, 60.0, 30.0, 10.0, 5.0, 1.0];

/// Laws of arrival that were fitted to a trace.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ArrivalFit {
    /// Seconds of a bin.
    pub bin_s: f64,
    /// How many bins there are.
    pub bins: usize,
    /// Whether counts vary as those of a Poisson law.
    pub dispersion: Dispersion,
    /// Each law of rates that could be fitted, the best first.
    pub candidates: Vec<Candidate>,
    /// A law of gaps, compared with the best of these; `None` where there are too few jobs for one.
    pub gaps: Option<GapFit>,
}

impl ArrivalFit {
    /// The law that fits best.
    pub fn best(&self) -> Option<&Arrivals> {
        let by_gaps = self.gaps.as_ref().filter(|gaps| gaps.bic < gaps.rates_bic).map(|gaps| &gaps.law);
        by_gaps.or_else(|| self.candidates.first().map(|best| &best.law))
    }
}

/// The dispersion test.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Dispersion {
    /// Variance of the counts over their mean: 1 for a Poisson law, more for bursts.
    pub index: f64,
    /// How likely a Poisson law varies so much or more.
    pub p_value: f64,
}

/// A law that was fitted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Candidate {
    /// The law with its parameters.
    pub law: Arrivals,
    /// How many parameters were fitted.
    pub parameters: u32,
    /// Log of the likelihood of all counts, without their factorials, which all laws share.
    pub log_likelihood: f64,
    /// Akaike's criterion; less is better.
    pub aic: f64,
    /// Schwarz's criterion; less is better.
    pub bic: f64,
}

/// Fits all laws to times of arrival in ascending order, and to the class of each job; `None` where there are too few,
/// or all within a second.
pub(super) fn fit(arrivals_s: &[f64], classes: &[usize]) -> Option<ArrivalFit> {
    let (first_s, last_s) = (*arrivals_s.first()?, *arrivals_s.last()?);
    if arrivals_s.len() < JOBS_MIN || last_s - first_s < 1.0 {
        return None;
    }
    let bin_s = bin_length(last_s - first_s);
    let bins = count(arrivals_s, bin_s);
    let rate = arrivals_s.len() as f64 / (last_s - first_s);
    let candidate = |law, parameters: u32, log_likelihood: f64| {
        let penalty = f64::from(parameters);
        Candidate {
            law,
            parameters,
            log_likelihood,
            aic: 2.0 * penalty - 2.0 * log_likelihood,
            bic: penalty * libm::log(bins.len() as f64) - 2.0 * log_likelihood,
        }
    };
    let poisson = Arrivals::Poisson { per_hour: Some(rate * HOUR_S) };
    let mut candidates = vec![candidate(poisson, 1, bins.iter().map(|bin| log_poisson(bin, rate)).sum())];
    // Hours are told from each other only where each was seen.
    if bin_s <= HOUR_S && last_s - first_s >= 24.0 * HOUR_S {
        let (law, log_likelihood) = diurnal(&bins, &[]);
        candidates.push(candidate(law, 24, log_likelihood));
        if last_s - first_s >= 14.0 * 24.0 * HOUR_S {
            let (law, log_likelihood) = weekly(&bins);
            candidates.push(candidate(law, 30, log_likelihood));
        }
    }
    if let Some((fitted, log_likelihood)) = modulated::fit(&bins, bin_s) {
        let state = |s: usize| State {
            per_hour: fitted.rates[s] * HOUR_S,
            stay: Amount(fitted.stays_s[s].min(1e12)),
        };
        candidates.push(candidate(Arrivals::Mmpp { states: vec![state(0), state(1)] }, 4, log_likelihood));
    }
    candidates.sort_by(|a, b| a.bic.total_cmp(&b.bic));
    let gaps = gap_fit::fit(arrivals_s, classes, &candidates[0].law, candidates[0].parameters);
    Some(ArrivalFit { bin_s, bins: bins.len(), dispersion: dispersion(&bins, rate), candidates, gaps })
}

fn bin_length(span_s: f64) -> f64 {
    if span_s > BINS_MAX * HOUR_S {
        return span_s / BINS_MAX;
    }
    LENGTHS_S.into_iter().find(|length_s| span_s / length_s >= BINS_MIN).unwrap_or(span_s / BINS_MIN)
}

/// Counts per bin; bins begin at multiples of their length, and of the first and last only a part is looked at.
fn count(arrivals_s: &[f64], bin_s: f64) -> Vec<Bin> {
    let (first_s, last_s) = (arrivals_s[0], arrivals_s[arrivals_s.len() - 1]);
    let first_bin = (first_s / bin_s).floor();
    let bins = ((last_s / bin_s).floor() - first_bin) as usize + 1;
    let mut counts: Vec<Bin> = (0..bins)
        .map(|at| {
            let (begin_s, end_s) = ((first_bin + at as f64) * bin_s, (first_bin + at as f64 + 1.0) * bin_s);
            let exposure_s = (end_s.min(last_s) - begin_s.max(first_s)).max(bin_s * 1e-6);
            Bin { count: 0.0, exposure_s, hour: ((begin_s + bin_s / 2.0) / HOUR_S) as u64 }
        })
        .collect();
    for arrival_s in arrivals_s {
        let at = ((arrival_s / bin_s).floor() - first_bin) as usize;
        counts[at.min(bins - 1)].count += 1.0;
    }
    counts
}

fn dispersion(bins: &[Bin], rate: f64) -> Dispersion {
    let squares: f64 = bins
        .iter()
        .map(|bin| {
            let expected = rate * bin.exposure_s;
            (bin.count - expected) * (bin.count - expected) / expected
        })
        .sum();
    let freedom = (bins.len().max(2) - 1) as f64;
    // With a positive number of degrees of freedom there is such a distribution.
    let p_value = ChiSquared::new(freedom).map_or(f64::NAN, |law| law.sf(squares));
    Dispersion { index: squares / freedom, p_value }
}

/// The rate of each hour of the day, where the rates of days are known.
fn diurnal(bins: &[Bin], days: &[f64]) -> (Arrivals, f64) {
    let factor = |bin: &Bin| days.get((bin.hour / 24 % 7) as usize).copied().unwrap_or(1.0);
    let (mut counts, mut exposures) = ([0.0; 24], [0.0; 24]);
    for bin in bins {
        counts[(bin.hour % 24) as usize] += bin.count;
        exposures[(bin.hour % 24) as usize] += bin.exposure_s * factor(bin);
    }
    let rates: Vec<f64> = counts
        .iter()
        .zip(exposures)
        .map(|(count, exposure)| if exposure > 0.0 { count / exposure } else { 0.0 })
        .collect();
    let log = |bin: &Bin| log_poisson(bin, rates[(bin.hour % 24) as usize] * factor(bin));
    let log_likelihood = bins.iter().map(log).sum();
    let per_hour = rates.iter().map(|rate| rate * HOUR_S).collect();
    (Arrivals::Diurnal { per_hour, days: days.to_vec() }, log_likelihood)
}

/// Rates of hours times factors of days, each in turn until the likelihood stands.
fn weekly(bins: &[Bin]) -> (Arrivals, f64) {
    let mut days = vec![1.0; 7];
    let mut best = diurnal(bins, &days);
    for _ in 0..100 {
        let Arrivals::Diurnal { per_hour, .. } = &best.0 else { break };
        let (mut counts, mut expected) = ([0.0; 7], [0.0; 7]);
        for bin in bins {
            counts[(bin.hour / 24 % 7) as usize] += bin.count;
            expected[(bin.hour / 24 % 7) as usize] +=
                per_hour[(bin.hour % 24) as usize] / HOUR_S * bin.exposure_s;
        }
        for day in 0..7 {
            days[day] = if expected[day] > 0.0 { counts[day] / expected[day] } else { 1.0 };
        }
        let mean = days.iter().sum::<f64>() / 7.0;
        days.iter_mut().for_each(|day| *day /= mean);
        let next = diurnal(bins, &days);
        let stands = (next.1 - best.1).abs() < 1e-9 * next.1.abs();
        best = next;
        if stands {
            break;
        }
    }
    best
}
