//! Cost over time as a picture: what nothing else beats, and what was chosen.

use std::ops::Range;

use bellwether_core::plan::{Candidate, Plan};
use plotters::prelude::*;

use crate::failure::Failure;
use crate::render::plot::{
    self, Area, Axis, BLUE, Drawn, GREY, ORANGE, VERMILION, circle_mark, legend, line_mark,
};

const SIZE: (u32, u32) = (800, 520);
const ON_DEMAND: RGBColor = BLUE;
const TRANSIENT: RGBColor = ORANGE;
const CHOICE: RGBColor = VERMILION;
const WISH: RGBColor = GREY;

/// Room above the highest mark, for the legend.
const ROOM: f64 = 1.5;

type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;
/// An SVG of the Pareto set.
pub(super) fn svg(plan: &Plan) -> Result<String, Failure> {
    plot::svg(SIZE, |area| draw(plan, area))
}

fn draw(plan: &Plan, area: &Area<'_>) -> Drawn {
    let all = || plan.candidates.iter().chain(&plan.on_demand);
    let longest_s = all().map(|c| c.p95_time_s).fold(0.0, f64::max);
    // Without anything to draw the axes stand alone.
    let longest_s = if longest_s > 0.0 { longest_s } else { 1.0 };
    let shortest_s = all().map(|c| c.time_s).fold(longest_s, f64::min);
    let highest = all().map(|c| c.cost_dollars).fold(0.0, f64::max);
    let (unit_s, unit) = plot::unit(longest_s);
    let top = if highest > 0.0 { ROOM * highest } else { 1.0 };
    let times = 0.8 * shortest_s / unit_s..1.2 * longest_s / unit_s;
    let mut chart = ChartBuilder::on(area)
        .caption(format!("{}: what nothing else beats", plot::short_name(&plan.job)), ("sans-serif", 20))
        .margin(16)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(Axis::logarithmic(times.clone()), Axis::linear(0.0..top))?;
    let cents = if top < 10.0 { 2 } else { 0 };
    chart
        .configure_mesh()
        .x_desc(format!("time in {unit}: expected (mark), and what 95 % of runs need (end of its line)"))
        .y_desc("expected cost in dollars")
        .y_label_formatter(&|dollars| format!("{dollars:.cents$}"))
        .light_line_style(WHITE)
        .draw()?;
    draw_wishes(&mut chart, plan, unit_s, &times, top)?;
    draw_candidates(&mut chart, plan, unit_s)?;
    legend(&mut chart, SeriesLabelPosition::UpperRight)
}

/// Deadline and budget as lines, where they lie in the picture.
fn draw_wishes(chart: &mut Chart<'_, '_>, plan: &Plan, unit_s: f64, times: &Range<f64>, top: f64) -> Drawn {
    if let Some(deadline) =
        plan.constraints.deadline_s.map(|s| s / unit_s).filter(|time| times.contains(time))
    {
        chart
            .draw_series(LineSeries::new([(deadline, 0.0), (deadline, top)], WISH.stroke_width(2)))?
            .label("deadline")
            .legend(|(x, y)| PathElement::new(vec![(x + 9, y - 6), (x + 9, y + 6)], WISH.stroke_width(2)));
    }
    if let Some(budget) = plan.constraints.budget_dollars.filter(|budget| *budget < top) {
        let line = [(times.start, budget), (times.end, budget)];
        chart
            .draw_series(LineSeries::new(line, WISH.stroke_width(2)))?
            .label("budget")
            .legend(line_mark(WISH.stroke_width(2)));
    }
    Ok(())
}

/// Circles are on demand, triangles transient; a line goes to the time that 95 % of runs need.
fn draw_candidates(chart: &mut Chart<'_, '_>, plan: &Plan, unit_s: f64) -> Drawn {
    let at = |candidate: &Candidate| (candidate.time_s / unit_s, candidate.cost_dollars);
    if !plan.on_demand.is_empty() {
        let pale = ON_DEMAND.stroke_width(1);
        chart
            .draw_series(plan.on_demand.iter().map(|candidate| Circle::new(at(candidate), 4, pale)))?
            .label("on demand alone, for comparison")
            .legend(circle_mark(4, pale));
    }
    let (transient, firm): (Vec<&Candidate>, Vec<&Candidate>) =
        plan.candidates.iter().partition(|candidate| candidate.has_transient());
    let whisker = |candidate: &Candidate| {
        let (time, cost) = at(candidate);
        let colour = if candidate.has_transient() { TRANSIENT } else { ON_DEMAND };
        PathElement::new(vec![(time, cost), (candidate.p95_time_s / unit_s, cost)], colour.stroke_width(1))
    };
    chart.draw_series(plan.candidates.iter().map(whisker))?;
    if !firm.is_empty() {
        chart
            .draw_series(firm.iter().map(|candidate| Circle::new(at(candidate), 4, ON_DEMAND.filled())))?
            .label("on demand")
            .legend(circle_mark(4, ON_DEMAND.filled()));
    }
    if !transient.is_empty() {
        chart
            .draw_series(transient.iter().map(|c| TriangleMarker::new(at(c), 5, TRANSIENT.filled())))?
            .label("transient, all or some")
            .legend(|(x, y)| TriangleMarker::new((x + 9, y), 5, TRANSIENT.filled()));
    }
    if let Some(chosen) = plan.chosen() {
        chart
            .draw_series(std::iter::once(Circle::new(at(chosen), 9, CHOICE.stroke_width(2))))?
            .label(format!("choice: {}", chosen.words()))
            .legend(circle_mark(7, CHOICE.stroke_width(2)));
    }
    Ok(())
}
