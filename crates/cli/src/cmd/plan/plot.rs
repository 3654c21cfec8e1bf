//! Cost over time as a picture: what nothing else beats, and what was chosen.

use std::ops::Range;

use bellwether_core::plan::{Candidate, Plan};
use bellwether_render::plot::{
    self, Axis, BLUE, Chart, Color, Corner, GREY, Mark, ORANGE, RGBColor, Series, VERMILION,
};

use crate::failure::Failure;

const SIZE: (u32, u32) = (800, 520);
const ON_DEMAND: RGBColor = BLUE;
const TRANSIENT: RGBColor = ORANGE;
const CHOICE: RGBColor = VERMILION;
const LIMIT: RGBColor = GREY;

/// Room above the highest mark, for the legend.
const ROOM: f64 = 1.5;

/// An SVG of the Pareto set.
pub(super) fn svg(plan: &Plan) -> Result<String, Failure> {
    Ok(plot::svg(SIZE, |area| chart(plan).draw(area))?)
}

fn chart(plan: &Plan) -> Chart {
    let all = || plan.candidates.iter().chain(&plan.on_demand);
    let longest_s = all().map(|c| c.p95_time_s).fold(0.0, f64::max);
    // Without anything to draw the axes stand alone.
    let longest_s = if longest_s > 0.0 { longest_s } else { 1.0 };
    let shortest_s = all().map(|c| c.time_s).fold(longest_s, f64::min);
    let highest = all().map(|c| c.cost_dollars).fold(0.0, f64::max);
    let (unit_s, unit) = plot::unit(longest_s);
    let top = if highest > 0.0 { ROOM * highest } else { 1.0 };
    let times = 0.8 * shortest_s / unit_s..1.2 * longest_s / unit_s;
    let cents = if top < 10.0 { 2 } else { 0 };
    let mut series = limits(plan, unit_s, &times, top);
    series.extend(candidates(plan, unit_s));
    Chart {
        title: (format!("{}: what nothing else beats", plot::short_name(&plan.job)), 20),
        margin: 16,
        label_areas: (40, 70),
        x: Axis::logarithmic(times),
        y: Axis::linear(0.0..top),
        x_name: format!("time in {unit}: expected (mark), and what 95 % of runs need (end of its line)"),
        y_name: "expected cost in dollars".into(),
        x_format: None,
        y_format: Some(Box::new(move |dollars| format!("{dollars:.cents$}"))),
        has_grid: true,
        legend: Some(Corner::UpperRight),
        series,
    }
}

/// Deadline and budget as lines, where they lie in the picture.
fn limits(plan: &Plan, unit_s: f64, times: &Range<f64>, top: f64) -> Vec<Series> {
    let style = LIMIT.stroke_width(2);
    let deadline = plan.constraints.deadline_s.map(|s| s / unit_s).filter(|time| times.contains(time));
    let deadline = deadline.map(|deadline| {
        Series::line(vec![(deadline, 0.0), (deadline, top)], style).named("deadline", Mark::Upright(style))
    });
    let budget = plan.constraints.budget_dollars.filter(|budget| *budget < top).map(|budget| {
        Series::line(vec![(times.start, budget), (times.end, budget)], style)
            .named("budget", Mark::Line(style))
    });
    deadline.into_iter().chain(budget).collect()
}

/// Circles are on demand, triangles transient; a line goes to the time that 95 % of runs need.
fn candidates(plan: &Plan, unit_s: f64) -> Vec<Series> {
    let at = |candidate: &Candidate| (candidate.time_s / unit_s, candidate.cost_dollars);
    let points = |candidates: &[&Candidate]| candidates.iter().map(|candidate| at(candidate)).collect();
    let mut series = Vec::new();
    if !plan.on_demand.is_empty() {
        let pale = ON_DEMAND.stroke_width(1);
        let alone = Series::circles(plan.on_demand.iter().map(at).collect(), 4, pale);
        series.push(alone.named("on demand alone, for comparison", Mark::Circle(4, pale)));
    }
    for candidate in &plan.candidates {
        let (time, cost) = at(candidate);
        let colour = if candidate.has_transient() { TRANSIENT } else { ON_DEMAND };
        let whisker = [(time, cost), (candidate.p95_time_s / unit_s, cost)];
        series.push(Series::segments([whisker], colour.stroke_width(1)));
    }
    let (transient, firm): (Vec<&Candidate>, Vec<&Candidate>) =
        plan.candidates.iter().partition(|candidate| candidate.has_transient());
    if !firm.is_empty() {
        let style = ON_DEMAND.filled();
        series.push(Series::circles(points(&firm), 4, style).named("on demand", Mark::Circle(4, style)));
    }
    if !transient.is_empty() {
        let style = TRANSIENT.filled();
        let marks = Series::triangles(points(&transient), 5, style);
        series.push(marks.named("transient, all or some", Mark::Triangle(5, style)));
    }
    if let Some(chosen) = plan.chosen() {
        let style = CHOICE.stroke_width(2);
        let ring = Series::circles(vec![at(chosen)], 9, style);
        series.push(ring.named(format!("choice: {}", chosen.words()), Mark::Circle(7, style)));
    }
    series
}
