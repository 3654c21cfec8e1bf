//! What a configuration is expected to take and to cost: roughly in closed form, and by many simulated runs.

use std::collections::BTreeMap;

use bellwether_core::InputError;
use bellwether_core::plan::Market;
use bellwether_model::transient::{
    Checkpoints, Job, Law, Losses, Servers, best_period_s, daly_s, expected, simulate,
};

use super::Question;
use super::catalogue::Catalogue;
use super::space::{Group, Setup};
use super::speed::{Speed, Speeds};

/// A run that takes this many times what it would without losses is given up.
const HORIZON: f64 = 100.0;
/// Longer than this no job is planned: a hundred years.
const LONGEST_S: f64 = 3.2e9;
/// Runs in which more happens than this are fewer, ...
const EVENTS: f64 = 200.0;
/// ... but not fewer than this.
const RUNS_MIN: f64 = 100.0;
/// Where the loss of all workers at once is rarer than this in a run, no checkpoint is worth writing.
const NEGLIGIBLE: f64 = 1e-3;

/// What the closed form says of a configuration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rough {
    pub(super) time_s: f64,
    pub(super) cost: f64,
    pub(super) checkpoint_period_s: Option<f64>,
    /// What happens in one run: servers that come, and those that are lost.
    pub(super) events: f64,
}

/// What simulated runs say of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Figures {
    pub(super) time_s: f64,
    pub(super) cost: f64,
    pub(super) p95_cost: f64,
    pub(super) losses: f64,
    /// Ends of the runs that finished, ascending.
    ends_s: Vec<f64>,
    pub(super) runs: u32,
}

impl Figures {
    /// Seconds within which a share `p` of the runs ends; infinite when fewer do at all.
    pub(super) fn quantile_s(&self, p: f64) -> f64 {
        let rank = (f64::from(self.runs) * p).ceil().max(1.0) as usize;
        self.ends_s.get(rank - 1).copied().unwrap_or(f64::INFINITY)
    }

    /// Whether 95 of 100 runs end: a configuration that does so less often is not a choice.
    pub(super) fn usually_ends(&self) -> bool {
        self.quantile_s(0.95).is_finite()
    }

    /// Share of the runs that end within a time.
    pub(super) fn meets(&self, deadline_s: f64) -> f64 {
        self.ends_s.partition_point(|end_s| *end_s <= deadline_s) as f64 / f64::from(self.runs)
    }
}

/// Answers questions about configurations.
pub(super) struct Evaluator<'a> {
    pub(super) question: &'a Question<'a>,
    pub(super) catalogue: &'a Catalogue,
    pub(super) speeds: Speeds<'a>,
    /// By kind: the best period of a lone server, which takes a while to find.
    lone_period_s: BTreeMap<usize, Option<f64>>,
}

