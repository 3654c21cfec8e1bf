//! Monte Carlo: many runs of one job, each with lifetimes of its own.

use bellwether_core::InputError;
use bellwether_des::{Simulation, Streams};

use super::job::{Effect, Job, PLACE, Speeds};
use super::outcome::{Outcomes, Run};
use super::progress::Progress;
use crate::common::check;

/// A run that has lost this many servers is given up: its servers are gone before they can do anything.
const LOSSES_MAX: u32 = 100_000;
const HOUR_S: f64 = 3600.0;

#[derive(Debug, Clone, Copy)]
enum Happens {
    Joins,
    Lost,
}

/// One place for a server: the server that holds it, and the luck of all that ever do.
#[derive(Debug)]
struct Slot {
    group: usize,
    /// When its server began to run, or will.
    runs_from_s: f64,
    lost_at_s: f64,
    works: bool,
    luck: bellwether_des::Stream,
}

struct Running<'a> {
    job: &'a Job,
    speeds: &'a Speeds,
    clock: Simulation<(usize, Happens)>,
    slots: Vec<Slot>,
    progress: Progress,
    state: usize,
    working: u32,
    /// When the first worker began.
    began_s: Option<f64>,
    must_restore: bool,
    run: Run,
}

/// Runs a job `runs` times, each with the luck of its number and `seed`: the same server of the same run lives equally
/// long in two jobs of one seed, whatever else differs. `speed` is the work per second by workers at work in each group
/// of servers.
///
/// # Errors
///
/// Returns an error for a job that cannot be run (see [`Job`]'s fields), no runs, a speed that is negative or not
/// finite.
pub fn simulate(
    job: &Job,
    speed: impl Fn(&[u32]) -> f64,
    runs: u32,
    seed: u64,
) -> Result<Outcomes, InputError> {
    job.check()?;
    check::not_positive(PLACE, "the number of runs", f64::from(runs))?;
    let speeds = Speeds::new(job, speed)?;
    let streams = Streams::new(seed);
    let all = (0..runs).map(|number| Running::new(job, &speeds, &streams, number).finish());
    Ok(Outcomes::new(all.collect()))
}

