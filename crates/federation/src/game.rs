//! Who should share with whom, and who pays whom: cooperative games over the values of coalitions.
//!
//! ```text
//! v(S) = sum_{i in S} cost of i alone - cost of S together           the savings game
//! x    : a payment to each member, sum_i x_i = v(N)                  what a split decides
//! e(S) = v(S) - sum_{i in S} x_i                                     what S would gain by leaving
//! ```
//!
//! Nothing here knows a queue or a server: it is handed the values of the coalitions, or a closure that gives them.
//! This file holds coalitions, their values, and which of them a payment drives away.
//!
//! - [`shapley`]: each member's mean contribution, exact; [`sampling`]: the same for many members, with intervals;
//! - [`least_core`]: whether any payment keeps all together, and what is lacking if not;
//! - [`nucleolus`]: the payment that makes the gain from leaving smallest;
//! - [`splits`]: Nash's bargain, the simple rules that look at servers only, and relative cost cuts;
//! - [`advice`]: which federation to form, if any;
//! - [`affinity`]: work that suits some devices better than others, as a linear production game with market prices;
//! - [`sharing`]: how many servers each should share; [`prices`], [`play`]: how many each would share by itself.
//!
//! Beneath `least_core` and `nucleolus` is the linear program of [`excess`].
//!
//! | split     | exists                    | no member loses   | stable when anything is | members |
//! |-----------|---------------------------|-------------------|-------------------------|---------|
//! | Shapley   | always                    | if superadditive  | if convex               | any, sampled beyond 20 |
//! | nucleolus | where v(N) >= sum v({i})  | always            | always                  | 15      |
//! | Nash      | always                    | if v(N) >= sum v({i}) | not in general      | any     |

use bellwether_core::InputError;
use bellwether_numerics::excess::{self, Program, subset_sums};

pub mod advice;
pub mod affinity;
mod known;
pub mod least_core;
pub mod nucleolus;
pub mod play;
pub mod prices;
pub mod sampling;
pub mod shapley;
pub mod sharing;
pub mod splits;

/// The most members of a [`Game`]: it holds a value for each of the 2^20 coalitions.
pub const MOST_MEMBERS: usize = excess::MOST_ELEMENTS;

/// Members up to which [`Game::superadditivity`] looks at all pairs of coalitions, 3^15 / 2 of them.
const ALL_PAIRS: usize = 15;

/// Violations that [`Game::superadditivity`] names.
const NAMED: usize = 10;

/// Differences of values, as parts of the largest one, that are rounding.
const ROUNDING: f64 = 1e-9;

/// A set of members, who are numbered from 0. Coalitions are ordered as the numbers whose bits are their members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Coalition(u32);

impl Coalition {
    /// No member.
    pub const EMPTY: Coalition = Coalition(0);

    /// The coalition of these members.
    ///
    /// ```
    /// use bellwether_federation::game::Coalition;
    /// let some = Coalition::of([0, 2]);
    /// assert_eq!(some.members().collect::<Vec<_>>(), [0, 2]);
    /// assert_eq!(some.subsets().map(Coalition::bits).collect::<Vec<_>>(), [0, 1, 4, 5]);
    /// ```
    ///
    /// # Panics
    ///
    /// When a member is not below 32.
    pub fn of(members: impl IntoIterator<Item = usize>) -> Coalition {
        members.into_iter().fold(Coalition::EMPTY, Coalition::with)
    }

    /// The members 0 to `members` - 1.
    ///
    /// # Panics
    ///
    /// When there are more than 32.
    pub fn everyone(members: usize) -> Coalition {
        assert!(members <= 32, "{members} members are more than 32");
        Coalition(((1_u64 << members) - 1) as u32)
    }

    /// The coalition whose members are the bits of a number.
    pub const fn from_bits(bits: u32) -> Coalition {
        Coalition(bits)
    }

