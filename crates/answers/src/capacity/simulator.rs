//! Simulations of candidates, each no longer than it can matter.

use std::collections::BTreeMap;
use std::sync::Mutex;

use bellwether_core::policy::{Backend, Decision, Fault, PolicyInput};
use bellwether_core::prediction::StepModel;
use bellwether_sched::capacity::search::Limits;
use bellwether_sched::capacity::{Grid, Limit, Measured, Outcome, Part};
use bellwether_sched::drive::drive;
use bellwether_sched::plan::Catalogue;
use bellwether_sched::registry::Registry;
use bellwether_sim::report::report;
use bellwether_sim::world::{Revocations, Scenario, SoFar, World};

use super::Request;
use super::cluster_file::Writer;
use super::figures::level;
use super::kinds::{Kinds, Run};
use crate::Refusal;
use crate::simulate::ExperimentError;

/// Decisions between two looks at how far a simulation is: at least this many, and more of long traces, so that all
/// looks together cost little.
const LOOK_EVERY: usize = 16;

/// Seconds of an hour.
const HOUR_S: f64 = 3600.0;

/// What was seen of a candidate beside its levels.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Detail {
    pub(super) runs: u64,
    /// Runs that hold every objective by themselves.
    pub(super) runs_held: u64,
    pub(super) span_s: f64,
    pub(super) utilisation: f64,
    pub(super) revoked: f64,
}

/// All that simulations need.
pub(super) struct Simulator<'a> {
    pub(super) request: &'a Request,
    pub(super) catalogue: &'a Catalogue,
    pub(super) grid: &'a Grid,
    pub(super) policies: &'a [String],
    pub(super) writer: Writer<'a>,
    /// How long the transient machines of each kind live.
    pub(super) markets: Vec<Option<Revocations>>,
    /// By the kinds of a cluster; or why these cannot serve the workload.
    pub(super) kinds: BTreeMap<Vec<usize>, Result<Kinds, String>>,
    /// Most runs of a candidate.
    pub(super) runs: u64,
    pub(super) details: Mutex<BTreeMap<usize, Detail>>,
}

/// A simulation that ends early.
enum Stop {
    Dear(f64),
    Breaks(usize, f64),
    Unable(String),
}

/// The sums over the runs of a candidate so far.
#[derive(Debug, Clone, Default)]
struct Sums {
    cost_dollars: f64,
    levels: Vec<f64>,
    detail: Detail,
}

