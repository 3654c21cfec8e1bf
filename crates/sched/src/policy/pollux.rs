//! Pollux: devices and batches of elastic jobs are chosen together, so that every job's progress is large and fair.
//!
//! # Idea
//!
//! Every interval the cluster is shared out again by [`goodput`](crate::goodput): each job's speed-up against a fair
//! share counts, made smaller by what a restart costs it, and the power mean of all is made as large as can be found. A
//! job whose batch may change trains with the one that makes most progress on what it gets. A job gets at most twice
//! the devices that it had at most so far, because nothing is known of it beyond. The interval ends at once where a
//! running job may not keep its devices because its limits were revised.
//!
//! # Source
//!
//! Qiao et al., Pollux, OSDI 2021, and its implementation. There a random search looks for the shares, here one that
//! draws no random numbers; and a fair share is taken on as many nodes as hold it, not always on one.
//!
//! # Reads
//!
//! Ages, restarts, what a restart costs, progress, and the model's best batch at that progress. Not the remaining work.
//!
//! # Complexity
//!
//! A few milliseconds for 160 jobs on 64 devices; between intervals nothing.
//!
//! # Bad when
//!
//! Jobs are rigid or short against the interval: each waits for the next one, and for its age to pay for a start. Types
//! of device are not weighed against each other: a job stays with the type where it began.

use std::cell::RefCell;
use std::collections::BTreeMap;

use bellwether_core::cluster::{Allocation, Batch, ClusterView, JobId, JobView, NodeId, Share};
use bellwether_core::policy::{Decision, Policy, PolicyInput, Promises, Rule};
use bellwether_core::prediction::{Progress, StepModel};
use serde::{Deserialize, Serialize};

use super::{About, LEAST_INTERVAL_S};
use crate::decision_builder::DecisionBuilder;
use crate::enforce_limits::interrupted;
use crate::free_devices::FreeDevices;
use crate::goodput::{Candidate, Problem, fair_share, optimise};
use crate::speed::Speeds;

/// Pollux.
pub const ABOUT: About = About {
    name: "pollux",
    idea: "devices and batches are chosen together, so that everybody's progress is large and fair",
    options: &[
        ("p", -1.0, "exponent of the power mean: the smaller, the fairer"),
        ("interval", 60.0, "seconds from one decision to the next"),
    ],
    bad_when: "jobs are rigid, or short against the interval",
    gangs: false,
    needs_remaining: false,
    promises: Promises { work_conserving: false, starvation_free: false },
    make: |options| {
        let (power, interval_s) = (options.get("p"), options.get("interval"));
        if interval_s < LEAST_INTERVAL_S {
            return Err(options.out_of_range("interval", "a millisecond or more"));
        }
        if power.abs() > MOST_POWER {
            let expected = format!("a number from -{MOST_POWER} to {MOST_POWER}");
            return Err(options.out_of_range("p", &expected));
        }
        Ok(Box::new(Pollux { power, interval_s, ..Pollux::default() }))
    },
};

/// Beyond this exponent powers of speed-ups overflow.
const MOST_POWER: f64 = 50.0;

/// A batch is changed only for at least this part of the goodput more, so that rounding alone changes none.
const RETUNED: f64 = 1e-3;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Pollux {
    power: f64,
    interval_s: f64,
    next_s: f64,
    /// By job: the most devices that it ever held.
    largest: BTreeMap<JobId, u32>,
    known: Known,
}

impl Policy for Pollux {
    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        let PolicyInput { now_s, view, changes, model } = *input;
        for id in changes.gone(view) {
            self.largest.remove(&id);
        }
        if changes.relearnt {
            self.known = Known::default();
        }
        if interrupted(changes) {
            self.next_s = now_s;
        }
        let mut board = FreeDevices::new(view);
        let mut draft = DecisionBuilder::new(&mut board);
        let waiting = || view.jobs.values().filter(|seen| !seen.is_running()).count();
        if now_s < self.next_s {
            return draft.finish(Rule::Program, waiting(), Some(self.next_s));
        }
        self.next_s = (now_s + self.interval_s).max(now_s.next_up());
        let mut wanted = BTreeMap::new();
        for (device_type, jobs) in pools(view).into_iter().enumerate() {
            self.share(now_s, view, model, device_type as u16, &jobs, &mut wanted);
        }
        let left = self.enact(now_s, view, model, &wanted, &mut draft);
        draft.finish(Rule::Program, left, Some(self.next_s))
    }
}

