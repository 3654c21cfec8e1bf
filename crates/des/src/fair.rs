//! Several links shared max-min fairly by flows that cross some of them.
//!
//! Max-min fair means: no flow can get more without taking from one that has less or as much. It is found by
//! progressive filling: all flows grow at the same pace until a link is full; its flows keep what they have; the others
//! grow on (Bertsekas and Gallager, Data Networks, section 6.5.2). The link at which a flow stopped growing is its
//! bottleneck, and all flows of one bottleneck have the same rate.
//!
//! That last sentence makes updates lazy. Each link keeps the virtual time of the flows that it is the bottleneck of,
//! as [`crate::ProcessorSharing`] does; a change of its rate touches the link and none of its flows. A flow that starts
//! or stops touches only the links and flows that are connected with it through others; and where every flow of its
//! bottleneck has that bottleneck, and keeps it, not even those. What starts and stops at one time is filled in once,
//! when a rate or a time is asked for.

mod fill;

use crate::queue::{Queue, Ticket};
use fill::Scratch;

/// Stands for "no bottleneck yet".
const NONE: u32 = u32::MAX;

/// A link of a [`MaxMinFair`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkId(u32);

/// A flow of a [`MaxMinFair`]; its name is used again after it has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowId(u32);

/// Links and the flows that share them.
///
/// A flow has some work to do. When it is done ([`Self::finish`]), the flow still holds its share, until the
/// caller gives it more work ([`Self::extend`], which changes no rate) or stops it.
///
/// ```
/// let mut links = bellwether_des::MaxMinFair::new();
/// let (trunk, branch) = (links.add_link(10.0), links.add_link(2.0));
/// let narrow = links.start(0.0, &[trunk, branch], 8.0, "narrow");
/// let wide = links.start(0.0, &[trunk], 16.0, "wide");
/// assert_eq!((links.rate(narrow), links.rate(wide)), (2.0, 8.0));
/// let (time_s, first) = links.finish().expect("a flow finishes");
/// assert_eq!((time_s, *links.customer(first)), (2.0, "wide"));
/// links.stop(time_s, first);
/// assert_eq!(links.next_time(), Some(4.0));
/// ```
#[derive(Debug, Clone)]
pub struct MaxMinFair<C> {
    links: Vec<Link>,
    flows: Vec<Flow<C>>,
    free: Vec<u32>,
    /// Links, by the time at which the first flow that they are the bottleneck of has done its work.
    finishes: Queue<u32>,
    /// Links whose flows changed at `changed_s`, and whose rates are not up to date.
    changed: Vec<u32>,
    changed_s: f64,
    scratch: Scratch,
    refills: u64,
}

#[derive(Debug, Clone)]
struct Link {
    capacity: f64,
    /// Flows that cross the link.
    members: Vec<u32>,
    /// Flows that the link is the bottleneck of.
    bound: u32,
    /// Rate of each of those.
    rate: f64,
    /// Work that each of those has received, right at `since_s`.
    virtual_time: f64,
    since_s: f64,
    /// Those of them that have work left, by the virtual time at which it is done.
    ends: Queue<u32>,
    finish: Option<Ticket>,
}

#[derive(Debug, Clone)]
struct Flow<C> {
    path: Vec<Hop>,
    bottleneck: u32,
    /// Virtual time of the bottleneck at which the work is done; the work itself while there is no bottleneck.
    end: f64,
    /// The place in the bottleneck's `ends`; `None` once the work is done.
    ticket: Option<Ticket>,
    customer: Option<C>,
}

/// One link of a flow's path, and where the flow stands among its members.
#[derive(Debug, Clone, Copy)]
struct Hop {
    link: u32,
    position: u32,
}

impl Link {
    fn virtual_time(&self, now_s: f64) -> f64 {
        self.virtual_time + (now_s - self.since_s) * self.rate
    }

    fn set_rate(&mut self, now_s: f64, rate: f64) {
        // Virtual time restarts where no flow reads it, so that it stays small and exact.
        self.virtual_time = if self.bound == 0 { 0.0 } else { self.virtual_time(now_s) };
        self.since_s = now_s;
        self.rate = rate;
    }
}

impl<C> Default for MaxMinFair<C> {
    fn default() -> Self {
        MaxMinFair {
            links: Vec::new(),
            flows: Vec::new(),
            free: Vec::new(),
            finishes: Queue::new(),
            changed: Vec::new(),
            changed_s: 0.0,
            scratch: Scratch::default(),
            refills: 0,
        }
    }
}

