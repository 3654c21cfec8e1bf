//! The Shapley value: what each member brings, averaged over all orders in which all could have joined.
//!
//! ```text
//! x_i = sum_{T without i} 1 / (n C(n-1, |T|)) * (v(T + i) - v(T))
//! ```
//!
//! Source: Shapley 1953. It is the only split that is efficient, treats equals alike, gives nothing to who brings
//! nothing, and adds up over games. It is individually rational where the game is superadditive, and in the core
//! where it is convex. Takes n 2^(n-1) steps; beyond 20 members see [`super::sampling`].

use super::{Coalition, Game};

/// The Shapley value of each member, in the unit of the game; negative for one that does harm.
///
/// ```
/// use bellwether_federation::game::{Game, shapley};
/// // Two right gloves and a left one: a pair is worth 1.
/// let game = Game::new(3, vec![0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0])?;
/// let value = shapley::exact(&game);
/// assert!((value[0] - 2.0 / 3.0).abs() < 1e-15 && (value[1] - 1.0 / 6.0).abs() < 1e-15);
/// # Ok::<(), bellwether_core::InputError>(())
/// ```
pub fn exact(game: &Game) -> Vec<f64> {
    let weights = weights(game.members());
    let of_member = |member: usize| {
        let others = game.everyone().without(member);
        let brought =
            |small: Coalition| weights[small.size()] * (game.value(small.with(member)) - game.value(small));
        others.subsets().map(brought).sum()
    };
    (0..game.members()).map(of_member).collect()
}

/// The weight of a member's contribution to a coalition of each size: 1 over `members` times the number of such
/// coalitions of the others.
fn weights(members: usize) -> Vec<f64> {
    let mut weight = 1.0 / members as f64;
    let next = |size: usize| {
        let this = weight;
        // C(n-1, s+1) = C(n-1, s) (n-1-s) / (s+1).
        weight *= (size + 1) as f64 / (members - 1 - size).max(1) as f64;
        this
    };
    (0..members).map(next).collect()
}
