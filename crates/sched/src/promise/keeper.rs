//! Keeps the word of a plan while it is carried out: works the odds out again and again, wants other machines where
//! they fall under what was asked for, and stops the run where its budget is used up. Time is an argument.

use std::collections::BTreeMap;

use bellwether_core::machines::Pool;
use bellwether_core::plan::{Constraints, Plan};
use bellwether_core::{InputError, span};

use super::{Answer, Groups, Now, Odds, Promise};
use crate::fleet::Fleet;

/// Seconds between two looks at the odds.
pub const LOOK_S: f64 = 2.0;

/// Part of a new measurement in the pace, so that one slow moment decides nothing.
const NEW_PART: f64 = 0.3;

/// Looks, one after the other, that have to show broken odds before machines are changed.
const BROKEN_LOOKS: u32 = 3;

/// Seconds that a run takes to stop with a checkpoint, besides writing it.
const STOP_S: f64 = 3.0;

/// How much likelier the deadline must become before machines are taken that do not keep it either.
const NEARER: f64 = 0.05;

/// What a run showed of itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seen {
    /// Samples that are left to train on.
    pub samples_left: f64,
    /// Samples per second over the last while, in which nothing changed; `None` where too few steps were seen.
    pub examples_per_s: Option<f64>,
    /// Workers that train.
    pub workers: u32,
}

/// What a fleet holds at a moment.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    now_s: f64,
    ages_s: BTreeMap<Pool, Vec<f64>>,
    wanted: Groups,
    spent_dollars: f64,
    dollars_per_hour: f64,
}

/// What should change.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Dearer machines may stand in for those that are not to be had, or no longer.
    Urgent(bool),
    /// Want these machines, with this many workers; and why.
    Want(Groups, u32, String),
    /// Stop the run with a checkpoint, for this reason.
    Stop(String),
    /// People should hear this.
    Note(String),
}

/// Keeps the word of one plan.
#[derive(Debug, Clone)]
pub struct Keeper {
    promise: Promise,
    constraints: Constraints,
    /// When the first machine was asked for.
    began_s: f64,
    pace: Option<f64>,
    looked_s: Option<f64>,
    broken: u32,
    /// Machines that were asked for are not judged before.
    settles_at_s: f64,
    changes: u32,
    has_stopped: bool,
    has_despaired: bool,
}

impl View {
    /// Of this fleet.
    pub fn of(fleet: &Fleet, now_s: f64) -> View {
        let age = |since_s: f64| (now_s - since_s).max(0.0);
        let running = fleet.running().into_iter();
        View {
            now_s,
            ages_s: running
                .map(|(pool, since)| (pool.clone(), since.into_iter().map(age).collect()))
                .collect(),
            wanted: fleet.wanted().to_vec(),
            spent_dollars: fleet.spent_dollars(now_s),
            dollars_per_hour: fleet.dollars_per_hour(),
        }
    }
}

impl Keeper {
    /// Of a plan that is carried out since `began_s`.
    ///
    /// # Errors
    ///
    /// As [`Promise::of`].
    pub fn new(plan: &Plan, began_s: f64) -> Result<Keeper, InputError> {
        Ok(Keeper {
            promise: Promise::of(plan)?,
            constraints: plan.constraints.clone(),
            began_s,
            pace: None,
            looked_s: None,
            broken: 0,
            settles_at_s: began_s,
            changes: 0,
            has_stopped: false,
            has_despaired: false,
        })
    }

    /// Its plan's word.
    pub fn promise(&self) -> &Promise {
        &self.promise
    }

    /// How often other machines were wanted.
    pub fn changes(&self) -> u32 {
        self.changes
    }

    /// What machines of a pool cost from now on.
    pub fn set_price(&mut self, pool: &Pool, dollars_per_hour: f64) {
        self.promise.set_price(pool, dollars_per_hour);
    }

    /// Whether it is time for a look.
    pub fn is_due(&self, now_s: f64) -> bool {
        self.looked_s.is_none_or(|looked_s| now_s - looked_s >= LOOK_S)
    }

    /// What should change by what is seen.
    pub fn look(&mut self, view: &View, seen: &Seen) -> Vec<Change> {
        self.looked_s = Some(view.now_s);
        let view = &self.with_fixed(view);
        if let Some(stop) = self.watch_budget(view) {
            return vec![stop];
        }
        self.learn(seen, view);
        let now = self.now(seen, view);
        let Ok(odds) = self.promise.odds(&now, &view.wanted) else { return Vec::new() };
        let is_broken = self.has_word() && odds.is_broken(self.promise.confidence, &now);
        self.broken = if is_broken { self.broken + 1 } else { 0 };
        let mut changes = vec![Change::Urgent(is_broken && odds.meets_deadline < self.promise.confidence)];
        if self.broken >= BROKEN_LOOKS && view.now_s >= self.settles_at_s {
            changes.extend(self.change(&now, view, odds));
        }
        changes
    }

    /// With the price of what runs beside the machines.
    fn with_fixed(&self, view: &View) -> View {
        let fixed =
            self.promise.basis().fixed_dollars_per_hour * (view.now_s - self.began_s).max(0.0) / 3600.0;
        View { spent_dollars: view.spent_dollars + fixed, ..view.clone() }
    }