impl<C> MaxMinFair<C> {
    /// No links, no flows.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a link that carries `capacity` units of work per second.
    ///
    /// # Panics
    ///
    /// When the capacity is not positive and finite.
    pub fn add_link(&mut self, capacity: f64) -> LinkId {
        assert!(capacity.is_finite() && capacity > 0.0, "a link of capacity {capacity} carries nothing");
        let id = u32::try_from(self.links.len()).expect("fewer than 2^32 links");
        self.links.push(Link {
            capacity,
            members: Vec::new(),
            bound: 0,
            rate: 0.0,
            virtual_time: 0.0,
            since_s: 0.0,
            ends: Queue::new(),
            finish: None,
        });
        LinkId(id)
    }

    /// Starts a flow across some links with this much work to do.
    ///
    /// # Panics
    ///
    /// When the path is empty or crosses a link twice, or the work is negative or not finite.
    pub fn start(&mut self, now_s: f64, path: &[LinkId], work: f64, customer: C) -> FlowId {
        check_work(work);
        assert!(!path.is_empty(), "a flow without a link would have no bottleneck");
        let repeated = path.iter().enumerate().any(|(number, link)| path[..number].contains(link));
        assert!(!repeated, "a flow crosses a link once");
        self.refill_before(now_s);
        let id = self.new_flow(customer);
        for link in path {
            let members = &mut self.links[link.0 as usize].members;
            let hop = Hop { link: link.0, position: members.len() as u32 };
            members.push(id);
            self.flows[id as usize].path.push(hop);
        }
        if !(self.changed.is_empty() && self.joined_alone(now_s, id)) {
            self.note_change(now_s, id);
        }
        self.set_work(now_s, FlowId(id), work);
        FlowId(id)
    }

    fn new_flow(&mut self, customer: C) -> u32 {
        if let Some(id) = self.free.pop() {
            self.flows[id as usize].customer = Some(customer);
            return id;
        }
        let id = u32::try_from(self.flows.len()).expect("fewer than 2^32 flows");
        let (path, customer) = (Vec::with_capacity(2), Some(customer));
        self.flows.push(Flow { path, bottleneck: NONE, end: 0.0, ticket: None, customer });
        id
    }

    /// Stops a flow, whether its work is done or not; returns the work that was left.
    ///
    /// # Panics
    ///
    /// When the flow has stopped already.
    pub fn stop(&mut self, now_s: f64, flow: FlowId) -> f64 {
        self.refill_before(now_s);
        let left = self.left(now_s, flow);
        self.unbind(flow.0);
        for number in 0..self.flows[flow.0 as usize].path.len() {
            let hop = self.flows[flow.0 as usize].path[number];
            let members = &mut self.links[hop.link as usize].members;
            members.swap_remove(hop.position as usize);
            if let Some(moved) = members.get(hop.position as usize).copied() {
                let hops = self.flows[moved as usize].path.iter_mut();
                hops.filter(|other| other.link == hop.link).for_each(|other| other.position = hop.position);
            }
        }
        if !(self.changed.is_empty() && self.left_alone(now_s, flow.0)) {
            self.note_change(now_s, flow.0);
        }
        let gone = &mut self.flows[flow.0 as usize];
        gone.path.clear();
        gone.customer = None;
        gone.bottleneck = NONE;
        self.free.push(flow.0);
        left
    }

    /// Gives a flow this much work from now on, whatever it had; no rate changes.
    ///
    /// # Panics
    ///
    /// When the flow has stopped, or the work is negative or not finite.
    pub fn set_work(&mut self, now_s: f64, flow: FlowId, work: f64) {
        check_work(work);
        self.refill_before(now_s);
        let flow_state = &mut self.flows[flow.0 as usize];
        assert!(flow_state.customer.is_some(), "the flow has stopped");
        if flow_state.bottleneck == NONE {
            flow_state.end = work;
            return;
        }
        let link = &mut self.links[flow_state.bottleneck as usize];
        flow_state.end = link.virtual_time(now_s) + work;
        match flow_state.ticket {
            Some(ticket) => {
                link.ends.reschedule(ticket, flow_state.end);
            }
            None => flow_state.ticket = Some(link.ends.schedule(flow_state.end, flow.0)),
        }
        let bottleneck = flow_state.bottleneck;
        self.plan_finish(bottleneck);
    }

    /// Gives more work to a flow whose work is done; no rate changes. The same as [`Self::set_work`], without the
    /// rounding of asking for the time.
    ///
    /// # Panics
    ///
    /// When the flow still has work, or has stopped, or the work is negative or not finite.
    pub fn extend(&mut self, flow: FlowId, work: f64) {
        check_work(work);
        let state = &mut self.flows[flow.0 as usize];
        assert!(state.ticket.is_none() && state.bottleneck != NONE, "only a finished flow can be extended");
        let link = &mut self.links[state.bottleneck as usize];
        state.end += work;
        let first = link.ends.next_time().is_none_or(|end| state.end < end);
        state.ticket = Some(link.ends.schedule(state.end, flow.0));
        if first {
            let bottleneck = state.bottleneck;
            self.plan_finish(bottleneck);
        }
    }

