//! A cloud's own queue as the pool sees it: how long it stays full, and how long until it is full again, as a
//! sum of exponential modes.
//!
//! The queue's generator T, scaled by the square root of its stationary law p, is symmetric and tridiagonal
//! with eigenvalues theta <= 0. All that the pool feels of it are these and the components w of the normed
//! eigenvectors at the full state: w = sqrt(p(full)) for theta = 0. States that hold less than 1e-18 of the
//! law are left out.

use bellwether_numerics::tridiagonal::diagonalise;

/// Modes of one local queue, slowest first: the first is the stationary one.
#[derive(Debug, Clone)]
pub(super) struct Spectrum {
    /// Eigenvalues in 1/s, at most 0; the first is 0.
    pub(super) rates_per_s: Vec<f64>,
    /// Component of each normed eigenvector at the full state; the squares sum to 1.
    pub(super) at_full: Vec<f64>,
}

/// Mass of the law below which the emptiest states are left out.
const LEFT_OUT: f64 = 1e-18;

/// States of a queue that matter: all, less the emptiest ones that hold next to no mass. Counts no further
/// than to the first number above `most`.
pub(super) fn states(arrivals_per_s: f64, service_per_s: f64, servers: u32, capacity: u64, most: u64) -> u64 {
    // Relative to the full state; `total` and `below` are walked down from it.
    let (mut weight, mut total, mut taken) = (1.0, 1.0, 1_u64);
    for state in (0..capacity).rev() {
        let deaths = (state + 1).min(u64::from(servers)) as f64 * service_per_s;
        let ratio = deaths / arrivals_per_s;
        weight *= ratio;
        // Further down ratios only fall: what is left is below a geometric tail.
        if taken > most || ratio < 1.0 && weight < LEFT_OUT * (1.0 - ratio) * total {
            break;
        }
        total += weight;
        taken += 1;
        if total > 1e280 {
            (weight, total) = (weight * 1e-280, total * 1e-280);
        }
    }
    taken
}

impl Spectrum {
    /// Modes of the fullest `states` states of a queue that is full with probability `full`.
    pub(super) fn of(
        arrivals_per_s: f64,
        service_per_s: f64,
        servers: u32,
        capacity: u64,
        states: u64,
        full: f64,
    ) -> Spectrum {
        let lowest = capacity + 1 - states;
        let deaths = |state: u64| state.min(u64::from(servers)) as f64 * service_per_s;
        let births = |state: u64| if state < capacity { arrivals_per_s } else { 0.0 };
        let leaving = |state: u64| births(state) + if state > lowest { deaths(state) } else { 0.0 };
        let mut diagonal: Vec<f64> = (lowest..=capacity).map(|state| -leaving(state)).collect();
        let mut beside: Vec<f64> =
            (lowest..=capacity).map(|state| (births(state) * deaths(state + 1)).sqrt()).collect();
        let mut last_row = vec![0.0; diagonal.len()];
        last_row[diagonal.len() - 1] = 1.0;
        diagonalise(&mut diagonal, &mut beside, &mut last_row);
        let mut modes: Vec<(f64, f64)> = diagonal.into_iter().zip(last_row).collect();
        modes.sort_by(|a, b| b.0.total_cmp(&a.0));
        // The stationary mode is known exactly. The sign of an eigenvector is free.
        modes[0] = (0.0, full.sqrt());
        Spectrum {
            rates_per_s: modes.iter().map(|(rate, _)| rate.min(0.0)).collect(),
            at_full: modes.iter().map(|(_, component)| component.abs()).collect(),
        }
    }
}
