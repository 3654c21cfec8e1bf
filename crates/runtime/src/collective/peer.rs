//! One peer within one collective: what is still to be sent to it, and to be received from it.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::time::Instant;

use bellwether_core::record::Traffic;
use thiserror::Error;

use super::plan::{CollectivePlan, LOOKAHEAD};
use crate::frame::{CONTROL_BYTES_MAX, FRAME_HEADER_BYTES, FrameHeader, FrameKind, ProtocolError, Stamp};
use crate::mesh::{Link, Moved};

/// Frames gathered into one write.
const FRAMES_PER_WRITE: usize = 3;

/// Slices gathered into one write; a frame may need more, and then takes more writes.
const SLICES_PER_WRITE: usize = 32;

// The values of a vector travel as they lie in memory.
const _: () = assert!(cfg!(target_endian = "little"), "the data plane needs a little-endian machine");

/// Why a peer cannot take part any more.
#[derive(Debug, Error)]
pub(super) enum Fault {
    #[error("it hung up")]
    Closed,
    #[error("{0}")]
    Broken(#[from] io::Error),
    #[error("{0}")]
    Protocol(#[from] ProtocolError),
}

/// What does not change while one collective runs, and how far it is.
pub(super) struct Step<'a> {
    pub(super) plan: &'a CollectivePlan,
    pub(super) stamp: Stamp,
    pub(super) control: &'a [u8],
    pub(super) partials: &'a [&'a [f32]],
    /// Pieces reduced so far.
    pub(super) reduced: usize,
    pub(super) began: Instant,
}

#[derive(Debug)]
struct Outgoing {
    header: [u8; FRAME_HEADER_BYTES],
    kind: FrameKind,
    index: usize,
    payload_bytes: usize,
    /// Bytes sent, header included.
    sent: usize,
}

#[derive(Debug, Clone, Copy)]
enum Incoming {
    Header,
    Payload { kind: FrameKind, index: usize, length: usize, filled: usize },
}

/// State of one peer; reset before every collective.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) worker: u64,
    /// Its rank; none for a shadow.
    pub(super) rank: Option<usize>,
    /// False once a shadow has been given up.
    pub(super) alive: bool,
    /// Whether a write may succeed, as far as is known.
    pub(super) writable: bool,
    /// Whether a read may succeed, as far as is known.
    pub(super) readable: bool,
    queue: VecDeque<Outgoing>,
    control_queued: bool,
    contributions_queued: usize,
    results_queued: usize,
    incoming: Incoming,
    /// Its control bytes; complete once `control_received`.
    pub(super) control: Vec<u8>,
    control_received: bool,
    pub(super) contributions_received: usize,
    results_received: usize,
    pub(super) traffic: Traffic,
}

impl Peer {
    pub(super) fn new(worker: u64, rank: Option<usize>) -> Peer {
        Peer {
            worker,
            rank,
            alive: true,
            writable: true,
            readable: true,
            queue: VecDeque::with_capacity(FRAMES_PER_WRITE),
            control_queued: false,
            contributions_queued: 0,
            results_queued: 0,
            incoming: Incoming::Header,
            control: Vec::new(),
            control_received: false,
            contributions_received: 0,
            results_received: 0,
            traffic: Traffic { peer: worker, ..Traffic::default() },
        }
    }

    /// Forgets the last collective, but for the buffers.
    pub(super) fn reset(&mut self) {
        let mut queue = std::mem::take(&mut self.queue);
        queue.clear();
        *self = Peer { queue, ..Peer::new(self.worker, self.rank) };
    }

    fn contributions_to_send(&self, plan: &CollectivePlan) -> usize {
        plan.contribution_segment(self.rank).map_or(0, |segment| plan.pieces(segment))
    }

    fn results_to_send(plan: &CollectivePlan) -> usize {
        plan.rank.map_or(0, |rank| plan.results_of(rank))
    }

