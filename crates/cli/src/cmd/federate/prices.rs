//! The game of prices as a table, as JSON, or as CSV.

use std::fmt::Write;

use bellwether_federation::answer::format::figure;
use bellwether_federation::answer::{PriceRow, PricesReport};
use bellwether_render as render;
use bellwether_render::csv::{Csv, cell};
use bellwether_render::figure::percent;
use bellwether_render::table::aligned;

use crate::options::TableFormat;

pub(super) fn render(report: &PricesReport, format: TableFormat) -> String {
    match format {
        TableFormat::Json => render::json(report),
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
    let row = |row: &PriceRow| {
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
    let mut csv = Csv::new([
        "internal_price",
        "internal_dollars_per_hour",
        "member",
        "shared",
        "saved_dollars_per_hour",
        "best_shared",
        "ends",
        "efficiency",
    ]);
    for row in &report.prices {
        for (place, name) in report.members.iter().enumerate() {
            csv.row(&[
                &row.internal_price,
                &row.internal_dollars_per_hour,
                name,
                &row.shared[place],
                &row.saved_dollars_per_hour[place],
                &row.best_shared[place],
                &row.ends,
                &cell(row.efficiency),
            ]);
        }
    }
    csv.text()
}
