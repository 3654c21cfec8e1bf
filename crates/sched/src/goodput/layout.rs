//! Which job holds which devices, and what that is worth, while it changes.

use bellwether_core::cluster::{NodeId, Share};

use super::hull::{Counts, Tables};
use super::{Problem, is_current};

/// A gain below this part of the worth is rounding.
const ROUNDING: f64 = 1e-9;

/// Shares of a job, by node.
pub(super) type Row = Vec<Share>;

/// An allocation to each job that keeps to the rules.
#[derive(Clone)]
pub(super) struct Layout {
    /// By job: its shares.
    pub(super) rows: Vec<Row>,
    /// By job: what they are worth.
    pub(super) worths: Vec<f64>,
    /// By node: devices that no job holds.
    pub(super) free: Vec<u32>,
    /// By node: jobs that hold some, ascending.
    pub(super) guests: Vec<Vec<usize>>,
    /// By node: the guest that holds devices of other nodes, too.
    pub(super) spread: Vec<Option<usize>>,
}

impl Layout {
    /// No job holds anything.
    pub(super) fn empty(problem: &Problem, tables: &Tables) -> Layout {
        Layout {
            rows: vec![Row::new(); problem.jobs.len()],
            worths: vec![tables.nothing; problem.jobs.len()],
            free: problem.nodes.to_vec(),
            guests: vec![Vec::new(); problem.nodes.len()],
            spread: vec![None; problem.nodes.len()],
        }
    }

    /// What the jobs hold.
    pub(super) fn held(problem: &Problem, tables: &Tables) -> Layout {
        let mut layout = Layout::empty(problem, tables);
        for (job, candidate) in problem.jobs.iter().enumerate() {
            layout.put(job, candidate.current.shares().to_vec(), tables.held[job]);
        }
        layout
    }

    /// Places counts that were chosen as if devices had no place, as far as that is possible: first the jobs that keep
    /// what they hold, then the others, the largest first. A job that finds no place gets nothing.
    pub(super) fn planned(problem: &Problem, tables: &Tables, counts: &Counts) -> Layout {
        let mut layout = Layout::empty(problem, tables);
        let mut others = Vec::new();
        for (job, &devices) in counts.devices.iter().enumerate().filter(|(_, devices)| **devices > 0) {
            let current = &problem.jobs[job].current;
            if current.devices() == devices {
                layout.put(job, current.shares().to_vec(), tables.held[job]);
            } else {
                others.push((devices, job));
            }
        }
        others.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        for (devices, job) in others {
            if let Some(row) = place(&layout, devices) {
                let worth = layout.worth_of(problem, tables, job, &row);
                layout.put(job, row, worth);
            }
        }
        layout
    }

    /// The sum that is to be as large as possible.
    pub(super) fn worth(&self) -> f64 {
        self.worths.iter().sum()
    }

    /// What a job holds is free from now on.
    pub(super) fn lift(&mut self, tables: &Tables, job: usize) -> (Row, f64) {
        let row = std::mem::take(&mut self.rows[job]);
        for share in &row {
            let node = share.node.0 as usize;
            self.free[node] += share.devices;
            self.guests[node].retain(|&guest| guest != job);
            if self.spread[node] == Some(job) {
                self.spread[node] = None;
            }
        }
        (row, std::mem::replace(&mut self.worths[job], tables.nothing))
    }

    /// A job that holds nothing takes these devices.
    pub(super) fn put(&mut self, job: usize, row: Row, worth: f64) {
        for share in &row {
            let node = share.node.0 as usize;
            self.free[node] -= share.devices;
            let place = self.guests[node].partition_point(|&guest| guest < job);
            self.guests[node].insert(place, job);
            if row.len() > 1 {
                self.spread[node] = Some(job);
            }
        }
        self.rows[job] = row;
        self.worths[job] = worth;
    }

    /// What shares are worth to a job.
    pub(super) fn worth_of(&self, problem: &Problem, tables: &Tables, job: usize, row: &[Share]) -> f64 {
        let devices = row.iter().map(|share| share.devices).sum();
        if devices == 0 {
            tables.nothing
        } else if is_current(problem, job, row) {
            tables.held[job]
        } else {
            tables.fresh(problem, job, row.len() as u32, devices)
        }
    }

    /// What a guest of `node` would hold without `devices` of its devices there: nothing when that is too few.
    pub(super) fn without(&self, problem: &Problem, job: usize, node: usize, devices: u32) -> Row {
        let mut row = self.rows[job].clone();
        for share in &mut row {
            if share.node == NodeId(node as u32) {
                share.devices -= devices;
            }
        }
        row.retain(|share| share.devices > 0);
        let left: u32 = row.iter().map(|share| share.devices).sum();
        if left < problem.jobs[job].min_devices { Row::new() } else { row }
    }
}

/// This many free devices: of the node where least is left over, else of as few nodes as possible.
fn place(layout: &Layout, devices: u32) -> Option<Row> {
    let share = |node: usize, devices: u32| Share { node: NodeId(node as u32), devices };
    let fitting = (0..layout.free.len()).filter(|&node| layout.free[node] >= devices);
    if let Some(node) = fitting.min_by_key(|&node| layout.free[node]) {
        return Some(vec![share(node, devices)]);
    }
    let open = |node: &usize| layout.free[*node] > 0 && layout.spread[*node].is_none();
    let mut nodes: Vec<usize> = (0..layout.free.len()).filter(open).collect();
    nodes.sort_by_key(|&node| std::cmp::Reverse(layout.free[node]));
    let mut row = Row::new();
    let mut missing = devices;
    for node in nodes {
        let taken = layout.free[node].min(missing);
        row.extend((taken > 0).then(|| share(node, taken)));
        missing -= taken;
    }
    row.sort_unstable();
    (missing == 0).then_some(row)
}

/// Whether more is gained than rounding.
pub(super) fn gains(before: f64, after: f64) -> bool {
    after > before + ROUNDING * before.abs()
}
