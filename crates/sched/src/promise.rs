//! How likely a run keeps its deadline and its budget from now on, and which machines would keep them.
//!
//! # Model
//!
//! ```text
//! left    T = W / (c R(k)) with losses       simulated: lifetimes given their ages, replacements after p + j
//! pace    c = measured / predicted           samples per second of the machines at work
//! odds    P(T <= D), E[cost] <= B            of RUNS simulated runs, one seed
//! ```
//!
//! | symbol | meaning                                              | unit      |
//! |--------|------------------------------------------------------|-----------|
//! | W      | samples that are left                                | 1         |
//! | R(k)   | samples per second of k machines, as the plan says   | 1/s       |
//! | c      | the pace                                             | 1         |
//! | D, B   | what is left of the deadline and of the budget       | s, dollars |
//! | p, j   | time until a machine runs, until its workers work    | s         |
//!
//! # Source
//!
//! The rule by which machines are chosen is the planner's ([`plan`](crate::plan)); the course of a run is
//! [`transient::simulate`](bellwether_model::transient::simulate). That the speed of every configuration differs from
//! its prediction by one factor is this project's assumption.
//!
//! # Assumes
//!
//! One pace for all kinds and numbers of machines. Machines of another kind than those at work begin when they have
//! come, and the work that the old ones do until then is not counted: the odds of a change of kinds are a little too
//! low. Two kinds together are as fast as the plan says where all are at work, and in proportion to their speeds
//! alone where some are not. Losses are independent of each other, and by the law of the catalogue.
//!
//! # Valid
//!
//! Synchronous and elastic runs, as in a plan. With [`RUNS`] runs the standard error of a probability is at most
//! 2.5 points, and 1.1 at 0.95; [`is_broken`](Odds::is_broken) leaves three of them.
//!
//! # Checked by
//!
//! `tests/it/promise.rs`: against closed forms on demand and for one transient machine, and by a bar that a change of
//! machines has to keep what it was made for.

pub mod keeper;

use std::collections::BTreeMap;

use bellwether_core::InputError;
use bellwether_core::machines::Pool;
use bellwether_core::plan::{Basis, Kind, Market, Plan};
use bellwether_model::transient::{Job, Law, LawSpec, Servers, simulate};

/// Simulated runs behind odds.
pub const RUNS: u32 = 400;

/// Three standard errors of a probability near 0.95 from [`RUNS`] runs.
const NOISE: f64 = 0.033;

/// An expected cost may lie above the budget by this part before the run's machines are changed.
const COST_SLACK: f64 = 0.02;

/// How far the rough figure of a configuration may lie above that of simulated runs.
const SLACK: f64 = 0.05;

/// Most configurations that are simulated in search of a better one.
const VISITS_MAX: usize = 80;

/// A run that takes this many times what it would without losses is given up.
const HORIZON: f64 = 100.0;

/// Numbers of machines that are wanted, by pool.
pub type Groups = Vec<(Pool, u32)>;

/// What a run has still to do, and with what.
#[derive(Debug, Clone, PartialEq)]
pub struct Now {
    /// Samples to train on.
    pub samples_left: f64,
    /// Seconds until the deadline, below 0 where it has passed; `None` without one.
    pub deadline_left_s: Option<f64>,
    /// Dollars that are left of the budget; `None` without one.
    pub budget_left_dollars: Option<f64>,
    /// Measured speed over the predicted one.
    pub pace: f64,
    /// The ages of the machines at work, in seconds.
    pub ages_s: BTreeMap<Pool, Vec<f64>>,
    /// Seed of the simulated runs.
    pub seed: u64,
}

/// What may become of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Odds {
    /// The probability that the deadline is met; 1 without one.
    pub meets_deadline: f64,
    /// The probability that the run costs no more than the budget; 1 without one.
    pub within_budget: f64,
    /// Expected seconds that are left.
    pub time_s: f64,
    /// Expected dollars that it still costs.
    pub cost_dollars: f64,
}

/// The word of a plan, and what is needed to keep it.
#[derive(Debug, Clone)]
pub struct Promise {
    basis: Basis,
    laws: BTreeMap<String, Law>,
    chosen: Groups,
    chosen_examples_per_s: f64,
    /// The probability with which the deadline must be met.
    pub confidence: f64,
    max_workers: u32,
}

/// What would keep the word.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// These machines do.
    Keeps(Groups, Odds),
    /// Nothing does; these come nearest.
    Nearest(Groups, Odds),
    /// There is nothing to choose from.
    Nothing,
}

