//! Throughput over workers as a picture.

use bellwether_model::predict::Answer;
use bellwether_render::plot::{self, Axis, BLACK, BLUE, Chart, Color, Corner, Mark, Series, VERMILION};

use crate::failure::Failure;

const SIZE: (u32, u32) = (800, 500);

/// Up to this many configurations each is drawn as a point: there is nothing between 2 and 3 workers.
const POINTS_MAX: usize = 32;

/// An SVG of the predicted throughput, its interval, and what perfect scaling would give.
pub(super) fn svg(rows: &[Answer], job: &str) -> Result<String, Failure> {
    Ok(plot::svg(SIZE, |area| chart(rows, job).map_or(Ok(()), |chart| chart.draw(area)))?)
}

fn chart(rows: &[Answer], job: &str) -> Option<Chart> {
    let (first, last) = (rows.first()?, rows.last()?);
    let top = 1.08 * rows.iter().map(|row| row.high).fold(0.0, f64::max);
    let (left, right) = (f64::from(first.workers), f64::from(last.workers));
    let margin = if rows.len() == 1 { 0.5 } else { 0.02 * (right - left) };
    let rates = Axis::linear(0.0..top);
    let digits = rates.digits();
    let mut series = Vec::from_iter(perfect(first, right, top));
    series.extend(predicted(rows));
    // Where the curve falls, the lower corner is taken.
    let falls = last.examples_per_s < 0.4 * top;
    Some(Chart {
        title: (format!("{}: predicted throughput", plot::short_name(job)), 20),
        margin: 16,
        label_areas: (40, 80),
        x: Axis::counting(left..right).widened(margin),
        y: rates,
        x_name: "workers".into(),
        y_name: "examples per second".into(),
        x_format: Some(Box::new(|workers| format!("{workers:.0}"))),
        y_format: Some(Box::new(move |rate| match digits {
            0..=3 => format!("{rate:.digits$}"),
            _ if rate == 0.0 => "0".into(),
            _ => format!("{rate:.1e}"),
        })),
        has_grid: true,
        legend: Some(if falls { Corner::UpperRight } else { Corner::LowerRight }),
        series,
    })
}

/// What as many lone workers would do, as far as it fits.
fn perfect(first: &Answer, right: f64, top: f64) -> Option<Series> {
    let left = f64::from(first.workers);
    let alone = first.examples_per_s / (first.efficiency * left);
    let end = right.min(top / alone);
    let style = BLACK.mix(0.4);
    let line = Series::line(vec![(left, alone * left), (end, alone * end)], style);
    (end > left).then(|| line.named("perfect scaling", Mark::Line(style.into())))
}

fn predicted(rows: &[Answer]) -> Vec<Series> {
    let at = |row: &Answer, rate: f64| (f64::from(row.workers), rate);
    let points: Vec<(f64, f64)> = rows.iter().map(|row| at(row, row.examples_per_s)).collect();
    let bars = rows.len() <= POINTS_MAX;
    let mut series = if bars {
        let bar = |row: &Answer| [at(row, row.low), at(row, row.high)];
        let bars = Series::segments(rows.iter().map(bar), BLUE.stroke_width(2));
        vec![bars, Series::circles(points.clone(), 3, BLUE.filled())]
    } else {
        let upper = rows.iter().map(|row| at(row, row.high));
        let lower = rows.iter().rev().map(|row| at(row, row.low));
        vec![Series::polygon(upper.chain(lower).collect(), BLUE.mix(0.2))]
    };
    let line = Series::line(points, BLUE.stroke_width(if bars { 1 } else { 2 }));
    series.push(line.named("predicted, with its 95 % interval", Mark::Line(BLUE.stroke_width(2))));
    series.extend(rows.iter().find(|row| row.knee).map(|knee| {
        let style = VERMILION.filled();
        Series::circles(vec![at(knee, knee.examples_per_s)], 5, style)
            .named("knee: beyond it, workers add less than half of the first", Mark::Circle(4, style))
    }));
    series
}
