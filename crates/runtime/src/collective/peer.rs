//! One peer within one collective: what is still to be sent to it, and to be received from it.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;

use bellwether_core::record::Traffic;
use thiserror::Error;

use super::headers;
use super::lent::{Borrowed, view};
use super::plan::{CollectivePlan, LOOKAHEAD, Mode};
use super::route::{Route, Sequence, Way};
use super::step::Step;
use crate::frame::{CONTROL_BYTES_MAX, FRAME_HEADER_BYTES, FrameHeader, FrameKind, ProtocolError};
use crate::mesh::{Link, Moved};

pub mod fuzz;
mod lending;
mod packing;
mod sending;

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

#[derive(Debug)]
struct Outgoing {
    header: [u8; FRAME_HEADER_BYTES],
    kind: FrameKind,
    index: usize,
    payload_bytes: usize,
    /// What it holds, if that is not what lies in memory.
    packed: Vec<u8>,
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
    /// Its place among the routes of the plan.
    route: usize,
    /// False once a shadow has been given up.
    pub(super) alive: bool,
    /// Whether it is lent this worker's vectors, instead of being sent them.
    pub(super) is_lent_to: bool,
    lent_queued: bool,
    returned: bool,
    borrowed: Borrowed,
    /// Whether a write may succeed, as far as is known.
    pub(super) writable: bool,
    /// Whether a read may succeed, as far as is known.
    pub(super) readable: bool,
    queue: VecDeque<Outgoing>,
    /// Memory for frames that are packed.
    spare: Vec<Vec<u8>>,
    controls_queued: usize,
    contributions_queued: usize,
    /// Contributions that were handed to the system.
    pub(super) contributions_sent: usize,
    results_queued: usize,
    incoming: Incoming,
    /// Its control frames so far; the last may be incomplete.
    controls: Vec<Vec<u8>>,
    controls_received: usize,
    pub(super) contributions_received: usize,
    pub(super) results_received: usize,
    pub(super) traffic: Traffic,
}

impl Peer {
    pub(super) fn new(worker: u64, rank: Option<usize>, route: usize) -> Peer {
        Peer {
            worker,
            rank,
            route,
            alive: true,
            is_lent_to: false,
            lent_queued: false,
            returned: false,
            borrowed: Borrowed::default(),
            writable: true,
            readable: true,
            queue: VecDeque::with_capacity(FRAMES_PER_WRITE),
            spare: Vec::new(),
            controls_queued: 0,
            contributions_queued: 0,
            contributions_sent: 0,
            results_queued: 0,
            incoming: Incoming::Header,
            controls: Vec::new(),
            controls_received: 0,
            contributions_received: 0,
            results_received: 0,
            traffic: Traffic { peer: worker, ..Traffic::default() },
        }
    }

    /// Forgets the last collective, but for the buffers.
    pub(super) fn reset(&mut self) {
        let (mut queue, spare) = (std::mem::take(&mut self.queue), std::mem::take(&mut self.spare));
        queue.clear();
        *self = Peer { queue, spare, ..Peer::new(self.worker, self.rank, self.route) };
    }

