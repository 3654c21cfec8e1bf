//! Everything about a collective that follows from the membership, worked out once per epoch.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use thiserror::Error;

use super::reduce::Reduction;
use crate::tree::maximal_nodes;

/// Pieces that may be received from a peer beyond those already reduced.
pub(super) const LOOKAHEAD: usize = 3;

/// Partial sums of up to this many bytes per member go to every peer directly, ...
const SMALL_BYTES_MAX: usize = 64 * 1024;

/// ... if a member sends no more than this to all its peers together. Measured on two cores: with two
/// workers one hop wins up to 64 KiB (25 against 29 us), with four up to 32 KiB (91 against 114 us).
const SMALL_BYTES_TOTAL_MAX: usize = 96 * 1024;

/// Bytes of one partial sum in one piece. From 64 to 256 KiB the rate is about the same; below, system
/// calls show.
const PIECE_BYTES: usize = 128 * 1024;

/// Vectors from this size on leave the caches, and then the bytes in flight between workers of one host
/// should not add to that.
const LARGE_BYTES: usize = 2 << 20;

/// Bytes that may lie in the sockets' buffers of one worker towards peers on its own host, ...
const IN_FLIGHT_BYTES: usize = 512 * 1024;

/// ... but at least this many per peer. Measured with four workers on two cores at 64 MiB: 120 to 145
/// ms, against 250 ms with buffers that the system sizes; with two workers, and below 2 MiB, the
/// system's choice is as good or better.
const IN_FLIGHT_BYTES_MIN: usize = 128 * 1024;

/// Segments begin at multiples of this many values (one cache line).
const SEGMENT_ALIGNMENT: usize = 16;

/// How long members wait for shadows once they have finished among themselves.
pub const SHADOW_PATIENCE: Duration = Duration::from_secs(2);

/// An active worker of a membership epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The worker's id.
    pub worker: u64,
    /// The virtual nodes it holds.
    pub nodes: Range<u32>,
}

/// A membership that no collective can serve.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PlanError {
    /// The members' virtual nodes are not `0..V` in rank order, without gap, overlap or empty range.
    #[error(
        "virtual nodes of rank {rank} are {found:?}, expected a range from {expected_start} within 0..{virtual_nodes}"
    )]
    Nodes {
        /// The rank.
        rank: usize,
        /// Its range.
        found: Range<u32>,
        /// Where it should begin.
        expected_start: u32,
        /// Number of virtual nodes.
        virtual_nodes: u32,
    },
    /// The members hold fewer virtual nodes than there are.
    #[error("members hold virtual nodes up to {held} of {virtual_nodes}")]
    Uncovered {
        /// End of the last member's range.
        held: u32,
        /// Number of virtual nodes.
        virtual_nodes: u32,
    },
    /// A worker is named twice.
    #[error("worker {0} is named twice")]
    Twice(u64),
    /// This worker is neither a member nor a shadow.
    #[error("worker {0} is neither a member nor a shadow")]
    NotPresent(u64),
    /// The vector is too long for the frames' 32-bit lengths and indices.
    #[error("a vector of {0} values is too long")]
    TooLong(usize),
}

/// How the sums travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Every member gets all partial sums.
    Small,
    /// Every member owns a segment.
    Bulk,
}

/// Who sends what to whom in a collective over one vector length, as seen by one worker.
#[derive(Debug)]
pub struct CollectivePlan {
    pub(super) me: u64,
    /// This worker's rank; none for a shadow.
    pub(super) rank: Option<usize>,
    pub(super) members: Vec<Member>,
    pub(super) shadows: Vec<u64>,
    pub(super) length: usize,
    /// Partial sums that each rank holds.
    pub(super) partials: Vec<usize>,
    pub(super) mode: Mode,
    /// Values per piece.
    pub(super) piece: usize,
    /// Segment of each rank in bulk mode; in small mode the whole vector.
    pub(super) segments: Vec<Range<usize>>,
    pub(super) reduction: Reduction,
    pub(super) shadow_patience: Duration,
}

