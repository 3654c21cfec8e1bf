//! The nucleolus: the payment that makes the largest gain from leaving as small as it can be, then the second
//! largest, and so on.
//!
//! Linear programs in turn: each minimises the largest excess of the coalitions that are still free. A coalition
//! whose row has a positive weight in the dual has this excess at every optimum, and is fixed; so is whatever the
//! fixed ones span. At least one is fixed each time that those before did not span, so there are at most as many
//! programs as members. A row that binds by chance has no weight, and stays free.
//!
//! Source: Schmeidler 1969; the sequence is that of Maschler, Peleg and Shapley 1979, the fixing by duals that of
//! Potters, Reijnierse and Ansing 1996. There is one nucleolus; it is in the core when anything is, and treats
//! equals alike.

use super::{Coalition, Game};

/// The most members: with more, weights that are not zero could be as small as rounding.
pub const MOST_MEMBERS: usize = 15;

/// The nucleolus among the payments with which no member gets less than alone. `None` where there is no such payment:
/// all are worth less together than each alone.
///
/// ```
/// use bellwether_federation::game::{Game, nucleolus};
/// // An estate of 200 and claims of 100, 200 and 300: what is left when the others are paid in full.
/// let claims = [100.0, 200.0, 300.0];
/// let game = Game::from_values(3, |coalition| {
///     let others = (0..3).filter(|&i| !coalition.contains(i)).map(|i| claims[i]).sum::<f64>();
///     f64::max(200.0 - others, 0.0)
/// })?;
/// let shares = nucleolus::nucleolus(&game).expect("no member loses");
/// assert!(shares.iter().zip([50.0, 75.0, 75.0]).all(|(share, talmud)| (share - talmud).abs() < 1e-9));
/// # Ok::<(), bellwether_core::InputError>(())
/// ```
///
/// # Panics
///
/// When there are more than [`MOST_MEMBERS`] members.
pub fn nucleolus(game: &Game) -> Option<Vec<f64>> {
    let shortage = game.alone().iter().sum::<f64>() - game.value(game.everyone());
    (shortage <= game.tolerance()).then(|| least(game, &[game.everyone()], true))
}

/// The nucleolus among all payments that give out v(N): some may be paid less than they are worth alone, if the
/// others are worth so much. The same as [`nucleolus`] where the game is superadditive.
///
/// # Panics
///
/// When there are more than [`MOST_MEMBERS`] members.
pub fn prenucleolus(game: &Game) -> Vec<f64> {
    least(game, &[game.everyone()], false)
}

/// The nucleolus among all payments that give to each block of a partition of the members what it is worth.
///
/// # Panics
///
/// When there are more than [`MOST_MEMBERS`] members, or the blocks do not hold each member once.
pub fn of_blocks(game: &Game, blocks: &[Coalition]) -> Vec<f64> {
    assert_eq!(blocks.iter().map(|block| block.size()).sum::<usize>(), game.members(), "each member once");
    let union = blocks.iter().fold(Coalition::EMPTY, |union, block| union.union(*block));
    assert_eq!(union, game.everyone(), "each member once");
    least(game, blocks, false)
}

fn least(game: &Game, blocks: &[Coalition], is_rational: bool) -> Vec<f64> {
    assert!(game.members() <= MOST_MEMBERS, "the nucleolus of {} members", game.members());
    let mut program = game.excesses(blocks, is_rational);
    while !program.is_decided() {
        let optimum = program.solve();
        program.settle(&optimum);
    }
    program.decided()
}
