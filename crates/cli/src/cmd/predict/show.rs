//! Predictions as a table, as JSON, or as CSV.

use std::fmt::Write;

use bellwether_core::prediction::Validity;

use super::Row;
use crate::options::TableFormat;

pub(super) fn render(rows: &[Row], format: TableFormat) -> String {
    match format {
        TableFormat::Table => table(rows),
        TableFormat::Json => serde_json::to_string_pretty(rows).unwrap_or_default(),
        TableFormat::Csv => csv(rows),
    }
}

fn table(rows: &[Row]) -> String {
    let stale = rows.iter().any(|row| row.staleness.is_some());
    let head = if stale { format!("{:>9}  ", "staleness") } else { String::new() };
    let mut text = format!(
        "{:>7}  {:>12}  {:>25}  {:>10}  {:>10}  {head}{:<8}\n",
        "workers", "examples/s", "95 % interval", "step", "efficiency", "bound by"
    );
    for row in rows {
        let interval = format!("{} … {}", figure(row.low), figure(row.high));
        let staleness = match stale {
            true => format!("{:>9.1}  ", row.staleness.unwrap_or(0.0)),
            false => String::new(),
        };
        let _ = writeln!(
            text,
            "{:>7}  {:>12}  {:>25}  {:>10}  {:>9.0}%  {staleness}{}{}",
            row.workers,
            figure(row.examples_per_s),
            interval,
            duration(row.step_s),
            row.efficiency * 100.0,
            row.bottleneck,
            if row.knee { "  ← knee" } else { "" }
        );
    }
    if rows.iter().any(|row| row.knee) {
        text.push_str("knee: beyond it, another worker adds less than half of what the first one does\n");
    } else if rows.len() > 1 {
        text.push_str("no knee: each of these workers adds at least half of what the first one does\n");
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
pub(super) fn figure(value: f64) -> String {
    if !(1e-3..1e9).contains(&value) {
        return format!("{value:.3e}");
    }
    let digits = (3 - value.log10().floor() as i32).max(0);
    format!("{value:.*}", digits as usize)
}

/// Four figures and a unit.
pub(crate) fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{} us", figure(s * 1e6)),
        s if s < 1.0 => format!("{} ms", figure(s * 1e3)),
        s => format!("{} s", figure(s)),
    }
}

fn csv(rows: &[Row]) -> String {
    let mut text =
        String::from("workers,examples_per_s,low,high,step_s,bottleneck,efficiency,knee,validity,model");
    let stale = rows.iter().any(|row| row.staleness.is_some());
    if stale {
        text.push_str(",staleness");
    }
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
        if stale {
            let _ = write!(text, ",{}", row.staleness.unwrap_or(0.0));
        }
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
        assert_eq!(figure(7.629_4e-6), "7.629e-6");
        assert_eq!(
            (duration(0.069_32), duration(12.0), duration(5e-4)),
            ("69.32 ms".into(), "12.00 s".into(), "500.0 us".into())
        );
    }
}
