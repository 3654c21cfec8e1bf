//! What a bench verb prints: settings, machine, rows, bars, and what others publish.

use std::fmt::Write;

use bellwether_core::units::Bytes;
use bellwether_render::table::aligned;
use serde_json::{Map, Value, json};

use super::published::{self, Published};
use super::statistics::{largest, load_average, median, quantile};

/// One measured case: named values in the order in which a person reads them.
#[derive(Debug, Clone, Default)]
pub(super) struct Row(Vec<(String, Value)>);

impl Row {
    pub(super) fn new(case: impl Into<String>) -> Row {
        Row::default().with("case", case.into())
    }

    pub(super) fn with(mut self, name: impl Into<String>, value: impl Into<Value>) -> Row {
        self.0.push((name.into(), value.into()));
        self
    }

    /// Median, ninth decile and worst of times or other quantities that should be small.
    pub(super) fn spread(self, name: &str, unit: &str, samples: &[f64]) -> Row {
        self.with(format!("{name}_median_{unit}"), median(samples))
            .with(format!("{name}_p90_{unit}"), quantile(samples, 0.9))
            .with(format!("{name}_worst_{unit}"), largest(samples))
    }

    /// The samples themselves; for programs only.
    pub(super) fn samples(self, name: &str, samples: &[f64]) -> Row {
        self.with(name, samples.to_vec())
    }
}

/// A bound that was set before it was measured.
#[derive(Debug, Clone)]
pub(super) struct Bar {
    name: String,
    unit: &'static str,
    measured: f64,
    bound: f64,
    pub(super) met: bool,
}

impl Bar {
    pub(super) fn ratio(name: impl Into<String>, measured: f64, bound: f64, met: bool) -> Bar {
        Bar { name: name.into(), unit: "ratio", measured, bound, met }
    }
}

/// The result of a bench verb.
#[derive(Debug)]
pub(super) struct Report {
    verb: &'static str,
    settings: Value,
    load_average_before: Option<[f64; 3]>,
    rows: Vec<Row>,
    bars: Vec<Bar>,
    notes: Vec<String>,
    published: &'static [Published],
}

impl Report {
    /// Takes note of the load; to be called before anything is started.
    pub(super) fn begin(verb: &'static str, settings: Value, published: &'static [Published]) -> Report {
        let (rows, bars, notes) = (Vec::new(), Vec::new(), Vec::new());
        Report { verb, settings, load_average_before: load_average(), rows, bars, notes, published }
    }

    pub(super) fn row(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// What a reader must know to read the rows right.
    pub(super) fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    pub(super) fn at_most(&mut self, name: impl Into<String>, unit: &'static str, measured: f64, bound: f64) {
        self.bars.push(Bar { name: name.into(), unit, measured, bound, met: measured <= bound });
    }

    pub(super) fn bar(&mut self, name: impl Into<String>, measured: f64, bound: f64, met: bool) {
        self.bars.push(Bar::ratio(name, measured, bound, met));
    }

    pub(super) fn bars(&mut self, bars: Vec<Bar>) {
        self.bars.extend(bars);
    }

    /// The whole as JSON.
    pub(super) fn finish(self) -> String {
        let rows: Vec<Value> =
            self.rows.into_iter().map(|row| Value::Object(Map::from_iter(row.0))).collect();
        let bar = |b: &Bar| json!({ "name": b.name, "unit": b.unit, "measured": b.measured, "bound": b.bound, "met": b.met });
        let report = json!({
            "bench": self.verb,
            "version": env!("CARGO_PKG_VERSION"),
            "machine": machine(),
            "settings": self.settings,
            "load_average_before": self.load_average_before,
            "load_average_after": load_average(),
            "rows": rows,
            "bars": self.bars.iter().map(bar).collect::<Vec<_>>(),
            "notes": self.notes,
            "published": published::json(self.published),
        });
        bellwether_render::json(&report)
    }

    /// The whole for people.
    pub(super) fn table(self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "bench {}, {}", self.verb, machine_text());
        let load = |load: Option<[f64; 3]>| load.map_or("unknown".into(), |l| format!("{:.2}", l[0]));
        let _ = writeln!(
            text,
            "load average {} before, {} after\n",
            load(self.load_average_before),
            load(load_average())
        );
        text.push_str(&grid(&self.rows));
        if !self.bars.is_empty() {
            let _ = writeln!(text, "\nBars");
        }
        for bar in &self.bars {
            let (word, unit) = (if bar.met { "met   " } else { "MISSED" }, bar.unit);
            let (measured, bound) = (number(unit, bar.measured), number(unit, bar.bound));
            let _ = writeln!(text, "  {word}  {}: {measured}, bound {bound}", bar.name);
        }
        for note in &self.notes {
            let _ = writeln!(text, "\n{note}");
        }
        if !self.published.is_empty() {
            let _ = writeln!(
                text,
                "\nBeside it ({})\n{}",
                published::SOURCE,
                published::text(self.published).trim_end()
            );
        }
        text.trim_end().to_string()
    }
}

