//! Sets of intervals of time: how much of a phase they cover.

/// Disjoint intervals in ascending order, in seconds.
#[derive(Debug, Default, Clone)]
pub(super) struct Cover(Vec<(f64, f64)>);

impl Cover {
    /// The union of `spans` (begin, end), which may overlap and come in any order.
    pub(super) fn of(mut spans: Vec<(f64, f64)>) -> Cover {
        spans.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut merged: Vec<(f64, f64)> = Vec::new();
        for (begin, end) in spans {
            match merged.last_mut() {
                Some(last) if begin <= last.1 => last.1 = last.1.max(end),
                _ => merged.push((begin, end)),
            }
        }
        Cover(merged)
    }

    /// The union of both.
    pub(super) fn with(&self, other: &Cover) -> Cover {
        Cover::of(self.0.iter().chain(&other.0).copied().collect())
    }

    /// Seconds of the phase from `begin` to `end` that are covered.
    pub(super) fn within(&self, begin: f64, end: f64) -> f64 {
        let first = self.0.partition_point(|span| span.1 <= begin);
        let inside = self.0[first..].iter().take_while(|span| span.0 < end);
        inside.map(|span| span.1.min(end) - span.0.max(begin)).sum::<f64>().max(0.0)
    }

    /// Seconds of the phase that are not; 0 where it ends before it begins.
    pub(super) fn outside(&self, begin: f64, end: f64) -> f64 {
        ((end - begin).max(0.0) - self.within(begin, end)).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Cover;

    #[test]
    fn overlaps_count_once() {
        let cover = Cover::of(vec![(3.0, 4.0), (0.0, 1.0), (0.5, 2.0)]);
        assert_eq!(cover.within(0.0, 10.0), 3.0);
        assert_eq!(cover.within(1.5, 3.25), 0.75);
        assert_eq!(cover.outside(1.5, 3.25), 1.0);
        assert_eq!(cover.outside(3.0, 1.0), 0.0);
        assert_eq!(cover.with(&Cover::of(vec![(2.0, 3.0)])).within(0.0, 10.0), 4.0);
    }
}
