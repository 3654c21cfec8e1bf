//! Training on transient servers: how long they live, when a job on them finishes, and what it costs.
//!
//! # Model
//!
//! ```text
//! points        F(t) linear between the points, 1 at the limit L
//! exponential   F(t) = 1 - exp(-t / m), 1 at L
//! bathtub       F(t) = a (1 - exp(-t / e)) + b (exp(t / g) - 1) / (exp(L / g) - 1), 1 at L
//! samples       F(t) = 1 - prod (1 - 1 / r_i) over revocations i up to t
//!
//! known losses  sum over time of S(k(t)) = W
//! fixed point   T = W / S(n) + c T_c + sum F_i(T) O
//! expected      integral of E[S(K(t))] p / (p + T_c) = W, K(t) binomial with A(t), less pauses
//!               M(t) = F(t - p_0) + integral of M(t - p_0 - x) dF(x)
//!               A(t) = 1 - (M(t) - M(t - p_0 - j))        replaced
//!               A(t) = 1 - F(t - p_0)                     not replaced
//! best period   largest p sum over k of (1 - F(k (p + T_c)))^n
//! ```
//!
//! | symbol | meaning                                                                    | unit   |
//! |--------|----------------------------------------------------------------------------|--------|
//! | F      | share of servers that live no longer                                       | 1      |
//! | L      | time at which the provider ends every server                               | s      |
//! | m, e   | mean lifetime of all, of early ones                                        | s      |
//! | a, b, g | shares of early and of late ones, time in which the rate of the latter grows by e | 1, s |
//! | r      | servers that were still seen, the revoked one with them                    | 1      |
//! | W, S(k) | work, and work per second of k workers                                    | any, 1/s |
//! | n, k, K | workers, those at work                                                    | 1      |
//! | p, T_c, c | work between checkpoints, time of one, their number                     | s, 1   |
//! | p_0, j, O | provisioning of a server, joining of its worker, both                   | s      |
//! | M, A   | losses of one place for a server, probability that its worker is at work   | 1      |
//!
//! [`simulate`] runs a job many times instead: each server has a lifetime drawn from its law; what its loss does is one
//! of [`Losses`].
//!
//! # Source
//!
//! Li, Walls, Xu and Guo, ICAC 2019 (arXiv 1903.00045) and CM-DARE, ICDCS 2020 (arXiv 2004.03072), for lifetimes,
//! overheads, known losses, the fixed point and what remains after a loss. Kadupitiya et al., HPDC 2020, for the shape
//! of a bathtub, whose formula here is this project's. Kaplan and Meier, JASA 53, 1958, for samples. Young 1974 and
//! Daly 2006 for periods. The expected course is this project's: the renewal equation (Cox, Renewal Theory, 1962) and a
//! mean over the number of workers.
//!
//! # Assumes
//!
//! Servers live independently of each other and of the hour of the day. The published ones did not: those of one region
//! and hour often went together, which leaves the mean number of losses as it is and makes runs differ more. Between
//! the points of a table nothing is known; straight lines spread the revocations of the first hour evenly over it. A
//! replacement is always available, and lives by the same law.
//!
//! # Valid
//!
//! The published laws: Google Compute Engine in 2019, with its limit of 24 h; those of its servers that ran the
//! published jobs of February 2019 lived longer, see the last of the tests. The fixed point: jobs in which few servers
//! are lost and none twice, and whose replacements are short beside it; it lets all wait for each. The expected course:
//! servers that are replaced, or of which no more than a quarter is lost; not where all are lost together at the limit.
//!
//! # Checked by
//!
//! `tests/it/transient.rs`: laws against their samples, words, bad input, periods. `tests/it/transient_jobs.rs`: Monte
//! Carlo by hand and against the closed forms. `tests/it/transient_published.rs`: the published runs, their prices and
//! losses.
//!
//! ```
//! use bellwether_model::transient::{Job, Servers, published, simulate};
//! let servers = Servers {
//!     count: 8,
//!     law: published::regional("k80", "us-west1").unwrap(),
//!     price_per_hour: 0.2556,
//!     provision_s: 83.0,
//!     join_s: 79.0,
//!     replaced: true,
//! };
//! // 8 workers of 4.5 steps/s each; 128,000 steps take 3,556 s once they are at work.
//! let job = Job::new(128_000.0, vec![servers], 86_400.0);
//! let outcomes = simulate(&job, |counts| 4.5 * f64::from(counts[0]), 200, 1).unwrap();
//! assert_eq!(outcomes.finished().value, 1.0);
//! let time_s = outcomes.time_s().mean;
//! assert!(time_s > 3556.0 + 162.0 && time_s < 3800.0, "{time_s}");
//! ```

mod checkpoint;
mod closed;
mod job;
mod law;
mod outcome;
mod progress;
pub mod published;
mod simulate;
mod spec;

pub use checkpoint::{best_period_s, checkpoint_s, daly_s, young_s};
pub use closed::{Expected, FixedPoint, expected, remaining_s, time_with_losses_s};
pub use job::{Checkpoints, Effect, Job, Losses, Servers};
pub use law::{Bathtub, Law, Observed};
pub use outcome::{Estimate, Outcomes, Run};
pub use simulate::simulate;
pub use spec::{LawSpec, duration_s, lives, samples};