    fn route<'p>(&self, plan: &'p CollectivePlan) -> &'p Route {
        &plan.routes[self.route]
    }

    /// Gives its control frames' bytes away: a member's own, and what it handed on.
    pub(super) fn give_controls(&mut self, plan: &CollectivePlan, rank: usize, headers: &mut [Vec<u8>]) {
        let of = self.route(plan).from.controls;
        for (of, control) in of.iter().zip(std::mem::take(&mut self.controls)) {
            match headers::ranks(plan, rank, *of) {
                Some(ranks) => headers::spread(ranks, &control, headers),
                None => headers[rank] = control,
            }
        }
    }

    /// What a control frame from it holds, once that is here as a whole.
    pub(super) fn control(&self, index: usize) -> Option<&[u8]> {
        (index < self.controls_received).then(|| self.controls[index].as_slice())
    }

    /// Whether everything for this peer has been handed to the system.
    pub(super) fn has_sent(&self, plan: &CollectivePlan) -> bool {
        let to = &self.route(plan).to;
        self.queue.is_empty()
            && (!self.is_lent_to || self.lent_queued)
            && (self.borrowed.lent.is_none() || self.borrowed.return_queued)
            && self.controls_queued == to.controls.len()
            && self.contributions_queued == to.contributions.count
            && self.results_queued == to.results.count
    }

    /// Whether everything due from this peer is here.
    pub(super) fn has_received(&self, plan: &CollectivePlan) -> bool {
        let from = &self.route(plan).from;
        self.controls_received == from.controls.len()
            && (!self.is_lent_to || self.returned)
            && self.contributions_received == from.contributions.count
            && self.results_received == from.results.count
    }

    /// What is missing from this peer: 0 if the peer has it by itself, else by its first piece.
    pub(super) fn first_missing(&self, plan: &CollectivePlan) -> usize {
        let from = &self.route(plan).from;
        let missing = |sequence: &Sequence, received: usize| {
            (received < sequence.count).then(|| 1 + sequence.piece(received))
        };
        let contribution = missing(&from.contributions, self.contributions_received);
        if !from.crosses && (self.controls_received == 0 || contribution.is_some()) {
            return 0;
        }
        let control = (self.controls_received < from.controls.len()).then_some(1);
        let result = missing(&from.results, self.results_received);
        control.into_iter().chain(contribution).chain(result).min().unwrap_or(usize::MAX)
    }

    /// Whether something could be sent now if the connection took it.
    pub(super) fn wants_to_send(&self, step: &Step<'_>) -> bool {
        self.alive && (!self.queue.is_empty() || self.next(step).is_some())
    }

    /// Whether something due could be taken now if it came.
    pub(super) fn wants_to_receive(&self, step: &Step<'_>) -> bool {
        !self.has_received(step.plan) && !self.is_ahead(step)
    }

    /// Whether the frame being received must wait for a free place.
    fn is_ahead(&self, step: &Step<'_>) -> bool {
        if self.borrowed.lent.is_some() {
            return false;
        }
        let crosses = self.route(step.plan).from.crosses;
        let added = if crosses { step.done.across } else { step.done.within };
        matches!(self.incoming, Incoming::Payload { kind: FrameKind::Contribution, index, .. }
            if index >= added + LOOKAHEAD)
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
                    if let (FrameKind::Result, Some(lent)) = (kind, &self.borrowed.lent) {
                        let range = step.plan.range(&self.route(step.plan).from.results, index);
                        let halves = step.plan.halves_in(&range);
                        lent.read_sum(view(link)?, range.start, &mut out[range], halves)?;
                    }
                    self.unpack((kind, index), step.plan, received, out);
                    self.finish(kind, index, step.plan)?;
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
                    let target = self.target((kind, index), (filled, length), step.plan, received, out);
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

    /// Where the payload of a frame goes that was begun, from its byte `filled` on.
    fn target<'a>(
        &'a mut self,
        (kind, index): (FrameKind, usize),
        (filled, length): (usize, usize),
        plan: &CollectivePlan,
        received: &'a mut [f32],
        out: &'a mut [f32],
    ) -> &'a mut [u8] {
        let way = &self.route(plan).from;
        let values = match kind {
            FrameKind::Control => {
                // Memory is given as bytes come, not for what the peer claims.
                let control = &mut self.controls[index];
                control.resize(length.min(filled + CONTROL_BYTES_MAX), 0);
                return &mut control[filled..];
            }
            FrameKind::Contribution => {
                let range = place(plan, way, index, received.len());
                &mut received[range]
            }
            FrameKind::Result => &mut out[plan.range(&way.results, index)],
            FrameKind::Lent => return self.borrowed.target(filled, length),
            FrameKind::Returned => return &mut [],
        };
        // Values that are packed take less than their place.
        &mut bytemuck::cast_slice_mut(values)[filled..length]
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
        let (plan, way) = (step.plan, &self.route(step.plan).from);
        let index = header.index as usize;
        let found = u64::from(header.length_bytes);
        let out_of_turn = ProtocolError::OutOfTurn { kind: header.kind, index: header.index };
        let (next, sequence, vectors) = match header.kind {
            FrameKind::Lent | FrameKind::Returned => {
                return self.begin_lending(header, plan, out_of_turn);
            }
            FrameKind::Control => (self.controls_received, None, 0),
            FrameKind::Contribution => (self.contributions_received, Some(&way.contributions), way.partials),
            FrameKind::Result => (self.results_received, Some(&way.results), 1),
        };
        let count = sequence.map_or(way.controls.len(), |sequence| sequence.count);
        let controls_first = plan.mode == Mode::Small && !way.controls.is_empty();
        let early = sequence.is_some() && self.controls_received == 0 && controls_first;
        // Where they are there to be read, a contribution stands for all before it.
        let passes = header.kind == FrameKind::Contribution && self.borrowed.lent.is_some();
        if early || index < next || (index > next && !passes) || index >= count {
            return Err(out_of_turn);
        }
        let expected = match sequence {
            // It is there to be read.
            Some(_) if self.borrowed.lent.is_some() => 0,
            Some(sequence) => plan.bytes(&plan.range(sequence, index), vectors) as u64,
            None => {
                let most = headers::bytes_max(plan, self.rank.unwrap_or(0), way.controls[index]);
                self.controls.push(Vec::new());
                found.min(most)
            }
        };
        if found != expected {
            return Err(ProtocolError::Length { expected, found });
        }
        let length = header.length_bytes as usize;
        self.incoming = Incoming::Payload { kind: header.kind, index, length, filled: 0 };
        Ok(())
    }

    fn finish(&mut self, kind: FrameKind, index: usize, plan: &CollectivePlan) -> Result<(), ProtocolError> {
        match kind {
            FrameKind::Control => {
                let of = headers::ranks(plan, self.rank.unwrap_or(0), self.route(plan).from.controls[index]);
                headers::check(of, &self.controls[index])?;
                self.controls_received = index + 1;
            }
            FrameKind::Contribution => self.contributions_received = index + 1,
            FrameKind::Result => self.results_received = index + 1,
            FrameKind::Lent => {
                self.borrowed.came()?;
            }
            FrameKind::Returned => self.returned = true,
        }
        self.incoming = Incoming::Header;
        Ok(())
    }
}

/// Places for the contributions of one peer.
fn places(sequence: &Sequence) -> usize {
    sequence.count.min(LOOKAHEAD)
}

/// Values of scratch for the contributions that come this way.
pub(super) fn received_length(plan: &CollectivePlan, way: &Way) -> usize {
    match places(&way.contributions) {
        0 => 0,
        places => places * way.partials * plan.longest(way.contributions.column),
    }
}

/// Where the contributions to one piece lie within scratch of `total` values: the partial sums one after another.
pub(super) fn place(plan: &CollectivePlan, way: &Way, index: usize, total: usize) -> Range<usize> {
    let places = places(&way.contributions);
    let start = (index % places) * (total / places);
    start..start + way.partials * plan.range(&way.contributions, index).len()
}

#[cfg(test)]
mod tests;
