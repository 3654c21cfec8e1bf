//! Games in which each member picks a level for itself, and answers what the others pick.
//!
//! # Idea
//!
//! Best-response dynamics: in turns, in the order of the members, each goes to the level that is best for it while the
//! others stay. A round in which no member moves is a Nash equilibrium (in pure strategies). A round that ends where an
//! earlier one ended will go on as that one did, for ever: a cycle, and the game may have no equilibrium. A member with
//! few levels looks at all of them; one with many makes a *tabu search*: from where it is to the best level some steps
//! away that it has not just been at, be that better or worse, until it has found nothing better for a while.
//!
//! # Source
//!
//! Tabu search: Glover, ORSA Journal on Computing 1(3), 1989. That the market game of SC-Share (ICDCS 2017) is played
//! with it is from memory; the rule of order, ties and cycles is this project's.
//!
//! # Assumes
//!
//! Utilities that are the same whenever they are asked for; noise is to be below `least_gain`.
//!
//! # Complexity
//!
//! A round asks for the utilities at up to `sum_i (n_i + 1)` levels, or at about `2 log n_i` for each step of a tabu
//! search.

use std::collections::VecDeque;

use super::known::Known;

/// Levels that a tabu search does not return to.
const REMEMBERED: usize = 8;

/// Steps without anything better after which a tabu search ends.
const PATIENCE: u32 = 8;

/// How a game is played.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    /// The highest level of each member; the lowest is 0.
    pub most: Vec<u32>,
    /// Rounds after which the play is broken off.
    pub most_rounds: u32,
    /// No member moves for a gain of no more than this, in the unit of the utilities.
    pub least_gain: f64,
    /// A member with at most this many levels looks at all of them.
    pub look_at_all: u32,
}

/// How a play ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Ending {
    /// No member moved in the last round.
    Equilibrium {
        /// Whether every member looked at all levels, so that none can gain by a change of its own.
        proven: bool,
    },
    /// The play goes round: the levels after each round of it, in order.
    Cycle(Vec<Vec<u32>>),
    /// There were no more rounds.
    BrokenOff,
}

/// A play, from its start to its end.
#[derive(Debug, Clone, PartialEq)]
pub struct Play {
    /// The levels at the end.
    pub levels: Vec<u32>,
    /// The utility of each member there.
    pub utilities: Vec<f64>,
    /// How it ended.
    pub ending: Ending,
    /// Rounds that were played, with the one in which no member moved.
    pub rounds: u32,
    /// At how many levels utilities were asked for.
    pub evaluations: u64,
}

/// What a member would gain by a change of its own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Deviation {
    /// Who.
    pub member: usize,
    /// The best level for it.
    pub level: u32,
    /// What that gains, in the unit of the utilities.
    pub gain: f64,
}

/// Plays from a start. `utilities` gives that of each member at each of some levels.
///
/// ```
/// use bellwether_federation::game::play::{Ending, Rules, play};
/// // The first wants to be where the second is, and the second elsewhere.
/// let pennies = |all: &[Vec<u32>]| {
///     let meet = |levels: &Vec<u32>| if levels[0] == levels[1] { vec![1.0, 0.0] } else { vec![0.0, 1.0] };
///     Ok::<_, ()>(all.iter().map(meet).collect())
/// };
/// let rules = Rules { most: vec![1, 1], most_rounds: 100, least_gain: 0.0, look_at_all: 64 };
/// assert!(matches!(play(&[0, 0], &rules, pennies)?.ending, Ending::Cycle(_)));
/// # Ok::<(), ()>(())
/// ```
///
/// # Errors
///
/// Returns the errors of `utilities`.
///
/// # Panics
///
/// When the start has not one level for each member, or `utilities` does not answer each question.
pub fn play<E>(
    start: &[u32],
    rules: &Rules,
    utilities: impl FnMut(&[Vec<u32>]) -> Result<Vec<Vec<f64>>, E>,
) -> Result<Play, E> {
    assert_eq!(start.len(), rules.most.len(), "a level for each member");
    let mut known = Known::new(utilities);
    let mut levels = start.to_vec();
    let mut seen = vec![levels.clone()];
    let mut ending = Ending::BrokenOff;
    let mut rounds = 0;
    while rounds < rules.most_rounds {
        rounds += 1;
        for member in 0..levels.len() {
            levels[member] = respond(&levels, member, rules, &mut known)?;
        }
        if seen.last() == Some(&levels) {
            let proven = rules.most.iter().all(|&most| most < rules.look_at_all);
            ending = Ending::Equilibrium { proven };
            break;
        }
        if let Some(first) = seen.iter().position(|earlier| *earlier == levels) {
            ending = Ending::Cycle(seen.split_off(first));
            break;
        }
        seen.push(levels.clone());
    }
    let utilities = known.one(&levels)?;
    Ok(Play { levels, utilities, ending, rounds, evaluations: known.evaluations() })
}

