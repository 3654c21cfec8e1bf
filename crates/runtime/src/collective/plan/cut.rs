//! How a vector is cut: into buckets, each bucket into a segment for every owner, and each segment into pieces.
//!
//! Buckets are in the order in which a backward pass leaves them: from the last parameter to the first, then the
//! model's state. A bucket that is ready travels while those behind it are still computed, and as each is cut by
//! itself, all owners have a share of it. Where it is given who owns which part, a segment is what a part has of a
//! bucket.

use std::ops::Range;

/// Segments begin at multiples of this many values (one cache line).
pub(super) const SEGMENT_ALIGNMENT: usize = 16;

/// Values of a vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lengths {
    /// Gradients, which are computed from the last to the first.
    pub parameters: usize,
    /// The model's state behind them, known only when all is computed.
    pub state: usize,
}

impl From<usize> for Lengths {
    /// As many parameters, and no state.
    fn from(parameters: usize) -> Lengths {
        Lengths { parameters, state: 0 }
    }
}

impl Lengths {
    /// Values in all.
    pub fn total(self) -> usize {
        self.parameters + self.state
    }
}

/// A part of the vector, and who holds its sum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Where it lies in the vector.
    pub values: Range<usize>,
    /// Ranks, the owner first, who adds it up.
    pub ranks: Vec<usize>,
}

/// The pieces of a vector, by the place of the owner who adds them up.
#[derive(Debug)]
pub(in crate::collective) struct Cut {
    pub(in crate::collective) buckets: Vec<Range<usize>>,
    columns: Vec<Column>,
}

#[derive(Debug, Default)]
struct Column {
    pieces: Vec<Range<usize>>,
    /// Pieces up to the end of each bucket.
    until: Vec<usize>,
}

impl Cut {
    /// One bucket of one piece, which every owner adds up.
    pub(super) fn whole(length: usize) -> Cut {
        let all = std::iter::once(0..length).collect();
        Cut::of(all, (1, length.max(1)), |bucket| vec![(0, bucket.clone())])
    }

    /// Buckets of `bucket` values, and pieces of `piece` values, at most, for this many owners.
    pub(super) fn segments(lengths: Lengths, owners: usize, bucket: usize, piece: usize) -> Cut {
        Cut::of(buckets(lengths, bucket), (owners, piece), |bucket| {
            segments(bucket, owners).enumerate().collect()
        })
    }

    /// As [`segments`](Cut::segments), where each of the parts, which cover the vector in ascending order, is its
    /// owner's.
    pub(super) fn parts(
        lengths: Lengths,
        owners: usize,
        (bucket, piece): (usize, usize),
        parts: &[Held],
    ) -> Cut {
        Cut::of(buckets(lengths, bucket), (owners, piece), |bucket| {
            let first = parts.partition_point(|part| part.values.end <= bucket.start);
            let parts = parts[first..].iter().take_while(|part| part.values.start < bucket.end);
            let within = |part: &Held| part.values.start.max(bucket.start)..part.values.end.min(bucket.end);
            parts.map(|part| (part.ranks[0], within(part))).collect()
        })
    }

    /// Pieces of `piece` values, at most, of the segments that each bucket has, with the owner of each.
    fn of(
        buckets: Vec<Range<usize>>,
        (owners, piece): (usize, usize),
        segments: impl Fn(&Range<usize>) -> Vec<(usize, Range<usize>)>,
    ) -> Cut {
        let mut columns: Vec<Column> = (0..owners).map(|_| Column::default()).collect();
        for bucket in &buckets {
            for (owner, segment) in segments(bucket) {
                let starts = segment.clone().step_by(piece);
                columns[owner].pieces.extend(starts.map(|start| start..segment.end.min(start + piece)));
            }
            columns.iter_mut().for_each(|column| column.until.push(column.pieces.len()));
        }
        Cut { buckets, columns }
    }

    /// Number of pieces of a column.
    pub(super) fn pieces(&self, column: usize) -> usize {
        self.columns[column].pieces.len()
    }