    /// Whether a deadline or a budget was asked for.
    fn has_word(&self) -> bool {
        self.constraints.deadline_s.is_some() || self.constraints.budget_dollars.is_some()
    }

    /// The pace of the machines at work, where it can be told: all of them train, and steps were seen.
    fn learn(&mut self, seen: &Seen, view: &View) {
        let at_work: Groups =
            view.ages_s.iter().map(|(pool, ages)| (pool.clone(), ages.len() as u32)).collect();
        let predicted = self.promise.examples_per_s(&at_work);
        let is_whole = self.workers(&at_work) == seen.workers && predicted > 0.0;
        if let Some(measured) = seen.examples_per_s.filter(|_| is_whole) {
            let fresh = measured / predicted;
            self.pace = Some(self.pace.map_or(fresh, |pace| pace + NEW_PART * (fresh - pace)));
        }
    }

    /// Workers of these machines.
    fn workers(&self, groups: &[(Pool, u32)]) -> u32 {
        let kinds = &self.promise.basis().kinds;
        let devices = |pool: &Pool| {
            kinds.iter().find(|kind| kind.machine == pool.machine).map_or(1, |kind| kind.devices)
        };
        groups.iter().map(|(pool, count)| count * devices(pool)).sum()
    }

    fn now(&self, seen: &Seen, view: &View) -> Now {
        let elapsed_s = view.now_s - self.began_s;
        Now {
            samples_left: seen.samples_left,
            deadline_left_s: self.constraints.deadline_s.map(|deadline_s| deadline_s - elapsed_s),
            budget_left_dollars: self.constraints.budget_dollars.map(|budget| budget - view.spent_dollars),
            pace: self.pace.unwrap_or(1.0),
            ages_s: view.ages_s.clone(),
            seed: 0,
        }
    }

    /// Stops a run whose budget is used up, while there is enough left to write a checkpoint.
    fn watch_budget(&mut self, view: &View) -> Option<Change> {
        let budget = self.constraints.budget_dollars?;
        let basis = self.promise.basis();
        let per_s = (view.dollars_per_hour + basis.fixed_dollars_per_hour) / 3600.0;
        let reserve = per_s * (basis.checkpoint_s + STOP_S);
        if self.has_stopped || view.spent_dollars + reserve < budget {
            return None;
        }
        self.has_stopped = true;
        let spent = view.spent_dollars;
        Some(Change::Stop(format!("the budget of ${budget:.2} is used up: ${spent:.2} are spent")))
    }

    /// Looks for machines that keep the word.
    fn change(&mut self, now: &Now, view: &View, odds: Odds) -> Option<Change> {
        self.broken = 0;
        let is_nearer = |found: &Odds| found.meets_deadline > odds.meets_deadline + NEARER;
        let (groups, found, keeps) = match self.promise.better(now).ok()? {
            Answer::Keeps(groups, found) => (groups, found, ""),
            Answer::Nearest(groups, found) if is_nearer(&found) => (groups, found, ", which comes nearest"),
            Answer::Nearest(..) | Answer::Nothing => {
                let is_new = !std::mem::replace(&mut self.has_despaired, true);
                let note =
                    format!("{}; no other machines of the plan would keep it better", self.why(odds, now));
                return is_new.then_some(Change::Note(note));
            }
        };
        if groups == view.wanted {
            return None;
        }
        let comes_s = self.promise.comes_s(&groups);
        self.settles_at_s = view.now_s + 2.0 * comes_s + LOOK_S * f64::from(BROKEN_LOOKS);
        self.changes += 1;
        self.has_despaired = false;
        let note = format!(
            "{}. Instead of {} the run takes {}{keeps}: {}",
            self.why(odds, now),
            words(&view.wanted),
            words(&groups),
            figures(found, now)
        );
        let workers = self.workers(&groups);
        Some(Change::Want(groups, workers, note))
    }

    /// Why machines are changed, in a clause.
    fn why(&self, odds: Odds, now: &Now) -> String {
        let pace = match self.pace {
            Some(pace) if (pace - 1.0).abs() >= 0.05 => {
                format!(" (the run trains at {pace:.2} of the predicted speed)")
            }
            _ => String::new(),
        };
        let asked = self.promise.confidence;
        let what = if now.deadline_left_s.is_some() && odds.meets_deadline < asked {
            let odds = 100.0 * odds.meets_deadline;
            format!(
                "the deadline would be met with a probability of {odds:.0} %, and {:.0} % were asked for",
                100.0 * asked
            )
        } else {
            let left = now.budget_left_dollars.unwrap_or(0.0);
            format!("the rest would cost ${:.2}, and ${left:.2} are left of the budget", odds.cost_dollars)
        };
        what + &pace
    }
}

fn words(groups: &[(Pool, u32)]) -> String {
    let each: Vec<String> = groups.iter().map(|(pool, count)| format!("{count} {pool}")).collect();
    each.join(" + ")
}

fn figures(odds: Odds, now: &Now) -> String {
    let time = format!("{} and ${:.2} more", span::written(odds.time_s), odds.cost_dollars);
    match now.deadline_left_s {
        Some(_) => format!("{time}, the deadline with a probability of {:.0} %", 100.0 * odds.meets_deadline),
        None => time,
    }
}
