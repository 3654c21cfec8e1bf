//! Which federation to form, if any.
//!
//! A *structure* is a partition of the members: each block is a federation, and a member in a block of its own
//! stays alone. It is *stable* when there is a payment that gives to the members of each block together what the
//! block is worth, and with which no coalition, inside a block or across blocks, is worth more alone than its
//! members are paid (the core of a game with a coalition structure, Aumann and Drèze 1974).
//!
//! **A stable federation exists** when a stable structure is worth more than all members alone, to within the
//! game's tolerance; then at least one of its blocks has two members or more, and gains. All stable structures are
//! worth the same, the most that any structure is, and a payment that makes one of them stable does so for all. So
//! it is enough to look at one structure of the highest worth: all together where that is one, and else one with
//! few blocks, where blocks that gain nothing are taken apart. All together need not be stable, or even worth
//! anything, for a stable federation to exist.

use super::least_core::{LeastCore, least_core};
use super::nucleolus;
use super::{Blocking, Coalition, Game};

/// A partition of the members, and what it is worth.
#[derive(Debug, Clone, PartialEq)]
pub struct Structure {
    /// Its blocks, by their lowest members.
    pub blocks: Vec<Coalition>,
    /// What they are worth together, in the unit of the game.
    pub value: f64,
    /// What that is beyond all members alone.
    pub gain: f64,
    /// A payment to each member that gives to each block what it is worth, and with which the coalition with most
    /// to gain by leaving gains least: the nucleolus, with more than [`nucleolus::MOST_MEMBERS`] members some such
    /// payment.
    pub payment: Vec<f64>,
    /// Who would leave nevertheless; empty where the structure is stable.
    pub blocking: Vec<Blocking>,
}

/// What to do, and why.
#[derive(Debug, Clone, PartialEq)]
pub enum Advice {
    /// All form one federation: nothing is worth more, and no member gains by leaving.
    Together(Structure),
    /// The blocks form federations of their own, which is worth more than all together.
    Apart {
        /// The blocks.
        structure: Structure,
        /// What it is worth beyond all together.
        beyond_together: f64,
    },
    /// All stay alone: no federation of any of them is worth more.
    Alone,
    /// Some federation is worth more than all alone, but whatever is paid, some coalition gains by leaving.
    Unstable {
        /// The structure of the highest worth, and who leaves it.
        structure: Structure,
        /// The least that the keenest coalition gains if all share what the structure is worth, and the coalitions
        /// that are the reason.
        lacking: LeastCore,
    },
}

impl Advice {
    /// Whether a stable federation exists, as the head of this module says it.
    pub fn is_stable(&self) -> bool {
        matches!(self, Advice::Together(_) | Advice::Apart { .. })
    }
}

/// What the members of a game should form. Takes 3^n steps: seconds with 20 members.
///
/// ```
/// use bellwether_federation::game::{Coalition, Game, advice::{Advice, advise}};
/// // The third does harm: the first two are worth more without it.
/// let game = Game::new(3, vec![0.0, 0.0, 0.0, 4.0, 0.0, -2.0, -2.0, 3.0])?;
/// let Advice::Apart { structure, beyond_together } = advise(&game) else { panic!("two of them together") };
/// assert_eq!(structure.blocks, [Coalition::of([0, 1]), Coalition::of([2])]);
/// assert_eq!((structure.payment, beyond_together), (vec![2.0, 2.0, 0.0], 1.0));
/// # Ok::<(), bellwether_core::InputError>(())
/// ```
pub fn advise(game: &Game) -> Advice {
    let blocks = best_blocks(game);
    let value: f64 = blocks.iter().map(|block| game.value(*block)).sum();
    let gain = value - game.alone().iter().sum::<f64>();
    if gain <= game.tolerance() {
        return Advice::Alone;
    }
    let payment = payment(game, &blocks);
    let blocking = game.blocking(&payment);
    let is_together = blocks.len() == 1;
    let structure = Structure { blocks, value, gain, payment, blocking };
    if !structure.blocking.is_empty() {
        let lacking = least_core(&game.with_value_of_all(value));
        return Advice::Unstable { structure, lacking };
    }
    if is_together {
        return Advice::Together(structure);
    }
    Advice::Apart { structure, beyond_together: value - game.value(game.everyone()) }
}

fn payment(game: &Game, blocks: &[Coalition]) -> Vec<f64> {
    if game.members() <= nucleolus::MOST_MEMBERS {
        return nucleolus::of_blocks(game, blocks);
    }
    let mut program = game.excesses(blocks, false);
    if program.is_decided() { program.decided() } else { program.solve().numbers }
}

/// A partition of the highest worth, by dynamic programming over coalitions: a coalition is left whole, or it is
/// the block of its lowest member and the best that the others can do. One that gains nothing by splitting is left
/// whole; at the end, blocks that gain nothing by being together are taken apart.
fn best_blocks(game: &Game) -> Vec<Coalition> {
    // Each of at most n - 1 splits is foregone for this much at most.
    let indifferent = game.tolerance() / (2 * game.members()) as f64;
    let count = game.values().len();
    let (mut best, mut first) = (vec![0.0; count], vec![Coalition::EMPTY; count]);
    for whole in game.coalitions() {
        let lowest = Coalition::from_bits(whole.bits() & whole.bits().wrapping_neg());
        let (mut most, mut block) = (game.value(whole) + indifferent, whole);
        for rest in whole.minus(lowest).subsets().skip(1) {
            let own = whole.minus(rest);
            let value = game.value(own) + best[rest.bits() as usize];
            if value > most {
                (most, block) = (value, own);
            }
        }
        let place = whole.bits() as usize;
        best[place] = if block == whole { game.value(whole) } else { most };
        first[place] = block;
    }
    let mut blocks = Vec::new();
    let mut rest = game.everyone();
    while !rest.is_empty() {
        let block = first[rest.bits() as usize];
        let alone: f64 = block.members().map(|member| game.value(Coalition::of([member]))).sum();
        if game.value(block) > alone + indifferent {
            blocks.push(block);
        } else {
            blocks.extend(block.members().map(|member| Coalition::of([member])));
        }
        rest = rest.minus(block);
    }
    blocks.sort_by_key(|block| block.members().next());
    blocks
}