impl<'a> Evaluator<'a> {
    pub(super) fn new(
        question: &'a Question<'a>,
        catalogue: &'a Catalogue,
        speeds: Speeds<'a>,
    ) -> Evaluator<'a> {
        Evaluator { question, catalogue, speeds, lone_period_s: BTreeMap::new() }
    }

    /// The closed form; `None` where the job would hardly ever end.
    ///
    /// # Errors
    ///
    /// Returns an error for numbers beyond all measure.
    pub(super) fn rough(&mut self, setup: &Setup) -> Result<Option<Rough>, InputError> {
        let mut job = self.job(setup);
        if !setup.is_transient() {
            // Nothing is left to chance, so one run tells all.
            let run = simulate(&job, self.speed(setup), 1, self.question.seed)?.runs()[0];
            let rough = Rough { time_s: run.end_s, cost: run.cost, checkpoint_period_s: None, events: 1.0 };
            return Ok(Some(rough).filter(|rough| rough.time_s <= LONGEST_S));
        }
        if is_lone(setup) {
            let period_s = self.lone_period_s(setup.groups[0].kind)?;
            job.checkpoints = self.checkpoints(period_s);
        }
        let Some(mut found) = expected(&job, self.speed(setup))? else { return Ok(None) };
        if !is_lone(setup) {
            let period_s = self.all_lost_period_s(setup, found.time_s, found.losses);
            job.checkpoints = self.checkpoints(period_s);
            if job.checkpoints.is_some() {
                let Some(again) = expected(&job, self.speed(setup))? else { return Ok(None) };
                found = again;
            }
        }
        // A period that does not end before the job does is none.
        let period_s = job.checkpoints.map(|checkpoints| checkpoints.period_s);
        let checkpoint_period_s = period_s.filter(|period_s| *period_s < found.time_s);
        let servers: f64 = job.servers.iter().map(|group| f64::from(group.count)).sum();
        let events = servers + 2.0 * found.losses;
        let rough = Rough { time_s: found.time_s, cost: found.cost, checkpoint_period_s, events };
        Ok(Some(rough).filter(|rough| rough.time_s <= LONGEST_S))
    }

    /// Simulated runs.
    ///
    /// # Errors
    ///
    /// Returns an error for numbers beyond all measure.
    pub(super) fn figures(&self, setup: &Setup, rough: &Rough) -> Result<Figures, InputError> {
        let mut job = self.job(setup);
        job.checkpoints = self.checkpoints(rough.checkpoint_period_s);
        let runs = self.runs(setup, rough);
        let outcomes = simulate(&job, self.speed(setup), runs, self.question.seed)?;
        let all = outcomes.runs();
        let mut ends_s: Vec<f64> = all.iter().filter(|run| run.finished).map(|run| run.end_s).collect();
        ends_s.sort_by(f64::total_cmp);
        Ok(Figures {
            time_s: all.iter().map(|run| run.end_s).sum::<f64>() / all.len() as f64,
            cost: outcomes.cost().mean,
            p95_cost: outcomes.cost_quantile(0.95).value,
            losses: outcomes.losses().mean,
            ends_s,
            runs,
        })
    }

    /// Runs to simulate: the more that happens in each, the less its luck counts.
    pub(super) fn runs(&self, setup: &Setup, rough: &Rough) -> u32 {
        if !setup.is_transient() {
            return 1;
        }
        let asked = f64::from(self.question.runs);
        (asked * (EVENTS / rough.events).min(1.0)).max(asked.min(RUNS_MIN)) as u32
    }

    /// The job on these machines, without checkpoints.
    fn job(&self, setup: &Setup) -> Job {
        let question = self.question;
        let (examples_per_s, step_s) = self.all(setup);
        let servers: Vec<Servers> = setup.groups.iter().map(|group| self.servers(group)).collect();
        let begin_s = servers.iter().map(|group| group.provision_s + group.join_s).fold(0.0, f64::max);
        let work_s = question.samples / examples_per_s;
        let mut job = Job::new(question.samples, servers, HORIZON * (begin_s + work_s));
        // A loss costs the others the step in flight; a newcomer waits for the next one.
        job.regroup_s = step_s;
        job.restore_s = question.checkpoint_s;
        job.fixed_price_per_hour = self.catalogue.fixed_dollars_per_hour;
        if is_lone(setup) {
            // With one worker every loss is that of the last: said so that the closed form, too, knows it.
            job.losses = Losses::RIGID;
        }
        job
    }

    /// Servers on demand come and stay together: one in their place, at the price of all, spares states.
    fn servers(&self, group: &Group) -> Servers {
        let machine = &self.catalogue.machines[group.kind];
        let price = self.dollars_per_hour(group);
        let (count, law, price_per_hour) = match (group.market, &machine.transient) {
            (Market::Transient, Some(transient)) => (group.count, transient.law.clone(), price),
            _ => (1, Law::never(), price * f64::from(group.count)),
        };
        let (provision_s, join_s) = (machine.provision_s, machine.join_s);
        Servers { count, law, price_per_hour, provision_s, join_s, replaced: true }
    }

    /// Samples per second by servers at work in each group.
    fn speed(&self, setup: &Setup) -> impl Fn(&[u32]) -> f64 {
        let machines = |group: &Group, working: u32| match group.market {
            Market::OnDemand => group.count * working,
            Market::Transient => working,
        };
        move |working: &[u32]| match (&setup.groups[..], setup.kinds()) {
            ([first, second], Some(kinds)) => {
                let counts = (machines(first, working[0]), machines(second, working[1]));
                self.speeds.together(kinds, counts)
            }
            (groups, _) => {
                let count =
                    groups.iter().zip(working).map(|(group, working)| machines(group, *working)).sum();
                self.speeds.alone(setup.way, groups[0].kind, count).map_or(0.0, |speed| speed.examples_per_s)
            }
        }
    }

    /// Samples per second of all, and seconds of their step.
    pub(super) fn all(&self, setup: &Setup) -> (f64, f64) {
        if let Some(kinds) = setup.kinds() {
            let rate = self.speeds.together(kinds, (setup.groups[0].count, setup.groups[1].count));
            let own = if self.question.shares_batch() { 1 } else { setup.workers(self.catalogue) };
            return (rate, self.question.batch as f64 * f64::from(own) / rate);
        }
        self.speed_of(setup).map_or((0.0, 0.0), |speed| (speed.examples_per_s, speed.step_s))
    }

    /// What all machines of one kind do.
    pub(super) fn speed_of(&self, setup: &Setup) -> Option<&Speed> {
        let count = setup.groups.iter().map(|group| group.count).sum();
        setup.kinds().is_none().then(|| self.speeds.alone(setup.way, setup.groups[0].kind, count))?
    }

    /// Price of one machine of a group.
    pub(super) fn dollars_per_hour(&self, group: &Group) -> f64 {
        let machine = &self.catalogue.machines[group.kind];
        match (group.market, &machine.transient) {
            (Market::Transient, Some(transient)) => transient.dollars_per_hour,
            _ => machine.on_demand.unwrap_or(0.0),
        }
    }

    /// Why the speed of a configuration lies beyond what was measured.
    pub(super) fn extrapolated(&self, setup: &Setup) -> Option<String> {
        let of = |group: &Group| self.speeds.alone(setup.way, group.kind, group.count)?.extrapolated.clone();
        let mixed = setup.kinds().map(|_| "devices of two types together".to_string());
        let reasons: Vec<String> = setup.groups.iter().filter_map(of).chain(mixed).collect();
        reasons.into_iter().max_by_key(String::len)
    }

    fn checkpoints(&self, period_s: Option<f64>) -> Option<Checkpoints> {
        Some(Checkpoints { period_s: period_s?, time_s: self.question.checkpoint_s })
    }

    fn lone_period_s(&mut self, kind: usize) -> Result<Option<f64>, InputError> {
        if let Some(known) = self.lone_period_s.get(&kind) {
            return Ok(*known);
        }
        let transient = self.catalogue.machines[kind].transient.as_ref();
        let period_s = match transient {
            Some(transient) => best_period_s(&transient.law, 1, self.question.checkpoint_s)?,
            None => None,
        };
        self.lone_period_s.insert(kind, period_s);
        Ok(period_s)
    }

    /// Daly's period for the mean time between losses of all workers at once; `None` where that hardly ever happens.
    fn all_lost_period_s(&self, setup: &Setup, time_s: f64, losses: f64) -> Option<f64> {
        if setup.groups.iter().any(|group| group.market == Market::OnDemand) {
            return None;
        }
        let by_chance = self.all_lost_per_s(setup, losses / time_s) * time_s;
        let all_lost = by_chance + self.all_lost_at_limit(setup, time_s);
        (all_lost > NEGLIGIBLE).then(|| daly_s(time_s / all_lost, self.question.checkpoint_s))
    }

    /// How often all are away together by chance: each of n servers is lost r times a second and away for g seconds, a
    /// share u of the time; all are away n/g uⁿ times a second.
    fn all_lost_per_s(&self, setup: &Setup, losses_per_s: f64) -> f64 {
        let servers: u32 = setup.groups.iter().map(|group| group.count).sum();
        let away_s = |group: &Group| {
            let machine = &self.catalogue.machines[group.kind];
            machine.provision_s + machine.join_s
        };
        let away_s = setup.groups.iter().map(away_s).fold(0.0, f64::max);
        if away_s <= 0.0 {
            return 0.0;
        }
        let away = losses_per_s / f64::from(servers) * away_s;
        f64::from(servers) / away_s * (away / (1.0 + away)).powi(servers.cast_signed())
    }

    /// How often all end together because they began together and the provider lets none live longer. Later they are no
    /// longer in step, so this is no less than it will be.
    fn all_lost_at_limit(&self, setup: &Setup, time_s: f64) -> f64 {
        let transient = |group: &Group| self.catalogue.machines[group.kind].transient.as_ref();
        let laws = setup.groups.iter().filter_map(|group| Some((group.count, &transient(group)?.law)));
        let (mut all_left, mut limit_s) = (1.0, 0.0_f64);
        for (count, law) in laws {
            limit_s = limit_s.max(law.limit_s());
            let left = 1.0 - law.cdf(law.limit_s() * (1.0 - 1e-9));
            all_left *= left.powi(count.cast_signed());
        }
        all_left * (time_s / limit_s).floor()
    }
}

/// A single transient server: all is lost with it.
fn is_lone(setup: &Setup) -> bool {
    matches!(setup.groups[..], [Group { market: Market::Transient, count: 1, .. }])
}
