//! Throughput of asynchronous training: workers circulate between computing and shared server links.
//!
//! # Model
//!
//! A closed network: W workers, each in turn computes (a delay without waiting) and visits the stations that all share
//! (a server's downlink, its uplink, its update). One round is one step.
//!
//! ```text
//! exact        R_k(n) = D_k (1 + Q_k(n-1))
//! low variance R_k(n) = D_k (1 + Q_k(n-1) - U_k(n-1) + U_k(n-1) (1 + c2)/2),   X(n) <= 1/max D_k
//! both         X(n) = n / (Z + sum R_k(n)),  Q_k(n) = X(n) R_k(n),  U_k(n) = X(n) D_k,  Q_k(0) = U_k(0) = 0
//! bounds       W/(Z + W sum D_k) <= X(W) <= min( W/(Z + sum D_k), 1/max D_k ),  knee (Z + sum D_k)/max D_k
//! ```
//!
//! | symbol | meaning                                                     | unit |
//! |--------|-------------------------------------------------------------|------|
//! | Z      | seconds of a step at no station: computing                  | s    |
//! | D_k    | seconds of a step that station k works for one worker       | s    |
//! | c2     | squared coefficient of variation of the time at a station   | 1    |
//! | n, W   | workers                                                     | 1    |
//! | R_k    | seconds a step spends at station k, waiting included        | s    |
//! | Q_k    | mean number of workers at station k                         | 1    |
//! | U_k    | share of the time that station k works                      | 1    |
//! | X      | steps per second, all workers together                      | 1/s  |
//!
//! # Source
//!
//! Exact mean-value analysis: M. Reiser and S. S. Lavenberg, J. ACM 27(2), 1980. Bounds: P. J. Denning and
//! J. P. Buzen, ACM Comput. Surv. 10(3), 1978. The residual-service correction for variation at a first-come
//! station: M. Reiser, IEEE Trans. Commun. 27(8), 1979. That asynchronous stochastic gradient descent is such
//! a network: S.-H. Lin et al., MASCOTS 2018 (abstract; the stations chosen here are ours).
//!
//! # Assumes
//!
//! Workers are alike (else: [`multiclass`]) and independent; transfers do not overlap with computing beyond
//! what [`ClosedNetwork::of_lone_step`] absorbs. *Exact* is exact for stations that share their work among
//! all present (a link), for any distribution of times with these means, and for first-come stations with
//! exponential times. *Low variance* is an approximation for first-come stations with steady times: with computing
//! times that vary like exponential ones it is up to 6 % too high at the knee (and *exact* up to 6 % too low);
//! with steadier computing it is too low, as workers fall into turns and approach the upper bound. Workers
//! of equal fixed times that start together on a sharing link never mix and stay in lockstep at
//! [`lockstep_per_s`], below both: real steps vary enough to leave it.
//!
//! # Valid
//!
//! Any number of workers up to a million. Where the time at the stations was not measured but fitted from
//! throughput below the knee, it is hardly determined: see [`crate::calibrate::asynchronous`].
//!
//! # Checked by
//!
//! The reference table in `tests/it/coarse_reference.rs` (three decimals); the exact solution of first-come
//! stations with fixed times (finite-source queue) there; laws in `tests/it/coarse_laws.rs`; measured
//! throughput of 12 series in `tests/it/accuracy_asynchronous.rs`.
//!
//! ```
//! use bellwether_model::queueing::{ClosedNetwork, exact};
//! // R(2) = 0.2 (1 + 0.2) at each link: 2 / (0.6 + 0.48) = 1.851852 steps/s.
//! let network = ClosedNetwork::new(0.6, &[0.2, 0.2]).expect("two links");
//! let two = exact(&network, 2).expect("two workers");
//! assert!((two.throughput_per_s - 2.0 / 1.08).abs() < 1e-12);
//! ```

use bellwether_core::InputError;

use crate::common::check;

mod multiclass;
mod servers;

pub use multiclass::{
    Class, MulticlassSolution, STATES_MAX, multiclass, multiclass_approximate, multiclass_exact,
};
pub use servers::{Shares, fork_join};

const PLACE: &str = "queueing";

/// Where the time of one step goes.
#[derive(Debug, Clone, PartialEq)]
pub struct ClosedNetwork {
    delay_s: f64,
    demands_s: Vec<f64>,
}

/// What a closed network does with a number of workers.
#[derive(Debug, Clone, PartialEq)]
pub struct Solution {
    /// Steps per second, all workers together.
    pub throughput_per_s: f64,
    /// Seconds from one step of a worker to its next.
    pub cycle_s: f64,
    /// Mean number of workers at each station, served or waiting.
    pub queue_lengths: Vec<f64>,
}

/// What no service order and no distribution can pass.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// Steps per second with every worker always waiting for all others at every station.
    pub lower_per_s: f64,
    /// Steps per second if no worker ever waits, or if the busiest station is never idle.
    pub upper_per_s: f64,
    /// Workers at which the busiest station would be busy all the time; infinite without stations.
    pub knee: f64,
}

impl ClosedNetwork {
    /// A step of `delay_s` at no station, and `demands_s` at each station.
    ///
    /// # Errors
    ///
    /// Returns an error for negative seconds, or none at all, or more than a number holds.
    pub fn new(delay_s: f64, demands_s: &[f64]) -> Result<ClosedNetwork, InputError> {
        check::negative(PLACE, "the delay in seconds", delay_s)?;
        for &demand_s in demands_s {
            check::negative(PLACE, "a station's demand in seconds", demand_s)?;
        }
        let network = ClosedNetwork { delay_s, demands_s: demands_s.to_vec() };
        check::not_positive(PLACE, "the step in seconds", network.lone_step_s())?;
        Ok(network)
    }

