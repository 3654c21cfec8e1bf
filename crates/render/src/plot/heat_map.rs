//! Gains and losses over two numbers as a heat map.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{Area, BLUE, Drawn, ORANGE, PlotError, VERMILION, svg};
use crate::figure::short;

const SIZE: (u32, u32) = (860, 640);
/// Cells in a row up to which each shows its number.
const NUMBERED: usize = 12;
/// Steps of the colour scale.
const SCALE: usize = 60;
/// Part of the picture's width that the scale takes.
const SCALE_WIDTH: u32 = 120;

const GAIN: RGBColor = BLUE;
const LOSS: RGBColor = VERMILION;
const NONE: RGBColor = RGBColor(250, 250, 246);
const MARK: RGBColor = ORANGE;

/// What is drawn.
#[derive(Debug, Clone)]
pub struct HeatMap {
    /// Above the picture.
    pub title: String,
    /// What the two axes count.
    pub axes: [String; 2],
    /// The numbers of each axis, rising.
    pub levels: [Vec<u32>; 2],
    /// Dollars: those of the first axis' first number over the second's numbers, and so on.
    pub values: Vec<f64>,
    /// What the scale of colours says above it.
    pub unit: String,
}

impl HeatMap {
    /// An SVG of it, with the largest value outlined.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be drawn.
    pub fn svg(&self) -> Result<String, PlotError> {
        svg(SIZE, |area| draw(self, area))
    }
}

/// Between nothing and the largest gain or loss.
fn colour(value: f64, largest: f64) -> RGBColor {
    let part = if largest > 0.0 { (value / largest).clamp(-1.0, 1.0) } else { 0.0 };
    let end = if part < 0.0 { LOSS } else { GAIN };
    let mix = |from: u8, to: u8| (f64::from(from) + (f64::from(to) - f64::from(from)) * part.abs()) as u8;
    RGBColor(mix(NONE.0, end.0), mix(NONE.1, end.1), mix(NONE.2, end.2))
}

fn draw(map: &HeatMap, area: &Area<'_>) -> Drawn {
    let [across, up] = &map.levels;
    let largest = map.values.iter().fold(0.0f64, |largest, value| largest.max(value.abs()));
    let best = (0..map.values.len()).max_by(|a, b| map.values[*a].total_cmp(&map.values[*b])).unwrap_or(0);
    let (left, right) = area.split_horizontally(SIZE.0 - SCALE_WIDTH);
    let mut chart = ChartBuilder::on(&left)
        .caption(&map.title, ("sans-serif", 19))
        .margin(12)
        .x_label_area_size(48)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..across.len() as f64, 0.0..up.len() as f64)?;
    chart
        .configure_mesh()
        .disable_mesh()
        .x_labels(0)
        .y_labels(0)
        .x_desc(&map.axes[0])
        .y_desc(&map.axes[1])
        .axis_desc_style(("sans-serif", 16))
        .draw()?;
    let cell = |place: usize| ((place / up.len()) as f64, (place % up.len()) as f64);
    chart.draw_series((0..map.values.len()).map(|place| {
        let (x, y) = cell(place);
        Rectangle::new([(x, y), (x + 1.0, y + 1.0)], colour(map.values[place], largest).filled())
    }))?;
    if across.len() <= NUMBERED && up.len() <= 2 * NUMBERED {
        chart.draw_series((0..map.values.len()).map(|place| {
            let (x, y) = cell(place);
            let dark = map.values[place].abs() > 0.55 * largest;
            let style = ("sans-serif", 12).into_font().color(if dark { &WHITE } else { &BLACK });
            let style = style.pos(Pos::new(HPos::Center, VPos::Center));
            Text::new(short(map.values[place]), (x + 0.5, y + 0.5), style)
        }))?;
    }
    let (x, y) = cell(best);
    chart.draw_series([Rectangle::new([(x, y), (x + 1.0, y + 1.0)], MARK.stroke_width(3))])?;
    // Names of the levels, not more than can be read.
    let every = |count: usize| count.div_ceil(16).max(1);
    let label = ("sans-serif", 13).into_font().color(&BLACK);
    for (place, level) in across.iter().enumerate().step_by(every(across.len())) {
        let point = chart.backend_coord(&(place as f64 + 0.5, 0.0));
        let style = label.pos(Pos::new(HPos::Center, VPos::Top));
        area.draw(&Text::new(level.to_string(), (point.0, point.1 + 6), style))?;
    }
    for (place, level) in up.iter().enumerate().step_by(every(up.len())) {
        let point = chart.backend_coord(&(0.0, place as f64 + 0.5));
        let style = label.pos(Pos::new(HPos::Right, VPos::Center));
        area.draw(&Text::new(level.to_string(), (point.0 - 6, point.1), style))?;
    }
    scale(&right, map, largest)
}

/// Which colour means what.
fn scale(area: &Area<'_>, map: &HeatMap, largest: f64) -> Drawn {
    let lowest = map.values.iter().copied().fold(0.0f64, f64::min);
    let highest = map.values.iter().copied().fold(0.0f64, f64::max);
    let (top, bottom, left) = (90, SIZE.1 as i32 - 90, 8);
    let span = if highest > lowest { highest - lowest } else { 1.0 };
    let at = |value: f64| bottom - (f64::from(bottom - top) * (value - lowest) / span).round() as i32;
    for step in 0..SCALE {
        let value = |step: usize| lowest + span * step as f64 / SCALE as f64;
        let shade = colour(f64::midpoint(value(step), value(step + 1)), largest);
        area.draw(&Rectangle::new(
            [(left, at(value(step + 1))), (left + 22, at(value(step)))],
            shade.filled(),
        ))?;
    }
    area.draw(&Rectangle::new([(left, top), (left + 22, bottom)], BLACK.stroke_width(1)))?;
    let style = ("sans-serif", 13).into_font().color(&BLACK).pos(Pos::new(HPos::Left, VPos::Center));
    let mut marks = vec![lowest, highest];
    if lowest < -0.1 * span && highest > 0.1 * span {
        marks.push(0.0);
    }
    marks.dedup();
    for value in marks {
        area.draw(&Text::new(
            format!("{}${}", if value < 0.0 { "-" } else { "" }, short(value.abs())),
            (left + 30, at(value)),
            style.clone(),
        ))?;
    }
    area.draw(&Text::new(map.unit.as_str(), (left, top - 24), style.clone()))?;
    area.draw(&Rectangle::new([(left, bottom + 22), (left + 22, bottom + 36)], MARK.stroke_width(3)))?;
    area.draw(&Text::new("the most", (left + 30, bottom + 29), style))?;
    Ok(())
}
