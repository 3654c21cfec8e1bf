//! Polish by a simplex, which needs no gradient and so passes kinks.

use super::{Bounds, Minimum};

const MAX_ROUNDS_PER_PARAMETER: usize = 120;
const EDGE: f64 = 0.05;

/// Shrinks a simplex around `best`; what comes back is never worse.
pub(super) fn polish(f: &impl Fn(&[f64]) -> f64, bounds: &Bounds, best: Minimum) -> Minimum {
    let free: Vec<usize> = (0..best.x.len()).filter(|&i| !bounds.is_fixed(i)).collect();
    let at = |mut x: Vec<f64>| {
        bounds.clip(&mut x);
        let value = f(&x);
        Minimum { x, value }
    };
    let corner = |&i: &usize| {
        let mut x = best.x.clone();
        let edge = EDGE * x[i].abs().max(1.0);
        x[i] += if x[i] + edge <= bounds.upper[i] { edge } else { -edge };
        at(x)
    };
    let mut corners: Vec<Minimum> = free.iter().map(corner).collect();
    corners.push(best);
    for _ in 0..MAX_ROUNDS_PER_PARAMETER * free.len() {
        corners.sort_by(|a, b| a.value.total_cmp(&b.value));
        let (first, last) = (corners[0].value, corners[free.len()].value);
        if last - first <= 1e-13 * (first.abs() + 1e-13) {
            break;
        }
        round(&at, &mut corners);
    }
    corners.sort_by(|a, b| a.value.total_cmp(&b.value));
    corners.swap_remove(0)
}

/// One round: the worst corner is reflected, expanded or contracted, or all shrink towards the best.
fn round(at: &impl Fn(Vec<f64>) -> Minimum, corners: &mut [Minimum]) {
    let Some((worst, others)) = corners.split_last_mut() else { return };
    let count = others.len() as f64;
    let centre: Vec<f64> =
        (0..worst.x.len()).map(|i| others.iter().map(|corner| corner.x[i]).sum::<f64>() / count).collect();
    let along = |t: f64| at(centre.iter().zip(&worst.x).map(|(c, w)| c + t * (w - c)).collect());
    let reflected = along(-1.0);
    let best = &others[0];
    if reflected.value < best.value {
        let expanded = along(-2.0);
        *worst = if expanded.value < reflected.value { expanded } else { reflected };
        return;
    }
    if others.last().is_some_and(|second| reflected.value < second.value) {
        *worst = reflected;
        return;
    }
    let contracted = if reflected.value < worst.value { along(-0.5) } else { along(0.5) };
    if contracted.value < worst.value.min(reflected.value) {
        *worst = contracted;
        return;
    }
    let best = best.x.clone();
    for corner in corners.iter_mut().skip(1) {
        *corner = at(corner.x.iter().zip(&best).map(|(x, b)| b + 0.5 * (x - b)).collect());
    }
}
