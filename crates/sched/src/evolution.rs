//! Search of a space of choices by asking for the score of one candidate after another: at random, or by regularised
//! evolution.
//!
//! # Model
//!
//! ```text
//! random      every candidate is drawn uniformly
//! evolution   the first P candidates are drawn uniformly; each further one is a mutant of the best of S that are drawn
//!             from the population, with replacement; it joins the population, and the oldest leaves
//! mutation    one place, drawn uniformly among those with a choice, gets another alternative, drawn uniformly
//! ```
//!
//! | symbol | meaning                         | unit |
//! |--------|---------------------------------|------|
//! | P      | members of the population       | 1    |
//! | S      | members of a tournament         | 1    |
//!
//! A candidate that is not allowed is drawn again, up to [`TRIES`] times.
//!
//! # Source
//!
//! E. Real, A. Aggarwal, Y. Huang and Q. V. Le, Regularized Evolution for Image Classifier Architecture Search, AAAI
//! 2019.
//!
//! # Assumes
//!
//! A higher score is better. The same candidate has the same score whenever it is asked for.
//!
//! # Checked by
//!
//! `tests/it/evolution.rs`: the rules above, step by step, and what both find in spaces whose best candidate is known.

use std::collections::VecDeque;

use bellwether_core::mix::mix;

/// How often a candidate is drawn until it is allowed.
pub const TRIES: u32 = 10_000;

/// A candidate: for each place the number of its alternative.
pub type Genome = Vec<usize>;

/// How the next candidate is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Uniformly.
    Random,
    /// From those before it.
    Evolution {
        /// Members of the population; at least 1.
        population: usize,
        /// Members of a tournament; at least 1.
        tournament: usize,
    },
}

/// A search that has asked for some scores.
#[derive(Debug, Clone, PartialEq)]
pub struct Search {
    method: Method,
    /// Alternatives of each place; at least one.
    alternatives: Vec<usize>,
    /// Names the next random number.
    counter: u64,
    seed: u64,
    /// The youngest last.
    population: VecDeque<(Genome, f64)>,
    asked: usize,
}

impl Search {
    /// A search that has not begun. `alternatives` says how many each place has.
    ///
    /// # Panics
    ///
    /// When a place has no alternative.
    pub fn new(method: Method, alternatives: Vec<usize>, seed: u64) -> Search {
        assert!(alternatives.iter().all(|count| *count > 0), "every place has an alternative");
        Search { method, alternatives, counter: 0, seed: mix(seed), population: VecDeque::new(), asked: 0 }
    }

    /// A number below `limit`, which is not 0.
    fn below(&mut self, limit: usize) -> usize {
        self.counter += 1;
        let bits = mix(self.seed.wrapping_add(mix(self.counter)));
        // Multiply-shift: its bias is below the limit over 2^64.
        ((u128::from(bits) * limit as u128) >> 64) as usize
    }

    /// One candidate, uniformly.
    pub fn draw(&mut self) -> Genome {
        let alternatives = self.alternatives.clone();
        alternatives.into_iter().map(|count| self.below(count)).collect()
    }

    /// The candidate whose score is wanted next; `None` where none of the tries was allowed.
    pub fn next(&mut self, is_allowed: &dyn Fn(&[usize]) -> bool) -> Option<Genome> {
        for _ in 0..TRIES {
            let candidate = match self.method {
                Method::Evolution { population, tournament } if self.asked >= population => {
                    self.mutant(tournament)
                }
                _ => self.draw(),
            };
            if is_allowed(&candidate) {
                return Some(candidate);
            }
        }
        None
    }

    /// Takes the score of the candidate that was asked for last. One that is not a number is worse than all others.
    pub fn tell(&mut self, candidate: Genome, score: f64) {
        self.asked += 1;
        let score = if score.is_nan() { f64::NEG_INFINITY } else { score };
        if let Method::Evolution { population, .. } = self.method {
            self.population.push_back((candidate, score));
            while self.population.len() > population {
                self.population.pop_front();
            }
        }
    }

    /// A changed copy of the best of some members. Of equals the first that was drawn counts.
    fn mutant(&mut self, tournament: usize) -> Genome {
        let mut best = self.below(self.population.len());
        for _ in 1..tournament {
            let other = self.below(self.population.len());
            if self.population[other].1 > self.population[best].1 {
                best = other;
            }
        }
        let mut child = self.population[best].0.clone();
        let places: Vec<usize> = (0..child.len()).filter(|place| self.alternatives[*place] > 1).collect();
        if !places.is_empty() {
            let place = places[self.below(places.len())];
            // Another one: a step around the circle of alternatives that does not come back.
            let step = 1 + self.below(self.alternatives[place] - 1);
            child[place] = (child[place] + step) % self.alternatives[place];
        }
        child
    }

    /// The population, the oldest first.
    pub fn population(&self) -> impl Iterator<Item = (&[usize], f64)> {
        self.population.iter().map(|(genome, score)| (genome.as_slice(), *score))
    }
}
