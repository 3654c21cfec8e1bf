//! Completion times, use over time, and who ran where, as one picture.

use std::fmt::Write;

use bellwether::simulate::PolicyResult;
use bellwether_render::plot::{
    self, Area, Axis, BLACK, Chart, Color, Corner, Drawn, Mark, Series, ShapeStyle, colour, unit,
};
use bellwether_sim::cluster::Cluster;
use bellwether_sim::spans::{held, lanes};

use crate::failure::Failure;

const WIDTH: u32 = 1000;
const PANEL: u32 = 340;
/// Height of a line of the legend, and of what is above and below it in its panel.
const LEGEND_LINE: u32 = 16;
const LEGEND_REST: u32 = 110;
/// Height of a Gantt chart: a policy each.
const GANTT: u32 = 300;
/// More Gantt charts make no picture.
const GANTTS_MAX: usize = 4;
/// An eye cannot follow the rows of more nodes than this.
const ROWS_MAX: usize = 64;
/// Narrower bars than this part of the width are not seen.
const NARROWEST: f64 = 1e-3;
/// Points of the curve of use over time.
const BINS: usize = 300;

/// An SVG of the first seed of each policy.
pub(super) fn svg(results: &[PolicyResult], cluster: &Cluster) -> Result<String, Failure> {
    let first = PANEL.max(LEGEND_REST + LEGEND_LINE * results.len() as u32);
    let gantts = results.len().min(GANTTS_MAX);
    let height = first + PANEL + gantts as u32 * GANTT;
    Ok(plot::svg((WIDTH, height), |area| draw(results, cluster, first, area))?)
}

/// The first panel has a height of its own, for its legend.
fn draw(results: &[PolicyResult], cluster: &Cluster, first: u32, area: &Area<'_>) -> Drawn {
    let (times, rest) = area.split_vertically(first);
    let (usage, mut rest) = rest.split_vertically(PANEL);
    completion_times(results).draw(&times)?;
    let first_s =
        results.iter().filter_map(|r| r.entries.first()).map(|e| e.job.arrival_s).fold(f64::MAX, f64::min);
    let last_s = results.iter().map(|r| r.recording.end_s).fold(first_s, f64::max);
    let scale = Scale::of(first_s, last_s);
    use_over_time(results, cluster, &scale).draw(&usage)?;
    for result in results.iter().take(GANTTS_MAX) {
        let (one, others) = rest.split_vertically(GANTT);
        gantt(result, cluster, &scale).draw(&one)?;
        rest = others;
    }
    Ok(())
}

/// Time since the first arrival, in a unit that suits it.
struct Scale {
    first_s: f64,
    unit_s: f64,
    unit: &'static str,
    /// In that unit.
    length: f64,
}

impl Scale {
    fn of(first_s: f64, last_s: f64) -> Scale {
        let length_s = if last_s > first_s { last_s - first_s } else { 1.0 };
        let (unit_s, unit) = unit(length_s);
        Scale { first_s, unit_s, unit, length: length_s / unit_s }
    }

    fn at(&self, time_s: f64) -> f64 {
        (time_s - self.first_s) / self.unit_s
    }
}

/// Beyond eight policies lines differ by their width, too.
fn line(index: usize) -> ShapeStyle {
    const WIDTHS: [u32; 4] = [2, 1, 4, 3];
    colour(index).stroke_width(WIDTHS[index / 8 % WIDTHS.len()])
}

