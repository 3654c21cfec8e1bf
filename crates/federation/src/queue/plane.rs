//! The pool with the bursts of one cloud, the others at one combination of their modes: solved exactly, level
//! by level.
//!
//! A block per level, of the size of the cloud's modes, coupled to the levels beside it. The equations are
//! eliminated from both ends towards the likeliest level. Where the others are at their means, mass is
//! conserved: one degree of freedom is left, and is set at that level; away from it errors shrink.

use bellwether_numerics::krylov::{add, dot};

use super::spectrum::Spectrum;

/// Rates of the pool at one level, in 1/s.
#[derive(Debug, Clone, Copy)]
pub(super) struct Level {
    /// Downwards.
    pub(super) deaths_per_s: f64,
    /// Arrivals of this cloud while it is full; 0 where the pool refuses it.
    pub(super) bursts_per_s: f64,
    /// Arrivals of all others.
    pub(super) others_per_s: f64,
}

/// The equations, eliminated.
pub(super) struct Plane {
    size: usize,
    at_full: Vec<f64>,
    levels: Vec<Level>,
    peak: usize,
    /// Inverse blocks after elimination. If mass is conserved, the first row and column of the peak's are 0.
    inverses: Vec<f64>,
    /// The stationary law, if mass is conserved; else empty.
    law: Vec<f64>,
}

impl Plane {
    /// Eliminates towards `peak`. Everything decays at `decay_per_s`, or is conserved if that is 0.
    pub(super) fn new(spectrum: &Spectrum, decay_per_s: f64, levels: Vec<Level>, peak: usize) -> Plane {
        let size = spectrum.at_full.len();
        let inverses = vec![0.0; levels.len() * size * size];
        let at_full = spectrum.at_full.clone();
        let mut plane = Plane { size, at_full, levels, peak, inverses, law: Vec::new() };
        let leaving_per_s: Vec<f64> = spectrum.rates_per_s.iter().map(|rate| decay_per_s - rate).collect();
        for level in plane.towards_peak() {
            let block = plane.eliminated(&leaving_per_s, level);
            plane.store(level, &invert(block, size));
        }
        let mut block = plane.eliminated(&leaving_per_s, peak);
        if decay_per_s > 0.0 {
            plane.store(peak, &invert(block, size));
            return plane;
        }
        let first: Vec<f64> = block.iter().step_by(size).copied().collect();
        for i in 0..size {
            (block[i], block[i * size]) = (0.0, 0.0);
        }
        block[0] = 1.0;
        let mut inverse = invert(block, size);
        inverse[0] = 0.0;
        plane.store(peak, &inverse);
        plane.fill_law(&first);
        plane
    }

    /// The law of pool and cloud where the others are at their means.
    pub(super) fn law(&self) -> &[f64] {
        &self.law
    }

    fn towards_peak(&self) -> impl Iterator<Item = usize> + use<> {
        (0..self.peak).chain((self.peak + 1..self.levels.len()).rev())
    }

    fn inverse(&self, level: usize) -> &[f64] {
        &self.inverses[level * self.size * self.size..][..self.size * self.size]
    }

    fn store(&mut self, level: usize, inverse: &[f64]) {
        let block = self.size * self.size;
        self.inverses[level * block..][..block].copy_from_slice(inverse);
    }

    /// The block of `level` after those further from the peak are eliminated.
    fn eliminated(&self, leaving_per_s: &[f64], level: usize) -> Vec<f64> {
        let size = self.size;
        let Level { deaths_per_s, bursts_per_s, others_per_s } = self.levels[level];
        let mut block = vec![0.0; size * size];
        for (i, row) in block.chunks_exact_mut(size).enumerate() {
            add(row, bursts_per_s * self.at_full[i], &self.at_full);
            row[i] += deaths_per_s + others_per_s + leaving_per_s[i];
        }
        let mut without = |from: usize, up: Level, down_per_s: f64| {
            // From above: down * inverse * up; from below: up * inverse * down. Up is a dyad and a multiple
            // of one.
            let inverse = self.inverse(from);
            let mut turned = vec![0.0; size];
            if from > level {
                add_product(&mut turned, 1.0, inverse, &self.at_full);
            } else {
                for (value, row) in self.at_full.iter().zip(inverse.chunks_exact(size)) {
                    add(&mut turned, *value, row);
                }
            }
            let (left, right) =
                if from > level { (&turned, &self.at_full) } else { (&self.at_full, &turned) };
            for (i, row) in block.chunks_exact_mut(size).enumerate() {
                add(row, -down_per_s * up.others_per_s, &inverse[i * size..][..size]);
                add(row, -down_per_s * up.bursts_per_s * left[i], right);
            }
        };
        if level >= self.peak && level + 1 < self.levels.len() {
            without(level + 1, self.levels[level], self.levels[level + 1].deaths_per_s);
        }
        if level <= self.peak && level > 0 {
            without(level - 1, self.levels[level - 1], deaths_per_s);
        }
        block
    }

