//! Order of arrival, and two jobs on the same devices where there are not enough for all (Gandiva's packing).
//!
//! # Idea
//!
//! Jobs start in the order of their arrival, as with `fifo_skip`. A job that finds no room joins a running one on its
//! devices: of those that hold as many as it asks for, the one with which both together keep most of their speeds
//! alone, if that is more than `gain` of one speed. What a pair does is measured: if both together are slower than one
//! after the other, the later one leaves, and such jobs are not put together again. When devices are free and no job
//! waits, the later ones move to them, out of the worst pairs first, as long as that makes them faster.
//!
//! In a cluster whose devices are not shared this is `fifo_skip`.
//!
//! # Source
//!
//! Xiao et al., "Gandiva: introspective cluster scheduling for deep learning", OSDI 2018: its packing by trial, and
//! unpacking. Its time slicing is left out, and the pair is chosen by what is believed of it, where Gandiva takes jobs
//! of low utilisation.
//!
//! # Reads
//!
//! Arrival order, the devices asked for, what pairs keep of their speeds by the model, and their measured speeds.
//!
//! # Complexity
//!
//! O(jobs log jobs) per event, and for each waiting job one look at each kind of running job.
//!
//! # Bad when
//!
//! Short jobs wait behind long ones, as with all orders of arrival; the model is wrong about memory: a job that finds
//! none has started in vain. Wide jobs starve while narrow ones keep coming.

use std::collections::{BTreeMap, BTreeSet};

use bellwether_core::ParseError;
use bellwether_core::cluster::{Allocation, ClusterView, JobId, JobView};
use bellwether_core::policy::{Decision, Policy, PolicyInput, Promises, Rule};
use bellwether_core::prediction::StepModel;
use serde::{Deserialize, Serialize};

use super::{About, LEAST_INTERVAL_S};
use crate::allocation::held_type;
use crate::decision_builder::DecisionBuilder;
use crate::free_devices::FreeDevices;
use crate::options::Options;
use crate::packing::Together;
use crate::speed::Speeds;

/// Gandiva's packing.
pub const ABOUT: About = About {
    name: "gandiva",
    idea: "as fifo_skip, but who finds no room shares the devices of the job with which both lose least",
    options: &[
        ("gain", 1.0, "least sum of the parts of their speeds alone that a pair is expected to keep"),
        ("trial", 60.0, "seconds after which a pair is judged by what was measured"),
    ],
    bad_when: "short jobs wait behind long ones, or the model is wrong about who has room beside whom",
    gangs: false,
    needs_remaining: false,
    promises: Promises { work_conserving: true, starvation_free: false },
    make,
};

fn make(options: &Options) -> Result<Box<dyn Policy + Send>, ParseError> {
    let (gain, trial_s) = (options.get("gain"), options.get("trial"));
    if !(0.0..=2.0).contains(&gain) {
        return Err(options.out_of_range("gain", "a number from 0 to 2"));
    }
    if trial_s < LEAST_INTERVAL_S {
        return Err(options.out_of_range("trial", "a millisecond or more"));
    }
    Ok(Box::new(Gandiva { gain, trial_s, speeds: Speeds::new(), together: Together::default() }))
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Gandiva {
    gain: f64,
    trial_s: f64,
    speeds: Speeds,
    together: Together,
}

/// Jobs that have devices for themselves, by type, count and kind.
type Hosts = BTreeMap<(u16, u32, u32), BTreeSet<JobId>>;

impl Policy for Gandiva {
    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        let PolicyInput { now_s, view, changes, model } = *input;
        self.speeds.follow(changes);
        self.together.follow(view, changes);
        let mut board = FreeDevices::new(view);
        let mut draft = DecisionBuilder::new(&mut board);
        let (lifted, mut wakeup_s) = self.judge(now_s, view, model, &mut draft);
        let waits = |id: &JobId, seen: &JobView| !seen.is_running() || lifted.contains(id);
        let mut placed = BTreeMap::new();
        let mut waiting = Vec::new();
        for (&id, seen) in view.jobs.iter().filter(|(id, seen)| waits(id, seen)) {
            match draft.board().place_job(&seen.job, seen.job.asked()) {
                Some(allocation) => {
                    start(&mut draft, id, seen, allocation.clone());
                    placed.insert(id, allocation);
                }
                None => waiting.push(id),
            }
        }
        if view.packs {
            let before = waiting.len();
            waiting = self.pack(view, model, &mut draft, waiting, &placed, &lifted);
            if waiting.len() < before {
                let judged_s = now_s + self.trial_s;
                wakeup_s = Some(wakeup_s.map_or(judged_s, |s: f64| s.min(judged_s)));
            }
            if waiting.is_empty() {
                self.part(view, model, &mut draft, &lifted);
            }
        }
        waiting.iter().filter(|id| lifted.contains(id)).for_each(|_| draft.leave());
        draft.finish(Rule::Packing, waiting.len(), wakeup_s.map(|s| s.max(now_s.next_up())))
    }
}

