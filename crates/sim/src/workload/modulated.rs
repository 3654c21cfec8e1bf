//! Fits the two-state modulated Poisson law (MMPP) to counts, by their likelihood.
//!
//! A bin may be partly in one state and partly in the other. Given the time τ in the second state, its count is a
//! Poisson number; the density of τ, of both ends of the bin given, is known in closed form. The integral over τ is a
//! matrix from the state before the bin to the state behind it, and the likelihood of all counts is the product of
//! these matrices.
//!
//! ```text
//! f01(τ) = q0 E I0(x)                no change   00: exp(-q0 Δ) at τ = 0
//! f10(τ) = q1 E I0(x)                            11: exp(-q1 Δ) at τ = Δ
//! f00(τ) = q0 q1 (Δ - τ) E I1(x) / (x / 2)
//! f11(τ) = q0 q1 τ E I1(x) / (x / 2)
//! E = exp(-q0 (Δ - τ) - q1 τ),  x = 2 sqrt(q0 q1 τ (Δ - τ))
//! ```
//!
//! Δ is the length of the bin in seconds, q0 and q1 are changes per second in each state, I0 and I1 modified Bessel
//! functions: each sum over the numbers of stays of which the bin is made. The likelihood is maximised over both rates
//! and both mean stays. No stay may be shorter than a thirtieth of a bin: of shorter bursts counts tell how many jobs
//! they bring, but not how fast.

use bellwether_numerics::minimize::{Bounds, minimize};

/// Points at which the integral over τ is taken, between its two ends.
const POINTS: usize = 64;

/// Bins for which the shortest stay lasts.
const SHORTEST: f64 = 1.0 / 30.0;

/// The count of a bin, and how much of the bin was looked at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Bin {
    /// Arrivals.
    pub(super) count: f64,
    /// Seconds of it.
    pub(super) exposure_s: f64,
    /// The hour since the beginning of day 0 in which it lies.
    pub(super) hour: u64,
}

/// A fitted law.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct TwoStates {
    /// Arrivals per second in each state, in ascending order.
    pub(super) rates: [f64; 2],
    /// Seconds for which each state lasts on average.
    pub(super) stays_s: [f64; 2],
}

/// The distinct counts: what is computed from equal ones is the same.
struct Counts {
    bin_s: f64,
    /// Each different bin.
    different: Vec<Bin>,
    /// Of every bin, in the order of time, which one it is.
    which: Vec<usize>,
    points: Vec<(f64, f64)>,
}

/// The law of the largest likelihood, and the log of it; `None` where counts cannot tell two states.
pub(super) fn fit(bins: &[Bin], bin_s: f64) -> Option<(TwoStates, f64)> {
    let counts = Counts::new(bins, bin_s);
    let mut rates: Vec<f64> = bins.iter().map(|bin| bin.count / bin.exposure_s).collect();
    rates.sort_unstable_by(f64::total_cmp);
    let threshold = |share: f64| rates[((rates.len() - 1) as f64 * share) as usize];
    let mut starts: Vec<(f64, Vec<f64>)> = [0.25, 0.5, 0.75, 0.9, 0.97]
        .into_iter()
        .filter_map(|share| begin(bins, bin_s, threshold(share)))
        .map(|law| (-counts.log_likelihood(&law), law.logs()))
        .collect();
    starts.sort_by(|a, b| a.0.total_cmp(&b.0));
    // The valleys that begin highest are not worth their time.
    starts.truncate(2);
    let (slowest, fastest) = (1e-6 / bin_s, 4.0 * rates.last()?.max(1.0 / bin_s));
    let (shortest_s, longest_s) = (bin_s * SHORTEST, bin_s * bins.len() as f64 * 10.0);
    let ends = |rate: f64, stay_s: f64| [rate, rate, stay_s, stay_s].map(libm::log).to_vec();
    let bounds = Bounds::new(ends(slowest, shortest_s), ends(fastest, longest_s)).ok()?;
    if starts.is_empty() {
        return None;
    }
    let starts: Vec<Vec<f64>> = starts.into_iter().map(|(_, start)| start).collect();
    let least = minimize(|logs| -counts.log_likelihood(&TwoStates::from_logs(logs)), &bounds, &starts);
    let mut law = TwoStates::from_logs(&least.x);
    if law.rates[0] > law.rates[1] {
        law.rates.reverse();
        law.stays_s.reverse();
    }
    least.value.is_finite().then_some((law, -least.value))
}

