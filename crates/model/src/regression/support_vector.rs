//! Support-vector regression with an insensitive zone, solved to its optimality conditions.
//!
//! The dual in one variable per row: minimise `½ bᵀKb − yᵀb + e Σ|b|` with `Σ b = 0` and `|b| ≤ C`. It is solved
//! by pairs (sequential minimal optimisation): what one row gains another loses. The first row of a pair is
//! the one that most wants to rise; the second is the one that promises the largest decrease (Fan, Chen and
//! Lin, J. Mach. Learn. Res. 6, 2005). All is computed in double precision; nothing is shrunk or cached.

use bellwether_core::InputError;

use super::{PLACE, check, check_rows};

/// What takes the place of the product of two rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kernel {
    /// `exp(−gamma |x − z|²)`.
    Rbf {
        /// Inverse of a squared distance of features.
        gamma: f64,
    },
    /// `(gamma x·z + offset)^degree`.
    Polynomial {
        /// The power.
        degree: u32,
        /// Factor on the product.
        gamma: f64,
        /// What is added to it.
        offset: f64,
    },
}

/// How to fit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SupportVectorParameters {
    /// The kernel.
    pub kernel: Kernel,
    /// Cost per unit of a residual beyond the zone, `C`.
    pub cost: f64,
    /// Half width of the zone in which a residual costs nothing, in units of the target.
    pub epsilon: f64,
    /// Largest violation of the optimality conditions that is accepted, in units of the target.
    pub tolerance: f64,
}

/// `f(x) = Σ b_i K(x_i, x) + bias`.
#[derive(Debug, Clone, PartialEq)]
pub struct SupportVector {
    parameters: SupportVectorParameters,
    rows: Vec<Vec<f64>>,
    /// One coefficient per row; zero where the row lies inside the zone.
    pub coefficients: Vec<f64>,
    /// The constant.
    pub bias: f64,
}

/// The kernel matrix of more rows than this does not fit a small machine.
const MAXIMUM_ROWS: usize = 4_000;

/// Pairs after which the solver gives up: two orders beyond what ill-conditioned problems of this field need.
const MAXIMUM_PAIRS: usize = 50_000_000;

impl Kernel {
    fn value(self, x: &[f64], z: &[f64]) -> f64 {
        match self {
            Kernel::Rbf { gamma } => {
                let squares: f64 = x.iter().zip(z).map(|(a, b)| (a - b) * (a - b)).sum();
                (-gamma * squares).exp()
            }
            Kernel::Polynomial { degree, gamma, offset } => {
                let product: f64 = x.iter().zip(z).map(|(a, b)| a * b).sum();
                (gamma * product + offset).powi(degree as i32)
            }
        }
    }
}

impl SupportVectorParameters {
    fn check(&self) -> Result<(), InputError> {
        let (gamma, offset) = match self.kernel {
            Kernel::Rbf { gamma } => (gamma, 0.0),
            Kernel::Polynomial { gamma, offset, degree } if (1..=16).contains(&degree) => (gamma, offset),
            Kernel::Polynomial { degree, .. } => {
                return Err(InputError::new(PLACE, format!("the kernel's degree is {degree}"))
                    .hint("it must be from 1 to 16"));
            }
        };
        for (name, value) in [("gamma", gamma), ("the cost", self.cost), ("the tolerance", self.tolerance)] {
            check::not_positive(PLACE, name, value)?;
        }
        check::negative(PLACE, "epsilon", self.epsilon)?;
        check::negative(PLACE, "the kernel's offset", offset)
    }
}

impl SupportVector {
    /// Fits to `rows` of features and their `targets`.
    ///
    /// # Errors
    ///
    /// Returns an error for rows of unequal length, none or too many of them, numbers that are not finite, parameters
    /// out of range, or no convergence.
    pub fn fit(
        rows: &[Vec<f64>],
        targets: &[f64],
        parameters: SupportVectorParameters,
    ) -> Result<SupportVector, InputError> {
        parameters.check()?;
        check_rows(rows, targets)?;
        if rows.len() > MAXIMUM_ROWS {
            let what = format!("{} rows are more than support vectors are made for", rows.len());
            return Err(InputError::new(PLACE, what).hint(format!("take {MAXIMUM_ROWS} of them at most")));
        }
        let of = |x: &Vec<f64>| rows.iter().map(|z| parameters.kernel.value(x, z)).collect::<Vec<f64>>();
        let kernel: Vec<Vec<f64>> = rows.iter().map(of).collect();
        if kernel.iter().flatten().any(|value| !value.is_finite()) {
            return Err(
                InputError::new(PLACE, "the kernel overflows").hint("bring the features to a common scale")
            );
        }
        let (coefficients, bias) = solve(&kernel, targets, &parameters)?;
        Ok(SupportVector { parameters, rows: rows.to_vec(), coefficients, bias })
    }

