//! Sparse linear systems that are only known by what they do to a vector: the stabilised method of
//! biconjugate gradients (H. A. van der Vorst, SIAM J. Sci. Stat. Comput. 13(2), 1992).

/// What the method needs to know of A x = b.
pub trait System {
    /// `image` = A `vector`.
    fn apply(&self, vector: &[f64], image: &mut [f64]);
    /// `guess` nearly solves A `guess` = `target`, and is linear in it.
    fn precondition(&self, target: &[f64], guess: &mut [f64]);
}

/// How far it came.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// Steps that were taken.
    pub iterations: u32,
    /// Norm of A x, computed again from the x that is returned.
    pub residual: f64,
}

/// Improves `solution` of A x = 0, staying among those that differ from it by what [`System::precondition`]
/// yields, until the norm of A x is at most `enough` or `most_iterations` are spent.
pub fn solve(system: &impl System, solution: &mut [f64], enough: f64, most_iterations: u32) -> Progress {
    let mut residual = vec![0.0; solution.len()];
    let mut iterations = 0;
    let mut before = f64::INFINITY;
    loop {
        system.apply(solution, &mut residual);
        residual.iter_mut().for_each(|value| *value = -*value);
        let norm = dot(&residual, &residual).sqrt();
        // A start afresh that gained nothing will not gain anything next time.
        let gained = norm < before;
        if norm <= enough || iterations >= most_iterations || !gained {
            return Progress { iterations, residual: norm };
        }
        before = norm;
        iterations += run(system, solution, &mut residual, 0.5 * enough, most_iterations - iterations);
    }
}

/// One run from a start: ends when the residual that it tracks is small, or when its directions degenerate.
fn run(system: &impl System, solution: &mut [f64], residual: &mut [f64], enough: f64, most: u32) -> u32 {
    let n = solution.len();
    let start = residual.to_vec();
    let mut direction = residual.to_vec();
    let (mut guess, mut image, mut turned) = (vec![0.0; n], vec![0.0; n], vec![0.0; n]);
    let mut along = dot(&start, residual);
    for iteration in 1..=most {
        system.precondition(&direction, &mut guess);
        system.apply(&guess, &mut image);
        let step = along / dot(&start, &image);
        if !step.is_finite() {
            return iteration;
        }
        add(solution, step, &guess);
        add(residual, -step, &image);
        system.precondition(residual, &mut guess);
        system.apply(&guess, &mut turned);
        let damping = dot(&turned, residual) / dot(&turned, &turned);
        if !damping.is_finite() || damping == 0.0 {
            return iteration;
        }
        add(solution, damping, &guess);
        add(residual, -damping, &turned);
        if dot(residual, residual).sqrt() <= enough {
            return iteration;
        }
        let next = dot(&start, residual);
        let turn = next / along * (step / damping);
        if !turn.is_finite() {
            return iteration;
        }
        for ((value, image), residual) in direction.iter_mut().zip(&image).zip(&*residual) {
            *value = residual + turn * (*value - damping * image);
        }
        along = next;
    }
    most
}

/// `sum` += `factor` * `summand`.
pub fn add(sum: &mut [f64], factor: f64, summand: &[f64]) {
    for (sum, value) in sum.iter_mut().zip(summand) {
        *sum += factor * value;
    }
}

/// Inner product. Four partial sums: the compiler may not reorder one, and would add one number at a time.
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    let (mut sums, split) = ([0.0; 4], a.len() / 4 * 4);
    for (a, b) in a.chunks_exact(4).zip(b.chunks_exact(4)) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    let rest: f64 = a[split..].iter().zip(&b[split..]).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f64>() + rest
}
