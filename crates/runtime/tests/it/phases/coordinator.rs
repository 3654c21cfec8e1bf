//! The coordinator's shell, and what must hold of all that it does.

use std::collections::{BTreeMap, VecDeque};

use bellwether_core::prediction::Protocol;
use bellwether_core::record::{Event as Journal, Line, RunFailure, RunOutcome};
use bellwether_runtime::journal::RunHistory;
use bellwether_runtime::membership::coordinator::{Action, Config, Coordinator, End, Event};
use bellwether_runtime::membership::{StepRecord, ToWorker, WorkerId};

use super::server::Server;
use super::world::{Process, State, Trade, Up, World};

impl World {
    /// A coordinator process begins, the first or a later one.
    pub(crate) fn start_coordinator(&mut self) {
        self.generation += 1;
        let lines = self.journal.iter().map(|event| Line { time_s: 0.0, event: event.clone() });
        let lines: Vec<Line> = lines.collect();
        let history: RunHistory = lines.iter().collect();
        let known = history.resumed().filter(|_| self.generation > 1);
        let started =
            Journal::CoordinatorStarted { process: 1, version: "0".into(), resumed: known.is_some() };
        self.journal.push(started);
        let config = Config {
            virtual_nodes: 4,
            wanted: self.plan.wanted,
            min_workers: 1,
            max_workers: 4,
            schedule: self.plan.schedule.clone(),
            spawns: self.plan.spawns,
            speeds: BTreeMap::new(),
            heartbeat_timeout_s: 1e9,
            boot_timeout_s: 1e9,
            reattach_grace_s: 1.0,
            max_barren_crashes: 1_000_000,
            max_accumulation: 1,
            resumed: known,
            checkpoint: self.stored.last_key_value().map(|(step, _)| *step),
            workload: None,
            synchronisation: self.plan.synchronisation.clone(),
            units_per_step: self.plan.per_step,
            evaluate_every: self.plan.evaluate_every,
            checkpoint_every: self.plan.checkpoint_every,
            checkpoint_period_s: if self.plan.checkpoint_every > 0 { 0.3 } else { 0.0 },
            slices: false,
            sharded: false,
            verdict_every: 0,
            verdict_needs_state: true,
            last_checkpoint_wait_s: 300.0,
            expected_step_s: None,
            replaces_alone: false,
        };
        let mut coordinator = Coordinator::new(config, self.now_s);
        coordinator.set_total_steps(self.plan.total_steps);
        self.note(|| "a coordinator begins".into());
        self.coordinator = Some(coordinator);
        self.coordinate(Event::Tick);
    }

    /// The coordinator process is gone at once, and what it held in memory.
    pub(crate) fn kill_coordinator(&mut self) {
        if self.end.is_some() || self.coordinator.take().is_none() {
            return;
        }
        self.note(|| "the coordinator is killed".into());
        let everyone: Vec<WorkerId> = self.processes.keys().copied().collect();
        everyone.into_iter().for_each(|id| self.disconnect(id));
        self.notices.clear();
        (self.held, self.collecting) = (None, None);
        self.writing.clear();
    }

    /// Hands an event to the coordinator and carries out what it wants.
    pub(crate) fn coordinate(&mut self, event: Event) {
        let now_s = self.now_s;
        let Some(coordinator) = self.coordinator.as_mut().filter(|_| self.end.is_none()) else { return };
        for action in coordinator.handle(event, now_s) {
            self.note(|| format!("coordinator does {action:?}"));
            match action {
                // A session's thread answers at once; silence has no consequence here.
                Action::Send(_, ToWorker::Inquire { .. }) => {}
                Action::Send(id, message) => match self.processes.get_mut(&id) {
                    Some(process) if process.connected => process.down.push_back(message),
                    Some(_) => {}
                    None => self.violate(format!("no worker has number {id}, which is told {message:?}")),
                },
                Action::Spawn(id) => self.create(id, false),
                Action::SpawnServer(id) => self.create(id, true),
                Action::Collect { step, holders } => self.collect(step, holders),
                Action::Close(id) => self.close(id),
                Action::Journal(event) => {
                    self.check_journal(&event);
                    self.journal.push(event);
                }
                Action::Committed(records) => self.check_records(&records),
                Action::End(end) => self.ended(end),
            }
        }
    }

