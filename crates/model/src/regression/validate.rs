//! Checks on data that a model was not fitted to: folds by row and by group, errors, and a search over a grid.

use bellwether_core::InputError;
use bellwether_des::statistics::{mean, percentile};

use super::{Kernel, PLACE, SupportVector, SupportVectorParameters};

/// Fits to training rows and their targets, and predicts each of the rows asked for.
pub type Fit<'a> = Box<dyn Fn(&[Vec<f64>], &[f64], &[Vec<f64>]) -> Result<Vec<f64>, InputError> + 'a>;

/// How far predictions lie from what was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Errors {
    /// Mean absolute error, in units of the target.
    pub mean_absolute: f64,
    /// Mean absolute error as a share of what was measured.
    pub mean_relative: f64,
    /// Median of the same.
    pub median_relative: f64,
    /// Largest of the same.
    pub largest_relative: f64,
}

impl Errors {
    /// Errors of pairs (measured, predicted); measured values are not zero. `None` without pairs.
    pub fn of(pairs: &[(f64, f64)]) -> Option<Errors> {
        let absolute: Vec<f64> = pairs.iter().map(|(y, f)| (f - y).abs()).collect();
        let mut relative: Vec<f64> = pairs.iter().map(|(y, f)| ((f - y) / y).abs()).collect();
        relative.sort_by(f64::total_cmp);
        Some(Errors {
            mean_absolute: mean(&absolute),
            mean_relative: mean(&relative),
            median_relative: percentile(&relative, 0.5)?,
            largest_relative: *relative.last()?,
        })
    }
}

/// `order` cut into `folds` parts whose sizes differ by one at most; empty parts are left out.
pub fn folds(order: &[usize], folds: usize) -> Vec<Vec<usize>> {
    let count = folds.max(1);
    let part =
        |number: usize| order[number * order.len() / count..(number + 1) * order.len() / count].to_vec();
    (0..count).map(part).filter(|fold| !fold.is_empty()).collect()
}

/// The rows of each group, groups in the order of their first row.
pub fn by_group(groups: &[String]) -> Vec<Vec<usize>> {
    let mut names: Vec<&String> = Vec::new();
    let mut rows: Vec<Vec<usize>> = Vec::new();
    for (number, group) in groups.iter().enumerate() {
        match names.iter().position(|name| *name == group) {
            Some(known) => rows[known].push(number),
            None => {
                names.push(group);
                rows.push(vec![number]);
            }
        }
    }
    rows
}

/// Pairs (measured, predicted) of every fold, by models fitted to the rows outside of it; in the order of the
/// folds. `fit_predict(training rows, their targets, test rows)` gives one prediction per test row.
///
/// # Errors
///
/// Returns the first error of a fit.
pub fn cross_validate(
    rows: &[Vec<f64>],
    targets: &[f64],
    folds: &[Vec<usize>],
    fit_predict: impl Fn(&[Vec<f64>], &[f64], &[Vec<f64>]) -> Result<Vec<f64>, InputError>,
) -> Result<Vec<Vec<(f64, f64)>>, InputError> {
    let one = |fold: &Vec<usize>| {
        let inside: Vec<usize> =
            folds.iter().filter(|other| !std::ptr::eq(*other, fold)).flatten().copied().collect();
        let pick =
            |numbers: &[usize]| -> Vec<Vec<f64>> { numbers.iter().map(|n| rows[*n].clone()).collect() };
        let train_targets: Vec<f64> = inside.iter().map(|number| targets[*number]).collect();
        let predicted = fit_predict(&pick(&inside), &train_targets, &pick(fold))?;
        Ok(fold.iter().map(|number| targets[*number]).zip(predicted).collect())
    };
    folds.iter().map(one).collect()
}

/// A fit of support vectors as [`cross_validate`] takes it.
///
/// # Errors
///
/// Same errors as [`SupportVector::fit`].
pub fn support_vector(parameters: SupportVectorParameters) -> Fit<'static> {
    Box::new(move |rows: &[Vec<f64>], targets: &[f64], asked: &[Vec<f64>]| {
        let model = SupportVector::fit(rows, targets, parameters)?;
        Ok(asked.iter().map(|row| model.predict(row)).collect())
    })
}

/// The parameters of `costs` × `epsilons` × `kernels` with the smallest mean absolute error over the folds, and
/// that error; the first of equals.
///
/// # Errors
///
/// Returns an error for an empty grid, or the first error of a fit.
pub fn grid_search(
    rows: &[Vec<f64>],
    targets: &[f64],
    folds: &[Vec<usize>],
    grid: (&[Kernel], &[f64], &[f64]),
    tolerance: f64,
) -> Result<(SupportVectorParameters, f64), InputError> {
    let (kernels, costs, epsilons) = grid;
    let nothing = |what: &str| InputError::new(PLACE, what).hint("give at least one of each");
    let mut best: Option<(SupportVectorParameters, f64)> = None;
    for kernel in kernels {
        for cost in costs {
            for epsilon in epsilons {
                let parameters =
                    SupportVectorParameters { kernel: *kernel, cost: *cost, epsilon: *epsilon, tolerance };
                let pairs = cross_validate(rows, targets, folds, support_vector(parameters))?.concat();
                let error = Errors::of(&pairs).ok_or_else(|| nothing("there are no folds"))?.mean_absolute;
                if best.is_none_or(|(_, smallest)| error < smallest) {
                    best = Some((parameters, error));
                }
            }
        }
    }
    best.ok_or_else(|| nothing("the grid is empty"))
}
