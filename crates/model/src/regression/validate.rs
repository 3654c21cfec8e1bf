//! Checks on data that a model was not fitted to: folds by row and by group, errors, and a search over a grid.

use super::{Kernel, SupportVector, SupportVectorParameters};

/// Fits to training rows and their targets, and predicts each of the rows asked for.
pub type Fit<'a> = Box<dyn Fn(&[Vec<f64>], &[f64], &[Vec<f64>]) -> Result<Vec<f64>, String> + 'a>;

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
        if pairs.is_empty() {
            return None;
        }
        let count = pairs.len() as f64;
        let absolute: Vec<f64> = pairs.iter().map(|(y, f)| (f - y).abs()).collect();
        let mut relative: Vec<f64> = pairs.iter().map(|(y, f)| ((f - y) / y).abs()).collect();
        relative.sort_by(f64::total_cmp);
        let (lower, upper) = ((relative.len() - 1) / 2, relative.len() / 2);
        Some(Errors {
            mean_absolute: absolute.iter().sum::<f64>() / count,
            mean_relative: relative.iter().sum::<f64>() / count,
            median_relative: 0.5 * (relative[lower] + relative[upper]),
            largest_relative: relative[relative.len() - 1],
        })
    }
}

/// The numbers `0..count` in an order that depends on `seed` only.
pub fn shuffled(count: usize, seed: u64) -> Vec<usize> {
    let mut state = seed;
    // SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
    let mut draw = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        // The high word of a product takes each number with a chance equal to within 2^-50 for such counts.
        let chosen = ((u128::from(draw()) * (last as u128 + 1)) >> 64) as usize;
        order.swap(last, chosen);
    }
    order
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
/// The first error of a fit.
pub fn cross_validate(
    rows: &[Vec<f64>],
    targets: &[f64],
    folds: &[Vec<usize>],
    fit_predict: impl Fn(&[Vec<f64>], &[f64], &[Vec<f64>]) -> Result<Vec<f64>, String>,
) -> Result<Vec<Vec<(f64, f64)>>, String> {
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
/// As [`SupportVector::fit`].
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
/// An empty grid, or the first error of a fit.
pub fn grid_search(
    rows: &[Vec<f64>],
    targets: &[f64],
    folds: &[Vec<usize>],
    grid: (&[Kernel], &[f64], &[f64]),
    tolerance: f64,
) -> Result<(SupportVectorParameters, f64), String> {
    let (kernels, costs, epsilons) = grid;
    let mut best: Option<(SupportVectorParameters, f64)> = None;
    for kernel in kernels {
        for cost in costs {
            for epsilon in epsilons {
                let parameters =
                    SupportVectorParameters { kernel: *kernel, cost: *cost, epsilon: *epsilon, tolerance };
                let pairs = cross_validate(rows, targets, folds, support_vector(parameters))?.concat();
                let error = Errors::of(&pairs).ok_or("there are no folds")?.mean_absolute;
                if best.is_none_or(|(_, smallest)| error < smallest) {
                    best = Some((parameters, error));
                }
            }
        }
    }
    best.ok_or_else(|| "the grid is empty".into())
}