    /// Whether everything for this peer has been handed to the system.
    pub(super) fn has_sent(&self, plan: &CollectivePlan) -> bool {
        plan.rank.is_none()
            || (self.control_queued
                && self.queue.is_empty()
                && self.contributions_queued == self.contributions_to_send(plan)
                && self.results_queued == Self::results_to_send(plan))
    }

    /// Whether everything due from this peer is here.
    pub(super) fn has_received(&self, plan: &CollectivePlan) -> bool {
        self.rank.is_none_or(|rank| {
            self.control_received
                && self.contributions_received == plan.pieces_to_reduce()
                && self.results_received == plan.results_of(rank)
        })
    }

    /// Whether something could be sent now if the connection took it.
    pub(super) fn wants_to_send(&self, step: &Step<'_>) -> bool {
        let plan = step.plan;
        plan.rank.is_some()
            && self.alive
            && (!self.queue.is_empty()
                || !self.control_queued
                || self.contributions_queued < self.contributions_to_send(plan)
                || self.results_queued < Self::results_to_send(plan).min(step.reduced))
    }

    /// Whether something due could be taken now if it came.
    pub(super) fn wants_to_receive(&self, step: &Step<'_>) -> bool {
        !self.has_received(step.plan) && !self.is_ahead(step)
    }

    /// Whether the frame being received must wait for a free place.
    fn is_ahead(&self, step: &Step<'_>) -> bool {
        matches!(self.incoming, Incoming::Payload { kind: FrameKind::Contribution, index, .. }
            if index >= step.reduced + LOOKAHEAD)
    }

    /// Writes once, if there is anything to write. Says whether bytes went out.
    pub(super) fn send(&mut self, link: &mut Link, step: &Step<'_>, out: &[f32]) -> Result<bool, Fault> {
        self.refill(step);
        if self.queue.is_empty() || !self.writable {
            return Ok(false);
        }
        let mut slices = [IoSlice::new(&[]); SLICES_PER_WRITE];
        let mut gather = Gather { slices: &mut slices, count: 0, bytes: 0 };
        for frame in &self.queue {
            let mut skip = frame.sent;
            gather.push(&frame.header, &mut skip);
            match frame.kind {
                FrameKind::Control => gather.push(step.control, &mut skip),
                FrameKind::Contribution => {
                    let segment = step.plan.contribution_segment(self.rank).unwrap_or(0);
                    let range = step.plan.piece_range(segment, frame.index);
                    for partial in step.partials {
                        gather.push(bytemuck::cast_slice(&partial[range.clone()]), &mut skip);
                    }
                }
                FrameKind::Result => {
                    let range = step.plan.piece_range(step.plan.rank.unwrap_or(0), frame.index);
                    gather.push(bytemuck::cast_slice(&out[range]), &mut skip);
                }
            }
        }
        let (count, asked) = (gather.count, gather.bytes);
        match link.write(&slices[..count])? {
            Moved::Bytes(sent) => {
                // A short write has filled the socket's buffer.
                self.writable = sent == asked;
                self.advance(sent);
                self.traffic.sent_bytes += sent as u64;
                self.traffic.sent_s = step.began.elapsed().as_secs_f64();
                Ok(true)
            }
            Moved::NotReady => {
                self.writable = false;
                Ok(false)
            }
            Moved::Closed => Err(Fault::Closed),
        }
    }

