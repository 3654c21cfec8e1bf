//! Grow while what is gained by finishing earlier exceeds what the further workers cost.
//!
//! # Idea
//!
//! `U(T_k) - U(T_j) > P (k n / R_k - j n / R_j)` with `T_k = e + n / R_k`: n samples are left after e seconds, R
//! samples are processed per second, and P is the price of a worker-second. What was paid already is the same on both
//! sides. Only the ratio of utility and price matters.
//!
//! # Bad when
//!
//! As in [`super::efficiency`]; and the costs of the walk itself are not weighed.

use super::search::{Size, Test, walk};
use super::{Decision, Heuristic, Reason, Situation};

/// Weighs utility against price. Stays where the situation names neither.
#[derive(Debug, Clone, Copy)]
pub struct CostBenefit;

impl Heuristic for CostBenefit {
    fn decide(&self, situation: &Situation) -> Decision {
        let Some(economy) = situation.economy else { return Decision::Stay(Reason::NoEconomy) };
        let Situation { elapsed_s, remaining_samples, history, .. } = *situation;
        let slowest_s = elapsed_s + history.slowest_s(remaining_samples);
        walk(situation, |smaller, larger| {
            let left_s = |size: Size| remaining_samples / size.1.examples_per_s();
            let utility = |size: Size| economy.utility.at(elapsed_s + left_s(size), slowest_s);
            let cost = |size: Size| economy.price_per_worker_s * f64::from(size.0) * left_s(size);
            Test { gain: utility(larger) - utility(smaller), needed: cost(larger) - cost(smaller) }
        })
    }
}
