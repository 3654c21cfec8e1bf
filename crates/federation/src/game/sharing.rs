//! How many of its servers each member should share, so that all together pay least.
//!
//! # Idea
//!
//! Where all members accept the same wait, sharing everything is best and nothing has to be searched. Where they do
//! not, the patient members' requests clog the pool and sharing a part can be better. If there are few enough
//! combinations of levels, all are looked at. Otherwise a pattern search goes down from several starts, as there can be
//! several valleys: no member shares, every member shares everything, one member alone does; or the valleys of a coarse
//! grid. At each place it looks at all places that are one step away in the level of one member or of two, goes to the
//! best if that is better, and halves its step if none is, to a step of one server. What it finds has no better
//! neighbour; it need not be the best, and says so.
//!
//! # Source
//!
//! That partial sharing can be best: Song, Paolieri and Golubchik, IEEE CLOUD 2022. The pattern search is Hooke and
//! Jeeves', JACM 8(2), 1961, with diagonal moves.
//!
//! # Assumes
//!
//! A cost that is the same whenever it is asked for. Costs are asked for in batches, so that who knows threads can use
//! them, and no levels are asked for twice.
//!
//! # Complexity
//!
//! `prod (n_i + 1)` costs, or for each start about `2 N^2` costs for each step that is taken.

use super::known::Known;

/// Differences of costs, as parts of them, that are rounding.
const ROUNDING: f64 = 1e-12;

/// How long to search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// The most costs to ask for.
    pub most_evaluations: u64,
    /// The step of the levels of which all combinations are looked at, if there are no more than that: 1 for each
    /// level, and more for a coarse grid, from all whose valleys the search goes down.
    pub step: u32,
}

/// How good what was found is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// No levels cost less: all were looked at.
    Best,
    /// No levels near these cost less.
    LocalBest,
    /// The search was at its limit before it came to an end.
    Stopped,
}

/// Levels of sharing, and what they cost.
#[derive(Debug, Clone, PartialEq)]
pub struct Sharing {
    /// Servers that each member shares.
    pub shared: Vec<u32>,
    /// What all pay together, in the unit of the costs.
    pub cost: f64,
    /// How many costs were asked for.
    pub evaluations: u64,
    /// Whether these levels are the best.
    pub found: Found,
}

/// Costs over the levels of two members: a heat map.
#[derive(Debug, Clone, PartialEq)]
pub struct Map {
    /// Levels of the one.
    pub rows: Vec<u32>,
    /// Levels of the other.
    pub columns: Vec<u32>,
    /// Costs by row and column, in the unit of the costs.
    pub costs: Vec<Vec<f64>>,
}

/// The levels from 0 to `most` in steps, and `most` itself.
///
/// # Panics
///
/// When the step is 0.
pub fn levels(most: u32, step: u32) -> Vec<u32> {
    assert!(step > 0, "a step is at least one server");
    let last = (!most.is_multiple_of(step)).then_some(most);
    (0..=most).step_by(step as usize).chain(last).collect()
}

/// The levels that cost least. Of equally good ones the first in the order of the levels, which share less, or if not
/// all are looked at any, but always the same. `most` says how many servers each member has, and `costs` what all
/// pay at each of some levels.
///
/// ```
/// use bellwether_federation::game::sharing::{Effort, Found, best};
/// // A valley along the diagonal, with its bottom at (3, 4).
/// let cost = |shared: &Vec<u32>| {
///     let (a, b) = (f64::from(shared[0]) - 3.0, f64::from(shared[1]) - 4.0);
///     10.0 * (a - b) * (a - b) + a * a
/// };
/// let costs = |all: &[Vec<u32>]| Ok::<_, ()>(all.iter().map(cost).collect());
/// let found = best(&[1_000, 1_000], &Effort { most_evaluations: 5_000, step: 1 }, costs)?;
/// assert_eq!((found.shared, found.found), (vec![3, 4], Found::LocalBest));
/// # Ok::<(), ()>(())
/// ```
///
/// # Errors
///
/// Returns the errors of `costs`.
///
/// # Panics
///
/// When the step is 0, or `costs` does not answer each question.
pub fn best<E>(
    most: &[u32],
    effort: &Effort,
    costs: impl FnMut(&[Vec<u32>]) -> Result<Vec<f64>, E>,
) -> Result<Sharing, E> {
    let mut search = Search { most, limit: effort.most_evaluations, known: Known::new(costs), best: None };
    let axes: Vec<Vec<u32>> = most.iter().map(|&most| levels(most, effort.step)).collect();
    let places = axes.iter().fold(1_u64, |count, axis| count.saturating_mul(axis.len() as u64));
    let found = if places > effort.most_evaluations {
        let farthest = most.iter().copied().max().unwrap_or(0) / 2;
        search.descend_from(starts(most), farthest.checked_ilog2().map_or(1, |power| 1 << power))?
    } else if effort.step == 1 {
        search.look(&grid(&axes))?;
        Found::Best
    } else {
        let valleys = search.valleys(&axes)?;
        search.descend_from(valleys, effort.step / 2)?
    };
    let (shared, cost) = search.best.unwrap_or_else(|| (vec![0; most.len()], f64::INFINITY));
    Ok(Sharing { shared, cost, evaluations: search.known.evaluations(), found })
}