    /// Adds to `there` what goes up from `level` where `here` is.
    fn add_up(&self, level: usize, here: &[f64], there: &mut [f64]) {
        let Level { bursts_per_s, others_per_s, .. } = self.levels[level];
        add(there, others_per_s, here);
        add(there, bursts_per_s * dot(&self.at_full, here), &self.at_full);
    }

    /// Given the peak's block, the other blocks of a solution whose own part is in `solution` already.
    fn outwards(&self, solution: &mut [f64]) {
        let size = self.size;
        let mut up = vec![0.0; size];
        for level in self.peak + 1..self.levels.len() {
            let (before, rest) = solution.split_at_mut(level * size);
            up.fill(0.0);
            self.add_up(level - 1, &before[(level - 1) * size..], &mut up);
            add_product(&mut rest[..size], 1.0, self.inverse(level), &up);
        }
        for level in (0..self.peak).rev() {
            let (before, above) = solution.split_at_mut((level + 1) * size);
            let deaths_per_s = self.levels[level + 1].deaths_per_s;
            add_product(&mut before[level * size..], deaths_per_s, self.inverse(level), &above[..size]);
        }
    }

    fn fill_law(&mut self, first: &[f64]) {
        let mut law = vec![0.0; self.levels.len() * self.size];
        let peak = &mut law[self.peak * self.size..][..self.size];
        add_product(peak, -1.0, self.inverse(self.peak), first);
        peak[0] = 1.0;
        self.outwards(&mut law);
        let total: f64 = law.iter().step_by(self.size).sum();
        law.iter_mut().for_each(|value| *value /= total);
        self.law = law;
    }

    /// Replaces `target`, a block per level, by the solution. If mass is conserved, the stationary components
    /// of either sum to 0.
    pub(super) fn solve(&self, target: &mut [f64]) {
        let size = self.size;
        let mut own = vec![0.0; size];
        for level in self.towards_peak().chain([self.peak]) {
            own.fill(0.0);
            add_product(&mut own, 1.0, self.inverse(level), &target[level * size..][..size]);
            target[level * size..][..size].copy_from_slice(&own);
            if level > self.peak {
                add(&mut target[(level - 1) * size..][..size], self.levels[level].deaths_per_s, &own);
            } else if level < self.peak {
                self.add_up(level, &own, &mut target[(level + 1) * size..][..size]);
            }
        }
        self.outwards(target);
        if !self.law.is_empty() {
            let total: f64 = target.iter().step_by(size).sum();
            add(target, -total, &self.law);
        }
    }
}

/// `sum` += `factor` * `matrix` * `vector`.
fn add_product(sum: &mut [f64], factor: f64, matrix: &[f64], vector: &[f64]) {
    for (sum, row) in sum.iter_mut().zip(matrix.chunks_exact(vector.len())) {
        *sum += factor * dot(row, vector);
    }
}

/// The inverse of a regular matrix, by elimination with the largest pivots of each column.
fn invert(mut matrix: Vec<f64>, size: usize) -> Vec<f64> {
    let mut inverse = vec![0.0; size * size];
    (0..size).for_each(|i| inverse[i * size + i] = 1.0);
    for column in 0..size {
        let larger = |a: usize, b: usize| {
            if matrix[b * size + column].abs() > matrix[a * size + column].abs() { b } else { a }
        };
        let pivot = (column..size).fold(column, larger);
        for k in 0..size {
            matrix.swap(column * size + k, pivot * size + k);
            inverse.swap(column * size + k, pivot * size + k);
        }
        let scale = 1.0 / matrix[column * size + column];
        for k in 0..size {
            matrix[column * size + k] *= scale;
            inverse[column * size + k] *= scale;
        }
        let (row, inverse_row) =
            (matrix[column * size..][..size].to_vec(), inverse[column * size..][..size].to_vec());
        for other in (0..size).filter(|other| *other != column) {
            let factor = -matrix[other * size + column];
            add(&mut matrix[other * size..][..size], factor, &row);
            add(&mut inverse[other * size..][..size], factor, &inverse_row);
        }
    }
    inverse
}
