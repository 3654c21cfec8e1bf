//! What does not change while a coalition is simulated: who can run where, in which order, and who may wait.

use std::ops::Range;

use bellwether_core::InputError;

use super::{Admission, Class, Demand, Length, Priority, System, check, length};
use crate::queue::capacity;

/// A coalition that is ready to be simulated.
#[derive(Debug, Clone)]
pub struct Simulator {
    pub(super) system: System,
    /// The sites that take part, by their numbers in the system.
    pub(super) members: Vec<usize>,
    pub(super) groups: Vec<GroupPlan>,
    /// Groups of each member.
    pub(super) owned: Vec<Range<usize>>,
    /// Seconds per work of each class (outer) on each group (inner); 0 where it cannot run.
    pub(super) seconds_per_work: Vec<f64>,
    /// Of each member (outer) and class (inner).
    pub(super) options: Vec<Options>,
    /// Jobs per second of each class that each member's home finishes when it is full; the pool's come last.
    pub(super) rates_per_s: Vec<f64>,
    /// Whether any job holds several servers, so that one may wait while servers are free.
    pub(super) gangs: bool,
    pub(super) begin_s: f64,
    pub(super) end_s: f64,
}

/// A group of servers of a member.
#[derive(Debug, Clone, Copy)]
pub(super) struct GroupPlan {
    pub(super) member: u32,
    pub(super) kind: usize,
    pub(super) servers: u32,
    pub(super) shared: u32,
}

/// What a job of one class and one member may do at home and in the pool.
#[derive(Debug, Clone, Default)]
pub(super) struct Options {
    pub(super) home: Vec<Candidate>,
    pub(super) pool: Vec<Candidate>,
    /// Jobs that may wait, by count.
    pub(super) home_room: u64,
    pub(super) pool_room: u64,
}

/// A group on which a job can run; those of one rank are as good as each other.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    pub(super) group: u32,
    pub(super) rank: u32,
}

impl Simulator {
    /// Prepares the simulation of the coalition of `members`, the numbers of sites of the system in order. One alone
    /// has no other to share with: it keeps all its servers.
    ///
    /// # Errors
    ///
    /// Returns an error for a system that makes no sense (rates, speeds, shares, traces), a class with demand that no
    /// site of the system can run, an unknown member, an invalid length.
    pub fn new(system: &System, members: &[usize], run: &Length) -> Result<Simulator, InputError> {
        check::system(system)?;
        check::members(system, members)?;
        let mut simulator = Simulator {
            system: system.clone(),
            members: members.to_vec(),
            groups: Vec::new(),
            owned: Vec::new(),
            seconds_per_work: Vec::new(),
            options: Vec::new(),
            rates_per_s: Vec::new(),
            gangs: system.classes.iter().any(|class| class.devices > 1),
            begin_s: 0.0,
            end_s: 0.0,
        };
        simulator.add_groups();
        simulator.add_options();
        let (warm_up_s, measured_s) = length::seconds(&simulator, run)?;
        (simulator.begin_s, simulator.end_s) = (warm_up_s, warm_up_s + measured_s);
        Ok(simulator)
    }

    /// The sites that take part, by their numbers in the system.
    pub fn members(&self) -> &[usize] {
        &self.members
    }

    /// What arrives at the members.
    pub(super) fn demands(&self) -> impl Iterator<Item = &Demand> {
        self.members.iter().flat_map(|member| &self.system.sites[*member].demands)
    }

    fn add_groups(&mut self) {
        let alone = self.members.len() == 1;
        for (number, member) in self.members.iter().enumerate() {
            let first = self.groups.len();
            self.groups.extend(self.system.sites[*member].groups.iter().map(|group| GroupPlan {
                member: number as u32,
                kind: group.kind,
                servers: group.servers,
                shared: if alone { 0 } else { group.shared },
            }));
            self.owned.push(first..self.groups.len());
        }
        let per_work = |speed: f64| if speed > 0.0 { 1.0 / speed } else { 0.0 };
        for class in &self.system.classes {
            let groups = self.groups.iter().map(|group| per_work(class.speeds[group.kind]));
            self.seconds_per_work.extend(groups);
        }
    }

    /// Servers of a group that a place may use: the home of a member, or the pool (`None`).
    fn usable(&self, group: &GroupPlan, home: Option<u32>) -> u32 {
        match home {
            None => group.shared,
            Some(member) if group.member != member => 0,
            Some(_) if self.system.priority == Priority::Owners => group.servers,
            Some(_) => group.servers - group.shared,
        }
    }

    /// Gangs that a place holds at once, and jobs per second that it finishes then.
    fn capacity(&self, class: &Class, home: Option<u32>) -> (u64, f64) {
        let mut capacity = (0, 0.0);
        for group in &self.groups {
            let speed = class.speeds[group.kind];
            if speed > 0.0 {
                let gangs = self.usable(group, home) / class.devices;
                capacity.0 += u64::from(gangs);
                capacity.1 += f64::from(gangs) * (speed / class.work.mean);
            }
        }
        capacity
    }

    fn add_options(&mut self) {
        let members = 0..self.members.len() as u32;
        for member in members.clone() {
            for number in 0..self.system.classes.len() {
                let options = self.options_of(member, number);
                self.options.push(options);
            }
        }
        for home in members.map(Some).chain([None]) {
            let rates = self.system.classes.iter().map(|class| self.capacity(class, home).1);
            let rates: Vec<f64> = rates.collect();
            self.rates_per_s.extend(rates);
        }
    }

    fn options_of(&self, member: u32, class: usize) -> Options {
        let site = &self.system.sites[self.members[member as usize]];
        let class = &self.system.classes[class];
        let room = |home| match self.capacity(class, home) {
            (0, _) => 0,
            (gangs, rate_per_s) => capacity(gangs, rate_per_s / gangs as f64, site.longest_wait_s) - gangs,
        };
        Options {
            home: self.candidates(class, member, Some(member)),
            pool: self.candidates(class, member, None),
            home_room: room(Some(member)),
            pool_room: room(None),
        }
    }

    /// The groups of a place on which a class can run, best first.
    fn candidates(&self, class: &Class, member: u32, home: Option<u32>) -> Vec<Candidate> {
        let mut found: Vec<(f64, bool, u32)> = Vec::new();
        for (number, group) in self.groups.iter().enumerate() {
            let speed = class.speeds[group.kind];
            if speed > 0.0 && self.usable(group, home) >= class.devices {
                let foreign = group.member != member;
                let transfer_s = if foreign { class.transfer_s } else { 0.0 };
                found.push((class.work.mean / speed + transfer_s, foreign, number as u32));
            }
        }
        found.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)));
        let mut rank = 0;
        let mut candidates = Vec::with_capacity(found.len());
        for (place, (seconds, foreign, group)) in found.iter().enumerate() {
            let same = place > 0 && (found[place - 1].0, found[place - 1].1) == (*seconds, *foreign);
            rank += u32::from(place > 0 && !same);
            candidates.push(Candidate { group: *group, rank });
        }
        candidates
    }

    /// Whether rooms are counted.
    pub(super) fn counts(&self) -> bool {
        self.system.admission == Admission::Count
    }

    /// Whether owners come first.
    pub(super) fn owners_first(&self) -> bool {
        self.system.priority == Priority::Owners
    }
}
