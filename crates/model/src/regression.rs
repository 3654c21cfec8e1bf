//! Step time and checkpoint time of a network that was never run, from its complexity and the device.
//!
//! # Model
//!
//! ```text
//! least squares          t = b0 + Σ b_k x_k
//!   interval of one more t ± q(ν) s √(1/w² + xᵀ(XᵀW²X)⁻¹x)
//! support vectors        t = Σ c_i K(x_i, x) + d,   |c_i| <= C,  Σ c_i = 0,  c_i = 0 where |t_i - t| < e
//!   radial kernel        K(x, z) = exp(-g |x - z|²)
//!   polynomial kernel    K(x, z) = (g x·z + o)^p
//! normalised complexity  x = (F - F_min) / (F_max - F_min)
//! choice                 the candidate with the least mean |t̂ - t| / t over left-out networks
//!   interval             t̂ / r <= t <= t̂ r,   r the quantile of max(t/t̂, t̂/t) over left-out networks
//! ```
//!
//! | symbol  | meaning                                           | unit               | type              |
//! |---------|---------------------------------------------------|--------------------|-------------------|
//! | t       | time of a training step, or of a checkpoint       | s                  | `f64`             |
//! | x       | features: work, number of tensors, bytes          | the caller's       | `&[f64]`          |
//! | F       | floating-point operations of a sample             | 1                  | `f64`             |
//! | b, c, d | coefficients                                      | s per unit of x; s | [`LeastSquares`], [`SupportVector`] |
//! | w       | weight of the row's residual                      | 1 or 1/s           | `f64`             |
//! | s, ν, q | residual deviation, degrees of freedom, Student's quantile | s; 1; 1   | `f64`             |
//! | C, e    | bound of a coefficient; half width of the free zone | 1; s             | [`SupportVectorParameters`] |
//! | g, o, p | shape of the kernel                               | 1                  | [`Kernel`]        |
//!
//! ```
//! use bellwether_model::regression::LeastSquares;
//! // Through (0, 1), (1, 3), (2, 5) and (3, 8) by hand: slope 23/10, intercept 4/5, squared residuals 0.3.
//! let rows = [vec![0.0], vec![1.0], vec![2.0], vec![3.0]];
//! let line = LeastSquares::fit(&rows, &[1.0, 3.0, 5.0, 8.0]).expect("four rows determine a line");
//! assert!((line.coefficients[1] - 2.3).abs() < 1e-12 && (line.coefficients[0] - 0.8).abs() < 1e-12);
//! assert!((line.residual_sd - 0.15_f64.sqrt()).abs() < 1e-12);
//! ```
//!
//! # Source
//!
//! S. Li, R. J. Walls and T. Guo, Characterizing and Modeling Distributed Training with Transient Cloud GPU
//! Servers, ICDCS 2020 (the features, the kernels and their parameters, the measurements). Smola and
//! Schölkopf, A tutorial on support vector regression, Stat. Comput. 14, 2004. The interval of a left-out
//! group follows Barber et al., Predictive inference with the jackknife+, Ann. Stat. 49, 2021, in its simpler
//! form around one prediction.
//!
//! # Assumes
//!
//! The networks asked about come from the family of those measured, on the same device and software. Rows of
//! one network resemble each other, so a test that leaves out rows and not networks flatters; the choice
//! leaves out networks. The interval of least squares counts rows as independent, and is too narrow for a new
//! network where there are several rows of each.
//!
//! # Valid
//!
//! Inside the ranges of the features ([`Chosen::beyond`] says where not). A radial kernel returns to the mean
//! far from its rows, whatever the features say.
//!
//! # Checked by
//!
//! The published coefficients to their printed digits, the optimality conditions of every kind of fit, cases
//! solved by hand, and each of 20 networks left out in turn, with the share of intervals that hold
//! (`tests/it/regression.rs`; the example `accuracy_regression` prints the tables).

mod candidate;
mod least_squares;
mod support_vector;
pub mod validate;

