//! How many servers each member should share, and a picture of what that saves.

use bellwether_core::InputError;
use bellwether_sched::federation::description::Description;
use bellwether_sched::federation::sharing::{self, Effort, Found};

use super::plot::HeatMap;
use super::savings::dollars_per_hour;
use super::value::{Outcome, Valuer};
use crate::failure::Failure;

/// Combinations of levels up to which all are looked at.
const MOST_LEVELS: u64 = 1_000;
/// Steps along a side of the picture.
const STEPS: u32 = 25;

/// The levels at which all together forward least, and how good they are, in words.
///
/// # Errors
///
/// What the models refuse.
pub(super) fn best(federation: &Description, valuer: &Valuer) -> Result<(Vec<u32>, String), Failure> {
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
        super::report::and(&shares),
        found.evaluations
    );
    Ok((found.shared, note))
}

/// Savings over the levels of two members, the first two where none are named.
///
/// # Errors
///
/// A member that is not there, fewer than two, or what the models refuse.
pub(super) fn map(
    federation: &Description,
    valuer: &Valuer,
    shared: &[u32],
    alone: &[Outcome],
    named: &[String],
) -> Result<HeatMap, Failure> {
    let members = &federation.members;
    let place = |name: &String| {
        members.iter().position(|member| member.name == *name).ok_or_else(|| {
            let known: Vec<String> = members.iter().map(|member| member.name.clone()).collect();
            InputError::new("--plot-members", format!("there is no member `{name}`"))
                .hint(format!("the members are {}", super::report::and(&known)))
        })
    };
    let pair = match named {
        [] if members.len() > 1 => [0, 1],
        [a, b] if a != b => [place(a)?, place(b)?],
        [] => return Err(InputError::new("--plot", "one member has nobody to share with").into()),
        _ => {
            return Err(InputError::new("--plot-members", "name two members, for example north,south").into());
        }
    };
    let most: Vec<u32> = members.iter().map(|member| member.servers).collect();
    let step = pair.map(|member| most[member]).into_iter().max().unwrap_or(1).div_ceil(STEPS).max(1);
    let map = sharing::map(&most, shared, pair, step, |levels| valuer.forwarded_per_s(levels))?;
    let apart_per_s: f64 = alone.iter().map(Outcome::total_per_s).sum();
    let saved = |forwarded: &f64| dollars_per_hour(valuer.jobs(), apart_per_s - forwarded);
    Ok(HeatMap {
        title: "Savings in dollars per hour, by the servers that two members share".to_string(),
        members: pair.map(|member| members[member].name.clone()),
        savings: map.costs.iter().flatten().map(saved).collect(),
        levels: [map.rows, map.columns],
    })
}
