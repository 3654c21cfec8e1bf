//! Fewer modes that the pool cannot tell from all of a local queue's.
//!
//! The pool feels a queue only through h(z) = sum over modes of w^2/(z - theta), for z in the right half
//! plane. How much a direction of the mode space adds to h is its part of the Gramian P_ij = w_i
//! w_j/(-theta_i - theta_j), whose eigenvalues fall geometrically. Queue and pool are projected onto the
//! directions that hold P up to a remainder: as the queue's generator is symmetric, so is its projection,
//! with eigenvalues between the old ones. The stationary mode is kept as it is. (Balanced truncation: B. C.
//! Moore, IEEE Trans. Autom. Control 26(1), 1981.)

use bellwether_numerics::krylov::{add, dot};

use super::spectrum::Spectrum;

/// Trace of P that may be lost, in units of the time between arrivals. `tests/it/chain.rs` shows the
/// error that follows: no digit of the first ten.
const LOST: f64 = 1e-11;
/// A direction of which less than this is new is rounding.
const NEW: f64 = 1e-10;

/// The spectrum with as few modes as do.
pub(super) fn reduce(spectrum: &Spectrum, arrivals_per_s: f64) -> Spectrum {
    let (rates_per_s, at_full) = (&spectrum.rates_per_s[1..], &spectrum.at_full[1..]);
    let directions = directions(rates_per_s, at_full, LOST / arrivals_per_s);
    let size = directions.len();
    let mut projected = vec![0.0; size * size];
    for (i, a) in directions.iter().enumerate() {
        for (j, b) in directions.iter().enumerate() {
            projected[i * size + j] =
                a.iter().zip(b).zip(rates_per_s).map(|((a, b), rate)| a * b * rate).sum();
        }
    }
    let mut components: Vec<f64> = directions.iter().map(|direction| dot(direction, at_full)).collect();
    diagonalise(&mut projected, &mut components);
    let rates = (0..size).map(|i| projected[i * size + i].min(0.0));
    Spectrum {
        rates_per_s: std::iter::once(0.0).chain(rates).collect(),
        at_full: std::iter::once(spectrum.at_full[0]).chain(components).collect(),
    }
}

/// Orthonormal directions that hold the Gramian up to `lost` of its trace: Cholesky's factor with pivoting,
/// made orthonormal column by column.
fn directions(rates_per_s: &[f64], at_full: &[f64], lost: f64) -> Vec<Vec<f64>> {
    let gramian = |i: usize, j: usize| at_full[i] * at_full[j] / -(rates_per_s[i] + rates_per_s[j]);
    let count = rates_per_s.len();
    let mut rest: Vec<f64> = (0..count).map(|i| gramian(i, i)).collect();
    let (mut columns, mut directions): (Vec<Vec<f64>>, Vec<Vec<f64>>) = (Vec::new(), Vec::new());
    while columns.len() < count && rest.iter().sum::<f64>() > lost {
        let pivot = (0..count).fold(0, |best, i| if rest[i] > rest[best] { i } else { best });
        let mut column: Vec<f64> = (0..count).map(|i| gramian(i, pivot)).collect();
        for earlier in &columns {
            add(&mut column, -earlier[pivot], earlier);
        }
        let root = rest[pivot].sqrt();
        column.iter_mut().for_each(|value| *value /= root);
        rest.iter_mut().zip(&column).for_each(|(rest, value)| *rest = (*rest - value * value).max(0.0));
        rest[pivot] = 0.0;
        let mut direction = column.clone();
        // Twice is enough for orthogonality to rounding.
        for _ in 0..2 {
            for earlier in &directions {
                let along = dot(earlier, &direction);
                add(&mut direction, -along, earlier);
            }
        }
        let norm = dot(&direction, &direction).sqrt();
        if norm > NEW * dot(&column, &column).sqrt() {
            direction.iter_mut().for_each(|value| *value /= norm);
            directions.push(direction);
        }
        columns.push(column);
    }
    directions
}

/// Turns a symmetric matrix into its eigenvalues on the diagonal, and `vector` into its components along the
/// eigenvectors: Jacobi's rotations.
fn diagonalise(matrix: &mut [f64], vector: &mut [f64]) {
    let size = vector.len();
    let scale = dot(matrix, matrix);
    // Convergence is quadratic: a few sweeps suffice, and 50 are an end in any case.
    for _ in 0..50 {
        let mut beside = 0.0;
        for p in 0..size {
            for q in p + 1..size {
                beside += matrix[p * size + q] * matrix[p * size + q];
                rotate(matrix, vector, p, q);
            }
        }
        if beside <= 1e-32 * scale {
            return;
        }
    }
}

/// The rotation in the plane of `p` and `q` that makes their entry 0.
fn rotate(matrix: &mut [f64], vector: &mut [f64], p: usize, q: usize) {
    let size = vector.len();
    let entry = matrix[p * size + q];
    if entry == 0.0 {
        return;
    }
    let half = (matrix[q * size + q] - matrix[p * size + p]) / (2.0 * entry);
    let tangent = 1.0_f64.copysign(half) / (half.abs() + half.hypot(1.0));
    let cosine = 1.0 / tangent.hypot(1.0);
    let sine = tangent * cosine;
    let turn = |a: f64, b: f64| (cosine * a - sine * b, sine * a + cosine * b);
    for k in 0..size {
        let (i, j) = (k * size + p, k * size + q);
        (matrix[i], matrix[j]) = turn(matrix[i], matrix[j]);
    }
    for k in 0..size {
        let (i, j) = (p * size + k, q * size + k);
        (matrix[i], matrix[j]) = turn(matrix[i], matrix[j]);
    }
    (vector[p], vector[q]) = turn(vector[p], vector[q]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_modes_answer_as_all() {
        // 50 servers, 50 more may wait, 52 arrivals/s: 101 modes.
        let full = 0.02;
        let all = Spectrum::of(52.0, 1.0, 50, 100, 101, full);
        let few = reduce(&all, 52.0);
        assert!(few.at_full.len() < 25, "{} modes", few.at_full.len());
        let answer = |spectrum: &Spectrum, z: f64| -> f64 {
            let modes = spectrum.at_full.iter().zip(&spectrum.rates_per_s).skip(1);
            modes.map(|(component, rate)| component * component / (z - rate)).sum()
        };
        for z in [0.0, 0.1, 1.0, 10.0, 100.0, 1000.0] {
            assert!((answer(&all, z) / answer(&few, z) - 1.0).abs() < 1e-9, "at {z}");
        }
    }
}
