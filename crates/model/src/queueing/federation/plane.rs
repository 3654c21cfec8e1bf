//! The pool with the bursts of one cloud, the others at their mean: solved exactly, level by level.
//!
//! A block per level, of the size of the cloud's modes, coupled to the levels beside it. The equations are eliminated
//! from both ends towards the likeliest level, where the one degree of freedom, the total mass, is set: in
//! that direction errors shrink.

use super::krylov::{add, dot};
use super::spectrum::Spectrum;

/// Rates of the pool at one level, in 1/s.
#[derive(Debug, Clone, Copy)]
pub(super) struct Level {
    /// Downwards.
    pub(super) deaths_per_s: f64,
    /// Arrivals of this cloud while it is full; 0 where the pool refuses it.
    pub(super) bursts_per_s: f64,
    /// Mean arrivals of all others.
    pub(super) others_per_s: f64,
}

/// The equations, eliminated.
pub(super) struct Plane {
    size: usize,
    at_full: Vec<f64>,
    levels: Vec<Level>,
    peak: usize,
    /// Inverse blocks after elimination; that of the peak without its first row and column, which are 0.
    inverses: Vec<f64>,
    /// The stationary law.
    law: Vec<f64>,
}

impl Plane {
    /// Eliminates towards `peak`.
    pub(super) fn new(spectrum: &Spectrum, levels: Vec<Level>, peak: usize) -> Plane {
        let size = spectrum.at_full.len();
        let inverses = vec![0.0; levels.len() * size * size];
        let at_full = spectrum.at_full.clone();
        let mut plane = Plane { size, at_full, levels, peak, inverses, law: Vec::new() };
        let top = plane.levels.len() - 1;
        for level in (0..peak).chain((peak + 1..=top).rev()) {
            let block = plane.eliminated(spectrum, level);
            plane.store(level, invert(block, size));
        }
        let mut block = plane.eliminated(spectrum, peak);
        let first: Vec<f64> = block.iter().step_by(size).copied().collect();
        for i in 0..size {
            (block[i], block[i * size]) = (0.0, 0.0);
        }
        block[0] = 1.0;
        let mut inverse = invert(block, size);
        inverse[0] = 0.0;
        plane.store(peak, inverse);
        plane.fill_law(&first);
        plane
    }

    fn inverse(&self, level: usize) -> &[f64] {
        &self.inverses[level * self.size * self.size..][..self.size * self.size]
    }

    fn store(&mut self, level: usize, inverse: Vec<f64>) {
        let block = self.size * self.size;
        self.inverses[level * block..][..block].copy_from_slice(&inverse);
    }

    /// The block of `level` after those further from the peak are eliminated.
    fn eliminated(&self, spectrum: &Spectrum, level: usize) -> Vec<f64> {
        let size = self.size;
        let Level { deaths_per_s, bursts_per_s, others_per_s } = self.levels[level];
        let mut block = vec![0.0; size * size];
        for (i, row) in block.chunks_exact_mut(size).enumerate() {
            add(row, bursts_per_s * self.at_full[i], &self.at_full);
            row[i] += deaths_per_s + others_per_s - spectrum.rates_per_s[i];
        }
        let mut without = |from: usize, up: Level, down_per_s: f64| {
            // down * inverse * up, where up is a dyad and a multiple of one; from below the order does not matter as
            // what is eliminated is a function of either.
            let inverse = self.inverse(from);
            let (dyad_left, dyad_right) = if from > level {
                (multiply(inverse, &self.at_full), self.at_full.clone())
            } else {
                (self.at_full.clone(), multiply_from_left(&self.at_full, inverse))
            };
            for (i, row) in block.chunks_exact_mut(size).enumerate() {
                add(row, -down_per_s * up.others_per_s, &inverse[i * size..][..size]);
                add(row, -down_per_s * up.bursts_per_s * dyad_left[i], &dyad_right);
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

    /// What goes up from `level` where `vector` is there.
    fn up(&self, level: usize, vector: &[f64]) -> Vec<f64> {
        let Level { bursts_per_s, others_per_s, .. } = self.levels[level];
        let burst = bursts_per_s * dot(&self.at_full, vector);
        vector.iter().zip(&self.at_full).map(|(value, full)| others_per_s * value + burst * full).collect()
    }

    /// Given the peak's block, the other blocks of a solution whose own part is in `solution` already.
    fn outwards(&self, solution: &mut [f64]) {
        let size = self.size;
        for level in self.peak + 1..self.levels.len() {
            let up = self.up(level - 1, &solution[(level - 1) * size..][..size]);
            add(&mut solution[level * size..][..size], 1.0, &multiply(self.inverse(level), &up));
        }
        for level in (0..self.peak).rev() {
            let above = multiply(self.inverse(level), &solution[(level + 1) * size..][..size]);
            add(&mut solution[level * size..][..size], self.levels[level + 1].deaths_per_s, &above);
        }
    }

    fn fill_law(&mut self, first: &[f64]) {
        let mut law = vec![0.0; self.levels.len() * self.size];
        let at_peak = multiply(self.inverse(self.peak), first);
        let peak = &mut law[self.peak * self.size..][..self.size];
        add(peak, -1.0, &at_peak);
        peak[0] = 1.0;
        self.outwards(&mut law);
        let total: f64 = law.iter().step_by(self.size).sum();
        law.iter_mut().for_each(|value| *value /= total);
        self.law = law;
    }

    /// Replaces `target`, a block per level, whose stationary components sum to 0, by the solution of which the same
    /// holds.
    pub(super) fn solve(&self, target: &mut [f64]) {
        let size = self.size;
        let top = self.levels.len() - 1;
        for level in (0..self.peak).chain((self.peak + 1..=top).rev()) {
            let own = multiply(self.inverse(level), &target[level * size..][..size]);
            if level > self.peak {
                add(&mut target[(level - 1) * size..][..size], self.levels[level].deaths_per_s, &own);
            } else {
                let up = self.up(level, &own);
                add(&mut target[(level + 1) * size..][..size], 1.0, &up);
            }
            target[level * size..][..size].copy_from_slice(&own);
        }
        let own = multiply(self.inverse(self.peak), &target[self.peak * size..][..size]);
        target[self.peak * size..][..size].copy_from_slice(&own);
        self.outwards(target);
        let total: f64 = target.iter().step_by(size).sum();
        add(target, -total, &self.law);
    }
}

fn multiply(matrix: &[f64], vector: &[f64]) -> Vec<f64> {
    matrix.chunks_exact(vector.len()).map(|row| dot(row, vector)).collect()
}

fn multiply_from_left(vector: &[f64], matrix: &[f64]) -> Vec<f64> {
    let mut product = vec![0.0; vector.len()];
    for (value, row) in vector.iter().zip(matrix.chunks_exact(vector.len())) {
        add(&mut product, *value, row);
    }
    product
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