    /// Work that a flow has left.
    ///
    /// # Panics
    ///
    /// When the flow has stopped.
    pub fn left(&mut self, now_s: f64, flow: FlowId) -> f64 {
        self.refill_before(now_s);
        let state = &self.flows[flow.0 as usize];
        assert!(state.customer.is_some(), "the flow has stopped");
        match state.ticket {
            _ if state.bottleneck == NONE => state.end,
            Some(_) => (state.end - self.links[state.bottleneck as usize].virtual_time(now_s)).max(0.0),
            None => 0.0,
        }
    }

    /// Units of work per second that a flow gets.
    ///
    /// # Panics
    ///
    /// When the flow has stopped.
    pub fn rate(&mut self, flow: FlowId) -> f64 {
        self.refill();
        self.rate_of(flow.0)
    }

    fn rate_of(&self, flow: u32) -> f64 {
        self.links[self.flows[flow as usize].bottleneck as usize].rate
    }

    /// Units of work per second that cross a link now.
    pub fn load(&mut self, link: LinkId) -> f64 {
        self.refill();
        self.links[link.0 as usize].members.iter().map(|flow| self.rate_of(*flow)).sum()
    }

    /// Number of flows that cross a link.
    pub fn flows_on(&self, link: LinkId) -> usize {
        self.links[link.0 as usize].members.len()
    }

    /// What the caller gave with the flow.
    ///
    /// # Panics
    ///
    /// When the flow has stopped.
    pub fn customer(&self, flow: FlowId) -> &C {
        self.flows[flow.0 as usize].customer.as_ref().expect("the flow has not stopped")
    }

    /// How often rates had to be found by progressive filling, and not by the closed form.
    pub fn refills(&self) -> u64 {
        self.refills
    }

    /// When the next flow has done its work, in seconds, unless something changes before.
    pub fn next_time(&mut self) -> Option<f64> {
        self.refill();
        self.finishes.next_time()
    }

    /// The next flow that has done its work, at the time of [`Self::next_time`].
    pub fn finish(&mut self) -> Option<(f64, FlowId)> {
        self.refill();
        let (time_s, link_id) = self.finishes.peek().map(|(time_s, link)| (time_s, *link))?;
        let link = &mut self.links[link_id as usize];
        let (end, flow) = link.ends.pop()?;
        link.virtual_time = end;
        link.since_s = time_s;
        self.flows[flow as usize].ticket = None;
        self.plan_finish(link_id);
        Some((time_s, FlowId(flow)))
    }

    /// Brings the time of a link's next finished flow up to date.
    fn plan_finish(&mut self, link_id: u32) {
        let link = &mut self.links[link_id as usize];
        match (link.ends.next_time(), link.finish) {
            (Some(end), ticket) => {
                let time_s = link.since_s + (end - link.virtual_time).max(0.0) / link.rate;
                match ticket {
                    // The same time must not lose its place among equals.
                    Some(ticket) if self.finishes.time(ticket) == Some(time_s) => {}
                    Some(ticket) => {
                        self.finishes.reschedule(ticket, time_s);
                    }
                    None => link.finish = Some(self.finishes.schedule(time_s, link_id)),
                }
            }
            (None, Some(ticket)) => {
                self.finishes.cancel(ticket);
                link.finish = None;
            }
            (None, None) => {}
        }
    }

    /// Notes that the rates around a flow's path are not up to date from `now_s` on.
    fn note_change(&mut self, now_s: f64, flow: u32) {
        self.changed_s = now_s;
        self.changed.extend(self.flows[flow as usize].path.iter().map(|hop| hop.link));
    }

    /// Brings rates up to date that changed before `now_s`.
    fn refill_before(&mut self, now_s: f64) {
        if now_s > self.changed_s {
            self.refill();
        }
    }

    /// Takes a flow away from its bottleneck.
    fn unbind(&mut self, flow: u32) {
        let state = &mut self.flows[flow as usize];
        if state.bottleneck != NONE {
            let link = &mut self.links[state.bottleneck as usize];
            link.bound -= 1;
            if let Some(ticket) = state.ticket.take() {
                link.ends.cancel(ticket);
            }
            let bottleneck = state.bottleneck;
            self.plan_finish(bottleneck);
        }
    }
}

fn check_work(work: f64) {
    assert!(work.is_finite() && work >= 0.0, "a flow with {work} units of work");
}
