//! Finding the rates: the closed form where a change stays at one link, progressive filling elsewhere.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{MaxMinFair, NONE};

/// Room for progressive filling, kept between calls.
#[derive(Debug, Clone, Default)]
pub(super) struct Scratch {
    /// Number of the call in which a link or flow was last met.
    links_met: Vec<u64>,
    flows_met: Vec<u64>,
    call: u64,
    /// What is connected with the flow that changed.
    links: Vec<u32>,
    flows: Vec<u32>,
    /// Capacity that is not given away yet, and flows that still grow, by link.
    spare: Vec<f64>,
    growing: Vec<u32>,
    /// The new bottleneck of each flow, and the new rate of each link.
    bottlenecks: Vec<u32>,
    rates: Vec<f64>,
    /// Links by the rate at which they would be full.
    full_at: BinaryHeap<Reverse<(u64, u32)>>,
}

/// Capacity is compared with this relative slack, so that rounding makes no bottlenecks.
const SLACK: f64 = 1e-12;

impl<C> MaxMinFair<C> {
    /// Tries the closed form for a flow that has just joined its links: its bottleneck was that of all flows
    /// there, and is still. `false`, and nothing changed, when this cannot be said.
    pub(super) fn joined_alone(&mut self, now_s: f64, flow: u32) -> bool {
        let path = &self.flows[flow as usize].path;
        let share = |link: u32| {
            let link = &self.links[link as usize];
            link.capacity / link.members.len() as f64
        };
        let hub = path.iter().map(|hop| hop.link).min_by(|a, b| {
            // On ties the link that was added first, as filling does.
            share(*a).total_cmp(&share(*b)).then(a.cmp(b))
        });
        let hub = hub.expect("a path has a link");
        let rate = share(hub);
        if self.links[hub as usize].bound as usize + 1 != self.links[hub as usize].members.len()
            || !self.hub_keeps_its_flows(hub, flow, rate)
        {
            return false;
        }
        self.links[hub as usize].set_rate(now_s, rate);
        self.links[hub as usize].bound += 1;
        self.flows[flow as usize].bottleneck = hub;
        true
    }

    /// Tries the closed form for a flow that has just left its links.
    pub(super) fn left_alone(&mut self, now_s: f64, flow: u32) -> bool {
        let hub = self.flows[flow as usize].bottleneck;
        let path = &self.flows[flow as usize].path;
        let elsewhere = path.iter().any(|hop| hop.link != hub && self.links[hop.link as usize].bound > 0);
        let link = &self.links[hub as usize];
        if elsewhere || link.bound as usize != link.members.len() {
            return false;
        }
        let rate = link.capacity / link.members.len().max(1) as f64;
        if !self.hub_keeps_its_flows(hub, flow, rate) {
            return false;
        }
        self.links[hub as usize].set_rate(now_s, rate);
        self.plan_finish(hub);
        true
    }

    /// Whether all flows of `hub` can go at `rate` while no other link of theirs is or becomes a bottleneck.
    /// `joined` may have no bottleneck yet.
    fn hub_keeps_its_flows(&self, hub: u32, joined: u32, rate: f64) -> bool {
        let loose = |link_id: u32| {
            let link = &self.links[link_id as usize];
            let rate_of = |flow: &u32| match self.flows[*flow as usize].bottleneck {
                NONE => {
                    debug_assert_eq!(*flow, joined, "only the flow that joined has no bottleneck");
                    rate
                }
                bottleneck if bottleneck == hub => rate,
                bottleneck => self.links[bottleneck as usize].rate,
            };
            link.bound == 0 && link.members.iter().map(rate_of).sum::<f64>() <= link.capacity * (1.0 + SLACK)
        };
        let members = &self.links[hub as usize].members;
        members
            .iter()
            .all(|flow| self.flows[*flow as usize].path.iter().all(|hop| hop.link == hub || loose(hop.link)))
    }

    /// Recomputes all rates that the noted starts and stops may have changed.
    pub(super) fn refill(&mut self) {
        if self.changed.is_empty() {
            return;
        }
        self.refills += 1;
        let mut scratch = std::mem::take(&mut self.scratch);
        self.collect(&mut scratch);
        self.fill(&mut scratch);
        self.apply(self.changed_s, &scratch);
        self.changed.clear();
        self.scratch = scratch;
    }

