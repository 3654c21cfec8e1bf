//! The game of prices over devices: each member offers what is best for itself at posted rents.

use serde::Serialize;

use super::Unanswered;
use super::format::{and, money};
use super::prices::ends;
use crate::description::Description;
use crate::game::Coalition;
use crate::game::affinity::Posted;
use crate::game::play::{Rules, deviations, play};

/// Parts in which a member offers its devices of a type.
const PARTS: u32 = 4;
const MOST_ROUNDS: u32 = 60;
/// A member with at most this many choices looks at all of them.
const LOOK_AT_ALL: u32 = 1_024;
/// Gains that are rounding, as parts of what all pay alone.
const ROUNDING: f64 = 1e-6;

/// What happens at each of some rents. Money is in dollars per hour.
#[derive(Debug, Clone, Serialize)]
pub struct PostedReport {
    /// `prices`.
    pub game: &'static str,
    /// The names of the members, in the order of the description.
    pub members: Vec<String>,
    /// Types of device.
    pub devices: Vec<String>,
    /// Rents at which the market clears, by type.
    pub market_rents: Vec<f64>,
    /// What all pay the public cloud alone.
    pub alone_dollars_per_hour: f64,
    /// What they pay at the least.
    pub least_dollars_per_hour: f64,
    /// Two rows for each factor on the rents.
    pub rows: Vec<PostedRow>,
    /// Whether some rents lead to an equilibrium at which members save.
    pub stable: bool,
    /// The advice, in one sentence.
    pub sentence: String,
}

/// What happens at posted rents; lists are by member.
#[derive(Debug, Clone, Serialize)]
pub struct PostedRow {
    /// Rents as parts of the market's.
    pub rents: f64,
    /// What all offered in the beginning: `everything` or `nothing`.
    pub start: &'static str,
    /// Devices that each member offers in the end, by type.
    pub offered: Vec<Vec<f64>>,
    /// What each saves against being alone.
    pub saved_dollars_per_hour: Vec<f64>,
    /// What the members save by themselves, over what they could save.
    pub efficiency: Option<f64>,
    /// `equilibrium`, `near an equilibrium`, `cycle` or `broken off`.
    pub ends: &'static str,
}

/// What each member offers by itself, at rents that are each of the description's prices inside times the market's.
///
/// # Errors
///
/// Returns [`Unanswered::NoClasses`], or an error if no prices can be found for these numbers.
pub fn posted(federation: &Description) -> Result<PostedReport, Unanswered> {
    let fluid = federation.affinity_game()?.ok_or(Unanswered::NoClasses)?;
    let owen = fluid.owen()?;
    let rents = owen.rents.first().cloned().unwrap_or_default();
    let alone: f64 = (0..fluid.members().len()).map(|member| fluid.cost(Coalition::of([member]))).sum();
    let mut rows = Vec::new();
    for &factor in &federation.prices.internal {
        let scaled: Vec<f64> = rents.iter().map(|rent| factor * rent).collect();
        let market = Posted::new(&fluid, scaled, PARTS)?;
        let starts = [("everything", market.most()), ("nothing", vec![0; fluid.members().len()])];
        for (start, levels) in starts {
            rows.push(settle(&market, factor, start, &levels, [alone, owen.cost]));
        }
    }
    let holds = |row: &&PostedRow| {
        row.ends == "equilibrium" && row.saved_dollars_per_hour.iter().sum::<f64>() > ROUNDING * alone
    };
    let total = |row: &&PostedRow| row.saved_dollars_per_hour.iter().sum::<f64>();
    let best = rows.iter().rev().filter(holds).max_by(|a, b| total(a).total_cmp(&total(b)));
    let members: Vec<String> = fluid.members().iter().map(|member| member.name.clone()).collect();
    let sentence = match best {
        None => {
            "At none of these rents do the members come to offer anything and leave it at that.".to_string()
        }
        Some(row) => format!(
            "At {} of the market's rents, beginning with {}, each offers what is best for itself ({}); together they save {} of the {} per hour that sharing could save.",
            row.rents,
            row.start,
            and(&row.offers(&members, fluid.types())),
            money(total(&row)),
            money(alone - owen.cost)
        ),
    };
    Ok(PostedReport {
        game: "prices",
        stable: best.is_some(),
        devices: fluid.types().to_vec(),
        members,
        market_rents: rents,
        alone_dollars_per_hour: alone,
        least_dollars_per_hour: owen.cost,
        rows,
        sentence,
    })
}

fn settle(
    market: &Posted,
    rents: f64,
    start: &'static str,
    levels: &[u32],
    [alone, least]: [f64; 2],
) -> PostedRow {
    let rules = Rules {
        most: market.most(),
        most_rounds: MOST_ROUNDS,
        least_gain: ROUNDING * alone,
        look_at_all: LOOK_AT_ALL,
    };
    let utilities = |all: &[Vec<u32>]| -> Result<Vec<Vec<f64>>, std::convert::Infallible> {
        Ok(all.iter().map(|levels| market.savings(levels)).collect())
    };
    let Ok(found) = play(levels, &rules, utilities);
    let Ok(deviations) = deviations(&found.levels, &rules, utilities);
    let saved = market.savings(&found.levels);
    let possible = alone - least;
    let efficiency = (possible > ROUNDING * alone).then(|| saved.iter().sum::<f64>() / possible);
    let offered =
        found.levels.iter().enumerate().map(|(member, level)| market.offered(member, *level)).collect();
    let ends = ends(&found.ending, &deviations);
    PostedRow { rents, start, offered, saved_dollars_per_hour: saved, efficiency, ends }
}

impl PostedRow {
    /// `east 4 v100 + 2 k80`, for each of these members, of these types of device.
    pub fn offers(&self, members: &[String], devices: &[String]) -> Vec<String> {
        let of = |(name, offered): (&String, &Vec<f64>)| {
            let some = offered.iter().zip(devices).filter(|(count, _)| **count > 0.0);
            let words: Vec<String> = some.map(|(count, device)| format!("{count} {device}")).collect();
            format!("{name} {}", if words.is_empty() { "nothing".to_string() } else { words.join(" + ") })
        };
        members.iter().zip(&self.offered).map(of).collect()
    }
}