    /// The number whose bits are its members: its place among the values of a game.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// How many members it has.
    pub const fn size(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether it has none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether a member belongs to it.
    pub const fn contains(self, member: usize) -> bool {
        member < 32 && self.0 >> member & 1 == 1
    }

    /// This coalition and one more member.
    ///
    /// # Panics
    ///
    /// When the member is not below 32.
    #[must_use]
    pub const fn with(self, member: usize) -> Coalition {
        assert!(member < 32, "members of a coalition are below 32");
        Coalition(self.0 | 1 << member)
    }

    /// This coalition without one member.
    #[must_use]
    pub const fn without(self, member: usize) -> Coalition {
        if member < 32 { Coalition(self.0 & !(1 << member)) } else { self }
    }

    /// Who is in either.
    #[must_use]
    pub const fn union(self, other: Coalition) -> Coalition {
        Coalition(self.0 | other.0)
    }

    /// Who is in this one and not in the other.
    #[must_use]
    pub const fn minus(self, other: Coalition) -> Coalition {
        Coalition(self.0 & !other.0)
    }

    /// Whether no member is in both.
    pub const fn is_disjoint(self, other: Coalition) -> bool {
        self.0 & other.0 == 0
    }

    /// Whether the other contains it.
    pub const fn is_subset_of(self, other: Coalition) -> bool {
        self.0 & !other.0 == 0
    }

    /// Its members, the lowest number first.
    pub fn members(self) -> impl Iterator<Item = usize> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let member = rest.trailing_zeros();
            rest &= rest.wrapping_sub(1);
            (member < 32).then_some(member as usize)
        })
    }

    /// All coalitions of its members in order, from the empty one to itself.
    pub fn subsets(self) -> impl Iterator<Item = Coalition> {
        // Counting in the bits of the mask: what is not in it carries on.
        let next = move |&Coalition(bits): &Coalition| {
            (bits != self.0).then(|| Coalition((bits | !self.0).wrapping_add(1) & self.0))
        };
        std::iter::successors(Some(Coalition::EMPTY), next)
    }

    fn place(self) -> usize {
        self.0 as usize
    }
}

/// A game with transferable utility: what each coalition of at most 20 members is worth.
#[derive(Debug, Clone, PartialEq)]
pub struct Game {
    members: usize,
    values: Vec<f64>,
    tolerance: f64,
}

/// A coalition that would rather leave.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Blocking {
    /// Who would leave.
    pub coalition: Coalition,
    /// What it is worth alone beyond what its members are paid, in the unit of the game.
    pub gain: f64,
}

/// Two coalitions that are worth more apart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Violation {
    /// The two; the first has the lowest member.
    pub parts: [Coalition; 2],
    /// What their union loses, in the unit of the game.
    pub loss: f64,
}

/// Whether coalitions that unite ever lose by it.
#[derive(Debug, Clone, PartialEq)]
pub struct Superadditivity {
    /// Whether all pairs of coalitions were looked at (to 15 members), or only those in which one is a single member.
    pub all_pairs: bool,
    /// How many of these pairs lose more than the tolerance.
    pub violations: u64,
    /// Those that lose most, at most 10, the worst first.
    pub worst: Vec<Violation>,
}

impl Game {
    /// A game from the value of each coalition, at the place that [`Coalition::bits`] says, in any unit. Its
    /// tolerance is 1e-9 of the largest value.
    ///
    /// ```
    /// use bellwether_federation::game::{Coalition, Game};
    /// let game = Game::new(2, vec![0.0, 1.0, 2.0, 6.0])?;
    /// assert_eq!(game.value(Coalition::of([0, 1])), 6.0);
    /// assert!(game.is_stable(&[2.0, 4.0]) && !game.is_stable(&[0.5, 5.5]));
    /// # Ok::<(), bellwether_core::InputError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error on any of these: no members or more than 20, not one finite value per coalition, or the empty
    /// coalition is worth something.
    pub fn new(members: usize, values: Vec<f64>) -> Result<Game, InputError> {
        let wrong = |what: String| Err(InputError::new("game", what));
        if members == 0 || members > MOST_MEMBERS {
            return wrong(format!("a game has 1 to {MOST_MEMBERS} members, and not {members}"));
        }
        if values.len() != 1 << members {
            let (needed, given) = (1_u64 << members, values.len());
            return wrong(format!(
                "{members} members have {needed} coalitions, and {given} values are given"
            ));
        }
        if let Some(place) = values.iter().position(|value| !value.is_finite()) {
            let who: Vec<usize> = Coalition(place as u32).members().collect();
            return wrong(format!("the value of coalition {who:?} is {}", values[place]));
        }
        if values[0] != 0.0 {
            return wrong(format!("the empty coalition is worth {}, and must be worth 0", values[0]));
        }
        let tolerance = ROUNDING * largest(&values);
        Ok(Game { members, values, tolerance })
    }

