//! The state as a whole, of which each worker holds its share: how it begins, is loaded, handed on and digested.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use bellwether_core::virtual_shards::Assignment;

use super::{fault, unplanned};
use crate::channel::Stream;
use crate::collective::{Collective, CollectivePlan, Member};
use crate::membership::{Membership, WorkerId};
use crate::transfer::{self, Header, read, write};
use crate::worker::engine::{Applied, Engine, Fault};

impl Engine {
    /// Before a state is loaded or made: this worker's share for a membership whose members hold nothing, of zeros.
    pub(in crate::worker) fn begin_shards(&mut self, membership: &Membership) {
        let me = self.me;
        let Some(sharded) = &mut self.sharded else { return };
        let workers: Vec<WorkerId> = membership.active.iter().map(|member| member.worker).collect();
        sharded.assignment =
            Assignment::nearest(sharded.cut.count(), sharded.copies, &workers, &BTreeMap::new());
        write(&sharded.slots).reset(&sharded.assignment.held_by(me));
        sharded.pending = None;
    }

    /// Receives a whole state whose beginning has been read; of slots that are shared it keeps what this worker holds.
    pub(in crate::worker) fn receive_whole(&self, stream: &mut Stream, begin: Header) -> std::io::Result<()> {
        let mut state = write(&self.state);
        match &self.sharded {
            Some(sharded) => transfer::receive_share(stream, begin, &mut state, &mut write(&sharded.slots)),
            None => transfer::receive_whole(stream, begin, &mut state),
        }
    }

    /// The virtual shards whose sums this worker adds up.
    pub(in crate::worker) fn owned_shards(&self) -> Vec<u32> {
        self.sharded.as_ref().map_or_else(Vec::new, |sharded| sharded.assignment.owned_by(self.me))
    }

    /// Drops all shards: this worker begins as a newcomer.
    pub(in crate::worker) fn drop_shards(&mut self) {
        if let Some(sharded) = &mut self.sharded {
            write(&sharded.slots).reset(&[]);
            sharded.pending = None;
        }
    }

    /// Hands the parameters after these steps from `source` to those `behind`, who have the sums of what they hold.
    pub(in crate::worker) fn catch_up_sharded(
        &mut self,
        steps: Range<u64>,
        source: WorkerId,
        behind: &[WorkerId],
    ) -> Result<Option<Applied>, Fault> {
        let members = vec![Member { worker: source, nodes: 0..self.order.virtual_nodes }];
        let (nodes, length) = (self.order.virtual_nodes, self.length);
        let plan =
            CollectivePlan::new(nodes, members, behind.to_vec(), self.me, length).map_err(unplanned)?;
        let mut collective = Collective::new(plan);
        let (stamp, wake) = (self.stamp(steps.start), Arc::clone(&self.wake));
        if self.me == source {
            let held = {
                let state = read(&self.state);
                [&state.parameters[..], &state.model_state].concat()
            };
            let next = &mut self.sharded.as_mut().expect("it is shared").next;
            collective.run(&mut self.mesh, stamp, &[], &[&held], next, &wake).map_err(fault)?;
            return Ok(None);
        }
        let sharded = self.sharded.as_mut().expect("it is shared");
        let Some((_, decided)) = sharded.pending.clone().filter(|(pending, _)| *pending == steps) else {
            let why = "the sums of the last result are not here";
            return Err(Fault::Collective(None, why.into()));
        };
        collective.receive(&mut self.mesh, stamp, &mut sharded.next, &wake).map_err(fault)?;
        let parameters = read(&self.state).parameters.len();
        let state = sharded.next[parameters..].to_vec();
        let is_finite = self.commit(&steps, decided, None, &|| false)?;
        // What came of the model's state is what it is, not a sum over samples.
        write(&self.state).model_state.copy_from_slice(&state);
        Ok(Some(self.applied(decided, is_finite)))
    }

    /// The digest of the whole state, of which each member sends the others what it owns.
    pub(in crate::worker) fn digest(&mut self, step: u64) -> Result<[u8; 32], Fault> {
        let Some(sharded) = &self.sharded else { return Ok(read(&self.state).digest()) };
        let parts = sharded.parts(&self.active());
        let (nodes, members) = (self.order.virtual_nodes, Self::members_of(&self.membership));
        let parameters = read(&self.state).parameters.len();
        let plan = CollectivePlan::gather(nodes, members, Vec::new(), self.me, parameters, &parts)
            .map_err(unplanned)?;
        let (mut collective, stamp) = (Collective::new(plan), self.stamp(step));
        let mut hasher = blake3::Hasher::new();
        hasher.update(bytemuck::cast_slice(&read(&self.state).parameters));
        let owned = sharded.assignment.owned_by(self.me);
        let sharded = self.sharded.as_mut().expect("the optimizer's state is shared");
        let out = &mut sharded.next[..parameters];
        for slot in 0..read(&sharded.slots).count() {
            for shard in &owned {
                let slots = read(&sharded.slots);
                let values = slots.slot(*shard, slot).expect("an owner has its shards");
                out[sharded.cut.range(*shard)].copy_from_slice(values);
            }
            collective.share(&mut self.mesh, stamp, &[], out, &self.wake).map_err(fault)?;
            hasher.update(bytemuck::cast_slice(out));
        }
        hasher.update(bytemuck::cast_slice(&read(&self.state).model_state));
        Ok(hasher.finalize().into())
    }
}