impl Promise {
    /// The word of a plan that chose machines.
    ///
    /// # Errors
    ///
    /// Returns an error for a plan that chose nothing, of an earlier program, or with a law that cannot be read.
    pub fn of(plan: &Plan) -> Result<Promise, InputError> {
        let wrong = |what: &str| {
            InputError::new("plan", what).hint("make it again with `bellwether plan … --format json`")
        };
        let chosen = plan.chosen().ok_or_else(|| wrong("it chose no machines"))?;
        let basis = plan.basis.clone().ok_or_else(|| {
            wrong("it does not say how its machines are obtained, as an earlier release made it")
        })?;
        let mut laws = BTreeMap::new();
        for kind in &basis.kinds {
            let Some(terms) = &kind.transient else { continue };
            match terms.law.parse::<LawSpec>() {
                Ok(LawSpec::Law(law)) => drop(laws.insert(kind.machine.clone(), law)),
                Ok(LawSpec::Samples(_)) => return Err(wrong("a law of revocation names a file")),
                Err(error) => return Err(error.at(format!("plan: kind {}", kind.machine))),
            }
        }
        let pool = |machine: &str, market| Pool { machine: machine.to_owned(), market };
        let groups = chosen.machines.iter().map(|group| (pool(&group.machine, group.market), group.count));
        Ok(Promise {
            laws,
            chosen: groups.collect(),
            chosen_examples_per_s: chosen.examples_per_s,
            confidence: plan.constraints.confidence,
            max_workers: plan.constraints.max_workers.max(chosen.workers),
            basis,
        })
    }

    /// The machines that the plan chose.
    pub fn chosen(&self) -> &Groups {
        &self.chosen
    }

    /// What the plan was made from.
    pub fn basis(&self) -> &Basis {
        &self.basis
    }

    /// How long a transient machine of this kind lives, by the plan; `None` where it is not offered so.
    pub fn law(&self, machine: &str) -> Option<&Law> {
        self.laws.get(machine)
    }

    /// What machines of a pool cost from now on.
    pub fn set_price(&mut self, pool: &Pool, dollars_per_hour: f64) {
        let Some(kind) = self.basis.kinds.iter_mut().find(|kind| kind.machine == pool.machine) else {
            return;
        };
        match (pool.market, &mut kind.transient) {
            (Market::OnDemand, _) => kind.on_demand = kind.on_demand.map(|_| dollars_per_hour),
            (Market::Transient, Some(terms)) => terms.dollars_per_hour = dollars_per_hour,
            (Market::Transient, None) => {}
        }
    }

    /// Seconds until the last of these machines is at work, if nothing is in the way.
    pub fn comes_s(&self, groups: &[(Pool, u32)]) -> f64 {
        let kinds = groups.iter().filter_map(|(pool, _)| self.kind(&pool.machine));
        kinds.map(|kind| kind.provision_s + kind.join_s).fold(0.0, f64::max)
    }

    /// Predicted samples per second of machines at work; 0 for none, and for those that the plan does not know.
    pub fn examples_per_s(&self, groups: &[(Pool, u32)]) -> f64 {
        let mut by_kind: BTreeMap<&str, u32> = BTreeMap::new();
        for (pool, count) in groups {
            *by_kind.entry(&pool.machine).or_default() += count;
        }
        by_kind.retain(|_, count| *count > 0);
        let alone = |machine: &str, count: u32| {
            let rates = self.kind(machine).map_or(&[][..], |kind| &kind.examples_per_s);
            // Beyond what the plan has looked at, further machines add nothing.
            let place = (count as usize).min(rates.len());
            place.checked_sub(1).map_or(0.0, |place| rates[place])
        };
        match by_kind.len() {
            0 => 0.0,
            1 => by_kind.iter().map(|(machine, count)| alone(machine, *count)).sum(),
            _ => {
                let single = |groups: &mut dyn Iterator<Item = (&str, u32)>| -> f64 {
                    groups.map(|(machine, count)| alone(machine, 1) * f64::from(count)).sum()
                };
                let all =
                    single(&mut self.chosen.iter().map(|(pool, count)| (pool.machine.as_str(), *count)));
                let some = single(&mut by_kind.iter().map(|(machine, count)| (*machine, *count)));
                if all > 0.0 { self.chosen_examples_per_s * some / all } else { 0.0 }
            }
        }
    }

