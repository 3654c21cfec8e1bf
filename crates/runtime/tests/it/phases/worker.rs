//! Simulated workers: the real [`Member`], and a shell that does at once what it says.

use std::collections::BTreeMap;

use bellwether_core::prediction::Protocol;
use bellwether_runtime::membership::member::{Effect, Member, Rules, Task};
use bellwether_runtime::membership::{
    EvaluationRecord, FromWorker, Load, Membership, Report, ToWorker, UnitRecord, WorkerId,
    WorkloadDescription,
};

use super::world::{State, Trade, World};

/// For each shard the version pulled, and the server that acknowledged.
type Shards = BTreeMap<u32, (u64, Option<WorkerId>)>;

/// A worker process.
#[derive(Debug, Clone)]
pub(crate) struct Worker {
    pub(crate) member: Member,
    pub(crate) warm: bool,
    state: Option<State>,
    /// The unit under way: its phase, and how far each shard is.
    unit: Option<(u64, u64, Shards)>,
    /// The phase in which it asked for units.
    asked: Option<u64>,
}

impl Worker {
    pub(crate) fn disconnected(&mut self) {
        self.member.disconnected();
        (self.unit, self.asked) = (None, None);
    }
}

impl World {
    pub(crate) fn new_worker(&self, id: WorkerId) -> Worker {
        let rules = Rules {
            total_steps: self.plan.total_steps,
            evaluate_every: self.plan.evaluate_every,
            checkpoint_every: self.plan.checkpoint_every,
            slices: false,
            sharded: false,
            verdict_every: 0,
            batches: None,
            rounds: None,
        };
        Worker { member: Member::new(id, rules), warm: false, state: None, unit: None, asked: None }
    }

    fn worker(&mut self, id: WorkerId) -> Option<&mut Worker> {
        let process = self.processes.get_mut(&id).filter(|process| process.alive)?;
        match &mut process.trade {
            Trade::Worker(worker) => Some(worker),
            Trade::Server(_) => None,
        }
    }

    pub(crate) fn worker_hears(&mut self, id: WorkerId, message: ToWorker) {
        if let ToWorker::Phase(phase) = &message
            && phase.servers.len() != self.plan.synchronisation.servers as usize
        {
            return self.violate(format!("worker {id} is told {phase:?}"));
        }
        let Some(worker) = self.worker(id) else { return };
        let effects = worker.member.message(message);
        let epoch = worker.member.phase().map(|phase| phase.epoch);
        if worker.unit.as_ref().is_some_and(|unit| Some(unit.0) != epoch) {
            worker.unit = None;
        }
        self.carry_out_effects(id, effects);
    }

