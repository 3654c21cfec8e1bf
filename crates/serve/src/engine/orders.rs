//! From what was decided to what processes are told: said again and again until it is so.

use std::collections::BTreeMap;
use std::time::Duration;

use bellwether_core::cluster::{Allocation, JobId};
use bellwether_core::policy::Fault;

use super::{Engine, Live};
use crate::clock::Clock;
use crate::ledger::{Entry, Outcome};
use crate::machine::Slot;
use crate::runner::{JobRunner, Wanted};
use crate::state::State;

/// Between a failure and the next try, doubled with every failure.
const RETRY_AFTER: Duration = Duration::from_millis(200);

impl<C: JobRunner, T: Clock> Engine<C, T> {
    /// Processes that were there when the last daemon died are taken over.
    pub(super) fn adopt(&mut self) -> Result<(), Fault> {
        let open = self.state.jobs.iter().filter(|(_, record)| record.end.is_none());
        let held = open.map(|(id, _)| (*id, self.state.slots.of(*id))).filter(|(_, slots)| !slots.is_empty());
        for (job, slots) in held.collect::<Vec<_>>() {
            let is_leaving = self.state.jobs.get(&job).is_some_and(|record| record.leaving);
            let target = if is_leaving { 0 } else { self.state.target(job).devices() };
            let speed = self.speed(&slots);
            match target.min(slots.len() as u32) {
                0 => self.order_leave(job, speed)?,
                workers => self.order(job, workers, speed),
            }
        }
        self.adopt_elsewhere()?;
        for job in self.state.unsettled.iter().copied().collect::<Vec<_>>() {
            self.order_leave(job, 1.0)?;
        }
        Ok(())
    }

    /// Brings processes nearer to what was decided.
    pub(super) fn give_orders(&mut self) -> Result<(), Fault> {
        let live = &self.live;
        self.ordered.retain(|job| live.get(job).is_some_and(|live| live.order.is_some()));
        // Those who hold nothing by the last decision may still have processes.
        let mut jobs = self.state.active.holding.clone();
        jobs.extend(self.state.slots.holders());
        jobs.extend(self.ordered.iter().filter(|job| !self.state.active.elsewhere.contains(job)));
        // Jobs that give slots up come before those that take them.
        let target = |engine: &Engine<C, T>, job: &JobId| engine.state.target(*job);
        for job in &jobs {
            let allocation = target(self, job);
            self.give_up(*job, &allocation)?;
        }
        for job in &jobs {
            let allocation = target(self, job);
            if !allocation.is_empty() {
                self.claim(*job, &allocation)?;
            }
        }
        self.obtain()?;
        let has_none = |job: &JobId| self.live.get(job).is_none_or(|live| live.order.is_none());
        let gone: Vec<JobId> = self.state.active.closing.iter().copied().filter(has_none).collect();
        for job in gone {
            let step = self.step(job);
            self.end(job, Outcome::Cancelled, String::new(), step, None)?;
        }
        Ok(())
    }

    /// Processes that are too many, or on slots of another speed, are told to leave.
    fn give_up(&mut self, job: JobId, allocation: &Allocation) -> Result<(), Fault> {
        let target = allocation.devices();
        let Some((workers, speed)) = self.live.get(&job).and_then(|live| live.order) else {
            // Its processes failed, and before they were tried again the wish was withdrawn.
            if target == 0 && !self.state.slots.of(job).is_empty() {
                let step = self.step(job);
                self.write(Entry::Stopped { job, step, why: String::new(), unix_s: None })?;
            }
            return Ok(());
        };
        if workers == 0 {
            return Ok(());
        }
        if target == 0 || self.speed_of(allocation) != speed {
            return self.order_leave(job, speed);
        }
        let held = self.state.slots.of(job);
        if target < workers {
            // Which pods end follows from where the others go on.
            let kept = self.state.machine.pods.then(|| self.keep(job, allocation, &held));
            self.order_on(job, target, speed, kept.as_deref().unwrap_or(&held));
        }
        // That so few train does not say that the others are gone: some may be starting, of whom nothing has been
        // heard.
        let is_settled = self
            .live
            .get(&job)
            .is_some_and(|live| live.settled && live.order.is_some_and(|(workers, _)| workers == target));
        if is_settled && held.len() as u32 > target {
            let slots = self.keep(job, allocation, &held);
            self.write(Entry::Held { job, slots })?;
            if self.state.machine.is_cluster() {
                // Those that go on where another job is next have to move.
                self.commit()?;
                self.order(job, target, speed);
            }
        }
        Ok(())
    }

    /// Of the slots that a job holds, those to keep.
    fn keep(&self, job: JobId, allocation: &Allocation, held: &[Slot]) -> Vec<Slot> {
        let found = self.slots_for(job, allocation);
        found.unwrap_or_else(|| held[..(allocation.devices() as usize).min(held.len())].to_vec())
    }

    /// Slots for an allocation, those that the job holds first.
    pub(super) fn slots_for(&self, job: JobId, allocation: &Allocation) -> Option<Vec<Slot>> {
        let State { machine, slots, .. } = &self.state;
        slots.find(machine, |node| self.state.is_up(node), job, allocation)
    }

    /// On which nodes processes on these slots are.
    fn places(&self, slots: &[Slot]) -> Option<BTreeMap<String, u32>> {
        let machine = &self.state.machine;
        machine.is_cluster().then(|| {
            let mut places = BTreeMap::new();
            for slot in slots {
                if let Some(node) = machine.nodes.get(slot.node.0 as usize) {
                    *places.entry(node.name.clone()).or_default() += 1;
                }
            }
            places
        })
    }

