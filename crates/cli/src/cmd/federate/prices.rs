//! The game of prices: each member decides for itself how many servers it lends, and is paid for them.

use std::fmt::Write;

use bellwether_core::InputError;
use bellwether_sched::federation::description::{Description, HOUR_S};
use bellwether_sched::federation::play::{Deviation, Ending, Rules};
use bellwether_sched::federation::prices::{Market, Outcome, Performance, Terms};
use bellwether_sched::federation::sharing::Effort;
use rayon::prelude::*;
use serde::Serialize;

use super::FederateArguments;
use super::report::and;
use super::show::{figure, percent};
use super::value::Valuer;
use crate::args::TableFormat;
use crate::cmd::simulate::show::aligned;
use crate::failure::Failure;

/// Rounds after which nobody waits for an equilibrium any more.
const MOST_ROUNDS: u32 = 60;
/// Choices of all whose welfare is looked at in search of the best.
const MOST_CHOICES: u64 = 1_500;
/// Who has at most this many servers looks at every number of them.
const LOOK_AT_ALL: u32 = 24;
/// Nobody moves for less than this part of what all forward alone: simulated figures are no more exact.
const LEAST_GAIN: f64 = 0.001;

/// Money is in dollars per hour.
#[derive(Debug, Serialize)]
pub(super) struct PricesReport {
    game: &'static str,
    members: Vec<String>,
    gamma: f64,
    prices: Vec<Row>,
    evaluations: u64,
    pub(super) stable: bool,
    sentence: String,
}

#[derive(Debug, Serialize)]
struct Row {
    /// Of what the public cloud takes for the time of a server.
    internal_price: f64,
    internal_dollars_per_hour: f64,
    shared: Vec<u32>,
    /// What each saves against that nobody shares.
    saved_dollars_per_hour: Vec<f64>,
    /// `equilibrium`, `near an equilibrium`, `cycle` or `broken off`.
    ends: &'static str,
    rounds: u32,
    best_shared: Vec<u32>,
    /// Utility of all over the most that was found; absent where there is none to be had.
    efficiency: Option<f64>,
    /// Whether members save something by sharing, and nobody would share more or less.
    holds: bool,
}

/// # Errors
///
/// What the simulation refuses.
pub(super) fn prices(
    federation: &Description,
    valuer: &Valuer,
    arguments: &FederateArguments,
) -> Result<PricesReport, Failure> {
    let place = arguments.federation.display().to_string();
    if federation.members.len() < 2 {
        return Err(InputError::new(place, "one member has nobody to lend to")
            .hint("add a [[member]]")
            .into());
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
    let performance = |choices: &[Vec<u32>]| -> Result<Vec<Vec<Performance>>, Failure> {
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

fn row(ratio: f64, internal_price: f64, outcome: &Outcome, before: &[f64]) -> Row {
    let saved: Vec<f64> =
        before.iter().zip(&outcome.costs).map(|(before, cost)| (before - cost) * HOUR_S).collect();
    let least = LEAST_GAIN * before.iter().sum::<f64>() * HOUR_S;
    Row {
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

fn sentence(rows: &[Row], members: &[String]) -> String {
    let total = |row: &&Row| row.saved_dollars_per_hour.iter().sum::<f64>();
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

pub(super) fn render(report: &PricesReport, format: TableFormat) -> String {
    match format {
        TableFormat::Json => serde_json::to_string_pretty(report).unwrap_or_default(),
        TableFormat::Csv => csv(report),
        TableFormat::Table => table(report),
    }
}

fn levels(levels: &[u32]) -> String {
    levels.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
}

fn table(report: &PricesReport) -> String {
    let mut head =
        vec!["price inside".to_string(), "$/h".into(), format!("share ({})", report.members.join(" "))];
    head.extend(report.members.iter().map(|name| format!("{name} saves $/h")));
    head.extend(["ends", "best for all", "efficiency"].map(str::to_string));
    let row = |row: &Row| {
        let mut cells =
            vec![row.internal_price.to_string(), figure(row.internal_dollars_per_hour), levels(&row.shared)];
        cells.extend(row.saved_dollars_per_hour.iter().map(|saved| figure(*saved)));
        cells.push(row.ends.to_string());
        cells.push(levels(&row.best_shared));
        cells.push(row.efficiency.map_or("-".into(), percent));
        cells
    };
    let mut text = aligned(&std::iter::once(head).chain(report.prices.iter().map(row)).collect::<Vec<_>>());
    let _ = writeln!(text, "{} choices simulated, owners first at their own servers\n", report.evaluations);
    text.push_str(&report.sentence);
    text
}

fn csv(report: &PricesReport) -> String {
    let mut text = String::from(
        "internal_price,internal_dollars_per_hour,member,shared,saved_dollars_per_hour,best_shared,ends,efficiency",
    );
    for row in &report.prices {
        for (place, name) in report.members.iter().enumerate() {
            let _ = write!(
                text,
                "\n{},{},{},{},{},{},{},{}",
                row.internal_price,
                row.internal_dollars_per_hour,
                bellwether_sim::workload::csv_cell(name),
                row.shared[place],
                row.saved_dollars_per_hour[place],
                row.best_shared[place],
                row.ends,
                row.efficiency.map_or(String::new(), |efficiency| efficiency.to_string())
            );
        }
    }
    text
}
