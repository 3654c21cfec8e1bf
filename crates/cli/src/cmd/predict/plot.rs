//! Throughput over workers as a picture.

use plotters::prelude::*;

use super::Row;
use crate::failure::Failure;

const SIZE: (u32, u32) = (800, 500);

/// An SVG of the predicted throughput, its interval, and what perfect scaling would give.
pub(super) fn svg(rows: &[Row], job: &str) -> Result<String, Failure> {
    let mut text = String::new();
    draw(rows, job, &mut text).map_err(|why| Failure::at("--plot", why))?;
    Ok(text)
}

fn draw(rows: &[Row], job: &str, text: &mut String) -> Result<(), Box<dyn std::error::Error>> {
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return Ok(()) };
    let alone = first.examples_per_s / (first.efficiency * f64::from(first.workers));
    let highest = rows.iter().map(|row| row.high).fold(0.0, f64::max);
    let (left, right) = (f64::from(first.workers), f64::from(last.workers.max(first.workers + 1)));
    let area = SVGBackend::with_string(text, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(format!("{job}: predicted throughput"), ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(left..right, 0.0..highest * 1.1)?;
    chart
        .configure_mesh()
        .x_desc("workers")
        .y_desc("examples per second")
        .x_label_formatter(&|workers| format!("{workers:.0}"))
        .light_line_style(WHITE)
        .draw()?;
    let upper = rows.iter().map(|row| (f64::from(row.workers), row.high));
    let lower = rows.iter().rev().map(|row| (f64::from(row.workers), row.low));
    chart
        .draw_series(std::iter::once(Polygon::new(upper.chain(lower).collect::<Vec<_>>(), BLUE.mix(0.2))))?;
    let perfect = rows.iter().map(|row| (f64::from(row.workers), alone * f64::from(row.workers)));
    let inside: Vec<(f64, f64)> = perfect.filter(|(_, y)| *y <= highest * 1.1).collect();
    chart
        .draw_series(LineSeries::new(inside, BLACK.mix(0.4)))?
        .label("perfect scaling")
        .legend(|(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], BLACK.mix(0.4)));
    let predicted = rows.iter().map(|row| (f64::from(row.workers), row.examples_per_s));
    chart
        .draw_series(LineSeries::new(predicted, BLUE.stroke_width(2)))?
        .label("predicted, with its 95 % interval")
        .legend(|(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], BLUE.stroke_width(2)));
    let knee = rows.iter().filter(|row| row.knee && rows.len() > 1);
    chart
        .draw_series(
            knee.map(|row| Circle::new((f64::from(row.workers), row.examples_per_s), 5, RED.filled())),
        )?
        .label("knee")
        .legend(|(x, y)| Circle::new((x + 9, y), 4, RED.filled()));
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    area.present()?;
    Ok(())
}
