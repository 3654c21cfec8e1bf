//! Charts of two axes: series of points, drawn one after another, and a legend.

use plotters::prelude::*;

use super::{Area, Axis, Drawn, legend};

pub use plotters::chart::SeriesLabelPosition as Corner;

/// A chart, ready to be drawn.
pub struct Chart {
    /// Above it, with the size of its letters in pixels; not drawn if it is empty.
    pub title: (String, u32),
    /// Pixels around it.
    pub margin: u32,
    /// Pixels for the numbers below it, and to the left of it.
    pub label_areas: (u32, u32),
    /// The axis across.
    pub x: Axis,
    /// The axis up.
    pub y: Axis,
    /// What the axis across says.
    pub x_name: String,
    /// What the axis up says.
    pub y_name: String,
    /// How its numbers are written, otherwise than [`Axis`] writes them.
    pub x_format: Option<Box<dyn Fn(f64) -> String>>,
    /// The same of the axis up.
    pub y_format: Option<Box<dyn Fn(f64) -> String>>,
    /// Whether there are lines at the numbers.
    pub has_grid: bool,
    /// Where the legend is, if there is one.
    pub legend: Option<Corner>,
    /// What is drawn, the first below the others.
    pub series: Vec<Series>,
}

/// Points that are drawn alike.
#[derive(Debug, Clone)]
pub struct Series {
    shape: Shape,
    points: Vec<(f64, f64)>,
    style: ShapeStyle,
    legend: Option<(String, Mark)>,
}

#[derive(Debug, Clone, Copy)]
enum Shape {
    Line,
    Segments,
    Rectangles,
    Polygon,
    Circles(u32),
    Triangles(u32),
}

/// A mark in a legend.
#[derive(Debug, Clone, Copy)]
pub enum Mark {
    /// A line across.
    Line(ShapeStyle),
    /// A line up.
    Upright(ShapeStyle),
    /// A circle of this radius.
    Circle(u32, ShapeStyle),
    /// A triangle of this size.
    Triangle(u32, ShapeStyle),
}

impl Series {
    fn new(shape: Shape, points: Vec<(f64, f64)>, style: impl Into<ShapeStyle>) -> Series {
        Series { shape, points, style: style.into(), legend: None }
    }

    /// A line from point to point.
    pub fn line(points: Vec<(f64, f64)>, style: impl Into<ShapeStyle>) -> Series {
        Series::new(Shape::Line, points, style)
    }

    /// A line between the two points of each pair.
    pub fn segments(
        pairs: impl IntoIterator<Item = [(f64, f64); 2]>,
        style: impl Into<ShapeStyle>,
    ) -> Series {
        Series::new(Shape::Segments, pairs.into_iter().flatten().collect(), style)
    }

    /// A rectangle between the two points of each pair.
    pub fn rectangles(
        pairs: impl IntoIterator<Item = [(f64, f64); 2]>,
        style: impl Into<ShapeStyle>,
    ) -> Series {
        Series::new(Shape::Rectangles, pairs.into_iter().flatten().collect(), style)
    }

    /// What the points enclose.
    pub fn polygon(points: Vec<(f64, f64)>, style: impl Into<ShapeStyle>) -> Series {
        Series::new(Shape::Polygon, points, style)
    }

    /// A circle at each point, with a radius in pixels.
    pub fn circles(points: Vec<(f64, f64)>, radius: u32, style: impl Into<ShapeStyle>) -> Series {
        Series::new(Shape::Circles(radius), points, style)
    }

    /// A triangle at each point, with a size in pixels.
    pub fn triangles(points: Vec<(f64, f64)>, size: u32, style: impl Into<ShapeStyle>) -> Series {
        Series::new(Shape::Triangles(size), points, style)
    }

    /// The same, with a name in the legend.
    #[must_use]
    pub fn named(self, name: impl Into<String>, mark: Mark) -> Series {
        Series { legend: Some((name.into(), mark)), ..self }
    }
}

impl Chart {
    /// Draws it on a part of a sheet.
    ///
    /// # Errors
    ///
    /// Returns an error if the sheet cannot be written to.
    pub fn draw(self, area: &Area<'_>) -> Drawn {
        let mut builder = ChartBuilder::on(area);
        let (title, size) = &self.title;
        if !title.is_empty() {
            builder.caption(title, ("sans-serif", *size));
        }
        let mut chart = builder
            .margin(self.margin)
            .x_label_area_size(self.label_areas.0)
            .y_label_area_size(self.label_areas.1)
            .build_cartesian_2d(self.x, self.y)?;
        let plain = |value: &f64| <Axis as plotters::coord::ranged1d::ValueFormatter<f64>>::format(value);
        let x = |value: &f64| self.x_format.as_ref().map_or_else(|| plain(value), |format| format(*value));
        let y = |value: &f64| self.y_format.as_ref().map_or_else(|| plain(value), |format| format(*value));
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(&self.x_name).y_desc(&self.y_name).x_label_formatter(&x).y_label_formatter(&y);
        if self.has_grid {
            mesh.light_line_style(WHITE).draw()?;
        } else {
            mesh.disable_mesh().draw()?;
        }
        for Series { shape, points, style, legend } in self.series {
            let pairs = points.as_chunks::<2>().0;
            let drawn = match shape {
                Shape::Line => chart.draw_series(LineSeries::new(points, style))?,
                Shape::Segments => {
                    chart.draw_series(pairs.iter().map(|pair| PathElement::new(pair.to_vec(), style)))?
                }
                Shape::Rectangles => {
                    chart.draw_series(pairs.iter().map(|pair| Rectangle::new(*pair, style)))?
                }
                Shape::Polygon => chart.draw_series(std::iter::once(Polygon::new(points, style)))?,
                Shape::Circles(radius) => {
                    chart.draw_series(points.iter().map(|at| Circle::new(*at, radius, style)))?
                }
                Shape::Triangles(size) => {
                    chart.draw_series(points.iter().map(|at| TriangleMarker::new(*at, size, style)))?
                }
            };
            let Some((name, mark)) = legend else { continue };
            let drawn = drawn.label(name);
            match mark {
                Mark::Line(style) => {
                    drawn.legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], style))
                }
                Mark::Upright(style) => {
                    drawn.legend(move |(x, y)| PathElement::new(vec![(x + 9, y - 6), (x + 9, y + 6)], style))
                }
                Mark::Circle(radius, style) => {
                    drawn.legend(move |(x, y)| Circle::new((x + 9, y), radius, style))
                }
                Mark::Triangle(size, style) => {
                    drawn.legend(move |(x, y)| TriangleMarker::new((x + 9, y), size, style))
                }
            };
        }
        self.legend.map_or(Ok(()), |corner| legend(&mut chart, corner))
    }
}