fn completion_times(results: &[PolicyResult]) -> Chart {
    let times = |result: &PolicyResult| {
        let ended = result.entries.iter().zip(&result.recording.jobs);
        let mut times: Vec<f64> =
            ended.filter_map(|(entry, record)| Some(record.end_s? - entry.job.arrival_s)).collect();
        times.sort_unstable_by(f64::total_cmp);
        times
    };
    let all: Vec<Vec<f64>> = results.iter().map(times).collect();
    let ends = all.iter().flat_map(|times| [times.first(), times.last()]).flatten().copied();
    let (low, high) = ends.fold((f64::MAX, 0.0_f64), |(low, high), time| (low.min(time), high.max(time)));
    let (low, high) = if high > 0.0 { (low.max(high * 1e-6), high) } else { (0.1, 1.0) };
    let (unit_s, unit) = unit(high / 10.0);
    let line = |(place, (times, result)): (usize, (&Vec<f64>, &PolicyResult))| {
        let every = times.len().div_ceil(1000).max(1);
        let count = times.len() as f64;
        let point = |(place, time): (usize, &f64)| (time / unit_s, (place + 1) as f64 / count);
        let mut points: Vec<(f64, f64)> =
            times.first().map(|time| (time / unit_s, 0.0)).into_iter().collect();
        points.extend(times.iter().enumerate().step_by(every).map(point));
        points.extend(times.last().map(|time| (time / unit_s, 1.0)));
        let style = self::line(place);
        Series::line(points, style).named(result.policy.as_str(), Mark::Line(style))
    };
    let axes = (Axis::logarithmic(0.9 * low / unit_s..1.1 * high / unit_s), Axis::linear(0.0..1.0));
    let names = (format!("completion time, {unit}"), "part of the jobs");
    let series = all.iter().zip(results).enumerate().map(line).collect();
    let panel = panel("completion times".into(), axes, names, series);
    Chart { legend: Some(Corner::UpperLeft), ..panel }
}

/// One of the panels.
fn panel(title: String, axes: (Axis, Axis), names: (String, &str), series: Vec<Series>) -> Chart {
    Chart {
        title: (title, 18),
        margin: 12,
        label_areas: (36, 64),
        x: axes.0,
        y: axes.1,
        x_name: names.0,
        y_name: names.1.into(),
        x_format: None,
        y_format: None,
        has_grid: true,
        legend: None,
        series,
    }
}

fn use_over_time(results: &[PolicyResult], cluster: &Cluster, scale: &Scale) -> Chart {
    let devices = f64::from(cluster.devices());
    let curve = |(place, result): (usize, &PolicyResult)| {
        let width = scale.length / BINS as f64;
        let point = |(bin, held): (usize, f64)| ((bin as f64 + 0.5) * width, held / width);
        let (first_s, last_s) = (scale.first_s, scale.first_s + scale.length * scale.unit_s);
        let held_s = held(&result.recording.spans, (first_s, last_s), BINS);
        let held = held_s.into_iter().map(|held_s| held_s / scale.unit_s);
        let points = held.enumerate().map(point).collect();
        Series::line(points, line(place))
    };
    let axes = (Axis::linear(0.0..scale.length), Axis::counting(0.0..devices * 1.05));
    let names = (format!("{} since the first arrival", scale.unit), "devices");
    panel("devices in use".into(), axes, names, results.iter().enumerate().map(curve).collect())
}

fn gantt(result: &PolicyResult, cluster: &Cluster, scale: &Scale) -> Chart {
    let nodes = cluster.view.nodes.len().min(ROWS_MAX);
    let rows: u32 = cluster.view.nodes[..nodes].iter().map(|node| node.devices).sum();
    let more = cluster.view.nodes.len() - nodes;
    let mut title = format!("{}: who ran where", result.policy);
    if more > 0 {
        let _ = write!(title, " (without {more} further nodes)");
    }
    let bars = lanes(&result.recording.spans, &cluster.view.nodes[..nodes])
        .into_iter()
        .map(|bar| (scale.at(bar.start_s), scale.at(bar.end_s), bar))
        .filter(|(start, end, _)| end - start >= NARROWEST * scale.length);
    let mut series: Vec<Series> = bars
        .map(|(start, end, bar)| {
            let (low, high) = (f64::from(bar.row) + 0.05, f64::from(bar.row + bar.rows) - 0.05);
            Series::rectangles([[(start, low), (end, high)]], colour(bar.job as usize).filled())
        })
        .collect();
    let mut top = 0;
    for node in &cluster.view.nodes[..nodes.saturating_sub(1)] {
        top += node.devices;
        let line = [(0.0, f64::from(top)), (scale.length, f64::from(top))];
        series.push(Series::segments([line], BLACK.mix(0.25)));
    }
    let axes = (Axis::linear(0.0..scale.length), Axis::counting(0.0..f64::from(rows.max(1))));
    let names = (format!("{} since the first arrival", scale.unit), "devices, by node");
    Chart { has_grid: false, ..panel(title, axes, names, series) }
}
