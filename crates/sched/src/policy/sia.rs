//! One configuration per job, by an integer program over types and numbers of devices (Sia).
//!
//! # Idea
//!
//! Once per interval every job is offered configurations: powers of two of devices in a node, whole nodes beyond, of
//! each type. Each is worth the more the larger its goodput is against the job's worst one, with less and less for more
//! (power p), and less if a running job would have to restart for it though it has restarted often. What is chosen is
//! the set with the largest sum that fits into the cluster. It is chosen at once where a running job may not keep its
//! devices because its limits were revised.
//!
//! # Source
//!
//! Subramanya et al., Sia: heterogeneity-aware, goodput-optimized ML-cluster scheduling, SOSP 2023. A job's weight
//! multiplies all that a configuration of it is worth. The program: [`choice`].
//!
//! # Reads
//!
//! Goodput in each configuration, weights, age and restarts; not the remaining work.
//!
//! # Complexity
//!
//! The program, about a millisecond for 160 jobs on 64 devices of three types, and O(jobs x configurations).
//!
//! # Bad when
//!
//! Restarts are expensive, or there are more jobs than can run: those with small configurations go first.

use std::collections::BTreeMap;

use bellwether_core::cluster::{Allocation, Batch, ClusterView, JobId, JobView};
use bellwether_core::policy::{Decision, Policy, PolicyInput, Promises, Rule};
use bellwether_core::prediction::StepModel;
use serde::{Deserialize, Serialize};

use super::{About, LEAST_INTERVAL_S};
use crate::allocation::held_type;
use crate::decision_builder::DecisionBuilder;
use crate::enforce_limits::interrupted;
use crate::free_devices::FreeDevices;
use crate::program::choice::{self, Candidate};
use crate::speed::packed;

/// Sia.
pub const ABOUT: About = About {
    name: "sia",
    idea: "each interval, the set of configurations with the largest sum of goodputs, each to a power",
    options: &[
        ("interval", 60.0, "seconds between decisions"),
        ("p", -0.5, "power of goodput; the smaller, the fairer"),
        ("lambda", 1.1, "what a job costs that gets nothing"),
    ],
    bad_when: "restarts are expensive, or there are far more jobs than can run",
    gangs: false,
    needs_remaining: false,
    promises: Promises { work_conserving: false, starvation_free: true },
    make: |options| {
        let [interval_s, power, penalty] = ["interval", "p", "lambda"].map(|name| options.get(name));
        if interval_s < LEAST_INTERVAL_S {
            return Err(options.out_of_range("interval", "a millisecond or more"));
        }
        if power == 0.0 {
            return Err(options.out_of_range("p", "a number that is not 0"));
        }
        if penalty <= 0.0 {
            return Err(options.out_of_range("lambda", "a number above 0"));
        }
        if power < 0.0 && penalty <= 1.0 {
            // The only configuration of a rigid job costs 1.
            let expected = "more than 1 if p is below 0, or jobs would wait for ever";
            return Err(options.out_of_range("lambda", expected));
        }
        Ok(Box::new(Sia { interval_s, power, penalty, jobs: BTreeMap::new(), next_s: f64::NEG_INFINITY }))
    },
};

/// The most that a configuration counts as bad.
const WORST: f64 = 3_000.0;

/// What a job may be given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Offer {
    device_type: u16,
    devices: u32,
    /// Work per second that counts.
    goodput: f64,
    batch: Option<Batch>,
}

/// Offers of a job, and the progress up to which they hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Offers {
    all: Vec<Offer>,
    until: Option<f64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Sia {
    interval_s: f64,
    power: f64,
    penalty: f64,
    jobs: BTreeMap<JobId, Offers>,
    next_s: f64,
}

