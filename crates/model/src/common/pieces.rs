//! Straight pieces through a few points, and how far the truth may be from them.

/// Points by ascending place, each place once; at least two.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pieces(Vec<(f64, f64)>);

/// What the pieces say of a place.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Value {
    /// What is expected.
    pub(crate) value: f64,
    /// Another belief that cannot be ruled out.
    pub(crate) other: f64,
    /// Whether the place lies within the points.
    pub(crate) inside: bool,
}

impl Pieces {
    /// The pieces through these points, in any order; `None` for fewer than two, or two of one place.
    pub(crate) fn new(points: &[(f64, f64)]) -> Option<Pieces> {
        let mut points = points.to_vec();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        let twice = points.windows(2).any(|pair| pair[0].0 == pair[1].0);
        (points.len() >= 2 && !twice).then_some(Pieces(points))
    }

    /// The first and the last place.
    pub(crate) fn range(&self) -> (f64, f64) {
        (self.0[0].0, self.0[self.0.len() - 1].0)
    }

    /// The value of a quantity that does not fall with its place, and rises no faster in proportion: of a place above
    /// 0.
    pub(crate) fn at(&self, place: f64) -> Value {
        let points = &self.0;
        let last = points.len() - 1;
        let above = points.partition_point(|(known, _)| *known < place);
        let (value, other) = if above == 0 {
            let (first, least) = points[0];
            let line = least + (place - first) * self.slope(0);
            (line.min(least).max(place / first * least), least)
        } else if above > last {
            let (end, most) = points[last];
            (most + (place - end) * self.slope(last - 1).max(0.0), place / end * most)
        } else {
            let ((low, low_value), (high, high_value)) = (points[above - 1], points[above]);
            let value = low_value + (place - low) * self.slope(above - 1);
            (value, low_value.max(place / high * high_value))
        };
        let (first, end) = self.range();
        Value { value, other, inside: (first..=end).contains(&place) }
    }

    /// How much the value rises per place on the piece that begins at a point.
    fn slope(&self, piece: usize) -> f64 {
        let ((low, low_value), (high, high_value)) = (self.0[piece], self.0[piece + 1]);
        (high_value - low_value) / (high - low)
    }
}
