//! Tables for people.

use std::fmt::Write;

/// Columns side by side; the first to the left, the others to the right.
pub(crate) fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        for (column, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[column] - cell.chars().count());
            let _ = if column == 0 { write!(text, "{cell}{pad}") } else { write!(text, "  {pad}{cell}") };
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

/// A name and a value on each line.
pub(crate) fn facts(rows: &[(&str, String)]) -> String {
    rows.iter().map(|(name, value)| format!("{name:<24} {value}")).collect::<Vec<_>>().join("\n")
}
