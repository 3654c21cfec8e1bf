//! What all plots share: the sheet, the axis, the colours, the legend.

use std::error::Error;
use std::fmt;
use std::ops::Range;

use plotters::coord::CoordTranslate;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

mod chart;
mod heat_map;
mod lanes;

pub use chart::{Chart, Corner, Mark, Series};
pub use heat_map::HeatMap;
pub use lanes::{LaneCell, Lanes};
pub use plotters::style::{BLACK, Color, RGBColor, ShapeStyle};

/// About how many numbers an axis has.
const TICKS: f64 = 8.0;

/// Ratios of the ends of a logarithmic axis, in powers of ten, above which it has fewer numbers, and very few.
const MANY_DECADES: f64 = 2.0;
const MOST_DECADES: f64 = 4.0;

/// Characters of a name that fit into a title.
const NAME_MAX: usize = 50;

// Okabe and Ito: told apart by all eyes.
/// The first colour of the palette.
pub const BLUE: RGBColor = RGBColor(0, 114, 178);
/// The second one.
pub const ORANGE: RGBColor = RGBColor(230, 159, 0);
/// For what stands out: losses, choices.
pub const VERMILION: RGBColor = RGBColor(213, 94, 0);
/// For what is in the background: limits, what is not of interest.
pub const GREY: RGBColor = RGBColor(120, 120, 120);
const COLOURS: [RGBColor; 8] = [
    BLUE,
    ORANGE,
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    VERMILION,
    GREY,
    RGBColor(180, 170, 20),
];

/// Part of a sheet.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A picture could not be drawn, with the library's reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlotError(pub String);

impl fmt::Display for PlotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for PlotError {}

/// Whether something could be drawn.
pub type Drawn = Result<(), Box<dyn Error>>;

/// On a dark page light and dark change places and hues stay; what shows no style sheets shows the white sheet.
const DARK: &str = "\n<style>@media (prefers-color-scheme: dark) \
    { svg { filter: invert(0.93) hue-rotate(180deg) } }</style>";