    /// The network whose lone worker takes `step_s`, as measured: what the stations do not take is delay.
    ///
    /// So transfers that one worker hides behind its computing are not counted twice. Where the stations alone
    /// take longer than the step, the delay is 0 and the lone step is theirs.
    ///
    /// # Errors
    ///
    /// Same errors as [`new`](ClosedNetwork::new).
    pub fn of_lone_step(step_s: f64, demands_s: &[f64]) -> Result<ClosedNetwork, InputError> {
        check::negative(PLACE, "the step of a lone worker in seconds", step_s)?;
        ClosedNetwork::new((step_s - demands_s.iter().sum::<f64>()).max(0.0), demands_s)
    }

    /// Seconds of a step at no station.
    pub fn delay_s(&self) -> f64 {
        self.delay_s
    }

    /// Seconds of a step at each station.
    pub fn demands_s(&self) -> &[f64] {
        &self.demands_s
    }

    /// Seconds of a step that meets no other worker.
    pub fn lone_step_s(&self) -> f64 {
        self.delay_s + self.demands_s.iter().sum::<f64>()
    }

    fn largest_demand_s(&self) -> f64 {
        self.demands_s.iter().copied().fold(0.0, f64::max)
    }
}

/// Exact mean-value analysis.
///
/// # Errors
///
/// Returns an error if there is no worker, or more than a million.
pub fn exact(network: &ClosedNetwork, workers: u32) -> Result<Solution, InputError> {
    solve(network, workers, 1.0, f64::INFINITY)
}

/// Mean-value analysis for first-come stations whose times have squared coefficient of variation
/// `squared_variation`: 0 for fixed times; 1 gives [`exact`].
///
/// # Errors
///
/// Returns an error on any of these: no worker, or more than a million; a variation outside 0 to 1, for which the form
/// is not made.
pub fn low_variance(
    network: &ClosedNetwork,
    squared_variation: f64,
    workers: u32,
) -> Result<Solution, InputError> {
    if !(0.0..=1.0).contains(&squared_variation) {
        let what = format!("the squared coefficient of variation is {squared_variation}");
        return Err(InputError::new(PLACE, what).hint("this form is for 0 to 1"));
    }
    solve(network, workers, squared_variation, 1.0 / network.largest_demand_s())
}

fn solve(
    network: &ClosedNetwork,
    workers: u32,
    squared_variation: f64,
    limit_per_s: f64,
) -> Result<Solution, InputError> {
    check::workers(PLACE, workers)?;
    let demands_s = &network.demands_s;
    // A worker that is being served has this much less of its time left than one that begins.
    let elapsed = (1.0 - squared_variation) / 2.0;
    let mut queue_lengths = vec![0.0; demands_s.len()];
    let mut throughput_per_s = 0.0;
    for population in 1..=workers {
        let mut residence_s = 0.0;
        for (queue, demand_s) in queue_lengths.iter_mut().zip(demands_s) {
            let busy = throughput_per_s * demand_s;
            // Holds the seconds at the station until the throughput is known.
            *queue = demand_s * (1.0 + *queue - busy * elapsed);
            residence_s += *queue;
        }
        let population = f64::from(population);
        let uncapped_per_s = population / (network.delay_s + residence_s);
        throughput_per_s = uncapped_per_s.min(limit_per_s);
        for queue in &mut queue_lengths {
            *queue *= throughput_per_s;
        }
        if uncapped_per_s > limit_per_s {
            let elsewhere = throughput_per_s * network.delay_s + queue_lengths.iter().sum::<f64>();
            queue_at_busiest(network, population - elsewhere, &mut queue_lengths);
        }
    }
    let cycle_s = f64::from(workers) / throughput_per_s;
    Ok(Solution { throughput_per_s, cycle_s, queue_lengths })
}

/// Adds the workers who are counted nowhere yet to the stations that cap the throughput (Little's law).
fn queue_at_busiest(network: &ClosedNetwork, uncounted: f64, queue_lengths: &mut [f64]) {
    let largest_s = network.largest_demand_s();
    let busiest = network.demands_s.iter().filter(|&&demand_s| demand_s >= largest_s).count();
    for (queue, &demand_s) in queue_lengths.iter_mut().zip(&network.demands_s) {
        if demand_s >= largest_s {
            *queue += uncounted / busiest as f64;
        }
    }
}

/// Bounds of the throughput, and the knee.
///
/// # Errors
///
/// Returns an error if there is no worker, or more than a million.
pub fn bounds(network: &ClosedNetwork, workers: u32) -> Result<Bounds, InputError> {
    check::workers(PLACE, workers)?;
    let (population, largest_s) = (f64::from(workers), network.largest_demand_s());
    let lone_s = network.lone_step_s();
    Ok(Bounds {
        lower_per_s: lockstep_per_s(network, workers)?,
        upper_per_s: (population / lone_s).min(1.0 / largest_s),
        knee: lone_s / largest_s,
    })
}

/// Steps per second of equal workers of fixed times that start together: all share every link at once.
///
/// # Errors
///
/// Returns an error if there is no worker, or more than a million.
pub fn lockstep_per_s(network: &ClosedNetwork, workers: u32) -> Result<f64, InputError> {
    check::workers(PLACE, workers)?;
    let population = f64::from(workers);
    Ok(population / (network.delay_s + population * network.demands_s.iter().sum::<f64>()))
}