    /// Slots that are free are taken, and processes started on them.
    fn claim(&mut self, job: JobId, allocation: &Allocation) -> Result<(), Fault> {
        let speed = self.speed_of(allocation);
        if !self.state.unsettled.is_empty() {
            return Ok(());
        }
        let (target, now) = (allocation.devices(), self.clock.elapsed());
        let held = self.state.slots.of(job);
        let machine = &self.state.machine;
        let (is_cluster, is_of_pods) = (machine.is_cluster(), machine.pods);
        let is_stranded = held.iter().any(|slot| !self.state.is_up(slot.node));
        // No pod comes to a node that is down, so they would not settle. A pod that still runs there keeps its place by
        // itself; of processes elsewhere only what settles says that a slot is free.
        let is_beyond_waiting = is_of_pods && is_stranded;
        let live = self.live.entry(job).or_default();
        let ordered = match live.order {
            // They leave; when they are gone, others start.
            Some((0, _)) => return Ok(()),
            // What should shrink has not shrunk yet, and what is heard of that would be taken for news of the growth.
            Some((workers, _)) if !live.settled && !is_beyond_waiting && held.len() as u32 > workers => {
                return Ok(());
            }
            Some((workers, _)) => workers,
            None if live.not_before.is_some_and(|time| now < time) => return Ok(()),
            None => 0,
        };
        // On the machine that plays all nodes, moving from one to another of equal speed is a matter of names. On a
        // cluster processes move only if they must.
        let is_move = ordered == target && held.len() as u32 == target;
        if ordered == target && !is_beyond_waiting && !(is_move && (!is_cluster || is_stranded)) {
            return Ok(());
        }
        let Some(mut slots) = self.slots_for(job, allocation) else {
            return Ok(());
        };
        if !is_move {
            // What it holds elsewhere is given up when no more processes are there than should be.
            let may_stay = |slot: &Slot| !is_of_pods || self.state.is_up(slot.node);
            let stays = |slot: &&Slot| !slots.contains(slot) && may_stay(slot);
            slots.extend(held.iter().filter(stays).copied().collect::<Vec<_>>());
            slots.sort_unstable();
        }
        if slots != held {
            self.write(Entry::Held { job, slots })?;
        } else if ordered == target {
            return Ok(());
        }
        if is_move && !is_cluster {
            return Ok(());
        }
        // A reader of the ledger must know of processes before there are any.
        self.commit()?;
        self.order(job, target, speed);
        Ok(())
    }

    /// Lets all of a job's processes leave. That it was we who wanted it must be known even if we are gone by then.
    pub(super) fn order_leave(&mut self, job: JobId, speed: f64) -> Result<(), Fault> {
        if self.state.jobs.get(&job).is_some_and(|record| !record.leaving) {
            self.write(Entry::Leaving { job })?;
            self.commit()?;
        }
        self.order(job, 0, speed);
        Ok(())
    }

    /// Wants this many of the slots that a job holds used, for workers and servers.
    fn order(&mut self, job: JobId, slots: u32, speed: f64) {
        self.order_on(job, slots, speed, &self.state.slots.of(job));
    }

    /// Wants this many of these slots used.
    pub(super) fn order_on(&mut self, job: JobId, slots: u32, speed: f64, on: &[Slot]) {
        let Some(record) = self.state.jobs.get(&job) else { return };
        let known_end_unix_s = record.run_ended_unix_s;
        let profiles = record.after_profile.is_some();
        let workers = record.workers_on(slots);
        let servers = record.submitted.servers.min(slots.saturating_sub(workers));
        let provision = record.submitted.provision.as_ref();
        let slurm = self.slurm().filter(|_| provision.is_none());
        let is_elsewhere = provision.is_some();
        // A provider that this program does not know was one of a later release.
        let provision = provision.map(|of| of.kind().map(|kind| (kind, of.listen))).transpose();
        let prepared = provision
            .map_err(|error| error.to_string())
            .and_then(|provision| Ok(((self.options.prepare)(&record.submitted, slurm)?, provision)));
        let (run, provision) = match prepared {
            Ok(prepared) => prepared,
            Err(why) => {
                // The runner says the same of every start that fails.
                let _ = self.faults.send(crate::runner::Report::Lost { job, why });
                self.live.entry(job).or_default().order = Some((slots, speed));
                self.ordered.insert(job);
                return;
            }
        };
        let live: &mut Live = self.live.entry(job).or_default();
        let begins = live.order.replace((slots, speed)).is_none();
        (live.not_before, live.settled) = (None, false);
        self.ordered.insert(job);
        // Servers are the coordinator's own affair: it starts as many as the job says.
        let places = self.places(on).filter(|_| !is_elsewhere);
        self.runner.want(Wanted {
            job,
            run,
            workers,
            servers,
            speed,
            places,
            profiles,
            provision,
            begins,
            known_end_unix_s,
        });
    }

    /// How long a job waits before it is tried again.
    pub(super) fn delay(&mut self, job: JobId, failures: u32) {
        let after = RETRY_AFTER * 2_u32.saturating_pow(failures.saturating_sub(1).min(8));
        self.live.entry(job).or_default().not_before = Some(self.clock.elapsed() + after);
    }

    /// The speed at which workers on these slots run together: that of the slowest.
    fn speed(&self, slots: &[Slot]) -> f64 {
        self.slowest(slots.iter().map(|slot| slot.node.0))
    }

    fn speed_of(&self, allocation: &Allocation) -> f64 {
        self.slowest(allocation.shares().iter().map(|share| share.node.0))
    }

    fn slowest(&self, nodes: impl Iterator<Item = u32>) -> f64 {
        let machine = &self.state.machine;
        let speed = |node: u32| {
            let node = machine.nodes.get(node as usize)?;
            Some(machine.device_types.get(usize::from(node.device_type))?.speed)
        };
        nodes.filter_map(speed).fold(1.0, f64::min)
    }
}
