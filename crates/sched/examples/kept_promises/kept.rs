//! A run as `run --provision` carries it out, on machines that live as recorded ones did.

use std::collections::BTreeMap;
use std::error::Error;

use bellwether_core::machines::{Machine, Phase, Pool, Tag};
use bellwether_core::plan::Plan;
use bellwether_sched::fleet::{Action, Fleet, Place, supplies};
use bellwether_sched::promise::keeper::{Change, Keeper, Seen, View};
use bellwether_testkit::Random;

use super::is_transient;
use super::truth::{Lifetimes, Outcome};

/// Seconds of one step of this simulation, between two looks of the keeper, and between two checkpoints.
const STEP_S: f64 = 10.0;
const LOOK_S: f64 = 120.0;
const CHECKPOINT_S: f64 = 60.0;

/// Deviation of the time until a machine runs.
const PROVISION_SIGMA_S: f64 = 20.0;

/// What became of a run.
pub(super) struct Kept {
    pub(super) outcome: Outcome,
    pub(super) changes: u32,
    pub(super) lost: u32,
    pub(super) is_stopped: bool,
}

struct Real {
    runs_s: f64,
    ends_s: f64,
}

struct World<'a> {
    plan: &'a Plan,
    lifetimes: &'a Lifetimes,
    pace: f64,
    random: Random,
    machines: BTreeMap<u64, Real>,
    fleet: Fleet,
    keeper: Keeper,
    /// Workers, and when each of those whose machine runs joins.
    workers: BTreeMap<u64, Option<f64>>,
    next: u64,
    wanted: u32,
    now_s: f64,
    done: f64,
    saved: (f64, f64),
    looked_s: f64,
    lost: u32,
    is_stopped: bool,
}

pub(super) fn run(plan: &Plan, lifetimes: &Lifetimes, pace: f64, seed: u64) -> Result<Kept, Box<dyn Error>> {
    let keeper = Keeper::new(plan, 0.0)?;
    let promise = keeper.promise();
    let fleet = Fleet::new(supplies(promise.basis()), promise.chosen().clone(), 0.0);
    let mut world = World {
        plan,
        lifetimes,
        pace,
        random: Random::new(seed),
        machines: BTreeMap::new(),
        fleet,
        keeper,
        workers: BTreeMap::new(),
        next: 1,
        wanted: plan.chosen().map_or(0, |chosen| chosen.workers),
        now_s: 0.0,
        done: 0.0,
        saved: (0.0, 0.0),
        looked_s: 0.0,
        lost: 0,
        is_stopped: false,
    };
    let deadline_s = plan.constraints.deadline_s.unwrap_or(f64::INFINITY);
    while world.done < plan.samples && !world.is_stopped && world.now_s < 20.0 * deadline_s {
        world.step();
    }
    let basis = plan.basis.as_ref();
    let fixed = basis.map_or(0.0, |basis| basis.fixed_dollars_per_hour) * world.now_s / 3600.0;
    let cost = world.fleet.spent_dollars(world.now_s) + fixed;
    let met = world.done >= plan.samples && world.now_s <= deadline_s;
    Ok(Kept {
        outcome: Outcome { met, cost },
        changes: world.keeper.changes(),
        lost: world.lost,
        is_stopped: world.is_stopped,
    })
}