/// States by a threshold between them; stays by how often it is crossed.
fn begin(bins: &[Bin], bin_s: f64, threshold: f64) -> Option<TwoStates> {
    let state = |bin: &Bin| usize::from(bin.count / bin.exposure_s > threshold);
    let [mut counts, mut exposures, mut left] = [[0.0_f64; 2]; 3];
    for bin in bins {
        counts[state(bin)] += bin.count;
        exposures[state(bin)] += bin.exposure_s;
    }
    for pair in bins.windows(2) {
        if state(&pair[0]) != state(&pair[1]) {
            left[state(&pair[0])] += 1.0;
        }
    }
    if exposures.contains(&0.0) {
        return None;
    }
    let rates = [0, 1].map(|s| (counts[s] / exposures[s]).max(1e-3 / bin_s));
    Some(TwoStates { rates, stays_s: [0, 1].map(|s| exposures[s] / (left[s] + 0.5)) })
}

impl TwoStates {
    fn logs(&self) -> Vec<f64> {
        self.rates.iter().chain(&self.stays_s).map(|value| libm::log(*value)).collect()
    }

    fn from_logs(logs: &[f64]) -> TwoStates {
        let value = |at: usize| libm::exp(logs[at]);
        TwoStates { rates: [value(0), value(1)], stays_s: [value(2), value(3)] }
    }

    /// `[from][to]`: the weight of each point, of which the first and the last are the ends.
    fn weights(&self, bin_s: f64, points: &[(f64, f64)]) -> [[Vec<f64>; 2]; 2] {
        let [q0, q1] = self.stays_s.map(|stay_s| bin_s / stay_s);
        let mut weights = [const { [const { Vec::new() }; 2] }; 2];
        for (second, width) in points {
            let first = 1.0 - second;
            let half = (q0 * q1 * first * second).sqrt();
            // E exp(x): the exponentials of both ends and of the Bessel functions together are no more than 1.
            let difference = (q0 * first).sqrt() - (q1 * second).sqrt();
            let scale = width * libm::exp(-difference * difference);
            let [bessel0, bessel1] = bessel(half);
            weights[0][1].push(scale * q0 * bessel0);
            weights[1][0].push(scale * q1 * bessel0);
            weights[0][0].push(scale * q0 * q1 * first * bessel1);
            weights[1][1].push(scale * q0 * q1 * second * bessel1);
        }
        weights[0][0][0] = libm::exp(-q0);
        weights[1][1][points.len() - 1] = libm::exp(-q1);
        weights
    }
}

/// I0(2h) exp(-2h) and I1(2h) exp(-2h) / h.
fn bessel(half: f64) -> [f64; 2] {
    let x = 2.0 * half;
    if x < 30.0 {
        let (mut term, mut sums) = (libm::exp(-x), [0.0; 2]);
        for k in 0..200 {
            let number = f64::from(k + 1);
            sums[0] += term;
            sums[1] += term / number;
            term *= half * half / (number * number);
            if term < 1e-17 * sums[0] {
                break;
            }
        }
        return sums;
    }
    // The asymptotic series, whose terms fall until far below the last digit.
    let series = |order: f64| {
        let (mut term, mut sum) = (1.0, 0.0);
        for k in 1..20 {
            sum += term;
            let odd = f64::from(2 * k - 1);
            term *= -(4.0 * order * order - odd * odd) / (f64::from(k) * 8.0 * x);
        }
        sum / (std::f64::consts::TAU * x).sqrt()
    };
    [series(0.0), series(1.0) / half]
}

/// Points and weights of Gauss and Legendre between 0 and 1, and both ends without a weight.
fn points() -> Vec<(f64, f64)> {
    let mut points = vec![(0.0, 0.0)];
    for index in 0..POINTS {
        // Roots of the Legendre polynomial, by Newton's steps from where they nearly are.
        let mut x = -libm::cos(std::f64::consts::PI * (index as f64 + 0.75) / (POINTS as f64 + 0.5));
        let mut slope = 1.0;
        for _ in 0..10 {
            let (mut before, mut now) = (1.0, x);
            for degree in 2..=POINTS {
                let n = degree as f64;
                (before, now) = (now, ((2.0 * n - 1.0) * x * now - (n - 1.0) * before) / n);
            }
            slope = POINTS as f64 * (x * now - before) / (x * x - 1.0);
            x -= now / slope;
        }
        points.push((f64::midpoint(x, 1.0), 1.0 / ((1.0 - x * x) * slope * slope)));
    }
    points.push((1.0, 0.0));
    points
}

