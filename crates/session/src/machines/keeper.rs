//! Keeps the word of a plan while it is carried out: the odds of deadline and budget are worked out again and again with
//! the speed that the run shows, the machines that are there and what they have cost; where they fall under what was
//! asked for, other machines are wanted; where the budget is used up, the run stops with a checkpoint.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bellwether_core::machines::{Lease, Pool};
use bellwether_core::plan::Constraints;
use bellwether_core::record::Provisioned;
use bellwether_sched::fleet::Fleet;
use bellwether_sched::plan::duration;
use bellwether_sched::promise::{Answer, Groups, Now, Odds, Promise};

use super::shared::{Order, Seen, Shared, unix_s};

/// Time between two looks at the odds.
const LOOK: Duration = Duration::from_secs(2);

/// Part of a new measurement in the pace, so that one slow moment decides nothing.
const NEW_PART: f64 = 0.3;

/// Looks, one after the other, that have to show broken odds before machines are changed.
const BROKEN_LOOKS: u32 = 3;

/// Seconds that a run takes to stop with a checkpoint, besides writing it.
const STOP_S: f64 = 3.0;

/// Keeps the word of one plan.
pub(super) struct Keeper {
    promise: Promise,
    constraints: Constraints,
    pace: Option<f64>,
    odds: Option<Odds>,
    broken: u32,
    /// Machines that were asked for are not judged before this moment, in seconds since 1970.
    settles_at_s: f64,
    looked: Option<Instant>,
    changes: u32,
    has_stopped: bool,
    has_despaired: bool,
}

impl Keeper {
    pub(super) fn new(promise: Promise, constraints: Constraints) -> Keeper {
        Keeper {
            promise,
            constraints,
            pace: None,
            odds: None,
            broken: 0,
            settles_at_s: 0.0,
            looked: None,
            changes: 0,
            has_stopped: false,
            has_despaired: false,
        }
    }

    /// What machines of a pool cost from now on.
    pub(super) fn set_price(&mut self, pool: &Pool, dollars_per_hour: f64) {
        self.promise.set_price(pool, dollars_per_hour);
    }

    /// Looks at the odds, when it is time to, and says what should change. `began_s` is when the first machine was asked
    /// for.
    pub(super) fn look(&mut self, shared: &Shared, began_s: f64) {
        if self.looked.is_some_and(|looked| looked.elapsed() < LOOK) {
            return;
        }
        self.looked = Some(Instant::now());
        let now_s = unix_s();
        let (seen, ages_s, wanted, spent) = {
            let mut board = shared.lock();
            let Some(seen) = board.seen.filter(|_| !board.is_closing) else { return };
            let spent = board.fleet.spent_dollars(now_s);
            let stop = self.watch_budget(&board.fleet, spent);
            board.orders.extend(stop);
            (seen, ages(&board.fleet, now_s), board.fleet.wanted().to_vec(), spent)
        };
        let at_work: Groups = ages_s.iter().map(|(pool, ages)| (pool.clone(), ages.len() as u32)).collect();
        self.learn(&seen, &at_work);
        let now = self.now(&seen, ages_s, now_s - began_s, spent);
        let Ok(odds) = self.promise.odds(&now, &wanted) else { return };
        self.odds = Some(odds);
        let is_broken = odds.is_broken(self.promise.confidence, &now) && self.has_word();
        self.broken = if is_broken { self.broken + 1 } else { 0 };
        shared.lock().fleet.set_urgent(is_broken && odds.meets_deadline < self.promise.confidence);
        if self.broken >= BROKEN_LOOKS && now_s >= self.settles_at_s {
            self.change(shared, &now, &wanted, odds, now_s);
        }
    }

    /// Whether a deadline or a budget was asked for.
    fn has_word(&self) -> bool {
        self.constraints.deadline_s.is_some() || self.constraints.budget_dollars.is_some()
    }

    /// The pace of the machines at work, where it can be told: all of them train, and steps were seen.
    fn learn(&mut self, seen: &Seen, at_work: &Groups) {
        let machines: u32 = at_work.iter().map(|(pool, count)| count * self.devices(pool)).sum();
        let predicted = self.promise.examples_per_s(at_work);
        let Some(measured) = seen.examples_per_s.filter(|_| machines == seen.workers && predicted > 0.0) else {
            return;
        };
        let fresh = measured / predicted;
        self.pace = Some(self.pace.map_or(fresh, |pace| pace + NEW_PART * (fresh - pace)));
    }

    fn devices(&self, pool: &Pool) -> u32 {
        let kinds = &self.promise.basis().kinds;
        kinds.iter().find(|kind| kind.machine == pool.machine).map_or(1, |kind| kind.devices)
    }

    fn now(&self, seen: &Seen, ages_s: BTreeMap<Pool, Vec<f64>>, elapsed_s: f64, spent: f64) -> Now {
        Now {
            samples_left: seen.samples_left,
            deadline_left_s: self.constraints.deadline_s.map(|deadline_s| deadline_s - elapsed_s),
            budget_left_dollars: self.constraints.budget_dollars.map(|budget| budget - spent),
            pace: self.pace.unwrap_or(1.0),
            ages_s,
            seed: 0,
        }
    }