    /// A game from a function that gives the value of each coalition; the empty one is worth 0.
    ///
    /// # Errors
    ///
    /// Same errors as [`Game::new`].
    pub fn from_values(members: usize, mut value: impl FnMut(Coalition) -> f64) -> Result<Game, InputError> {
        let count = 1_u32 << members.min(MOST_MEMBERS);
        let values = (0..count).map(|bits| if bits == 0 { 0.0 } else { value(Coalition(bits)) }).collect();
        Game::new(members, values)
    }

    /// The savings game of costs: what a coalition pays less together than its members pay alone. `costs` is at the
    /// place that [`Coalition::bits`] says, 0 for the empty coalition. Its tolerance is 1e-9 of the largest cost, as
    /// savings are differences.
    ///
    /// ```
    /// use bellwether_federation::game::{Coalition, Game};
    /// let game = Game::savings(2, &[0.0, 50.0, 50.0, 0.0])?;
    /// assert_eq!(game.value(Coalition::everyone(2)), 100.0);
    /// # Ok::<(), bellwether_core::InputError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Same errors as [`Game::new`].
    pub fn savings(members: usize, costs: &[f64]) -> Result<Game, InputError> {
        let game = Game::new(members, costs.to_vec())?;
        let alone: Vec<f64> = (0..members).map(|member| costs[1 << member]).collect();
        let values = game.sums(&alone).iter().zip(costs).map(|(alone, together)| alone - together).collect();
        Ok(Game::new(members, values)?.with_tolerance(game.tolerance))
    }

    /// The same game with another [tolerance](Game::tolerance), at least 0; for values that are measured or simulated.
    #[must_use]
    pub fn with_tolerance(self, tolerance: f64) -> Game {
        Game { tolerance: tolerance.max(0.0), ..self }
    }

    /// The same game in which all together are worth something else.
    #[must_use]
    pub fn with_value_of_all(&self, value: f64) -> Game {
        let mut game = self.clone();
        game.values[self.everyone().place()] = value;
        game
    }

    /// How many members there are.
    pub fn members(&self) -> usize {
        self.members
    }

    /// The coalition of all.
    pub fn everyone(&self) -> Coalition {
        Coalition::everyone(self.members)
    }

    /// What a coalition is worth.
    ///
    /// # Panics
    ///
    /// When it has a member that the game has not.
    pub fn value(&self, coalition: Coalition) -> f64 {
        self.values[coalition.place()]
    }

    /// The value of each coalition, at the place that [`Coalition::bits`] says.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// What each member is worth alone.
    pub fn alone(&self) -> Vec<f64> {
        (0..self.members).map(|member| self.values[1 << member]).collect()
    }

    /// Differences of values up to this are none, in the unit of the game.
    pub fn tolerance(&self) -> f64 {
        self.tolerance
    }

    /// All coalitions but the empty one, in order.
    pub fn coalitions(&self) -> impl Iterator<Item = Coalition> + use<> {
        (1..1_u32 << self.members).map(Coalition)
    }

    /// What each coalition is paid together, at the place that [`Coalition::bits`] says.
    ///
    /// # Panics
    ///
    /// When the payment is not one for each member.
    pub fn sums(&self, payment: &[f64]) -> Vec<f64> {
        assert_eq!(payment.len(), self.members, "one payment for each member");
        subset_sums(payment)
    }

    /// The linear program of excesses in which each block of a partition of the members is paid what it is worth; with
    /// `is_rational` no member is paid less than what it is worth alone.
    pub(super) fn excesses(&self, blocks: &[Coalition], is_rational: bool) -> Program {
        let blocks: Vec<u32> = blocks.iter().map(|block| block.bits()).collect();
        Program::new(self.members, &self.values, &blocks, is_rational)
    }