    /// What becomes of the run on these machines: of those at work as many stay as are wanted, the oldest first, and
    /// the others come.
    ///
    /// # Errors
    ///
    /// Returns an error for machines that the plan does not know, and for numbers beyond all measure.
    pub fn odds(&self, now: &Now, groups: &[(Pool, u32)]) -> Result<Odds, InputError> {
        let mut servers = Vec::new();
        let mut ages_s = Vec::new();
        for (pool, count) in groups {
            let mut ages: Vec<f64> = now.ages_s.get(pool).cloned().unwrap_or_default();
            ages.sort_by(|a, b| b.total_cmp(a));
            ages.truncate(*count as usize);
            servers.push(self.servers(pool, *count)?);
            ages_s.push(ages);
        }
        let rate = |working: &[u32]| {
            let at_work: Groups =
                groups.iter().zip(working).map(|((pool, _), count)| (pool.clone(), *count)).collect();
            self.examples_per_s(&at_work) * now.pace
        };
        let all: Vec<u32> = groups.iter().map(|(_, count)| *count).collect();
        let whole = rate(&all);
        if whole <= 0.0 || now.samples_left <= 0.0 {
            let (time_s, done) = if now.samples_left <= 0.0 { (0.0, 1.0) } else { (f64::INFINITY, 0.0) };
            return Ok(Odds { meets_deadline: done, within_budget: done, time_s, cost_dollars: 0.0 });
        }
        let begin_s = servers.iter().map(|group| group.provision_s + group.join_s).fold(0.0, f64::max);
        let horizon_s = HORIZON * (begin_s + now.samples_left / whole);
        let job = Job {
            ages_s,
            regroup_s: self.basis.batch as f64 / whole,
            restore_s: self.basis.checkpoint_s,
            fixed_price_per_hour: self.basis.fixed_dollars_per_hour,
            ..Job::new(now.samples_left, servers, horizon_s)
        };
        let certain = groups.iter().all(|(pool, _)| pool.market == Market::OnDemand);
        let outcomes = simulate(&job, rate, if certain { 1 } else { RUNS }, now.seed)?;
        let runs = outcomes.runs();
        let share = |keeps: &dyn Fn(f64, f64) -> bool| {
            let kept = runs.iter().filter(|run| run.finished && keeps(run.end_s, run.cost)).count();
            kept as f64 / runs.len() as f64
        };
        Ok(Odds {
            meets_deadline: share(&|end_s, _| now.deadline_left_s.is_none_or(|left_s| end_s <= left_s)),
            within_budget: share(&|_, cost| now.budget_left_dollars.is_none_or(|left| cost <= left)),
            time_s: runs.iter().map(|run| run.end_s).sum::<f64>() / runs.len() as f64,
            cost_dollars: outcomes.cost().mean,
        })
    }

    /// The machines that keep the word, by the planner's rule: with a deadline the cheapest, else the fastest.
    ///
    /// # Errors
    ///
    /// As [`odds`](Promise::odds).
    pub fn better(&self, now: &Now) -> Result<Answer, InputError> {
        let mut order: Vec<(f64, Groups)> = Vec::new();
        for groups in self.configurations() {
            let (time_s, cost) = self.rough(now, &groups);
            let has_hope = now.budget_left_dollars.is_none_or(|left| cost * (1.0 - SLACK) <= left);
            let key = if now.deadline_left_s.is_some() { cost } else { time_s };
            if has_hope && key.is_finite() {
                order.push((key, groups));
            }
        }
        order.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut kept: Option<(f64, Groups, Odds)> = None;
        let mut nearest: Option<(Groups, Odds)> = None;
        let is_late =
            |groups: &Groups| now.deadline_left_s.is_some_and(|left_s| self.rough(now, groups).0 > left_s);
        let (mut visits, fastest) = (0, self.fastest(now, &order));
        for (key, groups) in &order {
            if visits >= VISITS_MAX || kept.as_ref().is_some_and(|(best, ..)| key * (1.0 - SLACK) > *best) {
                break;
            }
            // One that is too late even without a loss is only worth a look as the nearest.
            if is_late(groups) && fastest.as_ref() != Some(groups) {
                continue;
            }
            visits += 1;
            let odds = self.odds(now, groups)?;
            let exact = if now.deadline_left_s.is_some() { odds.cost_dollars } else { odds.time_s };
            if odds.keeps(self.confidence, now) && kept.as_ref().is_none_or(|(best, ..)| exact < *best) {
                kept = Some((exact, groups.clone(), odds));
            }
            let is_nearer = |(_, other): &(Groups, Odds)| odds.meets_deadline > other.meets_deadline;
            if nearest.as_ref().is_none_or(is_nearer) {
                nearest = Some((groups.clone(), odds));
            }
        }
        Ok(match (kept, nearest) {
            (Some((_, groups, odds)), _) => Answer::Keeps(groups, odds),
            (None, Some((groups, odds))) => Answer::Nearest(groups, odds),
            (None, None) => Answer::Nothing,
        })
    }