impl CollectivePlan {
    /// The plan of worker `me`, a member or a shadow, for vectors of `length` values.
    ///
    /// `members` are in rank order and hold `0..virtual_nodes` without gaps; `shadows` receive the
    /// result and contribute nothing. All workers must plan from the same arguments (but for `me`).
    /// A `length` of 0 exchanges control bytes only.
    ///
    /// # Errors
    ///
    /// See [`PlanError`].
    pub fn new(
        virtual_nodes: u32,
        members: Vec<Member>,
        shadows: Vec<u64>,
        me: u64,
        length: usize,
    ) -> Result<CollectivePlan, PlanError> {
        let peers = (members.len() + shadows.len()).saturating_sub(1).max(1);
        let small = SMALL_BYTES_MAX.min(SMALL_BYTES_TOTAL_MAX / peers);
        Self::with_sizes(virtual_nodes, members, shadows, me, length, small, PIECE_BYTES)
    }

    /// As [`new`](CollectivePlan::new) with other sizes, for tests and measurements.
    pub(crate) fn with_sizes(
        virtual_nodes: u32,
        members: Vec<Member>,
        shadows: Vec<u64>,
        me: u64,
        length: usize,
        small_bytes_max: usize,
        piece_bytes: usize,
    ) -> Result<CollectivePlan, PlanError> {
        check_members(virtual_nodes, &members)?;
        let mut seen = BTreeSet::new();
        let everyone = members.iter().map(|member| member.worker).chain(shadows.iter().copied());
        for worker in everyone {
            if !seen.insert(worker) {
                return Err(PlanError::Twice(worker));
            }
        }
        if !seen.contains(&me) {
            return Err(PlanError::NotPresent(me));
        }
        let mut nodes = Vec::new();
        let mut partials = Vec::new();
        for member in &members {
            let of_member = maximal_nodes(virtual_nodes, member.nodes.clone());
            partials.push(of_member.len());
            nodes.extend(of_member);
        }
        let most_partials = partials.iter().copied().max().unwrap_or(0);
        let values = length.checked_mul(most_partials).filter(|values| *values <= usize::MAX / 8);
        let bytes = 4 * values.ok_or(PlanError::TooLong(length))?;
        let mode = if bytes <= small_bytes_max { Mode::Small } else { Mode::Bulk };
        let workers = members.len();
        let (piece, segments) = match mode {
            Mode::Small => (length.max(1), vec![0..length; workers]),
            Mode::Bulk => {
                let piece = (piece_bytes / 4).next_multiple_of(SEGMENT_ALIGNMENT);
                (piece, segments(length, workers))
            }
        };
        if length / piece > u32::MAX as usize || piece.saturating_mul(4 * most_partials) > u32::MAX as usize {
            return Err(PlanError::TooLong(length));
        }
        Ok(CollectivePlan {
            me,
            rank: members.iter().position(|member| member.worker == me),
            reduction: Reduction::new(virtual_nodes, &nodes),
            members,
            shadows,
            length,
            partials,
            mode,
            piece,
            segments,
            shadow_patience: SHADOW_PATIENCE,
        })
    }

    /// Id of this worker.
    pub fn worker(&self) -> u64 {
        self.me
    }

    /// Rank of this worker; none for a shadow.
    pub fn rank(&self) -> Option<usize> {
        self.rank
    }

    /// Number of values of the vector.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Members in rank order.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Whether the vector leaves the caches.
    pub(super) fn is_large(&self) -> bool {
        4 * self.length >= LARGE_BYTES
    }

    /// Size to ask for the buffers of connections within one host; none to leave them to the system.
    pub(super) fn buffer_bytes(&self) -> Option<usize> {
        let peers = (self.members.len() + self.shadows.len()).saturating_sub(1);
        (peers > 1 && self.is_large()).then(|| (IN_FLIGHT_BYTES / peers).max(IN_FLIGHT_BYTES_MIN))
    }

    /// Number of pieces of a rank's segment (in small mode, of the vector).
    pub(super) fn pieces(&self, rank: usize) -> usize {
        self.segments[rank].len().div_ceil(self.piece)
    }

