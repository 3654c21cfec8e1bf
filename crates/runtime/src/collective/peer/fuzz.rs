//! What a member makes of arbitrary bytes from a peer, without a network: for the program that throws bytes at
//! decoders.

use std::borrow::Cow;
use std::io::{self, IoSlice};
use std::time::Instant;

use bellwether_memory::Arena;

use super::{Peer, received_length};
use crate::channel::Stream;
use crate::collective::headers;
use crate::collective::lent::Lent;
use crate::collective::plan::{CollectivePlan, Member, Sizes};
use crate::collective::route::{Headers, Sequence};
use crate::collective::step::{Done, Own, Step};
use crate::frame::{FrameHeader, FrameKind, Stamp};
use crate::mesh::{Link, Moved};
use bellwether_core::groups::Groups;

const STAMP: Stamp = Stamp { job: 5, epoch: 3, step: 9 };

/// Values of the vector: two columns of two pieces.
const LENGTH: usize = 64;

/// Bytes of each of the two rings: more than most inputs have.
const RING_BYTES: usize = 1 << 16;

/// The peer that speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaker {
    /// One of the member's group, which may lend its vectors.
    OfGroup,
    /// One of another group, whose control bytes are those of its whole group.
    OfColumn,
}

/// The first of four members in two groups, and one of its peers on the same machine.
#[derive(Debug)]
pub struct Hearing {
    plan: CollectivePlan,
    speaker: Speaker,
    /// The member's place of the peer among its routes.
    route: usize,
    here: Link,
    there: Link,
    /// The peer's vectors.
    arena: Arena,
    received: Vec<f32>,
    out: Vec<f32>,
}

impl Hearing {
    /// A member that hears `speaker`.
    ///
    /// # Errors
    ///
    /// Returns an error if the system gives no memory that can be shared.
    ///
    /// # Panics
    ///
    /// If the system gives no descriptors.
    pub fn new(speaker: Speaker) -> io::Result<Hearing> {
        let member = |rank: u32| Member { worker: 10 + u64::from(rank), nodes: rank..rank + 1 };
        let groups = Groups::new(vec![0, 2, 4]).expect("two groups of two");
        let shape = (groups, Sizes { small_bytes_max: 0, piece_bytes: LENGTH, bucket_bytes: 4 * LENGTH });
        let plan =
            CollectivePlan::with_groups(4, (0..4).map(member).collect(), Vec::new(), 10, LENGTH, shape)
                .expect("four members share four virtual nodes");
        let rank = if speaker == Speaker::OfGroup { 1 } else { 2 };
        let route = plan.routes.iter().position(|route| route.rank == Some(rank)).expect("they are linked");
        let arena = Arena::create(LENGTH, 2)?;
        let (here, there) = Stream::pair_with_lane(RING_BYTES);
        here.set_nonblocking(true)?;
        there.set_nonblocking(true)?;
        let (here, there) = (Link::new(here, None), Link::new(there, Some(&arena)));
        let received = vec![0.0; received_length(&plan, &plan.routes[route].from)];
        Ok(Hearing { plan, speaker, route, here, there, arena, received, out: vec![0.0; LENGTH] })
    }