impl Policy for Sia {
    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        let PolicyInput { now_s, view, changes, model } = *input;
        for id in changes.gone(view).chain(changes.revised.iter().copied()) {
            self.jobs.remove(&id);
        }
        if changes.relearnt {
            self.jobs.clear();
        }
        if interrupted(changes) {
            self.next_s = f64::NEG_INFINITY;
        }
        let mut board = FreeDevices::new(view);
        let mut draft = DecisionBuilder::new(&mut board);
        let mut waiting = view.jobs.values().filter(|seen| !seen.is_running()).count();
        let mut is_hopeless = view.jobs.is_empty();
        if now_s >= self.next_s {
            self.next_s = (now_s + self.interval_s).max(now_s.next_up());
            let chosen = self.choose(now_s, view, model);
            enact(view, &chosen, &mut draft);
            waiting = view.jobs.len() - chosen.len();
            is_hopeless = self.jobs.values().all(|offers| offers.all.is_empty());
        }
        if is_hopeless {
            // Only an event can change that, and is answered at once.
            self.next_s = f64::NEG_INFINITY;
        }
        draft.finish(Rule::Program, waiting, (!is_hopeless).then_some(self.next_s))
    }
}

impl Sia {
    /// The best set of offers.
    fn choose(&mut self, now_s: f64, view: &ClusterView, model: &dyn StepModel) -> BTreeMap<JobId, Offer> {
        let nodes = largest_nodes(view);
        let devices: Vec<u32> = (0..nodes.len() as u16).map(|kind| view.devices(Some(kind))).collect();
        let mut candidates = Vec::with_capacity(view.jobs.len());
        for (&id, seen) in &view.jobs {
            let done = seen.done(now_s);
            let holds = |offers: &Offers| offers.until.is_none_or(|until| done < until);
            if !self.jobs.get(&id).is_some_and(holds) {
                self.jobs.insert(id, offers(view, seen, done, &nodes, model));
            }
            candidates.push(self.candidates(now_s, view, seen, &self.jobs[&id].all));
        }
        let choice = choice::best(&candidates, &devices);
        let taken = view.jobs.keys().zip(&choice.taken);
        taken.filter_map(|(&id, place)| Some((id, self.jobs[&id].all[(*place)?].clone()))).collect()
    }

    /// What each offer is worth.
    fn candidates(&self, now_s: f64, view: &ClusterView, seen: &JobView, offers: &[Offer]) -> Vec<Candidate> {
        let least = offers.iter().map(|offer| offer.goodput).fold(f64::INFINITY, f64::min);
        let age_s = now_s - seen.job.arrival_s;
        let restart_s = view.restart_s;
        let keeps_going = if age_s < restart_s || restart_s == 0.0 {
            1.0
        } else {
            (age_s - f64::from(seen.restarts) * restart_s).max(0.0) / (age_s + restart_s)
        };
        let held = held(view, seen);
        let candidate = |offer: &Offer| {
            // A job that waits gives up nothing: it would keep away from idle devices.
            let goes_on = held.is_none_or(|held| held == (offer.device_type, offer.devices));
            let gain = offer.goodput / least * if goes_on { 1.0 } else { keeps_going };
            let powered = ((libm::pow(gain, self.power) * 100.0).round() / 100.0).min(WORST);
            // A power below 0 makes costs of goodputs, and one above 0 gains.
            let worth = if self.power < 0.0 { self.penalty - powered } else { self.penalty + powered };
            Candidate {
                value: seen.job.weight * worth,
                device_type: usize::from(offer.device_type),
                devices: offer.devices,
            }
        };
        offers.iter().map(candidate).collect()
    }
}

/// Type and number of the devices that a job holds.
fn held(view: &ClusterView, seen: &JobView) -> Option<(u16, u32)> {
    Some((held_type(view, seen)?, seen.allocation.devices()))
}

/// Devices of the largest node of each type.
fn largest_nodes(view: &ClusterView) -> Vec<u32> {
    let mut largest = vec![0; view.device_types.len()];
    for node in &view.nodes {
        let of_type = &mut largest[usize::from(node.device_type)];
        *of_type = node.devices.max(*of_type);
    }
    largest
}

