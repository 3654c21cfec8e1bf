//! How fast machines of the catalogue are together: asked of the step model once for each number of workers.
//!
//! Machines of one kind are the model's own question. Where two types of devices share one batch, virtual nodes are
//! mapped unevenly by [`mapping::solve`]: a virtual node takes a device as long as the model says or, where it does not
//! know, as a step of a lone device grows when the batch doubles, over V; the rest of a step of U workers is that of U
//! equal ones (the slower of both types).

use std::collections::BTreeMap;

use bellwether_core::InputError;
use bellwether_core::prediction::{Configuration, DeviceGroup, Link, PredictError, Prediction, StepModel};
use bellwether_model::predict::slower;

use super::Question;
use super::catalogue::{Catalogue, Machine};
use super::strategies;
use crate::mapping::{self, Problem, Worker};

/// Longer than any step.
const UNKNOWN_S: f64 = 1e300;

/// Speeds of all kinds of machines, alone and in pairs.
pub(super) struct Speeds<'a> {
    question: &'a Question<'a>,
    catalogue: &'a Catalogue,
    model: &'a dyn StepModel,
    /// By way, by kind, by workers from 0; what cannot run is absent.
    alone: Vec<Vec<Vec<Option<Speed>>>>,
    pairs: BTreeMap<(usize, usize), Pair>,
    /// Kinds whose memory is too small for a worker, and by how much.
    pub(super) unfit: Vec<(usize, String)>,
}

/// What some machines do when all are at work.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Speed {
    /// Over the whole run, each sample counted as what it is worth in synchronous training.
    pub(super) examples_per_s: f64,
    pub(super) step_s: f64,
    pub(super) staleness: Option<f64>,
    pub(super) work_factor: Option<f64>,
    pub(super) extrapolated: Option<String>,
}

/// Two kinds of machines together.
struct Pair {
    /// Machines of the second kind in the table, from 0.
    second: usize,
    /// Samples per second by machines of the first kind, then of the second.
    examples_per_s: Vec<f64>,
}

