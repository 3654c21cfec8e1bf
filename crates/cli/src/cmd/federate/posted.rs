//! The game of posted rents as a table, as JSON, or as CSV.

use std::fmt::Write;

use bellwether_federation::answer::format::{figure, money};
use bellwether_federation::answer::{PostedReport, PostedRow};
use bellwether_render as render;
use bellwether_render::csv::{Csv, cell};
use bellwether_render::figure::percent;
use bellwether_render::table::aligned;

use crate::options::TableFormat;

pub(super) fn render(report: &PostedReport, format: TableFormat) -> String {
    match format {
        TableFormat::Json => render::json(report),
        TableFormat::Csv => csv(report),
        TableFormat::Table => table(report),
    }
}

fn table(report: &PostedReport) -> String {
    let mut head = vec!["rents".to_string(), "from".into()];
    head.extend(report.members.iter().map(|name| format!("{name} saves $/h")));
    head.extend(["efficiency", "ends", "offers"].map(str::to_string));
    let row = |row: &PostedRow| {
        let mut cells = vec![row.rents.to_string(), row.start.to_string()];
        cells.extend(row.saved_dollars_per_hour.iter().map(|saved| figure(*saved)));
        cells.push(row.efficiency.map_or("-".into(), percent));
        cells.push(row.ends.to_string());
        cells.push(row.offers(&report.members, &report.devices).join(", "));
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
    let mut csv =
        Csv::new(["rents", "start", "member", "offered", "saved_dollars_per_hour", "efficiency", "ends"]);
    for row in &report.rows {
        let offered = row.offers(&report.members, &report.devices);
        for ((name, offered), saved) in report.members.iter().zip(offered).zip(&row.saved_dollars_per_hour) {
            let offered = offered.strip_prefix(name.as_str()).unwrap_or(&offered).trim();
            csv.row(&[&row.rents, &row.start, name, &offered, saved, &cell(row.efficiency), &row.ends]);
        }
    }
    csv.text()
}