    /// Puts the next frames in the queue: results first, as they are still in cache.
    fn refill(&mut self, step: &Step<'_>) {
        let plan = step.plan;
        let Some(rank) = plan.rank else { return };
        while self.queue.len() < FRAMES_PER_WRITE {
            let (kind, index, payload_bytes) = if !self.control_queued {
                self.control_queued = true;
                (FrameKind::Control, 0, step.control.len())
            } else if self.results_queued < Self::results_to_send(plan).min(step.reduced) {
                let index = self.results_queued;
                self.results_queued += 1;
                (FrameKind::Result, index, 4 * plan.piece_range(rank, index).len())
            } else if self.contributions_queued < self.contributions_to_send(plan) {
                let index = self.contributions_queued;
                self.contributions_queued += 1;
                let segment = plan.contribution_segment(self.rank).unwrap_or(0);
                let values = step.partials.len() * plan.piece_range(segment, index).len();
                (FrameKind::Contribution, index, 4 * values)
            } else {
                return;
            };
            let header = FrameHeader {
                kind,
                length_bytes: u32::try_from(payload_bytes).expect("the plan bounds the length of a frame"),
                index: u32::try_from(index).expect("the plan bounds the number of pieces"),
                stamp: step.stamp,
            };
            self.queue.push_back(Outgoing { header: header.encode(), kind, index, payload_bytes, sent: 0 });
        }
    }

    fn advance(&mut self, mut sent: usize) {
        while let Some(frame) = self.queue.front_mut() {
            let left = FRAME_HEADER_BYTES + frame.payload_bytes - frame.sent;
            if sent < left {
                frame.sent += sent;
                return;
            }
            sent -= left;
            self.queue.pop_front();
        }
    }

    /// Takes what has come, up to the end of one frame with values. Says whether anything came.
    ///
    /// `received` holds [`LOOKAHEAD`] places (or as many as there are pieces) for contributions.
    pub(super) fn receive(
        &mut self,
        link: &mut Link,
        step: &Step<'_>,
        received: &mut [f32],
        out: &mut [f32],
    ) -> Result<bool, Fault> {
        let mut progressed = false;
        while self.wants_to_receive(step) {
            match self.incoming {
                Incoming::Header => {
                    if let Some(header) = link.stashed().first_chunk::<FRAME_HEADER_BYTES>() {
                        let header = FrameHeader::decode(header)?;
                        link.consume(FRAME_HEADER_BYTES);
                        self.begin(&header, step)?;
                        progressed = true;
                    } else if !self.fill(link)? {
                        return Ok(progressed);
                    }
                }
                Incoming::Payload { kind, index, length, filled } if filled == length => {
                    self.finish(kind, index);
                    self.traffic.received_bytes += (FRAME_HEADER_BYTES + length) as u64;
                    self.traffic.received_s = step.began.elapsed().as_secs_f64();
                    progressed = true;
                    if kind != FrameKind::Control {
                        return Ok(progressed);
                    }
                }
                Incoming::Payload { kind, index, length, filled } => {
                    if link.stashed().is_empty() && !self.readable {
                        return Ok(progressed);
                    }
                    let target = match kind {
                        FrameKind::Control => &mut self.control[filled..],
                        FrameKind::Contribution => {
                            let place = place(step.plan, self.rank.unwrap_or(0), index, received);
                            &mut bytemuck::cast_slice_mut::<f32, u8>(place)[filled..]
                        }
                        FrameKind::Result => {
                            let range = step.plan.piece_range(self.rank.unwrap_or(0), index);
                            &mut bytemuck::cast_slice_mut::<f32, u8>(&mut out[range])[filled..]
                        }
                    };
                    let (moved, all) = link.read_into(target, FRAME_HEADER_BYTES)?;
                    self.readable &= all;
                    match moved {
                        Moved::Bytes(count) => {
                            let filled = filled + count;
                            self.incoming = Incoming::Payload { kind, index, length, filled };
                            progressed = true;
                        }
                        Moved::NotReady => return Ok(progressed),
                        Moved::Closed => return Err(Fault::Closed),
                    }
                }
            }
        }
        Ok(progressed)
    }

    /// Reads ahead into the stash; says whether anything came.
    fn fill(&mut self, link: &mut Link) -> Result<bool, Fault> {
        if !self.readable {
            return Ok(false);
        }
        match link.fill_stash()? {
            (Moved::Bytes(_), all) => {
                self.readable = all;
                Ok(true)
            }
            (Moved::NotReady, _) => {
                self.readable = false;
                Ok(false)
            }
            (Moved::Closed, _) => Err(Fault::Closed),
        }
    }

