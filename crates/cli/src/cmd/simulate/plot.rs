//! Completion times, use over time, and who ran where, as one picture.

use std::collections::BTreeMap;
use std::fmt::Write;

use bellwether_core::cluster::NodeId;
use bellwether_sim::cluster::Cluster;
use bellwether_sim::world::Span;
use plotters::prelude::*;

use super::experiment::PolicyResult;
use crate::failure::Failure;
use crate::render::plot::{self, Area, Axis, Drawn, colour, legend, line_mark, unit};

const WIDTH: u32 = 1000;
const PANEL: u32 = 340;
/// Height of a line of the legend, and of what is above and below it in its panel.
const LEGEND_LINE: u32 = 16;
const LEGEND_REST: u32 = 110;
/// Height of a Gantt chart: a policy each.
const GANTT: u32 = 300;
/// More Gantt charts make no picture.
const GANTTS_MAX: usize = 4;
/// More nodes than this are no rows that an eye could follow.
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
    plot::svg((WIDTH, height), |area| draw(results, cluster, first, area))
}

/// The first panel has a height of its own, for its legend.
fn draw(results: &[PolicyResult], cluster: &Cluster, first: u32, area: &Area<'_>) -> Drawn {
    let (times, rest) = area.split_vertically(first);
    let (usage, mut rest) = rest.split_vertically(PANEL);
    completion_times(&times, results)?;
    let first_s =
        results.iter().filter_map(|r| r.entries.first()).map(|e| e.job.arrival_s).fold(f64::MAX, f64::min);
    let last_s = results.iter().map(|r| r.recording.end_s).fold(first_s, f64::max);
    let scale = Scale::of(first_s, last_s);
    use_over_time(&usage, results, cluster, &scale)?;
    for result in results.iter().take(GANTTS_MAX) {
        let (one, others) = rest.split_vertically(GANTT);
        gantt(&one, result, cluster, &scale)?;
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

fn completion_times(area: &Area<'_>, results: &[PolicyResult]) -> Drawn {
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
    let mut chart = ChartBuilder::on(area)
        .caption("completion times", ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d(
            Axis::logarithmic(0.9 * low / unit_s..1.1 * high / unit_s),
            Axis::linear(0.0..1.0),
        )?;
    chart
        .configure_mesh()
        .x_desc(format!("completion time, {unit}"))
        .y_desc("part of the jobs")
        .light_line_style(WHITE)
        .draw()?;
    for (index, (times, result)) in all.iter().zip(results).enumerate() {
        let every = times.len().div_ceil(1000).max(1);
        let count = times.len() as f64;
        let point = |(place, time): (usize, &f64)| (time / unit_s, (place + 1) as f64 / count);
        let mut points: Vec<(f64, f64)> =
            times.first().map(|time| (time / unit_s, 0.0)).into_iter().collect();
        points.extend(times.iter().enumerate().step_by(every).map(point));
        points.extend(times.last().map(|time| (time / unit_s, 1.0)));
        let style = line(index);
        chart
            .draw_series(LineSeries::new(points, style))?
            .label(result.policy.as_str())
            .legend(line_mark(style));
    }
    legend(&mut chart, SeriesLabelPosition::UpperLeft)
}

fn use_over_time(area: &Area<'_>, results: &[PolicyResult], cluster: &Cluster, scale: &Scale) -> Drawn {
    let devices = f64::from(cluster.devices());
    let mut chart = ChartBuilder::on(area)
        .caption("devices in use", ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d(Axis::linear(0.0..scale.length), Axis::counting(0.0..devices * 1.05))?;
    chart
        .configure_mesh()
        .x_desc(format!("{} since the first arrival", scale.unit))
        .y_desc("devices")
        .light_line_style(WHITE)
        .draw()?;
    for (index, result) in results.iter().enumerate() {
        let width = scale.length / BINS as f64;
        let point = |(bin, held): (usize, f64)| ((bin as f64 + 0.5) * width, held / width);
        let points: Vec<(f64, f64)> =
            binned(&result.recording.spans, scale).into_iter().enumerate().map(point).collect();
        chart.draw_series(LineSeries::new(points, line(index)))?;
    }
    Ok(())
}

/// Device-time held in each of [`BINS`] equal parts of the time.
fn binned(spans: &[Span], scale: &Scale) -> Vec<f64> {
    let width = scale.length / BINS as f64;
    let mut held = vec![0.0; BINS];
    for span in spans {
        let (start, end) = (scale.at(span.start_s), scale.at(span.end_s));
        let last = ((end / width) as usize).min(BINS - 1);
        for (bin, sum) in held.iter_mut().enumerate().take(last + 1).skip((start / width) as usize) {
            let (low, high) = (bin as f64 * width, (bin + 1) as f64 * width);
            *sum += f64::from(span.devices) * (end.min(high) - start.max(low)).max(0.0);
        }
    }
    held
}

fn gantt(area: &Area<'_>, result: &PolicyResult, cluster: &Cluster, scale: &Scale) -> Drawn {
    let nodes = cluster.view.nodes.len().min(ROWS_MAX);
    let rows: u32 = cluster.view.nodes[..nodes].iter().map(|node| node.devices).sum();
    let more = cluster.view.nodes.len() - nodes;
    let mut title = format!("{}: who ran where", result.policy);
    if more > 0 {
        let _ = write!(title, " (without {more} further nodes)");
    }
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d(Axis::linear(0.0..scale.length), Axis::counting(0.0..f64::from(rows.max(1))))?;
    chart
        .configure_mesh()
        .disable_mesh()
        .x_desc(format!("{} since the first arrival", scale.unit))
        .y_desc("devices, by node")
        .draw()?;
    let bars = bars(&result.recording.spans, cluster, nodes)
        .into_iter()
        .map(|bar| (scale.at(bar.start_s), scale.at(bar.end_s), bar))
        .filter(|(start, end, _)| end - start >= NARROWEST * scale.length);
    chart.draw_series(bars.map(|(start, end, bar)| {
        let (low, high) = (f64::from(bar.row) + 0.05, f64::from(bar.row + bar.rows) - 0.05);
        Rectangle::new([(start, low), (end, high)], colour(bar.job as usize).filled())
    }))?;
    let mut top = 0;
    for node in &cluster.view.nodes[..nodes.saturating_sub(1)] {
        top += node.devices;
        let line = vec![(0.0, f64::from(top)), (scale.length, f64::from(top))];
        chart.draw_series(std::iter::once(PathElement::new(line, BLACK.mix(0.25))))?;
    }
    Ok(())
}

/// Devices of a node, side by side, that a job held for a while.
struct Bar {
    job: u32,
    row: u32,
    rows: u32,
    start_s: f64,
    end_s: f64,
}

/// Gives each span single devices of its node: the first that are free then.
fn bars(spans: &[Span], cluster: &Cluster, nodes: usize) -> Vec<Bar> {
    let mut first_rows: BTreeMap<NodeId, u32> = BTreeMap::new();
    let mut rows = 0;
    for (index, node) in cluster.view.nodes[..nodes].iter().enumerate() {
        first_rows.insert(NodeId(index as u32), rows);
        rows += node.devices;
    }
    let mut free_from_s = vec![f64::MIN; rows as usize];
    let mut ordered: Vec<&Span> = spans.iter().filter(|span| first_rows.contains_key(&span.node)).collect();
    ordered.sort_by(|a, b| a.start_s.total_cmp(&b.start_s).then(a.job.cmp(&b.job)));
    let mut bars = Vec::new();
    for span in ordered {
        let (first, devices) = (first_rows[&span.node], cluster.view.nodes[span.node.0 as usize].devices);
        let (job, start_s, end_s) = (span.job.0, span.start_s, span.end_s);
        let free = |row: &u32| free_from_s[*row as usize] <= start_s;
        let rows: Vec<u32> = (first..first + devices).filter(free).take(span.devices as usize).collect();
        for side_by_side in rows.chunk_by(|a, b| a + 1 == *b) {
            bars.push(Bar { job, row: side_by_side[0], rows: side_by_side.len() as u32, start_s, end_s });
        }
        for row in rows {
            free_from_s[row as usize] = end_s;
        }
    }
    bars
}
