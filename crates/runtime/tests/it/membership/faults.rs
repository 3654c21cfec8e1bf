//! What goes wrong, and what people ask for.

use bellwether_core::record::Event as Journal;
use bellwether_runtime::membership::coordinator::Event;
use bellwether_runtime::membership::{FromWorker, WorkerId};

use super::control::HEARTBEAT_TIMEOUT_S;
use super::scenario::Fault;
use super::world::{Happening, World};

impl World {
    fn living(&self) -> Vec<WorkerId> {
        self.processes.iter().filter(|(_, p)| p.alive).map(|(id, _)| *id).collect()
    }

    /// Something goes wrong.
    pub(crate) fn fault(&mut self, fault: Fault) {
        if self.end.is_some() {
            return;
        }
        // Mostly workers that have come up: a run that never begins shows little.
        let warm = self.random.chance(0.9) && fault != Fault::KillAll;
        let living: Vec<WorkerId> =
            self.living().into_iter().filter(|id| !warm || self.processes[id].warm).collect();
        self.note(|| format!("fault {fault:?}"));
        self.watch.disturbed_s = self.now;
        match fault {
            Fault::Kill => {
                if let Some(id) = self.random.pick(&living) {
                    self.kill(id);
                }
            }
            Fault::KillSeveral => {
                for id in living {
                    if self.random.chance(0.5) {
                        self.kill(id);
                    }
                }
            }
            Fault::KillAll => living.into_iter().for_each(|id| self.kill(id)),
            Fault::KillCoordinator => {
                if self.random.chance(0.5) {
                    self.kill_coordinator();
                } else {
                    self.dies_after = Some(self.random.below(5));
                }
            }
            Fault::Glitch => {
                if let Some(id) = self.random.pick(&living) {
                    self.glitch(id);
                }
            }
            Fault::Silence => {
                if let Some(id) = self.random.pick(&living) {
                    self.stand_still(id);
                }
            }
            Fault::GlitchSeveral => {
                for id in living {
                    if self.random.chance(0.6) {
                        self.glitch(id);
                    }
                }
            }
            Fault::Pause => {
                let (seconds, behind) = (self.pause_s(), self.random.chance(0.5));
                self.pause(seconds, behind);
            }
            Fault::PauseAll => self.stand_still_all(),
            Fault::BreakLink => {
                let (a, b) = (self.random.pick(&living), self.random.pick(&living));
                if let (Some(a), Some(b)) = (a, b)
                    && a != b
                {
                    self.break_link(a, b);
                }
            }
            Fault::Hang | Fault::SilentLink | Fault::HalfOpen => self.hide(fault, &living),
            asked => self.ask(asked, &living),
        }
    }

    /// Something goes wrong that is not reported.
    fn hide(&mut self, fault: Fault, living: &[WorkerId]) {
        match fault {
            Fault::Hang => {
                if let Some(id) = self.random.pick(living) {
                    self.hang(id);
                }
            }
            Fault::SilentLink => {
                let (a, b) = (self.random.pick(living), self.random.pick(living));
                if let (Some(a), Some(b)) = (a, b)
                    && a != b
                {
                    self.silence_link(a, b);
                }
            }
            Fault::HalfOpen => {
                if let Some(id) = self.random.pick(living) {
                    self.half_open(id);
                }
            }
            _ => unreachable!("it is told"),
        }
    }

    /// A user wants something.
    fn ask(&mut self, fault: Fault, living: &[WorkerId]) {
        match fault {
            Fault::Leave => {
                if let Some(id) = self.random.pick(living) {
                    self.ask_to_leave(id, false);
                }
            }
            Fault::Scale => {
                let workers = 1 + self.random.below(u64::from(self.scenario.virtual_nodes) + 1) as u32;
                self.scale(workers);
            }
            Fault::Join => self.join_by_hand(),
            Fault::Revoke => {
                if let Some(id) = self.random.pick(living) {
                    self.revoke(id);
                }
            }
            Fault::Replace => {
                if let Some(id) = self.random.pick(living) {
                    self.tell(Event::Replace(id));
                }
            }
            Fault::Accumulate => {
                let steps = 1 + self.random.below(u64::from(self.scenario.max_accumulation)) as u32;
                self.tell(Event::Accumulate(steps));
            }
            Fault::Speeds => {
                let mut speed = || self.random.between(0.1, 1.0);
                let speeds = living.iter().map(|id| (*id, speed())).collect();
                self.tell(Event::Speeds(speeds));
                if self.random.chance(0.3)
                    && let Some(id) = self.random.pick(living)
                {
                    self.tell(Event::LeaveOut(id));
                }
            }
            _ => {}
        }
    }

