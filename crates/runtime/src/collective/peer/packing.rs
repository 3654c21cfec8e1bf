//! Values that travel in two bytes: packed as their frame is queued, unpacked in their place once all of it is there.

use super::{Peer, place};
use crate::bfloat;
use crate::collective::plan::CollectivePlan;
use crate::collective::step::{Step, Values};
use crate::frame::FrameKind;

impl Peer {
    /// The payload of a frame whose values travel in fewer bytes than they have in memory; empty for all others.
    pub(super) fn pack(
        &mut self,
        (kind, index): (FrameKind, usize),
        step: &Step<'_>,
        values: Values<'_>,
    ) -> Vec<u8> {
        let plan = step.plan;
        let way = &self.route(plan).to;
        let range = match kind {
            FrameKind::Contribution if !self.is_lent_to => plan.range(&way.contributions, index),
            FrameKind::Result if !self.is_lent_to => plan.range(&way.results, index),
            _ => return Vec::new(),
        };
        let halves = plan.halves_in(&range);
        if halves == 0 {
            return Vec::new();
        }
        let mut packed = self.spare.pop().unwrap_or_default();
        packed.clear();
        if kind == FrameKind::Result {
            bfloat::pack(&values.out[range], halves, &mut packed);
        } else if way.crosses {
            let sums = values.kept.piece(way.contributions.piece(index), range.len());
            sums.chunks(range.len()).for_each(|sum| bfloat::pack(sum, halves, &mut packed));
        } else {
            for number in 0..way.partials {
                bfloat::pack(step.own.values(&plan.cut, number, range.clone()), halves, &mut packed);
            }
        }
        packed
    }

    /// Makes values of what a frame brought, in the place where its bytes are.
    pub(super) fn unpack(
        &self,
        (kind, index): (FrameKind, usize),
        plan: &CollectivePlan,
        received: &mut [f32],
        out: &mut [f32],
    ) {
        let way = &self.route(plan).from;
        let (sequence, vectors) = match kind {
            FrameKind::Contribution => (&way.contributions, way.partials),
            FrameKind::Result => (&way.results, 1),
            FrameKind::Control | FrameKind::Lent | FrameKind::Returned => return,
        };
        let range = plan.range(sequence, index);
        let halves = plan.halves_in(&range);
        // What is lent was read as it is.
        if halves == 0 || self.borrowed.lent.is_some() {
            return;
        }
        let values = match kind {
            FrameKind::Contribution => {
                let place = place(plan, way, index, received.len());
                &mut received[place]
            }
            _ => &mut out[range],
        };
        bfloat::unpack(values, vectors, halves);
    }
}