impl World<'_> {
    fn step(&mut self) {
        self.provide();
        self.staff();
        let at_work = self.at_work();
        let count: u32 = at_work.iter().map(|(_, count)| *count).sum();
        let rate = self.keeper.promise().examples_per_s(&at_work) * self.pace;
        if count == 0 && self.done > 0.0 {
            // All are lost: it goes on from the last checkpoint.
            self.done = self.saved.1;
        } else if self.now_s - self.saved.0 >= CHECKPOINT_S {
            self.saved = (self.now_s, self.done);
        }
        self.done += rate * STEP_S;
        self.now_s += STEP_S;
        if self.now_s - self.looked_s >= LOOK_S {
            self.looked_s = self.now_s;
            self.look(count, rate);
        }
    }

    /// The provider answers, and lists what there is.
    fn provide(&mut self) {
        let now_s = self.now_s;
        let listed: Vec<Machine> = self
            .machines
            .iter()
            .map(|(number, real)| {
                let phase = match () {
                    () if now_s >= real.ends_s => Phase::Ended { how: "revoked".into() },
                    () if now_s < real.runs_s => Phase::Waits { reason: String::new() },
                    () => Phase::Runs { place: String::new(), notice: None },
                };
                Machine { tag: Tag { lease: "a".into(), number: *number }, phase }
            })
            .collect();
        self.fleet.listed(now_s, &listed);
        self.machines.retain(|_, real| now_s < real.ends_s);
        for action in self.fleet.actions(now_s) {
            match action {
                Action::Request { number, pool, .. } => {
                    self.request(number, pool);
                    self.fleet.answered(number, now_s, Ok(()));
                }
                Action::Release { number } => drop(self.machines.remove(&number)),
            }
        }
    }

    fn request(&mut self, number: u64, pool: Pool) {
        let Some(kind) = self.plan.kind(&pool.machine) else { return };
        let provision_s = (kind.provision_s + PROVISION_SIGMA_S * self.random.normal()).max(10.0);
        let runs_s = self.now_s + provision_s;
        let lives_s = if is_transient(pool.market) {
            self.lifetimes.draw(kind, &mut self.random)
        } else {
            f64::INFINITY
        };
        self.machines.insert(number, Real { runs_s, ends_s: runs_s + lives_s });
    }

    /// Workers whose machines are over are replaced; those of the newest go where there are too many.
    fn staff(&mut self) {
        for (worker, joins_s) in self.workers.clone() {
            match self.fleet.place(worker) {
                Place::Over(_) => {
                    self.lost += 1;
                    self.dismiss(worker);
                }
                Place::Runs if joins_s.is_none() => {
                    let kind =
                        self.fleet.machine_of(worker).and_then(|(_, pool, _)| self.plan.kind(&pool.machine));
                    let joins_s = self.now_s + kind.map_or(0.0, |kind| kind.join_s);
                    self.workers.insert(worker, Some(joins_s));
                }
                Place::Runs if joins_s.is_some_and(|at_s| at_s <= self.now_s) => {
                    self.fleet.joined(&[worker], self.now_s);
                }
                Place::Runs | Place::Waits => {}
            }
        }
        // Machines of another kind than are wanted go once others have come.
        let surplus = self.fleet.surplus();
        let trains =
            |worker: &u64| self.workers.get(worker).copied().flatten().is_some_and(|at_s| at_s <= self.now_s);
        let training = self.workers.keys().filter(|worker| trains(worker)).count() as u32;
        let wrong = surplus.iter().filter(|(worker, _)| trains(worker)).count() as u32;
        let are_enough = training > self.wanted || wrong > 0 && training - wrong >= self.wanted;
        if let Some((worker, _)) = surplus.first().filter(|_| are_enough) {
            self.dismiss(*worker);
        }
        let right = self.workers.len() - surplus.len();
        (right as u32..self.wanted).for_each(|_| {
            self.workers.insert(self.next, None);
            self.fleet.need(self.next);
            self.next += 1;
        });
    }

    fn dismiss(&mut self, worker: u64) {
        self.workers.remove(&worker);
        self.fleet.dismiss(worker);
    }

    /// Machines whose workers train.
    fn at_work(&self) -> Vec<(Pool, u32)> {
        let mut counts: BTreeMap<Pool, u32> = BTreeMap::new();
        for (worker, joins_s) in &self.workers {
            if joins_s.is_some_and(|at_s| at_s <= self.now_s)
                && let Some((_, pool, _)) = self.fleet.machine_of(*worker)
            {
                *counts.entry(pool.clone()).or_default() += 1;
            }
        }
        counts.into_iter().collect()
    }

    fn look(&mut self, workers: u32, rate: f64) {
        let seen = Seen {
            samples_left: (self.plan.samples - self.done).max(0.0),
            examples_per_s: (rate > 0.0).then_some(rate),
            workers,
        };
        let view = View::of(&self.fleet, self.now_s);
        for change in self.keeper.look(&view, &seen) {
            match change {
                Change::Urgent(is_urgent) => self.fleet.set_urgent(is_urgent),
                Change::Want(groups, workers, _) => {
                    self.fleet.want(groups);
                    self.wanted = workers;
                }
                Change::Stop(_) => self.is_stopped = true,
                Change::Note(_) => {}
            }
        }
    }
}
