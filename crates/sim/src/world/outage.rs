//! Nodes that go down and come back: failures, and revocations of transient servers.

use std::collections::BTreeMap;
use std::sync::Arc;

use bellwether_core::cluster::{Allocation, NodeId};
use bellwether_des::{Queue, Stream, Streams};
use bellwether_model::transient::Law;

use super::{Event, World};

/// Why a node goes away, and when another one is there in its place.
#[derive(Debug, Clone, PartialEq)]
pub enum Outage {
    /// It fails by chance, and is repaired.
    Failures(Failures),
    /// It is a transient server: its provider takes it away, and another one comes.
    Revocations(Arc<Revocations>),
}

/// How long a node works, and how long it is away.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Failures {
    /// Mean of the exponential time for which it works, in seconds.
    pub mean_up_s: f64,
    /// It works no longer than this, in seconds: the end of a transient server's life.
    pub longest_up_s: Option<f64>,
    /// Mean of the exponential time for which it is away, in seconds.
    pub mean_down_s: f64,
}

/// How long transient servers of one kind live.
#[derive(Debug, Clone, PartialEq)]
pub struct Revocations {
    /// Servers of this name meet the same lifetimes in every cluster: the first, the second, and so on.
    pub name: String,
    /// The time from when one is there until it is taken away.
    pub law: Law,
    /// Seconds from then until another one works in its place.
    pub replacement_s: f64,
}

impl Revocations {
    /// The lives at the place of the server with this number, counted among those of the name: from when to when one
    /// is there, in seconds since the first one came.
    ///
    /// ```
    /// use bellwether_model::transient::Law;
    /// use bellwether_sim::world::Revocations;
    /// let law = Law::points(&[(10.0, 1.0)], 10.0)?;
    /// let servers = Revocations { name: "v100".into(), law, replacement_s: 2.0 };
    /// let lives: Vec<(f64, f64)> = servers.lives(1, 0).take(2).collect();
    /// assert!(lives[0].0 == 0.0 && lives[0].1 <= 10.0);
    /// assert_eq!(lives[1].0, lives[0].1 + 2.0);
    /// # Ok::<(), bellwether_core::InputError>(())
    /// ```
    pub fn lives(&self, seed: u64, number: u64) -> impl Iterator<Item = (f64, f64)> + '_ {
        let mut stream = self.stream(&Streams::new(seed), number);
        let mut next_s = 0.0;
        std::iter::from_fn(move || {
            let from_s = next_s;
            let until_s = from_s + self.law.sample(&mut stream);
            next_s = until_s + self.replacement_s;
            Some((from_s, until_s))
        })
    }

    fn stream(&self, streams: &Streams, number: u64) -> Stream {
        streams.stream(&format!("lifetimes of {}", self.name), number)
    }
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
        let mut numbers: BTreeMap<&str, u64> = BTreeMap::new();
        let mut drawn = Vec::with_capacity(outages.len());
        for (index, outage) in outages.iter().enumerate() {
            let stream = outage.as_ref().map(|outage| match outage {
                Outage::Failures(_) => streams.stream("outages of a node", index as u64),
                Outage::Revocations(servers) => {
                    let number = numbers.entry(&servers.name).or_default();
                    *number += 1;
                    servers.stream(streams, *number - 1)
                }
            });
            drawn.push(outage.clone().zip(stream));
        }
        let mut outages = Outages(drawn);
        for index in 0..outages.0.len() as u32 {
            if let Some(up_s) = outages.up_s(NodeId(index)) {
                queue.schedule(begin_s + up_s, Event::NodeDown(NodeId(index)));
            }
        }
        outages
    }

    /// How long the node is there from now on; `None` where it stays.
    fn up_s(&mut self, node: NodeId) -> Option<f64> {
        let (outage, stream) = self.0.get_mut(node.0 as usize)?.as_mut()?;
        let up_s = match outage {
            Outage::Failures(failures) => {
                stream.exponential(failures.mean_up_s).min(failures.longest_up_s.unwrap_or(f64::MAX))
            }
            Outage::Revocations(servers) => servers.law.sample(stream),
        };
        Some(up_s).filter(|up_s| up_s.is_finite())
    }

    fn down_s(&mut self, node: NodeId) -> f64 {
        match self.0.get_mut(node.0 as usize) {
            Some(Some((Outage::Failures(failures), stream))) => stream.exponential(failures.mean_down_s),
            Some(Some((Outage::Revocations(servers), _))) => servers.replacement_s,
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
