//! Cost over time as a picture: what nothing else beats, and what was chosen.

use std::ops::Range;

use bellwether_core::plan::{Candidate, Plan};
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint};
use plotters::prelude::*;

use crate::failure::Failure;

const SIZE: (u32, u32) = (800, 520);
/// Characters of the job's name that fit into the picture.
const NAME_MAX: usize = 40;

const ON_DEMAND: RGBColor = RGBColor(0, 114, 178);
const TRANSIENT: RGBColor = RGBColor(230, 159, 0);
const CHOICE: RGBColor = RGBColor(213, 94, 0);
const WISH: RGBColor = RGBColor(120, 120, 120);

/// Room above the highest mark, for the legend.
const ROOM: f64 = 1.5;

/// A logarithmic axis with numbers at 1, 2, 3, 5 and 7 times powers of ten.
struct Times(Range<f64>);

impl Ranged for Times {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let part = (value / self.0.start).ln() / (self.0.end / self.0.start).ln();
        limit.0 + (part * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() {
            return Vec::new();
        }
        let decades = self.0.start.log10().floor() as i32..=self.0.end.log10().ceil() as i32;
        let many = (self.0.end / self.0.start).log10() > 2.0;
        let factors: &[f64] = if many { &[1.0, 3.0] } else { &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0] };
        let all = decades.flat_map(|power| factors.iter().map(move |factor| factor * 10f64.powi(power)));
        all.filter(|value| self.0.contains(value)).collect()
    }

    fn range(&self) -> Range<f64> {
        self.0.clone()
    }
}

type Chart<'a, 'b> =
    ChartContext<'a, SVGBackend<'b>, Cartesian2d<Times, plotters::coord::types::RangedCoordf64>>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// An SVG of the Pareto set.
pub(super) fn svg(plan: &Plan) -> Result<String, Failure> {
    let mut text = String::new();
    draw(plan, &mut text).map_err(|why| Failure::at("--plot", why))?;
    Ok(text)
}

/// Seconds of the unit in which times are shown, and its name.
fn unit(longest_s: f64) -> (f64, &'static str) {
    match longest_s {
        s if s < 600.0 => (1.0, "seconds"),
        s if s < 36_000.0 => (60.0, "minutes"),
        s if s < 864_000.0 => (3600.0, "hours"),
        _ => (86_400.0, "days"),
    }
}

fn draw(plan: &Plan, text: &mut String) -> Drawn {
    let all = || plan.candidates.iter().chain(&plan.on_demand);
    let longest_s = all().map(|c| c.p95_time_s).fold(0.0, f64::max);
    // Without anything to draw the axes stand alone.
    let longest_s = if longest_s > 0.0 { longest_s } else { 1.0 };
    let shortest_s = all().map(|c| c.time_s).fold(longest_s, f64::min);
    let highest = all().map(|c| c.cost_dollars).fold(0.0, f64::max);
    let (unit_s, unit) = unit(longest_s);
    let top = if highest > 0.0 { ROOM * highest } else { 1.0 };
    let times = 0.8 * shortest_s / unit_s..1.2 * longest_s / unit_s;
    let area = SVGBackend::with_string(text, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let name: String = plan.job.chars().take(NAME_MAX).collect();
    let mut chart = ChartBuilder::on(&area)
        .caption(format!("{name}: what nothing else beats"), ("sans-serif", 20))
        .margin(16)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(Times(times.clone()), 0.0..top)?;
    let cents = if top < 10.0 { 2 } else { 0 };
    chart
        .configure_mesh()
        .x_desc(format!("time in {unit}: expected (mark), and what 95 % of runs need (end of its line)"))
        .y_desc("expected cost in dollars")
        .x_label_formatter(&|time| format!("{}", (time * 1e6).round() / 1e6))
        .y_label_formatter(&|dollars| format!("{dollars:.cents$}"))
        .light_line_style(WHITE)
        .draw()?;
    draw_wishes(&mut chart, plan, unit_s, &times, top)?;
    draw_candidates(&mut chart, plan, unit_s)?;
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    area.present()?;
    Ok(())
}

/// Deadline and budget as lines, where they lie in the picture.
fn draw_wishes(chart: &mut Chart<'_, '_>, plan: &Plan, unit_s: f64, times: &Range<f64>, top: f64) -> Drawn {
    if let Some(deadline) = plan.wishes.deadline_s.map(|s| s / unit_s).filter(|time| times.contains(time)) {
        chart
            .draw_series(LineSeries::new([(deadline, 0.0), (deadline, top)], WISH.stroke_width(2)))?
            .label("deadline")
            .legend(|(x, y)| PathElement::new(vec![(x + 9, y - 6), (x + 9, y + 6)], WISH.stroke_width(2)));
    }
    if let Some(budget) = plan.wishes.budget_dollars.filter(|budget| *budget < top) {
        let line = [(times.start, budget), (times.end, budget)];
        chart
            .draw_series(LineSeries::new(line, WISH.stroke_width(2)))?
            .label("budget")
            .legend(|(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], WISH.stroke_width(2)));
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
            .legend(move |(x, y)| Circle::new((x + 9, y), 4, pale));
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
            .legend(|(x, y)| Circle::new((x + 9, y), 4, ON_DEMAND.filled()));
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
            .legend(|(x, y)| Circle::new((x + 9, y), 7, CHOICE.stroke_width(2)));
    }
    Ok(())
}
