//! Shares of time by a linear program, taken in rounds (Gavel).
//!
//! # Idea
//!
//! A program says which share of its time each job should spend on each type of device, as if time could be shared out
//! at will. In rounds of fixed length jobs then take turns: at the start of each round, jobs come in the order of their
//! share over the time that they had of late, and each gang takes its devices if they are free. No job starts or moves
//! inside a round. Shares are computed again when jobs have come or gone, but not too often. A round ends early where a
//! running job may not keep its devices because its limits were revised.
//!
//! With `packing=1`, and where the cluster lets jobs share devices, pairs have shares of time beside single jobs.
//!
//! # Source
//!
//! Narayanan et al., "Heterogeneity-aware cluster scheduling policies for deep learning workloads", OSDI 2020, and its
//! code, also for packing; finish-time fairness: Mahajan et al., Themis, NSDI 2020. The programs:
//! [`shares`].
//!
//! # Reads
//!
//! Speed on each type with the devices asked for, and weights; with packing, what pairs keep of them; `gavel_ftf` and
//! `gavel_makespan` also remaining work.
//!
//! # Complexity
//!
//! O(jobs x types x log) per round, and a program per new shares: a fraction of a millisecond for 200 jobs.
//!
//! # Bad when
//!
//! Jobs are shorter than a round: devices stand idle to its end. Restarts are expensive: jobs alternate. `gavel_sum`
//! gives slow jobs next to nothing.

use std::collections::BTreeMap;

use bellwether_core::ParseError;
use bellwether_core::cluster::{ClusterView, Job, JobId};
use bellwether_core::policy::{Changes, Decision, Policy, PolicyInput, Promises, Rule};
use bellwether_core::prediction::StepModel;
use serde::{Deserialize, Serialize};

use super::{About, LEAST_INTERVAL_S};
use crate::decision_builder::DecisionBuilder;
use crate::enforce_limits::interrupted;
use crate::free_devices::FreeDevices;
use crate::options::Options;
use crate::packing::Together;
use crate::program::packed;
use crate::program::shares::{self, Shares};
use crate::speed::Speeds;

mod rounds;

use rounds::Ledger;

/// Least normalised speed as high as can be.
pub const MAX_MIN: About = about(
    "gavel_max_min",
    "rounds; shares of time that make the slowest job, against equal shares, as fast as can be",
    false,
    PACKED,
    |options| make(Objective::MaxMin, options),
);

/// Least finish-time fairness.
pub const FTF: About = about(
    "gavel_ftf",
    "rounds; shares of time that make the largest slowdown against a cluster of one's own part least (Themis)",
    true,
    ROUNDS,
    |options| make(Objective::FinishTimeFairness, options),
);

/// Least makespan.
pub const MAKESPAN: About = about(
    "gavel_makespan",
    "rounds; shares of time with which the last of the present jobs ends as early as can be",
    true,
    ROUNDS,
    |options| make(Objective::Makespan, options),
);

/// Largest sum of speeds.
pub const SUM: About = about(
    "gavel_sum",
    "rounds; shares of time with the largest sum of work per second",
    false,
    ROUNDS,
    |options| make(Objective::Sum, options),
);

/// Options as [`About`] has them.
type OptionList = &'static [(&'static str, f64, &'static str)];

const ROUND: (&str, f64, &str) = ("round", 360.0, "seconds of a round");
const REALLOC: (&str, f64, &str) =
    ("realloc", 1_920.0, "seconds between two computations of shares at least; 0 for one at every event");
const ROUNDS: OptionList = &[ROUND, REALLOC];
const PACKED: OptionList =
    &[ROUND, REALLOC, ("packing", 0.0, "1: two jobs may share devices, where the cluster lets them")];

const fn about(
    name: &'static str,
    idea: &'static str,
    needs_remaining: bool,
    options: OptionList,
    make: fn(&Options) -> Result<Box<dyn Policy + Send>, ParseError>,
) -> About {
    About {
        name,
        idea,
        options,
        bad_when: "jobs are shorter than a round, or restarts are expensive",
        gangs: true,
        needs_remaining,
        promises: Promises { work_conserving: false, starvation_free: true },
        make,
    }
}

fn make(objective: Objective, options: &Options) -> Result<Box<dyn Policy + Send>, ParseError> {
    let (round_s, realloc_s) = (options.get("round"), options.get("realloc"));
    if round_s < LEAST_INTERVAL_S {
        return Err(options.out_of_range("round", "a millisecond or more"));
    }
    if realloc_s < 0.0 {
        return Err(options.out_of_range("realloc", "zero or more"));
    }
    let packing = if objective == Objective::MaxMin { options.get("packing") } else { 0.0 };
    if packing != 0.0 && packing != 1.0 {
        return Err(options.out_of_range("packing", "0 or 1"));
    }
    Ok(Box::new(Gavel {
        objective,
        round_s,
        realloc_s,
        together: (packing == 1.0).then(Together::default),
        speeds: Speeds::new(),
        jobs: BTreeMap::new(),
        shares: rounds::Shares::new(),
        ledger: Ledger::default(),
        is_stale: true,
        computed_s: f64::NEG_INFINITY,
        round_end_s: f64::NEG_INFINITY,
    }))
}