    /// Of several configurations the one that ends first if nothing is lost.
    fn fastest(&self, now: &Now, all: &[(f64, Groups)]) -> Option<Groups> {
        let time_s = |groups: &Groups| self.rough(now, groups).0;
        let least = all.iter().min_by(|a, b| time_s(&a.1).total_cmp(&time_s(&b.1)));
        least.map(|(_, groups)| groups.clone())
    }

    /// Seconds and dollars that are left if nothing is lost.
    fn rough(&self, now: &Now, groups: &Groups) -> (f64, f64) {
        let rate = self.examples_per_s(groups) * now.pace;
        let kind = groups.first().and_then(|(pool, _)| self.kind(&pool.machine));
        let Some(kind) = kind.filter(|_| rate > 0.0) else { return (f64::INFINITY, f64::INFINITY) };
        let is_there =
            groups.iter().any(|(pool, _)| now.ages_s.get(pool).is_some_and(|ages| !ages.is_empty()));
        let wait_s = if is_there { 0.0 } else { kind.provision_s + kind.join_s };
        let time_s = wait_s + now.samples_left / rate;
        let price = |(pool, count): &(Pool, u32)| {
            let price = self.kind(&pool.machine).and_then(|kind| kind.dollars_per_hour(pool.market));
            f64::from(*count) * price.unwrap_or(f64::INFINITY)
        };
        let paid_s = if is_there { time_s } else { time_s - kind.provision_s };
        let machines: f64 = groups.iter().map(price).sum();
        (time_s, (machines * paid_s + self.basis.fixed_dollars_per_hour * time_s) / 3600.0)
    }

    /// Machines of one kind: on demand, transient, or 1, 2, 4, … of them on demand; and what the plan chose.
    fn configurations(&self) -> Vec<Groups> {
        let mut all = Vec::new();
        for kind in &self.basis.kinds {
            let most = (kind.examples_per_s.len() as u32)
                .min(self.max_workers / kind.devices.max(1))
                .min(kind.limit.unwrap_or(u32::MAX));
            let pool = |market| Pool { machine: kind.machine.clone(), market };
            for count in 1..=most {
                if kind.on_demand.is_some() {
                    all.push(vec![(pool(Market::OnDemand), count)]);
                }
                if kind.transient.is_none() {
                    continue;
                }
                all.push(vec![(pool(Market::Transient), count)]);
                let firm = (0..31).map(|power| 1u32 << power).take_while(|firm| *firm < count);
                if kind.on_demand.is_some() {
                    all.extend(firm.map(|firm| {
                        vec![(pool(Market::OnDemand), firm), (pool(Market::Transient), count - firm)]
                    }));
                }
            }
        }
        if !all.contains(&self.chosen) {
            all.push(self.chosen.clone());
        }
        all
    }

    fn kind(&self, machine: &str) -> Option<&Kind> {
        self.basis.kinds.iter().find(|kind| kind.machine == machine)
    }

    fn servers(&self, pool: &Pool, count: u32) -> Result<Servers, InputError> {
        let kind = self
            .kind(&pool.machine)
            .ok_or_else(|| InputError::new("plan", format!("it knows no machine `{}`", pool.machine)))?;
        let law = match pool.market {
            Market::OnDemand => Some(Law::never()),
            Market::Transient => self.laws.get(&pool.machine).cloned(),
        };
        let law = law.ok_or_else(|| InputError::new("plan", format!("it has no law for {pool}")))?;
        let price_per_hour = kind.dollars_per_hour(pool.market).unwrap_or(0.0);
        let (provision_s, join_s) = (kind.provision_s, kind.join_s);
        Ok(Servers { count, law, price_per_hour, provision_s, join_s, replaced: true })
    }
}

impl Odds {
    /// Whether both hold: the deadline with the probability that was asked for, the budget by the expected cost.
    pub fn keeps(&self, confidence: f64, now: &Now) -> bool {
        self.meets_deadline >= confidence
            && now.budget_left_dollars.is_none_or(|left| self.cost_dollars <= left)
    }

    /// Whether one of them holds no longer, beyond what chance makes of it.
    pub fn is_broken(&self, confidence: f64, now: &Now) -> bool {
        let is_dear = |left: f64| self.cost_dollars > left * (1.0 + COST_SLACK);
        self.meets_deadline < confidence - NOISE || now.budget_left_dollars.is_some_and(is_dear)
    }
}
