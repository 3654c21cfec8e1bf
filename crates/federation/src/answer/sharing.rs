//! How many servers each member should share, and what other numbers save.

use super::format::and;
use super::savings::dollars_per_hour;
use super::{Outcome, Unanswered, Valuer};
use crate::game::sharing::{self, Effort, Found};

/// Combinations of levels up to which all are looked at.
const MOST_LEVELS: u64 = 1_000;
/// Steps along a side of a [`SavingsMap`].
const STEPS: u32 = 25;

/// Sharing levels that were searched for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BestLevels {
    /// Servers that each member should share.
    pub shared: Vec<u32>,
    /// What they are and how good, in words.
    pub note: String,
}

/// What all save, over the sharing levels of two members.
#[derive(Debug, Clone, PartialEq)]
pub struct SavingsMap {
    /// Servers that each of the two shares, rising.
    pub levels: [Vec<u32>; 2],
    /// Savings in dollars per hour: those of the first member's first level, over the second's levels, and so on.
    pub savings: Vec<f64>,
}

/// The levels at which all together forward least.
///
/// # Errors
///
/// Returns what the models refuse.
pub fn best_levels(valuer: &Valuer) -> Result<BestLevels, Unanswered> {
    let federation = valuer.federation();
    let most: Vec<u32> = federation.members.iter().map(|member| member.servers).collect();
    let effort = Effort { most_evaluations: MOST_LEVELS, step: 1 };
    let found = sharing::best(&most, &effort, |levels| valuer.forwarded_per_s(levels))?;
    let how = match found.found {
        Found::Best => "no other levels forward less",
        Found::LocalBest => "no levels near these forward less",
        Found::Stopped => "the search was broken off, others may forward less",
    };
    let shares: Vec<String> = federation
        .members
        .iter()
        .zip(&found.shared)
        .map(|(m, level)| format!("{} {level}", m.name))
        .collect();
    let note = format!(
        "best sharing levels: {} ({} combinations looked at; {how})",
        and(&shares),
        found.evaluations
    );
    Ok(BestLevels { shared: found.shared, note })
}

/// Savings over the levels of two members, where the others share as many servers as `shared` says. `alone` is what
/// [`Valuer::alone`] says.
///
/// # Errors
///
/// Returns what the models refuse.
///
/// # Panics
///
/// Returns an error if the two are not members, or one is named twice.
pub fn map(
    valuer: &Valuer,
    shared: &[u32],
    alone: &[Outcome],
    pair: [usize; 2],
) -> Result<SavingsMap, Unanswered> {
    let most: Vec<u32> = valuer.federation().members.iter().map(|member| member.servers).collect();
    let step = pair.map(|member| most[member]).into_iter().max().unwrap_or(1).div_ceil(STEPS).max(1);
    let map = sharing::map(&most, shared, pair, step, |levels| valuer.forwarded_per_s(levels))?;
    let apart_per_s: f64 = alone.iter().map(Outcome::total_per_s).sum();
    let saved = |forwarded: &f64| dollars_per_hour(valuer.jobs(), apart_per_s - forwarded);
    Ok(SavingsMap {
        savings: map.costs.iter().flatten().map(saved).collect(),
        levels: [map.rows, map.columns],
    })
}
