//! The game of prices: each member decides for itself how many servers it lends, and is paid for them.

use rayon::prelude::*;
use serde::Serialize;

use super::format::{and, figure};
use super::{Unanswered, Valuer};
use crate::description::HOUR_S;
use crate::game::play::{Deviation, Ending, Rules};
use crate::game::prices::{Market, Outcome, Performance, Terms};
use crate::game::sharing::Effort;

/// Rounds after which the search for an equilibrium ends.
const MOST_ROUNDS: u32 = 60;
/// Choices of all whose welfare is looked at in search of the best.
const MOST_CHOICES: u64 = 1_500;
/// A member with at most this many servers looks at every number of them.
const LOOK_AT_ALL: u32 = 24;
/// No member moves for less than this part of what all forward alone: simulated figures are no more exact.
const LEAST_GAIN: f64 = 0.001;

/// What happens at each of some prices inside. Money is in dollars per hour.
#[derive(Debug, Clone, Serialize)]
pub struct PricesReport {
    /// `prices`.
    pub game: &'static str,
    /// The names of the members, in the order of the description.
    pub members: Vec<String>,
    /// How much a member minds that its servers are busier, 0 (not) to 1.
    pub gamma: f64,
    /// One row for each price inside.
    pub prices: Vec<PriceRow>,
    /// Choices of all that were simulated.
    pub evaluations: u64,
    /// Whether some price leads to an equilibrium at which members save.
    pub stable: bool,
    /// The advice, in one sentence.
    pub sentence: String,
}

/// What happens at a price inside; lists are by member.
#[derive(Debug, Clone, Serialize)]
pub struct PriceRow {
    /// Of what the public cloud takes for the time of a server.
    pub internal_price: f64,
    /// The same in dollars for the hour of a server.
    pub internal_dollars_per_hour: f64,
    /// Servers that each shares in the end.
    pub shared: Vec<u32>,
    /// What each saves compared with no sharing.
    pub saved_dollars_per_hour: Vec<f64>,
    /// `equilibrium`, `near an equilibrium`, `cycle` or `broken off`.
    pub ends: &'static str,
    /// Rounds that were played.
    pub rounds: u32,
    /// What each would share if welfare were largest.
    pub best_shared: Vec<u32>,
    /// Utility of all over the most that was found; absent where none was found.
    pub efficiency: Option<f64>,
    /// Whether members save something by sharing, and none would share more or less.
    pub holds: bool,
}

/// How much each member lends by itself, at each of the description's prices inside.
///
/// # Errors
///
/// Returns [`Unanswered::OneMember`], or what the simulation refuses.
pub fn prices(valuer: &Valuer) -> Result<PricesReport, Unanswered> {
    let federation = valuer.federation();
    if federation.members.len() < 2 {
        return Err(Unanswered::OneMember);
    }
    let jobs = valuer.jobs();
    let most: Vec<u32> = federation.members.iter().map(|member| member.servers).collect();
    let alone = valuer.lending(&vec![0; most.len()])?;
    let before: Vec<f64> = alone.iter().map(|of| of.forwarded_per_s * jobs.saved_dollars()).collect();
    let rules = Rules {
        most,
        most_rounds: MOST_ROUNDS,
        least_gain: LEAST_GAIN * before.iter().sum::<f64>(),
        look_at_all: LOOK_AT_ALL,
    };
    let effort = Effort { most_evaluations: MOST_CHOICES, step: 1 };
    let performance = |choices: &[Vec<u32>]| -> Result<Vec<Vec<Performance>>, Unanswered> {
        choices.par_iter().map(|shared| valuer.lending(shared)).collect()
    };
    let mut market = Market::new(rules, effort, performance);
    let mut rows = Vec::new();
    for &ratio in &federation.prices.internal {
        let internal_price = ratio * (jobs.saved_dollars() / jobs.mean_time_s);
        let gamma = federation.prices.gamma;
        let terms = Terms { public_price: jobs.saved_dollars(), internal_price, gamma, ..Terms::default() };
        let outcome = market.settle(&valuer.shared(), &terms)?;
        rows.push(row(ratio, internal_price, &outcome, &before));
    }
    let members: Vec<String> = federation.members.iter().map(|member| member.name.clone()).collect();
    let sentence = sentence(&rows, &members);
    Ok(PricesReport {
        game: "prices",
        stable: rows.iter().any(|row| row.holds),
        members,
        gamma: federation.prices.gamma,
        prices: rows,
        evaluations: market.evaluations(),
        sentence,
    })
}

fn row(ratio: f64, internal_price: f64, outcome: &Outcome, before: &[f64]) -> PriceRow {
    let saved: Vec<f64> =
        before.iter().zip(&outcome.costs).map(|(before, cost)| (before - cost) * HOUR_S).collect();
    let least = LEAST_GAIN * before.iter().sum::<f64>() * HOUR_S;
    PriceRow {
        internal_price: ratio,
        internal_dollars_per_hour: internal_price * HOUR_S,
        shared: outcome.play.levels.clone(),
        holds: outcome.is_equilibrium() && saved.iter().sum::<f64>() > least,
        saved_dollars_per_hour: saved,
        ends: ends(&outcome.play.ending, &outcome.deviations),
        rounds: outcome.play.rounds,
        best_shared: outcome.best.shared.clone(),
        efficiency: outcome.efficiency,
    }
}

/// How a play ended, in words, where these could still gain by a change of their own.
pub(super) fn ends(ending: &Ending, deviations: &[Deviation]) -> &'static str {
    match ending {
        Ending::Equilibrium { .. } if deviations.is_empty() => "equilibrium",
        Ending::Equilibrium { .. } => "near an equilibrium",
        Ending::Cycle(_) => "cycle",
        Ending::BrokenOff => "broken off",
    }
}

fn sentence(rows: &[PriceRow], members: &[String]) -> String {
    let total = |row: &&PriceRow| row.saved_dollars_per_hour.iter().sum::<f64>();
    let best = rows.iter().filter(|row| row.holds).max_by(|a, b| total(a).total_cmp(&total(b)));
    let Some(row) = best else {
        return "At none of these prices do the members come to share anything and leave it at that.".into();
    };
    let shares: Vec<String> =
        members.iter().zip(&row.shared).map(|(name, shared)| format!("{name} {shared}")).collect();
    format!(
        "Pay ${:.2} for a lent server's hour ({} of the public price): then each shares what is best for itself ({}), and all together save ${}/h.",
        row.internal_dollars_per_hour,
        row.internal_price,
        and(&shares),
        figure(row.saved_dollars_per_hour.iter().sum())
    )
}