/// By type of device: the jobs that compete for it. A job that holds devices stays with their type; one that waits goes
/// where there are most devices per competing job.
fn pools(view: &ClusterView) -> Vec<Vec<JobId>> {
    let mut pools = vec![Vec::new(); view.device_types.len()];
    for (&id, seen) in view.jobs.iter().filter(|(_, seen)| seen.is_running()) {
        let node = seen.allocation.shares()[0].node;
        pools[usize::from(view.nodes[node.0 as usize].device_type)].push(id);
    }
    for (&id, seen) in view.jobs.iter().filter(|(_, seen)| !seen.is_running()) {
        let part = |kind: usize, pool: &Vec<JobId>| {
            let devices = view.devices(Some(kind as u16));
            let fits = seen.job.accepts(kind as u16) && devices >= seen.job.min_devices;
            fits.then(|| f64::from(devices) / (pool.len() + 1) as f64)
        };
        let parts = pools.iter().enumerate().filter_map(|(kind, pool)| Some((kind, part(kind, pool)?)));
        let first_most = |best: (usize, f64), next: (usize, f64)| if next.1 > best.1 { next } else { best };
        if let Some((kind, _)) = parts.reduce(first_most) {
            pools[kind].push(id);
        }
    }
    for pool in &mut pools {
        pool.sort_unstable();
    }
    pools
}

impl Pollux {
    /// Shares the devices of a type out among the jobs of its pool.
    fn share(
        &mut self,
        now_s: f64,
        view: &ClusterView,
        model: &dyn StepModel,
        device_type: u16,
        pool: &[JobId],
        wanted: &mut BTreeMap<JobId, Allocation>,
    ) {
        let of_type = |node: &bellwether_core::cluster::Node| node.up && node.device_type == device_type;
        let nodes: Vec<u32> =
            view.nodes.iter().map(|node| if of_type(node) { node.devices } else { 0 }).collect();
        let total = view.devices(Some(device_type));
        let (_, share) = fair_share(nodes.len() as u32, total, pool.len() as u32);
        let regimes: Vec<usize> =
            pool.iter().map(|id| self.known.regime(model, &view.jobs[id], device_type, now_s)).collect();
        let shapes = Shapes::new(view, device_type);
        let known = RefCell::new(&mut self.known);
        let goodput = |place: usize, nodes: u32, devices: u32| {
            let seen = &view.jobs[&pool[place]];
            let ask =
                || shapes.spread(nodes, devices).and_then(|row| progress(view, model, seen, &row, now_s));
            known.borrow_mut().goodput(regimes[place], nodes, devices, ask)
        };
        let candidate = |(place, id): (usize, &JobId)| {
            let seen = &view.jobs[id];
            // Another policy may have given it what it holds.
            let largest = self.largest.get(id).copied().unwrap_or(0).max(seen.allocation.devices());
            // Where it cannot run on its fair share of devices, the nearest number that it runs on.
            let packed = |devices: &u32| goodput(place, shapes.fewest(*devices), *devices);
            let fewest = seen.job.min_devices.max(1);
            let least = (fewest..=seen.job.max_devices.min(total)).find(|devices| packed(devices) > 0.0);
            let least = least.unwrap_or(fewest);
            let fair = share.clamp(least, seen.job.max_devices.max(least));
            let counts = (least..=fair).rev().chain(fair + 1..=seen.job.max_devices.min(total));
            let fair_goodput = counts.map(|devices| packed(&devices)).find(|goodput| *goodput > 0.0);
            Candidate {
                min_devices: least,
                max_devices: largest.saturating_mul(2).max(least).min(seen.job.max_devices),
                // One that runs nowhere is worth nothing with any devices.
                fair_goodput: fair_goodput.unwrap_or(1.0),
                current: seen.allocation.clone(),
                age_s: now_s - seen.job.arrival_s,
                restarts: seen.restarts,
            }
        };
        let jobs: Vec<Candidate> = pool.iter().enumerate().map(candidate).collect();
        let restart_s = view.restart_s;
        let problem = Problem { nodes: &nodes, jobs: &jobs, goodput: &goodput, power: self.power, restart_s };
        let found = optimise(&problem);
        // Devices that a job makes nothing of are not given to it.
        let runs = |place: usize, allocation: &Allocation| {
            allocation.is_empty()
                || goodput(place, allocation.shares().len() as u32, allocation.devices()) > 0.0
        };
        let found: Vec<Allocation> = found
            .into_iter()
            .enumerate()
            .map(|(place, allocation)| if runs(place, &allocation) { allocation } else { Allocation::none() })
            .collect();
        for (id, allocation) in pool.iter().zip(found) {
            let largest = self.largest.entry(*id).or_default();
            *largest = (*largest).max(allocation.devices());
            wanted.insert(*id, allocation);
        }
    }

