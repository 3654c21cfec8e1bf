//! Local queues that overflow into a pool: the stationary law of the Markov chain, by a sparse iterative solution.
//!
//! # Coordinates
//!
//! A local queue never sees the pool, so the chain is a sum: each local generator on its own, the pool's deaths d(k),
//! and one coupling per cloud, which acts only where that cloud is full. In the coordinates of the local modes (see
//! [`super::spectrum`]) the vector q_k of level k, that is k requests in the pool, obeys
//!
//! ```text
//! (d(k) - theta) q_k + L(k) q_k = d(k+1) q_{k+1} + L(k-1) q_{k-1}
//! L(k) = sum over clouds i with k < c_i of lambda_i w_i w_i'
//! ```
//!
//! with a diagonal theta and one dyad per cloud: one application costs a few operations per state, however many
//! transitions the states have, and nothing is stored of the matrix. The entry of the stationary mode of all
//! clouds is the law of the pool itself; over all levels it sums to 1.
//!
//! # Solution
//!
//! Start: the pool under Poisson streams of the mean overflows. Preconditioner: the diagonal of L instead of L, so each
//! mode is a tridiagonal system in k of its own; for the stationary mode that is the start's birth-death
//! chain, solved outwards from its peak.

use super::krylov::{Progress, System, add, dot};
use super::plane::{Level, Plane};
use super::spectrum::Spectrum;

/// The chain, ready to be applied.
pub(super) struct Chain {
    service_per_s: f64,
    /// Servers of the pool.
    servers: u64,
    /// Highest number of requests in the pool.
    top: usize,
    /// Combinations of modes.
    width: usize,
    clouds: Vec<Source>,
    /// Poisson streams that the pool also has.
    direct: Vec<(f64, usize)>,
    /// Sum of the local rates of each combination, in 1/s.
    decay_per_s: Vec<f64>,
    /// Diagonal of L, per level and combination.
    diagonal: Vec<f64>,
    /// Reciprocal pivots of the preconditioner, as `diagonal`.
    pivots: Vec<f64>,
    /// Law of the pool under the mean overflows.
    start: Vec<f64>,
    /// The most likely level of `start`.
    peak: usize,
    /// For each cloud, the pool with its bursts alone.
    planes: Vec<Plane>,
}

/// One local queue as the chain sees it.
pub(super) struct Source {
    pub(super) arrivals_per_s: f64,
    pub(super) spectrum: Spectrum,
    /// Requests in the pool from which on its overflow is refused.
    pub(super) capacity: usize,
}

/// What the stationary law says of the pool.
pub(super) struct Stationary {
    /// Overflow of each source that the pool refuses, in 1/s.
    pub(super) forwarded_per_s: Vec<f64>,
    /// Probability of each number of requests in the pool.
    pub(super) pool: Vec<f64>,
    pub(super) progress: Progress,
}

impl Chain {
    pub(super) fn new(
        service_per_s: f64,
        servers: u64,
        clouds: Vec<Source>,
        direct: Vec<(f64, usize)>,
    ) -> Chain {
        let width = clouds.iter().map(|cloud| cloud.spectrum.at_full.len()).product();
        let capacities = clouds.iter().map(|cloud| cloud.capacity).chain(direct.iter().map(|d| d.1));
        let top = capacities.max().unwrap_or(0);
        let mut chain = Chain {
            service_per_s,
            servers,
            top,
            width,
            clouds,
            direct,
            decay_per_s: vec![0.0; width],
            diagonal: vec![0.0; width * (top + 1)],
            pivots: Vec::new(),
            start: Vec::new(),
            peak: 0,
            planes: Vec::new(),
        };
        chain.fill_diagonals();
        chain.factor();
        chain.fill_start();
        chain.planes = chain.strides().map(|(cloud, _)| chain.plane(cloud)).collect();
        chain
    }

    fn deaths_per_s(&self, level: usize) -> f64 {
        (level as u64).min(self.servers) as f64 * self.service_per_s
    }

    /// Poisson arrivals that the pool admits at `level`.
    fn direct_per_s(&self, level: usize) -> f64 {
        self.direct.iter().filter(|(_, capacity)| level < *capacity).map(|(rate, _)| rate).sum()
    }

    /// Each cloud, and how many combinations lie between one of its modes and the next.
    fn strides(&self) -> impl Iterator<Item = (&Source, usize)> {
        self.clouds.iter().scan(self.width, |stride, cloud| {
            *stride /= cloud.spectrum.at_full.len();
            Some((cloud, *stride))
        })
    }

