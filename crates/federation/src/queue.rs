//! Datacenters that serve one another's overflow: how much of each one's load still goes to a public cloud.
//!
//! # Model
//!
//! N clouds. Cloud i keeps s_i of its servers for itself and gives m_i to a pool; an arrival is served at
//! home if it fits there, else by the pool if it fits there, else it is forwarded. Fits: a request that finds
//! k requests with s servers waits (k - s + 1)/(s mu) on average, which must not exceed its cloud's bound
//! Q_i.
//!
//! ```text
//! capacity       C(s, Q)  = floor(s (mu Q + 1))          in service and waiting
//!                C_i = C(s_i, Q_i)   c_i = C(s_F, Q_i)   s_F = sum m_i
//! x_i -> x_i + 1   lambda_i           x_i < C_i
//! x_F -> x_F + 1   lambda_i           x_i = C_i and x_F < c_i
//! x_i -> x_i - 1   min(x_i, s_i) mu
//! x_F -> x_F - 1   min(x_F, s_F) mu
//! forwarded      beta_i = lambda_i Pr{x_i = C_i and x_F >= c_i}
//! ```
//!
//! | symbol      | meaning                                                     | unit |
//! |-------------|-------------------------------------------------------------|------|
//! | lambda_i    | arrivals of cloud i                                         | 1/s  |
//! | mu          | requests that one busy server completes                     | 1/s  |
//! | s_i, m_i    | servers that cloud i keeps, and shares                      | 1    |
//! | Q_i         | longest mean wait that cloud i's requests accept            | s    |
//! | x_i, x_F    | requests present at cloud i's own servers, and in the pool  | 1    |
//!
//! A local queue never sees the pool, so its law is known. Where no local queue overflows into the pool in bursts
//! (every cloud shares all of its servers or has no demand, or no cloud shares any) the pool is a birth-death chain of
//! its own, in closed form whatever the bounds; the rest is solved as a sparse linear system.
//!
//! # Source
//!
//! Song, Paolieri and Golubchik, IEEE CLOUD 2022. That one pool beats two: D. R. Smith and W. Whitt, Bell
//! Syst. Tech. J. 60(1), 1981. The coordinates and the solution are ours: `chain.rs`.
//!
//! # Assumes
//!
//! Poisson arrivals, exponential service at one rate everywhere, first come first served; owners have no
//! priority on what they shared; moving a request costs nothing. Without these: [`simulation`].
//!
//! # Valid
//!
//! Closed form: up to 2^53 requests per queue. Otherwise as far as [`Limits`] go, which is further than the
//! chain's states suggest: a local queue is compressed to the few modes that the pool can tell apart
//! (`reduction.rs`), so that two to four clouds of 50 servers and 10^4 to 10^8 states are solved in
//! milliseconds to seconds. Left out are local states that hold less than 1e-18 of a queue's law, and bursts
//! of a queue that is full less often. The error of a rate is about 1e-12 of the arrivals, which says nothing
//! about rates smaller than that. The imbalance that the solution leaves is reported, and one above 1e-11 of
//! the rates is an error.
//!
//! # Checked by
//!
//! Every published rate and saving in `tests/it/queue_golden.rs`. In `tests/it/chain.rs` the chain
//! against elimination of all its states on small cases, one queue against Erlang's recursion, and the laws:
//! what arrives is served or forwarded, one pool is best for equal bounds, order does not matter, servers
//! never hurt, who brings nothing changes nothing. `examples/federation_speed.rs` measures times beside power
//! iteration on the same chains.
//!
//! ```
//! use bellwether_federation::queue::{Cloud, Federation, Limits, overflow};
//! // 50 servers under 30 and 50 under 150 requests/s, no waiting: 100.5/s are forwarded alone, 81.2/s together.
//! let cloud = |arrivals_per_s| Cloud { arrivals_per_s, servers: 50, shared: 50, longest_wait_s: 0.0 };
//! let federation = Federation { service_per_s: 1.0, clouds: vec![cloud(30.0), cloud(150.0)] };
//! let limits = Limits::default();
//! let together = overflow(&federation, &limits).expect("two clouds");
//! let alone = overflow(&federation.without_sharing(), &limits).expect("two clouds");
//! assert!((alone.total_per_s() - 100.5).abs() < 0.05);
//! assert!((together.total_per_s() - 81.2).abs() < 0.05);
//! ```

use std::fmt;

use bellwether_core::InputError;

use bellwether_core::check;
use chain::{Chain, Source};
use product::Stream;
use spectrum::Spectrum;

mod chain;
mod plane;
mod product;
mod reduction;
pub mod simulation;
mod spectrum;