    fn create(&mut self, id: WorkerId, serves: bool) {
        let trade = if serves {
            Trade::Server(Server::default())
        } else {
            Trade::Worker(Box::new(self.new_worker(id)))
        };
        let (up, down) = (VecDeque::new(), VecDeque::new());
        let process = Process { alive: true, connected: false, hangs: false, up, down, trade };
        if self.processes.insert(id, process).is_some() {
            self.violate(format!("the number {id} is given twice"));
        }
    }

    /// A person who runs the job by hand starts what is lacking.
    pub(crate) fn operate(&mut self) {
        if self.plan.spawns || self.end.is_some() {
            return;
        }
        let Some(coordinator) = &mut self.coordinator else { return };
        let wanted = coordinator.wanted() as usize;
        let copies = if self.plan.synchronisation.replica { 2 } else { 1 };
        let (mut workers, mut servers) = (0, 0);
        for process in self.processes.values().filter(|process| process.alive) {
            match process.trade {
                Trade::Worker(_) => workers += 1,
                Trade::Server(_) => servers += 1,
            }
        }
        let serves = servers < copies * self.plan.synchronisation.servers as usize;
        if serves || workers < wanted {
            let id = coordinator.new_worker();
            self.create(id, serves);
            // It has no number before its session is open.
            self.processes.get_mut(&id).expect("just created").connected = true;
            let address = format!("host:{id}");
            self.coordinate(match serves {
                true => {
                    Event::ServerAttached { server: id, address, process: 1, instance: id, waited_s: 0.0 }
                }
                false => Event::Attached {
                    worker: id,
                    address,
                    process: 1,
                    instance: id,
                    waited_s: 0.0,
                    held: None,
                    workload: None,
                },
            });
        }
    }

    /// The session is closed: the process reads what was sent before, and ends if it was told to; otherwise it comes
    /// back.
    fn close(&mut self, id: WorkerId) {
        self.notices.retain(|noticed| *noticed != id);
        let told = self.coordinator.as_ref().is_some_and(|coordinator| coordinator.was_dismissed(id));
        if !told {
            self.disconnect(id);
            return self.notices.retain(|noticed| *noticed != id);
        }
        if let Some(process) = self.processes.get_mut(&id).filter(|process| process.alive) {
            (process.alive, process.connected) = (false, false);
            self.forget_links(id);
        }
    }

    /// All that a process said before it went.
    pub(crate) fn speak_all(&mut self, id: WorkerId) {
        while let Some(up) = self.processes.get_mut(&id).and_then(|process| process.up.pop_front()) {
            if let super::world::Up::Said(message) = up {
                self.coordinate(Event::Said(id, message));
            }
        }
    }

    /// A state that can be loaded.
    pub(crate) fn state_after(&self, step: u64) -> Option<State> {
        let held = self.held.as_ref().filter(|held| held.0 == step).map(|held| held.1.clone());
        held.or_else(|| self.stored.get(&step).cloned())
    }

    fn collect(&mut self, step: u64, holders: Vec<WorkerId>) {
        match self.collecting.as_mut().filter(|(at, ..)| *at == step) {
            Some((_, known, _)) => *known = holders,
            None => self.collecting = Some((step, holders.clone(), vec![None; holders.len()])),
        }
    }

    /// A state from the members is in the coordinator's memory.
    pub(crate) fn received(&mut self, step: u64, state: State) {
        if self.coordinator.is_some() && self.end.is_none() {
            self.check_state(step, &state);
            self.held = Some((step, state.clone()));
            self.writing.push_back((step, state));
            self.coordinate(Event::Received(step));
        }
    }

    /// All shards of a state are in the coordinator's memory.
    pub(crate) fn collected(&mut self, step: u64, state: State) {
        self.check_state(step, &state);
        self.held = Some((step, state.clone()));
        self.writing.push_back((step, state));
        self.coordinate(Event::Collected(step, Ok(())));
    }

    /// The oldest state that waits for it is written, or cannot be.
    pub(crate) fn write_one(&mut self) {
        let Some((step, state)) = self.writing.pop_front() else { return };
        if self.random.chance(0.05) {
            return self.coordinate(Event::Checkpoint(step, Err("the disk is full".into())));
        }
        self.stored.insert(step, state);
        self.coordinate(Event::Checkpoint(step, Ok(())));
    }

    /// A state holds every unit before its step once, but for those that were told to be lost, and none beyond.
    fn check_state(&mut self, step: u64, state: &State) {
        let expected = self.before(step);
        for (shard, units) in state.iter().enumerate() {
            let (missing, beyond) = (expected & !units, units & !expected);
            let stated = self.watch.stated[shard];
            if beyond != 0 || u64::from(missing.count_ones()) > stated {
                let text = format!(
                    "after {step} steps shard {shard} lacks units {missing:b} ({stated} lost), and has {beyond:b}"
                );
                self.violate(text);
            }
        }
    }