fn machine() -> Value {
    json!({
        "cores": std::thread::available_parallelism().map_or(1, usize::from),
        "processor": processor(),
        "network": "loopback",
    })
}

fn machine_text() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{cores} cores ({}), loopback", processor().unwrap_or_else(|| "processor unknown".into()))
}

fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, name)| name.trim().to_string())
}

/// Columns are aligned; lists are left to the JSON.
fn grid(rows: &[Row]) -> String {
    let mut text = String::new();
    let mut rest = rows;
    while let Some(first) = rest.first() {
        // Rows of the same shape share a heading.
        let names = |row: &Row| {
            row.0.iter().filter(|(_, v)| !v.is_array()).map(|(n, _)| n.clone()).collect::<Vec<_>>()
        };
        let heading = names(first);
        let same = rest.iter().position(|row| names(row) != heading).unwrap_or(rest.len());
        let (block, after) = rest.split_at(same);
        rest = after;
        let mut lines = vec![heading.iter().map(|name| plain_name(name)).collect::<Vec<_>>()];
        for row in block {
            lines.push(
                row.0.iter().filter(|(_, v)| !v.is_array()).map(|(name, value)| cell(name, value)).collect(),
            );
        }
        text.push_str(&aligned(&lines));
        if !rest.is_empty() {
            text.push('\n');
        }
    }
    text
}

fn plain_name(name: &str) -> String {
    let bare =
        ["_bytes_per_s", "_examples_per_s", "_bytes", "_s"].iter().find_map(|unit| name.strip_suffix(unit));
    bare.unwrap_or(name).replace('_', " ")
}

fn cell(name: &str, value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(text) => text.clone(),
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.into(),
        Value::Number(n) => {
            let unit = ["_examples_per_s", "_bytes_per_s", "_bytes", "_s"]
                .iter()
                .find(|unit| name.ends_with(**unit));
            let value = n.as_f64().unwrap_or(f64::NAN);
            match unit {
                None if n.is_u64() || n.is_i64() => n.to_string(),
                unit => number(unit.map_or("", |unit| &unit[1..]), value),
            }
        }
        other => other.to_string(),
    }
}

/// Three digits and a unit that suits the size.
fn number(unit: &str, value: f64) -> String {
    let size = value.abs();
    match unit {
        "s" if size < 1e-3 => format!("{:.1} µs", value * 1e6),
        "s" if size < 1.0 => format!("{:.1} ms", value * 1e3),
        "s" => format!("{value:.2} s"),
        "bytes" => {
            let bytes = Bytes(value.max(0.0) as u64).to_string();
            let digits = bytes.trim_end_matches(|c: char| c.is_alphabetic()).len();
            let amount: f64 = bytes[..digits].parse().unwrap_or(0.0);
            format!("{} {}", (amount * 10.0).round() / 10.0, &bytes[digits..])
        }
        "bytes_per_s" => format!("{:.2} GB/s", value / 1e9),
        "examples_per_s" if size < 1e3 => format!("{value:.1}/s"),
        "examples_per_s" => format!("{value:.0}/s"),
        _ if size >= 100.0 => format!("{value:.0}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_unit() {
        assert_eq!(number("s", 12e-6), "12.0 µs");
        assert_eq!(number("s", 0.25), "250.0 ms");
        assert_eq!(number("bytes", 65.04 * 1024.0 * 1024.0), "65 MiB");
        assert_eq!(number("bytes_per_s", 1.5e9), "1.50 GB/s");
        assert_eq!(cell("kills", &json!(20)), "20");
        assert_eq!(cell("gloo_s", &Value::Null), "-");
        assert_eq!(plain_name("recovery_median_s"), "recovery median");
    }

    #[test]
    fn rows_of_one_shape_share_a_heading() {
        let row = |case: &str| Row::new(case).with("kills", 3).samples("samples_s", &[1.0]);
        let other = Row::new("c").spread("gap", "s", &[0.1, 0.2]);
        let text = grid(&[row("a"), row("b"), other]);
        assert_eq!(text.lines().count(), 6);
        assert_eq!(text.lines().next(), Some("case  kills"));
        assert!(text.contains("150.0 ms"));
    }

    #[test]
    fn a_report_is_json_and_states_its_bars() {
        let mut report = Report::begin("crash", json!({}), published::RECOVERY);
        report.row(Row::new("a").with("x", 1.0));
        report.at_most("fast", "s", 0.3, 0.25);
        let value: Value = serde_json::from_str(&report.finish()).unwrap();
        assert_eq!(value["bars"][0]["met"], json!(false));
        assert_eq!(value["rows"][0]["x"], json!(1.0));
        assert!(value["published"]["figures"].as_array().is_some_and(|f| !f.is_empty()));
    }
}
