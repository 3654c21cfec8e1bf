//! Jobs that exchange over the links of the same nodes: whom that slows down, found again where it may have changed.

use std::collections::{BTreeMap, BTreeSet};

use bellwether_core::cluster::{ClusterView, JobId, JobView, NodeId};
use bellwether_core::policy::Fault;
use bellwether_core::prediction::StepModel;
use bellwether_model::shared_links::{self, Exchange};

use super::World;
use super::apply::speed_unknown;

/// A change of a job's speed by less than this part of it is left out: what a job does to others fades with every job
/// between them, and the far ones of a large cluster need not be looked at.
const LEAST_CHANGE: f64 = 1e-4;

/// The running jobs that span nodes, if jobs share the nodes' links.
#[derive(Debug, Default)]
pub(super) struct Links {
    /// Those jobs, by node; empty where each has the links for itself.
    by_node: Vec<Vec<JobId>>,
    flows: BTreeMap<JobId, Flow>,
    /// Jobs whose devices or ways changed, and nodes that they spanned before.
    touched: BTreeSet<JobId>,
    left: BTreeSet<NodeId>,
    /// Jobs whose speed changed since the policy was asked: it hears of that when it is asked next.
    unheard: Vec<JobId>,
}

/// A job that spans nodes.
#[derive(Debug)]
struct Flow {
    nodes: Vec<NodeId>,
    /// What a part of the links makes of its step; asked for when another job shares one of them.
    exchange: Option<Exchange>,
    /// The part of its speed alone that it keeps.
    kept: f64,
    /// When it began with these devices, in seconds: checkpoints count from there.
    begins_s: f64,
}

impl Links {
    pub(super) fn new(shared: bool, cluster: &ClusterView) -> Links {
        let by_node = if shared { vec![Vec::new(); cluster.nodes.len()] } else { Vec::new() };
        Links { by_node, ..Links::default() }
    }

    /// A job is about to hold other devices, or none, or to go on in another way: until [`World::share_links`] it
    /// counts as alone.
    pub(super) fn touch(&mut self, id: JobId) {
        if self.by_node.is_empty() {
            return;
        }
        self.touched.insert(id);
        for node in self.flows.remove(&id).into_iter().flat_map(|flow| flow.nodes) {
            self.by_node[node.0 as usize].retain(|other| *other != id);
            self.left.insert(node);
        }
    }

    /// The part of its speed alone that a job keeps.
    pub(super) fn kept(&self, id: JobId) -> f64 {
        self.flows.get(&id).map_or(1.0, |flow| flow.kept)
    }

    /// When a job that spans nodes began with its devices, in seconds.
    pub(super) fn begins_s(&self, id: JobId) -> Option<f64> {
        self.flows.get(&id).map(|flow| flow.begins_s)
    }

    /// Adds a job if it spans nodes.
    fn add(&mut self, id: JobId, view: &ClusterView) {
        let Some(seen) = view.jobs.get(&id) else { return };
        let nodes: Vec<NodeId> = seen.allocation.shares().iter().map(|share| share.node).collect();
        if nodes.len() < 2 {
            return;
        }
        for node in &nodes {
            self.by_node[node.0 as usize].push(id);
            self.left.insert(*node);
        }
        self.flows.insert(id, Flow { nodes, exchange: None, kept: 1.0, begins_s: seen.progress_s });
    }

    /// All jobs that are connected through links with one that spans one of `nodes`, by number.
    fn connected(&self, nodes: BTreeSet<NodeId>) -> Vec<JobId> {
        let mut jobs = BTreeSet::new();
        let (mut met, mut next): (BTreeSet<NodeId>, Vec<NodeId>) =
            (nodes.clone(), nodes.into_iter().collect());
        while let Some(node) = next.pop() {
            for id in &self.by_node[node.0 as usize] {
                if jobs.insert(*id) {
                    next.extend(self.flows[id].nodes.iter().filter(|node| met.insert(**node)));
                }
            }
        }
        jobs.into_iter().collect()
    }

    /// Whether a job shares the link of one of its nodes.
    fn is_shared(&self, id: JobId) -> bool {
        self.flows[&id].nodes.iter().any(|node| self.by_node[node.0 as usize].len() > 1)
    }

    /// Whether exactly the running jobs that span nodes are here.
    pub(super) fn are_those_of(&self, view: &ClusterView) -> bool {
        let spans = |(id, seen): (&JobId, &JobView)| {
            let shares = seen.allocation.shares();
            (shares.len() > 1).then(|| (*id, shares.iter().map(|share| share.node).collect()))
        };
        let expected: Vec<(JobId, Vec<NodeId>)> = view.jobs.iter().filter_map(spans).collect();
        let held = self.flows.iter().map(|(id, flow)| (*id, flow.nodes.clone()));
        self.by_node.is_empty() || held.eq(expected)
    }
}

impl World<'_> {
    /// Sets the speeds of all jobs that are connected with those that were [touched](Links::touch).
    pub(super) fn share_links(&mut self) -> Result<(), Fault> {
        if self.links.touched.is_empty() {
            return Ok(());
        }
        for id in std::mem::take(&mut self.links.touched) {
            self.links.add(id, &self.view);
        }
        let nodes = std::mem::take(&mut self.links.left);
        let jobs = self.links.connected(nodes);
        for &id in &jobs {
            self.ask_exchange(id)?;
        }
        let alone = Exchange::in_turn(0.0);
        let flow_of = |id: &JobId| {
            let flow = &self.links.flows[id];
            let links = flow.nodes.iter().map(|node| node.0).collect();
            shared_links::Flow { links, exchange: flow.exchange.as_ref().unwrap_or(&alone) }
        };
        let kept = shared_links::kept(&jobs.iter().map(flow_of).collect::<Vec<_>>());
        for (id, kept) in jobs.into_iter().zip(kept) {
            if (kept / self.links.kept(id) - 1.0).abs() > LEAST_CHANGE {
                self.keep(id, kept)?;
            }
        }
        Ok(())
    }

    /// Asks the truth what a part of the links makes of a job that shares one.
    fn ask_exchange(&mut self, id: JobId) -> Result<(), Fault> {
        if self.links.flows[&id].exchange.is_some() || !self.links.is_shared(id) {
            return Ok(());
        }
        let seen = &self.view.jobs[&id];
        let configuration = self.view.configuration_in(seen.way(), &seen.job, &seen.allocation, seen.batch);
        let description = &seen.job.description;
        let truth: &dyn StepModel = self.truth;
        let exchange = Exchange::of(truth, description, &configuration)
            .map_err(|why| speed_unknown(description, &why))?;
        if let Some(flow) = self.links.flows.get_mut(&id) {
            flow.exchange = Some(exchange);
        }
        Ok(())
    }

    /// From now on a job keeps this part of its speed alone.
    fn keep(&mut self, id: JobId, kept: f64) -> Result<(), Fault> {
        if let Some(seen) = self.view.jobs.get_mut(&id) {
            let done = seen.done(self.now_s);
            seen.remaining = seen.remaining(self.now_s);
            seen.done = done;
            seen.progress_s = seen.progress_s.max(self.now_s);
        }
        if let Some(flow) = self.links.flows.get_mut(&id) {
            flow.kept = kept;
        }
        self.links.unheard.push(id);
        self.advance(id)
    }

    /// Tells the policy whose speed others have changed.
    pub(super) fn tell_unheard(&mut self) {
        for id in std::mem::take(&mut self.links.unheard) {
            if self.view.jobs.contains_key(&id) && !self.changes.revised.contains(&id) {
                self.changes.revised.push(id);
            }
        }
    }
}