    /// What the peer may say: all of a collective, and, if it is of the group, the same while it lends.
    pub fn right(&self) -> Vec<Vec<u8>> {
        let way = &self.plan.routes[self.route].from;
        let frame = |kind, index, payload: &[u8]| {
            let (length_bytes, index) = (payload.len() as u32, index as u32);
            [&FrameHeader { kind, length_bytes, index, stamp: STAMP }.encode()[..], payload].concat()
        };
        let pieces = |kind, sequence: &Sequence, vectors: usize| -> Vec<u8> {
            let piece = |index| vec![0; 4 * vectors * self.plan.range(sequence, index).len()];
            (0..sequence.count).flat_map(|index| frame(kind, index, &piece(index))).collect()
        };
        let mut bundle = Vec::new();
        for control in [&b"losses"[..], b"and more"] {
            headers::push(&mut bundle, control);
        }
        let control: &[u8] = if way.controls == [Headers::Own] { b"losses" } else { &bundle };
        let control = frame(FrameKind::Control, 0, control);
        let contributions = pieces(FrameKind::Contribution, &way.contributions, way.partials);
        let results = pieces(FrameKind::Result, &way.results, 1);
        if self.speaker == Speaker::OfColumn {
            return vec![[control, contributions, results].concat()];
        }
        let vectors = [self.arena.vector(), self.arena.vector()];
        let place = self.arena.offset_of(&vectors[0]).expect("it lies there");
        let lent = Lent::of(&self.arena, vec![place], &vectors[1]).expect("all lies there");
        let lent = frame(FrameKind::Lent, 0, &lent.encode());
        let ready = pieces(FrameKind::Contribution, &way.contributions, 0);
        let read = pieces(FrameKind::Result, &way.results, 0);
        let returned = frame(FrameKind::Returned, 0, &[]);
        vec![
            [&control[..], &contributions, &results, &returned].concat(),
            [&control[..], &lent, &ready, &read, &returned].concat(),
        ]
    }

    /// Whether the member has all that is due when these bytes have come. It reads what the peer lends.
    pub fn takes(&mut self, bytes: &[u8]) -> bool {
        let Hearing { plan, route, here, there, received, out, .. } = self;
        let known = &plan.routes[*route];
        let mut peer = Peer::new(known.worker, known.rank, *route);
        // The peer was lent this member's vectors too, and may return them.
        peer.is_lent_to = self.speaker == Speaker::OfGroup;
        (peer.contributions_queued, peer.results_queued) =
            (known.to.contributions.count, known.to.results.count);
        let mut step = Step {
            plan,
            stamp: STAMP,
            control: Some(Cow::Borrowed(&[])),
            own: Own::Whole(&[]),
            lent: None,
            done: Done::default(),
            of_group: None,
            of_all: None,
            began: Instant::now(),
        };
        let mut left = bytes;
        let whole = loop {
            let moved = there.write(&[IoSlice::new(left)]);
            let written = if let Ok(Moved::Bytes(count)) = moved { count } else { 0 };
            left = &left[written..];
            peer.readable = true;
            let Ok(came) = peer.receive(here, &step, received, out) else { break false };
            let pieces = peer.contributions_received;
            // Added up at once: what is lent is copied for that.
            if (step.done.within..pieces).any(|piece| peer.copy_lent(here, plan, piece, received).is_err()) {
                break false;
            }
            (step.done.within, step.done.across) = (pieces, pieces);
            if !came && written == 0 {
                break left.is_empty() && peer.has_received(plan);
            }
        };
        forget(here);
        whole
    }
}

/// Takes all that is left on a connection.
fn forget(link: &mut Link) {
    loop {
        link.consume(link.stashed().len());
        if !matches!(link.fill_stash(), Ok((Moved::Bytes(_), _))) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A right message with another byte at a place.
    fn with(right: &[u8], at: usize, byte: u8) -> Vec<u8> {
        let mut bytes = right.to_vec();
        bytes[at] = byte;
        bytes
    }

    #[test]
    fn what_is_right_is_taken_and_nothing_else() {
        let mut group = Hearing::new(Speaker::OfGroup).unwrap();
        let right = group.right();
        assert!(right.iter().all(|bytes| group.takes(bytes)));
        // Behind two headers and the control bytes: the generation, the sum's place, and that of the partial sum.
        let words = 40 + 6 + 40;
        assert!(group.takes(&with(&right[1], words + 8, 16)), "it lies elsewhere");
        for place in [words + 3, words + 15, words + 23] {
            assert!(!group.takes(&with(&right[1], place, 1)), "{place}");
        }
        assert!(!group.takes(&right[1][..right[1].len() - 1]) && group.takes(&right[1]), "it starts afresh");
        let mut column = Hearing::new(Speaker::OfColumn).unwrap();
        let right = column.right().remove(0);
        assert!(column.takes(&right));
        assert!(!column.takes(&with(&right, 40, 7)), "the second member's bytes are gone");
        assert!(!column.takes(&group.right()[0]));
    }
}