    /// Where a piece of a column lies in the vector.
    pub(super) fn piece(&self, column: usize, piece: usize) -> Range<usize> {
        self.columns[column].pieces[piece].clone()
    }

    /// Pieces of a column in the first `buckets`.
    pub(in crate::collective) fn ready(&self, column: usize, buckets: usize) -> usize {
        match buckets.checked_sub(1) {
            Some(last) => self.columns[column].until.get(last).copied().unwrap_or(self.pieces(column)),
            None => 0,
        }
    }

    /// Values of a column's longest piece.
    pub(super) fn longest(&self, column: usize) -> usize {
        self.columns[column].pieces.iter().map(ExactSizeIterator::len).max().unwrap_or(0)
    }

    /// The bucket that a piece at this place belongs to.
    pub(in crate::collective) fn bucket_of(&self, start: usize) -> usize {
        let parameters = self.buckets.len() - usize::from(self.has_state());
        // Those of the parameters descend.
        let before = self.buckets[..parameters].partition_point(|bucket| bucket.start > start);
        match self.buckets.get(before) {
            Some(bucket) if bucket.contains(&start) => before,
            _ => self.buckets.len() - 1,
        }
    }

    /// Whether the last bucket lies behind the first, and not before the one before it.
    fn has_state(&self) -> bool {
        let [first, .., last] = self.buckets.as_slice() else { return false };
        last.start >= first.end
    }
}

/// Buckets of `bucket` values, at most.
fn buckets(lengths: Lengths, bucket: usize) -> Vec<Range<usize>> {
    let bucket = bucket.max(1).next_multiple_of(SEGMENT_ALIGNMENT);
    let parameters = (0..lengths.parameters.div_ceil(bucket)).rev();
    let parameters = parameters.map(|index| index * bucket..lengths.parameters.min((index + 1) * bucket));
    let state = (lengths.state > 0).then(|| lengths.parameters..lengths.total());
    parameters.chain(state).collect()
}

/// Splits a range evenly, at multiples of [`SEGMENT_ALIGNMENT`] from its beginning.
pub(super) fn segments(range: &Range<usize>, owners: usize) -> impl Iterator<Item = Range<usize>> {
    let (start, length) = (range.start, range.len());
    let units = length.div_ceil(SEGMENT_ALIGNMENT);
    let bound = move |owner: usize| {
        // In u128, as the product may pass 64 bits.
        let unit = (owner as u128 * units as u128 / owners as u128) as usize;
        start + length.min(unit * SEGMENT_ALIGNMENT)
    };
    (0..owners).map(move |owner| bound(owner)..bound(owner + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_the_vector_once_bucket_by_bucket() {
        for (parameters, state) in [(0usize, 0usize), (1, 0), (17, 3), (1000, 100), (4097, 1), (0, 5)] {
            for owners in 1..20 {
                for (bucket, piece) in [(16, 16), (64, 32), (1000, 48), (10_000, 10_000)] {
                    let cut = Cut::segments(Lengths { parameters, state }, owners, bucket, piece);
                    let mut seen = vec![0; parameters + state];
                    for column in 0..owners {
                        let bounds = (0..=cut.buckets.len()).map(|buckets| cut.ready(column, buckets));
                        let bounds: Vec<usize> = bounds.collect();
                        assert_eq!(bounds.last(), Some(&cut.pieces(column)));
                        for index in 0..cut.pieces(column) {
                            let place = cut.piece(column, index);
                            assert!(place.len() <= piece && !place.is_empty());
                            let of = cut.bucket_of(place.start);
                            assert!(cut.buckets[of].start <= place.start && place.end <= cut.buckets[of].end);
                            assert!((bounds[of]..bounds[of + 1]).contains(&index));
                            seen[place].iter_mut().for_each(|times| *times += 1);
                        }
                    }
                    assert!(seen.iter().all(|times| *times == 1));
                }
            }
        }
    }
}
