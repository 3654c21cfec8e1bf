//! Federations with an internal price: a member that lends a server is paid for it, and each member shares what is best
//! for itself.
//!
//! # Model
//!
//! ```text
//! C_i = P_i c_pub + (O_i - I_i) c_fed
//! U_i = (C0_i - C_i) / max(rho_i - rho0_i, e)^gamma     where C_i < C0_i
//! U_i =  C0_i - C_i                                     elsewhere
//! ```
//!
//! | symbol    | meaning                                                          | unit                     |
//! |-----------|------------------------------------------------------------------|--------------------------|
//! | S_i       | servers that member i shares: its choice                         | 1                        |
//! | I_i, O_i  | servers lent and borrowed, on average                            | 1                        |
//! | P_i       | requests that go to the public cloud                             | 1/s                      |
//! | c_pub     | what the public cloud takes                                      | money for each request   |
//! | c_fed     | what members take of each other                                  | money for each server-second |
//! | C_i, C0_i | what member i pays, and what it pays when no member shares       | money/s                  |
//! | rho_i     | busy part of its own servers; rho0_i when no member shares       | 1                        |
//! | gamma     | how much a member minds the work that others bring, 0 to 1       | 1                        |
//! | e         | least work that counts                                           | 1                        |
//!
//! The performance of every choice comes from outside: a queueing model, a simulation in which owners have
//! priority, or [`fluid`]. What is paid inside cancels out in the sum, so all together pay the least where the
//! least is forwarded; a member looks at its own C alone, and at the price of its trouble. How much the equilibrium
//! loses against the best choice for all is its efficiency, 1 where nothing is lost.
//!
//! Welfare is the mean of the utilities in the sense of alpha-fairness: `(mean of U^(1 - alpha))^(1 / (1 -
//! alpha))`, which is the arithmetic mean at 0 (utilitarian), the geometric mean at 1 (proportional fairness), and
//! the least utility at infinity (max-min). It orders choices as the alpha-fair sum does, and is itself a utility,
//! so that a ratio of two means something.
//!
//! # Source
//!
//! The structure is that of SC-Share (ICDCS 2017, arXiv 1703.10318) as far as it is known to us: we had its
//! abstract, and the formulas of C and U from memory. Ours are: what counts as no work (a member that gains without
//! working more would have an endless utility), that a loss is not divided (more work would make it look smaller),
//! the mean instead of the sum, and that all members count the same there.
//!
//! # Assumes
//!
//! Every member knows what each choice would bring. Members borrow whenever they can: with a price inside above the
//! public one they lose by it, which the utilities show.
//!
//! # Complexity
//!
//! See [`play`] and [`sharing`]; the performance of a choice is asked for once for all
//! prices.

mod fluid;

pub use fluid::{Site, fluid};

use super::known::Known;
use super::play::{self, Deviation, Ending, Play, Rules};
use super::sharing::{self, Effort, Sharing};

/// What a choice of all brings one member.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Performance {
    /// Its servers that work for others, on average.
    pub lent: f64,
    /// Servers of others that work for it, on average.
    pub borrowed: f64,
    /// Requests that it forwards to the public cloud, in 1/s.
    pub forwarded_per_s: f64,
    /// Busy part of its own servers, 0 to 1.
    pub utilisation: f64,
}

/// What things cost, and what members mind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Terms {
    /// What the public cloud takes for a request, in money.
    pub public_price: f64,
    /// What a member takes for a server that it lends, in money per second.
    pub internal_price: f64,
    /// How much a member minds work for others: 0 not at all, 1 in proportion.
    pub gamma: f64,
    /// Parts of its servers that are so little work that less would make no difference; above 0.
    pub least_work: f64,
    /// Fairness of the welfare: 0 utilitarian, 1 proportional, infinity max-min.
    pub alpha: f64,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms { public_price: 1.0, internal_price: 0.5, gamma: 0.0, least_work: 0.01, alpha: 0.0 }
    }
}

/// What comes of a federation when each member does what is best for itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The terms.
    pub terms: Terms,
    /// How the members came to their choices. Without an equilibrium, all that follows describes their last choices.
    pub play: Play,
    /// Who would still gain by a change of its own, after all levels were looked at; empty at an equilibrium.
    pub deviations: Vec<Deviation>,
    /// What each member pays, in money/s; less than 0 for who is paid more.
    pub costs: Vec<f64>,
    /// Welfare of these choices.
    pub welfare: f64,
    /// The choices of most welfare; its cost is that welfare, below zero.
    pub best: Sharing,
    /// Welfare over the most welfare that was found; `None` where none was found.
    pub efficiency: Option<f64>,
}

impl Outcome {
    /// Whether the choices are an equilibrium: no member would gain by a change of its own.
    pub fn is_equilibrium(&self) -> bool {
        matches!(self.play.ending, Ending::Equilibrium { .. }) && self.deviations.is_empty()
    }

