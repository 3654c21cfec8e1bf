//! A plan as a table, as JSON, or as CSV; and how it says no.

use std::fmt::{Display, Write};

use bellwether_core::plan::{Candidate, Plan};
use bellwether_core::span::written_to_the_second;
use bellwether_render::csv::{Csv, cell};
use bellwether_render::duration::written;
use bellwether_render::figure::{money, percent};
use bellwether_render::{self as render, table::aligned};

use crate::options::TableFormat;

/// Rows of a table that is still read.
const ROWS_MAX: usize = 16;

pub(super) fn render(plan: &Plan, format: TableFormat) -> String {
    match format {
        TableFormat::Table => table(plan),
        TableFormat::Json => render::json(plan),
        TableFormat::Csv => csv(plan),
    }
}

fn table(plan: &Plan) -> String {
    let with_deadline = plan.constraints.deadline_s.is_some();
    let mut head =
        vec!["machines", "workers", "time", "95 % within", "cost", "95 % below", "losses", "checkpoint"];
    if with_deadline {
        head.push("meets deadline");
    }
    head.push("");
    let shown = rows(plan);
    let mut rows: Vec<Vec<String>> = vec![head.into_iter().map(str::to_string).collect()];
    for &place in &shown {
        let candidate = &plan.candidates[place];
        let checkpoint = candidate.checkpoint_period_s.map_or("-".to_string(), written);
        let mut row = vec![
            candidate.words(),
            candidate.workers.to_string(),
            time(candidate.time_s, plan.constraints.deadline_s),
            time(candidate.p95_time_s, plan.constraints.deadline_s),
            money(candidate.cost_dollars),
            money(candidate.p95_cost_dollars),
            if candidate.losses > 0.0 { format!("{:.2}", candidate.losses) } else { "-".to_string() },
            checkpoint,
        ];
        if with_deadline {
            row.push(percent(candidate.meets_deadline.unwrap_or(0.0)));
        }
        row.push(if plan.choice == Some(place) { "← choice".into() } else { String::new() });
        rows.push(row);
    }
    let mut text = aligned(&rows);
    let more = plan.candidates.len() - shown.len();
    if more > 0 {
        let _ = writeln!(text, "{more} more that nothing else beats: --format csv or json has all");
    }
    if let Some(chosen) = plan.chosen() {
        let _ = writeln!(text, "{}", plan.reason);
        for line in about(chosen) {
            let _ = writeln!(text, "{line}");
        }
    }
    text.trim_end().to_string()
}

/// A time that misses the deadline does not look as if it met it.
fn time(seconds: f64, deadline_s: Option<f64>) -> String {
    match deadline_s.filter(|limit_s| seconds > *limit_s && written(seconds) == written(*limit_s)) {
        Some(_) => written_to_the_second(seconds),
        None => written(seconds),
    }
}

/// What the figures of the choice alone do not say.
fn about(chosen: &Candidate) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(period_s) = chosen.checkpoint_period_s {
        lines.push(format!("checkpoints: one after every {} of work", written(period_s)));
    }
    let shares = chosen.machines.iter().filter(|machines| !machines.virtual_nodes.is_empty());
    let share = |counts: &[u32]| counts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let shares: Vec<String> =
        shares.map(|machines| format!("{} on {}", share(&machines.virtual_nodes), machines.device)).collect();
    if !shares.is_empty() {
        lines.push(format!("virtual nodes of each worker: {}", shares.join("; ")));
    }
    lines.extend(stale(chosen));
    if let Some(why) = &chosen.extrapolated {
        lines.push(format!("extrapolated: {why}"));
    }
    lines
}

/// What staleness does to the choice.
fn stale(chosen: &Candidate) -> Option<String> {
    let mean = chosen.staleness.filter(|mean| *mean > 0.0)?;
    Some(match chosen.work_factor {
        Some(factor) => format!(
            "staleness: {mean:.1} updates on average; at worst that takes {factor:.2} times the samples to the loss, which is counted"
        ),
        None => format!(
            "staleness: {mean:.1} updates on average; the steps are the same, the accuracy may differ (--target-loss counts what it may cost)"
        ),
    })
}

/// The choice, the fastest, the cheapest, and of the others every so-manieth.
fn rows(plan: &Plan) -> Vec<usize> {
    let count = plan.candidates.len();
    if count <= ROWS_MAX {
        return (0..count).collect();
    }
    let cost = |place: &usize| plan.candidates[*place].cost_dollars;
    let cheapest = (0..count).min_by(|a, b| cost(a).total_cmp(&cost(b)));
    let mut rows: Vec<usize> = plan.choice.into_iter().chain(cheapest).collect();
    let spread = ROWS_MAX - rows.len();
    rows.extend((0..spread).map(|number| number * (count - 1) / (spread - 1)));
    rows.sort_unstable();
    rows.dedup();
    rows
}

/// Why nothing was chosen, and what would have to be said.
pub(super) fn refusal(plan: &Plan) -> String {
    let mut text = plan.reason.clone();
    for relaxed in &plan.relaxations {
        let (time, cost) = (written(relaxed.time_s), money(relaxed.cost_dollars));
        let _ = write!(text, "\n  hint: say {}: {}, {time}, {cost}", relaxed.say, relaxed.machines);
    }
    if plan.relaxations.is_empty() {
        text.push_str(
            "\n  hint: no single wish stands in the way: relax several, or add machines to the catalogue",
        );
    }
    text
}

fn csv(plan: &Plan) -> String {
    let mut head = vec![
        "machines",
        "workers",
        "examples_per_s",
        "time_s",
        "p95_time_s",
        "cost_dollars",
        "p95_cost_dollars",
        "meets_deadline",
        "losses",
        "checkpoint_period_s",
        "runs",
        "choice",
    ];
    if plan.candidates.iter().any(|candidate| candidate.way.is_some()) {
        head.extend(["protocol", "servers", "staleness", "work_factor"]);
    }
    let columns = head.len();
    let mut csv = Csv::new(head);
    for (place, candidate) in plan.candidates.iter().enumerate() {
        let Candidate { workers, examples_per_s, time_s, p95_time_s, cost_dollars, .. } = candidate;
        let cells: [&dyn Display; 16] = [
            &candidate.words(),
            workers,
            examples_per_s,
            time_s,
            p95_time_s,
            cost_dollars,
            &candidate.p95_cost_dollars,
            &cell(candidate.meets_deadline),
            &candidate.losses,
            &cell(candidate.checkpoint_period_s),
            &candidate.runs,
            &(plan.choice == Some(place)),
            &cell(candidate.way.as_ref().map(|way| &way.policy)),
            &cell(candidate.way.as_ref().map(|way| way.servers)),
            &cell(candidate.staleness),
            &cell(candidate.work_factor),
        ];
        csv.row(&cells[..columns]);
    }
    csv.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_beyond_the_deadline_is_not_rounded_to_it() {
        assert_eq!(time(612.0, Some(600.0)), "10min12s");
        assert_eq!(
            [time(612.0, None), time(588.0, Some(600.0)), time(700.0, Some(600.0))],
            ["10min", "9min48s", "12min"]
        );
    }
}
