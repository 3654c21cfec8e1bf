//! Jobs that were never measured beside another: what their profile says, and what a few probes say.

use bellwether_core::InputError;
use bellwether_numerics::matrix::{cholesky, solve};

use super::latent::{LONE_STEPS, Seen, improve, mean};
use super::{Demand, PROBE_SHRINKAGE, footprint};

/// How many jobs the expectation that a profile says nothing is worth.
const RIDGE: f64 = 10.0;

const PLACE: &str = "profiles of jobs that share a device";

/// Demands as a linear function of profiles.
#[derive(Debug, Clone, PartialEq)]
pub struct Newcomers {
    resources: usize,
    /// Mean and standard deviation of each number of a profile.
    scales: Vec<(f64, f64)>,
    /// Mean of each number of a demand.
    middle: Vec<f64>,
    /// By number of a demand: a weight for each of a profile.
    weights: Vec<Vec<f64>>,
}

/// A measured pair of a newcomer.
#[derive(Debug, Clone, PartialEq)]
pub struct Probe<'a> {
    /// The job beside it.
    pub beside: &'a Demand,
    /// The part of its speed alone that the newcomer kept, and that of the other one; `None` when they had no room.
    pub shares: Option<[f64; 2]>,
}

impl Newcomers {
    /// Learns how the demands of jobs go with their profiles: numbers of any kind, as many for each job.
    ///
    /// # Errors
    ///
    /// Returns an error on any of these: no job, other numbers of profiles than of demands, or profiles with numbers
    /// that are not finite.
    pub fn fit(demands: &[Demand], profiles: &[Vec<f64>]) -> Result<Newcomers, InputError> {
        let width = profiles.first().map_or(0, Vec::len);
        let is_sound = |profile: &Vec<f64>| profile.len() == width && profile.iter().all(|x| x.is_finite());
        if demands.is_empty() || demands.len() != profiles.len() || !profiles.iter().all(is_sound) {
            return Err(InputError::new(
                PLACE,
                "every job needs a profile of as many numbers, and there must be one",
            ));
        }
        let scales: Vec<(f64, f64)> = mean(profiles)
            .into_iter()
            .enumerate()
            .map(|(place, middle)| {
                let square = |profile: &Vec<f64>| (profile[place] - middle) * (profile[place] - middle);
                let variance = profiles.iter().map(square).sum::<f64>() / profiles.len() as f64;
                (middle, variance.sqrt())
            })
            .collect();
        let outputs: Vec<Vec<f64>> = demands.iter().map(numbers).collect();
        let middle = mean(&outputs);
        let rows: Vec<Vec<f64>> = profiles.iter().map(|profile| standardised(profile, &scales)).collect();
        let mut squared = vec![0.0; width * width];
        for row in &rows {
            for i in 0..width {
                for j in 0..width {
                    squared[i * width + j] += row[i] * row[j];
                }
            }
        }
        (0..width).for_each(|i| squared[i * width + i] += RIDGE);
        let factor = cholesky(&squared, width).expect("a ridge makes it positive definite");
        let weights = |output: usize| {
            let product = |i: usize| {
                rows.iter()
                    .zip(&outputs)
                    .map(|(row, of_job)| row[i] * (of_job[output] - middle[output]))
                    .sum()
            };
            solve(&factor, width, &(0..width).map(product).collect::<Vec<f64>>())
        };
        let weights = (0..middle.len()).map(weights).collect();
        Ok(Newcomers { resources: demands[0].exposure.len(), scales, middle, weights })
    }

    /// What a job of this profile is expected to demand.
    pub fn expect(&self, profile: &[f64]) -> Demand {
        let row = standardised(profile, &self.scales);
        let value = |(middle, weights): (&f64, &Vec<f64>)| {
            middle + weights.iter().zip(&row).map(|(weight, x)| weight * x).sum::<f64>()
        };
        let numbers: Vec<f64> = self.middle.iter().zip(&self.weights).map(value).collect();
        demand(&numbers, self.resources)
    }
}

/// The demands of a newcomer of which `expected` was expected, after some pairs of it were measured.
pub fn probed(expected: &Demand, probes: &[Probe]) -> Demand {
    let middle = numbers(expected);
    let resources = expected.exposure.len();
    let seen = |which: usize, of: fn(&Demand) -> &Vec<f64>| -> Vec<Seen> {
        let one = |probe: &Probe| {
            let log_slowdown = -libm::log(probe.shares?[which]);
            Some(Seen { other: of(probe.beside).clone(), log_slowdown })
        };
        probes.iter().filter_map(one).collect()
    };
    let suffered = seen(0, |other| &other.pressure);
    let caused = seen(1, |other| &other.exposure);
    let of = |middle: &[f64], seen: &[Seen]| improve(middle, seen, middle, PROBE_SHRINKAGE, LONE_STEPS);
    let mut found = of(&middle[..resources], &suffered);
    found.extend(of(&middle[resources..2 * resources], &caused));
    let fitted: Vec<(f64, bool)> =
        probes.iter().map(|probe| (probe.beside.footprint, probe.shares.is_some())).collect();
    found.push(footprint::of_one(expected.footprint, &fitted));
    demand(&found, resources)
}

/// Logarithms of exposures and pressures, and the footprint.
fn numbers(demand: &Demand) -> Vec<f64> {
    let logarithms = demand.exposure.iter().chain(&demand.pressure).map(|value| libm::log(*value));
    logarithms.chain([demand.footprint]).collect()
}

fn demand(numbers: &[f64], resources: usize) -> Demand {
    let powers = |part: &[f64]| part.iter().copied().map(libm::exp).collect();
    Demand {
        exposure: powers(&numbers[..resources]),
        pressure: powers(&numbers[resources..2 * resources]),
        footprint: numbers[2 * resources],
    }
}

fn standardised(profile: &[f64], scales: &[(f64, f64)]) -> Vec<f64> {
    let one = |(x, (middle, deviation)): (&f64, &(f64, f64))| {
        if *deviation > 0.0 { (x - middle) / deviation } else { 0.0 }
    };
    profile.iter().zip(scales).map(one).collect()
}
