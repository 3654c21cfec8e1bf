//! Scores over predicted step times as a picture.

use bellwether_render::plot::{self, Axis, BLUE, Chart, Color, Corner, GREY, Mark, Series, VERMILION};

use super::Outcome;
use crate::failure::Failure;

const SIZE: (u32, u32) = (800, 520);

/// An SVG of all architectures that were scored.
pub(super) fn svg(outcome: &Outcome<'_>, name: &str) -> Result<String, Failure> {
    Ok(plot::svg(SIZE, |area| chart(outcome, name).draw(area))?)
}

fn chart(outcome: &Outcome<'_>, name: &str) -> Chart {
    let found = &outcome.findings.found;
    let times_s = || found.iter().filter_map(|found| Some(found.costs?.step_s));
    let limit_s = outcome.file.limits.step_time.map(|limit| limit.get());
    let longest_s = times_s().chain(limit_s).fold(1e-9, f64::max);
    let (unit_s, unit) = plot::unit(longest_s);
    let points: Vec<(f64, f64)> = found
        .iter()
        .filter_map(|found| Some((found.costs?.step_s / unit_s, found.score.accuracy * 100.0)))
        .collect();
    let lowest = points.iter().map(|point| point.1).fold(100.0, f64::min);
    let floor = (lowest / 10.0).floor() * 10.0;
    let (pale, best) = (BLUE.stroke_width(1), VERMILION.filled());
    let mut series = Vec::new();
    if let Some(limit) = limit_s {
        let style = GREY.stroke_width(2);
        let line = vec![(limit / unit_s, floor), (limit / unit_s, 102.0)];
        series.push(Series::line(line, style).named("limit", Mark::Upright(style)));
    }
    let winner: Vec<(f64, f64)> = points.first().copied().into_iter().collect();
    series.push(Series::circles(points, 3, pale).named("an architecture", Mark::Circle(3, pale)));
    series.push(Series::triangles(winner, 8, best).named("the best", Mark::Triangle(8, best)));
    Chart {
        title: (format!("{}: {} architectures", plot::short_name(name), found.len()), 20),
        margin: 16,
        label_areas: (40, 60),
        x: Axis::linear(0.0..1.1 * longest_s / unit_s),
        y: Axis::linear(floor..102.0),
        x_name: format!("predicted time of a step in {unit}"),
        y_name: "accuracy with inherited weights in %".into(),
        x_format: None,
        y_format: None,
        has_grid: true,
        legend: Some(Corner::LowerRight),
        series,
    }
}