/// Draws on a white sheet of `size` pixels, which is dark for readers who prefer that; returns it as SVG.
///
/// # Errors
///
/// Returns an error if `draw` does.
pub fn svg(size: (u32, u32), draw: impl FnOnce(&Area<'_>) -> Drawn) -> Result<String, PlotError> {
    let mut text = String::new();
    on_sheet(size, &mut text, draw).map_err(|why| PlotError(why.to_string()))?;
    // After the opening tag.
    if let Some(end) = text.find('>') {
        text.insert_str(end + 1, DARK);
    }
    Ok(text)
}

fn on_sheet(size: (u32, u32), text: &mut String, draw: impl FnOnce(&Area<'_>) -> Drawn) -> Drawn {
    let area = SVGBackend::with_string(text, size).into_drawing_area();
    area.fill(&WHITE)?;
    draw(&area)?;
    area.present()?;
    Ok(())
}

/// The colour of the thing with this number; after eight they come again.
pub fn colour(number: usize) -> RGBColor {
    COLOURS[number % COLOURS.len()]
}

/// An axis with numbers at round values.
#[derive(Debug, Clone)]
pub struct Axis {
    range: Range<f64>,
    is_logarithmic: bool,
    is_falling: bool,
    ticks: Vec<f64>,
}

impl Axis {
    /// With a number at each of `ticks`.
    pub fn new(range: Range<f64>, ticks: Vec<f64>) -> Axis {
        Axis { range, is_logarithmic: false, is_falling: false, ticks }
    }

    /// With round numbers.
    pub fn linear(range: Range<f64>) -> Axis {
        let ticks = ticks(range.start, range.end, 0.0);
        Axis::new(range, ticks)
    }

    /// With whole round numbers, for what is counted.
    pub fn counting(range: Range<f64>) -> Axis {
        let ticks = ticks(range.start, range.end, 1.0);
        Axis::new(range, ticks)
    }

    /// A logarithmic one, with numbers such as 1, 2, 3, 5 and 7 times powers of ten; both ends are above 0.
    pub fn logarithmic(range: Range<f64>) -> Axis {
        let factors: &[f64] = match (range.end / range.start).log10() {
            d if d > MOST_DECADES => &[1.0],
            d if d > MANY_DECADES => &[1.0, 3.0],
            _ => &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0],
        };
        let decades = range.start.log10().floor() as i32..=range.end.log10().ceil() as i32;
        let all = decades.flat_map(|power| factors.iter().map(move |factor| factor * 10f64.powi(power)));
        let ticks = all.filter(|value| range.contains(value)).collect();
        Axis { range, is_logarithmic: true, is_falling: false, ticks }
    }

    /// The same with room beyond both ends.
    #[must_use]
    pub fn widened(self, margin: f64) -> Axis {
        Axis { range: self.range.start - margin..self.range.end + margin, ..self }
    }

    /// The same with its start above its end.
    #[must_use]
    pub fn falling(self) -> Axis {
        Axis { is_falling: true, ..self }
    }

    /// Digits behind the point that its numbers need.
    pub fn digits(&self) -> usize {
        self.ticks.get(1).map_or(0, |step| (-step.log10().floor()).max(0.0) as usize)
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (low, high): (i32, i32)) -> i32 {
        let limit = if self.is_falling { (high, low) } else { (low, high) };
        let Range { start, end } = self.range;
        if self.is_logarithmic {
            RangedCoordf64::from(start.ln()..end.ln()).map(&value.ln(), limit)
        } else {
            RangedCoordf64::from(start..end).map(value, limit)
        }
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.ticks.clone() }
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Axis {
    fn format(value: &f64) -> String {
        ((value * 1e6).round() / 1e6).to_string()
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

/// Seconds of the unit in which times up to this one are shown, and its name.
pub fn unit(longest_s: f64) -> (f64, &'static str) {
    match longest_s {
        s if s < 2e-3 => (1e-6, "microseconds"),
        s if s < 2.0 => (1e-3, "milliseconds"),
        s if s < 600.0 => (1.0, "seconds"),
        s if s < 36_000.0 => (60.0, "minutes"),
        s if s < 864_000.0 => (3600.0, "hours"),
        _ => (86_400.0, "days"),
    }
}

/// A name as far as it fits into a title.
pub fn short_name(name: &str) -> String {
    match name.char_indices().nth(NAME_MAX) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.into(),
    }
}

/// Names the series of a chart in a corner of it.
///
/// # Errors
///
/// Returns an error if the picture cannot be written to.
fn legend<'a, 'b: 'a, C: CoordTranslate>(
    chart: &mut ChartContext<'a, SVGBackend<'b>, C>,
    corner: SeriesLabelPosition,
) -> Drawn {
    chart
        .configure_series_labels()
        .position(corner)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_who_prefers_dark_pages_gets_one() {
        let text = svg((40, 30), |_| Ok(())).unwrap();
        let style = text.find("<style>@media (prefers-color-scheme: dark)").unwrap();
        assert!(text.starts_with("<svg") && style < text.find("<rect").unwrap(), "{text}");
    }

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(ticks(1.0, 4.0, 1.0), [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(ticks(1.0, 64.0, 1.0), [10.0, 20.0, 30.0, 40.0, 50.0, 60.0]);
        assert_eq!(ticks(3.0, 3.0, 1.0), [3.0]);
        for high in [1e-7, 0.3, 7.0, 123_456.0] {
            assert!((4..=9).contains(&ticks(0.0, high, 0.0).len()), "{high}");
        }
        assert_eq!(Axis::logarithmic(0.8..12.0).ticks, [1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0]);
        assert_eq!(Axis::logarithmic(0.8..1200.0).ticks, [1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0]);
    }

    #[test]
    fn an_axis_reaches_from_end_to_end() {
        let ends = |axis: Axis| (axis.map(&1.0, (10, 110)), axis.map(&100.0, (10, 110)));
        assert_eq!(ends(Axis::linear(1.0..100.0)), (10, 110));
        assert_eq!(ends(Axis::logarithmic(1.0..100.0)), (10, 110));
        assert_eq!(ends(Axis::linear(1.0..100.0).falling()), (110, 10));
        assert_eq!(Axis::logarithmic(1.0..100.0).map(&10.0, (10, 110)), 60);
    }
}