/// A member: a datacenter with its own arrivals and servers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cloud {
    /// Requests that arrive, in 1/s.
    pub arrivals_per_s: f64,
    /// Servers that it owns.
    pub servers: u32,
    /// How many of them it gives to the pool.
    pub shared: u32,
    /// Longest mean wait that its requests accept, in seconds: 0 if they must start at once.
    pub longest_wait_s: f64,
}

/// Clouds with one pool between them.
#[derive(Debug, Clone, PartialEq)]
pub struct Federation {
    /// Requests that one busy server completes, in 1/s.
    pub service_per_s: f64,
    /// The members.
    pub clouds: Vec<Cloud>,
}

/// What a solution may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most unknowns of the linear system for a chain without closed form: its states, after the local queues
    /// are compressed. 2 million take about 300 MB and some seconds.
    pub most_states: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { most_states: 2_000_000 }
    }
}

/// Where the requests of each member go in the long run, and how full the servers are.
#[derive(Debug, Clone, PartialEq)]
pub struct Overflow {
    /// Requests of each cloud that its own servers take, in 1/s. Divided by the service rate: its busy
    /// servers.
    pub at_home_per_s: Vec<f64>,
    /// Requests of each cloud that the pool takes, in 1/s. Divided by the service rate: servers of the pool
    /// that are busy with them.
    pub in_pool_per_s: Vec<f64>,
    /// Requests of each cloud that are forwarded to a public cloud, in 1/s.
    pub forwarded_per_s: Vec<f64>,
    /// Mean number of requests that wait at each cloud's own servers.
    pub waiting_at_home: Vec<f64>,
    /// Mean number of requests that wait in the pool.
    pub waiting_in_pool: f64,
    /// How these numbers came about.
    pub method: Method,
}

impl Overflow {
    /// Requests of all clouds that are forwarded, in 1/s.
    pub fn total_per_s(&self) -> f64 {
        self.forwarded_per_s.iter().sum()
    }
}

/// The way to a solution.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Method {
    /// Every queue on its own, in closed form.
    ProductForm,
    /// The chain of all queues that overflow in bursts.
    Chain {
        /// States that it has, if they can be counted.
        states: u64,
        /// Unknowns that were solved for: as many levels of the pool, and for each local queue a few modes.
        unknowns: u64,
        /// Iterations, of two applications of the chain each.
        iterations: u32,
        /// Norm of the imbalance that is left, relative to the sum of all rates.
        residual: f64,
    },
}

/// Why there is no solution.
#[derive(Debug, Clone, PartialEq)]
pub enum Unsolved {
    /// The federation makes no sense.
    Input(InputError),
    /// The chain has more states than allowed: simulate instead.
    TooManyStates {
        /// States that it has; the largest number there is if it has more.
        states: u64,
        /// Unknowns that would have to be solved for; the largest number there is if there are more.
        unknowns: u64,
        /// Unknowns that were allowed.
        most_states: u64,
    },
    /// The iterations came to no end.
    NotConverged {
        /// Iterations that were spent.
        iterations: u32,
        /// As in [`Method::Chain`].
        residual: f64,
    },
}

impl fmt::Display for Unsolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unsolved::Input(error) => error.fmt(f),
            Unsolved::TooManyStates { states, unknowns, most_states } => write!(
                f,
                "the chain of this federation has {states} states, {unknowns} when compressed, above the limit of {most_states}"
            ),
            Unsolved::NotConverged { iterations, residual } => write!(
                f,
                "the chain was not solved: after {iterations} iterations its balance is still off by {residual:.1e} of its rates"
            ),
        }
    }
}

impl std::error::Error for Unsolved {}

impl From<InputError> for Unsolved {
    fn from(error: InputError) -> Self {
        Unsolved::Input(error)
    }
}

/// Beyond this, a double no longer counts one by one.
const LONGEST_QUEUE: f64 = 9_007_199_254_740_992.0;
/// A queue that is full less often overflows too rarely for bursts to matter.
const NEVER_FULL: f64 = 1e-18;
/// Imbalance relative to all rates that counts as solved, and what is aimed at.
const SOLVED: f64 = 1e-11;
const AIM: f64 = 1e-13;
/// Their modes cost as many operations as this squared: seconds.
const MOST_LOCAL_STATES: u64 = 10_000;
const MOST_ITERATIONS: u32 = 2_000;

/// Requests that `servers` servers hold, in service and waiting, if a new one may wait `longest_wait_s` on
/// average: floor(s (mu Q + 1)). A product s mu Q within 1e-12 of a whole number counts as that number, as
/// decimals such as 0.1 have no exact double.
pub fn capacity(servers: u64, service_per_s: f64, longest_wait_s: f64) -> u64 {
    let waiting = servers as f64 * (service_per_s * longest_wait_s);
    let whole = waiting.round();
    let waiting = if (waiting - whole).abs() <= 1e-12 * whole { whole } else { waiting.floor() };
    servers.saturating_add(waiting as u64)
}