/// Who would gain by a change of its own, and the best change of each: empty at an equilibrium. All levels of all
/// members are looked at.
///
/// # Errors
///
/// Returns the errors of `utilities`.
///
/// # Panics
///
/// As [`play`].
pub fn deviations<E>(
    levels: &[u32],
    rules: &Rules,
    utilities: impl FnMut(&[Vec<u32>]) -> Result<Vec<Vec<f64>>, E>,
) -> Result<Vec<Deviation>, E> {
    assert_eq!(levels.len(), rules.most.len(), "a level for each member");
    let mut known = Known::new(utilities);
    let mut found = Vec::new();
    for (member, now) in known.one(levels)?.into_iter().enumerate() {
        let all: Vec<u32> = (0..=rules.most[member]).collect();
        if let Some((level, utility)) = best_of(&all, levels, (member, rules), &mut known)?
            && utility - now > rules.least_gain
        {
            found.push(Deviation { member, level, gain: utility - now });
        }
    }
    Ok(found)
}

/// The level that a member goes to: where it is, if nothing gains enough.
fn respond<E, F: FnMut(&[Vec<u32>]) -> Result<Vec<Vec<f64>>, E>>(
    levels: &[u32],
    member: usize,
    rules: &Rules,
    known: &mut Known<Vec<f64>, F>,
) -> Result<u32, E> {
    let most = rules.most[member];
    let now = (levels[member], known.one(levels)?[member]);
    let found = if most < rules.look_at_all {
        best_of(&(0..=most).collect::<Vec<_>>(), levels, (member, rules), known)?
    } else {
        Some(tabu(levels, (member, rules), now, known)?)
    };
    let gains = |(_, utility): &(u32, f64)| utility - now.1 > rules.least_gain;
    Ok(found.filter(gains).unwrap_or(now).0)
}

/// The best of some levels of a member and its utility there; of those that gain too little over it the first.
fn best_of<E, F: FnMut(&[Vec<u32>]) -> Result<Vec<Vec<f64>>, E>>(
    choices: &[u32],
    levels: &[u32],
    (member, rules): (usize, &Rules),
    known: &mut Known<Vec<f64>, F>,
) -> Result<Option<(u32, f64)>, E> {
    let with = |&level: &u32| {
        let mut changed = levels.to_vec();
        changed[member] = level;
        changed
    };
    let answers = known.all(&choices.iter().map(with).collect::<Vec<_>>())?;
    let utilities = answers.iter().map(|utilities| utilities[member]);
    let most = utilities.clone().fold(f64::NEG_INFINITY, f64::max);
    Ok(choices.iter().copied().zip(utilities).find(|(_, utility)| *utility >= most - rules.least_gain))
}

fn tabu<E, F: FnMut(&[Vec<u32>]) -> Result<Vec<Vec<f64>>, E>>(
    levels: &[u32],
    (member, rules): (usize, &Rules),
    start: (u32, f64),
    known: &mut Known<Vec<f64>, F>,
) -> Result<(u32, f64), E> {
    let most = rules.most[member];
    let (mut at, mut best, mut stale) = (start.0, start, 0);
    let mut recent = VecDeque::from([at]);
    while stale < PATIENCE {
        let steps = (0..32).map(|power| 1_u32 << power).take_while(|&step| step <= most);
        let around = steps.flat_map(|step| [at.checked_sub(step), at.checked_add(step)]).flatten();
        let mut choices: Vec<u32> =
            around.filter(|level| *level <= most && !recent.contains(level)).collect();
        choices.sort_unstable();
        let Some(next) = best_of(&choices, levels, (member, rules), known)? else { break };
        stale += 1;
        if next.1 > best.1 + rules.least_gain {
            (best, stale) = (next, 0);
        }
        at = next.0;
        recent.push_back(at);
        if recent.len() > REMEMBERED {
            recent.pop_front();
        }
    }
    Ok(best)
}