    fn check_journal(&mut self, event: &Journal) {
        match event {
            Journal::Committed { first, last, .. } => {
                if *first != self.watch.committed || last < first {
                    let committed = self.watch.committed;
                    self.violate(format!("steps {first} to {last} are committed after {committed}"));
                }
                self.watch.committed = last + 1;
            }
            Journal::RolledBack { to } => {
                if *to >= self.watch.committed {
                    self.violate(format!("rolled back to {to} from {}", self.watch.committed));
                }
                self.watch.committed = *to;
                self.watch.counted &= self.before(*to);
            }
            Journal::ServerReplaced { shard, lost_updates, checkpoint, .. } => {
                self.watch.replaced += 1;
                // Where all wait for all, they are done again.
                self.watch.stated[*shard as usize] += lost_updates;
                if checkpoint.is_none() && *lost_updates > 0 {
                    self.violate(format!("a replica has lost {lost_updates} updates"));
                }
            }
            Journal::Protocol { step, protocol, servers, .. } => self.check_phase(*step, *protocol, *servers),
            Journal::Crashed { .. } => self.watch.crashed += 1,
            _ => {}
        }
    }

    fn check_phase(&mut self, step: u64, protocol: Protocol, servers: u32) {
        if step > self.plan.total_steps {
            self.violate(format!("a stretch begins at {step}"));
        }
        let synchronous = protocol == Protocol::Bsp;
        let through_servers = !synchronous || self.plan.synchronisation.reduce_at_servers;
        // A run that is asked to stop ends among the workers.
        let stops = synchronous && self.watch.stop_asked;
        if through_servers && !stops && servers != self.plan.synchronisation.servers {
            self.violate(format!("{protocol} goes through {servers} servers"));
        }
    }

    /// Each unit counts once, and in a step with all of its units.
    fn check_records(&mut self, records: &[StepRecord]) {
        let per_step = self.plan.per_step;
        for record in records.iter().filter(|record| !record.units.is_empty()) {
            let units = record.units.iter().fold(0u64, |units, unit| units | 1 << unit.unit);
            let of_step = ((1u64 << per_step) - 1) << (record.step * per_step);
            let twice = self.watch.counted & units != 0 || record.units.len() as u64 != per_step;
            if twice || units != of_step {
                self.violate(format!("step {} counts {:?}", record.step, record.units));
            }
            self.watch.counted |= units;
        }
    }

    fn ended(&mut self, end: End) {
        let right = match end.how {
            RunOutcome::Finished => self.watch.committed == self.plan.total_steps,
            RunOutcome::Stopped => self.watch.stop_asked,
            // A user who asks twice for an end while the disk is full means it.
            RunOutcome::Failed(RunFailure::Unsaved { .. }) => self.watch.stop_asked,
            // A process that is started by hand is not started again for ever.
            RunOutcome::Failed(_) => {
                let hopeless = ["no worker comes up", "no parameter server comes up"];
                self.plan.faults > 0 && hopeless.iter().any(|why| end.how.reason().contains(why))
            }
            RunOutcome::Broken(_) => false,
        };
        if !right {
            return self.violate(format!("the run ends with {end:?} after {} steps", self.watch.committed));
        }
        if end.how != RunOutcome::Stopped {
            self.end = Some(end);
            // A process that does not hear of it is ended.
            let hang = self.processes.iter().filter(|(_, process)| process.alive && process.hangs);
            hang.map(|(id, _)| *id).collect::<Vec<_>>().into_iter().for_each(|id| self.kill(id));
            // A process that knocks at this moment is not let in.
            let knocks = |process: &&mut Process| process.up.iter().any(|up| !matches!(up, Up::Said(_)));
            self.processes.values_mut().filter(knocks).for_each(|process| process.connected = false);
            return;
        }
        // It is resumed when all processes have ended.
        self.watch.stop_asked = false;
        while !self.writing.is_empty() {
            self.write_one();
        }
        self.coordinator = None;
        let everyone: Vec<WorkerId> = self.processes.keys().copied().collect();
        everyone.into_iter().for_each(|id| self.kill(id));
        self.notices.clear();
        (self.held, self.collecting) = (None, None);
    }
}
