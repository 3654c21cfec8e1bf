//! ElasticFlow: jobs are admitted if their deadlines can be met beside those of all admitted before, and what is left
//! goes where it helps most.
//!
//! # Idea
//!
//! A job's least satisfactory share is the lowest limit, in powers of two, such that it is done in time with what is
//! free up to that limit, after all with earlier deadlines have taken theirs. If every admitted job and the new one has
//! such a share, the new one is admitted. What no share needs now goes first to those who would wait, then, device by
//! device, to the job that it helps most: a device-second given now saves that many device-seconds of its fewest
//! devices later. Jobs without a deadline, and those that cannot be admitted (yet), run on what is left; with
//! `refuse=1` those that cannot be admitted when they arrive are refused.
//!
//! # Source
//!
//! Gu and others, ElasticFlow: an elastic serverless training platform for distributed deep learning, ASPLOS 2023: its
//! progressive filling, here without time slots. New shares may fail where yesterday's still hold, so these are kept as
//! a plan to fall back on: that makes the promise hold. A gang stays within one type of device for its whole plan.
//!
//! # Reads
//!
//! Remaining work, deadlines and the model's speed on every number of devices. Each planned change of devices is
//! charged the cost of a restart; changes that later events bring are not.
//!
//! # Complexity
//!
//! O(jobs with deadlines^2) at worst for an event, and for each new job that is not due after all others: each looks at
//! the ends of those before it, for each power of two.
//!
//! # Bad when
//!
//! Remaining work is badly known, nodes fail or restarts are expensive: then deadlines are missed. Jobs without a
//! deadline may wait long.

mod plan;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use bellwether_core::cluster::{ClusterView, JobId, JobView};
use bellwether_core::policy::{Action, Changes, Decision, Policy, PolicyInput, Promises, Reason, Rule};
use serde::{Deserialize, Serialize};

use super::About;
use crate::allocation::{AllocationState, Target, best, held_type, types};
use crate::greedy::{Place, bits};
use plan::{Outlook, Plan, SAME_S, Wish, first_level, next_level};

/// ElasticFlow.
pub const ABOUT: About = About {
    name: "elasticflow",
    idea: "deadlines that can be met beside those promised before are promised; the rest goes where it helps most",
    options: &[(
        "refuse",
        0.0,
        "1: refuse jobs whose deadlines cannot be promised; 0: run them on what is left",
    )],
    bad_when: "remaining work is badly known, nodes fail or restarts are expensive; without deadlines jobs may wait long",
    gangs: false,
    needs_remaining: true,
    promises: Promises { work_conserving: true, starvation_free: false },
    make: |options| match options.get("refuse") {
        0.0 => Ok(Box::new(ElasticFlow::default())),
        1.0 => Ok(Box::new(ElasticFlow { refuse: true, ..ElasticFlow::default() })),
        _ => Err(options.out_of_range("refuse", "0 or 1")),
    },
};

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct ElasticFlow {
    refuse: bool,
    table: AllocationState,
    /// Jobs whose deadlines are promised, and how those can be kept.
    promised: BTreeMap<JobId, Plan>,
}

/// What is free by type of device, and plans that fit into the rest.
#[derive(Debug, Clone)]
struct Timetable {
    outlooks: Vec<Outlook>,
    plans: BTreeMap<JobId, Plan>,
    /// Whose deadline is latest, while each plan is the least share after all with earlier deadlines.
    last: Option<Place>,
}

impl Policy for ElasticFlow {
    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        let PolicyInput { now_s, view, changes, model } = *input;
        self.table.follow(view, changes, model);
        let has_deadline = |seen: &JobView| seen.job.deadline_s.is_some();
        self.promised.retain(|id, _| view.jobs.get(id).is_some_and(has_deadline));
        if changes.is_empty() && ends_now(now_s, view) {
            // Woken by a plan that counts on devices which are free in a moment.
            let waiting = view.jobs.values().filter(|seen| !seen.is_running()).count() as u32;
            let reason =
                Reason { rule: Rule::Deadline, started: 0, stopped: 0, resized: 0, waiting, reclaimed: 0 };
            let soon_s = (now_s + 2.0 * SAME_S).max(now_s.next_up());
            return Decision { actions: Vec::new(), reason, next_wakeup_s: Some(soon_s) };
        }
        let refused = self.promise(now_s, view, changes);
        let targets = self.deal(view, &refused);
        let wakeup_s = self.promised.values().filter_map(Plan::changes_at_s).min_by(f64::total_cmp);
        let mut decision = self.table.enact(view, targets, Rule::Deadline, wakeup_s);
        for job in refused {
            self.table.forget(job);
            decision.reason.waiting -= 1;
            let why = format!(
                "its deadline cannot be met beside those of the {} jobs to which theirs are promised",
                self.promised.len()
            );
            decision.actions.push(Action::Refuse { job, why });
        }
        decision
    }
}