/// Seconds between two resets of the times that jobs had, where shares are computed at every event: with each
/// event times would hardly begin to count, and small shares never get a turn.
const RESET_S: f64 = 1_920.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Objective {
    MaxMin,
    FinishTimeFairness,
    Makespan,
    Sum,
}

/// What is remembered of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Known {
    /// Work per second of its gang on each type; 0 where it cannot run.
    speeds: Vec<f64>,
    /// Its gang.
    devices: u32,
    /// Work per second in isolation, when shares were last computed.
    alone: f64,
    /// Work done by then.
    done: f64,
    /// Seconds that this would have taken in isolation.
    isolated_s: f64,
    /// Work done before it was met, which is not yet counted in them.
    before: f64,
}

impl Known {
    /// Nothing yet, beside the work that was done.
    fn new(types: usize, before: f64) -> Known {
        Known { speeds: vec![0.0; types], devices: 0, alone: 0.0, done: 0.0, isolated_s: 0.0, before }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Gavel {
    objective: Objective,
    round_s: f64,
    realloc_s: f64,
    /// What pairs keep of their speeds, where two jobs may share devices.
    together: Option<Together>,
    speeds: Speeds,
    jobs: BTreeMap<JobId, Known>,
    shares: rounds::Shares,
    ledger: Ledger,
    /// Whether something happened since shares were computed.
    is_stale: bool,
    computed_s: f64,
    round_end_s: f64,
}

impl Policy for Gavel {
    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        let PolicyInput { now_s, view, changes, model } = *input;
        self.follow(now_s, view, changes, model);
        if self.realloc_s == 0.0 && self.is_stale {
            self.compute(now_s, view, model);
        }
        let is_over = now_s >= self.round_end_s || !self.ledger.anybody_runs() || interrupted(changes);
        let mut board = FreeDevices::new(view);
        let mut draft = DecisionBuilder::new(&mut board);
        if is_over {
            self.begin_round(now_s, view, model, &mut draft);
        }
        let waiting = self.jobs.len() - self.ledger.running();
        // Where no job can run, only an event can change that.
        let wakeup_s = self.ledger.anybody_runs().then_some(self.round_end_s);
        draft.finish(Rule::Rounds, waiting, wakeup_s)
    }
}

impl Gavel {
    /// Takes in what happened.
    fn follow(&mut self, now_s: f64, view: &ClusterView, changes: &Changes, model: &dyn StepModel) {
        self.speeds.follow(changes);
        for id in changes.gone(view) {
            self.ledger.leave(now_s, id);
            self.jobs.remove(&id);
            self.shares.retain(|crew, _| !rounds::has(*crew, id));
        }
        self.follow_pairs(view, changes);
        for (id, _) in &changes.lost {
            self.ledger.stop(now_s, *id);
        }
        for &id in &changes.arrived {
            if let Some(seen) = view.jobs.get(&id) {
                let known = Known::new(view.device_types.len(), seen.done(now_s));
                self.jobs.insert(id, known);
                self.shares.insert((id, None), vec![0.0; view.device_types.len()]);
            }
        }
        let all = changes.relearnt.then(|| view.jobs.keys()).into_iter().flatten();
        for id in changes.arrived.iter().chain(&changes.revised).chain(all) {
            if let (Some(seen), Some(known)) = (view.jobs.get(id), self.jobs.get_mut(id)) {
                known.devices = seen.job.asked();
                for (kind, speed) in known.speeds.iter_mut().enumerate() {
                    let rate = self.speeds.rate(model, view, &seen.job, kind as u16, known.devices);
                    *speed = rate.unwrap_or(0.0);
                }
            }
        }
        let Changes { ended, arrived, nodes, revised, relearnt, .. } = changes;
        let same_jobs = ended.is_empty() && arrived.is_empty() && revised.is_empty();
        self.is_stale |= !same_jobs || !nodes.is_empty() || *relearnt;
    }

    /// Pairs that had no room have no turn again.
    fn follow_pairs(&mut self, view: &ClusterView, changes: &Changes) {
        let Some(together) = &mut self.together else { return };
        if !together.follow(view, changes) {
            return;
        }
        let speeds = &mut self.speeds;
        self.shares.retain(|(first, second), _| {
            let pair =
                second.and_then(|second| Some([&*view.jobs.get(first)?.job, &*view.jobs.get(&second)?.job]));
            pair.is_none_or(|pair| !together.is_refused(speeds, pair))
        });
        self.is_stale = true;
    }

