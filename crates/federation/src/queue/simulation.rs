//! Discrete-event simulation of a federation of datacenters: the general system, of which the chain is a case.
//!
//! # Model
//!
//! Each site owns groups of servers, each group of one type, and shares some servers of each group with the pool.
//! A job of class j that arrives at site i is offered to
//!
//! ```text
//! 1. its home   the servers that i keeps for itself      starts there, or waits there if there is room
//! 2. the pool   the servers that all members share       starts there, or waits there if there is room
//! 3. a public cloud: the job is forwarded, and leaves
//!
//! seconds on servers  = work / speed_jk + transfer_j (only on servers of another site)
//! room, by count      waiting < floor(R_j Q_i + s_j) - s_j
//! room, by estimate   sum over classes c of waiting_c / R_c < Q_i
//! ```
//!
//! | symbol   | meaning                                                                    | unit   |
//! |----------|----------------------------------------------------------------------------|--------|
//! | speed_jk | work per second that a gang of class j does on servers of type k; 0: cannot | work/s |
//! | s_j      | gangs of class j that the place (the home of i, or the pool) holds at once  | 1      |
//! | R_j      | jobs of class j per second that it finishes when it holds s_j of them       | 1/s    |
//! | Q_i      | longest wait that site i accepts, as a mean (admission looks at means)      | s      |
//!
//! What is decided where several things are possible:
//!
//! - *Which free server*: the one that serves the class in the fewest seconds, transfer included. Among equally
//!   fast ones in the pool the site's own first, then the group with the most free servers (the first of equals).
//! - *Who waits for it*: first come, first served, among those who can run on it. No gang overtakes: one that needs
//!   more than is free keeps it, until enough is free.
//! - *Gangs*: all devices of a job lie in one group of one site. Nothing runs across sites.
//! - *Owners* ([`Priority`]): without priority a shared server belongs to the pool and to no site. With owners first,
//!   the home of site i is all of its servers, and the pool gets those shared ones that are idle and that no job at
//!   home waits for. A borrower is not preempted. Homes take servers that they do not share first.
//! - *A job that waits* stays where it waits, and admission neither sees nor counts the transfer.
//!
//! # Source
//!
//! The system with one class, exponential work, one type, admission by count and no priority is the chain of
//! Song, Paolieri and Golubchik, IEEE CLOUD 2022. Admission by estimated wait is that of their simulator, where a
//! job that waits for less than Q_i is let in. Owners' priority follows the description of Lin et al., SC-Share,
//! ICDCS 2017, in that paper's related work. Several types, gangs and transfer are ours.
//!
//! # Assumes
//!
//! The arrivals of sites and classes are independent of one another, and do not react to how jobs fare. Servers
//! do not fail. The public cloud takes everything.
//!
//! Every site's arrivals and work are functions of the seed, the replication and the site's place in the [`System`], no
//! matter which members take part: what two coalitions differ in is not luck.
//!
//! # Valid
//!
//! Where the run is much longer than the time in which queues forget (see [`Simulator::relaxation_s`]): a critically
//! loaded queue of a thousand servers that may hold a million jobs takes months of simulated time. The interval of
//! work with an infinite variance (Pareto with a shape of at most 2) is too narrow, whatever the length.
//!
//! # Checked by
//!
//! `tests/it/simulation.rs`: Erlang's formulae, the chain, laws.

mod arrivals;
mod check;
mod control;
mod engine;
mod length;
mod plan;
mod summary;

pub use engine::run_once;
pub use length::Length;
pub use plan::Simulator;
pub use summary::{
    ClassCounts, Counts, Offered, Replication, SiteSummary, Summary, Target, enough, replicate, saving,
    summarise,
};

/// Sites, what they own and what arrives there.
#[derive(Debug, Clone, PartialEq)]
pub struct System {
    /// Kinds of jobs.
    pub classes: Vec<Class>,
    /// The possible members.
    pub sites: Vec<Site>,
    /// When a job may wait.
    pub admission: Admission,
    /// Who is first at shared servers.
    pub priority: Priority,
}

/// A kind of job.
#[derive(Debug, Clone, PartialEq)]
pub struct Class {
    /// Work of a job, in any unit that the speeds use (seconds, examples).
    pub work: Work,
    /// Servers (GPUs) that a job holds, all in one group; 1 or more.
    pub devices: u32,
    /// Work per second of such a job on each type of server; 0 where it cannot run.
    pub speeds: Vec<f64>,
    /// Seconds for which a job holds servers of another site before it works there.
    pub transfer_s: f64,
}

