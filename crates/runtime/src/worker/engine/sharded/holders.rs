//! Who holds which virtual shards: as the members agree on it, with what has to travel then, and as newcomers hear
//! of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bellwether_core::virtual_shards::{Assignment, Transfer, transfers};

use super::{fault, nonsense, unplanned};
use crate::collective::{Collective, CollectivePlan, Held};
use crate::membership::{Membership, WorkerId};
use crate::sharding::{decode_set, encode_set};
use crate::transfer::{read, write};
use crate::worker::engine::{Engine, Fault};

impl Engine {
    /// Once in a membership: all members say who holds what, which newcomers do not know.
    pub(in crate::worker) fn tell_shards(&mut self, step: u64) -> Result<(), Fault> {
        let epoch = self.membership.epoch;
        let Some(sharded) = self.sharded.as_ref().filter(|sharded| sharded.told != Some(epoch)) else {
            return Ok(());
        };
        let count = sharded.cut.count();
        let mine = [sharded.assignment.held_by(self.me), sharded.assignment.owned_by(self.me)];
        let said: Vec<u8> = mine.iter().flat_map(|set| encode_set(set, count)).collect();
        let outcome = self.exchange_control(step, &said)?;
        let active = self.active();
        let mut holders = vec![Vec::new(); count as usize];
        for (worker, mut bytes) in active.iter().zip(outcome.headers.iter().map(Vec::as_slice)) {
            let mut set = || decode_set(&mut bytes, count);
            let (Some(held), Some(owned)) = (set(), set()) else {
                return Err(nonsense(*worker, "virtual shards"));
            };
            held.iter().for_each(|shard| holders[*shard as usize].push(*worker));
            // The owner comes first.
            for shard in owned {
                let of_shard = &mut holders[shard as usize];
                let last = of_shard.len().saturating_sub(1);
                if of_shard.last() == Some(worker) {
                    of_shard.swap(0, last);
                }
            }
        }
        let copies = self.sharded().copies.min(active.len() as u32);
        let is_agreed = holders.iter().all(|of_shard| of_shard.len() == copies as usize);
        let assignment = Assignment::from_parts(copies, holders.concat())
            .filter(|_| is_agreed)
            .ok_or_else(|| Fault::Collective(None, "the members do not agree on who holds what".into()))?;
        self.sharded_mut().assignment = assignment;
        self.plan_phases()?;
        self.sharded_mut().told = Some(epoch);
        Ok(())
    }

    /// The members of `membership`, over its connections, agree on who of `active` holds what from now on, and send
    /// each other what they lack. Those of `active` that are not members yet are among the newcomers of `membership`.
    ///
    /// What was held before stays until the first step is done: until then the members may have to go back to it.
    pub(in crate::worker) fn settle(
        &mut self,
        step: u64,
        membership: &Membership,
        active: &[WorkerId],
    ) -> Result<(), Fault> {
        let Some(sharded) = &self.sharded else { return Ok(()) };
        let joining: Vec<WorkerId> =
            active.iter().copied().filter(|worker| membership.shadows(*worker)).collect();
        if membership.rank(self.me).is_none() && !joining.contains(&self.me) {
            return Ok(());
        }
        let (count, copies) = (sharded.cut.count(), sharded.copies);
        let said = encode_set(&sharded.held(), count);
        let (nodes, members) = (self.order.virtual_nodes, Self::members_of(membership));
        let plan = CollectivePlan::new(nodes, members, joining.clone(), self.me, 0).map_err(unplanned)?;
        let (stamp, wake) = (self.stamp_of(membership.epoch, step), Arc::clone(&self.wake));
        let mut collective = Collective::new(plan);
        let outcome = match membership.rank(self.me) {
            Some(_) => collective.run(&mut self.mesh, stamp, &said, &[], &mut [], &wake),
            None => collective.receive(&mut self.mesh, stamp, &mut [], &wake),
        }
        .map_err(fault)?;
        if let Some(gone) = outcome.dead_shadows.first() {
            return Err(Fault::Collective(Some(*gone), "it does not take its virtual shards".into()));
        }
        let mut held = BTreeMap::new();
        for (member, mut header) in membership.active.iter().zip(outcome.headers.iter().map(Vec::as_slice)) {
            let set =
                decode_set(&mut header, count).ok_or_else(|| nonsense(member.worker, "virtual shards"))?;
            held.insert(member.worker, set);
        }
        let assignment = Assignment::nearest(count, copies, active, &held);
        let moves = transfers(&held, &assignment).map_err(|shard| Fault::Lacking { shard })?;
        if !moves.is_empty() {
            self.deliver(membership, &joining, &moves, step)?;
        }
        self.sharded_mut().assignment = assignment;
        Ok(())
    }

    /// Sends and receives the slots of these shards, one slot after another.
    fn deliver(
        &mut self,
        membership: &Membership,
        joining: &[WorkerId],
        moves: &[Transfer],
        step: u64,
    ) -> Result<(), Fault> {
        let members = Self::members_of(membership);
        let everyone = members.iter().map(|member| member.worker).chain(joining.iter().copied());
        let places: BTreeMap<WorkerId, usize> = everyone.zip(0..).collect();
        // A shard comes from one worker, to all that lack it.
        let mut routes: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for Transfer { shard, from, to } in moves {
            routes.entry(*shard).or_insert_with(|| vec![places[from]]).push(places[to]);
        }
        let sharded = self.sharded();
        let part = |(shard, ranks): (&u32, &Vec<usize>)| Held {
            values: sharded.cut.range(*shard),
            ranks: ranks.clone(),
        };
        let parts: Vec<Held> = routes.iter().map(part).collect();
        let parameters = read(&self.state).parameters.len();
        let (nodes, me) = (self.order.virtual_nodes, self.me);
        let plan = CollectivePlan::deliver(nodes, members, joining.to_vec(), me, parameters, &parts)
            .map_err(unplanned)?;
        let mut collective = Collective::new(plan);
        let stamp = self.stamp_of(membership.epoch, step);
        let sharded = self.sharded.as_mut().expect("the optimizer's state is shared");
        let out = &mut sharded.next[..parameters];
        let mine = |ranks: &[usize]| ranks.contains(&places[&me]);
        let sent = routes.iter().filter(|(_, ranks)| mine(&ranks[..1])).map(|(shard, _)| *shard);
        let sent: Vec<u32> = sent.collect();
        let mut arrived: BTreeMap<u32, Vec<f32>> = routes
            .iter()
            .filter(|(_, ranks)| mine(&ranks[1..]))
            .map(|(shard, _)| (*shard, Vec::new()))
            .collect();
        for slot in 0..read(&sharded.slots).count() {
            for shard in &sent {
                let slots = read(&sharded.slots);
                let values = slots.slot(*shard, slot).expect("what is sent is here");
                out[sharded.cut.range(*shard)].copy_from_slice(values);
            }
            match membership.rank(me) {
                Some(_) => collective.share(&mut self.mesh, stamp, &[], out, &self.wake),
                None => collective.receive(&mut self.mesh, stamp, out, &self.wake),
            }
            .map_err(fault)?;
            for (shard, values) in &mut arrived {
                values.extend_from_slice(&out[sharded.cut.range(*shard)]);
            }
        }
        write(&sharded.slots).insert(&arrived);
        Ok(())
    }
}
