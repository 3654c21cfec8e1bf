//! Eigenvalues of symmetric tridiagonal matrices, and one row of their eigenvectors.

/// Eigenvalues of a symmetric tridiagonal matrix into `diagonal`, and one row of its eigenvectors into `row`,
/// which is that row of the identity at the start: the implicit QL method with Wilkinson's shifts, n^2
/// operations. `beside[i]` is the entry at (i, i + 1); the last one is not read.
///
/// ```
/// use bellwether_numerics::tridiagonal::diagonalise;
/// // [[2, 1], [1, 2]] has the eigenvalues 1 and 3, and vectors whose parts are all of the size 1/sqrt(2).
/// let (mut diagonal, mut beside, mut row) = ([2.0, 2.0], [1.0, 0.0], [1.0, 0.0]);
/// diagonalise(&mut diagonal, &mut beside, &mut row);
/// diagonal.sort_by(f64::total_cmp);
/// assert!((diagonal[0] - 1.0).abs() < 1e-15 && (diagonal[1] - 3.0).abs() < 1e-15);
/// assert!(row.iter().all(|part: &f64| (part.abs() - 0.5_f64.sqrt()).abs() < 1e-15));
/// ```
///
/// # Panics
///
/// When there is no entry, or the three lists are not of one length.
pub fn diagonalise(diagonal: &mut [f64], beside: &mut [f64], row: &mut [f64]) {
    let n = diagonal.len();
    beside[n - 1] = 0.0;
    for low in 0..n {
        // Each turn at least halves the digits that are missing; 200 is far beyond what doubles have.
        for _ in 0..200 {
            let split =
                |i: usize| beside[i].abs() <= f64::EPSILON * (diagonal[i].abs() + diagonal[i + 1].abs());
            let high = (low..n - 1).find(|&i| split(i)).unwrap_or(n - 1);
            if high == low {
                break;
            }
            chase(diagonal, beside, row, low, high);
        }
    }
}

/// One implicit QL turn on the block `low..=high`: the shift's bulge is rotated from its end to its start.
fn chase(diagonal: &mut [f64], beside: &mut [f64], row: &mut [f64], low: usize, high: usize) {
    let half = (diagonal[low + 1] - diagonal[low]) / (2.0 * beside[low]);
    let root = half.hypot(1.0);
    let mut value = diagonal[high] - diagonal[low] + beside[low] / (half + root.copysign(half));
    let (mut sine, mut cosine, mut shift) = (1.0, 1.0, 0.0);
    for i in (low..high).rev() {
        let (bulge, kept) = (sine * beside[i], cosine * beside[i]);
        let norm = (bulge * bulge + value * value).sqrt();
        beside[i + 1] = norm;
        if norm == 0.0 {
            // The block fell apart by itself: what was rotated so far is complete.
            diagonal[i + 1] -= shift;
            beside[high] = 0.0;
            return;
        }
        (sine, cosine) = (bulge / norm, value / norm);
        let base = diagonal[i + 1] - shift;
        let turned = (diagonal[i] - base) * sine + 2.0 * cosine * kept;
        shift = sine * turned;
        diagonal[i + 1] = base + shift;
        value = cosine * turned - kept;
        (row[i], row[i + 1]) = (cosine * row[i] - sine * row[i + 1], sine * row[i] + cosine * row[i + 1]);
    }
    diagonal[low] -= shift;
    beside[low] = value;
    beside[high] = 0.0;
}