impl ElasticFlow {
    /// Plans again, and promises what can be kept; returns the jobs that are refused.
    fn promise(&mut self, now_s: f64, view: &ClusterView, changes: &Changes) -> Vec<JobId> {
        let mut timetable = self.renew(now_s, view, changes);
        let open = view.jobs.iter().filter(|(id, _)| !timetable.plans.contains_key(id));
        let open = open.filter(|(_, seen)| seen.job.deadline_s.is_some()).map(|(&id, _)| id);
        let mut refused = Vec::new();
        for job in in_order(view, open) {
            let is_new = changes.arrived.contains(&job);
            let with_it = || {
                let jobs = timetable.plans.keys().copied().chain([job]);
                self.plan_all(now_s, view, in_order(view, jobs))
            };
            // Behind all others it changes none of their plans, so that it need only be planned itself.
            let in_between = timetable.last >= Some(place(view, job));
            if let Some(all) = (is_new && in_between).then(with_it).flatten() {
                timetable = all;
            } else if let Some(plan) = self.plan(now_s, view, job, &timetable.outlooks) {
                timetable.put(view, job, plan);
            } else if is_new && self.refuse && view.jobs[&job].started_s.is_none() {
                refused.push(job);
            }
        }
        self.promised = timetable.plans;
        refused
    }

    /// New plans for all who have a promise, or else what is left of the old ones, or else for as many as can be.
    fn renew(&self, now_s: f64, view: &ClusterView, changes: &Changes) -> Timetable {
        let order = in_order(view, self.promised.keys().copied());
        if let Some(all) = self.plan_all(now_s, view, order.clone()) {
            return all;
        }
        let fits_no_more = !changes.nodes.is_empty();
        let (kept, lapsed): (Vec<JobId>, Vec<JobId>) =
            order.into_iter().partition(|job| !fits_no_more && self.holds(now_s, *job));
        let mut timetable = self.nothing(now_s);
        for job in kept {
            let plan = self.promised[&job].rest(now_s);
            if !plan.steps.is_empty() {
                timetable.put(view, job, plan);
            }
        }
        for job in lapsed {
            if let Some(plan) = self.plan(now_s, view, job, &timetable.outlooks) {
                timetable.put(view, job, plan);
            }
        }
        timetable.last = Some(BEHIND_ALL);
        timetable
    }

    /// Whether a job runs on all that its plan still gives it, by its present limits and speeds.
    fn holds(&self, now_s: f64, job: JobId) -> bool {
        let plan = self.promised[&job].rest(now_s);
        let curve = &self.table.curves(job)[usize::from(plan.device_type)];
        plan.steps.iter().all(|&(_, devices)| devices == 0 || curve.rate(devices) > 0.0)
    }

    fn nothing(&self, now_s: f64) -> Timetable {
        let outlooks = self.table.devices().into_iter().map(|devices| Outlook::new(now_s, devices));
        Timetable { outlooks: outlooks.collect(), plans: BTreeMap::new(), last: None }
    }

    /// The least shares of all jobs in this order, if every job has one.
    fn plan_all(&self, now_s: f64, view: &ClusterView, order: Vec<JobId>) -> Option<Timetable> {
        let mut timetable = self.nothing(now_s);
        for job in order {
            let plan = self.plan(now_s, view, job, &timetable.outlooks)?;
            timetable.put(view, job, plan);
        }
        Some(timetable)
    }

