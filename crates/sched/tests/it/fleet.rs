//! A fleet against a provider that delays, refuses, loses answers and takes machines away, and against kills of the
//! one that holds it: seeded, each seed twice.

use std::collections::{BTreeMap, BTreeSet};

use bellwether_core::lease::Row;
use bellwether_core::machines::{Machine, Notice, Phase, Pool, ProviderError, Tag};
use bellwether_core::plan::Market;
use bellwether_sched::fleet::{Action, Fleet, Place, Supply};
use bellwether_testkit::{Random, search};

const STEP_S: f64 = 0.5;
const CHAOS_S: f64 = 240.0;
const CALM_S: f64 = 1500.0;
const SETTLE_S: f64 = 20.0;
const WORKERS: u64 = 4;

fn pool(machine: &str, market: Market) -> Pool {
    Pool { machine: machine.into(), market }
}

fn supply(machine: &str, market: Market, dollars_per_hour: f64) -> Supply {
    Supply {
        pool: pool(machine, market),
        region: Some("east".into()),
        devices: 1,
        dollars_per_hour,
        limit: None,
        patience_s: 40.0,
    }
}

/// A machine of the provider.
#[derive(Debug, Clone, PartialEq)]
struct Real {
    pool: Pool,
    appears_s: f64,
    runs_s: f64,
    notice_s: f64,
    ends_s: f64,
}

/// The provider: what it does depends on its luck and on time.
#[derive(Debug, Clone)]
struct World {
    random: Random,
    now_s: f64,
    machines: BTreeMap<u64, Real>,
    /// Pools that are sold out, until when.
    sold_out: BTreeMap<Pool, f64>,
    created: BTreeSet<u64>,
    is_calm: bool,
}

impl World {
    fn new(seed: u64) -> World {
        World {
            random: Random::new(seed),
            now_s: 0.0,
            machines: BTreeMap::new(),
            sold_out: BTreeMap::new(),
            created: BTreeSet::new(),
            is_calm: false,
        }
    }

    fn chance(&mut self, probability: f64) -> bool {
        !self.is_calm && self.random.chance(probability)
    }

    fn request(&mut self, number: u64, pool: &Pool) -> Result<(), ProviderError> {
        let refused = |why: &str| Err(ProviderError::Refused { provider: "world", why: why.into() });
        let lost = || Err(ProviderError::Unanswered { provider: "world", why: "no answer".into() });
        if self.sold_out.get(pool).is_some_and(|until_s| self.now_s < *until_s) {
            return refused("sold out");
        }
        if self.chance(0.1) {
            self.sold_out.insert(pool.clone(), self.now_s + 30.0);
        }
        if self.chance(0.1) {
            return lost();
        }
        if !self.created.insert(number) {
            return Ok(());
        }
        let is_slow = self.chance(0.2);
        let appears_s = self.now_s + if is_slow { self.random.between(1.0, SETTLE_S - 1.0) } else { 0.0 };
        let provision_s = if self.chance(0.1) { 300.0 } else { self.random.between(1.0, 10.0) };
        let lives_s = match pool.market {
            Market::Transient if !self.is_calm => self.random.interval(80.0),
            _ => f64::INFINITY,
        };
        let runs_s = appears_s + provision_s;
        let ends_s = runs_s + lives_s;
        let notice_s = if self.random.chance(0.5) { ends_s - 5.0 } else { ends_s };
        self.machines.insert(number, Real { pool: pool.clone(), appears_s, runs_s, notice_s, ends_s });
        // A slow request's answer is lost more often than not.
        if is_slow && self.random.chance(0.7) || self.chance(0.1) { lost() } else { Ok(()) }
    }

    fn list(&mut self, lease: &str) -> Option<Vec<Machine>> {
        if self.chance(0.15) {
            return None;
        }
        let now_s = self.now_s;
        self.machines.retain(|_, real| now_s < real.ends_s + 3.0);
        let shown = self.machines.iter().filter(|(_, real)| real.appears_s <= now_s);
        let machine = |(number, real): (&u64, &Real)| {
            let notice = Notice { left_s: real.ends_s - now_s, why: "revoked".into() };
            let phase = match () {
                () if now_s >= real.ends_s => Phase::Ended { how: "revoked".into() },
                () if now_s < real.runs_s => Phase::Waits { reason: String::new() },
                () => Phase::Runs {
                    place: "node".into(),
                    notice: Some(notice).filter(|_| now_s >= real.notice_s),
                },
            };
            Machine { tag: Tag { lease: lease.into(), number: *number }, phase }
        };
        Some(shown.map(machine).collect())
    }