    fn fill_diagonals(&mut self) {
        let mut decay_per_s = vec![0.0; self.width];
        let mut diagonal = vec![0.0; self.diagonal.len()];
        for level in 0..=self.top {
            diagonal[level * self.width..][..self.width].fill(self.direct_per_s(level));
        }
        for (cloud, inner) in self.strides() {
            let modes = cloud.spectrum.at_full.len();
            for (combination, decay) in decay_per_s.iter_mut().enumerate() {
                let mode = combination / inner % modes;
                *decay += cloud.spectrum.rates_per_s[mode];
                let own = cloud.arrivals_per_s * cloud.spectrum.at_full[mode] * cloud.spectrum.at_full[mode];
                for level in 0..cloud.capacity {
                    diagonal[level * self.width + combination] += own;
                }
            }
        }
        (self.decay_per_s, self.diagonal) = (decay_per_s, diagonal);
    }

    /// Pivots of the tridiagonal systems, eliminated upwards.
    fn factor(&mut self) {
        let width = self.width;
        let mut pivots = vec![0.0; self.diagonal.len()];
        for level in 0..=self.top {
            let deaths = self.deaths_per_s(level);
            for combination in 0..width {
                let at = level * width + combination;
                let mut pivot = deaths - self.decay_per_s[combination] + self.diagonal[at];
                if level > 0 {
                    pivot -= deaths * self.diagonal[at - width] * pivots[at - width];
                }
                pivots[at] = 1.0 / pivot;
            }
        }
        // The stationary mode is singular and solved apart: this only keeps its column finite.
        (0..=self.top).for_each(|level| pivots[level * width] = 0.0);
        self.pivots = pivots;
    }

    fn fill_start(&mut self) {
        let mut logarithms = vec![0.0; self.top + 1];
        for level in 1..=self.top {
            let ratio = self.diagonal[(level - 1) * self.width] / self.deaths_per_s(level);
            logarithms[level] = logarithms[level - 1] + libm::log(ratio);
        }
        let peak = (0..=self.top).fold(0, |best, k| if logarithms[k] > logarithms[best] { k } else { best });
        let weights: Vec<f64> = logarithms.iter().map(|log| libm::exp(log - logarithms[peak])).collect();
        let total: f64 = weights.iter().sum();
        self.start = weights.iter().map(|weight| weight / total).collect();
        self.peak = peak;
    }

    fn plane(&self, cloud: &Source) -> Plane {
        let stationary = cloud.spectrum.at_full[0] * cloud.spectrum.at_full[0];
        let level = |level: usize| {
            let bursts_per_s = if level < cloud.capacity { cloud.arrivals_per_s } else { 0.0 };
            let mean_per_s = self.diagonal[level * self.width];
            let others_per_s = (mean_per_s - bursts_per_s * stationary).max(0.0);
            Level { deaths_per_s: self.deaths_per_s(level), bursts_per_s, others_per_s }
        };
        Plane::new(&cloud.spectrum, (0..=self.top).map(level).collect(), self.peak)
    }

    /// Solves to a residual of `enough`, in 1/s.
    pub(super) fn solve(&self, enough: f64, most_iterations: u32) -> Stationary {
        let mut law = vec![0.0; self.diagonal.len()];
        for (level, mass) in self.start.iter().enumerate() {
            law[level * self.width] = *mass;
        }
        let progress = super::krylov::solve(self, &mut law, enough, most_iterations);
        let refused = |(cloud, inner): (&Source, usize)| {
            let at_full = &cloud.spectrum.at_full;
            let levels = (cloud.capacity..=self.top).map(|level| &law[level * self.width..]);
            let full = levels
                .map(|law| at_full.iter().zip(law.iter().step_by(inner)).map(|(w, q)| w * q).sum::<f64>());
            // Rounding may leave a probability of nothing slightly below 0.
            cloud.arrivals_per_s * (at_full[0] * full.sum::<f64>()).max(0.0)
        };
        Stationary {
            forwarded_per_s: self.strides().map(refused).collect(),
            pool: law.iter().step_by(self.width).map(|mass| mass.max(0.0)).collect(),
            progress,
        }
    }

