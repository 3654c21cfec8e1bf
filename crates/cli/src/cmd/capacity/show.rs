//! The answer as a table, as JSON, or as CSV; and how it says no.

use std::fmt::{Display, Write};

use bellwether_answers::capacity::{Answer, CandidateRow};
use bellwether_render::csv::Csv;
use bellwether_render::duration::written;
use bellwether_render::figure::{money, percent};
use bellwether_render::{self as render, table::aligned};

use crate::options::TableFormat;

/// Rows of a table that is still read.
const ROWS_MAX: usize = 16;

pub(super) fn render(found: &Answer, format: TableFormat) -> String {
    match format {
        TableFormat::Table => table(found),
        TableFormat::Json => render::json(found),
        TableFormat::Csv => csv(found),
    }
}

fn table(found: &Answer) -> String {
    let mut head = vec!["cluster", "policy", "price", "cost"];
    let names = &found.figures;
    let titles: Vec<String> = names.iter().map(|name| title(name)).collect();
    head.extend(titles.iter().map(String::as_str));
    let with_runs = found.candidates.iter().any(|row| row.runs > 1);
    if with_runs {
        head.push("runs that hold");
    }
    head.extend(["used", ""]);
    let mut rows: Vec<Vec<String>> = vec![head.into_iter().map(str::to_owned).collect()];
    for (place, row) in shown(found) {
        let mut cells = vec![
            row.cluster.clone(),
            row.policy.clone(),
            format!("{}/h", money(row.price_dollars_per_hour)),
            money(row.cost_dollars),
        ];
        cells.extend(names.iter().map(|name| figure(name, row.figures.get(name).copied())));
        if with_runs {
            cells.push(format!("{} of {}", row.runs_held, row.runs));
        }
        cells.push(percent(row.utilisation));
        cells.push(match () {
            () if found.choice == Some(place) => "← choice".into(),
            () if row.holds => String::new(),
            () => "no".into(),
        });
        rows.push(cells);
    }
    let mut text = aligned(&rows);
    if found.choice.is_some() {
        let _ = writeln!(text, "{}", found.reason);
    }
    for point in &found.front {
        let row = point.candidate.and_then(|place| found.candidates.get(place));
        let what = row.map_or("no candidate".into(), |row| {
            format!("{} under {}, {}", row.cluster, row.policy, money(row.cost_dollars))
        });
        let _ = writeln!(text, "{}: {what}", point.objective);
    }
    text.trim_end().to_owned()
}

/// The choice, and of the others those that nothing else beats.
fn shown(found: &Answer) -> Vec<(usize, &CandidateRow)> {
    let rows = || found.candidates.iter().enumerate();
    let best: Vec<(usize, &CandidateRow)> =
        rows().filter(|(place, row)| row.is_pareto_optimal || found.choice == Some(*place)).collect();
    if best.len() <= ROWS_MAX {
        return best;
    }
    let count = best.len();
    let mut places: Vec<usize> = (0..ROWS_MAX).map(|number| number * (count - 1) / (ROWS_MAX - 1)).collect();
    places.extend(best.iter().position(|(place, _)| found.choice == Some(*place)));
    places.sort_unstable();
    places.dedup();
    places.into_iter().map(|place| best[place]).collect()
}

/// The title of a column: `p95_completion_s` is p95 completion.
fn title(name: &str) -> String {
    name.strip_suffix("_s").unwrap_or(name).replace('_', " ")
}

fn figure(name: &str, value: Option<f64>) -> String {
    match value {
        None => "-".into(),
        Some(seconds) if name.ends_with("_s") => written(seconds),
        Some(part) if name == "deadlines_met" => percent(part),
        Some(ratio) => format!("{ratio:.2}"),
    }
}

/// Why nothing was chosen, and what could be held.
pub(super) fn refusal(found: &Answer) -> String {
    let mut text = found.reason.clone();
    for relaxation in &found.relaxations {
        let Some(row) = found.candidates.get(relaxation.candidate) else { continue };
        let (say, cost) = (&relaxation.say, money(row.cost_dollars));
        let _ =
            write!(text, "\n  hint: say --objective '{say}': {} under {}, {cost}", row.cluster, row.policy);
    }
    if found.relaxations.is_empty() {
        text.push_str(match found.counts.candidates == found.counts.unable {
            true => "\n  hint: raise --max-machines, or add machines to the catalogue",
            false => {
                "\n  hint: no single objective stands in the way: relax several, raise --max-machines, or add machines"
            }
        });
    }
    text
}

fn csv(found: &Answer) -> String {
    let names = &found.figures;
    let head = ["cluster", "policy", "price_dollars_per_hour", "cost_dollars"];
    let tail =
        ["holds", "pareto_optimal", "runs", "runs_held", "makespan_s", "utilisation", "revoked", "choice"];
    let mut csv = Csv::new(head.into_iter().chain(names.iter().map(String::as_str)).chain(tail));
    for (place, row) in found.candidates.iter().enumerate() {
        let is_choice = found.choice == Some(place);
        let head: [&dyn Display; 4] =
            [&row.cluster, &row.policy, &row.price_dollars_per_hour, &row.cost_dollars];
        let figures =
            names.iter().filter_map(|name| row.figures.get(name)).map(|value| value as &dyn Display);
        let tail: [&dyn Display; 8] = [
            &row.holds,
            &row.is_pareto_optimal,
            &row.runs,
            &row.runs_held,
            &row.makespan_s,
            &row.utilisation,
            &row.revoked,
            &is_choice,
        ];
        let cells: Vec<&dyn Display> = head.into_iter().chain(figures).chain(tail).collect();
        csv.row(&cells);
    }
    csv.text()
}