    fn release(&mut self, number: u64) {
        if self.chance(0.2) {
            return;
        }
        let now_s = self.now_s;
        if let Some(real) = self.machines.get_mut(&number).filter(|real| real.appears_s <= now_s) {
            real.ends_s = real.ends_s.min(now_s + 1.0);
            real.notice_s = real.ends_s;
        }
    }

    /// Machines that are there or will be.
    fn alive(&self) -> usize {
        self.machines.values().filter(|real| self.now_s < real.ends_s).count()
    }
}

/// A run that wants workers, and what it keeps on disk.
struct Holder {
    fleet: Fleet,
    disk: Vec<Row>,
    workers: BTreeSet<u64>,
    next: u64,
}

impl Holder {
    fn new(workers: u64) -> Holder {
        let supplies = vec![
            supply("small", Market::Transient, 0.25),
            supply("other", Market::Transient, 0.25),
            supply("small", Market::OnDemand, 1.0),
        ];
        let wanted = vec![(pool("small", Market::Transient), 3), (pool("small", Market::OnDemand), 1)];
        let fleet = Fleet::new(supplies, wanted, SETTLE_S);
        let mut holder = Holder { fleet, disk: Vec::new(), workers: BTreeSet::new(), next: 1 };
        (0..workers).for_each(|_| holder.hire());
        holder
    }

    fn hire(&mut self) {
        self.fleet.need(self.next);
        self.workers.insert(self.next);
        self.next += 1;
    }

    /// Its holder is killed, and another one begins with what is on disk.
    fn replace(&mut self, now_s: f64) {
        let (next, disk) = (self.next, std::mem::take(&mut self.disk));
        *self = Holder { next, ..Holder::new(0) };
        let running = self.fleet.restore(&disk, now_s);
        self.workers = running.into_iter().flat_map(|(_, workers)| workers).collect();
        (self.workers.len() as u64..WORKERS).for_each(|_| self.hire());
        self.disk = disk;
    }

    fn turn(&mut self, world: &mut World, kills: bool) {
        let now_s = world.now_s;
        if let Some(machines) = world.list("a") {
            self.fleet.listed(now_s, &machines);
        }
        for worker in self.workers.clone() {
            if matches!(self.fleet.place(worker), Place::Over(_)) {
                self.fleet.dismiss(worker);
                self.workers.remove(&worker);
                self.hire();
            }
        }
        let leaving: BTreeSet<u64> = self.fleet.leaving(now_s).iter().map(|leaves| leaves.worker).collect();
        for worker in leaving {
            self.fleet.dismiss(worker);
            self.workers.remove(&worker);
            self.hire();
        }
        let joined: Vec<u64> =
            self.workers.iter().copied().filter(|worker| self.fleet.place(*worker) == Place::Runs).collect();
        self.fleet.joined(&joined, now_s);
        let actions = self.fleet.actions(now_s);
        // Before anything is done it stands on disk.
        self.disk = self.fleet.rows();
        for action in actions {
            if kills && world.random.chance(0.01) {
                return self.replace(now_s);
            }
            match action {
                Action::Request { number, pool, workers } => {
                    assert!(!workers.is_empty() && workers.len() <= 1, "{workers:?}");
                    let answer = world.request(number, &pool);
                    self.fleet.answered(number, now_s, answer);
                }
                Action::Release { number } => world.release(number),
            }
        }
    }
}

