//! Small dense matrices, row by row in one list: the squared Jacobian of a fit and its inverse.

/// A parameter's correlation with those before it beyond which it counts as undetermined: `1 - R^2` below this.
const SINGULAR: f64 = 1e-10;

/// `JᵀJ` of a Jacobian with `width` columns, both row by row.
pub fn squared(jacobian: &[f64], width: usize) -> Vec<f64> {
    let mut squared = vec![0.0; width * width];
    for row in jacobian.chunks_exact(width.max(1)) {
        for i in 0..width {
            for j in 0..width {
                squared[i * width + j] += row[i] * row[j];
            }
        }
    }
    squared
}

/// Inverse of a symmetric matrix of `size` rows; none when it is singular to rounding.
pub fn inverse(matrix: &[f64], size: usize) -> Option<Vec<f64>> {
    // Scaled to a unit diagonal, so that the units of the parameters do not decide what is singular.
    let scales: Vec<f64> = (0..size).map(|i| matrix[i * size + i].sqrt()).collect();
    if scales.iter().any(|scale| !(*scale > 0.0 && scale.is_finite())) {
        return None;
    }
    let scaled: Vec<f64> = matrix
        .iter()
        .enumerate()
        .map(|(at, value)| value / (scales[at / size] * scales[at % size]))
        .collect();
    let factor = cholesky(&scaled, size)?;
    if (0..size).any(|i| factor[i * size + i].powi(2) < SINGULAR) {
        return None;
    }
    let mut inverted = vec![0.0; size * size];
    let mut unit = vec![0.0; size];
    for j in 0..size {
        unit[j] = 1.0;
        for (i, value) in solve(&factor, size, &unit).into_iter().enumerate() {
            inverted[i * size + j] = value / (scales[i] * scales[j]);
        }
        unit[j] = 0.0;
    }
    Some(inverted)
}

/// Lower triangular factor of a symmetric matrix of `size` rows; none when it is not positive definite.
pub fn cholesky(matrix: &[f64], size: usize) -> Option<Vec<f64>> {
    let mut factor = vec![0.0; size * size];
    for i in 0..size {
        for j in 0..=i {
            let inner: f64 = (0..j).map(|k| factor[i * size + k] * factor[j * size + k]).sum();
            let rest = matrix[i * size + j] - inner;
            if i != j {
                factor[i * size + j] = rest / factor[j * size + j];
            } else if rest > 0.0 && rest.is_finite() {
                factor[i * size + i] = rest.sqrt();
            } else {
                return None;
            }
        }
    }
    Some(factor)
}

/// Solves with a factor of [`cholesky`]: forward, then backward. `right` holds `size` numbers.
pub fn solve(factor: &[f64], size: usize, right: &[f64]) -> Vec<f64> {
    let mut solution = right.to_vec();
    for i in 0..size {
        let inner: f64 = (0..i).map(|k| factor[i * size + k] * solution[k]).sum();
        solution[i] = (solution[i] - inner) / factor[i * size + i];
    }
    for i in (0..size).rev() {
        let inner: f64 = (i + 1..size).map(|k| factor[k * size + i] * solution[k]).sum();
        solution[i] = (solution[i] - inner) / factor[i * size + i];
    }
    solution
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_times_its_inverse_is_one() {
        let matrix = squared(&[1.0, 2.0, 0.5, -3.0, 1.0, 4.0, 2.0, 2.0, 1e-3, 0.0, 1.0, 1.0], 3);
        assert_eq!(matrix[1], 2.0 - 3.0 + 4.0);
        let inverted = inverse(&matrix, 3).unwrap();
        for i in 0..3 {
            for j in 0..3 {
                let product: f64 = (0..3).map(|k| matrix[i * 3 + k] * inverted[k * 3 + j]).sum();
                assert!((product - f64::from(u8::from(i == j))).abs() < 1e-12, "{i}, {j}: {product}");
            }
        }
    }

    #[test]
    fn units_do_not_decide_what_is_singular() {
        // Nanoseconds beside hours: determined all the same; and two equal columns: not.
        assert!(inverse(&[1e-18, 0.0, 0.0, 1e13], 2).is_some());
        assert_eq!(inverse(&[1.0, 1.0, 1.0, 1.0], 2), None);
        // Equal but for rounding, in any units.
        let nearly = 1e6 * (1.0 - 1e-12);
        assert_eq!(inverse(&[1.0, nearly, nearly, 1e12], 2), None);
        assert_eq!(inverse(&[0.0], 1), None);
        assert_eq!(inverse(&[f64::NAN], 1), None);
        assert_eq!(inverse(&[], 0), Some(vec![]));
        assert!(squared(&[], 0).is_empty());
    }
}
