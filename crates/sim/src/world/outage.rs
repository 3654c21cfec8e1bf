//! Nodes that go down and come back: failures, and revocations of transient servers.

use bellwether_core::cluster::{Allocation, NodeId};
use bellwether_des::{Queue, Stream, Streams};

use super::{Event, World};

/// How long a node works, and how long it is away.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outage {
    /// Mean of the exponential time for which it works, in seconds.
    pub mean_up_s: f64,
    /// It works no longer than this, in seconds: the end of a transient server's life.
    pub longest_up_s: Option<f64>,
    /// Mean of the exponential time for which it is away, in seconds.
    pub mean_down_s: f64,
}

/// Each node's own luck, so that policies meet the same outages.
#[derive(Debug, Clone)]
pub(super) struct Outages(Vec<Option<(Outage, Stream)>>);

impl Outages {
    pub(super) fn new(
        outages: &[Option<Outage>],
        streams: &Streams,
        queue: &mut Queue<Event>,
        begin_s: f64,
    ) -> Outages {
        let of_node = |(index, outage): (usize, &Option<Outage>)| {
            outage.map(|outage| (outage, streams.stream("outages of a node", index as u64)))
        };
        let mut outages = Outages(outages.iter().enumerate().map(of_node).collect());
        for index in 0..outages.0.len() as u32 {
            if let Some(up_s) = outages.up_s(NodeId(index)) {
                queue.schedule(begin_s + up_s, Event::NodeDown(NodeId(index)));
            }
        }
        outages
    }

    fn up_s(&mut self, node: NodeId) -> Option<f64> {
        let (outage, stream) = self.0.get_mut(node.0 as usize)?.as_mut()?;
        Some(stream.exponential(outage.mean_up_s).min(outage.longest_up_s.unwrap_or(f64::MAX)))
    }

    fn down_s(&mut self, node: NodeId) -> f64 {
        match self.0.get_mut(node.0 as usize) {
            Some(Some((outage, stream))) => stream.exponential(outage.mean_down_s),
            _ => 0.0,
        }
    }
}

impl World<'_> {
    /// A node goes away: a job that holds one of its devices waits again, and may lose work.
    pub(super) fn node_down(&mut self, id: NodeId) {
        let down_s = self.outages.down_s(id);
        self.queue.schedule(self.now_s + down_s, Event::NodeUp(id));
        let on_it = |allocation: &Allocation| allocation.shares().iter().any(|share| share.node == id);
        let hit: Vec<_> =
            self.view.jobs.iter().filter(|(_, seen)| on_it(&seen.allocation)).map(|(&id, _)| id).collect();
        for &job in &hit {
            let Some(seen) = self.view.jobs.get_mut(&job) else { continue };
            let before = seen.allocation.clone();
            seen.settle(&before, self.now_s);
            if let Some(checkpoint_s) = self.scenario.checkpoint_s {
                let begins_s = self.links.begins_s(job).unwrap_or(seen.progress_s);
                let since_s = (self.now_s - begins_s).max(0.0) % checkpoint_s;
                let lost = (seen.rate * since_s).min(seen.done);
                seen.done -= lost;
                seen.remaining = seen.remaining.map(|work| work + lost);
            }
            self.recording.span(job, &before, seen, self.now_s);
            self.recording.preempted(job);
            (seen.allocated_s, seen.progress_s) = (self.now_s, self.now_s);
        }
        for job in hit {
            let freed = self.view.vacate(job);
            self.links.touch(job);
            self.running -= 1;
            // A waiting job has no event and no speed, so nothing can go wrong.
            let _ = self.advance(job);
            self.changes.lost.push((job, freed));
        }
        self.view.nodes[id.0 as usize].up = false;
        self.recording.capacity(self.now_s, self.view.devices(None));
        self.changes.nodes.push(id);
    }

    /// A node comes back, empty.
    pub(super) fn node_up(&mut self, id: NodeId) {
        self.view.nodes[id.0 as usize].up = true;
        if let Some(up_s) = self.outages.up_s(id) {
            self.queue.schedule(self.now_s + up_s, Event::NodeDown(id));
        }
        self.recording.capacity(self.now_s, self.view.devices(None));
        self.changes.nodes.push(id);
    }
}
