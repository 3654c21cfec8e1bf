//! The game of prices over devices: each member offers what is best for itself at posted rents.

use std::fmt::Write;

use bellwether_core::InputError;
use bellwether_sched::federation::Coalition;
use bellwether_sched::federation::affinity::Posted;
use bellwether_sched::federation::description::Description;
use bellwether_sched::federation::play::{Rules, deviations, play};
use bellwether_sim::workload::csv_cell;
use serde::Serialize;

use super::FederateArguments;
use super::prices::ends;
use super::report::and;
use super::show::{figure, money, percent};
use crate::args::TableFormat;
use crate::cmd::simulate::show::aligned;
use crate::failure::Failure;

/// Parts in which a member offers its devices of a type.
const PARTS: u32 = 4;
const MOST_ROUNDS: u32 = 60;
/// Who has at most this many choices looks at all of them.
const LOOK_AT_ALL: u32 = 1_024;
/// Gains that are rounding, as parts of what all pay alone.
const ROUNDING: f64 = 1e-6;

/// Money is in dollars per hour.
#[derive(Debug, Serialize)]
pub(super) struct PostedReport {
    game: &'static str,
    members: Vec<String>,
    devices: Vec<String>,
    /// Rents at which the market clears.
    market_rents: Vec<f64>,
    /// What all pay the public cloud alone, and at the least.
    alone_dollars_per_hour: f64,
    least_dollars_per_hour: f64,
    rows: Vec<Row>,
    pub(super) stable: bool,
    sentence: String,
}

#[derive(Debug, Serialize)]
struct Row {
    /// Rents as parts of the market's.
    rents: f64,
    /// What all offered in the beginning: `everything` or `nothing`.
    start: &'static str,
    /// Devices that each member offers in the end, by type.
    offered: Vec<Vec<f64>>,
    saved_dollars_per_hour: Vec<f64>,
    /// What the members save by themselves, over what they could save.
    efficiency: Option<f64>,
    ends: &'static str,
}

/// # Errors
///
/// A description without classes, or numbers of which no prices can be found.
pub(super) fn posted(
    federation: &Description,
    arguments: &FederateArguments,
) -> Result<PostedReport, Failure> {
    let place = arguments.federation.display().to_string();
    let Some(fluid) = federation.affinity_game()? else {
        return Err(InputError::new(place, "this game needs jobs or classes of jobs")
            .hint("write [jobs] or [[class]]")
            .into());
    };
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
    let holds = |row: &&Row| {
        row.ends == "equilibrium" && row.saved_dollars_per_hour.iter().sum::<f64>() > ROUNDING * alone
    };
    let total = |row: &&Row| row.saved_dollars_per_hour.iter().sum::<f64>();
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
            and(&offers(row, &members, fluid.types())),
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

fn settle(market: &Posted, rents: f64, start: &'static str, levels: &[u32], [alone, least]: [f64; 2]) -> Row {
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
    Row { rents, start, offered, saved_dollars_per_hour: saved, efficiency, ends }
}

/// `east 4 v100 and 2 k80`, for each member.
fn offers(row: &Row, members: &[String], devices: &[String]) -> Vec<String> {
    let of = |(name, offered): (&String, &Vec<f64>)| {
        let some = offered.iter().zip(devices).filter(|(count, _)| **count > 0.0);
        let words: Vec<String> = some.map(|(count, device)| format!("{count} {device}")).collect();
        format!("{name} {}", if words.is_empty() { "nothing".to_string() } else { words.join(" + ") })
    };
    members.iter().zip(&row.offered).map(of).collect()
}

pub(super) fn render(report: &PostedReport, format: TableFormat) -> String {
    match format {
        TableFormat::Json => serde_json::to_string_pretty(report).unwrap_or_default(),
        TableFormat::Csv => csv(report),
        TableFormat::Table => table(report),
    }
}

fn table(report: &PostedReport) -> String {
    let mut head = vec!["rents".to_string(), "from".into()];
    head.extend(report.members.iter().map(|name| format!("{name} saves $/h")));
    head.extend(["efficiency", "ends", "offers"].map(str::to_string));
    let row = |row: &Row| {
        let mut cells = vec![row.rents.to_string(), row.start.to_string()];
        cells.extend(row.saved_dollars_per_hour.iter().map(|saved| figure(*saved)));
        cells.push(row.efficiency.map_or("-".into(), percent));
        cells.push(row.ends.to_string());
        cells.push(offers(row, &report.members, &report.devices).join(", "));
        cells
    };
    let mut text = aligned(&std::iter::once(head).chain(report.rows.iter().map(row)).collect::<Vec<_>>());
    let rents = report.devices.iter().zip(&report.market_rents);
    let rents: Vec<String> = rents.map(|(device, rent)| format!("{device} {}", money(*rent))).collect();
    let _ = writeln!(text, "the market's rents for an hour: {}\n", rents.join(", "));
    text.push_str(&report.sentence);
    text
}

fn csv(report: &PostedReport) -> String {
    let mut text = String::from("rents,start,member,offered,saved_dollars_per_hour,efficiency,ends");
    for row in &report.rows {
        let offered = offers(row, &report.members, &report.devices);
        for ((name, offered), saved) in report.members.iter().zip(offered).zip(&row.saved_dollars_per_hour) {
            let offered = offered.strip_prefix(name.as_str()).unwrap_or(&offered).trim();
            let _ = write!(
                text,
                "\n{},{},{},{},{saved},{},{}",
                row.rents,
                row.start,
                csv_cell(name),
                csv_cell(offered),
                row.efficiency.map_or(String::new(), |efficiency| efficiency.to_string()),
                row.ends
            );
        }
    }
    text
}