/// Costs over the levels of two members, while all others share what `shared` says.
///
/// # Errors
///
/// Returns the errors of `costs`.
///
/// # Panics
///
/// When a member is not there, the step is 0, or `costs` does not answer each question.
pub fn map<E>(
    most: &[u32],
    shared: &[u32],
    [row, column]: [usize; 2],
    step: u32,
    mut costs: impl FnMut(&[Vec<u32>]) -> Result<Vec<f64>, E>,
) -> Result<Map, E> {
    let (rows, columns) = (levels(most[row], step), levels(most[column], step));
    let at = |(of_row, of_column): (u32, u32)| {
        let mut levels = shared.to_vec();
        (levels[row], levels[column]) = (of_row, of_column);
        levels
    };
    let places: Vec<Vec<u32>> = rows
        .iter()
        .flat_map(|&of_row| columns.iter().map(move |&of_column| (of_row, of_column)))
        .map(at)
        .collect();
    let costs = costs(&places)?;
    assert_eq!(costs.len(), places.len(), "there is an answer to each question");
    let costs = costs.chunks_exact(columns.len()).map(<[f64]>::to_vec).collect();
    Ok(Map { rows, columns, costs })
}

/// All combinations, the last one's levels fastest.
fn grid(axes: &[Vec<u32>]) -> Vec<Vec<u32>> {
    axes.iter().fold(vec![Vec::new()], |places, axis| {
        let longer = |place: Vec<u32>| axis.iter().map(move |&level| [&place[..], &[level]].concat());
        places.into_iter().flat_map(longer).collect()
    })
}

/// Where to start from: no member shares, all do, each one alone does.
fn starts(most: &[u32]) -> Vec<Vec<u32>> {
    let alone = |member: usize| {
        let only = move |(other, &most): (usize, &u32)| if other == member { most } else { 0 };
        most.iter().enumerate().map(only).collect()
    };
    [vec![0; most.len()], most.to_vec()].into_iter().chain((0..most.len()).map(alone)).collect()
}

struct Search<'a, F> {
    most: &'a [u32],
    limit: u64,
    known: Known<f64, F>,
    best: Option<(Vec<u32>, f64)>,
}

impl<E, F: FnMut(&[Vec<u32>]) -> Result<Vec<f64>, E>> Search<'_, F> {
    /// The first of the cheapest of these places, or nothing where that would take too many evaluations.
    fn look(&mut self, places: &[Vec<u32>]) -> Result<Option<(Vec<u32>, f64)>, E> {
        if self.known.evaluations() + self.known.missing(places) > self.limit {
            return Ok(None);
        }
        let costs = self.known.all(places)?;
        let cheaper = |best: (usize, f64), (place, cost): (usize, f64)| {
            if is_less(cost, best.1) { (place, cost) } else { best }
        };
        let (place, cost) = costs.into_iter().enumerate().fold((0, f64::INFINITY), cheaper);
        if self.best.as_ref().is_none_or(|(_, least)| is_less(cost, *least)) {
            self.best = Some((places[place].clone(), cost));
        }
        Ok(Some((places[place].clone(), cost)))
    }

    /// Looks at all combinations of levels, and returns those that none next to them is better than, the best first.
    fn valleys(&mut self, axes: &[Vec<u32>]) -> Result<Vec<Vec<u32>>, E> {
        let last: Vec<u32> = axes.iter().map(|axis| axis.len() as u32 - 1).collect();
        let at = |places: &[u32]| -> Vec<u32> {
            places.iter().zip(axes).map(|(&place, axis)| axis[place as usize]).collect()
        };
        self.look(&grid(axes))?;
        let mut valleys = Vec::new();
        for places in grid(&last.iter().map(|&last| levels(last, 1)).collect::<Vec<_>>()) {
            let cost = self.known.one(&at(&places))?;
            let next: Vec<Vec<u32>> = around(&places, &last, 1).iter().map(|places| at(places)).collect();
            if !self.known.all(&next)?.iter().any(|next| is_less(*next, cost)) {
                valleys.push((cost, at(&places)));
            }
        }
        valleys.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        Ok(valleys.into_iter().map(|(_, place)| place).collect())
    }

    fn descend_from(&mut self, starts: Vec<Vec<u32>>, step: u32) -> Result<Found, E> {
        for start in starts {
            if !self.descend(start, step)? {
                return Ok(Found::Stopped);
            }
        }
        Ok(Found::LocalBest)
    }

    /// Goes down from a place, and says whether it came to an end.
    fn descend(&mut self, mut place: Vec<u32>, mut step: u32) -> Result<bool, E> {
        let Some((_, mut cost)) = self.look(std::slice::from_ref(&place))? else { return Ok(false) };
        while step > 0 {
            let around = around(&place, self.most, step);
            if around.is_empty() {
                step /= 2;
                continue;
            }
            match self.look(&around)? {
                None => return Ok(false),
                Some((next, lower)) if is_less(lower, cost) => (place, cost) = (next, lower),
                Some(_) => step /= 2,
            }
        }
        Ok(true)
    }
}

/// Places one step away in the level of one member or of two.
fn around(place: &[u32], most: &[u32], step: u32) -> Vec<Vec<u32>> {
    let moved = |member: usize| {
        let level = place[member];
        let ends = [level.saturating_sub(step), level.saturating_add(step).min(most[member])];
        ends.into_iter().filter(move |&end| end != level).map(move |end| (member, end))
    };
    let with = |place: &[u32], (member, level): (usize, u32)| {
        let mut next = place.to_vec();
        next[member] = level;
        next
    };
    let mut around = Vec::new();
    for first in 0..place.len() {
        for one in moved(first).map(|change| with(place, change)) {
            let two = (first + 1..place.len()).flat_map(moved);
            around.extend(two.map(|change| with(&one, change)));
            around.push(one);
        }
    }
    around
}

/// Whether a cost is less than another by more than rounding.
fn is_less(cost: f64, than: f64) -> bool {
    cost < than - ROUNDING * than.abs().min(f64::MAX)
}