    /// `image` = L(level) `vector`; `sums` is scratch.
    fn overflow(&self, level: usize, vector: &[f64], image: &mut [f64], sums: &mut Vec<f64>) {
        let direct = self.direct_per_s(level);
        image.iter_mut().zip(vector).for_each(|(image, value)| *image = direct * value);
        for (cloud, inner) in self.strides().filter(|(cloud, _)| level < cloud.capacity) {
            let at_full = &cloud.spectrum.at_full;
            let block = inner * at_full.len();
            if inner == 1 {
                for (vector, image) in vector.chunks_exact(block).zip(image.chunks_exact_mut(block)) {
                    let factor = cloud.arrivals_per_s * dot(vector, at_full);
                    add(image, factor, at_full);
                }
                continue;
            }
            for (vector, image) in vector.chunks_exact(block).zip(image.chunks_exact_mut(block)) {
                sums.clear();
                sums.resize(inner, 0.0);
                for (row, component) in vector.chunks_exact(inner).zip(at_full) {
                    sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += component * value);
                }
                for (row, component) in image.chunks_exact_mut(inner).zip(at_full) {
                    let factor = cloud.arrivals_per_s * component;
                    row.iter_mut().zip(&*sums).for_each(|(value, sum)| *value += factor * sum);
                }
            }
        }
    }

    /// The stationary mode's part of the preconditioner: the birth-death chain with inflow `target`, which sums to 0,
    /// and so does the solution. Solved outwards from the peak, in which direction errors shrink.
    fn balance(&self, target: &[f64], guess: &mut [f64]) {
        let births = |level: usize| self.diagonal[level * self.width];
        let mut flows = Vec::with_capacity(self.top + 1);
        let mut flow = 0.0;
        for level in 0..=self.top {
            flow += target[level * self.width];
            flows.push(flow);
        }
        let mut column = vec![0.0; self.top + 1];
        for level in self.peak..self.top {
            column[level + 1] = (births(level) * column[level] - flows[level]) / self.deaths_per_s(level + 1);
        }
        for level in (0..self.peak).rev() {
            column[level] = (flows[level] + self.deaths_per_s(level + 1) * column[level + 1]) / births(level);
        }
        let total: f64 = column.iter().sum();
        for (level, (value, start)) in column.iter().zip(&self.start).enumerate() {
            guess[level * self.width] = value - total * start;
        }
    }
}

impl System for Chain {
    fn apply(&self, vector: &[f64], image: &mut [f64]) {
        let width = self.width;
        let (mut below, mut here) = (vec![0.0; width], vec![0.0; width]);
        let mut sums = Vec::new();
        let nothing = vec![0.0; width];
        for (level, image) in image.chunks_exact_mut(width).enumerate() {
            let own = &vector[level * width..][..width];
            let above = if level < self.top { &vector[(level + 1) * width..][..width] } else { &nothing };
            self.overflow(level, own, &mut here, &mut sums);
            let (deaths, returns) = (self.deaths_per_s(level), self.deaths_per_s(level + 1));
            for i in 0..width {
                image[i] = (deaths - self.decay_per_s[i]) * own[i] + here[i] - below[i] - returns * above[i];
            }
            std::mem::swap(&mut below, &mut here);
        }
    }

    fn precondition(&self, target: &[f64], guess: &mut [f64]) {
        let width = self.width;
        for i in 0..width {
            guess[i] = target[i] * self.pivots[i];
        }
        for level in 1..=self.top {
            let (before, rest) = guess.split_at_mut(level * width);
            let below = &before[(level - 1) * width..];
            let coupling = &self.diagonal[(level - 1) * width..][..width];
            let (pivots, target) =
                (&self.pivots[level * width..][..width], &target[level * width..][..width]);
            for i in 0..width {
                rest[i] = (target[i] + coupling[i] * below[i]) * pivots[i];
            }
        }
        for level in (0..self.top).rev() {
            let (before, above) = guess.split_at_mut((level + 1) * width);
            let here = &mut before[level * width..];
            let (returns, pivots) = (self.deaths_per_s(level + 1), &self.pivots[level * width..][..width]);
            for i in 0..width {
                here[i] += pivots[i] * returns * above[i];
            }
        }
        self.balance(target, guess);
        if std::env::var("NOPLANE").is_ok() {
            return;
        }
        let surplus = self.planes.len() as f64 - 1.0;
        guess.iter_mut().step_by(width).for_each(|value| *value *= -surplus);
        for ((cloud, inner), plane) in self.strides().zip(&self.planes) {
            let modes = cloud.spectrum.at_full.len();
            let mut part = Vec::with_capacity((self.top + 1) * modes);
            for level in target.chunks_exact(width) {
                part.extend(level.iter().step_by(inner).take(modes));
            }
            plane.solve(&mut part);
            for (level, part) in guess.chunks_exact_mut(width).zip(part.chunks_exact(modes)) {
                level[0] += part[0];
                level.iter_mut().step_by(inner).zip(part).skip(1).for_each(|(value, part)| *value = *part);
            }
        }
    }
}
