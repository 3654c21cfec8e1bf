//! When the jobs of a living cluster may start and end: the cluster as it is, simulated forward again and again, each
//! time with other luck.
//!
//! What is not known is drawn again in each of these worlds: how far the speed that is believed of a model is off, by
//! the interval of its prediction; which jobs end before their work is done, by the parts that earlier ones did; what a
//! start costs, by what earlier ones cost; and which jobs come, by those that came of late and their rate. The draws go
//! by the jobs' names and the world's number, so that two looks differ by what has happened between them, and not by
//! luck.
//!
//! What really happens is one more such world. So it lies between the extremes of [`WORLDS`] worlds with a probability
//! of (W − 1)/(W + 1): 90 % for 19.
//!
//! # Checked by
//!
//! `tests/it/outlook.rs`: starts on simulated days whose speeds, ends and arrivals are not those that are believed, and
//! cases by hand. How fast it is: the example `outlook_speed`.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::Arc;

use bellwether_core::cluster::{Allocation, ClusterView, Job, JobId, JobView};
use bellwether_core::outlook::{Expected, Past, Present, Times};
use bellwether_core::policy::{Backend, Decision, Fault, PolicyInput};
use bellwether_core::prediction::{JobDescription, Prediction, StepModel};
use bellwether_des::{Stream, Streams};
use bellwether_model::early_end::Ends;

use crate::trace::Entry;
use crate::world::{Fate, JobRecord, Recording, Scenario, World};

/// Worlds whose extremes hold nine starts of ten.
pub const WORLDS: u32 = 19;

/// In a world no more jobs come than are there, and this many; and none after twice the time in which all devices
/// together could do what is there, and the longest job: what comes then meets few that are there.
const ARRIVALS: usize = 200;

/// No speed is known better than this, as the standard deviation of its logarithm: the interval of a mean that was
/// observed for long says nothing of the next hours' steps.
const LEAST: f64 = 0.02;

/// Half the width of a 95 % interval, in standard deviations.
const SIGMAS: f64 = 1.96;

/// Looks ahead in `worlds` worlds, several at a time where there are processors for them. `drive` lets a policy decide
/// in one of them until it is over, or until it need not be seen further: what has not happened in it by then is as
/// late as in no other world, and not earlier than that.
///
/// # Errors
///
/// Returns the first fault of `drive`, or one for a job that runs with a speed that `belief` does not know.
pub fn look(
    present: &Present,
    belief: &(dyn StepModel + Sync),
    worlds: u32,
    drive: impl Fn(&mut World<'_>) -> Result<(), Fault> + Sync,
) -> Result<BTreeMap<JobId, Expected>, Fault> {
    let numbers: Vec<JobId> = present.view.jobs.keys().copied().collect();
    let view = renumbered(&present.view, &numbers);
    let speeds = Speeds::of(&view, present.now_s, belief);
    let mut scenario = Scenario::new(emptied(&view));
    scenario.knowledge = present.remaining;
    let ends = Endings::of(present);
    scenario.early_ends.clone_from(&ends.of_kinds);
    let see = |number: u32| {
        let streams = Streams::new(u64::from(number));
        let luck = Luck { streams, speeds: &speeds, ends: &ends };
        let rests = luck.rests(&view, present.now_s);
        let (entries, parts) = luck.arrivals(present);
        let starts_s = luck.starts_s(&view, &entries, &present.past.starts_s);
        let (now, fate) = ((present.now_s, view.clone()), Fate { rests, parts, starts_s });
        let mut world = World::going_on(now, &entries, fate, belief, &scenario)?;
        drive(&mut world)?;
        let unseen_s = world.reach_s();
        let Recording { mut jobs, .. } = world.into_recording();
        jobs.truncate(numbers.len());
        let seen = |record: JobRecord| Seen { start_s: record.start_s, end_s: record.end_s };
        Ok((unseen_s, jobs.into_iter().map(seen).collect::<Vec<Seen>>()))
    };
    let seen = side_by_side(worlds, see)?;
    let expected = numbers.iter().zip(view.jobs.values()).enumerate().map(|(place, (id, job))| {
        let times = |of: fn(&Seen) -> Option<f64>| {
            spread(seen.iter().map(|(unseen_s, jobs)| of(&jobs[place]).ok_or(*unseen_s)))
        };
        let start = (!job.is_running()).then(|| times(|seen| seen.start_s));
        (*id, Expected { start, end: times(|seen| seen.end_s) })
    });
    Ok(expected.collect())
}

/// A world that is left when the time is over: what comes after is not seen.
pub struct Briefly<'w, 'a, F> {
    /// The world.
    pub world: &'w mut World<'a>,
    /// Whether the time is over.
    pub is_over: F,
}

impl<F: Fn() -> bool> Backend for Briefly<'_, '_, F> {
    fn next<'a>(
        &'a mut self,
        wakeup_s: Option<f64>,
        model: &'a dyn StepModel,
    ) -> Result<Option<PolicyInput<'a>>, Fault> {
        if (self.is_over)() { Ok(None) } else { self.world.next(wakeup_s, model) }
    }

    fn wants_expectations(&self) -> bool {
        false
    }

    fn apply(&mut self, decision: Decision) -> Result<(), Fault> {
        self.world.apply(decision)
    }
}