/// A law of the work of jobs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Work {
    /// Its mean.
    pub mean: f64,
    /// How it varies around the mean.
    pub law: Law,
}

/// How work varies around its mean.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Law {
    /// Not at all.
    Deterministic,
    /// Without memory.
    Exponential,
    /// The logarithm is normal.
    Lognormal {
        /// Standard deviation over mean.
        variation: f64,
    },
    /// One of two exponential laws, each of which brings half of the work.
    Hyperexponential {
        /// Squared coefficient of variation; 1 or more.
        squared_variation: f64,
    },
    /// A power law.
    Pareto {
        /// The exponent of the tail, above 1; up to 2 the variance is infinite.
        shape: f64,
    },
}

/// A datacenter.
#[derive(Debug, Clone, PartialEq)]
pub struct Site {
    /// What it owns.
    pub groups: Vec<Group>,
    /// What arrives there.
    pub demands: Vec<Demand>,
    /// Longest wait that it accepts for its jobs, in seconds.
    pub longest_wait_s: f64,
}

/// Servers of one type at one site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    /// The type, an index into [`Class::speeds`].
    pub kind: usize,
    /// Servers that the site owns.
    pub servers: u32,
    /// How many of them it shares.
    pub shared: u32,
}

/// Jobs of one class that arrive at a site.
#[derive(Debug, Clone, PartialEq)]
pub struct Demand {
    /// An index into [`System::classes`].
    pub class: usize,
    /// When they arrive.
    pub arrivals: Arrivals,
}

/// When jobs arrive.
#[derive(Debug, Clone, PartialEq)]
pub enum Arrivals {
    /// Always at the same rate.
    Poisson {
        /// Jobs per second; 0 for none.
        rate_per_s: f64,
    },
    /// A Poisson law whose rate is that of a state (MMPP). A state lasts for an exponential time, and each other
    /// state is as likely to be next. It begins in equilibrium.
    Modulated {
        /// The states; two or more.
        states: Vec<State>,
    },
    /// Jobs that were seen. Admission knows the mean work of their class, and not theirs.
    Trace {
        /// Their times in seconds, in order, and their work.
        jobs: Vec<(f64, f64)>,
        /// Seconds after which the trace repeats, if it does. Then a replication begins at a random point of it: the
        /// same share of the period at all sites, so that what moves together stays together.
        period_s: Option<f64>,
    },
}

/// A state of a modulated law.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct State {
    /// Jobs per second while it lasts.
    pub rate_per_s: f64,
    /// How long it lasts on average, in seconds.
    pub mean_stay_s: f64,
}

/// When a job may wait at a place where no server is free for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// As long as fewer than a fixed number wait: the rule of the chain.
    Count,
    /// As long as those before it wait, and leave, in less than the longest wait, in the mean.
    Estimate,
}

/// Who is first at shared servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// No owner: they are the pool's.
    NoOne,
    /// Their owner, who waits for a borrower to finish but for no other.
    Owners,
}

impl Arrivals {
    /// Jobs per second in the mean; of a trace that does not repeat, until its last job.
    pub fn mean_per_s(&self) -> f64 {
        match self {
            Arrivals::Poisson { rate_per_s } => *rate_per_s,
            Arrivals::Modulated { states } => {
                // Each state is as often the next one, so that the time in it goes as its stay.
                let jobs: f64 = states.iter().map(|state| state.rate_per_s * state.mean_stay_s).sum();
                jobs / states.iter().map(|state| state.mean_stay_s).sum::<f64>()
            }
            Arrivals::Trace { jobs, period_s } => {
                let last_s = jobs.last().map_or(0.0, |(time_s, _)| *time_s);
                let seconds = period_s.unwrap_or(last_s);
                if seconds > 0.0 { jobs.len() as f64 / seconds } else { 0.0 }
            }
        }
    }
}

impl System {
    /// Jobs per second that arrive at all sites, in the mean.
    pub fn arrivals_per_s(&self) -> f64 {
        self.sites.iter().flat_map(|site| &site.demands).map(|demand| demand.arrivals.mean_per_s()).sum()
    }
}
