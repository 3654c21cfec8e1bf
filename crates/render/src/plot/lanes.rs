//! Rows over time, filled to a height, with a legend above them in as many lines as it needs.

use std::ops::Range;

use plotters::prelude::*;

use super::{Area, Axis, Drawn, PlotError, colour, svg, unit};

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
/// About the width of a character.
const CHARACTER: u32 = 7;
/// About how many numbers an axis has.
const TICKS: u32 = 12;

const IDLE: RGBColor = RGBColor(243, 243, 243);

/// What is drawn.
#[derive(Debug, Clone)]
pub struct Lanes {
    /// Above the picture.
    pub title: String,
    /// Below the title: how to read the picture.
    pub how: String,
    /// What the rows are.
    pub row_name: String,
    /// How many rows there are, at least 1.
    pub rows: u32,
    /// Where the time axis ends.
    pub end_s: f64,
    /// Names of the colours, from the first on; those beyond `marked` stand without a mark.
    pub names: Vec<String>,
    /// How many names have a mark of their colour.
    pub marked: usize,
    /// What fills the rows.
    pub cells: Vec<LaneCell>,
}

/// A part of a row, for some time.
#[derive(Debug, Clone, Copy)]
pub struct LaneCell {
    /// Which row, from above.
    pub row: u32,
    /// Since when and until when.
    pub time_s: (f64, f64),
    /// Where it begins and ends within the row, 0 to 1 from below.
    pub height: (f64, f64),
    /// The number of its colour.
    pub colour: usize,
}

impl Lanes {
    /// An SVG of it.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be drawn.
    pub fn svg(&self) -> Result<String, PlotError> {
        let entries = legend(&self.names);
        let lines = entries.last().map_or(0, |entry| entry.line + 1);
        let above = TITLE + lines * LEGEND_LINE;
        let row = (ROWS / self.rows).clamp(ROW.start, ROW.end);
        // One more, because the last line of pixels belongs to no row: so all rows are equally high.
        let height = above + 2 * MARGIN + AXIS + self.rows * row + 1;
        svg((WIDTH, height), |area| {
            let (top, bottom) = area.split_vertically(above);
            self.draw_legend(&top, &entries)?;
            self.draw(&bottom, row)
        })
    }

    /// The rows, each `row` pixels high.
    fn draw(&self, area: &Area<'_>, row: u32) -> Drawn {
        let rows = self.rows;
        let (unit_s, unit) = unit(self.end_s);
        let step = [1, 2, 5, 10, 20, 50].into_iter().find(|step| rows / step <= 2 * TICKS).unwrap_or(100);
        let ticks = (0..rows).step_by(step as usize).map(|row| f64::from(row) + 0.5).collect();
        let mut chart = ChartBuilder::on(area)
            .margin(MARGIN)
            .margin_right(3 * MARGIN)
            .x_label_area_size(AXIS)
            .y_label_area_size(58)
            .build_cartesian_2d(
                Axis::linear(0.0..self.end_s / unit_s),
                Axis::new(0.0..f64::from(rows), ticks).falling(),
            )?;
        chart.plotting_area().fill(&IDLE)?;
        let rectangle = |cell: &LaneCell| {
            let (from, to) = (cell.time_s.0 / unit_s, cell.time_s.1 / unit_s);
            // A line of pixels stays free, so that rows can be told apart.
            let full = 1.0 - 1.0 / f64::from(row);
            let at = |height: f64| f64::from(cell.row) + 1.0 - full * height;
            Rectangle::new([(from, at(cell.height.1)), (to, at(cell.height.0))], colour(cell.colour).filled())
        };
        chart.draw_series(self.cells.iter().map(rectangle))?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .x_desc(format!("time in {unit}"))
            .y_desc(self.row_name.as_str())
            .y_label_formatter(&|row| format!("{}", row.floor()))
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.12))
            .draw()?;
        Ok(())
    }

    fn draw_legend(&self, area: &Area<'_>, entries: &[Entry<'_>]) -> Drawn {
        area.draw(&Text::new(self.title.as_str(), (16, 14), ("sans-serif", 20)))?;
        let small = ("sans-serif", 13).into_font().color(&BLACK.mix(0.7));
        area.draw(&Text::new(self.how.as_str(), (16, 40), small))?;
        for (number, entry) in entries.iter().enumerate() {
            let (x, y) = (entry.left as i32, (TITLE + entry.line * LEGEND_LINE) as i32);
            if number < self.marked {
                area.draw(&Rectangle::new([(x - 4, y + 1), (x + 10, y + 13)], colour(number).filled()))?;
            }
            area.draw(&Text::new(entry.text, (x + 16, y), ("sans-serif", 14)))?;
        }
        Ok(())
    }
}

/// A name in the legend.
struct Entry<'a> {
    text: &'a str,
    line: u32,
    left: u32,
}

/// The names from left to right, in as many lines as they need.
fn legend(names: &[String]) -> Vec<Entry<'_>> {
    let mut entries = Vec::new();
    let (mut line, mut left) = (0, 20);
    for text in names {
        let width = 34 + CHARACTER * text.chars().count() as u32;
        if left + width > WIDTH && left > 20 {
            (line, left) = (line + 1, 20);
        }
        entries.push(Entry { text, line, left });
        left += width;
    }
    entries
}