/// What became of a job in a world.
struct Seen {
    start_s: Option<f64>,
    end_s: Option<f64>,
}

/// What `of` says of 0, 1, ... in order, found by as many threads as there are processors.
fn side_by_side<V: Send>(count: u32, of: impl Fn(u32) -> Result<V, Fault> + Sync) -> Result<Vec<V>, Fault> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(count as usize) as u32;
    let share = |first: u32| (first..count).step_by(threads.max(1) as usize).map(&of).collect::<Vec<_>>();
    let shares: Vec<Vec<Result<V, Fault>>> = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|first| scope.spawn(move || share(first))).collect();
        let own = share(0);
        let joined =
            others.into_iter().map(|other| other.join().unwrap_or_else(|panic| resume_unwind(panic)));
        std::iter::once(own).chain(joined).collect()
    });
    shares.into_iter().flatten().collect()
}

/// The times at which something happens in the worlds; of a world in which it was not seen, the time until which it was
/// looked at.
fn spread(worlds: impl Iterator<Item = Result<f64, f64>>) -> Times {
    let mut low_s = f64::INFINITY;
    let mut times_s = Vec::new();
    for world in worlds {
        let (Ok(time_s) | Err(time_s)) = world;
        low_s = low_s.min(time_s);
        times_s.push(world.unwrap_or(f64::INFINITY));
    }
    times_s.sort_unstable_by(f64::total_cmp);
    let at = |place: usize| times_s.get(place).copied().unwrap_or(f64::INFINITY);
    Times { low_s, middle_s: at(times_s.len() / 2), high_s: at(times_s.len().saturating_sub(1)) }
}

/// The same cluster, with its jobs numbered from 0 on in the same order.
fn renumbered(view: &ClusterView, numbers: &[JobId]) -> ClusterView {
    let place = |id: JobId| numbers.binary_search(&id).ok().map(|place| JobId(place as u32));
    let renumber = |(id, seen): (&JobId, &JobView)| {
        let beside = seen.beside.and_then(place);
        Some((place(*id)?, JobView { beside, ..seen.clone() }))
    };
    ClusterView { jobs: view.jobs.iter().filter_map(renumber).collect(), ..without_jobs(view) }
}

fn without_jobs(view: &ClusterView) -> ClusterView {
    let ClusterView { device_types, nodes, .. } = view;
    let (device_types, nodes) = (device_types.clone(), nodes.clone());
    ClusterView { device_types, nodes, jobs: BTreeMap::new(), ..*view }
}

