//! Intervals that use what is known anyway: how much arrives in the mean.
//!
//! A replication in which more jobs arrive than in the mean forwards more, too. The regression over the replications
//! says how much more, and what they would have forwarded had just the mean arrived (control variates; Lavenberg and
//! Welch, Management Science 27(3), 1981).

use bellwether_des::statistics::{Interval, Tally, student_quantile};

/// Replications from which on the regression is made: fewer know too little of it.
const LEAST: usize = 10;

/// A control that is this close to a mixture of the others, relative to its size, says nothing new.
const NOTHING_NEW: f64 = 1e-9;

/// The interval of the mean of `samples` at a confidence level, where each of `controls` holds one number per sample
/// whose expectation is 0.
pub(super) fn interval(samples: &[f64], controls: &[Vec<f64>], level: f64) -> Interval {
    if samples.len() < LEAST {
        return samples.iter().copied().collect::<Tally>().interval(level);
    }
    let mut basis: Vec<Vec<f64>> = Vec::new();
    for control in controls {
        let rest = without(control, &basis);
        if dot(&rest, &rest) > NOTHING_NEW * dot(control, control) {
            basis.push(rest);
        }
    }
    // The mean is the coefficient of the constant in the regression on it and the controls.
    let constant = without(&vec![1.0; samples.len()], &basis);
    let rest = without(samples, &basis);
    let weight = dot(&constant, &constant);
    let mean = dot(&constant, &rest) / weight;
    let squares: f64 = rest.iter().zip(&constant).map(|(rest, one)| (rest - mean * one).powi(2)).sum();
    let degrees_of_freedom = (samples.len() - 1 - basis.len()) as f64;
    let deviation = (squares / degrees_of_freedom / weight).sqrt();
    Interval { mean, half_width: student_quantile(0.5 + level / 2.0, degrees_of_freedom) * deviation }
}

/// What is left of a vector when its parts along orthogonal others are taken away.
fn without(vector: &[f64], others: &[Vec<f64>]) -> Vec<f64> {
    let mut rest = vector.to_vec();
    for other in others {
        let share = dot(&rest, other) / dot(other, other);
        rest.iter_mut().zip(other).for_each(|(rest, other)| *rest -= share * other);
    }
    rest
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