impl Simulator<'_> {
    /// The kinds of a cluster.
    pub(super) fn kinds_of(&self, parts: &[Part]) -> Option<&Kinds> {
        let key: Vec<usize> = parts.iter().map(|part| part.kind).collect();
        self.kinds.get(&key)?.as_ref().ok()
    }

    /// Runs of a candidate: one where nothing differs between them.
    fn runs_of(&self, kinds: &Kinds, parts: &[Part]) -> u64 {
        let is_random =
            kinds.is_drawn() || self.request.is_random() || parts.iter().any(|part| part.transient > 0);
        if is_random { self.runs } else { 1 }
    }

    /// A cost that no policy goes below on these machines.
    pub(super) fn cost_at_least(&self, parts: &[Part]) -> f64 {
        let Some(kinds) = self.kinds_of(parts) else { return 0.0 };
        let capacity = kinds.capacity(parts, self.catalogue);
        let runs = self.runs_of(kinds, parts);
        let of_run = |run: u64| self.cost_dollars(parts, run, kinds.run(run).span_s(capacity));
        (0..runs).map(of_run).sum::<f64>() / runs as f64
    }

    /// Levels that no policy goes below on these machines.
    pub(super) fn levels_at_least(&self, parts: &[Part]) -> Vec<f64> {
        let objectives = &self.request.objectives;
        let Some(kinds) = self.kinds_of(parts) else { return vec![0.0; objectives.len()] };
        let capacity = kinds.capacity(parts, self.catalogue);
        let runs = if kinds.is_drawn() { self.runs_of(kinds, parts) } else { 1 };
        let of_run = |at: usize, run: u64| kinds.run(run).level(at, objectives[at].figure, capacity);
        let mean = |at: usize| (0..runs).map(|run| of_run(at, run)).sum::<f64>() / runs as f64;
        (0..objectives.len()).map(mean).collect()
    }

    /// What machines cost from the first arrival until `span_s` later: those on demand all the time, transient ones
    /// from when each runs until it is taken away.
    pub(super) fn cost_dollars(&self, parts: &[Part], run: u64, span_s: f64) -> f64 {
        let mut dollars = self.catalogue.fixed_dollars_per_hour * span_s / HOUR_S;
        for part in parts {
            let machine = &self.catalogue.machines[part.kind];
            let on_demand = machine.on_demand.unwrap_or(0.0);
            dollars += f64::from(part.on_demand) * on_demand * span_s / HOUR_S;
            if let Some(transient) = machine.transient.as_ref().filter(|_| part.transient > 0) {
                let seed = self.request.seed.saturating_add(run);
                let paid_s =
                    |(from_s, until_s): (f64, f64)| until_s.min(span_s) - (from_s - machine.join_s).max(0.0);
                let paid_s: f64 = self.lives(part, seed, span_s).map(paid_s).sum();
                dollars += transient.dollars_per_hour * paid_s / HOUR_S;
            }
        }
        dollars
    }

    /// What machines cost per hour while all of them run.
    pub(super) fn dollars_per_hour(&self, parts: &[Part]) -> f64 {
        let of = |part: &Part| {
            let machine = &self.catalogue.machines[part.kind];
            let transient = machine.transient.as_ref().map_or(0.0, |transient| transient.dollars_per_hour);
            f64::from(part.on_demand) * machine.on_demand.unwrap_or(0.0)
                + f64::from(part.transient) * transient
        };
        self.catalogue.fixed_dollars_per_hour + parts.iter().map(of).sum::<f64>()
    }

    /// Simulates a candidate as far as it can matter.
    pub(super) fn measure(&self, candidate: usize, limits: &Limits) -> Result<Measured, Refusal> {
        let (parts, policy) = self.grid.candidate(candidate);
        let key: Vec<usize> = parts.iter().map(|part| part.kind).collect();
        let kinds = match self.kinds.get(&key) {
            Some(Ok(kinds)) => kinds,
            Some(Err(why)) => return Ok(Measured::Unable(why.clone())),
            None => return Ok(Measured::Unable("its machines were not looked at".into())),
        };
        let cluster = self.writer.cluster(parts)?;
        let mut scenario = self.request.jobs.scenario(&cluster);
        let capacity = kinds.capacity(parts, self.catalogue);
        let runs = self.runs_of(kinds, parts);
        let mut sums = Sums { levels: vec![0.0; self.request.objectives.len()], ..Sums::default() };
        for run in 0..runs {
            scenario.seed = self.request.seed.saturating_add(run);
            let allowed = self.allowed(kinds, parts, capacity, (run, runs), &sums, limits);
            let is_last = run + 1 == runs;
            match self.run(kinds, parts, (run, policy, is_last), &scenario, &allowed, &mut sums)? {
                None => {}
                Some(Stop::Unable(why)) => return Ok(Measured::Unable(why)),
                Some(Stop::Dear(above)) => {
                    return Ok(Measured::Dear((limits.cost_dollars + above / runs as f64).max(0.0)));
                }
                Some(Stop::Breaks(at, above)) => {
                    return Ok(Measured::Breaks(at, limits.levels[at].level + above / runs as f64));
                }
            }
        }
        let mean = |sum: f64| sum / runs as f64;
        let Detail { runs_held, span_s, utilisation, revoked, .. } = sums.detail;
        let detail = Detail {
            runs,
            runs_held,
            span_s: mean(span_s),
            utilisation: mean(utilisation),
            revoked: mean(revoked),
        };
        if let Ok(mut details) = self.details.lock() {
            details.insert(candidate, detail);
        }
        let levels = sums.levels.iter().map(|sum| mean(*sum)).collect();
        Ok(Measured::Whole(Outcome { cost_dollars: mean(sums.cost_dollars), levels }))
    }

    /// What a run may come to, so that the mean over all runs can keep the limits: those before it are known, and those
    /// behind it have bounds.
    fn allowed(
        &self,
        kinds: &Kinds,
        parts: &[Part],
        capacity: f64,
        (run, runs): (u64, u64),
        sums: &Sums,
        limits: &Limits,
    ) -> Limits {
        let behind = |of: &dyn Fn(u64) -> f64| (run + 1..runs).map(of).sum::<f64>();
        let of_cost = |run: u64| self.cost_dollars(parts, run, kinds.run(run).span_s(capacity));
        let left = |limit: f64, sum: f64, behind: f64| limit * runs as f64 - sum - behind;
        let cost_dollars = if limits.cost_dollars.is_finite() {
            left(limits.cost_dollars, sums.cost_dollars, behind(&of_cost))
        } else {
            f64::INFINITY
        };
        let of_level = |at: usize| {
            let figure = self.request.objectives[at].figure;
            let of_run = |run: u64| kinds.run(run).level(at, figure, capacity);
            let Limit { level, is_inclusive } = limits.levels[at];
            Limit { level: left(level, sums.levels[at], behind(&of_run)), is_inclusive }
        };
        Limits { cost_dollars, levels: (0..limits.levels.len()).map(of_level).collect() }
    }

    /// One run, whose figures are added to the sums unless it was stopped.
    fn run(
        &self,
        kinds: &Kinds,
        parts: &[Part],
        (run, policy, is_last): (u64, usize, bool),
        scenario: &Scenario,
        allowed: &Limits,
        sums: &mut Sums,
    ) -> Result<Option<Stop>, Refusal> {
        let name = &self.policies[policy];
        let jobs = kinds.run(run);
        let look = |so_far: &SoFar<'_>| self.stop(jobs, parts, run, so_far, allowed);
        let truth = kinds.inputs.truth();
        let mut watched = Watched {
            world: World::new(&jobs.entries, truth, scenario),
            look: &look,
            every: LOOK_EVERY.max(jobs.entries.len() / 32),
            decisions: 0,
            stop: None,
        };
        let (_, mut decider) = Registry::built_in().parse(name)?;
        let driven = drive(&mut *decider, &mut watched, kinds.inputs.belief());
        if let Err(fault) = driven {
            let error = ExperimentError::Fault { policy: name.clone(), seed: scenario.seed, fault };
            return Err(self.request.jobs.explain(error));
        }
        let so_far = watched.world.so_far();
        // What is known whole is worth more than the limits that it breaks, unless more runs would follow.
        let last_look = || look(&so_far).filter(|stop| !is_last || matches!(stop, Stop::Unable(_)));
        if let Some(stop) = watched.stop.take().or_else(last_look) {
            return Ok(Some(stop));
        }
        let (times, span_s) = (so_far.times(), span_s(&so_far, true));
        if let Some(number) = times.iter().position(|times| !times.has_ended) {
            let job = &jobs.entries[number].job.description.name;
            return Ok(Some(Stop::Unable(format!("job `{job}` never ends under `{name}`"))));
        }
        let mut holds = true;
        for (sum, objective) in sums.levels.iter_mut().zip(&self.request.objectives) {
            let level = level(objective.figure, &jobs.entries, &times, jobs.leasts.jobs(), span_s);
            holds &= objective.level_limit().holds(level);
            *sum += level;
        }
        sums.cost_dollars += self.cost_dollars(parts, run, span_s);
        let recording = watched.world.into_recording();
        let figures = report(&jobs.entries, &recording, scenario.cluster.devices(None));
        sums.detail.runs_held += u64::from(holds);
        sums.detail.span_s += span_s;
        sums.detail.utilisation += figures.utilisation;
        sums.detail.revoked += self.revoked(parts, run, span_s);
        Ok(None)
    }

    /// Whether what has happened says that the rest does not matter.
    fn stop(
        &self,
        jobs: &Run,
        parts: &[Part],
        run: u64,
        so_far: &SoFar<'_>,
        allowed: &Limits,
    ) -> Option<Stop> {
        let times = so_far.times();
        if let Some(number) = times.iter().position(|times| times.is_refused) {
            let job = &jobs.entries[number].job.description.name;
            let why = so_far.recording.jobs[number].refused.as_deref().unwrap_or("it is refused");
            return Some(Stop::Unable(format!("job `{job}` cannot run: {why}")));
        }
        let span_s = span_s(so_far, false);
        for (at, (limit, objective)) in allowed.levels.iter().zip(&self.request.objectives).enumerate() {
            if limit.level.is_infinite() {
                continue;
            }
            let level = level(objective.figure, &jobs.entries, &times, jobs.leasts.jobs(), span_s);
            if !limit.holds(level) {
                return Some(Stop::Breaks(at, (level - limit.level).max(0.0)));
            }
        }
        if allowed.cost_dollars.is_finite() {
            let cost = Limit { level: allowed.cost_dollars, is_inclusive: true };
            let dollars = self.cost_dollars(parts, run, span_s);
            if !cost.holds(dollars) {
                return Some(Stop::Dear((dollars - cost.level).max(0.0)));
            }
        }
        None
    }

    /// The lives of a kind's transient machines that are paid within a time: the first ones run from the beginning, and
    /// those that replace them are paid while their workers join, too.
    fn lives(&self, part: &Part, seed: u64, span_s: f64) -> impl Iterator<Item = (f64, f64)> + '_ {
        let join_s = self.catalogue.machines[part.kind].join_s;
        let (servers, count) = (self.markets[part.kind].as_ref(), u64::from(part.transient));
        let places = servers
            .into_iter()
            .flat_map(move |servers| (0..count).map(move |number| servers.lives(seed, number)));
        places.flat_map(move |lives| lives.take_while(move |(from_s, _)| from_s - join_s < span_s))
    }

    /// Transient machines that were taken away within a time.
    fn revoked(&self, parts: &[Part], run: u64, span_s: f64) -> f64 {
        let seed = self.request.seed.saturating_add(run);
        let lives = parts.iter().flat_map(|part| self.lives(part, seed, span_s));
        lives.filter(|(_, until_s)| *until_s < span_s).count() as f64
    }
}

