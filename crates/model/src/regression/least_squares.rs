//! Least squares by Householder reflections, with what its residuals say of its uncertainty.

use bellwether_core::InputError;
use bellwether_des::statistics::student_quantile;

use super::{PLACE, check_count, check_rows};

/// `y = b0 + b1 x1 + … + bp xp`, fitted by (weighted) least squares.
#[derive(Debug, Clone, PartialEq)]
pub struct LeastSquares {
    /// `b0`, then one per feature, in units of the target per unit of the feature.
    pub coefficients: Vec<f64>,
    /// Standard error of each coefficient; infinite where no degree of freedom is left.
    pub standard_errors: Vec<f64>,
    /// Residual standard deviation, in units of the target (of the weighted residual, where weights are given).
    pub residual_sd: f64,
    /// Rows less coefficients.
    pub degrees_of_freedom: usize,
    /// Upper triangle of the decomposition, row by row: leverage needs it.
    triangle: Vec<Vec<f64>>,
}

impl LeastSquares {
    /// Fits to `rows` of features and their `targets`; every row counts the same.
    ///
    /// # Errors
    ///
    /// Returns an error for fewer rows than coefficients, rows of unequal length, numbers that are not finite, or
    /// features that depend on each other.
    pub fn fit(rows: &[Vec<f64>], targets: &[f64]) -> Result<LeastSquares, InputError> {
        Self::fit_weighted(rows, targets, &vec![1.0; targets.len()])
    }

    /// Fits with a factor on each row's residual: `1 / target` minimises relative errors.
    ///
    /// # Errors
    ///
    /// Same errors as [`LeastSquares::fit`].
    pub fn fit_weighted(
        rows: &[Vec<f64>],
        targets: &[f64],
        factors: &[f64],
    ) -> Result<LeastSquares, InputError> {
        let width = check_rows(rows, targets)? + 1;
        check_count(rows.len(), "factors", factors.len())?;
        if rows.len() < width {
            let what = format!("{} rows do not determine {width} coefficients", rows.len());
            return Err(InputError::new(PLACE, what).hint("measure more, or use fewer features"));
        }
        let with_one = |(row, factor): (&Vec<f64>, &f64)| -> Vec<f64> {
            std::iter::once(*factor).chain(row.iter().map(|value| value * factor)).collect()
        };
        let mut matrix: Vec<Vec<f64>> = rows.iter().zip(factors).map(with_one).collect();
        let mut right: Vec<f64> = targets.iter().zip(factors).map(|(y, factor)| y * factor).collect();
        for column in 0..width {
            reflect(&mut matrix, &mut right, column)?;
        }
        matrix.truncate(width);
        let coefficients = solve_upper(&matrix, &right[..width]);
        if let Some(bad) = coefficients.iter().position(|b| !b.is_finite()) {
            return Err(InputError::new(PLACE, format!("coefficient {bad} is not finite"))
                .hint("bring the features to a common scale"));
        }
        let degrees_of_freedom = rows.len() - width;
        let squares: f64 = right[width..].iter().map(|residual| residual * residual).sum();
        let residual_sd = match degrees_of_freedom {
            0 => f64::INFINITY,
            freedom => (squares / freedom as f64).sqrt(),
        };
        let mut model = LeastSquares {
            coefficients,
            standard_errors: Vec::new(),
            residual_sd,
            degrees_of_freedom,
            triangle: matrix,
        };
        model.standard_errors = (0..width).map(|number| model.standard_error(number)).collect();
        Ok(model)
    }

    /// The fitted value at `row`, in units of the target.
    ///
    /// # Panics
    ///
    /// Where `row` has not as many features as the rows it was fitted to.
    pub fn predict(&self, row: &[f64]) -> f64 {
        assert_eq!(row.len() + 1, self.coefficients.len(), "as many features as the model was fitted to");
        self.coefficients[0] + row.iter().zip(&self.coefficients[1..]).map(|(x, b)| x * b).sum::<f64>()
    }

