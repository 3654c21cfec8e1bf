//! Cost over service level as a picture: what was simulated, what nothing else beats, and what was chosen.

use bellwether_answers::capacity::{Answer, CandidateRow};
use bellwether_core::plan::Market;
use bellwether_render::plot::{
    self, Axis, BLUE, Chart, Color, Corner, GREY, Mark, ORANGE, Series, VERMILION,
};

use crate::failure::Failure;

const SIZE: (u32, u32) = (800, 520);

/// How much colour is left of what does not hold.
const PALE: f64 = 0.35;

/// Room above the highest mark, for the legend.
const ROOM: f64 = 1.45;

/// An SVG of the candidates that were simulated.
pub(super) fn svg(found: &Answer) -> Result<String, Failure> {
    Ok(plot::svg(SIZE, |area| chart(found).draw(area))?)
}

/// How levels are drawn: a number to divide by, and what the axis says.
fn scale(found: &Answer, largest: f64) -> (f64, String) {
    let Some(first) = found.first else { return (1.0, String::new()) };
    let figure = first.figure;
    if figure.is_time() {
        let (unit_s, unit) = plot::unit(largest);
        return (unit_s, format!("{figure} in {unit}"));
    }
    match figure {
        bellwether_sched::capacity::Figure::Deadlines => {
            (0.01, "deadlines that are missed, in per cent".into())
        }
        other => (1.0, other.to_string()),
    }
}

fn chart(found: &Answer) -> Chart {
    let level = |row: &CandidateRow| row.levels.first().copied().unwrap_or(0.0);
    let limit = found.first.map_or(0.0, |first| first.level_limit().level);
    // What is far beyond the limit would leave no room for what matters.
    let is_near = |row: &&CandidateRow| limit <= 0.0 || level(row) <= 6.0 * limit;
    let rows: Vec<&CandidateRow> = found.candidates.iter().filter(is_near).collect();
    let largest = rows.iter().map(|row| level(row)).fold(limit, f64::max);
    let highest = rows.iter().map(|row| row.cost_dollars).fold(0.0, f64::max);
    let (unit, x_name) = scale(found, largest);
    let right = if largest > 0.0 { 1.08 * largest / unit } else { 1.0 };
    let top = if highest > 0.0 { ROOM * highest } else { 1.0 };
    let cents = if top < 10.0 { 2 } else { 0 };
    let at = |row: &CandidateRow| (level(row) / unit, row.cost_dollars);
    let mut series = Vec::new();
    if let Some(first) = found.first {
        let style = GREY.stroke_width(2);
        let line = Series::line(vec![(limit / unit, 0.0), (limit / unit, top)], style);
        series.push(line.named(format!("objective: {first}"), Mark::Upright(style)));
    }
    series.extend(marks(&rows, at));
    if let Some(chosen) = found.choice.and_then(|choice| found.candidates.get(choice)) {
        let style = VERMILION.stroke_width(2);
        let ring = Series::circles(vec![at(chosen)], 9, style);
        let name = format!("choice: {}, {}", chosen.policy, chosen.cluster);
        series.push(ring.named(plot::short_name(&name), Mark::Circle(7, style)));
    }
    Chart {
        title: (
            format!(
                "{} candidates, {} simulated to the end",
                found.counts.candidates,
                found.candidates.len()
            ),
            20,
        ),
        margin: 16,
        label_areas: (40, 70),
        x: Axis::linear(0.0..right),
        y: Axis::linear(0.0..top),
        x_name,
        y_name: "cost in dollars, until the last job has ended".into(),
        x_format: None,
        y_format: Some(Box::new(move |dollars| format!("{dollars:.cents$}"))),
        has_grid: true,
        legend: Some(Corner::UpperRight),
        series,
    }
}

/// Circles are on demand, triangles transient; those that do not hold all objectives are pale. A line joins what
/// nothing else beats.
fn marks(rows: &[&CandidateRow], at: impl Fn(&CandidateRow) -> (f64, f64)) -> Vec<Series> {
    let is_transient = |row: &CandidateRow| row.machines.iter().any(|part| part.market == Market::Transient);
    let points = |transient: bool, holds: bool| -> Vec<(f64, f64)> {
        let kept = rows.iter().filter(|row| is_transient(row) == transient && row.holds == holds);
        kept.map(|row| at(row)).collect()
    };
    let mut series = Vec::new();
    let mut best: Vec<(f64, f64)> =
        rows.iter().filter(|row| row.is_pareto_optimal).map(|row| at(row)).collect();
    best.sort_by(|a, b| a.0.total_cmp(&b.0));
    // From one to the next the cheaper level is had only when it is reached.
    let steps: Vec<(f64, f64)> = best
        .iter()
        .enumerate()
        .flat_map(|(place, point)| {
            let before = place.checked_sub(1).map(|before| (point.0, best[before].1));
            before.into_iter().chain([*point])
        })
        .collect();
    if steps.len() > 1 {
        let style = BLUE.mix(0.6).stroke_width(1);
        series.push(Series::line(steps, style).named("what nothing else beats", Mark::Line(style)));
    }
    for (transient, colour) in [(false, BLUE), (true, ORANGE)] {
        // Triangles are always filled, so what does not hold is pale.
        for (holds, style) in [(false, colour.mix(PALE).filled()), (true, colour.filled())] {
            let points = points(transient, holds);
            if points.is_empty() {
                continue;
            }
            let market = if transient { "transient, all or some" } else { "on demand" };
            let name = if holds { format!("{market}; holds") } else { format!("{market}; does not hold") };
            series.push(match transient {
                false => Series::circles(points, 4, style).named(name, Mark::Circle(4, style)),
                true => Series::triangles(points, 5, style).named(name, Mark::Triangle(5, style)),
            });
        }
    }
    series
}