/// Seconds from the first arrival until now, or until the last job ended.
fn span_s(so_far: &SoFar<'_>, is_over: bool) -> f64 {
    let first_s = so_far.entries.first().map_or(0.0, |entry| entry.job.arrival_s);
    let until_s = if is_over || so_far.jobs.is_empty() { so_far.recording.end_s } else { so_far.now_s };
    (until_s - first_s).max(0.0)
}

/// A world that is left where the rest does not matter.
struct Watched<'a, 'b> {
    world: World<'a>,
    look: &'b dyn Fn(&SoFar<'_>) -> Option<Stop>,
    every: usize,
    decisions: usize,
    stop: Option<Stop>,
}

impl Backend for Watched<'_, '_> {
    fn next<'a>(
        &'a mut self,
        wakeup_s: Option<f64>,
        model: &'a dyn StepModel,
    ) -> Result<Option<PolicyInput<'a>>, Fault> {
        self.decisions += 1;
        if self.decisions.is_multiple_of(self.every) {
            self.stop = (self.look)(&self.world.so_far());
            if self.stop.is_some() {
                return Ok(None);
            }
        }
        self.world.next(wakeup_s, model)
    }

    fn wants_expectations(&self) -> bool {
        self.world.wants_expectations()
    }

    fn apply(&mut self, decision: Decision) -> Result<(), Fault> {
        self.world.apply(decision)
    }
}