impl Counts {
    fn new(bins: &[Bin], bin_s: f64) -> Counts {
        let order =
            |a: &Bin, b: &Bin| a.count.total_cmp(&b.count).then(a.exposure_s.total_cmp(&b.exposure_s));
        let mut different = bins.to_vec();
        different.sort_unstable_by(order);
        different.dedup_by(|a, b| order(a, b).is_eq());
        let which = |bin: &Bin| different.binary_search_by(|known| order(known, bin)).unwrap_or(0);
        let which = bins.iter().map(which).collect();
        Counts { bin_s, different, which, points: points() }
    }

    /// Without the factorials of the counts.
    fn log_likelihood(&self, law: &TwoStates) -> f64 {
        let weights = law.weights(self.bin_s, &self.points);
        let rate = |(second, _): &(f64, f64)| law.rates[0] * (1.0 - second) + law.rates[1] * second;
        let rates: Vec<f64> = self.points.iter().map(rate).collect();
        let matrices: Vec<([[f64; 2]; 2], f64)> =
            self.different.iter().map(|bin| matrix(bin, &rates, &weights)).collect();
        let whole = law.stays_s[0] + law.stays_s[1];
        let mut state = law.stays_s.map(|stay_s| stay_s / whole);
        let (mut log_likelihood, mut product) = (0.0, 1.0);
        for which in &self.which {
            let (matrix, log) = &matrices[*which];
            let next = [0, 1].map(|to| state[0] * matrix[0][to] + state[1] * matrix[1][to]);
            let scale = next[0] + next[1];
            state = next.map(|probability| probability / scale);
            product *= scale;
            log_likelihood += log;
            // Logarithms are expensive: one for as many bins as a number can hold.
            if !(1e-150..1e150).contains(&product) {
                log_likelihood += libm::log(product);
                product = 1.0;
            }
        }
        log_likelihood += libm::log(product);
        log_likelihood
    }
}

/// From the state before a bin to the state behind it, and the log of its scale.
fn matrix(bin: &Bin, rates: &[f64], weights: &[[Vec<f64>; 2]; 2]) -> ([[f64; 2]; 2], f64) {
    let logs: Vec<f64> = rates.iter().map(|rate| log_poisson(bin, *rate)).collect();
    let largest = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut matrix = [[0.0; 2]; 2];
    for (at, log) in logs.iter().enumerate() {
        let probability = libm::exp(log - largest);
        for (row, weights) in matrix.iter_mut().zip(weights) {
            row[0] += probability * weights[0][at];
            row[1] += probability * weights[1][at];
        }
    }
    (matrix, largest)
}

/// The log of a Poisson probability, without the factorial of the count.
pub(super) fn log_poisson(bin: &Bin, rate_per_s: f64) -> f64 {
    let expected = rate_per_s * bin.exposure_s;
    // A rate of 0 explains a count of 0.
    let log = if bin.count > 0.0 { bin.count * libm::log(expected) } else { 0.0 };
    log - expected
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bessel_functions_by_tables() {
        // I0(1) = 1.2660658777520084, I1(1) = 0.5651591039924851; exp(-50) I0(50) = 0.05656163...
        let [zero, one] = bessel(0.5);
        assert!((zero * 1f64.exp() - 1.266_065_877_752_008_4).abs() < 1e-14);
        assert!((one * 0.5 * 1f64.exp() - 0.565_159_103_992_485_1).abs() < 1e-14);
        for (below, above) in bessel(15.0 - 1e-9).iter().zip(bessel(15.0)) {
            assert!((below / above - 1.0).abs() < 1e-8, "both series meet: {below} {above}");
        }
    }

    #[test]
    fn all_paths_together_are_certain() {
        for stays_s in [[10.0, 3.0], [1.0, 0.1], [0.05, 100.0], [0.04, 0.04]] {
            let law = TwoStates { rates: [1.0, 2.0], stays_s };
            let weights = law.weights(1.0, &points());
            for from in [0, 1] {
                let sum: f64 = weights[from].iter().flatten().sum();
                assert!((sum - 1.0).abs() < 1e-9, "{stays_s:?}, from {from}: {sum}");
            }
            // The chain's own probability of a change.
            let leave = stays_s.map(|stay_s| 1.0 / stay_s);
            let change = leave[0] / (leave[0] + leave[1]) * (1.0 - (-leave[0] - leave[1]).exp());
            assert!((weights[0][1].iter().sum::<f64>() - change).abs() < 1e-9);
        }
    }
}