/// What was seen of one seed, for comparison with a second run.
fn play(seed: u64) -> Result<String, String> {
    let mut world = World::new(seed);
    let mut holder = Holder::new(WORKERS);
    let mut most = 0;
    while world.now_s < CALM_S {
        world.now_s += STEP_S;
        world.is_calm = world.now_s >= CHAOS_S;
        let kills = !world.is_calm;
        if kills && world.random.chance(0.004) {
            holder.replace(world.now_s);
        }
        holder.turn(&mut world, kills);
        most = most.max(world.alive());
    }
    let runs = |worker: &&u64| holder.fleet.place(**worker) == Place::Runs;
    let running = holder.workers.iter().filter(runs).count();
    if running as u64 != WORKERS || world.alive() as u64 != WORKERS {
        return Err(format!("{running} workers run on {} machines of {:?}", world.alive(), world.machines));
    }
    // What it counts is what the provider's clock says, but for the time between two looks.
    let counted = holder.fleet.dollars_per_hour();
    // One more kill, and then everything goes: by a holder that was not there before.
    world.is_calm = false;
    holder.replace(world.now_s);
    holder.fleet.close();
    let from_s = world.now_s;
    while !holder.fleet.is_empty() && world.now_s < from_s + 400.0 {
        world.now_s += STEP_S;
        world.is_calm = world.now_s > from_s + 200.0;
        let listed = world.list("a");
        if let Some(machines) = listed {
            holder.fleet.listed(world.now_s, &machines);
        }
        for action in holder.fleet.actions(world.now_s) {
            let Action::Release { number } = action else {
                return Err(format!("it asks for more: {action:?}"));
            };
            world.release(number);
        }
    }
    if !holder.fleet.is_empty() || world.alive() > 0 {
        return Err(format!("{} machines are left after the end: {:?}", world.alive(), world.machines));
    }
    Ok(format!("{most} {counted:.3} {} {}", world.created.len(), holder.fleet.spent_dollars(world.now_s)))
}

#[test]
fn whatever_happens_the_workers_run_in_the_end_and_nothing_is_left() {
    let (failures, _) = search::search(&search::seeds(0..300), 3, |seed, _| {
        let (first, second) = (play(seed), play(seed));
        match first == second {
            true => first.err(),
            false => Some(format!("two plays differ: {first:?} and {second:?}")),
        }
    });
    assert!(failures.is_empty(), "{failures:#?}");
}

/// A fleet of one worker whose first pool is the first supply's.
fn alone(supplies: Vec<Supply>) -> Fleet {
    let wanted = vec![(supplies[0].pool.clone(), 1)];
    let mut fleet = Fleet::new(supplies, wanted, SETTLE_S);
    fleet.need(1);
    fleet
}

fn requested(actions: &[Action]) -> Vec<(u64, &str, Market)> {
    let request = |action| match action {
        &Action::Request { number, ref pool, .. } => Some((number, pool.machine.as_str(), pool.market)),
        Action::Release { .. } => None,
    };
    actions.iter().filter_map(request).collect()
}

fn refusal() -> Result<(), ProviderError> {
    Err(ProviderError::Refused { provider: "world", why: "sold out".into() })
}

#[test]
fn a_pool_that_is_sold_out_is_stood_in_for_by_one_that_is_no_dearer() {
    let dear = supply("small", Market::OnDemand, 1.0);
    let mut fleet = alone(vec![
        supply("small", Market::Transient, 0.25),
        Supply { region: Some("west".into()), ..supply("far", Market::Transient, 0.1) },
        supply("other", Market::Transient, 0.2),
        dear.clone(),
    ]);
    assert_eq!(requested(&fleet.actions(0.0)), [(1, "small", Market::Transient)]);
    fleet.answered(1, 0.0, refusal());
    // Nothing is held, so that another region will do.
    assert_eq!(requested(&fleet.actions(1.0)), [(2, "far", Market::Transient)]);
    fleet.answered(2, 1.0, refusal());
    assert_eq!(requested(&fleet.actions(2.0)), [(3, "other", Market::Transient)]);
    fleet.answered(3, 2.0, refusal());
    assert!(!fleet.has_room(3.0));
    // What is dearer only stands in where time presses.
    assert_eq!(fleet.actions(3.0), []);
    fleet.set_urgent(true);
    assert_eq!(requested(&fleet.actions(4.0)), [(4, "small", Market::OnDemand)]);
    fleet.answered(4, 4.0, refusal());
    // Each is tried again after its pause, the first one first.
    assert_eq!(fleet.actions(9.0), []);
    assert_eq!(requested(&fleet.actions(10.5)), [(5, "small", Market::Transient)]);
    assert!(fleet.news().iter().any(|news| news.contains("no small transient for 10 s")));
}

