//! Descent by projected quasi-Newton steps.

use super::{Bounds, Minimum};

const MAX_STEPS: usize = 200;
const SUFFICIENT_DECREASE: f64 = 1e-4;
/// Relative gain below which a step counts as none.
const TOLERANCE: f64 = 1e-12;

/// Descends from `x`, which lies within the bounds, until no step gains anything.
pub(super) fn descend(f: &impl Fn(&[f64]) -> f64, bounds: &Bounds, x: Vec<f64>) -> Minimum {
    let n = x.len();
    let value = f(&x);
    let mut at = Minimum { x, value };
    let mut g = gradient(f, bounds, &at);
    let mut free = free_set(bounds, &at.x, &g);
    let mut h = identity(n);
    let mut fresh = true;
    for _ in 0..MAX_STEPS {
        let mut d = direction(&h, &g, &free);
        if dot(&d, &g) >= 0.0 {
            h = identity(n);
            fresh = true;
            d = direction(&h, &g, &free);
        }
        let Some(next) = line_search(f, bounds, &at, &g, &d) else {
            if fresh {
                break;
            }
            h = identity(n);
            fresh = true;
            continue;
        };
        let gain = at.value - next.value;
        let next_g = gradient(f, bounds, &next);
        let s: Vec<f64> = next.x.iter().zip(&at.x).map(|(a, b)| a - b).collect();
        let y: Vec<f64> = next_g.iter().zip(&g).map(|(a, b)| a - b).collect();
        let next_free = free_set(bounds, &next.x, &next_g);
        if next_free == free {
            update(&mut h, &s, &y, &free, fresh);
            fresh = false;
        } else {
            h = identity(n);
            fresh = true;
        }
        let done = gain <= TOLERANCE * (at.value.abs() + TOLERANCE) && next_free == free;
        (at, g, free) = (next, next_g, next_free);
        if done {
            break;
        }
    }
    at
}

/// Central differences; one-sided where a bound leaves no room.
fn gradient(f: &impl Fn(&[f64]) -> f64, bounds: &Bounds, at: &Minimum) -> Vec<f64> {
    let mut probe = at.x.clone();
    let mut g = vec![0.0; probe.len()];
    for i in 0..probe.len() {
        if bounds.is_fixed(i) {
            continue;
        }
        let width = 6e-6 * at.x[i].abs().max(1.0);
        let high = (at.x[i] + width).min(bounds.upper[i]);
        let low = (at.x[i] - width).max(bounds.lower[i]);
        probe[i] = high;
        let f_high = f(&probe);
        probe[i] = low;
        let f_low = f(&probe);
        probe[i] = at.x[i];
        let slope = (f_high - f_low) / (high - low);
        g[i] = if slope.is_finite() { slope } else { 0.0 };
    }
    g
}

/// Parameters that may move: not fixed, and not at a bound that the descent pushes against.
fn free_set(bounds: &Bounds, x: &[f64], g: &[f64]) -> Vec<bool> {
    let held = |i: usize| {
        bounds.is_fixed(i)
            || (x[i] <= bounds.lower[i] && g[i] > 0.0)
            || (x[i] >= bounds.upper[i] && g[i] < 0.0)
    };
    (0..x.len()).map(|i| !held(i)).collect()
}

fn direction(h: &[Vec<f64>], g: &[f64], free: &[bool]) -> Vec<f64> {
    let row = |i: usize| -> f64 {
        if !free[i] {
            return 0.0;
        }
        -h[i].iter().zip(g).zip(free).filter(|(_, free)| **free).map(|((h, g), _)| h * g).sum::<f64>()
    };
    (0..g.len()).map(row).collect()
}

/// Halves the step until the function falls enough; `None` when it never does.
fn line_search(
    f: &impl Fn(&[f64]) -> f64,
    bounds: &Bounds,
    at: &Minimum,
    g: &[f64],
    d: &[f64],
) -> Option<Minimum> {
    // One step must not cross orders of magnitude: parameters are scaled to about 1.
    let longest = d.iter().fold(0.0_f64, |longest, d| longest.max(d.abs()));
    if longest == 0.0 {
        return None;
    }
    let mut t = (2.0 / longest).min(1.0);
    for _ in 0..50 {
        let mut x: Vec<f64> = at.x.iter().zip(d).map(|(x, d)| x + t * d).collect();
        bounds.clip(&mut x);
        let expected: f64 = x.iter().zip(&at.x).zip(g).map(|((a, b), g)| (a - b) * g).sum();
        let value = f(&x);
        if value < at.value && value <= at.value + SUFFICIENT_DECREASE * expected {
            return Some(Minimum { x, value });
        }
        t *= 0.5;
    }
    None
}

/// The BFGS update of the inverse Hessian, on the free parameters.
fn update(h: &mut [Vec<f64>], s: &[f64], y: &[f64], free: &[bool], fresh: bool) {
    let n = s.len();
    let pick = |v: &[f64]| -> Vec<f64> { (0..n).map(|i| if free[i] { v[i] } else { 0.0 }).collect() };
    let (s, y) = (pick(s), pick(y));
    let sy = dot(&s, &y);
    let yy = dot(&y, &y);
    if sy <= 1e-10 * (dot(&s, &s) * yy).sqrt() {
        return;
    }
    if fresh {
        // The first step knows the scale of the curvature only now.
        for (i, row) in h.iter_mut().enumerate() {
            row[i] = sy / yy;
        }
    }
    let hy: Vec<f64> = h.iter().map(|row| dot(row, &y)).collect();
    let yhy = dot(&y, &hy);
    for i in 0..n {
        for j in 0..n {
            h[i][j] += (1.0 + yhy / sy) * s[i] * s[j] / sy - (hy[i] * s[j] + s[i] * hy[j]) / sy;
        }
    }
}

fn identity(n: usize) -> Vec<Vec<f64>> {
    (0..n).map(|i| (0..n).map(|j| f64::from(u8::from(i == j))).collect()).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