/// The configurations in which a job can run, and how well it does there.
fn offers(view: &ClusterView, seen: &JobView, done: f64, nodes: &[u32], model: &dyn StepModel) -> Offers {
    let job = &seen.job;
    let mut all = Vec::new();
    for (device_type, &node) in nodes.iter().enumerate().filter(|(_, node)| **node > 0) {
        let device_type = device_type as u16;
        let total =
            view.nodes.iter().filter(|n| n.device_type == device_type).map(|n| n.devices).sum::<u32>();
        let inside = (0..32).map(|power| 1 << power).take_while(|&count| count <= node);
        let beyond = (2..=total / node).map(|count| count * node);
        let mut counts: Vec<u32> = inside
            .chain(beyond)
            .filter(|count| (job.min_devices..=job.max_devices).contains(count))
            .collect();
        if job.is_rigid() || counts.is_empty() {
            counts = vec![job.asked().clamp(job.min_devices, job.max_devices)];
        }
        for devices in counts.into_iter().filter(|_| job.accepts(device_type)) {
            let Some(allocation) = packed(view, device_type, devices) else { continue };
            let configuration = view.configuration(job, &allocation, None);
            if !job.adaptive_batch {
                if let Some((_, prediction)) = view.fastest_way(model, job, &allocation, None) {
                    all.push(Offer { device_type, devices, goodput: prediction.examples_per_s, batch: None });
                }
            } else if let Ok(best) = model.best_batch(&job.description, &configuration, done) {
                let batch = Some(Batch { samples: best.batch, accumulation: best.accumulation });
                all.push(Offer { device_type, devices, goodput: best.goodput(), batch });
            }
        }
    }
    all.retain(|offer| offer.goodput > 0.0);
    let changes_at =
        job.adaptive_batch.then(|| model.efficiency_changes_at(&job.description, done)).flatten();
    Offers { all, until: changes_at.filter(|&at| at > done) }
}

/// Gives jobs what was chosen for them.
fn enact(view: &ClusterView, chosen: &BTreeMap<JobId, Offer>, draft: &mut DecisionBuilder) {
    let places = place(view, chosen);
    for (&id, seen) in view.jobs.iter().filter(|(_, seen)| seen.is_running()) {
        match places.get(&id) {
            None => draft.stop(id, seen),
            Some(allocation) if *allocation != seen.allocation => draft.lift(id, seen),
            Some(_) => {}
        }
    }
    for (id, allocation) in places {
        let (seen, batch) = (&view.jobs[&id], chosen[&id].batch);
        if !seen.is_running() {
            draft.start(id, allocation, batch);
        } else if allocation != seen.allocation {
            draft.change(id, allocation, batch);
        }
    }
}

/// Where chosen jobs run: on what they hold if it is of the chosen kind, unless another of that type would have to
/// spread over more nodes than it needs; then all of that type are placed again, the widest first.
fn place(view: &ClusterView, chosen: &BTreeMap<JobId, Offer>) -> BTreeMap<JobId, Allocation> {
    let nodes = largest_nodes(view);
    let mut board = FreeDevices::empty(view);
    let mut places = BTreeMap::new();
    for device_type in 0..nodes.len() as u16 {
        let mut jobs: Vec<(JobId, u32)> = chosen
            .iter()
            .filter(|(_, offer)| offer.device_type == device_type)
            .map(|(&id, o)| (id, o.devices))
            .collect();
        jobs.sort_by_key(|&(id, devices)| (std::cmp::Reverse(devices), id));
        let stays = |id: &JobId, devices: u32| held(view, &view.jobs[id]) == Some((device_type, devices));
        let mut trial = board.clone();
        let mut kept = Vec::new();
        let mut is_spread = false;
        for &(id, devices) in &jobs {
            if stays(&id, devices) && trial.take(&view.jobs[&id].allocation) {
                kept.push((id, view.jobs[&id].allocation.clone()));
            }
        }
        for &(id, devices) in jobs.iter().filter(|(id, devices)| !stays(id, *devices)) {
            let Some(allocation) = trial.place(device_type, devices) else { continue };
            let needed = devices.div_ceil(nodes[usize::from(device_type)]) as usize;
            is_spread |= allocation.shares().len() > needed;
            kept.push((id, allocation));
        }
        if is_spread {
            trial = board;
            let again = |&(id, devices): &(JobId, u32)| Some((id, trial.place(device_type, devices)?));
            kept = jobs.iter().filter_map(again).collect();
        }
        places.extend(kept);
        board = trial;
    }
    places
}