    /// Where piece `index` of a rank's segment lies in the vector.
    pub(super) fn piece_range(&self, rank: usize, index: usize) -> Range<usize> {
        let segment = &self.segments[rank];
        let start = segment.start + index * self.piece;
        start..segment.end.min(start + self.piece)
    }

    /// The segment that this worker reduces: a member's own; in small mode everyone's.
    pub(super) fn reduced_rank(&self) -> Option<usize> {
        match self.mode {
            Mode::Small => Some(0),
            Mode::Bulk => self.rank,
        }
    }

    /// Pieces that this worker reduces.
    pub(super) fn pieces_to_reduce(&self) -> usize {
        self.reduced_rank().map_or(0, |rank| self.pieces(rank))
    }

    /// The rank by whose segment this worker cuts its contributions to a peer; none if it sends none.
    pub(super) fn contribution_segment(&self, peer: Option<usize>) -> Option<usize> {
        self.rank?;
        match self.mode {
            Mode::Small => Some(0),
            Mode::Bulk => peer,
        }
    }

    /// Pieces of results that `rank` sends to each of its peers.
    pub(super) fn results_of(&self, rank: usize) -> usize {
        match self.mode {
            Mode::Small => 0,
            Mode::Bulk => self.pieces(rank),
        }
    }
}

fn check_members(virtual_nodes: u32, members: &[Member]) -> Result<(), PlanError> {
    let mut held = 0;
    for (rank, member) in members.iter().enumerate() {
        let nodes = &member.nodes;
        if nodes.start != held || nodes.end <= nodes.start || nodes.end > virtual_nodes {
            return Err(PlanError::Nodes { rank, found: nodes.clone(), expected_start: held, virtual_nodes });
        }
        held = nodes.end;
    }
    if held != virtual_nodes || members.is_empty() {
        return Err(PlanError::Uncovered { held, virtual_nodes });
    }
    Ok(())
}

/// Splits `0..length` evenly, at multiples of [`SEGMENT_ALIGNMENT`].
fn segments(length: usize, workers: usize) -> Vec<Range<usize>> {
    let units = length.div_ceil(SEGMENT_ALIGNMENT);
    let bound = |rank: usize| {
        // In u128, as the product may pass 64 bits.
        let unit = (rank as u128 * units as u128 / workers as u128) as usize;
        length.min(unit * SEGMENT_ALIGNMENT)
    };
    (0..workers).map(|rank| bound(rank)..bound(rank + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::ranges;

    fn members(virtual_nodes: u32, workers: u32) -> Vec<Member> {
        let ranges = ranges(virtual_nodes, workers).into_iter();
        ranges.enumerate().map(|(i, nodes)| Member { worker: i as u64, nodes }).collect()
    }

    #[test]
    fn segments_cover_the_vector_once() {
        for length in [0usize, 1, 15, 16, 17, 100, 1000, 4097] {
            for workers in 1..20 {
                let mut at = 0;
                for segment in segments(length, workers) {
                    assert_eq!(segment.start, at);
                    at = segment.end;
                }
                assert_eq!(at, length);
            }
        }
    }

    #[test]
    fn bad_memberships_are_refused() {
        let plan = |members, shadows, me| CollectivePlan::new(4, members, shadows, me, 10);
        assert!(plan(members(4, 2), vec![7], 7).is_ok());
        assert_eq!(plan(members(4, 2), vec![], 7).unwrap_err(), PlanError::NotPresent(7));
        assert_eq!(plan(members(4, 2), vec![1], 0).unwrap_err(), PlanError::Twice(1));
        assert_eq!(
            plan(members(3, 2), vec![], 0).unwrap_err(),
            PlanError::Uncovered { held: 3, virtual_nodes: 4 }
        );
        assert!(matches!(plan(members(5, 2), vec![], 0), Err(PlanError::Nodes { .. })));
        assert!(matches!(plan(vec![], vec![0], 0), Err(PlanError::Uncovered { .. })));
        let long = CollectivePlan::new(4, members(4, 4), vec![], 0, usize::MAX / 2);
        assert_eq!(long.unwrap_err(), PlanError::TooLong(usize::MAX / 2));
    }
}