impl Federation {
    /// Refuses what has no meaning.
    ///
    /// # Errors
    ///
    /// Returns an error on any of these: no clouds, a service rate of 0, more servers shared than owned, numbers that
    /// are negative or not finite, queues too long to count.
    pub fn check(&self) -> Result<(), InputError> {
        check::not_positive("federation", "the service rate of a server in 1/s", self.service_per_s)?;
        if self.clouds.is_empty() {
            return Err(InputError::new("federation", "it has no clouds").hint("give at least one"));
        }
        let servers: f64 = self.clouds.iter().map(|cloud| f64::from(cloud.servers)).sum();
        for (index, cloud) in self.clouds.iter().enumerate() {
            let place = format!("federation: cloud {}", index + 1);
            check::negative(&place, "the arrivals in 1/s", cloud.arrivals_per_s)?;
            check::negative(&place, "the longest wait in seconds", cloud.longest_wait_s)?;
            if cloud.shared > cloud.servers {
                let what = format!("it shares {} servers and owns {}", cloud.shared, cloud.servers);
                return Err(InputError::new(place, what).hint("share at most what it owns"));
            }
            if servers * (self.service_per_s * cloud.longest_wait_s + 1.0) >= LONGEST_QUEUE {
                let what =
                    format!("a queue whose wait is up to {} s is too long to count", cloud.longest_wait_s);
                return Err(InputError::new(place, what)
                    .hint("give a shorter wait: only 2^53 requests can be counted"));
            }
        }
        Ok(())
    }

    /// The same clouds, each with all its servers for itself.
    pub fn without_sharing(&self) -> Federation {
        let clouds = self.clouds.iter().map(|cloud| Cloud { shared: 0, ..*cloud });
        Federation { service_per_s: self.service_per_s, clouds: clouds.collect() }
    }

    /// The federation of some of the members, by index. One alone has no other to share with: it keeps all its servers.
    ///
    /// # Panics
    ///
    /// When an index is not that of a member.
    pub fn coalition(&self, members: &[usize]) -> Federation {
        let clouds = members.iter().map(|&member| self.clouds[member]).collect();
        let coalition = Federation { service_per_s: self.service_per_s, clouds };
        if members.len() == 1 { coalition.without_sharing() } else { coalition }
    }
}

/// A cloud's own queue, which the pool does not touch.
struct Home {
    arrivals_per_s: f64,
    servers: u32,
    capacity: u64,
    /// Requests in the pool from which on this cloud's overflow is refused.
    pool_capacity: u64,
    full: f64,
    waiting: f64,
}

impl Home {
    fn of(cloud: &Cloud, service_per_s: f64, pool_servers: u64) -> Home {
        let servers = cloud.servers - cloud.shared;
        let capacity = capacity(u64::from(servers), service_per_s, cloud.longest_wait_s);
        let stream = Stream { arrivals_per_s: cloud.arrivals_per_s, capacity };
        let law = product::solve(service_per_s, u64::from(servers), &[stream]);
        let pool_capacity = self::capacity(pool_servers, service_per_s, cloud.longest_wait_s);
        Home {
            arrivals_per_s: cloud.arrivals_per_s,
            servers,
            capacity,
            pool_capacity,
            full: law.refused[0],
            waiting: law.waiting,
        }
    }

    fn overflow_per_s(&self) -> f64 {
        self.arrivals_per_s * self.full
    }

    /// Its modes; none if more states matter than can be brought to modes.
    fn spectrum(&self, service_per_s: f64) -> Option<Spectrum> {
        let Home { arrivals_per_s, servers, capacity, full, .. } = *self;
        let states = spectrum::states(arrivals_per_s, service_per_s, servers, capacity, MOST_LOCAL_STATES);
        let few = states <= MOST_LOCAL_STATES;
        few.then(|| Spectrum::of(arrivals_per_s, service_per_s, servers, capacity, states, full))
    }

    /// Whether what overflows, if anything, does so at a steady chance: always full, or next to never.
    fn is_poisson(&self) -> bool {
        self.capacity == 0 || self.arrivals_per_s == 0.0 || self.full < NEVER_FULL
    }
}