    /// Stops a run whose budget is used up, while there is enough left to write a checkpoint.
    fn watch_budget(&mut self, fleet: &Fleet, spent: f64) -> Option<Order> {
        let budget = self.constraints.budget_dollars?;
        let basis = self.promise.basis();
        let per_s = (fleet.dollars_per_hour() + basis.fixed_dollars_per_hour) / 3600.0;
        let reserve = per_s * (basis.checkpoint_s + STOP_S);
        if self.has_stopped || spent + reserve < budget {
            return None;
        }
        self.has_stopped = true;
        Some(Order::Stop(format!("the budget of ${budget:.2} is used up: ${spent:.2} are spent")))
    }

    /// Wants other machines.
    fn change(&mut self, shared: &Shared, now: &Now, wanted: &Groups, odds: Odds, now_s: f64) {
        self.broken = 0;
        let Ok(answer) = self.promise.better(now) else { return };
        let (groups, found, keeps) = match answer {
            Answer::Keeps(groups, found) => (groups, found, true),
            Answer::Nearest(groups, found) if found.meets_deadline > odds.meets_deadline + 0.05 => (groups, found, false),
            Answer::Nearest(..) | Answer::Nothing => {
                if !std::mem::replace(&mut self.has_despaired, true) {
                    let note = format!("{}; no other machines of the plan would keep it better", self.why(odds, now));
                    shared.lock().notes.push(note);
                }
                return;
            }
        };
        if groups == *wanted {
            return;
        }
        let workers: u32 = groups.iter().map(|(pool, count)| count * self.devices(pool)).sum();
        let comes_s = self.promise.comes_s(&groups);
        self.settles_at_s = now_s + 2.0 * comes_s + LOOK.as_secs_f64() * f64::from(BROKEN_LOOKS);
        self.changes += 1;
        self.has_despaired = false;
        let keeps = if keeps { "" } else { ", which comes nearest" };
        let note = format!(
            "{}. Instead of {} the run takes {}{keeps}: {}",
            self.why(odds, now),
            words(wanted),
            words(&groups),
            figures(found, now)
        );
        let mut board = shared.lock();
        board.fleet.want(groups);
        board.notes.push(note);
        board.orders.push(Order::Scale(workers));
    }

    /// Why machines are changed, in a clause.
    fn why(&self, odds: Odds, now: &Now) -> String {
        let pace = match self.pace {
            Some(pace) if (pace - 1.0).abs() >= 0.05 => {
                format!(" (the run trains at {pace:.2} of the predicted speed)")
            }
            _ => String::new(),
        };
        let what = if now.deadline_left_s.is_some() && odds.meets_deadline < self.promise.confidence {
            format!(
                "the deadline would be met with a probability of {:.0} %, and {:.0} % were asked for",
                100.0 * odds.meets_deadline,
                100.0 * self.promise.confidence
            )
        } else {
            let left = now.budget_left_dollars.unwrap_or(0.0);
            format!("the rest would cost ${:.2}, and ${left:.2} are left of the budget", odds.cost_dollars)
        };
        what + &pace
    }

    /// What the machines of the run have cost, and whether the word was kept.
    pub(super) fn account(&self, lease: &Lease, provider: &str, left: u32, now_s: f64) -> Provisioned {
        let ran = lease.machines.iter().filter(|row| row.running_s.is_some());
        let (elapsed_s, chosen) = (now_s - lease.began_s, lease.plan.chosen());
        Provisioned {
            provider: provider.to_owned(),
            obtained: ran.count() as u32,
            changes: self.changes,
            time_s: elapsed_s,
            cost_dollars: lease.dollars(now_s),
            deadline_s: self.constraints.deadline_s,
            budget_dollars: self.constraints.budget_dollars,
            expected_time_s: chosen.map_or(0.0, |chosen| chosen.time_s),
            expected_cost_dollars: chosen.map_or(0.0, |chosen| chosen.cost_dollars),
            left,
        }
    }
}

fn ages(fleet: &Fleet, now_s: f64) -> BTreeMap<Pool, Vec<f64>> {
    let age = |since_s: f64| (now_s - since_s).max(0.0);
    let running = fleet.running().into_iter();
    running.map(|(pool, since)| (pool.clone(), since.into_iter().map(age).collect())).collect()
}

fn words(groups: &[(Pool, u32)]) -> String {
    let each: Vec<String> = groups.iter().map(|(pool, count)| format!("{count} {pool}")).collect();
    each.join(" + ")
}

fn figures(odds: Odds, now: &Now) -> String {
    let time = format!("{} and ${:.2} more", duration(odds.time_s), odds.cost_dollars);
    match now.deadline_left_s {
        Some(_) => format!("{time}, the deadline with a probability of {:.0} %", 100.0 * odds.meets_deadline),
        None => time,
    }
}
