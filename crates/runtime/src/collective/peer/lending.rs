//! A peer that reads this worker's vectors where they lie, and lets this one read its own.

use std::io;

use super::{Incoming, Peer, place};
use crate::collective::lent::{Lent, view};
use crate::collective::plan::{CollectivePlan, Mode};
use crate::collective::route::Way;
use crate::frame::{FrameHeader, FrameKind, ProtocolError};
use crate::mesh::Link;

impl Peer {
    /// Whether it can read this worker's vectors where they lie, and has to. It has said so before, or is sent copies
    /// in this collective: what it says meanwhile counts from the next one on.
    pub(in crate::collective) fn can_borrow(&self, plan: &CollectivePlan, link: &mut Link) -> bool {
        let to = &self.route(plan).to;
        let gets_values = to.contributions.count + to.results.count > 0;
        let lends = plan.mode == Mode::Bulk && self.rank.is_some() && !to.crosses && gets_values;
        lends && link.conduit.is_viewed()
    }

    /// Whether all that it lends has been read.
    pub(super) fn is_read(&self, plan: &CollectivePlan) -> bool {
        let from = &self.route(plan).from;
        self.borrowed.copied == from.contributions.count && self.results_received == from.results.count
    }

    /// Whether it was told of all that goes this way.
    fn is_told(&self, to: &Way) -> bool {
        self.contributions_queued == to.contributions.count && self.results_queued == to.results.count
    }

    /// Copies the partial sums of a piece, if it lends them.
    pub(in crate::collective) fn copy_lent(
        &mut self,
        link: &mut Link,
        plan: &CollectivePlan,
        index: usize,
        received: &mut [f32],
    ) -> io::Result<()> {
        let from = &self.route(plan).from;
        let Some(lent) = self.borrowed.lent.as_ref().filter(|_| index < from.contributions.count) else {
            return Ok(());
        };
        let range = plan.range(&from.contributions, index);
        let place = place(plan, from, index, received.len());
        let halves = plan.halves_in(&range);
        lent.read_partials(view(link)?, range.start, &mut received[place], halves)?;
        self.borrowed.copied = index + 1;
        Ok(())
    }

    /// As `begin`, of a frame about memory that is lent.
    pub(super) fn begin_lending(
        &mut self,
        header: &FrameHeader,
        plan: &CollectivePlan,
        out_of_turn: ProtocolError,
    ) -> Result<(), ProtocolError> {
        let (from, to) = (&self.route(plan).from, &self.route(plan).to);
        let untouched = self.contributions_received + self.results_received == 0;
        let values = from.contributions.count + from.results.count;
        let (due, expected) = match header.kind {
            FrameKind::Lent => (
                plan.mode == Mode::Bulk
                    && !from.crosses
                    && values > 0
                    && untouched
                    && self.borrowed.lent.is_none(),
                Lent::bytes(from.partials),
            ),
            // Who reads all that is there has been told of the last of it.
            _ => (self.is_lent_to && !self.returned && self.is_told(to), 0),
        };
        if !due || header.index != 0 {
            return Err(out_of_turn);
        }
        let (expected, found) = (expected as u64, u64::from(header.length_bytes));
        if found != expected {
            return Err(ProtocolError::Length { expected, found });
        }
        self.incoming =
            Incoming::Payload { kind: header.kind, index: 0, length: expected as usize, filled: 0 };
        Ok(())
    }
}
