//! Throughput over workers as a picture.

use plotters::prelude::*;

use super::Row;
use crate::failure::Failure;
use crate::render::plot::{self, Area, Axis, BLUE, Drawn, VERMILION, circle_mark, legend, line_mark};

const SIZE: (u32, u32) = (800, 500);

/// Up to this many configurations each is drawn as a point: there is nothing between 2 and 3 workers.
const POINTS_MAX: usize = 32;

type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;
/// An SVG of the predicted throughput, its interval, and what perfect scaling would give.
pub(super) fn svg(rows: &[Row], job: &str) -> Result<String, Failure> {
    plot::svg(SIZE, |area| draw(rows, job, area))
}

fn draw(rows: &[Row], job: &str, area: &Area<'_>) -> Drawn {
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return Ok(()) };
    let top = 1.08 * rows.iter().map(|row| row.high).fold(0.0, f64::max);
    let (left, right) = (f64::from(first.workers), f64::from(last.workers));
    let margin = if rows.len() == 1 { 0.5 } else { 0.02 * (right - left) };
    let rates = Axis::linear(0.0..top);
    let digits = rates.digits();
    let mut chart = ChartBuilder::on(area)
        .caption(format!("{}: predicted throughput", plot::short_name(job)), ("sans-serif", 20))
        .margin(16)
        .x_label_area_size(40)
        .y_label_area_size(80)
        .build_cartesian_2d(Axis::counting(left..right).widened(margin), rates)?;
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
    legend(&mut chart, if falls { SeriesLabelPosition::UpperRight } else { SeriesLabelPosition::LowerRight })
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
            .legend(line_mark(BLACK.mix(0.4)));
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
        .legend(line_mark(BLUE.stroke_width(2)));
    if let Some(knee) = rows.iter().find(|row| row.knee) {
        let at = (f64::from(knee.workers), knee.examples_per_s);
        chart
            .draw_series(std::iter::once(Circle::new(at, 5, VERMILION.filled())))?
            .label("knee: the next adds less than half of the first")
            .legend(circle_mark(4, VERMILION.filled()));
    }
    Ok(())
}