fn emptied(view: &ClusterView) -> ClusterView {
    let mut empty = without_jobs(view);
    empty.nodes.iter_mut().for_each(|node| node.free = node.devices);
    empty
}

/// What is believed of the jobs' speeds, asked once for each kind of job.
struct Speeds {
    /// By model the standard deviation of its logarithm, as its prediction says.
    deviations: BTreeMap<String, f64>,
    /// Seconds after which no job has to come any more.
    horizon_s: f64,
}

impl Speeds {
    fn of(view: &ClusterView, now_s: f64, belief: &dyn StepModel) -> Speeds {
        let mut kinds = BTreeMap::new();
        let mut deviations = BTreeMap::new();
        let (mut device_s, mut longest_s) = (0.0, 0.0_f64);
        for seen in view.jobs.values() {
            let JobDescription { model, batch, .. } = &seen.job.description;
            let kind = (model.as_str(), *batch, seen.job.asked());
            let predicted = kinds.entry(kind).or_insert_with(|| alone(view, seen, belief)).as_ref();
            let Some(predicted) = predicted.filter(|predicted| predicted.examples_per_s > 0.0) else {
                continue;
            };
            let alone_s = seen.remaining(now_s).unwrap_or(0.0) / predicted.examples_per_s;
            device_s += alone_s * f64::from(seen.job.asked());
            longest_s = longest_s.max(alone_s);
            if !deviations.contains_key(model) {
                let deviation = libm::log(predicted.high / predicted.low) / (2.0 * SIGMAS);
                let deviation = if deviation.is_finite() { deviation.max(LEAST) } else { LEAST };
                deviations.insert(model.clone(), deviation);
            }
        }
        let devices = view.devices(None).max(1);
        Speeds { deviations, horizon_s: device_s / f64::from(devices) + longest_s }
    }
}

/// What is predicted of a job with what it holds, or with what its author asked for.
fn alone(view: &ClusterView, seen: &JobView, belief: &dyn StepModel) -> Option<Prediction> {
    let asked = || {
        let kind = (0..view.device_types.len() as u16).find(|kind| seen.job.accepts(*kind))?;
        let most = view.devices_with_down(kind);
        Allocation::filling(view.nodes_of(kind), seen.job.asked().min(most))
    };
    let held = if seen.is_running() { Some(seen.allocation.clone()) } else { asked() }?;
    let configuration = view.configuration_in(seen.way(), &seen.job, &held, seen.batch);
    belief.predict(&seen.job.description, &configuration).ok()
}

/// What is drawn in one world.
struct Luck<'a> {
    streams: Streams,
    speeds: &'a Speeds,
    ends: &'a Endings,
}

/// What a stream of a name is for.
const SPEED: u64 = 0;
const END: u64 = 1;
const START: u64 = 2;

/// How jobs ended so far: those of each kind, and all of them for kinds of which none has.
struct Endings {
    of_kinds: BTreeMap<String, Ends>,
    of_all: Ends,
}

impl Endings {
    fn of(present: &Present) -> Endings {
        let mut running: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for seen in present.view.jobs.values() {
            let (done, rest) = (seen.done(present.now_s), seen.remaining(present.now_s).unwrap_or(0.0));
            if done > 0.0 {
                running.entry(&seen.job.description.model).or_default().push(done / (done + rest));
            }
        }
        let mut parts: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for (kind, part) in &present.past.parts {
            parts.entry(kind.clone()).or_default().push(*part);
        }
        let all: Vec<f64> = present.past.parts.iter().map(|(_, part)| *part).collect();
        let of_all = Ends::of(&all, &running.values().flatten().copied().collect::<Vec<f64>>());
        let of_kind = |(kind, parts): (String, Vec<f64>)| {
            let ends = Ends::of(&parts, running.get(kind.as_str()).map_or(&[], Vec::as_slice));
            (kind, ends)
        };
        Endings { of_kinds: parts.into_iter().map(of_kind).collect(), of_all }
    }

