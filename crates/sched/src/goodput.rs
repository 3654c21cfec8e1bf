//! Shares a cluster among elastic jobs so that their speed-ups, taken together, are as good as can be found.
//!
//! ```text
//! s_j(A)  = goodput_j(A) / goodput_j(fair share) * nodes / devices
//! f_j(A)  = 1 if A is what j holds, else max(age - restarts * S, 0) / (age + S)
//! fitness = ( 1/m sum_j (f_j s_j + 0.001)^p )^(1/p)          p = 0: geometric mean of max(f_j s_j, 0.001)
//! ```
//!
//! | symbol | meaning                                                                 |
//! |--------|-------------------------------------------------------------------------|
//! | A      | devices of a job by node; goodput depends on how many nodes and devices |
//! | S      | seconds without progress that a restart costs                           |
//! | m      | jobs                                                                    |
//! | p      | fairness: the smaller, the more the worst-off job counts                |
//!
//! A node holds shares of at most one job that spans several nodes. Source: Qiao et al., Pollux, OSDI 2021, with the
//! constants of its implementation; the search is ours and draws no random numbers.
//!
//! For one job more devices are worth a sum of its own, so the fitness is a sum over jobs and the devices are what they
//! compete for. The search starts (a) from what the jobs hold and (b) from counts chosen as if devices had no place:
//! segments of each job's upper concave hull in the order of their slopes. From both it goes uphill: a job takes the
//! best devices that it can get when those who hold them are paid off, and those look for a new place.

mod hull;
mod layout;
mod pairs;
mod search;

use bellwether_core::cluster::{Allocation, Share};

/// What is added to a speed-up, so that a job that waits counts as very slow and not as infinitely slow.
const OFFSET: f64 = 1e-3;

/// A job that wants devices.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The fewest devices that it can use; at least 1.
    pub min_devices: u32,
    /// The most devices that it may be given.
    pub max_devices: u32,
    /// Its goodput at its fair share, in any unit; positive.
    pub fair_goodput: f64,
    /// What it holds.
    pub current: Allocation,
    /// Seconds since it arrived.
    pub age_s: f64,
    /// How often it was restarted.
    pub restarts: u32,
}

/// Jobs that share a cluster of equal devices.
#[derive(Clone, Copy)]
pub struct Problem<'a> {
    /// Devices of each node; 0 for one that is down.
    pub nodes: &'a [u32],
    /// The jobs.
    pub jobs: &'a [Candidate],
    /// Goodput of a job on this many nodes and devices, in the unit of its fair one; 0 where it cannot run.
    pub goodput: &'a dyn Fn(usize, u32, u32) -> f64,
    /// The exponent of the power mean.
    pub power: f64,
    /// Seconds without progress that a restart costs.
    pub restart_s: f64,
}

/// Nodes and devices of a fair share: one part in `jobs` of `devices` devices, rounded up, on as few of `nodes` nodes
/// as hold it.
///
/// ```
/// assert_eq!(bellwether_sched::goodput::fair_share(16, 64, 10), (2, 7));
/// ```
pub fn fair_share(nodes: u32, devices: u32, jobs: u32) -> (u32, u32) {
    let share = devices.div_ceil(jobs.max(1));
    (u64::from(share).saturating_mul(u64::from(nodes)).div_ceil(u64::from(devices.max(1))) as u32, share)
}

impl Problem<'_> {
    /// Devices of all nodes.
    fn devices(&self) -> u32 {
        self.nodes.iter().fold(0, |sum, &devices| sum.saturating_add(devices))
    }

    /// The part of its speed that a job keeps when its devices change.
    fn kept(&self, job: usize) -> f64 {
        let Candidate { age_s, restarts, .. } = self.jobs[job];
        let kept = (age_s - f64::from(restarts) * self.restart_s).max(0.0) / (age_s + self.restart_s);
        // An age and a cost of 0.
        if kept.is_nan() { 1.0 } else { kept }
    }

    /// Speed-up of a job that goes on without a restart.
    fn speedup(&self, job: usize, nodes: u32, devices: u32) -> f64 {
        let nodes_up = self.nodes.iter().filter(|devices| **devices > 0).count();
        let scale = nodes_up as f64 / f64::from(self.devices().max(1));
        (self.goodput)(job, nodes, devices) / self.jobs[job].fair_goodput * scale
    }

    /// What a speed-up adds to the sum that is to be as large as possible.
    fn worth(&self, speedup: f64) -> f64 {
        if self.power == -1.0 {
            -1.0 / (speedup + OFFSET)
        } else if self.power == 0.0 {
            speedup.max(OFFSET).ln()
        } else {
            self.power.signum() * (speedup + OFFSET).powf(self.power)
        }
    }

    /// The power mean for a sum of worths.
    fn mean(&self, sum: f64) -> f64 {
        let mean = sum / self.jobs.len() as f64;
        if self.power == 0.0 { mean.exp() } else { (self.power.signum() * mean).powf(1.0 / self.power) }
    }
}

/// The power mean of the speed-ups that an allocation to each job gives; 1 without jobs.
///
/// # Panics
///
/// When there are fewer allocations than jobs.
pub fn fitness(problem: &Problem, allocations: &[Allocation]) -> f64 {
    if problem.jobs.is_empty() {
        return 1.0;
    }
    let worth = |job: usize| {
        let allocation = &allocations[job];
        let (nodes, devices) = (allocation.shares().len() as u32, allocation.devices());
        let speedup = if devices == 0 { 0.0 } else { problem.speedup(job, nodes, devices) };
        let same = *allocation == problem.jobs[job].current;
        problem.worth(if same { speedup } else { speedup * problem.kept(job) })
    };
    problem.mean((0..problem.jobs.len()).map(worth).sum())
}

/// No allocation has a higher [`fitness`], as long as a job on a given number of devices is fastest on as few nodes as
/// hold them. None need reach it: it takes no notice of which devices stand together.
pub fn bound(problem: &Problem) -> f64 {
    let tables = hull::Tables::new(problem);
    if problem.jobs.is_empty() { 1.0 } else { problem.mean(hull::counts(problem, &tables).worth) }
}

/// An allocation to each job, with a fitness no lower than that of what they hold.
///
/// # Panics
///
/// When what the jobs hold names a node that is not there, or is more than the nodes have.
pub fn optimise(problem: &Problem) -> Vec<Allocation> {
    let tables = hull::Tables::new(problem);
    let counts = hull::counts(problem, &tables);
    let mut best = layout::Layout::planned(problem, &tables, &counts);
    search::climb(problem, &tables, &mut best, counts.worth);
    if layout::gains(best.worth(), counts.worth) {
        let mut held = layout::Layout::held(problem, &tables);
        search::climb(problem, &tables, &mut held, counts.worth);
        if held.worth() > best.worth() {
            best = held;
        }
        search::wish(problem, &tables, &mut best, counts.worth);
    }
    best.rows.into_iter().map(Allocation::new).collect()
}

/// Whether an allocation is what a job holds.
fn is_current(problem: &Problem, job: usize, row: &[Share]) -> bool {
    problem.jobs[job].current.shares() == row
}