    /// The most welfare that was found.
    pub fn most_welfare(&self) -> f64 {
        -self.best.cost
    }
}

/// What a member pays, in money/s.
pub fn net_cost(of: &Performance, terms: &Terms) -> f64 {
    of.forwarded_per_s * terms.public_price + (of.borrowed - of.lent) * terms.internal_price
}

/// What a member gains by a choice, compared with no sharing.
pub fn utility(alone: &Performance, together: &Performance, terms: &Terms) -> f64 {
    let saved = net_cost(alone, terms) - net_cost(together, terms);
    let work = (together.utilisation - alone.utilisation).max(terms.least_work);
    if saved > 0.0 { saved / work.powf(terms.gamma) } else { saved }
}

/// The alpha-fair mean of utilities. With any below zero and `alpha` above 0 it is the least of them: there is no
/// fair mean with a loss in it.
pub fn welfare(utilities: &[f64], alpha: f64) -> f64 {
    let count = utilities.len() as f64;
    let least = utilities.iter().copied().fold(f64::INFINITY, f64::min);
    if alpha == 0.0 {
        utilities.iter().sum::<f64>() / count
    } else if alpha == f64::INFINITY || least < 0.0 || (least == 0.0 && alpha >= 1.0) {
        least
    } else if alpha == 1.0 {
        (utilities.iter().map(|utility| utility.ln()).sum::<f64>() / count).exp()
    } else {
        let power = 1.0 - alpha;
        // In parts of the least, so that high powers stay finite.
        let scale = if least > 0.0 { least } else { 1.0 };
        let mean = utilities.iter().map(|utility| (utility / scale).powf(power)).sum::<f64>() / count;
        scale * mean.powf(1.0 / power)
    }
}

/// A market: members and what each choice brings them. It remembers every performance that it asked for.
pub struct Market<F> {
    known: Known<Vec<Performance>, F>,
    rules: Rules,
    effort: Effort,
}

impl<E, F: FnMut(&[Vec<u32>]) -> Result<Vec<Vec<Performance>>, E>> Market<F> {
    /// A market that is played by these rules, and whose best choice is looked for with this effort. `performance`
    /// gives that of each member for each of some choices.
    pub fn new(rules: Rules, effort: Effort, performance: F) -> Market<F> {
        Market { known: Known::new(performance), rules, effort }
    }

    /// For how many choices the performance was asked for so far.
    pub fn evaluations(&self) -> u64 {
        self.known.evaluations()
    }

    /// The utility of each member for each of some choices.
    fn utilities(&mut self, choices: &[Vec<u32>], terms: &Terms) -> Result<Vec<Vec<f64>>, E> {
        let alone = self.known.one(&vec![0; self.rules.most.len()])?;
        let of = |together: Vec<Performance>| {
            alone.iter().zip(&together).map(|(alone, together)| utility(alone, together, terms)).collect()
        };
        Ok(self.known.all(choices)?.into_iter().map(of).collect())
    }

    /// What comes of these terms when the members start from `start`.
    ///
    /// # Errors
    ///
    /// Returns the errors of the performance.
    ///
    /// # Panics
    ///
    /// When the start has not one choice for each member, or the performance does not answer each question.
    pub fn settle(&mut self, start: &[u32], terms: &Terms) -> Result<Outcome, E> {
        let (rules, effort) = (self.rules.clone(), self.effort);
        let play = play::play(start, &rules, |choices| self.utilities(choices, terms))?;
        let deviations = match play.ending {
            Ending::Equilibrium { .. } => {
                play::deviations(&play.levels, &rules, |choices| self.utilities(choices, terms))?
            }
            Ending::Cycle(_) | Ending::BrokenOff => Vec::new(),
        };
        let best = sharing::best(&rules.most, &effort, |choices| {
            let utilities = self.utilities(choices, terms)?;
            Ok(utilities.iter().map(|utilities| -welfare(utilities, terms.alpha)).collect())
        })?;
        let costs = self.known.one(&play.levels)?.iter().map(|of| net_cost(of, terms)).collect();
        let welfare = welfare(&play.utilities, terms.alpha);
        let efficiency = (best.cost < 0.0).then(|| welfare / -best.cost);
        Ok(Outcome { terms: *terms, play, deviations, costs, welfare, best, efficiency })
    }

    /// What comes of each of some prices inside, as parts of the public price. Each play starts from `start`.
    ///
    /// # Errors
    ///
    /// Returns the errors of the performance.
    ///
    /// # Panics
    ///
    /// As [`settle`](Market::settle).
    pub fn sweep(&mut self, start: &[u32], terms: &Terms, ratios: &[f64]) -> Result<Vec<Outcome>, E> {
        let with = |ratio: &f64| Terms { internal_price: ratio * terms.public_price, ..*terms };
        ratios.iter().map(|ratio| self.settle(start, &with(ratio))).collect()
    }
}