    /// The least share of a job in what is free: where it runs if it can, else on the type that does it first.
    fn plan(&self, now_s: f64, view: &ClusterView, job: JobId, outlooks: &[Outlook]) -> Option<Plan> {
        let seen = &view.jobs[&job];
        let held = held_type(view, seen).map(usize::from);
        let plan = |device_type: usize| {
            let held = if held == Some(device_type) { seen.allocation.devices() } else { 0 };
            let curve = &self.table.curves(job)[device_type];
            let wish = Wish::of(seen, curve, held, now_s, view.restart_s)?;
            outlooks[device_type].plan(&wish, device_type as u16)
        };
        let end_s = |plan: &Plan| plan.steps.last().map_or(now_s, |(until_s, _)| *until_s);
        if let Some(stays) = held.and_then(&plan) {
            return Some(stays);
        }
        best((0..outlooks.len()).filter_map(plan).map(|plan| (-end_s(&plan), plan)))
    }

    /// How many devices each job has now.
    fn deal(&self, view: &ClusterView, refused: &[JobId]) -> Vec<Target> {
        let mut free = self.table.devices();
        let mut targets = Vec::new();
        let mut waiting = Vec::new();
        for job in in_order(view, self.promised.keys().copied()) {
            let plan = &self.promised[&job];
            let (device_type, devices) = (plan.device_type, plan.devices());
            if devices > 0 {
                free[usize::from(device_type)] -= devices;
                targets.push(Target { job, device_type, devices });
            } else {
                waiting.push(job);
            }
        }
        let others = view.jobs.keys().filter(|id| !self.promised.contains_key(id) && !refused.contains(id));
        waiting.extend(others);
        for job in waiting {
            let curves = self.table.curves(job);
            let first = |device_type: usize| {
                let devices = first_level(&curves[device_type]);
                let fits = devices > 0 && devices <= free[device_type];
                fits.then_some(Target { job, device_type: device_type as u16, devices })
            };
            if let Some(target) = types(view, &view.jobs[&job]).find_map(first) {
                free[usize::from(target.device_type)] -= target.devices;
                targets.push(target);
            }
        }
        self.grow(&mut targets, &mut free);
        targets
    }

    /// Gives what is left to whom it helps most.
    fn grow(&self, targets: &mut [Target], free: &mut [u32]) {
        let wish = |place: usize, target: &Target| {
            let curve = &self.table.curves(target.job)[usize::from(target.device_type)];
            let more = next_level(curve, target.devices)?;
            let gain = (curve.rate(more) - curve.rate(target.devices)) * curve.unit_size();
            let gain = gain / f64::from(more - target.devices);
            Some((bits(gain), Reverse(place), more))
        };
        let mut heap: BinaryHeap<_> =
            targets.iter().enumerate().filter_map(|(place, target)| wish(place, target)).collect();
        while let Some((_, Reverse(place), more)) = heap.pop() {
            let target = &mut targets[place];
            let free = &mut free[usize::from(target.device_type)];
            // Less is free later on, so what does not fit now never will.
            let Some(left) = free.checked_sub(more - target.devices) else { continue };
            (*free, target.devices) = (left, more);
            heap.extend(wish(place, target));
        }
    }
}

impl Timetable {
    fn put(&mut self, view: &ClusterView, job: JobId, plan: Plan) {
        let place = Some(place(view, job));
        self.last = if self.last < place { place } else { Some(BEHIND_ALL) };
        self.outlooks[usize::from(plan.device_type)].take(&plan);
        self.plans.insert(job, plan);
    }
}

/// Behind every job.
const BEHIND_ALL: Place = (u64::MAX, JobId(u32::MAX));

/// Where a job stands in the order of deadlines.
fn place(view: &ClusterView, id: JobId) -> Place {
    (bits(view.jobs[&id].job.deadline_s.unwrap_or(f64::INFINITY)), id)
}

/// Jobs in the order of their deadlines.
fn in_order(view: &ClusterView, jobs: impl Iterator<Item = JobId>) -> Vec<JobId> {
    let mut order: Vec<Place> = jobs.map(|id| place(view, id)).collect();
    order.sort_unstable();
    order.into_iter().map(|(_, id)| id).collect()
}

/// Whether some job is believed to end in this very moment.
fn ends_now(now_s: f64, view: &ClusterView) -> bool {
    let mut ends = view.jobs.values().filter_map(|seen| seen.end_s());
    ends.any(|end_s| end_s > now_s && end_s <= now_s + SAME_S)
}
