//! Local queues that overflow into a pool: the stationary law of the Markov chain, by a sparse iterative
//! solution.
//!
//! # Coordinates
//!
//! A local queue never sees the pool, so the chain is a sum: each local generator on its own, the pool's
//! deaths d(k), and one coupling per cloud, which acts only where that cloud is full. In the coordinates of
//! the local modes (see [`super::spectrum`]) the vector q_k of level k, that is k requests in the pool, obeys
//!
//! ```text
//! (d(k) - theta) q_k + L(k) q_k = d(k+1) q_{k+1} + L(k-1) q_{k-1}
//! L(k) = sum over clouds i with k < c_i of lambda_i w_i w_i'
//! ```
//!
//! with a diagonal theta and one dyad per cloud: one application costs a few operations per state, however
//! many transitions the states have, and nothing is stored of the matrix. The entry of the stationary mode of
//! all clouds is the law of the pool itself; over all levels it sums to 1.
//!
//! # Solution
//!
//! Preconditioner: the cloud with the strongest bursts is kept as it is, of the others' dyads only the
//! diagonal. Each combination of the others' modes is then a problem of its own, with a small block per level
//! (see [`super::plane`]). Start: the law of that cloud and the pool with the others at their means.

use bellwether_numerics::krylov::{self, Progress, System, add, dot};

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
    /// The one with the strongest bursts is the last: its modes lie side by side.
    clouds: Vec<Source>,
    /// Where that one was.
    strongest: usize,
    /// Poisson streams that the pool also has.
    direct: Vec<(f64, usize)>,
    /// Sum of the local rates of each combination, in 1/s and positive.
    decay_per_s: Vec<f64>,
    /// One for each combination of the modes of all clouds but the last.
    planes: Vec<Plane>,
}

/// One local queue as the chain sees it.
pub(super) struct Source {
    pub(super) arrivals_per_s: f64,
    pub(super) spectrum: Spectrum,
    /// Requests in the pool from which on its overflow is refused.
    pub(super) capacity: usize,
}

impl Source {
    /// How much bursts add to the variance of the overflow, per second.
    fn burstiness(&self) -> f64 {
        let (rates_per_s, at_full) = (&self.spectrum.rates_per_s, &self.spectrum.at_full);
        let modes = rates_per_s.iter().zip(at_full).skip(1);
        let overflow_per_s = self.arrivals_per_s * at_full[0];
        overflow_per_s * overflow_per_s * modes.map(|(rate, full)| full * full / -rate).sum::<f64>()
    }
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
        mut clouds: Vec<Source>,
        direct: Vec<(f64, usize)>,
    ) -> Chain {
        let stronger =
            |a: usize, b: usize| if clouds[b].burstiness() > clouds[a].burstiness() { b } else { a };
        let strongest = (0..clouds.len()).fold(0, stronger);
        let last = clouds.len() - 1;
        clouds.swap(strongest, last);
        let width = clouds.iter().map(|cloud| cloud.spectrum.at_full.len()).product();
        let capacities = clouds.iter().map(|cloud| cloud.capacity).chain(direct.iter().map(|d| d.1));
        let top = capacities.max().unwrap_or(0);
        let decay_per_s = vec![0.0; width];
        let planes = Vec::new();
        let mut chain =
            Chain { service_per_s, servers, top, width, clouds, strongest, direct, decay_per_s, planes };
        chain.fill_decays();
        chain.fill_planes();
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

    fn fill_decays(&mut self) {
        let mut decay_per_s = vec![0.0; self.width];
        for (cloud, inner) in self.strides() {
            let rates_per_s = &cloud.spectrum.rates_per_s;
            for (combination, decay) in decay_per_s.iter_mut().enumerate() {
                *decay -= rates_per_s[combination / inner % rates_per_s.len()];
            }
        }
        self.decay_per_s = decay_per_s;
    }

    /// Arrivals from all clouds but the last at `level`, as far as they keep to one `combination`.
    fn others_per_s(&self, level: usize, combination: usize) -> f64 {
        let others = self.strides().take(self.clouds.len() - 1).filter(|(cloud, _)| level < cloud.capacity);
        let kept = others.map(|(cloud, inner)| {
            let at_full = &cloud.spectrum.at_full;
            let component = at_full[combination / inner % at_full.len()];
            cloud.arrivals_per_s * component * component
        });
        self.direct_per_s(level) + kept.sum::<f64>()
    }

    fn fill_planes(&mut self) {
        let Source { arrivals_per_s, spectrum, capacity } = &self.clouds[self.clouds.len() - 1];
        let level = |level: usize, combination: usize| Level {
            deaths_per_s: self.deaths_per_s(level),
            bursts_per_s: if level < *capacity { *arrivals_per_s } else { 0.0 },
            others_per_s: self.others_per_s(level, combination),
        };
        // From here on the pool shrinks in the mean.
        let shrinks = |k: &usize| {
            let Level { bursts_per_s, others_per_s, .. } = level(*k, 0);
            bursts_per_s * spectrum.at_full[0] * spectrum.at_full[0] + others_per_s
                < self.deaths_per_s(*k + 1)
        };
        let peak = (0..self.top).find(shrinks).unwrap_or(self.top);
        let plane = |combination: usize| {
            let levels = (0..=self.top).map(|k| level(k, combination)).collect();
            Plane::new(spectrum, self.decay_per_s[combination], levels, peak)
        };
        self.planes = (0..self.width).step_by(spectrum.at_full.len()).map(plane).collect();
    }

    /// Solves to a residual of `enough`, in 1/s.
    pub(super) fn solve(&self, enough: f64, most_iterations: u32) -> Stationary {
        let modes = self.clouds[self.clouds.len() - 1].spectrum.at_full.len();
        let mut law = vec![0.0; (self.top + 1) * self.width];
        for (level, start) in law.chunks_exact_mut(self.width).zip(self.planes[0].law().chunks_exact(modes)) {
            level[..modes].copy_from_slice(start);
        }
        let progress = krylov::solve(self, &mut law, enough, most_iterations);
        let refused = |(cloud, inner): (&Source, usize)| {
            let at_full = &cloud.spectrum.at_full;
            let levels = (cloud.capacity..=self.top).map(|level| &law[level * self.width..]);
            let full = levels
                .map(|law| at_full.iter().zip(law.iter().step_by(inner)).map(|(w, q)| w * q).sum::<f64>());
            // Rounding may leave a probability of nothing slightly below 0.
            cloud.arrivals_per_s * (at_full[0] * full.sum::<f64>()).max(0.0)
        };
        let mut forwarded_per_s: Vec<f64> = self.strides().map(refused).collect();
        forwarded_per_s.swap(self.strongest, self.clouds.len() - 1);
        Stationary {
            forwarded_per_s,
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
                image[i] = (deaths + self.decay_per_s[i]) * own[i] + here[i] - below[i] - returns * above[i];
            }
            std::mem::swap(&mut below, &mut here);
        }
    }

    fn precondition(&self, target: &[f64], guess: &mut [f64]) {
        let modes = self.clouds[self.clouds.len() - 1].spectrum.at_full.len();
        let mut part = Vec::with_capacity((self.top + 1) * modes);
        for (index, plane) in self.planes.iter().enumerate() {
            part.clear();
            target
                .chunks_exact(self.width)
                .for_each(|level| part.extend_from_slice(&level[index * modes..][..modes]));
            plane.solve(&mut part);
            for (level, part) in guess.chunks_exact_mut(self.width).zip(part.chunks_exact(modes)) {
                level[index * modes..][..modes].copy_from_slice(part);
            }
        }
    }
}