    /// Solves the program for the jobs that are there.
    fn compute(&mut self, now_s: f64, view: &ClusterView, model: &dyn StepModel) {
        let devices: Vec<u32> =
            (0..view.device_types.len() as u16).map(|kind| view.devices(Some(kind))).collect();
        let mut jobs = Vec::with_capacity(self.jobs.len());
        for (id, known) in &mut self.jobs {
            let seen = &view.jobs[id];
            let done = seen.done(now_s);
            if known.alone > 0.0 {
                known.isolated_s += (done - known.done) / known.alone;
            }
            known.done = done;
            let runs_on =
                |(kind, &speed): (usize, &f64)| if known.devices <= devices[kind] { speed } else { 0.0 };
            jobs.push(shares::Job {
                speeds: known.speeds.iter().enumerate().map(runs_on).collect(),
                devices: f64::from(known.devices),
                weight: seen.job.weight,
                // A job of which nothing is known counts as if much were left of it: it is not forgotten.
                remaining: seen.remaining(now_s).unwrap_or(f64::from(u32::MAX)),
                age_s: now_s - seen.job.arrival_s,
                isolated_s: known.isolated_s,
            });
        }
        let devices: Vec<f64> = devices.into_iter().map(f64::from).collect();
        let alone = shares::isolated(&jobs, &devices);
        for (place, (known, job)) in self.jobs.values_mut().zip(&mut jobs).enumerate() {
            known.alone = alone.speed(place, &job.speeds);
            if known.alone > 0.0 {
                known.isolated_s += std::mem::take(&mut known.before) / known.alone;
                job.isolated_s = known.isolated_s;
            }
        }
        let of_pairs = self.solve_pairs(view, model, &jobs, &devices);
        self.shares = of_pairs.unwrap_or_else(|| {
            let solution = self.solve(&jobs, &devices);
            self.jobs
                .keys()
                .enumerate()
                .map(|(place, &id)| ((id, None), solution.of(place).to_vec()))
                .collect()
        });
        self.computed_s = now_s;
        self.is_stale = false;
    }

    fn solve(&self, jobs: &[shares::Job], devices: &[f64]) -> Shares {
        match self.objective {
            Objective::MaxMin => shares::max_min(jobs, devices),
            Objective::FinishTimeFairness => shares::finish_time_fairness(jobs, devices),
            Objective::Makespan => shares::makespan(jobs, devices),
            Objective::Sum => shares::max_sum(jobs, devices, &vec![1.0; devices.len()]),
        }
    }

    /// Shares of single jobs and of pairs; `None` where no job shares devices.
    fn solve_pairs(
        &mut self,
        view: &ClusterView,
        model: &dyn StepModel,
        jobs: &[shares::Job],
        devices: &[f64],
    ) -> Option<rounds::Shares> {
        let together = self.together.as_mut().filter(|_| view.packs)?;
        let speeds = &mut self.speeds;
        let ids: Vec<JobId> = self.jobs.keys().copied().collect();
        let described: Vec<&Job> = ids.iter().map(|id| &*view.jobs[id].job).collect();
        let kinds: Vec<u32> = described.iter().map(|job| speeds.kind(job)).collect();
        let kept = |first: usize, second: usize, kind: usize| {
            let pair = [described[first], described[second]];
            together.kept(speeds, model, view, pair, (kind as u16, pair[0].asked()))
        };
        let found = packed::max_min(jobs, &kinds, devices, kept)?;
        let mut shares: rounds::Shares =
            ids.iter().map(|&id| ((id, None), vec![0.0; devices.len()])).collect();
        for packed::Part { jobs: (first, second), kind, share } in found {
            let crew = (ids[first], second.map(|second| ids[second]));
            shares.entry(crew).or_insert_with(|| vec![0.0; devices.len()])[kind] += share;
        }
        Some(shares)
    }

    /// Ends the round, and lets those run in the next whose turn it is.
    fn begin_round(
        &mut self,
        now_s: f64,
        view: &ClusterView,
        model: &dyn StepModel,
        draft: &mut DecisionBuilder,
    ) {
        self.ledger.count(now_s);
        let reset_s = if self.realloc_s == 0.0 { RESET_S } else { self.realloc_s };
        // At the first round there is nothing to reset, and at a later one enough time must have passed.
        if (self.is_stale || self.realloc_s == 0.0) && now_s >= self.ledger.reset_s() + reset_s {
            self.ledger.reset(now_s, &self.shares);
            if self.is_stale {
                self.compute(now_s, view, model);
            }
        }
        let devices = (0..view.device_types.len() as u16).map(|kind| view.devices(Some(kind))).collect();
        let chosen = self.ledger.turns(&self.jobs, &self.shares, devices);
        self.ledger.run(now_s, &chosen);
        for (guest, host) in rounds::enact(view, &chosen, &self.jobs, draft) {
            if let Some(together) = &mut self.together {
                together.join(&mut self.speeds, (guest, &view.jobs[&guest].job), &view.jobs[&host].job);
            }
        }
        self.round_end_s = (now_s + self.round_s).max(now_s.next_up());
    }
}