impl Gandiva {
    /// Takes the later one off of pairs that are slower together than one after the other; says when the next
    /// pair is to be judged.
    fn judge(
        &mut self,
        now_s: f64,
        view: &ClusterView,
        model: &dyn StepModel,
        draft: &mut DecisionBuilder,
    ) -> (BTreeSet<JobId>, Option<f64>) {
        let (mut lifted, mut next_s) = (BTreeSet::new(), None);
        for (host, guest) in pairs(view) {
            let seen = [&view.jobs[&host], &view.jobs[&guest]];
            let judged_s = seen[0].progress_s.max(seen[1].progress_s) + self.trial_s;
            if judged_s > now_s {
                next_s = Some(next_s.map_or(judged_s, |s: f64| s.min(judged_s)));
                continue;
            }
            let mut part = |seen: &JobView| {
                let kind = held_type(view, seen)?;
                let devices = seen.allocation.devices();
                Some(seen.rate / self.speeds.rate(model, view, &seen.job, kind, devices)?)
            };
            let kept = part(seen[0]).zip(part(seen[1])).map(|(one, two)| one + two);
            if kept.is_some_and(|kept| kept < 1.0) {
                self.together.refuse(&mut self.speeds, seen.map(|seen| &*seen.job));
                draft.lift(guest, seen[1]);
                lifted.insert(guest);
            }
        }
        (lifted, next_s)
    }

    /// Puts waiting jobs beside others, in order; says who waits still.
    fn pack(
        &mut self,
        view: &ClusterView,
        model: &dyn StepModel,
        draft: &mut DecisionBuilder,
        waiting: Vec<JobId>,
        placed: &BTreeMap<JobId, Allocation>,
        lifted: &BTreeSet<JobId>,
    ) -> Vec<JobId> {
        let mut hosts = Hosts::new();
        for (&id, seen) in &view.jobs {
            let stays = seen.beside.is_none_or(|other| lifted.contains(&other));
            let held = placed.get(&id).or(Some(&seen.allocation).filter(|_| stays && !lifted.contains(&id)));
            let Some(held) = held.filter(|held| !held.is_empty()) else { continue };
            let kind = view.nodes[held.shares()[0].node.0 as usize].device_type;
            let key = (kind, held.devices(), self.speeds.kind(&seen.job));
            hosts.entry(key).or_default().insert(id);
        }
        let mut left = Vec::new();
        for id in waiting {
            let seen = &view.jobs[&id];
            let Some((key, host)) = self.best_host(view, model, seen, &hosts) else {
                left.push(id);
                continue;
            };
            let of_key = hosts.get_mut(&key).expect("the host was found there");
            of_key.remove(&host);
            if of_key.is_empty() {
                hosts.remove(&key);
            }
            let allocation = placed.get(&host).unwrap_or(&view.jobs[&host].allocation).clone();
            self.together.join(&mut self.speeds, (id, &seen.job), &view.jobs[&host].job);
            draft.join(id, seen, allocation, host);
        }
        left
    }

    /// The host with which both keep most together, and its place among the hosts.
    fn best_host(
        &mut self,
        view: &ClusterView,
        model: &dyn StepModel,
        seen: &JobView,
        hosts: &Hosts,
    ) -> Option<((u16, u32, u32), JobId)> {
        let mut best: Option<(f64, (u16, u32, u32), JobId)> = None;
        for (&key, jobs) in hosts.iter().filter(|(key, _)| key.1 == seen.job.asked()) {
            let host = *jobs.first()?;
            let both = [&*seen.job, &*view.jobs[&host].job];
            let kept = self.together.kept(&mut self.speeds, model, view, both, (key.0, key.1));
            let Some([own, other]) = kept else { continue };
            if own + other > self.gain && best.is_none_or(|(most, ..)| own + other > most) {
                best = Some((own + other, key, host));
            }
        }
        best.map(|(_, key, host)| (key, host))
    }

    /// Moves the later ones of pairs to free devices where they are faster, out of the worst pairs first.
    fn part(
        &mut self,
        view: &ClusterView,
        model: &dyn StepModel,
        draft: &mut DecisionBuilder,
        lifted: &BTreeSet<JobId>,
    ) {
        let mut guests = Vec::new();
        for (host, guest) in pairs(view).filter(|(_, guest)| !lifted.contains(guest)) {
            let (seen, devices) = (&view.jobs[&guest], view.jobs[&guest].allocation.devices());
            let Some(kind) = held_type(view, seen) else { continue };
            let both = [&*view.jobs[&host].job, &*seen.job];
            let kept = self.together.kept(&mut self.speeds, model, view, both, (kind, devices));
            guests.push((kept.map_or(0.0, |[one, two]| one + two), guest));
        }
        guests.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        for (_, guest) in guests {
            let (seen, devices) = (&view.jobs[&guest], view.jobs[&guest].allocation.devices());
            let mut best: Option<(f64, u16)> = None;
            for kind in (0..draft.board().device_types()).filter(|&kind| draft.board().free(kind) >= devices)
            {
                let rate = self.speeds.rate(model, view, &seen.job, kind, devices).unwrap_or(0.0);
                if rate > best.map_or(seen.rate, |(most, _)| most) {
                    best = Some((rate, kind));
                }
            }
            let Some((_, kind)) = best else { continue };
            draft.lift(guest, seen);
            let allocation = draft.board().place(kind, devices).expect("as many are free");
            draft.change(guest, allocation, None);
        }
    }
}

/// Pairs that share devices: who came first and who came later, which is the one that has to move.
fn pairs(view: &ClusterView) -> impl Iterator<Item = (JobId, JobId)> {
    let pair =
        |(&id, seen): (&JobId, &JobView)| seen.beside.filter(|other| id < *other).map(|other| (id, other));
    view.jobs.iter().filter_map(pair)
}

fn start(draft: &mut DecisionBuilder, id: JobId, seen: &JobView, allocation: Allocation) {
    if seen.is_running() {
        draft.change(id, allocation, None);
    } else {
        draft.start(id, allocation, None);
    }
}