    /// The interval in which one more measurement at `row` falls with probability `level`, if residuals are
    /// independent and normal. `factor` is the row's weight, 1 without weights.
    ///
    /// # Panics
    ///
    /// Where `row` has another length, or `level` is not between 0 and 1.
    pub fn interval(&self, row: &[f64], factor: f64, level: f64) -> (f64, f64) {
        let middle = self.predict(row);
        if self.degrees_of_freedom == 0 {
            return (f64::NEG_INFINITY, f64::INFINITY);
        }
        let with_one: Vec<f64> = std::iter::once(1.0).chain(row.iter().copied()).collect();
        let leverage: f64 = solve_lower(&self.triangle, &with_one).iter().map(|z| z * z).sum();
        let spread = self.residual_sd * (1.0 / (factor * factor) + leverage).sqrt();
        let half = spread * student_quantile(0.5 + level / 2.0, self.degrees_of_freedom as f64);
        (middle - half, middle + half)
    }

    /// `sd · |R⁻ᵀ e|`, the square root of the covariance's diagonal.
    fn standard_error(&self, number: usize) -> f64 {
        let mut unit = vec![0.0; self.coefficients.len()];
        unit[number] = 1.0;
        let squares: f64 = solve_lower(&self.triangle, &unit).iter().map(|z| z * z).sum();
        self.residual_sd * squares.sqrt()
    }
}

/// Makes `matrix` zero below the diagonal in `column`, by a reflection of all rows from there on.
fn reflect(matrix: &mut [Vec<f64>], right: &mut [f64], column: usize) -> Result<(), InputError> {
    let whole: f64 = matrix.iter().map(|row| row[column] * row[column]).sum::<f64>().sqrt();
    let norm: f64 = matrix[column..].iter().map(|row| row[column] * row[column]).sum::<f64>().sqrt();
    // What is left of the column after the ones before it are taken out; rounding leaves about 1e-16.
    if norm <= 1e-11 * whole || norm == 0.0 {
        let what = format!("feature {column} is a combination of those before it (0 is the constant)");
        return Err(InputError::new(PLACE, what).hint("leave it out"));
    }
    let head = matrix[column][column];
    let target = if head > 0.0 { -norm } else { norm };
    let mut mirror: Vec<f64> = matrix[column..].iter().map(|row| row[column]).collect();
    mirror[0] -= target;
    let length: f64 = mirror.iter().map(|v| v * v).sum();
    for other in column..matrix[0].len() {
        let along: f64 = mirror.iter().zip(&matrix[column..]).map(|(v, row)| v * row[other]).sum();
        for (v, row) in mirror.iter().zip(matrix[column..].iter_mut()) {
            row[other] -= 2.0 * along / length * v;
        }
    }
    let along: f64 = mirror.iter().zip(&right[column..]).map(|(v, y)| v * y).sum();
    for (v, y) in mirror.iter().zip(right[column..].iter_mut()) {
        *y -= 2.0 * along / length * v;
    }
    Ok(())
}

/// `x` of `R x = right`.
fn solve_upper(triangle: &[Vec<f64>], right: &[f64]) -> Vec<f64> {
    let count = right.len();
    let mut x = vec![0.0; count];
    for row in (0..count).rev() {
        let known: f64 = (row + 1..count).map(|column| triangle[row][column] * x[column]).sum();
        x[row] = (right[row] - known) / triangle[row][row];
    }
    x
}

/// `z` of `Rᵀ z = right`.
fn solve_lower(triangle: &[Vec<f64>], right: &[f64]) -> Vec<f64> {
    let count = right.len();
    let mut z = vec![0.0; count];
    for row in 0..count {
        let known: f64 = (0..row).map(|column| triangle[column][row] * z[column]).sum();
        z[row] = (right[row] - known) / triangle[row][row];
    }
    z
}
