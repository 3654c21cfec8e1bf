//! What all clusters of the same kinds of machines share: their jobs, and what bounds these.

use bellwether_core::InputError;
use bellwether_sched::capacity::bounds::{DeviceType, Finder, Least, Leasts};
use bellwether_sched::capacity::{Figure, Objective, Part, Statistic};
use bellwether_sched::plan::Catalogue;
use bellwether_sim::cluster::Cluster;
use bellwether_sim::trace::Entry;

use super::Request;
use super::figures::{place, value};
use crate::simulate::Inputs;

/// Parts of a bound by which rounding may lift it above what it bounds.
pub(super) const ROUNDING: f64 = 1e-9;

/// Multiples of an objective's limit for which it is known what capacity they need. The first is so much above the
/// limit that it breaks it, less what is taken off for rounding.
const MULTIPLES: [f64; 7] = [1.0 + 1e-6, 1.25, 1.5, 2.0, 3.0, 5.0, 8.0];

/// The jobs of a run on clusters of some kinds.
pub(super) struct Run {
    /// In order of arrival.
    pub(super) entries: Vec<Entry>,
    /// What bounds them.
    pub(super) leasts: Leasts,
    /// By objective: a level that no cluster goes below, and levels above it with the capacity that each needs.
    levels: Vec<(f64, Vec<(f64, f64)>)>,
}

/// Clusters of the same kinds of machines.
pub(super) struct Kinds {
    /// The models of truth and belief, which know the devices.
    pub(super) inputs: Inputs,
    /// One where all runs have the same jobs.
    runs: Vec<Run>,
    /// What a device of each type counts.
    scales: Vec<f64>,
}

impl Kinds {
    /// Those of a cluster that has as many of each kind as any.
    pub(super) fn read(request: &Request, largest: Cluster, runs: u64) -> Result<Kinds, InputError> {
        let inputs = request.jobs.inputs_on(largest)?;
        let view = &inputs.cluster.view;
        let speeds = &inputs.cluster.device_speeds;
        let scales: Vec<f64> =
            view.device_types.iter().map(|name| speeds.get(name).copied().unwrap_or(1.0)).collect();
        let types: Vec<DeviceType<'_>> = (0_u16..)
            .zip(view.device_types.iter().zip(&scales))
            .map(|(number, (name, scale))| DeviceType {
                name,
                scale: *scale,
                most: view.devices(Some(number)),
            })
            .collect();
        let truth = inputs.truth();
        let mut finder = Finder::new(&types, truth);
        let runs = if inputs.trace.is_some() { 1 } else { runs };
        let mut read = Vec::new();
        for run in 0..runs {
            let entries = inputs.entries(request.seed.saturating_add(run))?.into_owned();
            // How much of its work a job does that may end early is drawn elsewhere.
            let is_known = request.jobs.early.is_none();
            let least = |entry: &Entry| {
                let is_work = is_known && (!entry.is_duration || truth.is_relative());
                finder.least(&entry.job, is_work.then_some(entry.work))
            };
            let leasts = Leasts::new(entries.iter().map(least).collect());
            let levels =
                request.objectives.iter().map(|objective| levels(objective, &entries, &leasts)).collect();
            read.push(Run { entries, leasts, levels });
        }
        Ok(Kinds { runs: read, scales, inputs })
    }

    /// The jobs of a run.
    pub(super) fn run(&self, run: u64) -> &Run {
        &self.runs[(run as usize).min(self.runs.len() - 1)]
    }

    /// Whether its runs differ in their jobs.
    pub(super) fn is_drawn(&self) -> bool {
        self.inputs.trace.is_none()
    }

    /// Device-seconds per second that machines offer, with the scales of their devices.
    pub(super) fn capacity(&self, parts: &[Part], catalogue: &Catalogue) -> f64 {
        let types = &self.inputs.cluster.view.device_types;
        let of = |part: &Part| {
            let machine = &catalogue.machines[part.kind];
            let at = types.iter().position(|known| *known == machine.device);
            at.map_or(1.0, |at| self.scales[at]) * f64::from(part.machines()) * f64::from(machine.devices)
        };
        parts.iter().map(of).sum()
    }
}

impl Run {
    /// Seconds from the first arrival to the last end, at least.
    pub(super) fn span_s(&self, capacity: f64) -> f64 {
        self.leasts.span_s(capacity) * (1.0 - ROUNDING)
    }

    /// A level of objective `at` that no policy goes below.
    pub(super) fn level(&self, at: usize, figure: Figure, capacity: f64) -> f64 {
        let (least, needs) = &self.levels[at];
        let of_work = match figure {
            Figure::Completion(Statistic::Mean) => self.leasts.mean_completion_s(capacity),
            Figure::Makespan => self.leasts.span_s(capacity),
            // With less than a level needs, the level is above it.
            _ => needs
                .iter()
                .filter(|(_, needed)| *needed > capacity)
                .fold(0.0, |most, (level, _)| level.max(most)),
        };
        least.max(of_work) * (1.0 - ROUNDING)
    }
}

/// What is known of a level whatever the cluster, and what capacity some levels need.
fn levels(objective: &Objective, entries: &[Entry], leasts: &Leasts) -> (f64, Vec<(f64, f64)>) {
    match objective.figure {
        Figure::Completion(statistic) => {
            let least = value(statistic, leasts.jobs().iter().map(|job| job.alone_s).collect());
            let Some(place) = place(statistic, entries.len()) else { return (least, Vec::new()) };
            // The element at this place is no later than a level where no more than these are.
            let late = entries.len() - place - 1;
            let need = |multiple: f64| {
                let within_s = objective.limit * multiple;
                let needed = leasts.capacity_for(within_s, late) * (1.0 - ROUNDING);
                (within_s, needed)
            };
            (least, MULTIPLES.map(need).to_vec())
        }
        Figure::Deadlines => {
            let due = |entry: &Entry| entry.job.deadline_s;
            let count = entries.iter().filter_map(due).count();
            let misses = |(entry, least): &(&Entry, &Least)| {
                let end_s = least.arrival_s + least.alone_s * (1.0 - ROUNDING);
                due(entry).is_some_and(|deadline_s| end_s > deadline_s + 1e-3)
            };
            let missed = entries.iter().zip(leasts.jobs()).filter(misses).count();
            (missed as f64 / count.max(1) as f64, Vec::new())
        }
        _ => (0.0, Vec::new()),
    }
}
