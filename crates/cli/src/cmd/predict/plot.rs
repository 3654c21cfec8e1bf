//! Throughput over workers as a picture.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::Row;
use crate::failure::Failure;

const SIZE: (u32, u32) = (800, 500);

/// Up to this many configurations each is drawn as a point: there is nothing between 2 and 3 workers.
const POINTS_MAX: usize = 32;

/// An axis has about so many numbers.
const TICKS: f64 = 8.0;

/// Characters of the job's name that fit into the picture.
const NAME_MAX: usize = 50;

/// An axis with numbers where we want them.
struct Axis {
    coordinate: RangedCoordf64,
    ticks: Vec<f64>,
}

type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        self.coordinate.map(value, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.ticks.clone() }
    }

    fn range(&self) -> Range<f64> {
        self.coordinate.range()
    }
}

/// An SVG of the predicted throughput, its interval, and what perfect scaling would give.
pub(super) fn svg(rows: &[Row], job: &str) -> Result<String, Failure> {
    let mut text = String::new();
    draw(rows, job, &mut text).map_err(|why| Failure::at("--plot", why))?;
    Ok(text)
}

fn draw(rows: &[Row], job: &str, text: &mut String) -> Drawn {
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return Ok(()) };
    let top = 1.08 * rows.iter().map(|row| row.high).fold(0.0, f64::max);
    let (left, right) = (f64::from(first.workers), f64::from(last.workers));
    let margin = if rows.len() == 1 { 0.5 } else { 0.02 * (right - left) };
    let (x_ticks, y_ticks) = (ticks(left, right, 1.0), ticks(0.0, top, 0.0));
    let digits = y_ticks.get(1).map_or(0, |step| (-step.log10().floor()).max(0.0) as usize);
    let area = SVGBackend::with_string(text, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(caption(job), ("sans-serif", 20))
        .margin(16)
        .x_label_area_size(40)
        .y_label_area_size(80)
        .build_cartesian_2d(
            Axis { coordinate: (left - margin..right + margin).into(), ticks: x_ticks },
            Axis { coordinate: (0.0..top).into(), ticks: y_ticks },
        )?;
    chart
        .configure_mesh()
        .x_desc("workers")
        .y_desc("examples per second")
        .x_label_formatter(&|workers| format!("{workers:.0}"))
        .y_label_formatter(&|rate| match digits {
            0..=3 => format!("{rate:.digits$}"),
            _ if *rate == 0.0 => "0".into(),
            _ => format!("{rate:.1e}"),
        })
        .light_line_style(WHITE)
        .draw()?;
    draw_perfect(&mut chart, first, right, top)?;
    draw_predicted(&mut chart, rows)?;
    // Where the curve falls, the lower corner is taken.
    let falls = last.examples_per_s < 0.4 * top;
    chart
        .configure_series_labels()
        .position(if falls { SeriesLabelPosition::UpperRight } else { SeriesLabelPosition::LowerRight })
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    area.present()?;
    Ok(())
}

/// What as many lone workers would do, as far as it fits.
fn draw_perfect(chart: &mut Chart<'_, '_>, first: &Row, right: f64, top: f64) -> Drawn {
    let left = f64::from(first.workers);
    let alone = first.examples_per_s / (first.efficiency * left);
    let end = right.min(top / alone);
    if end > left {
        chart
            .draw_series(LineSeries::new([(left, alone * left), (end, alone * end)], BLACK.mix(0.4)))?
            .label("perfect scaling")
            .legend(|(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], BLACK.mix(0.4)));
    }
    Ok(())
}

fn draw_predicted(chart: &mut Chart<'_, '_>, rows: &[Row]) -> Drawn {
    let predicted: Vec<(f64, f64)> =
        rows.iter().map(|row| (f64::from(row.workers), row.examples_per_s)).collect();
    let bars = rows.len() <= POINTS_MAX;
    if bars {
        let bar = |row: &Row| {
            let x = f64::from(row.workers);
            PathElement::new(vec![(x, row.low), (x, row.high)], BLUE.stroke_width(2))
        };
        chart.draw_series(rows.iter().map(bar))?;
        chart.draw_series(predicted.iter().map(|at| Circle::new(*at, 3, BLUE.filled())))?;
    } else {
        let upper = rows.iter().map(|row| (f64::from(row.workers), row.high));
        let lower = rows.iter().rev().map(|row| (f64::from(row.workers), row.low));
        let band: Vec<(f64, f64)> = upper.chain(lower).collect();
        chart.draw_series(std::iter::once(Polygon::new(band, BLUE.mix(0.2))))?;
    }
    chart
        .draw_series(LineSeries::new(predicted, BLUE.stroke_width(if bars { 1 } else { 2 })))?
        .label("predicted, with its 95 % interval")
        .legend(|(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], BLUE.stroke_width(2)));
    if let Some(knee) = rows.iter().find(|row| row.knee) {
        let at = (f64::from(knee.workers), knee.examples_per_s);
        chart
            .draw_series(std::iter::once(Circle::new(at, 5, RED.filled())))?
            .label("knee: the next adds less than half of the first")
            .legend(|(x, y)| Circle::new((x + 9, y), 4, RED.filled()));
    }
    Ok(())
}

fn caption(job: &str) -> String {
    match job.char_indices().nth(NAME_MAX) {
        Some((end, _)) => format!("{}…: predicted throughput", &job[..end]),
        None => format!("{job}: predicted throughput"),
    }
}

/// Round numbers from `low` to `high`, no closer than `least`.
fn ticks(low: f64, high: f64, least: f64) -> Vec<f64> {
    let wanted = (high - low) / TICKS;
    let power = 10f64.powf(wanted.max(f64::MIN_POSITIVE).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= wanted);
    let step = step.unwrap_or(wanted).max(least);
    let (first, last) = ((low / step).ceil() as i64, (high / step).floor() as i64);
    (first..=last).map(|number| number as f64 * step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(ticks(1.0, 4.0, 1.0), [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(ticks(1.0, 64.0, 1.0), [10.0, 20.0, 30.0, 40.0, 50.0, 60.0]);
        assert_eq!(ticks(3.0, 3.0, 1.0), [3.0]);
        for high in [1e-7, 0.3, 7.0, 123_456.0] {
            assert!((4..=9).contains(&ticks(0.0, high, 0.0).len()), "{high}");
        }
    }
}