    /// Checks that a frame is due, before a byte of its payload is taken.
    fn begin(&mut self, header: &FrameHeader, step: &Step<'_>) -> Result<(), ProtocolError> {
        header.check(&step.stamp)?;
        let plan = step.plan;
        let rank = self.rank.unwrap_or(0);
        let index = header.index as usize;
        let found = u64::from(header.length_bytes);
        let out_of_turn = ProtocolError::OutOfTurn { kind: header.kind, index: header.index };
        let expected = match header.kind {
            FrameKind::Control => {
                if self.control_received || index != 0 {
                    return Err(out_of_turn);
                }
                let most = CONTROL_BYTES_MAX as u64;
                if found > most {
                    return Err(ProtocolError::Length { expected: most, found });
                }
                // Bounded by the protocol, not by what the peer claims.
                self.control.clear();
                self.control.resize(header.length_bytes as usize, 0);
                found
            }
            FrameKind::Contribution => {
                let (Some(segment), true) = (plan.reduced_rank(), self.control_received) else {
                    return Err(out_of_turn);
                };
                if index != self.contributions_received || index >= plan.pieces(segment) {
                    return Err(out_of_turn);
                }
                4 * (plan.partials[rank] * plan.piece_range(segment, index).len()) as u64
            }
            FrameKind::Result => {
                if !self.control_received || index != self.results_received || index >= plan.results_of(rank)
                {
                    return Err(out_of_turn);
                }
                4 * plan.piece_range(rank, index).len() as u64
            }
        };
        if found != expected {
            return Err(ProtocolError::Length { expected, found });
        }
        let length = header.length_bytes as usize;
        self.incoming = Incoming::Payload { kind: header.kind, index, length, filled: 0 };
        Ok(())
    }

    fn finish(&mut self, kind: FrameKind, index: usize) {
        match kind {
            FrameKind::Control => self.control_received = true,
            FrameKind::Contribution => self.contributions_received = index + 1,
            FrameKind::Result => self.results_received = index + 1,
        }
        self.incoming = Incoming::Header;
    }
}

/// Places for contributions that a plan needs per peer.
pub(super) fn places(plan: &CollectivePlan) -> usize {
    plan.pieces_to_reduce().min(LOOKAHEAD)
}

/// Values of scratch for the contributions of one rank.
pub(super) fn received_length(plan: &CollectivePlan, rank: usize) -> usize {
    let longest = plan.reduced_rank().map_or(0, |segment| plan.segments[segment].len().min(plan.piece));
    places(plan) * plan.partials[rank] * longest
}

/// Where a rank's contributions to piece `index` lie: its partial sums one after another.
fn place<'a>(plan: &CollectivePlan, rank: usize, index: usize, received: &'a mut [f32]) -> &'a mut [f32] {
    let range = place_range(plan, rank, index, received.len());
    &mut received[range]
}

/// The range of [`place`] within scratch of `total` values.
pub(super) fn place_range(
    plan: &CollectivePlan,
    rank: usize,
    index: usize,
    total: usize,
) -> std::ops::Range<usize> {
    let places = places(plan);
    let start = (index % places) * (total / places);
    let values = plan.reduced_rank().map_or(0, |segment| plan.piece_range(segment, index).len());
    start..start + plan.partials[rank] * values
}

/// Collects the slices of one write, leaving out what has been sent.
struct Gather<'g, 'a> {
    slices: &'g mut [IoSlice<'a>; SLICES_PER_WRITE],
    count: usize,
    bytes: usize,
}

impl<'a> Gather<'_, 'a> {
    fn push(&mut self, bytes: &'a [u8], skip: &mut usize) {
        let skipped = bytes.len().min(*skip);
        *skip -= skipped;
        let bytes = &bytes[skipped..];
        if !bytes.is_empty() && self.count < SLICES_PER_WRITE {
            self.slices[self.count] = IoSlice::new(bytes);
            self.count += 1;
            self.bytes += bytes.len();
        }
    }
}