    /// Puts down who stops, starts and changes; how many wait then.
    fn enact(
        &self,
        now_s: f64,
        view: &ClusterView,
        model: &dyn StepModel,
        wanted: &BTreeMap<JobId, Allocation>,
        draft: &mut DecisionBuilder,
    ) -> usize {
        let mut waiting = 0;
        for (&id, seen) in &view.jobs {
            let allocation = wanted.get(&id);
            waiting += usize::from(allocation.is_none_or(Allocation::is_empty));
            match allocation {
                Some(allocation) if seen.is_running() && allocation.is_empty() => draft.stop(id, seen),
                Some(allocation) if seen.is_running() && *allocation != seen.allocation => {
                    draft.lift(id, seen)
                }
                _ => {}
            }
        }
        for (&id, allocation) in wanted.iter().filter(|(_, allocation)| !allocation.is_empty()) {
            let seen = &view.jobs[&id];
            let best = || progress(view, model, seen, allocation, now_s).filter(|_| seen.job.adaptive_batch);
            if *allocation == seen.allocation {
                if let Some(best) = best().filter(|best| self.pays(now_s, view, model, seen, best)) {
                    draft.change(id, allocation.clone(), Some(batch(&best)));
                }
                continue;
            }
            let taken = draft.board().take(allocation);
            assert!(taken, "the shares leave no node over its devices");
            let batch = best().map(|best| batch(&best));
            if seen.is_running() {
                draft.change(id, allocation.clone(), batch);
            } else {
                draft.start(id, allocation.clone(), batch);
            }
        }
        waiting
    }

    /// Whether another batch on the same devices makes more of them.
    fn pays(
        &self,
        now_s: f64,
        view: &ClusterView,
        model: &dyn StepModel,
        seen: &JobView,
        best: &Progress,
    ) -> bool {
        if seen.batch == Some(batch(best)) {
            return false;
        }
        let configuration = view.configuration(&seen.job, &seen.allocation, seen.batch);
        let Ok(present) = model.predict(&seen.job.description, &configuration) else { return true };
        let efficiency = model.efficiency(&seen.job.description, configuration.batch, seen.done(now_s));
        best.goodput() > (1.0 + RETUNED) * present.examples_per_s * efficiency
    }
}

fn batch(best: &Progress) -> Batch {
    Batch { samples: best.batch, accumulation: best.accumulation }
}

