//! The multiprocessors over time: a row each, a colour for each kernel.

mod cells;

use std::ops::Range;

use plotters::prelude::*;

use super::report::Report;
use crate::failure::Failure;
use crate::render::plot::{self, Area, Axis, Drawn, colour};
use cells::{Cell, cells};

const WIDTH: u32 = 1100;
/// Height of the title with what is said below it, and of a line of the legend.
const TITLE: u32 = 64;
const LEGEND_LINE: u32 = 20;
/// Room around the rows, and of the time axis.
const MARGIN: u32 = 12;
const AXIS: u32 = 42;
/// Heights of a row: all rows together take about 800.
const ROWS: u32 = 800;
const ROW: Range<u32> = 5..40;
/// More multiprocessors than this are not drawn.
const ROWS_MAX: u32 = 256;
/// Kernels that the legend names, and the characters of a name that fit.
const LEGEND_MAX: usize = 16;
const NAME_MAX: usize = 28;
/// About the width of a character.
const CHARACTER: u32 = 7;
/// An axis has about so many numbers.
const TICKS: u32 = 12;

const IDLE: RGBColor = RGBColor(243, 243, 243);

/// An SVG of all blocks.
pub(super) fn svg(report: &Report<'_>) -> Result<String, Failure> {
    let rows = report.device.multiprocessors.min(ROWS_MAX);
    let entries = legend(report);
    let lines = entries.last().map_or(0, |entry| entry.line + 1);
    let above = TITLE + lines * LEGEND_LINE;
    let row = (ROWS / rows).clamp(ROW.start, ROW.end);
    // One more, because the last line of pixels belongs to no row: so all rows are equally high.
    let height = above + 2 * MARGIN + AXIS + rows * row + 1;
    plot::svg((WIDTH, height), |area| {
        let (top, bottom) = area.split_vertically(above);
        draw_legend(&top, report, &entries)?;
        draw(&bottom, report, rows, row)
    })
}

/// The first `rows` multiprocessors, each `row` pixels high.
fn draw(area: &Area<'_>, report: &Report<'_>, rows: u32, row: u32) -> Drawn {
    let (unit_s, unit) = plot::unit(1e-6 * report.outcome.end_us);
    let unit_us = 1e6 * unit_s;
    let step = [1, 2, 5, 10, 20, 50].into_iter().find(|step| rows / step <= 2 * TICKS).unwrap_or(100);
    let ticks = (0..rows).step_by(step as usize).map(|row| f64::from(row) + 0.5).collect();
    let mut chart = ChartBuilder::on(area)
        .margin(MARGIN)
        .margin_right(3 * MARGIN)
        .x_label_area_size(AXIS)
        .y_label_area_size(58)
        .build_cartesian_2d(
            Axis::linear(0.0..report.outcome.end_us / unit_us),
            Axis::new(0.0..f64::from(rows), ticks).falling(),
        )?;
    chart.plotting_area().fill(&IDLE)?;
    let rectangle = |cell: &Cell| {
        let (from, to) = (cell.from_us / unit_us, cell.to_us / unit_us);
        // A line of pixels stays free, so that rows can be told apart.
        let full = 1.0 - 1.0 / f64::from(row);
        let at = |height: f64| f64::from(cell.row) + 1.0 - full * height;
        Rectangle::new([(from, at(cell.high)), (to, at(cell.low))], colour(cell.kernel).filled())
    };
    chart.draw_series(cells(report, rows).iter().map(rectangle))?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .x_desc(format!("time in {unit}"))
        .y_desc("multiprocessor (SM)")
        .y_label_formatter(&|row| format!("{}", row.floor()))
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .draw()?;
    Ok(())
}

/// A kernel in the legend.
struct Entry {
    text: String,
    line: u32,
    left: u32,
}

/// The kernels from left to right, in as many lines as they need.
fn legend(report: &Report<'_>) -> Vec<Entry> {
    let mut entries = Vec::new();
    let (mut line, mut left) = (0, 20);
    for (number, kernel) in report.kernels.iter().enumerate().take(LEGEND_MAX + 1) {
        let text = if number == LEGEND_MAX {
            format!("and {} more kernels, in the same colours", report.kernels.len() - LEGEND_MAX)
        } else {
            let name: String = kernel.name.chars().take(NAME_MAX).collect();
            format!("{name} ({} × {} threads)", kernel.blocks, kernel.threads_per_block)
        };
        let width = 34 + CHARACTER * text.chars().count() as u32;
        if left + width > WIDTH && left > 20 {
            (line, left) = (line + 1, 20);
        }
        entries.push(Entry { text, line, left });
        left += width;
    }
    entries
}

fn draw_legend(area: &Area<'_>, report: &Report<'_>, entries: &[Entry]) -> Drawn {
    let outcome = &report.outcome;
    let mut title =
        format!("{} blocks on {}, {}", outcome.blocks.len(), report.device.description, outcome.discipline);
    if report.device.multiprocessors > ROWS_MAX {
        title.push_str(&format!(" (the first {ROWS_MAX} of {} SMs)", report.device.multiprocessors));
    }
    area.draw(&Text::new(title, (16, 14), ("sans-serif", 20)))?;
    let how = "Height of a cell: share of the SM that the kernel's blocks hold of what they need most; drawn no lower than a quarter.";
    let small = ("sans-serif", 13).into_font().color(&BLACK.mix(0.7));
    area.draw(&Text::new(how, (16, 40), small))?;
    for (number, entry) in entries.iter().enumerate() {
        let (x, y) = (entry.left as i32, (TITLE + entry.line * LEGEND_LINE) as i32);
        if number < LEGEND_MAX {
            area.draw(&Rectangle::new([(x - 4, y + 1), (x + 10, y + 13)], colour(number).filled()))?;
        }
        area.draw(&Text::new(entry.text.clone(), (x + 16, y), ("sans-serif", 14)))?;
    }
    Ok(())
}