    /// A worker begins something rare: a good moment for trouble.
    pub(crate) fn snipe(&mut self, id: WorkerId) {
        if !self.in_fault_lifecycle() || !self.random.chance(self.scenario.sniper) {
            return;
        }
        let has = |world: &World, fault| world.scenario.has(fault);
        let victim = if self.random.chance(0.5) { Some(id) } else { self.random.pick(&self.living()) };
        let Some(victim) = victim else { return };
        self.watch.disturbed_s = self.now;
        let delay = self.random.between(0.0, 0.004);
        if has(self, Fault::KillCoordinator) && self.random.chance(0.4) {
            self.after(delay, Happening::Fault(Fault::KillCoordinator));
        } else if has(self, Fault::Glitch) && self.random.chance(0.4) {
            self.glitch(victim);
        } else if has(self, Fault::Kill) {
            self.kill(victim);
        }
    }

    fn stand_still(&mut self, id: WorkerId) {
        let seconds = self.pause_s();
        let process = self.process(id);
        if !process.still {
            (process.still, process.stood_still) = (true, true);
            self.after(seconds, Happening::Resume(id));
        }
    }

    /// How long something stands still.
    fn pause_s(&mut self) -> f64 {
        let long = self.random.chance(0.5);
        self.random.between(0.05, if long { 2.5 * HEARTBEAT_TIMEOUT_S } else { 0.5 })
    }

    /// The whole machine stands still, with all that live on it.
    fn stand_still_all(&mut self) {
        let seconds = self.pause_s();
        // Where the coordinator does not stand still for as long, the workers do for themselves.
        let asynchronous = self.coordinator.is_none() || self.still.is_some();
        for id in self.living() {
            let process = self.process(id);
            if !process.still {
                (process.still, process.stood_still) = (true, process.stood_still || asynchronous);
                self.after(seconds, Happening::Resume(id));
            }
        }
        self.pause(seconds, false);
    }

    /// A worker that stood still goes on; what came meanwhile is there at once.
    pub(crate) fn resume(&mut self, id: WorkerId) {
        let process = self.process(id);
        process.still = false;
        for happening in std::mem::take(&mut process.deferred) {
            self.after(0.0, happening);
        }
    }

    fn ask_to_leave(&mut self, id: WorkerId, replace: bool) {
        self.process(id).leaving = true;
        if self.processes[&id].session.is_some() {
            self.send_up(id, FromWorker::Leave { replace });
        }
    }

    /// The server is gone some time after its notice, whether the worker has left by then or not.
    fn revoke(&mut self, id: WorkerId) {
        self.tell(Event::Revoked(id));
        self.ask_to_leave(id, true);
        let notice_s = self.random.between(0.0, 1.0);
        self.after(notice_s, Happening::Revoked(id));
    }

    /// Someone wants another number of workers.
    pub(crate) fn scale(&mut self, workers: u32) {
        self.watch.disturbed_s = self.now;
        self.asked = Some(workers);
        if self.coordinator.is_some() {
            self.journal.push(Journal::ScaleRequested { workers, by: "test".into() });
            self.tell(Event::Scale(workers));
        }
    }

    /// Someone wants the run to stop.
    pub(crate) fn ask_to_stop(&mut self) {
        if self.coordinator.is_none() {
            return self.after(0.5, Happening::Stop);
        }
        if self.end.is_none() {
            self.watch.stop_asked = true;
            self.tell(Event::Stop);
        }
    }

    fn join_by_hand(&mut self) {
        let Some(coordinator) = self.coordinator.as_mut().filter(|_| self.still.is_none()) else { return };
        let known = coordinator.workload().is_some();
        let id = coordinator.new_worker();
        let alien = known && self.random.chance(0.1);
        if self.processes.contains_key(&id) {
            return self.violate(format!("worker number {id} is given twice"));
        }
        self.create_process(id, None, if alien { "b" } else { "a" });
        self.welcome_by_hand(id);
    }

    /// The operator starts workers by hand if there are fewer than wanted.
    pub(crate) fn operate(&mut self) {
        if let Some(coordinator) = &self.coordinator
            && self.end.is_none()
            && self.still.is_none()
        {
            let wanted = coordinator.wanted() as usize;
            let here = self.processes.values().filter(|p| p.alive && !p.leaving).count();
            if here < wanted {
                self.join_by_hand();
            }
        }
        let delay = self.random.between(0.1, 0.6);
        self.after(delay, Happening::Operator);
    }
}