impl<'a> Speeds<'a> {
    /// Asks for every number of workers of every kind.
    ///
    /// # Errors
    ///
    /// Returns a machine of which not even one can be predicted, and why.
    pub(super) fn new(
        question: &'a Question<'a>,
        catalogue: &'a Catalogue,
        model: &'a dyn StepModel,
    ) -> Result<Speeds<'a>, InputError> {
        let (alone, pairs, unfit) = (Vec::new(), BTreeMap::new(), Vec::new());
        let mut speeds = Speeds { question, catalogue, model, alone, pairs, unfit };
        for way in 0..question.ways.len().max(1) {
            let mut of_kinds = Vec::with_capacity(catalogue.machines.len());
            for (kind, machine) in catalogue.machines.iter().enumerate() {
                let least = speeds.ask(way, kind, machine.devices);
                if let Err(PredictError::DoesNotFit(why)) = least {
                    speeds.leave_out(kind, why);
                    of_kinds.push(Vec::new());
                    continue;
                }
                if let Err(why) = &least {
                    let place = format!("machine `{}` of the catalogue", machine.name);
                    return Err(InputError::new(place, why.to_string()));
                }
                let mut alone = vec![None; 1 + question.max_workers.max(machine.devices) as usize];
                for (workers, speed) in (0..).zip(&mut alone) {
                    // Beyond the job's virtual nodes there is no answer.
                    *speed = if workers > 0 { speeds.ask(way, kind, workers).ok() } else { None };
                }
                of_kinds.push(alone);
            }
            speeds.alone.push(of_kinds);
        }
        Ok(speeds)
    }

    fn leave_out(&mut self, kind: usize, why: String) {
        if !self.unfit.iter().any(|(other, _)| *other == kind) {
            self.unfit.push((kind, why));
        }
    }

    /// The kinds that are left out, in words; `None` if there are none.
    pub(super) fn left_out(&self) -> Option<String> {
        let name = |kind: usize| &self.catalogue.machines[kind].name;
        let words = |(kind, why): &(usize, String)| format!("`{}` is left out: {why}", name(*kind));
        let all: Vec<String> = self.unfit.iter().map(words).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// The first way in which all wait for all, without servers.
    pub(super) fn together_way(&self) -> Option<usize> {
        let ways = self.question.ways;
        if ways.is_empty() { Some(0) } else { ways.iter().position(strategies::is_together) }
    }

    /// Machines of a kind that the job can use at once.
    pub(super) fn most(&self, way: usize, kind: usize) -> u32 {
        let Machine { devices, limit, .. } = self.catalogue.machines[kind];
        let usable = self.alone[way][kind].iter().rposition(Option::is_some).unwrap_or(0) as u32;
        (usable.min(self.question.max_workers) / devices).min(limit)
    }

    /// The same, kept together in whatever way uses most.
    pub(super) fn most_of_any(&self, kind: usize) -> u32 {
        (0..self.alone.len()).map(|way| self.most(way, kind)).max().unwrap_or(0)
    }

    /// This many machines of one kind.
    pub(super) fn alone(&self, way: usize, kind: usize, machines: u32) -> Option<&Speed> {
        let workers = machines.saturating_mul(self.catalogue.machines[kind].devices);
        self.alone[way][kind].get(workers as usize)?.as_ref()
    }

    /// This many workers of one kind that all wait for all.
    fn of_workers(&self, kind: usize, workers: u32) -> Option<&Speed> {
        self.alone[self.together_way()?][kind].get(workers as usize)?.as_ref()
    }

    /// Samples per second of this many machines of each of two kinds; at most [`prepare`](Speeds::prepare) says.
    pub(super) fn together(&self, kinds: (usize, usize), machines: (u32, u32)) -> f64 {
        let pair = &self.pairs[&kinds];
        pair.examples_per_s[machines.0 as usize * pair.second + machines.1 as usize]
    }

    /// Whether every worker of both kinds would be used, and all are faster together than each kind alone.
    pub(super) fn is_worth_mixing(&self, kinds: (usize, usize), machines: (u32, u32)) -> bool {
        let alone = |kind: usize, machines: u32| {
            let speed = self.of_workers(kind, machines.saturating_mul(self.catalogue.machines[kind].devices));
            speed.map_or(0.0, |speed| speed.examples_per_s)
        };
        let best = alone(kinds.0, machines.0).max(alone(kinds.1, machines.1));
        let idle = || self.mapped(kinds, machines).is_some_and(|(mapping, _)| mapping.counts.contains(&0));
        self.together(kinds, machines) > best * (1.0 + 1e-9) && !(self.question.shares_batch() && idle())
    }

    /// Finds out the speed of up to this many machines of each of two kinds together.
    pub(super) fn prepare(&mut self, kinds: (usize, usize), most: (u32, u32)) {
        let second = most.1 as usize + 1;
        let mut examples_per_s = Vec::with_capacity((most.0 as usize + 1) * second);
        for first in 0..=most.0 {
            for other in 0..=most.1 {
                examples_per_s.push(self.mixed(kinds, (first, other)).unwrap_or(0.0));
            }
        }
        // A machine more can be left out, so it never makes the others slower.
        for first in 0..=most.0 as usize {
            for other in 0..second {
                let place = first * second + other;
                let fewer = [(first > 0).then(|| place - second), (other > 0).then(|| place - 1)];
                let fewer =
                    fewer.into_iter().flatten().map(|place| examples_per_s[place]).fold(0.0, f64::max);
                examples_per_s[place] = examples_per_s[place].max(fewer);
            }
        }
        self.pairs.insert(kinds, Pair { second, examples_per_s });
    }

    fn mixed(&self, kinds: (usize, usize), machines: (u32, u32)) -> Option<f64> {
        match machines {
            (0, count) => Some(self.alone(self.together_way()?, kinds.1, count)?.examples_per_s),
            (count, 0) => Some(self.alone(self.together_way()?, kinds.0, count)?.examples_per_s),
            _ if self.question.shares_batch() => {
                let (mapping, _) = self.mapped(kinds, machines)?;
                Some(self.question.batch as f64 / mapping.step_s)
            }
            // Each worker has its own batch, and all wait for the slowest.
            _ => {
                let machine = |kind: usize| &self.catalogue.machines[kind];
                let (first, second) = (machine(kinds.0), machine(kinds.1));
                let mut devices = groups(first, machines.0 * first.devices, 0);
                devices.extend(groups(second, machines.1 * second.devices, machines.0));
                let link = slower(self.link(first)?, self.link(second)?);
                let prediction = self.predict(devices, link).ok()?;
                Some(prediction.examples_per_s)
            }
        }
    }

    /// The fastest mapping of the virtual nodes to machines of two kinds, and the workers of the first; absent where a
    /// kind cannot be predicted.
    pub(super) fn mapped(
        &self,
        kinds: (usize, usize),
        machines: (u32, u32),
    ) -> Option<(mapping::Mapping, usize)> {
        let virtual_nodes = self.question.virtual_nodes;
        let kinds = [(kinds.0, machines.0), (kinds.1, machines.1)];
        let mut workers = Vec::new();
        let mut node_s = [0.0; 2];
        for (place, (kind, count)) in kinds.into_iter().enumerate() {
            node_s[place] = self.node_s(kind)?;
            let worker = Worker { device_type: place as u16, node_s: node_s[place], most: u32::MAX };
            let devices = self.catalogue.machines[kind].devices;
            workers.extend(std::iter::repeat_n(worker, (count * devices) as usize));
        }
        let first = (machines.0 * self.catalogue.machines[kinds[0].0].devices) as usize;
        let sync_s = |used: u32| {
            let rest_s = |(place, (kind, _)): (usize, (usize, u32))| {
                let step_s = self.of_workers(kind, used)?.step_s;
                Some((step_s - f64::from(virtual_nodes.div_ceil(used)) * node_s[place]).max(0.0))
            };
            // A number of workers of which nothing is known is never the fastest.
            kinds.into_iter().enumerate().filter_map(rest_s).reduce(f64::max).unwrap_or(UNKNOWN_S)
        };
        let problem = Problem { workers: &workers, virtual_nodes, sync_s: &sync_s };
        Some((mapping::solve(&problem).ok()?, first))
    }

    /// Seconds of one virtual node on a lone device.
    fn node_s(&self, kind: usize) -> Option<f64> {
        let machine = &self.catalogue.machines[kind];
        let mut configuration = self.configuration(groups(machine, 1, 0), self.link(machine)?);
        let known_s = self.model.virtual_node_s(self.question.job, &configuration);
        if let Some(node_s) = known_s {
            return (node_s > 0.0).then_some(node_s);
        }
        let once_s = self.model.predict(self.question.job, &configuration).ok()?.step_s;
        configuration.batch *= 2;
        let twice_s = self.model.predict(self.question.job, &configuration).ok()?.step_s;
        let node_s = (twice_s - once_s) / f64::from(self.question.virtual_nodes);
        (node_s > 0.0).then_some(node_s)
    }

    fn ask(&self, way: usize, kind: usize, workers: u32) -> Result<Speed, PredictError> {
        let machine = &self.catalogue.machines[kind];
        let no_link = || {
            let why = "no link is known: say [network] bandwidth = \"10Gbit/s\" in the catalogue, as the profile has none";
            PredictError::Incomplete(why.into())
        };
        let link = self.link(machine).ok_or_else(no_link)?;
        let plain = self.configuration(groups(machine, workers, 0), link);
        if let Some(memory) = machine.memory_bytes {
            let room = memory as f64 / f64::from(workers.min(machine.devices));
            self.model.fits(self.question.job, &plain, room)?;
        }
        let Some(way) = self.question.ways.get(way) else {
            let Prediction { examples_per_s, step_s, validity, .. } =
                self.model.predict(self.question.job, &plain)?;
            let extrapolated = validity.beyond().map(str::to_owned);
            return Ok(Speed { examples_per_s, step_s, extrapolated, staleness: None, work_factor: None });
        };
        let batch = plain.batch as f64;
        let run = strategies::run(self.question, way, &plain, self.model)?;
        Ok(Speed {
            examples_per_s: run.examples_per_s,
            step_s: batch / run.examples_per_s,
            extrapolated: run.extrapolated,
            staleness: run.staleness,
            work_factor: run.work_factor,
        })
    }

    fn predict(&self, devices: Vec<DeviceGroup>, link: Link) -> Result<Prediction, PredictError> {
        self.model.predict(self.question.job, &self.configuration(devices, link))
    }

    fn configuration(&self, devices: Vec<DeviceGroup>, link: Link) -> Configuration {
        let several = devices.iter().any(|group| group.count > 1);
        let mut configuration = Configuration::synchronous(devices, self.question.batch, link);
        if !self.question.shares_batch() {
            configuration.batch *= u64::from(configuration.workers());
        }
        configuration.local_link = self.catalogue.local_link.filter(|_| several);
        configuration
    }

    /// The link of a kind: its own, that of the catalogue, that of its profile, or that of the job's.
    fn link(&self, machine: &Machine) -> Option<Link> {
        let measured = || self.catalogue.measured(&machine.device)?.profile.network.map(Link::from);
        machine.link.or(self.catalogue.link).or_else(measured).or(self.question.link)
    }
}

/// Workers on machines of one kind, each full but for the last; nodes are numbered from `node`.
fn groups(machine: &Machine, workers: u32, node: u32) -> Vec<DeviceGroup> {
    let machines = workers.div_ceil(machine.devices);
    let group = |number: u32| {
        let count = (workers - number * machine.devices).min(machine.devices);
        DeviceGroup { node: node + number, device: machine.device.clone(), count }
    };
    (0..machines).map(group).collect()
}
