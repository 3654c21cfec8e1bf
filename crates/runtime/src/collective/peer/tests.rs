//! A peer's bytes without a connection, for tests with more workers than a process can have connections for.

use std::collections::VecDeque;
use std::io::IoSlice;

use super::{Fault, Incoming, Peer, SLICES_PER_WRITE};
use crate::collective::step::{Step, Values};
use crate::frame::{FRAME_HEADER_BYTES, FrameHeader};

impl Peer {
    /// As `send`, into a queue that takes `room` bytes.
    pub(in crate::collective) fn send_in_memory(
        &mut self,
        queue: &mut VecDeque<u8>,
        room: usize,
        step: &Step<'_>,
        values: Values<'_>,
    ) -> bool {
        self.refill(step, values);
        let mut slices = [IoSlice::new(&[]); SLICES_PER_WRITE];
        let (count, asked) = self.gather(step, values, &mut slices);
        let bytes = slices[..count].iter().flat_map(|slice| slice.iter().copied());
        let sent = asked.min(room);
        queue.extend(bytes.take(sent));
        self.advance(sent);
        sent > 0
    }

    /// As `receive`, from a queue.
    pub(in crate::collective) fn receive_in_memory(
        &mut self,
        queue: &mut VecDeque<u8>,
        step: &Step<'_>,
        received: &mut [f32],
        out: &mut [f32],
    ) -> Result<bool, Fault> {
        let mut progressed = false;
        while self.wants_to_receive(step) {
            match self.incoming {
                Incoming::Header => {
                    let header: Vec<u8> = queue.iter().copied().take(FRAME_HEADER_BYTES).collect();
                    let Ok(header) = header.try_into() else { break };
                    queue.drain(..FRAME_HEADER_BYTES);
                    self.begin(&FrameHeader::decode(&header)?, step)?;
                }
                Incoming::Payload { kind, index, length, filled } if filled == length => {
                    self.unpack((kind, index), step.plan, received, out);
                    self.finish(kind, index, step.plan)?;
                }
                Incoming::Payload { kind, index, length, filled } => {
                    let target = self.target((kind, index), (filled, length), step.plan, received, out);
                    let count = target.len().min(queue.len());
                    if count == 0 {
                        break;
                    }
                    target.iter_mut().zip(queue.drain(..count)).for_each(|(to, byte)| *to = byte);
                    self.incoming = Incoming::Payload { kind, index, length, filled: filled + count };
                }
            }
            progressed = true;
        }
        Ok(progressed)
    }
}
