//! Whether any payment keeps all together, and what is lacking if not.
//!
//! The core holds the payments that give out v(N) and leave no coalition anything to gain by leaving. It is empty
//! when the least largest gain is above 0. Then some coalitions with weights that count each member once are
//! together worth more than all (Bondareva 1963, Shapley 1967): they are the reason, and the dual of the linear
//! program names them.

use super::nucleolus;
use super::{Coalition, Game};

/// The payment at which the coalition with most to gain by leaving gains least.
#[derive(Debug, Clone, PartialEq)]
pub struct LeastCore {
    /// What that coalition gains, in the unit of the game: above 0 when the core is empty, below 0 when something is to
    /// spare; 0 where there is one member only.
    pub excess: f64,
    /// Such a payment to each member; there may be others.
    pub payment: Vec<f64>,
    /// Coalitions that gain exactly this with every such payment. Their weights count each member once; weighted with
    /// these they are worth v(N) and `excess` times the sum of the weights.
    pub pressing: Vec<(Coalition, f64)>,
}

/// The least core of a game.
///
/// ```
/// use bellwether_federation::game::{Coalition, Game, least_core};
/// // Any two of three have what all have.
/// let game = Game::from_values(3, |coalition| f64::from(u8::from(coalition.size() > 1)))?;
/// let found = least_core::least_core(&game);
/// assert!((found.excess - 1.0 / 3.0).abs() < 1e-12 && least_core::is_core_empty(&game));
/// assert_eq!(found.pressing[0], (Coalition::of([0, 1]), 0.5));
/// # Ok::<(), bellwether_core::InputError>(())
/// ```
pub fn least_core(game: &Game) -> LeastCore {
    let mut program = game.excesses(&[game.everyone()], false);
    if program.is_decided() {
        return LeastCore { excess: 0.0, payment: program.decided(), pressing: Vec::new() };
    }
    let optimum = program.solve();
    // Weights of the dual sum to 1 and count each member equally often.
    let first = |(bits, weight): &(u32, f64)| if bits & 1 == 1 { *weight } else { 0.0 };
    let often: f64 = optimum.pressing.iter().map(first).sum();
    let pressing =
        optimum.pressing.iter().map(|&(bits, weight)| (Coalition::from_bits(bits), weight / often));
    LeastCore { excess: optimum.excess, payment: optimum.numbers, pressing: pressing.collect() }
}

/// Whether no payment keeps all together: the least excess is above the game's tolerance.
pub fn is_core_empty(game: &Game) -> bool {
    least_core(game).excess > game.tolerance()
}

/// A payment in the core, if there is any: the nucleolus, or with more than [`nucleolus::MOST_MEMBERS`] members one
/// of the least core.
pub fn core_payment(game: &Game) -> Option<Vec<f64>> {
    let found = least_core(game);
    if found.excess > game.tolerance() {
        return None;
    }
    let is_small = game.members() <= nucleolus::MOST_MEMBERS;
    let canonical = if is_small { nucleolus::nucleolus(game) } else { None };
    Some(canonical.unwrap_or(found.payment))
}
