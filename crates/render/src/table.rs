//! Tables for people.

use std::fmt::Write;
use std::io::stdout;

use super::colour::width as seen;

/// A name is not made shorter than this.
const NAME_MIN: usize = 12;

/// Characters in a line of the terminal: that of stdout, or as COLUMNS says; nothing where neither is known.
pub fn width() -> Option<usize> {
    let asked = || std::env::var("COLUMNS").ok()?.parse().ok();
    let terminal = terminal_size::terminal_size_of(stdout()).map(|(width, _)| usize::from(width.0));
    terminal.or_else(asked).filter(|width| *width > 0)
}

/// Columns side by side that fit into `width`, where it is known. Columns without a value in any row are left out, then
/// those of `spare`, the first one first; at last the names in the first column are cut. The first row has the titles.
pub fn fitted(mut rows: Vec<Vec<String>>, spare: &[&str], width: Option<usize>) -> String {
    let titles = rows.first().cloned().unwrap_or_default();
    let mut kept: Vec<usize> = (0..titles.len())
        .filter(|column| {
            *column == 0 || rows.len() == 1 || rows[1..].iter().any(|row| row[*column] != NOTHING)
        })
        .collect();
    let text = |rows: &[Vec<String>], kept: &[usize]| {
        let rows: Vec<Vec<String>> =
            rows.iter().map(|row| kept.iter().map(|column| row[*column].clone()).collect()).collect();
        aligned(&rows)
    };
    let longest = |text: &str| text.lines().map(seen).max().unwrap_or(0);
    let Some(width) = width else { return text(&rows, &kept) };
    for spare in spare {
        if longest(&text(&rows, &kept)) <= width {
            break;
        }
        kept.retain(|column| titles[*column] != *spare);
    }
    let over = longest(&text(&rows, &kept)).saturating_sub(width);
    let name = rows.iter().map(|row| row[0].chars().count()).max().unwrap_or(0);
    let room = name.saturating_sub(over).max(NAME_MIN);
    rows.iter_mut().for_each(|row| cut(&mut row[0], room));
    text(&rows, &kept)
}

/// What stands where there is nothing to tell.
pub const NOTHING: &str = "–";

fn cut(text: &mut String, room: usize) {
    if text.chars().count() > room {
        *text = text.chars().take(room - 1).chain(['…']).collect();
    }
}

/// Columns side by side; the first to the left, the others to the right.
pub fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widest = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| seen(cell)).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(widest).collect();
    let mut text = String::new();
    for row in rows {
        for (column, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[column] - seen(cell));
            let _ = if column == 0 { write!(text, "{cell}{pad}") } else { write!(text, "  {pad}{cell}") };
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

/// A name and a value on each line.
pub fn facts(rows: &[(&str, String)]) -> String {
    rows.iter().map(|(name, value)| format!("{name:<24} {value}")).collect::<Vec<_>>().join("\n")
}
