//! The last result, handed to members who missed it.

use std::ops::Range;

use super::{Applied, Engine, Fault, Sums, fault, unplanned};
use crate::collective::{Collective, CollectivePlan, Member};
use crate::membership::WorkerId;

impl Engine {
    /// Hands the last result, that of these steps, from `source` to those `behind`, who apply it; tells what it was.
    pub(in crate::worker) fn catch_up(
        &mut self,
        steps: Range<u64>,
        source: WorkerId,
        behind: &[WorkerId],
    ) -> Result<Option<Applied>, Fault> {
        if self.sharded.is_some() {
            return self.catch_up_sharded(steps, source, behind);
        }
        let members = vec![Member { worker: source, nodes: 0..self.order.virtual_nodes }];
        let plan =
            CollectivePlan::new(self.order.virtual_nodes, members, behind.to_vec(), self.me, self.length);
        let plan = plan.map_err(unplanned)?;
        let mut collective = Collective::new(plan.with_bfloat16(self.accumulator.rounded()));
        let stamp = self.stamp(steps.start);
        if self.me == source {
            let copy = self.out.to_vec();
            let header = [self.last.loss, self.last.squares, self.last.weight].map(f64::to_le_bytes).concat();
            let run = collective.run(&mut self.mesh, stamp, &header, &[&copy], &mut self.out, &self.wake);
            run.map_err(fault)?;
            return Ok(None);
        }
        let outcome = collective.receive(&mut self.mesh, stamp, &mut self.out, &self.wake).map_err(fault)?;
        let ([loss, squares, weight], []) = outcome.headers[0].as_chunks::<8>() else {
            return Err(Fault::Collective(Some(source), "it sent no loss with the last result".into()));
        };
        let [loss, squares, weight] = [loss, squares, weight].map(|bytes| f64::from_le_bytes(*bytes));
        self.last = Sums { loss, squares, weight };
        self.apply(steps, None, &|| false).map(Some)
    }
}