    /// The part of its work that a job of this kind will have done at its end, that has done the part `done`.
    fn part(&self, kind: &str, done: f64, stream: impl FnOnce() -> Stream) -> f64 {
        let ends = self.of_kinds.get(kind).unwrap_or(&self.of_all);
        if ends.early().0 == 0 { 1.0 } else { done + ends.rest(done, stream().uniform()) }
    }
}

impl Luck<'_> {
    /// What each job still has to do. A model that is slower than believed is one with more work.
    fn rests(&self, view: &ClusterView, now_s: f64) -> Vec<f64> {
        let slowness = |(model, deviation): (&'_ String, &f64)| {
            libm::exp(self.streams.stream(model, SPEED).normal(0.0, *deviation))
        };
        let slowness: BTreeMap<&str, f64> =
            self.speeds.deviations.iter().map(|entry| (entry.0.as_str(), slowness(entry))).collect();
        let rest = |seen: &JobView| {
            let description = &seen.job.description;
            let (done, rest) = (seen.done(now_s), seen.remaining(now_s).unwrap_or(0.0));
            let slowness = slowness.get(description.model.as_str()).copied().unwrap_or(1.0);
            let part = self.ends.part(&description.model, done / (done + rest), || {
                self.streams.stream(&description.name, END)
            });
            slowness * ((done + rest) * part - done).clamp(0.0, rest)
        };
        view.jobs.values().map(rest).collect()
    }

    /// What the starts of each job cost: what one of those cost that were seen.
    fn starts_s(&self, view: &ClusterView, entries: &[Entry], seen_s: &[f64]) -> Vec<f64> {
        if seen_s.is_empty() {
            return Vec::new();
        }
        let draw = |job: &Job| *self.streams.stream(&job.description.name, START).choice(seen_s);
        let there = view.jobs.values().map(|seen| draw(&seen.job));
        there.chain(entries.iter().map(|entry| draw(&entry.job))).collect()
    }

    /// The jobs that come, and the part of its work that each does.
    fn arrivals(&self, present: &Present) -> (Vec<Entry>, Vec<f64>) {
        let Past { arrivals, over_s, .. } = &present.past;
        // Over the time that is looked ahead no more come than have come so far, where that is longer: of a daemon that
        // has just begun a burst is all that was seen.
        let over_s = over_s.max(self.speeds.horizon_s);
        if arrivals.is_empty() || over_s <= 0.0 {
            return Default::default();
        }
        let mut stream = self.streams.stream("arrivals", 0);
        // This many arrivals in such a time leave their rate open: it follows a gamma law.
        let rate = arrivals.iter().map(|_| stream.exponential(1.0)).sum::<f64>() / over_s;
        let mut time_s = present.now_s;
        let last_s = present.now_s + self.speeds.horizon_s;
        let mut arrive = |row: usize| {
            time_s += stream.exponential(1.0 / rate);
            let (job, work) = stream.choice(arrivals);
            let mut job = Job::clone(job);
            // A deadline is as far from its arrival as it was.
            job.deadline_s = job.deadline_s.map(|due_s| due_s - job.arrival_s + time_s);
            job.arrival_s = time_s;
            Entry { job: Arc::new(job), work: *work, is_duration: false, row }
        };
        let most = present.view.jobs.len() + ARRIVALS;
        let come = (0..most).map(&mut arrive).take_while(|entry| entry.job.arrival_s <= last_s);
        let entries: Vec<Entry> = come.collect();
        let end = |(place, entry): (u64, &Entry)| {
            let model = &entry.job.description.model;
            self.ends.part(model, 0.0, || self.streams.stream("ends of arrivals", place))
        };
        let parts = (0..).zip(&entries).map(end).collect();
        (entries, parts)
    }
}