/// Where the requests of each cloud go.
///
/// # Errors
///
/// Returns [`Unsolved`]: bad input, a chain that is too large, or one that was not solved.
pub fn overflow(federation: &Federation, limits: &Limits) -> Result<Overflow, Unsolved> {
    federation.check()?;
    let service_per_s = federation.service_per_s;
    let servers = federation.clouds.iter().map(|cloud| u64::from(cloud.shared)).sum();
    let homes: Vec<Home> =
        federation.clouds.iter().map(|cloud| Home::of(cloud, service_per_s, servers)).collect();
    let pool = if servers == 0 || homes.iter().all(Home::is_poisson) {
        pool_in_closed_form(service_per_s, servers, &homes)
    } else {
        pool_by_chain(service_per_s, servers, &homes, limits)?
    };
    let flows = |flow: fn(&Home, f64) -> f64| {
        homes.iter().zip(&pool.forwarded_per_s).map(|(home, forwarded)| flow(home, *forwarded)).collect()
    };
    Ok(Overflow {
        at_home_per_s: flows(|home, _| home.arrivals_per_s - home.overflow_per_s()),
        in_pool_per_s: flows(|home, forwarded| (home.overflow_per_s() - forwarded).max(0.0)),
        waiting_at_home: homes.iter().map(|home| home.waiting).collect(),
        forwarded_per_s: pool.forwarded_per_s,
        waiting_in_pool: pool.waiting,
        method: pool.method,
    })
}

struct Pool {
    forwarded_per_s: Vec<f64>,
    waiting: f64,
    method: Method,
}

fn pool_in_closed_form(service_per_s: f64, servers: u64, homes: &[Home]) -> Pool {
    let stream = |home: &Home| Stream { arrivals_per_s: home.overflow_per_s(), capacity: home.pool_capacity };
    let law = product::solve(service_per_s, servers, &homes.iter().map(stream).collect::<Vec<_>>());
    let forwarded = homes.iter().zip(&law.refused).map(|(home, refused)| home.overflow_per_s() * refused);
    Pool { forwarded_per_s: forwarded.collect(), waiting: law.waiting, method: Method::ProductForm }
}

fn pool_by_chain(
    service_per_s: f64,
    servers: u64,
    homes: &[Home],
    limits: &Limits,
) -> Result<Pool, Unsolved> {
    let (poisson, bursty): (Vec<&Home>, Vec<&Home>) = homes.iter().partition(|home| home.is_poisson());
    let feeding = homes.iter().filter(|home| home.arrivals_per_s > 0.0);
    let levels = feeding.map(|home| home.pool_capacity + 1).max().unwrap_or(1);
    let count = |sizes: &mut dyn Iterator<Item = u64>| sizes.fold(levels, u64::saturating_mul);
    let states = count(&mut bursty.iter().map(|home| home.capacity + 1));
    let too_many = |unknowns| Unsolved::TooManyStates { states, unknowns, most_states: limits.most_states };
    let mut sources = Vec::new();
    for home in &bursty {
        let spectrum = home.spectrum(service_per_s).ok_or_else(|| too_many(states))?;
        sources.push(Source {
            arrivals_per_s: home.arrivals_per_s,
            spectrum: reduction::reduce(&spectrum, home.arrivals_per_s),
            capacity: home.pool_capacity as usize,
        });
    }
    let unknowns = count(&mut sources.iter().map(|source| source.spectrum.at_full.len() as u64));
    if unknowns > limits.most_states {
        return Err(too_many(unknowns));
    }
    let fed = poisson.iter().filter(|home| home.arrivals_per_s > 0.0);
    let direct = fed.map(|home| (home.overflow_per_s(), home.pool_capacity as usize)).collect();
    let rates_per_s =
        homes.iter().map(|home| home.arrivals_per_s).sum::<f64>() + servers as f64 * service_per_s;
    let law = Chain::new(service_per_s, servers, sources, direct).solve(AIM * rates_per_s, MOST_ITERATIONS);
    let residual = law.progress.residual / rates_per_s;
    let iterations = law.progress.iterations;
    if residual.is_nan() || residual > SOLVED {
        return Err(Unsolved::NotConverged { iterations, residual });
    }
    // Refused Poisson streams see the pool as it is at any time.
    let mut by_chain = law.forwarded_per_s.into_iter();
    let at_least = |level: u64| law.pool.iter().skip(level as usize).sum::<f64>();
    let forwarded = homes.iter().map(|home| match home.is_poisson() {
        true => home.overflow_per_s() * at_least(home.pool_capacity),
        false => by_chain.next().expect("one per bursty home, in order"),
    });
    let waiting =
        law.pool.iter().enumerate().map(|(k, mass)| (k as u64).saturating_sub(servers) as f64 * mass);
    Ok(Pool {
        forwarded_per_s: forwarded.collect(),
        waiting: waiting.sum(),
        method: Method::Chain { states, unknowns, iterations, residual },
    })
}