    /// Lists the links and flows that are connected with the changed links.
    fn collect(&self, scratch: &mut Scratch) {
        scratch.call += 1;
        scratch.links_met.resize(self.links.len(), 0);
        scratch.flows_met.resize(self.flows.len(), 0);
        scratch.links.clear();
        scratch.flows.clear();
        let call = scratch.call;
        let is_new = |met: &mut u64| std::mem::replace(met, call) != call;
        for link in &self.changed {
            if is_new(&mut scratch.links_met[*link as usize]) {
                scratch.links.push(*link);
            }
        }
        let mut next = 0;
        while next < scratch.links.len() {
            for member in &self.links[scratch.links[next] as usize].members {
                if !is_new(&mut scratch.flows_met[*member as usize]) {
                    continue;
                }
                scratch.flows.push(*member);
                for hop in &self.flows[*member as usize].path {
                    if is_new(&mut scratch.links_met[hop.link as usize]) {
                        scratch.links.push(hop.link);
                    }
                }
            }
            next += 1;
        }
    }

    /// Progressive filling over what was collected.
    fn fill(&self, scratch: &mut Scratch) {
        scratch.spare.resize(self.links.len(), 0.0);
        scratch.growing.resize(self.links.len(), 0);
        scratch.rates.resize(self.links.len(), 0.0);
        scratch.bottlenecks.resize(self.flows.len(), NONE);
        scratch.full_at.clear();
        scratch.flows.iter().for_each(|flow| scratch.bottlenecks[*flow as usize] = NONE);
        for id in &scratch.links {
            let (link, number) = (&self.links[*id as usize], *id as usize);
            scratch.spare[number] = link.capacity;
            scratch.growing[number] = link.members.len() as u32;
            scratch.rates[number] = 0.0;
            if !link.members.is_empty() {
                let rate = link.capacity / link.members.len() as f64;
                scratch.full_at.push(Reverse((rate.to_bits(), *id)));
            }
        }
        let mut level: f64 = 0.0;
        while let Some(Reverse((bits, id))) = scratch.full_at.pop() {
            let growing = scratch.growing[id as usize];
            if growing == 0 {
                continue;
            }
            // A link fills up no earlier than others did; less would be rounding.
            let rate = (scratch.spare[id as usize] / f64::from(growing)).max(level);
            if rate > f64::from_bits(bits) * (1.0 + SLACK) {
                scratch.full_at.push(Reverse((rate.to_bits(), id)));
                continue;
            }
            level = rate;
            scratch.rates[id as usize] = rate;
            for flow in &self.links[id as usize].members {
                if scratch.bottlenecks[*flow as usize] != NONE {
                    continue;
                }
                scratch.bottlenecks[*flow as usize] = id;
                for hop in &self.flows[*flow as usize].path {
                    scratch.growing[hop.link as usize] -= 1;
                    scratch.spare[hop.link as usize] -= rate;
                }
            }
        }
    }

    /// Gives links their new rates, and flows their new bottlenecks.
    fn apply(&mut self, now_s: f64, scratch: &Scratch) {
        for id in &scratch.links {
            let (link, rate) = (&mut self.links[*id as usize], scratch.rates[*id as usize]);
            if rate != link.rate || link.bound == 0 {
                link.set_rate(now_s, rate);
            }
        }
        for id in &scratch.flows {
            let (flow, bottleneck) = (&mut self.flows[*id as usize], scratch.bottlenecks[*id as usize]);
            if flow.bottleneck == bottleneck {
                continue;
            }
            // A flow that has just started has its work where others have the time of its end.
            let (mut left, mut had_work) = (flow.end, true);
            if flow.bottleneck != NONE {
                (left, had_work) = (0.0, false);
                let old = &mut self.links[flow.bottleneck as usize];
                old.bound -= 1;
                if let Some(ticket) = flow.ticket.take() {
                    left = (flow.end - old.virtual_time(now_s)).max(0.0);
                    had_work = true;
                    old.ends.cancel(ticket);
                }
            }
            let new = &mut self.links[bottleneck as usize];
            new.bound += 1;
            flow.bottleneck = bottleneck;
            flow.end = new.virtual_time(now_s) + left;
            if had_work {
                flow.ticket = Some(new.ends.schedule(flow.end, *id));
            }
        }
        for id in &scratch.links {
            self.plan_finish(*id);
        }
    }
}
