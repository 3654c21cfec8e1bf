//! Measured steps of any placement: its own, or those of even ones around it.

use bellwether_core::prediction::PredictError;
use std::collections::BTreeMap;

use crate::elastic::MeasuredTable;
use crate::elastic::table::Line;

/// Measured steps of one application.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Steps {
    placements: MeasuredTable,
    /// Even placements by nodes, then replicas.
    even: BTreeMap<u32, BTreeMap<u32, Line>>,
    most_nodes: u32,
    most_per_node: u32,
}

/// The measured placements around another one, with weights that add up to 1.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Around<'a>(Vec<(f64, &'a Line)>);

/// One measured step, or what stands for it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Step {
    /// Seconds of a step without accumulation.
    pub(super) step_s: f64,
    /// Seconds of it in which replicas only waited for the exchange.
    pub(super) exchange_s: f64,
    /// Whether the local batch lies between measured ones.
    pub(super) measured: bool,
}

impl Around<'_> {
    /// The step with a local batch.
    pub(super) fn at(&self, local_batch: f64) -> Step {
        let mut sum = Step { step_s: 0.0, exchange_s: 0.0, measured: true };
        for (weight, line) in &self.0 {
            let (step_s, exchange_s, measured) = line.at_any(local_batch);
            sum.step_s += weight * step_s;
            sum.exchange_s += weight * exchange_s;
            sum.measured &= measured;
        }
        sum
    }
}

impl Steps {
    /// Adds a row of `placements.csv`: the replicas of each node along the ring.
    pub(super) fn place(&mut self, placement: &[u32], local_batch: f64, step_s: f64, exchange_s: f64) {
        self.placements.insert(placement, local_batch, step_s, exchange_s);
        self.most_nodes = self.most_nodes.max(placement.len() as u32);
        self.most_per_node = placement.iter().copied().fold(self.most_per_node, u32::max);
        if placement.iter().all(|count| *count == placement[0]) {
            self.spread(placement.len() as u32, placement.iter().sum(), local_batch, step_s, exchange_s);
        }
    }

    /// Adds a row of `scalability.csv`.
    pub(super) fn spread(
        &mut self,
        nodes: u32,
        replicas: u32,
        local_batch: f64,
        step_s: f64,
        exchange_s: f64,
    ) {
        self.most_nodes = self.most_nodes.max(nodes);
        self.most_per_node = self.most_per_node.max(replicas.div_ceil(nodes));
        let line = self.even.entry(nodes).or_default().entry(replicas).or_default();
        line.insert(local_batch, step_s, exchange_s);
    }

    /// What stands for a placement, none of whose nodes is empty: itself, or even ones around it.
    ///
    /// # Errors
    ///
    /// Returns what was not measured, and what was.
    pub(super) fn around(&self, placement: &[u32]) -> Result<Around<'_>, PredictError> {
        let nodes = placement.len() as u32;
        if nodes > self.most_nodes {
            let why = format!("at most {} nodes were measured, not {nodes}", self.most_nodes);
            return Err(PredictError::Unsupported(why));
        }
        if let Some(line) = self.placements.line(placement) {
            return Ok(Around(vec![(1.0, line)]));
        }
        let fullest = placement.iter().copied().max().unwrap_or(0);
        if fullest > self.most_per_node {
            let why =
                format!("at most {} devices of a node were measured, not {fullest}", self.most_per_node);
            return Err(PredictError::Unsupported(why));
        }
        let replicas: f64 = placement.iter().copied().map(f64::from).sum();
        let not_measured =
            || PredictError::Unsupported(format!("{replicas} devices in {nodes} nodes were not measured"));
        let around = neighbours(&self.even, f64::from(nodes)).ok_or_else(not_measured)?;
        let mut lines = Vec::with_capacity(4);
        for (weight, count, by_replicas) in around {
            let inner = neighbours(by_replicas, replicas / f64::from(nodes) * f64::from(count))
                .ok_or_else(not_measured)?;
            lines.extend(inner.map(|(part, _, line)| (weight * part, line)));
        }
        Ok(Around(lines))
    }
}

/// The entries next to `place`, one or two, with their weights on the straight line between them.
fn neighbours<T>(entries: &BTreeMap<u32, T>, place: f64) -> Option<impl Iterator<Item = (f64, u32, &T)>> {
    let (&low, below) = entries.range(..=place.floor() as u32).next_back()?;
    let (&high, above) = entries.range(place.ceil() as u32..).next()?;
    let part = if high > low { (place - f64::from(low)) / f64::from(high - low) } else { 0.0 };
    let both = [(1.0 - part, low, below), (part, high, above)];
    Some(both.into_iter().filter(|(weight, ..)| *weight > 0.0))
}