#[test]
fn a_stand_in_of_a_pool_that_is_wanted_too_stays_and_a_batch_of_refusals_is_one_failure() {
    let (spot, steady) = (supply("spot", Market::Transient, 0.25), supply("steady", Market::OnDemand, 0.2));
    let wanted = vec![(spot.pool.clone(), 2), (steady.pool.clone(), 1)];
    let mut fleet = Fleet::new(vec![spot, steady], wanted, SETTLE_S);
    (1..=3).for_each(|worker| fleet.need(worker));
    let first = fleet.actions(0.0);
    let names: Vec<&str> = requested(&first).into_iter().map(|(_, name, _)| name).collect();
    assert_eq!(names, ["spot", "spot", "steady"]);
    (1..=2).for_each(|number| fleet.answered(number, 0.0, refusal()));
    fleet.answered(3, 0.0, Ok(()));
    let told = fleet.news();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("no spot transient for 10 s"), "{told:?}");
    assert_eq!(requested(&fleet.actions(1.0)).len(), 2, "others stand in");
    (4..=5).for_each(|number| fleet.answered(number, 1.0, Ok(())));
    // Once the pool may be asked again, nothing that works is replaced for its sake.
    assert!(fleet.has_room(11.0) && fleet.surplus().is_empty(), "{:?}", fleet.surplus());
    // Nor is a successor that was asked for while its predecessor was there.
    let (spot, steady) = (supply("spot", Market::Transient, 0.25), supply("steady", Market::OnDemand, 0.2));
    let wanted = vec![(spot.pool.clone(), 1), (steady.pool.clone(), 1)];
    let mut fleet = Fleet::new(vec![spot, steady], wanted, SETTLE_S);
    (1..=2).for_each(|worker| fleet.need(worker));
    assert_eq!(requested(&fleet.actions(0.0)).len(), 2);
    (1..=2).for_each(|number| fleet.answered(number, 0.0, Ok(())));
    fleet.need(3);
    assert_eq!(requested(&fleet.actions(1.0)), [(3, "spot", Market::Transient)]);
    fleet.answered(3, 1.0, refusal());
    assert_eq!(requested(&fleet.actions(2.0)), [(4, "steady", Market::OnDemand)]);
    fleet.answered(4, 2.0, Ok(()));
    fleet.dismiss(1);
    assert!(fleet.has_room(12.0) && fleet.surplus().is_empty(), "{:?}", fleet.surplus());
}

#[test]
fn a_machine_whose_worker_takes_part_runs_before_the_provider_says_so() {
    let mut fleet = alone(vec![supply("small", Market::OnDemand, 1.0)]);
    fleet.actions(0.0);
    fleet.answered(1, 0.0, Ok(()));
    fleet.joined(&[1], 10.0);
    fleet.close();
    assert_eq!(fleet.actions(46.0), [Action::Release { number: 1 }]);
    let rows = fleet.rows();
    assert_eq!(rows[0].running_s, Some(10.0));
    assert!((fleet.spent_dollars(46.0) - 0.01).abs() < 1e-12, "{}", fleet.spent_dollars(46.0));
}

#[test]
fn a_request_without_an_answer_is_said_again_with_its_tag() {
    let mut fleet = alone(vec![supply("small", Market::OnDemand, 1.0)]);
    assert_eq!(requested(&fleet.actions(0.0)), [(1, "small", Market::OnDemand)]);
    let lost = || Err(ProviderError::Unanswered { provider: "world", why: "late".into() });
    fleet.answered(1, 0.0, lost());
    assert_eq!(fleet.actions(0.5), []);
    assert_eq!(requested(&fleet.actions(2.5)), [(1, "small", Market::OnDemand)]);
    fleet.answered(1, 2.5, lost());
    // Its worker goes: it counts as held until it can no longer appear.
    fleet.dismiss(1);
    assert_eq!(fleet.actions(3.0), [Action::Release { number: 1 }]);
    fleet.listed(4.0, &[]);
    assert!(!fleet.is_empty());
    fleet.listed(2.5 + SETTLE_S + 1.0, &[]);
    assert!(fleet.is_empty());
}