/// What a job makes of an allocation: with its best batch where that may change, else with its own.
fn progress(
    view: &ClusterView,
    model: &dyn StepModel,
    seen: &JobView,
    allocation: &Allocation,
    now_s: f64,
) -> Option<Progress> {
    let configuration = view.configuration(&seen.job, allocation, None);
    let description = &seen.job.description;
    if seen.job.adaptive_batch {
        return model.best_batch(description, &configuration, seen.done(now_s)).ok();
    }
    let prediction = model.predict(description, &configuration).ok()?;
    let (batch, accumulation) = (configuration.batch, configuration.accumulation);
    Some(Progress { batch, accumulation, examples_per_s: prediction.examples_per_s, efficiency: 1.0 })
}

/// Goodputs that were asked for. They hold as long as a job's efficiency does not change, and for all jobs of a kind.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Known {
    speeds: Speeds,
    /// By kind of job, whether its batch may change, type of device, and where the efficiency changes next.
    regimes: BTreeMap<(u32, bool, u16, u64), u32>,
    /// By regime and devices: nodes and goodput.
    goodputs: Vec<Vec<Vec<(u32, f64)>>>,
}

impl Known {
    fn regime(&mut self, model: &dyn StepModel, seen: &JobView, device_type: u16, now_s: f64) -> usize {
        let adaptive = seen.job.adaptive_batch;
        let changes_at = model.efficiency_changes_at(&seen.job.description, seen.done(now_s));
        let until = changes_at.filter(|_| adaptive).map_or(u64::MAX, f64::to_bits);
        let next = self.goodputs.len() as u32;
        let key = (self.speeds.kind(&seen.job), adaptive, device_type, until);
        let regime = *self.regimes.entry(key).or_insert(next);
        if regime == next {
            self.goodputs.push(Vec::new());
        }
        regime as usize
    }

    fn goodput(
        &mut self,
        regime: usize,
        nodes: u32,
        devices: u32,
        ask: impl FnOnce() -> Option<Progress>,
    ) -> f64 {
        let table = &mut self.goodputs[regime];
        if table.len() <= devices as usize {
            table.resize(devices as usize + 1, Vec::new());
        }
        let row = &mut table[devices as usize];
        if let Some(&(_, goodput)) = row.iter().find(|(known, _)| *known == nodes) {
            return goodput;
        }
        let goodput = ask().map(|best| best.goodput()).filter(|goodput| goodput.is_finite());
        row.push((nodes, goodput.unwrap_or(0.0)));
        goodput.unwrap_or(0.0)
    }
}

/// Nodes of a type, the largest first, down or not.
struct Shapes(Vec<(NodeId, u32)>);

impl Shapes {
    fn new(view: &ClusterView, device_type: u16) -> Shapes {
        let of_type = view.nodes.iter().enumerate().filter(|(_, node)| node.device_type == device_type);
        let mut nodes: Vec<(NodeId, u32)> =
            of_type.map(|(index, node)| (NodeId(index as u32), node.devices)).collect();
        nodes.sort_by_key(|&(id, devices)| (std::cmp::Reverse(devices), id));
        Shapes(nodes)
    }

    /// The fewest nodes that hold this many devices, or one more than there are.
    fn fewest(&self, devices: u32) -> u32 {
        let mut left = devices;
        let full = self.0.iter().take_while(|(_, room)| {
            let more = left > 0;
            left = left.saturating_sub(*room);
            more
        });
        let nodes = full.count() as u32;
        if left > 0 { self.0.len() as u32 + 1 } else { nodes }
    }

    /// This many devices on this many nodes, as full as possible; `None` when that cannot be.
    fn spread(&self, nodes: u32, devices: u32) -> Option<Allocation> {
        if nodes == 0 || nodes as usize > self.0.len() || devices < nodes {
            return None;
        }
        let mut left = devices;
        let share = |(place, &(node, room)): (usize, &(NodeId, u32))| {
            let others = nodes - 1 - place as u32;
            let devices = room.min(left - others);
            left -= devices;
            Share { node, devices }
        };
        let shares: Vec<Share> = self.0.iter().take(nodes as usize).enumerate().map(share).collect();
        (left == 0).then(|| Allocation::new(shares))
    }
}