    /// Who would rather leave with this payment, the largest gain first: coalitions that are worth more alone than
    /// their members are paid together, by more than the tolerance.
    ///
    /// # Panics
    ///
    /// When the payment is not one for each member.
    pub fn blocking(&self, payment: &[f64]) -> Vec<Blocking> {
        let gains = self.values.iter().zip(self.sums(payment)).map(|(value, paid)| value - paid).enumerate();
        let blocking = gains.filter(|(_, gain)| *gain > self.tolerance);
        let mut all: Vec<Blocking> =
            blocking.map(|(bits, gain)| Blocking { coalition: Coalition(bits as u32), gain }).collect();
        // Stable, so equals stay in the order of coalitions.
        all.sort_by(|a, b| b.gain.total_cmp(&a.gain));
        all
    }

    /// Whether the payment gives out what all are worth together, to within the tolerance.
    pub fn is_efficient(&self, payment: &[f64]) -> bool {
        (payment.iter().sum::<f64>() - self.value(self.everyone())).abs() <= self.tolerance
    }

    /// Whether the payment is in the core: it is efficient, and no coalition would rather leave.
    ///
    /// # Panics
    ///
    /// When the payment is not one for each member.
    pub fn is_stable(&self, payment: &[f64]) -> bool {
        self.is_efficient(payment) && self.blocking(payment).is_empty()
    }

    /// Whether coalitions that unite lose by it. To 15 members all pairs are looked at, 3^n / 2 of them; above,
    /// only those of a coalition and a single member, so that a game without violations may still have some.
    pub fn superadditivity(&self) -> Superadditivity {
        let all_pairs = self.members <= ALL_PAIRS;
        let mut found = Superadditivity { all_pairs, violations: 0, worst: Vec::new() };
        for whole in self.coalitions() {
            let lowest = Coalition(whole.0 & whole.0.wrapping_neg());
            if all_pairs {
                let rest = whole.minus(lowest);
                // Each pair once: the first part has the lowest member.
                for other in rest.subsets().skip(1) {
                    self.compare(whole, [whole.minus(other), other], &mut found);
                }
            } else if whole.size() > 1 {
                let parts = whole.members().map(|member| (whole.without(member), Coalition::of([member])));
                for (rest, single) in parts.take(if whole.size() == 2 { 1 } else { whole.size() }) {
                    let parts = if single == lowest { [single, rest] } else { [rest, single] };
                    self.compare(whole, parts, &mut found);
                }
            }
        }
        found
    }

    fn compare(&self, whole: Coalition, parts: [Coalition; 2], found: &mut Superadditivity) {
        let loss = self.value(parts[0]) + self.value(parts[1]) - self.value(whole);
        if loss <= self.tolerance {
            return;
        }
        found.violations += 1;
        let place = found.worst.partition_point(|worse| worse.loss >= loss);
        if place < NAMED {
            found.worst.truncate(NAMED - 1);
            found.worst.insert(place, Violation { parts, loss });
        }
    }

    /// Whether a member brings the more, the larger the coalition that it joins. Then the core holds the Shapley value.
    pub fn is_convex(&self) -> bool {
        let bends_up = |small: Coalition, first: usize, second: usize| {
            let apart = self.value(small.with(first)) + self.value(small.with(second));
            self.value(small.with(first).with(second)) + self.value(small) >= apart - self.tolerance
        };
        let pairs = |small: Coalition| {
            let outside = self.everyone().minus(small);
            outside.members().all(|first| {
                let higher = outside.members().skip_while(move |&member| member <= first);
                higher.into_iter().all(|second| bends_up(small, first, second))
            })
        };
        self.everyone().subsets().all(pairs)
    }

    /// Whether a member that joins never lowers the value of a coalition.
    pub fn is_monotone(&self) -> bool {
        let grows = |whole: Coalition| {
            let least = self.value(whole) + self.tolerance;
            whole.members().all(|member| self.value(whole.without(member)) <= least)
        };
        self.coalitions().all(grows)
    }
}

/// The largest of the values without their signs.
fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |most, value| value.abs().max(most))
}