#[test]
fn what_no_one_asked_for_is_released_and_what_comes_back_too() {
    let mut fleet = Fleet::new(vec![supply("small", Market::OnDemand, 1.0)], Vec::new(), SETTLE_S);
    let there = |number| Machine {
        tag: Tag { lease: "a".into(), number },
        phase: Phase::Runs { place: "n1".into(), notice: None },
    };
    fleet.listed(0.0, &[there(7)]);
    assert_eq!(fleet.actions(0.0), [Action::Release { number: 7 }]);
    assert_eq!(fleet.actions(1.0), []);
    assert_eq!(fleet.actions(6.0), [Action::Release { number: 7 }]);
    (0..2).for_each(|look| fleet.listed(7.0 + f64::from(look), &[]));
    assert!(fleet.is_empty());
    fleet.listed(9.0, &[there(7)]);
    assert!(!fleet.is_empty());
    assert_eq!(fleet.actions(12.0), [Action::Release { number: 7 }]);
}

#[test]
fn other_machines_take_the_place_of_those_that_are_no_longer_wanted() {
    let (small, large) = (supply("small", Market::OnDemand, 1.0), supply("large", Market::OnDemand, 2.0));
    let mut fleet = alone(vec![small, large.clone()]);
    fleet.actions(0.0);
    fleet.answered(1, 0.0, Ok(()));
    let runs = |number| Machine {
        tag: Tag { lease: "a".into(), number },
        phase: Phase::Runs { place: "n".into(), notice: None },
    };
    fleet.listed(1.0, &[runs(1)]);
    assert!(fleet.surplus().is_empty() && !fleet.has_room(1.0));
    fleet.want(vec![(large.pool, 1)]);
    assert_eq!(fleet.surplus(), [(1, 1)]);
    fleet.need(2);
    assert_eq!(requested(&fleet.actions(2.0)), [(2, "large", Market::OnDemand)]);
    fleet.answered(2, 2.0, Ok(()));
    fleet.listed(3.0, &[runs(1), runs(2)]);
    fleet.dismiss(1);
    assert_eq!(fleet.actions(4.0), [Action::Release { number: 1 }]);
    // An hour of the first and two of the second.
    assert!((fleet.spent_dollars(3601.0) - (1.0 + 2.0 * 3598.0 / 3600.0)).abs() < 1e-9);
}

#[test]
fn several_workers_share_a_machine_of_several_devices() {
    let mut fleet = alone(vec![Supply { devices: 4, ..supply("box", Market::OnDemand, 4.0) }]);
    (2..=6).for_each(|worker| fleet.need(worker));
    fleet.want(vec![(pool("box", Market::OnDemand), 2)]);
    let mut actions = fleet.actions(0.0);
    assert_eq!(actions.len(), 1, "the second waits for further workers");
    fleet.answered(1, 0.0, Ok(()));
    assert_eq!(fleet.actions(1.0), []);
    actions.extend(fleet.actions(1.6));
    let seats: Vec<&[u64]> = actions
        .iter()
        .map(|action| match action {
            Action::Request { workers, .. } => workers.as_slice(),
            Action::Release { .. } => &[],
        })
        .collect();
    assert_eq!(seats, [&[1, 2, 3, 4][..], &[5, 6][..]]);
}

#[test]
fn what_stands_in_stays_until_other_machines_are_wanted() {
    let (first, other) = (supply("small", Market::Transient, 0.25), supply("other", Market::Transient, 0.25));
    let mut fleet = alone(vec![first, other.clone()]);
    fleet.actions(0.0);
    fleet.answered(1, 0.0, refusal());
    assert_eq!(requested(&fleet.actions(1.0)), [(2, "other", Market::Transient)]);
    fleet.answered(2, 1.0, Ok(()));
    let tag = Tag { lease: "a".into(), number: 2 };
    fleet.listed(2.0, &[Machine { tag, phase: Phase::Runs { place: "n".into(), notice: None } }]);
    // Nothing is exchanged for what was refused, also when it may be asked again.
    assert!(fleet.surplus().is_empty() && !fleet.has_room(2.0) && fleet.has_room(60.0));
    fleet.want(vec![(pool("small", Market::Transient), 1)]);
    assert_eq!(fleet.surplus(), [(1, 2)]);
}
