//! What goes to a peer: frames in their turn, gathered into one write.

use std::io::IoSlice;

use super::{FRAMES_PER_WRITE, Fault, Outgoing, Peer, SLICES_PER_WRITE};
use crate::collective::lent::Lent;
use crate::collective::plan::Mode;
use crate::collective::step::{Step, Values};
use crate::frame::{FRAME_HEADER_BYTES, FrameHeader, FrameKind};
use crate::mesh::{Link, Moved};

impl Peer {
    /// Writes once, if there is anything to write. Says whether bytes went out.
    pub(in crate::collective) fn send(
        &mut self,
        link: &mut Link,
        step: &Step<'_>,
        values: Values<'_>,
    ) -> Result<bool, Fault> {
        self.refill(step, values);
        if self.queue.is_empty() || !self.writable {
            return Ok(false);
        }
        let mut slices = [IoSlice::new(&[]); SLICES_PER_WRITE];
        let (count, asked) = self.gather(step, values, &mut slices);
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

    /// What is to be written next: the number of slices, and of bytes in them.
    pub(super) fn gather<'a>(
        &'a self,
        step: &'a Step<'_>,
        values: Values<'a>,
        slices: &mut [IoSlice<'a>; SLICES_PER_WRITE],
    ) -> (usize, usize) {
        let way = &self.route(step.plan).to;
        let mut gather = Gather { slices, count: 0, bytes: 0 };
        for frame in &self.queue {
            let mut skip = frame.sent;
            gather.push(&frame.header, &mut skip);
            match frame.kind {
                _ if !frame.packed.is_empty() => gather.push(&frame.packed, &mut skip),
                FrameKind::Control => {
                    let control = step.control_bytes(way, frame.index).unwrap_or_default();
                    gather.push(control, &mut skip);
                }
                FrameKind::Contribution if way.crosses => {
                    let range = step.plan.range(&way.contributions, frame.index);
                    let sums = values.kept.piece(way.contributions.piece(frame.index), range.len());
                    gather.push(bytemuck::cast_slice(sums), &mut skip);
                }
                FrameKind::Contribution if self.is_lent_to => {}
                FrameKind::Contribution => {
                    let range = step.plan.range(&way.contributions, frame.index);
                    for number in 0..way.partials {
                        let values = step.own.values(&step.plan.cut, number, range.clone());
                        gather.push(bytemuck::cast_slice(values), &mut skip);
                    }
                }
                FrameKind::Lent => gather.push(step.lent.as_deref().unwrap_or_default(), &mut skip),
                FrameKind::Result if self.is_lent_to => {}
                FrameKind::Returned => {}
                FrameKind::Result => {
                    let range = step.plan.range(&way.results, frame.index);
                    gather.push(bytemuck::cast_slice(&values.out[range]), &mut skip);
                }
            }
        }
        (gather.count, gather.bytes)
    }

    /// The next frame for the queue: results first, as they are still in cache.
    pub(super) fn next(&self, step: &Step<'_>) -> Option<(FrameKind, usize)> {
        let way = &self.route(step.plan).to;
        let done = &step.done;
        if step.control_bytes(way, self.controls_queued).is_some() {
            return Some((FrameKind::Control, self.controls_queued));
        }
        if step.plan.mode == Mode::Small && self.controls_queued == 0 && !way.controls.is_empty() {
            return None;
        }
        if self.is_lent_to && !self.lent_queued {
            return Some((FrameKind::Lent, 0));
        }
        if self.borrowed.lent.is_some() && !self.borrowed.return_queued && self.is_read(step.plan) {
            return Some((FrameKind::Returned, 0));
        }
        // Across groups the results are those of the pieces that this worker adds up, else those of its column.
        let results = if way.crosses { done.across } else { way.results.among(done.results) };
        let pieces =
            if way.crosses { done.within } else { step.plan.ready(&way.contributions, step.own.ready()) };
        let contributions = way.contributions.among(pieces);
        if self.results_queued < results.min(way.results.count) {
            Some((FrameKind::Result, self.results_queued))
        } else if self.contributions_queued < contributions {
            // Of those that are there to be read, the last stands for all before it.
            let index = if self.is_lent_to { contributions - 1 } else { self.contributions_queued };
            Some((FrameKind::Contribution, index))
        } else {
            None
        }
    }

    pub(super) fn refill(&mut self, step: &Step<'_>, values: Values<'_>) {
        let plan = step.plan;
        let way = &self.route(plan).to;
        while self.queue.len() < FRAMES_PER_WRITE {
            let Some((kind, index)) = self.next(step) else { return };
            let payload_bytes = match kind {
                FrameKind::Control => {
                    self.controls_queued += 1;
                    step.control_bytes(way, index).map_or(0, <[u8]>::len)
                }
                FrameKind::Lent => {
                    self.lent_queued = true;
                    Lent::bytes(way.partials)
                }
                FrameKind::Returned => {
                    self.borrowed.return_queued = true;
                    0
                }
                FrameKind::Result => {
                    self.results_queued += 1;
                    if self.is_lent_to { 0 } else { plan.bytes(&plan.range(&way.results, index), 1) }
                }
                FrameKind::Contribution => {
                    self.contributions_queued = index + 1;
                    let bytes = plan.bytes(&plan.range(&way.contributions, index), way.partials);
                    if self.is_lent_to { 0 } else { bytes }
                }
            };
            let header = FrameHeader {
                kind,
                length_bytes: u32::try_from(payload_bytes).expect("the plan bounds the length of a frame"),
                index: u32::try_from(index).expect("the plan bounds the number of pieces"),
                stamp: step.stamp,
            };
            let packed = self.pack((kind, index), step, values);
            let header = header.encode();
            self.queue.push_back(Outgoing { header, kind, index, payload_bytes, packed, sent: 0 });
        }
    }

    pub(super) fn advance(&mut self, mut sent: usize) {
        while let Some(frame) = self.queue.front_mut() {
            let left = FRAME_HEADER_BYTES + frame.payload_bytes - frame.sent;
            if sent < left {
                frame.sent += sent;
                return;
            }
            sent -= left;
            if frame.kind == FrameKind::Contribution {
                self.contributions_sent = frame.index + 1;
            }
            let sent = self.queue.pop_front();
            self.spare.extend(sent.map(|frame| frame.packed).filter(|packed| packed.capacity() > 0));
        }
    }
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