    fn carry_out_effects(&mut self, id: WorkerId, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Interrupt => {}
                Effect::Send(message) => self.say(id, message),
                Effect::Prepare(membership) => {
                    let lacking = membership.new_peers(id).into_iter().map(|peer| peer.0);
                    let lacking: Vec<WorkerId> = lacking.filter(|peer| !self.is_alive(*peer)).collect();
                    let Some(worker) = self.worker(id) else { return };
                    let result = lacking.first().map_or(Ok(()), |peer| Err((*peer, "no connection".into())));
                    let effects = worker.member.prepared(membership, result);
                    self.carry_out_effects(id, effects);
                }
            }
        }
    }

    fn is_alive(&self, id: WorkerId) -> bool {
        self.processes.get(&id).is_some_and(|process| process.alive)
    }

    /// A worker does what its member says, or a part of that.
    pub(crate) fn worker_works(&mut self, id: WorkerId) {
        let Some(worker) = self.worker(id) else { return };
        if !worker.warm {
            worker.warm = true;
            return self.say(id, FromWorker::Warmed(WorkloadDescription::default()));
        }
        let task = worker.member.next_task();
        match task {
            Task::Wait
            | Task::CatchUp { .. }
            | Task::BeginShadow
            | Task::Train
            | Task::Evaluate
            | Task::Hold => {
                self.together(id, task);
            }
            Task::Form { membership, load } => self.form(id, &membership, load),
            Task::Checkpoint => {
                self.upload(id);
                self.worker(id).expect("it works").member.checkpointed();
            }
            Task::Switch(membership) => {
                let (epoch, newcomer) = (membership.epoch, membership.shadows(id));
                let worker = self.worker(id).expect("it works");
                worker.member.switched(membership);
                let step = worker.member.step();
                if !newcomer {
                    self.begun.insert(epoch, step);
                }
                self.report(id);
            }
            Task::Finish => {
                let worker = self.worker(id).expect("it works");
                let first = worker.member.membership().rank(id) == Some(0);
                let mut digest = [0; 32];
                let state = worker.state.clone().unwrap_or_default();
                digest[..8].copy_from_slice(&state.iter().fold(0, |sum, units| sum ^ units).to_le_bytes());
                if first {
                    self.upload(id);
                }
                self.report(id);
                let effects = self.worker(id).expect("it works").member.finished(digest);
                self.carry_out_effects(id, effects);
            }
            Task::Unit(unit) => self.compute(id, unit),
            Task::Idle => {
                let worker = self.worker(id).expect("it works");
                let epoch = worker.member.phase().map(|phase| phase.epoch);
                if let Some(epoch) = epoch.filter(|epoch| worker.asked != Some(*epoch)) {
                    worker.asked = Some(epoch);
                    self.say(id, FromWorker::Units { epoch, done: Vec::new(), want: 2 });
                }
            }
            Task::EvaluateAlone(step) => {
                self.worker(id).expect("it works").member.evaluated_alone();
                let record = EvaluationRecord { step, loss: 1.0, correct: 0, predictions: 0, samples: 1 };
                self.say(id, FromWorker::Report(Report { evaluations: vec![record], ..Report::default() }));
            }
            Task::HandOver(step) => self.violate(format!("worker {id} is to hand over step {step}")),
            Task::Leave => {
                let worker = self.worker(id).expect("it works");
                let (epoch, step) = (worker.member.membership().epoch, worker.member.step());
                self.say(id, FromWorker::Left { epoch, step });
                self.speak_all(id);
                self.kill(id);
            }
            Task::Exit { .. } => self.kill(id),
        }
    }

    fn report(&mut self, id: WorkerId) {
        let member = &self.worker(id).expect("it reports").member;
        let (epoch, step) = (member.membership().epoch, member.step());
        self.say(id, FromWorker::Report(Report { epoch, step, ..Report::default() }));
    }

    fn upload(&mut self, id: WorkerId) {
        let worker = self.worker(id).expect("it uploads");
        if let Some(state) = worker.state.clone() {
            let step = worker.member.step();
            self.received(step, state);
        }
    }

    fn form(&mut self, id: WorkerId, membership: &Membership, load: Option<Load>) {
        let dead = membership.peers(id).into_iter().map(|peer| peer.0).find(|peer| !self.is_alive(*peer));
        let loaded = match load {
            None => None,
            Some(Load::Fresh) => Some((0, vec![0; self.plan.synchronisation.servers as usize])),
            Some(Load::Checkpoint(step)) => match self.state_after(step) {
                Some(state) => Some((step, state)),
                None => return self.violate(format!("worker {id} is to load step {step}, which is nowhere")),
            },
        };
        let worker = self.worker(id).expect("it works");
        let step = loaded.as_ref().map(|loaded| loaded.0);
        if let Some((_, state)) = loaded {
            worker.state = Some(state);
        }
        let result = dead.map_or(Ok(()), |peer| Err((Some(peer), "no connection".to_string())));
        let effects = worker.member.formed(membership.epoch, step, result);
        self.carry_out_effects(id, effects);
    }

    /// A collective: it ends for all at once when every worker is there, and fails for those that wait for the dead.
    fn together(&mut self, id: WorkerId, task: Task) {
        let membership = self.worker(id).expect("it works").member.membership().clone();
        let epoch = membership.epoch;
        if matches!(task, Task::Wait) {
            return;
        }
        let peers: Vec<WorkerId> = membership.active.iter().map(|member| member.worker).collect();
        let everyone: Vec<WorkerId> =
            peers.iter().copied().chain(membership.shadows.iter().map(|shadow| shadow.worker)).collect();
        for peer in &peers {
            // A worker that is in another membership, or gone, or waits for the coordinator, has closed its
            // connections.
            let here = self.worker(*peer).is_some_and(|peer| peer.member.membership().epoch >= epoch.min(1));
            let later = self.worker(*peer).is_none_or(|other| {
                other.member.membership().epoch > epoch || other.member.phase().is_some()
            });
            if !here || later {
                let effects = self.worker(id).expect("it works").member.failed(
                    epoch,
                    Some(*peer),
                    "connection lost".into(),
                );
                return self.carry_out_effects(id, effects);
            }
        }
        if let Task::BeginShadow = task {
            return self.begin_shadow(id, epoch, &peers);
        }
        // A newcomer takes part once it has begun.
        let mut all = everyone;
        all.retain(|other| {
            let begun = |w: &mut Worker| w.state.is_some() && w.member.membership().epoch == epoch;
            peers.contains(other) || self.worker(*other).is_some_and(|w| w.member.is_shadow() && begun(w))
        });
        let ready = all.iter().all(|other| {
            self.worker(*other)
                .is_some_and(|w| w.member.membership().epoch == epoch && w.member.next_task() == task)
        });
        let step = self.worker(id).expect("it works").member.step();
        let same = all.iter().all(|other| self.worker(*other).is_some_and(|w| w.member.step() == step));
        let catches_up = matches!(task, Task::CatchUp { .. });
        if ready && (same || catches_up) {
            self.complete(&task, &all, &peers, step);
        }
    }

    fn begin_shadow(&mut self, id: WorkerId, epoch: u64, peers: &[WorkerId]) {
        let begun = peers.iter().all(|peer| {
            self.worker(*peer).is_some_and(|w| w.member.membership().epoch == epoch && w.member.is_active())
        });
        let Some(source) = peers.first().copied().filter(|_| begun) else { return };
        let source = self.worker(source).expect("it has begun");
        let (step, state) = (source.member.step(), source.state.clone());
        let late = self.begun.get(&epoch) != Some(&step);
        let worker = self.worker(id).expect("it works");
        if late {
            // The others did not wait; it is asked in again.
            let effects = worker.member.failed(epoch, Some(peers[0]), "too late".into());
            return self.carry_out_effects(id, effects);
        }
        worker.member.shadow_began(step);
        worker.state = state;
        let effects = worker.member.shadow_complete();
        self.carry_out_effects(id, effects);
    }

    fn complete(&mut self, task: &Task, all: &[WorkerId], peers: &[WorkerId], step: u64) {
        let mut offers = Vec::new();
        for peer in all {
            let offer = self.worker(*peer).expect("it is ready").member.offer(task);
            if peers.contains(peer) {
                offers.push(offer);
            }
        }
        let per_step = self.plan.per_step;
        let units = ((1u64 << per_step) - 1) << (step * per_step);
        for peer in all {
            let worker = self.worker(*peer).expect("it is ready");
            match task {
                Task::Evaluate => worker.member.evaluated(),
                Task::CatchUp { .. } => {
                    let before = worker.member.step();
                    worker.member.caught_up_with_result();
                    if worker.member.step() > before {
                        let units = ((1u64 << per_step) - 1) << (before * per_step);
                        worker.state.iter_mut().flatten().for_each(|shard| *shard |= units);
                    }
                }
                _ => worker.member.round_done(task, &offers),
            }
            if *task == Task::Train {
                worker.state.iter_mut().flatten().for_each(|shard| *shard |= units);
            }
            self.report(*peer);
        }
    }

    /// A bit of a unit: the servers are asked for what they hold, or one of them gets the gradient.
    fn compute(&mut self, id: WorkerId, unit: u64) {
        let Some(phase) = self.worker(id).and_then(|worker| worker.member.phase().cloned()) else {
            return;
        };
        let epoch = phase.epoch;
        let under_way = self.worker(id).and_then(|worker| worker.unit.take());
        let under_way = under_way.filter(|(of, number, _)| (*of, *number) == (epoch, unit));
        let Some((_, _, mut shards)) = under_way else {
            let mut pulled = BTreeMap::new();
            for (shard, server) in (0..).zip(&phase.servers) {
                let Some(duty) = self.duty(server.worker, epoch) else { return };
                pulled.insert(shard, (duty.version, None));
            }
            if let Some(worker) = self.worker(id) {
                worker.unit = Some((epoch, unit, pulled));
            }
            return;
        };
        let open: Vec<u32> =
            shards.iter().filter(|(_, (_, by))| by.is_none()).map(|(shard, _)| *shard).collect();
        if let Some(shard) = self.random.pick(&open) {
            let server = phase.servers[shard as usize].worker;
            let pulled = shards[&shard].0;
            if self.push(server, epoch, shard, unit, pulled) {
                shards.insert(shard, (pulled, Some(server)));
            }
            if let Some(worker) = self.worker(id) {
                worker.unit = Some((epoch, unit, shards));
            }
            return;
        }
        let want = if matches!(phase.protocol, Protocol::Asp) { 2 } else { 1 };
        if let Some(worker) = self.worker(id) {
            worker.member.unit_done(unit);
        }
        let record = UnitRecord { unit, samples: 1, loss_sum: 1.0, ..UnitRecord::default() };
        self.say(id, FromWorker::Units { epoch, done: vec![record], want });
    }
}
