//! Predictions as a table, as JSON, or as CSV.

use std::fmt::Write;

use bellwether_core::prediction::Validity;

use super::Row;
use crate::args::TableFormat;

pub(super) fn render(rows: &[Row], format: TableFormat) -> String {
    match format {
        TableFormat::Table => table(rows),
        TableFormat::Json => serde_json::to_string_pretty(rows).unwrap_or_default(),
        TableFormat::Csv => csv(rows),
    }
}

fn table(rows: &[Row]) -> String {
    let mut text = format!(
        "{:>7}  {:>12}  {:>23}  {:>10}  {:>10}  {:<8}\n",
        "workers", "examples/s", "95 % interval", "step", "efficiency", "bound by"
    );
    for row in rows {
        let interval = format!("{} … {}", figure(row.low), figure(row.high));
        let _ = writeln!(
            text,
            "{:>7}  {:>12}  {:>23}  {:>7.2} ms  {:>9.0}%  {:<8}{}",
            row.workers,
            figure(row.examples_per_s),
            interval,
            row.step_s * 1e3,
            row.efficiency * 100.0,
            row.bottleneck.to_string(),
            if row.knee && rows.len() > 1 { "  ← knee" } else { "" }
        );
    }
    if rows.len() > 1 {
        text.push_str("knee: beyond it, another worker adds less than half of what the first one does\n");
    }
    let reasons = rows.iter().filter_map(|row| match &row.validity {
        Validity::Extrapolated(why) => Some(why.as_str()),
        Validity::Interpolated => None,
    });
    if let Some(why) = reasons.max_by_key(|why| why.len()) {
        let _ = writeln!(text, "extrapolated: {why}");
    }
    text.trim_end().to_string()
}

/// Four figures are more than a prediction is worth.
fn figure(value: f64) -> String {
    let digits = if value >= 1000.0 { 0 } else { (3 - value.max(1e-9).log10().floor() as i32).clamp(0, 9) };
    format!("{value:.*}", digits as usize)
}

fn csv(rows: &[Row]) -> String {
    let mut text =
        String::from("workers,examples_per_s,low,high,step_s,bottleneck,efficiency,knee,validity,model");
    for row in rows {
        let validity = match &row.validity {
            Validity::Interpolated => "interpolated".to_string(),
            Validity::Extrapolated(why) => format!("\"extrapolated: {}\"", why.replace('"', "'")),
        };
        let _ = write!(
            text,
            "\n{},{},{},{},{},{},{},{},{validity},{}",
            row.workers,
            row.examples_per_s,
            row.low,
            row.high,
            row.step_s,
            row.bottleneck,
            row.efficiency,
            row.knee,
            row.model
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_four_digits() {
        assert_eq!(figure(0.012_345), "0.01235");
        assert_eq!(figure(12.345), "12.35");
        assert_eq!(figure(12_345.6), "12346");
    }
}