pub use candidate::{
    Candidate, Chosen, Fitted, Method, Sample, Scale, choose, group_means, leave_one_group_out,
};
pub use least_squares::LeastSquares;
pub use support_vector::{Kernel, SupportVector, SupportVectorParameters};

use bellwether_core::InputError;

use crate::common::check;

const PLACE: &str = "regression";

/// Candidates for the step time of a network from its operations (feature 0) and its number of tensors
/// (feature 1), in any units. A step is work over speed plus a cost per operation started, and the number of
/// tensors counts the latter; the candidates differ in how freely that may bend.
pub fn step_time_candidates() -> Vec<Candidate> {
    let mut candidates = Vec::new();
    for (columns, with) in [(vec![0], "work"), (vec![0, 1], "work, tensors")] {
        candidates.extend(line_candidates(&columns, with));
        candidates.extend(vector_candidates(&columns, with));
    }
    candidates
}

/// Candidates for the time of a checkpoint from its bytes in all (feature 0), those of its weights (feature 1)
/// and those of the graph's description (feature 2).
pub fn checkpoint_time_candidates() -> Vec<Candidate> {
    let mut candidates = Vec::new();
    for (columns, with) in [(vec![0], "bytes"), (vec![1, 2], "weights, graph")] {
        candidates.extend(line_candidates(&columns, with));
        candidates.extend(vector_candidates(&columns, with));
    }
    candidates
}

fn line_candidates(columns: &[usize], with: &str) -> Vec<Candidate> {
    let of = |name: &str, scale| Candidate::least_squares(&format!("{name} of {with}"), columns, scale);
    let relative = Candidate {
        method: Method::RelativeLeastSquares,
        ..of("least squares of relative errors", Scale::Plain)
    };
    vec![of("least squares", Scale::Plain), relative, of("least squares of logarithms", Scale::Log)]
}

fn vector_candidates(columns: &[usize], with: &str) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    let width = columns.len() as f64;
    let radial = [0.1, 0.3, 1.0].map(|gamma| Kernel::Rbf { gamma: gamma / width });
    let square = Kernel::Polynomial { degree: 2, gamma: 1.0 / width, offset: 1.0 };
    for kernel in radial.into_iter().chain([square]) {
        for cost in [1.0, 10.0, 100.0] {
            for epsilon in [0.01, 0.1] {
                candidates.push(Candidate {
                    name: format!("support vectors of log {with}: {kernel:?}, C {cost}, zone {epsilon}"),
                    columns: columns.to_vec(),
                    inputs: Scale::Log,
                    target: Scale::Log,
                    method: Method::SupportVector { kernel, cost, epsilon },
                });
            }
        }
    }
    candidates
}

/// The number of features; an error where there are no rows, not as many targets, or numbers without meaning.
fn check_rows(rows: &[Vec<f64>], targets: &[f64]) -> Result<usize, InputError> {
    let Some(first) = rows.first() else {
        return Err(InputError::new(PLACE, "there are no rows to fit to").hint("measure at least one"));
    };
    check_count(rows.len(), "targets", targets.len())?;
    for (number, (row, target)) in rows.iter().zip(targets).enumerate() {
        let place = format!("{PLACE}, row {number}");
        check_width(&place, first.len(), row.len())?;
        if let Some(bad) = row.iter().chain([target]).find(|value| !value.is_finite()) {
            return Err(InputError::new(place, format!("it holds {bad}")).hint("give finite numbers"));
        }
    }
    Ok(first.len())
}

/// Refuses another number of something than there are rows.
fn check_count(rows: usize, of: &str, count: usize) -> Result<(), InputError> {
    if rows == count {
        return Ok(());
    }
    Err(InputError::new(PLACE, format!("{rows} rows and {count} {of}")).hint("give as many"))
}

/// Refuses another number of features than the first row has.
fn check_width(place: &str, width: usize, features: usize) -> Result<(), InputError> {
    if width == features {
        return Ok(());
    }
    let what = format!("it has {features} features, and the first has {width}");
    Err(InputError::new(place, what).hint("give every row the same features"))
}
