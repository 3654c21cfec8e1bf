//! Learning curves as a picture: losses above, the accuracy below where there is one.

use std::ops::Range;

use bellwether_render::plot::{
    self, Area, Axis, BLUE, Chart, Color, Corner, Drawn, Mark, ORANGE, RGBColor, Series,
};
use bellwether_session::curves::Curves;

use crate::failure::Failure;

const SIZE: (u32, u32) = (800, 600);

/// Points of a line beyond which neighbours are averaged: more are not seen.
const POINTS_MAX: usize = 400;

/// The ratio of the largest loss to the smallest from which an axis is logarithmic.
const MANY: f64 = 20.0;

/// A line of a chart: its points, its name, its colour.
type Line = (Vec<(f64, f64)>, &'static str, RGBColor);

/// An SVG of the curves.
pub(super) fn svg(curves: &Curves, run: &str) -> Result<String, Failure> {
    Ok(plot::svg(SIZE, |area| draw(curves, run, area))?)
}

fn draw(curves: &Curves, run: &str, area: &Area<'_>) -> Drawn {
    let training: Vec<_> = curves.training.iter().filter_map(|p| Some((p.step as f64, p.loss?))).collect();
    let held_out: Vec<_> = curves.evaluations.iter().map(|p| (p.step as f64, p.loss)).collect();
    let accuracy: Vec<_> =
        curves.evaluations.iter().filter_map(|p| Some((p.step as f64, 100.0 * p.accuracy?))).collect();
    let last = curves.training.last().map_or(1, |point| point.step).max(1) as f64;
    let losses = [(thinned(&training), "training", BLUE), (held_out, "held-out", ORANGE)];
    let title = format!("{}: learning curves", plot::short_name(run));
    if accuracy.is_empty() {
        return chart(&title, "loss", 0.0..last, &losses).draw(area);
    }
    let (above, below) = area.split_vertically(SIZE.1 * 55 / 100);
    chart(&title, "loss", 0.0..last, &losses).draw(&above)?;
    chart("", "held-out accuracy, %", 0.0..last, &[(accuracy, "", ORANGE)]).draw(&below)
}

fn chart(title: &str, what: &str, steps: Range<f64>, lines: &[Line]) -> Chart {
    let values = lines.iter().flat_map(|(points, _, _)| points).map(|(_, value)| *value);
    let (low, high) =
        values.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
    let high = if high > low { high } else { low + low.abs().max(1.0) };
    let axis = match low > 0.0 && high / low > MANY {
        true => Axis::logarithmic(low / 1.1..high * 1.1),
        false => Axis::linear(low..high).widened(0.05 * (high - low)),
    };
    let series = |(points, name, colour): &Line| {
        let style = colour.stroke_width(2);
        let line = Series::line(points.clone(), style);
        if name.is_empty() { line } else { line.named(*name, Mark::Line(style)) }
    };
    Chart {
        title: (title.into(), 20),
        margin: 16,
        label_areas: (40, 70),
        x: Axis::counting(steps),
        y: axis,
        x_name: "steps".into(),
        y_name: what.into(),
        x_format: None,
        y_format: None,
        has_grid: true,
        legend: (lines.len() > 1).then_some(Corner::UpperRight),
        series: lines.iter().filter(|(points, _, _)| !points.is_empty()).map(series).collect(),
    }
}

/// Means of neighbours, so that a long line has few points.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mean = |chunk: &[(f64, f64)]| {
        let (x, y) = chunk.iter().fold((0.0, 0.0), |(x, y), point| (x + point.0, y + point.1));
        (x / chunk.len() as f64, y / chunk.len() as f64)
    };
    points.chunks(points.len().div_ceil(POINTS_MAX).max(1)).map(mean).collect()
}