    /// The fitted value at `row`, in units of the target.
    pub fn predict(&self, row: &[f64]) -> f64 {
        let pairs = self.coefficients.iter().zip(&self.rows).filter(|(b, _)| **b != 0.0);
        self.bias + pairs.map(|(b, x)| b * self.parameters.kernel.value(x, row)).sum::<f64>()
    }

    /// By how much the fit to `targets` misses its optimality conditions, in units of the target; computed again from
    /// the coefficients. At an optimum a residual inside the zone has coefficient 0, one on its border any, one outside
    /// `±C`, and the coefficients add up to 0.
    pub fn violation(&self, targets: &[f64]) -> f64 {
        let SupportVectorParameters { cost, epsilon, .. } = self.parameters;
        let of_row = |((row, y), b): ((&Vec<f64>, &f64), &f64)| {
            let residual = y - self.predict(row);
            // The residual on the side on which the coefficient pulls.
            let pulled = residual * if *b < 0.0 { -1.0 } else { 1.0 };
            match b.abs() {
                0.0 => residual.abs() - epsilon,
                size if size >= cost => epsilon - pulled,
                _ => (pulled - epsilon).abs(),
            }
        };
        let rows = self.rows.iter().zip(targets).zip(&self.coefficients);
        let sum = self.coefficients.iter().sum::<f64>().abs() / cost;
        rows.map(of_row).fold(sum, f64::max)
    }
}

/// Coefficients and bias.
fn solve(kernel: &[Vec<f64>], y: &[f64], p: &SupportVectorParameters) -> Result<(Vec<f64>, f64), InputError> {
    let mut b = vec![0.0; y.len()];
    let mut residual = y.to_vec();
    // By how much the objective falls per unit, when a coefficient rises or falls: the zone's cost changes sign
    // at 0, so a coefficient stops there first.
    let rising = |b: f64, r: f64| if b >= 0.0 { r - p.epsilon } else { r + p.epsilon };
    let falling = |b: f64, r: f64| if b > 0.0 { r - p.epsilon } else { r + p.epsilon };
    for _ in 0..MAXIMUM_PAIRS {
        let mut first = (f64::NEG_INFINITY, 0);
        for (number, (value, r)) in b.iter().zip(&residual).enumerate() {
            if *value < p.cost && rising(*value, *r) > first.0 {
                first = (rising(*value, *r), number);
            }
        }
        let (gain, i) = first;
        let (mut lowest, mut best) = (f64::INFINITY, (0.0, 0, 1.0));
        for (number, (value, r)) in b.iter().zip(&residual).enumerate() {
            if *value <= -p.cost {
                continue;
            }
            let loss = falling(*value, *r);
            lowest = lowest.min(loss);
            // Rows with equal features have no curvature between them; a tiny one lets them go to a border.
            let curvature = (kernel[i][i] + kernel[number][number] - 2.0 * kernel[i][number]).max(1e-12);
            if loss < gain && (gain - loss).powi(2) / curvature > best.0 {
                best = ((gain - loss).powi(2) / curvature, number, (gain - loss) / curvature);
            }
        }
        if gain - lowest < p.tolerance {
            return Ok((b, 0.5 * (gain + lowest)));
        }
        let (_, j, wanted) = best;
        let room_up = if b[i] >= 0.0 { p.cost - b[i] } else { -b[i] };
        let room_down = if b[j] > 0.0 { b[j] } else { p.cost + b[j] };
        let step = wanted.min(room_up).min(room_down);
        // Borders are set, not added up to, so that rounding leaves no coefficient next to one.
        b[i] = if step == room_up { if b[i] >= 0.0 { p.cost } else { 0.0 } } else { b[i] + step };
        b[j] = if step == room_down { if b[j] > 0.0 { 0.0 } else { -p.cost } } else { b[j] - step };
        for (r, (up, down)) in residual.iter_mut().zip(kernel[i].iter().zip(&kernel[j])) {
            *r -= step * (up - down);
        }
    }
    let what = format!("no optimum to within {} after {MAXIMUM_PAIRS} pairs", p.tolerance);
    Err(InputError::new(PLACE, what).hint("scale the features, or lower the cost"))
}
