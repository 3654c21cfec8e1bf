//! Measured steps of any placement: its own, or those of even ones around it.

use std::collections::BTreeMap;

use crate::elastic::MeasuredTable;
use crate::elastic::table::Line;

/// Measured steps of one application.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Steps {
    placements: MeasuredTable,
    /// Even placements by nodes, then replicas.
    even: BTreeMap<u32, BTreeMap<u32, Line>>,
    most_per_node: u32,
}

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

impl Step {
    fn between(self, other: Step, part: f64) -> Step {
        let mean = |low: f64, high: f64| low + part * (high - low);
        Step {
            step_s: mean(self.step_s, other.step_s),
            exchange_s: mean(self.exchange_s, other.exchange_s),
            measured: self.measured && other.measured,
        }
    }
}

impl Steps {
    /// Adds a row of `placements.csv`: the replicas of each node along the ring.
    pub(super) fn place(&mut self, placement: &[u32], local_batch: f64, step_s: f64, exchange_s: f64) {
        self.placements.insert(placement, local_batch, step_s, exchange_s);
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
        self.most_per_node = self.most_per_node.max(replicas.div_ceil(nodes));
        let line = self.even.entry(nodes).or_default().entry(replicas).or_default();
        line.insert(local_batch, step_s, exchange_s);
    }

    /// The step of a placement, none of whose nodes is empty.
    ///
    /// # Errors
    ///
    /// What was not measured, and what was.
    pub(super) fn at(&self, placement: &[u32], local_batch: f64) -> Result<Step, String> {
        if let Some(line) = self.placements.line(placement) {
            return read(line, local_batch).ok_or_else(|| "nothing was measured".to_string());
        }
        let fullest = placement.iter().copied().max().unwrap_or(0);
        if fullest > self.most_per_node {
            return Err(format!(
                "at most {} devices of a node were measured, not {fullest}",
                self.most_per_node
            ));
        }
        let nodes = placement.len() as u32;
        let replicas: u32 = placement.iter().sum();
        let per_node = f64::from(replicas) / f64::from(nodes);
        let below = self.even.range(..=nodes).next_back();
        let above = self.even.range(nodes..).next();
        let (Some((&fewer, below)), Some((&more, above))) = (below, above) else {
            let most = self.even.keys().next_back().unwrap_or(&0);
            return Err(format!("at most {most} nodes were measured, not {nodes}"));
        };
        let not_measured = || format!("{replicas} devices in {nodes} nodes were not measured");
        let low = even(fewer, below, per_node, local_batch).ok_or_else(not_measured)?;
        if fewer == more {
            return Ok(low);
        }
        let high = even(more, above, per_node, local_batch).ok_or_else(not_measured)?;
        Ok(low.between(high, f64::from(nodes - fewer) / f64::from(more - fewer)))
    }
}

/// The step on `nodes` nodes with `per_node` replicas on each, between the neighbouring numbers of replicas.
fn even(nodes: u32, by_replicas: &BTreeMap<u32, Line>, per_node: f64, local_batch: f64) -> Option<Step> {
    let replicas = per_node * f64::from(nodes);
    let (fewer, below) = by_replicas.range(..=replicas.floor() as u32).next_back()?;
    let low = read(below, local_batch)?;
    if f64::from(*fewer) == replicas {
        return Some(low);
    }
    let (more, above) = by_replicas.range(replicas.ceil() as u32..).next()?;
    let high = read(above, local_batch)?;
    if fewer == more {
        return Some(low);
    }
    Some(low.between(high, (replicas - f64::from(*fewer)) / f64::from(more - fewer)))
}

fn read(line: &Line, local_batch: f64) -> Option<Step> {
    let (step_s, exchange_s, measured) = line.at_any(local_batch)?;
    Some(Step { step_s, exchange_s, measured })
}