impl<'a> Running<'a> {
    fn new(job: &'a Job, speeds: &'a Speeds, streams: &Streams, number: u32) -> Running<'a> {
        let groups = job.servers.iter().enumerate();
        let slots = groups.flat_map(|(group, servers)| (0..servers.count).map(move |_| group));
        let slots = slots.zip(0u64..).map(|(group, slot)| Slot {
            group,
            runs_from_s: 0.0,
            lost_at_s: f64::INFINITY,
            works: false,
            luck: streams.stream("lifetime", (u64::from(number) << 32) | slot),
        });
        let mut running = Running {
            job,
            speeds,
            clock: Simulation::new(),
            slots: slots.collect(),
            progress: Progress::new(job.checkpoints),
            state: 0,
            working: 0,
            began_s: None,
            must_restore: false,
            run: Run::default(),
        };
        let mut seen = vec![0; job.servers.len()];
        for slot in 0..running.slots.len() {
            let group = running.slots[slot].group;
            let place: usize = seen[group];
            seen[group] += 1;
            match job.ages_s.get(group).and_then(|ages_s| ages_s.get(place)) {
                Some(age_s) => running.take_over(slot, *age_s),
                None => running.request(slot),
            }
        }
        running
    }

    /// A server that is at work from the start: it lives on as one of its age does, and is paid from here on.
    fn take_over(&mut self, number: usize, age_s: f64) {
        let slot = &mut self.slots[number];
        let law = &self.job.servers[slot.group].law;
        let gone = law.cdf(age_s);
        let life_s = law.lifetime_s(gone + slot.luck.uniform() * (1.0 - gone));
        slot.lost_at_s = (life_s - age_s).max(0.0);
        self.schedule(0.0, number, Happens::Joins);
    }

    /// Requests a server: the next thing that happens to it is that its worker joins, or that it is lost before.
    fn request(&mut self, number: usize) {
        let slot = &mut self.slots[number];
        let servers = &self.job.servers[slot.group];
        slot.runs_from_s = self.clock.now() + servers.provision_s;
        slot.lost_at_s = slot.runs_from_s + servers.law.sample(&mut slot.luck);
        let joins_at_s = slot.runs_from_s + servers.join_s;
        let (time_s, what) = if slot.lost_at_s < joins_at_s {
            (slot.lost_at_s, Happens::Lost)
        } else {
            (joins_at_s, Happens::Joins)
        };
        self.schedule(time_s, number, what);
    }

    /// What lies beyond the horizon never happens.
    fn schedule(&mut self, time_s: f64, slot: usize, what: Happens) {
        if time_s <= self.job.horizon_s {
            self.clock.at(time_s, (slot, what));
        }
    }

    fn finish(mut self) -> Run {
        loop {
            let end_s = self.progress.end_s(self.job.work);
            let next_s = self.clock.next_time().unwrap_or(f64::INFINITY);
            if end_s <= next_s && end_s <= self.job.horizon_s {
                return self.close(end_s, true);
            }
            let Some((slot, what)) = self.clock.step() else {
                // Workers that work now do so to the horizon; when none does or will, the run is over at once.
                let last_s = if self.working > 0 { self.job.horizon_s } else { self.clock.now() };
                return self.close(last_s, false);
            };
            self.progress.advance(self.clock.now());
            match what {
                Happens::Joins => self.join(slot),
                Happens::Lost if self.lose(slot) || self.run.losses >= LOSSES_MAX => {
                    let now_s = self.clock.now();
                    return self.close(now_s, false);
                }
                Happens::Lost => {}
            }
        }
    }

    fn join(&mut self, number: usize) {
        let now_s = self.clock.now();
        if self.must_restore {
            self.progress.pause(self.job.restore_s);
            self.must_restore = false;
        }
        // Those who begin together need not regroup.
        if now_s > *self.began_s.get_or_insert(now_s) && self.working > 0 {
            self.progress.pause(self.job.regroup_s);
        }
        let slot = &mut self.slots[number];
        slot.works = true;
        let (stride, lost_at_s) = (self.speeds.stride(slot.group), slot.lost_at_s);
        self.state += stride;
        self.working += 1;
        self.progress.set_speed(self.speeds.per_s(self.state));
        self.schedule(lost_at_s, number, Happens::Lost);
    }

    /// Takes a server away; whether that ends the run.
    fn lose(&mut self, number: usize) -> bool {
        self.run.losses += 1;
        self.bill(number, self.clock.now());
        let slot = &mut self.slots[number];
        let (worked, group) = (std::mem::replace(&mut slot.works, false), slot.group);
        slot.runs_from_s = f64::INFINITY;
        let losses = &self.job.losses;
        let mut effect = if number == 0 { losses.chief } else { Effect::GoesOn };
        if worked {
            effect = effect.max(losses.worker);
            self.state -= self.speeds.stride(group);
            self.working -= 1;
            self.progress.set_speed(self.speeds.per_s(self.state));
            if self.working == 0 {
                effect = effect.max(losses.last);
            } else {
                self.progress.pause(self.job.regroup_s);
            }
        }
        if effect == Effect::Ends {
            return true;
        }
        // A chief that never worked takes nothing with it.
        if worked && effect == Effect::RollsBack {
            self.run.repeated_work += self.progress.roll_back();
            self.must_restore = true;
        }
        if self.must_restore && self.working > 0 {
            self.progress.pause(self.job.restore_s);
            self.must_restore = false;
        }
        if self.job.servers[group].replaced {
            self.request(number);
        }
        false
    }

    /// Adds what the server that holds a slot has cost until a time.
    fn bill(&mut self, number: usize, until_s: f64) {
        let slot = &self.slots[number];
        let ran_s = (until_s - slot.runs_from_s).max(0.0);
        self.run.cost += ran_s / HOUR_S * self.job.servers[slot.group].price_per_hour;
    }

    fn close(mut self, end_s: f64, finished: bool) -> Run {
        for slot in 0..self.slots.len() {
            self.bill(slot, end_s);
        }
        self.run.cost += end_s / HOUR_S * self.job.fixed_price_per_hour;
        self.run.end_s = end_s;
        self.run.finished = finished;
        self.run
    }
}
