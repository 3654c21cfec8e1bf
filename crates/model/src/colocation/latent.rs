//! Exposures and pressures from measured shares: each job's in turn, with all others fixed.

use bellwether_numerics::matrix::{cholesky, solve};

use super::{Pair, SHRINKAGE};

/// Rounds over all jobs; a fit changes little after ten.
const SWEEPS: u32 = 40;

/// Steps of one job in one round.
const STEPS: u32 = 4;

/// Steps of a job that is fitted once.
pub(super) const LONE_STEPS: u32 = 60;

/// No step changes a demand by more than this factor, as a logarithm.
const LONGEST_STEP: f64 = 1.5;

/// How far first guesses lie apart, as logarithms: equal resources would stay equal.
const SPREAD: f64 = 1.0;

/// By job and resource, as logarithms.
type Logarithms = Vec<Vec<f64>>;

/// One measured slowdown of a job, beside another with these numbers: `log(1 + sum_r exp(x_r) other_r)`.
pub(super) struct Seen {
    pub(super) other: Vec<f64>,
    pub(super) log_slowdown: f64,
}

/// Exposures and pressures.
pub(super) fn fit(jobs: usize, pairs: &[Pair], resources: usize) -> (Logarithms, Logarithms) {
    // By job: beside whom it kept which share, and who kept which share beside it.
    let mut suffered = vec![Vec::new(); jobs];
    let mut caused = vec![Vec::new(); jobs];
    for pair in pairs {
        let (Some([first, second]), [a, b]) = (pair.shares, pair.jobs) else { continue };
        suffered[a].push((b, -libm::log(first)));
        caused[b].push((a, -libm::log(first)));
        if a != b {
            suffered[b].push((a, -libm::log(second)));
            caused[a].push((b, -libm::log(second)));
        }
    }
    let (mut exposures, mut pressures) = start(&suffered, resources);
    for _ in 0..SWEEPS {
        sweep(&mut exposures, &pressures, &suffered);
        sweep(&mut pressures, &exposures, &caused);
        balance(&mut exposures, &mut pressures);
    }
    (exposures, pressures)
}

/// All alike but for a little, so that resources may part.
fn start(suffered: &[Vec<(usize, f64)>], resources: usize) -> (Logarithms, Logarithms) {
    let losses = suffered.iter().flatten().map(|(_, log_slowdown)| libm::expm1(*log_slowdown));
    let (sum, count) = losses.fold((0.0, 0.0), |(sum, count), loss| (sum + loss, count + 1.0));
    let level = libm::log((sum / count / resources as f64).max(1e-3)) / 2.0;
    // Multiples of the golden ratio, less whole ones, are spread evenly and in no order.
    let part = |place: usize| (place as f64 * 0.618_033_988_749_895).fract() - 0.5;
    let guess = |offset: usize| {
        let one = |job: usize| {
            (0..resources).map(|r| level + SPREAD * part((job + offset) * resources + r + 1)).collect()
        };
        (0..suffered.len()).map(one).collect()
    };
    (guess(0), guess(suffered.len()))
}

fn sweep(own: &mut Logarithms, others: &Logarithms, seen: &[Vec<(usize, f64)>]) {
    let middle = mean(own);
    for (numbers, seen) in own.iter_mut().zip(seen) {
        let seen: Vec<Seen> = seen
            .iter()
            .map(|&(other, log_slowdown)| Seen {
                other: others[other].iter().copied().map(libm::exp).collect(),
                log_slowdown,
            })
            .collect();
        // A job of which nothing is known is like the others.
        *numbers =
            if seen.is_empty() { middle.clone() } else { improve(numbers, &seen, &middle, SHRINKAGE, STEPS) };
    }
}

/// A factor moves freely between exposure and pressure: both get the same mean.
fn balance(exposures: &mut Logarithms, pressures: &mut Logarithms) {
    let (left, right) = (mean(exposures), mean(pressures));
    for r in 0..left.len() {
        let half = (left[r] - right[r]) / 2.0;
        exposures.iter_mut().for_each(|numbers| numbers[r] -= half);
        pressures.iter_mut().for_each(|numbers| numbers[r] += half);
    }
}

pub(super) fn mean(numbers: &[Vec<f64>]) -> Vec<f64> {
    let width = numbers.first().map_or(0, Vec::len);
    let count = numbers.len().max(1) as f64;
    (0..width).map(|r| numbers.iter().map(|of_job| of_job[r]).sum::<f64>() / count).collect()
}

/// Numbers of one job, nearer to what was seen of it: damped Gauss-Newton steps, each of which is taken only if it
/// leads down.
pub(super) fn improve(from: &[f64], seen: &[Seen], middle: &[f64], shrinkage: f64, steps: u32) -> Vec<f64> {
    let width = from.len();
    let mut best = from.to_vec();
    let mut cost = cost_of(&best, seen, middle, shrinkage);
    let mut damping = 1e-3;
    for _ in 0..steps {
        let (mut squared, mut gradient) = (vec![0.0; width * width], vec![0.0; width]);
        for one in seen {
            let parts: Vec<f64> =
                best.iter().zip(&one.other).map(|(x, other)| libm::exp(*x) * other).collect();
            let slowdown = 1.0 + parts.iter().sum::<f64>();
            let residual = libm::log(slowdown) - one.log_slowdown;
            for i in 0..width {
                gradient[i] += residual * parts[i] / slowdown;
                for j in 0..width {
                    squared[i * width + j] += parts[i] * parts[j] / (slowdown * slowdown);
                }
            }
        }
        for i in 0..width {
            gradient[i] += shrinkage * (best[i] - middle[i]);
            squared[i * width + i] += shrinkage;
        }
        let Some(better) = step(&best, &squared, &gradient, &mut damping, |numbers| {
            cost_of(numbers, seen, middle, shrinkage) < cost
        }) else {
            break;
        };
        cost = cost_of(&better, seen, middle, shrinkage);
        best = better;
    }
    best
}

/// A step that leads down, with as little damping as that needs; `None` when none does.
fn step(
    from: &[f64],
    squared: &[f64],
    gradient: &[f64],
    damping: &mut f64,
    is_better: impl Fn(&[f64]) -> bool,
) -> Option<Vec<f64>> {
    const TRIALS: u32 = 12;
    let width = from.len();
    for _ in 0..TRIALS {
        let mut damped = squared.to_vec();
        (0..width).for_each(|i| damped[i * width + i] += *damping);
        if let Some(factor) = cholesky(&damped, width) {
            let moved = solve(&factor, width, gradient);
            let moved = moved.into_iter().map(|change| change.clamp(-LONGEST_STEP, LONGEST_STEP));
            let tried: Vec<f64> = from.iter().zip(moved).map(|(x, change)| x - change).collect();
            if is_better(&tried) {
                *damping = (*damping / 3.0).max(1e-9);
                return Some(tried);
            }
        }
        *damping *= 4.0;
    }
    None
}

fn cost_of(numbers: &[f64], seen: &[Seen], middle: &[f64], shrinkage: f64) -> f64 {
    let square = |x: f64| x * x;
    let error = |one: &Seen| {
        let waited: f64 = numbers.iter().zip(&one.other).map(|(x, other)| libm::exp(*x) * other).sum();
        square(libm::log1p(waited) - one.log_slowdown)
    };
    let strain: f64 = numbers.iter().zip(middle).map(|(x, middle)| square(x - middle)).sum();
    seen.iter().map(error).sum::<f64>() + shrinkage * strain
}
