//! How fast two training jobs are that share a device, from what each of them demands of it.
//!
//! # Model
//!
//! ```text
//! s_ab = 1 / (1 + sum_r e_ar u_br)          part of its speed alone that a keeps beside b
//! both fit   where m_a + m_b <= 1           else they cannot share the device at all
//!
//! fit        minimise sum_ab (log(1 / s_ab) - log(1 / measured))^2  + L sum_ar (log e_ar - mean_r)^2 + the same of u
//!            minimise sum_ab -log P_ab + sum_a (m_a - m_0)^2 / (2 d^2),   P_ab = 1 / (1 + exp((m_a + m_b - 1) / w))
//! newcomer   log e, log u, m = mean + W z, by ridge regression over the jobs that were fitted; z: its profile, standardised
//! probed     the fit of a newcomer's own e, u, m to a few pairs that were measured, drawn to the above by P
//! ```
//!
//! | symbol | meaning                                                                 | unit |
//! |--------|-------------------------------------------------------------------------|------|
//! | r      | a resource of the device that has no name: 1 to [`RESOURCES`]           |      |
//! | u_br   | pressure: how long b occupies r, against what others wait for           | 1    |
//! | e_ar   | exposure: how much of its own time a then waits for r                   | 1    |
//! | m_a    | footprint: part of the device's memory                                  | 1    |
//! | L      | [`SHRINKAGE`], 0.01: worth a hundredth of one measured pair             | 1    |
//! | P      | [`PROBE_SHRINKAGE`], 0.05                                               | 1    |
//! | w      | width of the threshold, 0.05                                            | 1    |
//! | m_0, d | where a footprint is expected that no pair tells of, 0.4, and how far from there, 0.3 | 1 |
//!
//! One resource with `e_a = 1 / u_a` is time slicing between kernels of different lengths: `s_ab = u_a / (u_a + u_b)`.
//! A job that leaves a device idle has small `u` and small `e`.
//!
//! # Source
//!
//! This project's. Pressure and sensitivity as two numbers of a job: Mars et al., Bubble-Up, MICRO 2011; latent factors
//! of interference: Delimitrou and Kozyrakis, Paragon, ASPLOS 2013.
//!
//! # Assumes
//!
//! Two jobs on one device, neither faster beside the other than alone. Demands do not change with the partner or over
//! time. What one resource costs adds to what another one costs.
//!
//! # Valid
//!
//! For jobs that were measured beside others on the same type of device, as far as three resources describe them. A job
//! that was not is a [newcomer](Newcomers), whose profile says little: see `docs/accuracy.md`. Footprints are on a
//! scale where only sums of two were seen; they are not bytes.
//!
//! # Checked by
//!
//! `tests/it/accuracy_colocation.rs`: measured pairs of Gavel's table, held out by pair and by model, against three
//! simpler rules. `tests/it/colocation.rs`: invented demands come back as the speeds that they make.
//!
//! ```
//! use bellwether_model::colocation::{Demand, share};
//! // Kernels of 3 ms beside kernels of 1 ms, turn by turn: three quarters and one quarter of the device.
//! let long = Demand { exposure: vec![1.0 / 3.0], pressure: vec![3.0], footprint: 0.5 };
//! let short = Demand { exposure: vec![1.0], pressure: vec![1.0], footprint: 0.6 };
//! assert!((share(&long, &short) - 0.75).abs() < 1e-12);
//! assert!((share(&short, &long) - 0.25).abs() < 1e-12);
//! assert!(!long.fits(&short));
//! ```

mod footprint;
mod latent;
mod newcomer;
mod table;

pub use newcomer::{Newcomers, Probe, probed};
pub use table::{Colocated, profile};

use bellwether_core::InputError;

use crate::common::check;

/// Resources of a device that jobs are taken to contend for.
pub const RESOURCES: usize = 3;

/// How much a job's demands are drawn to the mean over all jobs, in squared errors of logarithms.
pub const SHRINKAGE: f64 = 0.01;

/// How much the demands of a probed newcomer are drawn to what its profile says.
pub const PROBE_SHRINKAGE: f64 = 0.05;

const PLACE: &str = "pairs of jobs that share a device";

/// Two jobs that were measured on one device, by their places in a list.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pair {
    /// The jobs; the same one twice for two jobs of a kind.
    pub jobs: [usize; 2],
    /// The part of its speed alone that each kept; `None` when they could not share it.
    pub shares: Option<[f64; 2]>,
}

/// What a job demands of a device.
#[derive(Debug, Clone, PartialEq)]
pub struct Demand {
    /// By resource: how much of its time it waits there for a pressure of 1.
    pub exposure: Vec<f64>,
    /// By resource: how long it occupies it, in the same terms.
    pub pressure: Vec<f64>,
    /// Part of the device's memory.
    pub footprint: f64,
}

impl Demand {
    /// Whether both have room on one device.
    pub fn fits(&self, other: &Demand) -> bool {
        self.footprint + other.footprint <= 1.0
    }
}

/// The part of its speed alone that `job` keeps beside `other`, if both have room.
pub fn share(job: &Demand, other: &Demand) -> f64 {
    let waited: f64 = job.exposure.iter().zip(&other.pressure).map(|(exposure, u)| exposure * u).sum();
    1.0 / (1.0 + waited)
}

/// The parts of their speeds alone that two jobs keep; `None` when they have no room.
pub fn together(first: &Demand, second: &Demand) -> Option<[f64; 2]> {
    first.fits(second).then(|| [share(first, second), share(second, first)])
}

/// The demands of `jobs` jobs on one type of device, by `resources` resources, from pairs of them. A job in no pair
/// gets the mean of the others.
///
/// # Errors
///
/// Returns an error on any of these: no pair that shares, a pair of jobs that are not there, or a share that is not
/// within 0 (excluded) and 1.
pub fn fit(jobs: usize, pairs: &[Pair], resources: usize) -> Result<Vec<Demand>, InputError> {
    for (row, pair) in pairs.iter().enumerate() {
        let place = || format!("{PLACE}, row {row}");
        if let Some(job) = pair.jobs.iter().find(|job| **job >= jobs) {
            return Err(InputError::new(place(), format!("there is no job {job}, of {jobs}")));
        }
        for share in pair.shares.into_iter().flatten() {
            check::not_positive(place(), "the part of a speed alone", share)?;
            if share > 1.0 {
                let what = format!("a job keeps {share} of its speed alone, which is more than all of it");
                return Err(InputError::new(place(), what).hint("take 1 where noise made it faster"));
            }
        }
    }
    if resources == 0 || !pairs.iter().any(|pair| pair.shares.is_some()) {
        return Err(InputError::new(PLACE, "no pair shares a device, or no resource is looked for"));
    }
    let (exposures, pressures) = latent::fit(jobs, pairs, resources);
    let footprints = footprint::fit(jobs, pairs);
    let demand = |((exposure, pressure), footprint): ((&Vec<f64>, &Vec<f64>), f64)| Demand {
        exposure: exposure.iter().copied().map(libm::exp).collect(),
        pressure: pressure.iter().copied().map(libm::exp).collect(),
        footprint,
    };
    Ok(exposures.iter().zip(&pressures).zip(footprints).map(demand).collect())
}
