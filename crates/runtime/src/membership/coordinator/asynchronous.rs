//! Phases without a membership: the coordinator grants units one by one, and servers hold the parameters.
//!
//! A phase begins where a membership has handed its state over: its members stopped at the boundary, and rank 0 sent
//! the state to the coordinator. The servers load it, the workers are told where they are, and units are granted until
//! the next boundary (the next change of the protocol, a checkpoint, the end of the run). There the servers hand their
//! shards over, and either the same phase goes on, or another one or a membership begins from that state.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bellwether_core::plan::Synchronisation;
use bellwether_core::prediction::Protocol;
use bellwether_core::record::{Event as Journal, PhaseSummary, Staleness};

use super::{Action, Coordinator, Kept, Lifecycle, Stage, Starts};
use crate::membership::work_queue::{Rule, WorkQueue};
use crate::membership::{Load, Membership, Peer, Phase, Reason, ServerReport, ToWorker, WorkerId};
use servers::Server;

mod accounts;
mod losses;
mod servers;
mod units;

/// What a phase is about to do.
#[derive(Debug, Clone, PartialEq)]
enum Part {
    /// Servers are started, and load the state after this step.
    Loading { step: u64 },
    /// Units are granted.
    Training,
    /// All units before this step are done; the state is on its way to the coordinator.
    Collecting { step: u64 },
}

/// What the coordinator knows of phases, whether one is under way or not.
#[derive(Debug, Clone)]
pub(super) struct Asynchronous {
    plan: Synchronisation,
    /// Units of a step.
    per_step: u64,
    /// Changes of the protocol that are to come, by their first step.
    upcoming: VecDeque<(u64, Protocol)>,
    /// Who waits for whom now.
    protocol: Protocol,
    servers: BTreeMap<WorkerId, Server>,
    /// Who holds each shard.
    shards: Vec<Option<WorkerId>>,
    /// Who would take it over.
    replicas: Vec<Option<WorkerId>>,
    server_starts: Starts,
    /// Shards whose steps are done again, and what to report once a server holds them again.
    redone: Vec<losses::Redone>,
    part: Part,
    /// The state that is collected has come.
    whole: bool,
    /// When it was asked for.
    asked_s: f64,
    work_queue: WorkQueue,
    /// Units that are done, of steps that are not committed.
    tally: BTreeMap<u64, crate::membership::StepRecord>,
    /// When the last step ended.
    boundary_s: f64,
    /// When training paused for the current transition.
    idle_since_s: f64,
    evaluated: u64,
    reports: BTreeMap<WorkerId, ServerReport>,
    /// Of phases that are over.
    staleness: Staleness,
    summaries: Vec<PhaseSummary>,
}

/// The phases that are to come when `committed` steps are done, first the one to be in.
fn upcoming(plan: &Synchronisation, committed: u64) -> VecDeque<(u64, Protocol)> {
    let mut upcoming: VecDeque<(u64, Protocol)> = plan.phases.iter().copied().collect();
    while upcoming.get(1).is_some_and(|(step, _)| *step <= committed) {
        upcoming.pop_front();
    }
    if let Some((step, _)) = upcoming.front_mut() {
        *step = committed.max(*step);
    }
    upcoming
}

impl Asynchronous {
    pub(super) fn new(plan: Synchronisation, per_step: u64, committed: u64) -> Self {
        Asynchronous {
            per_step,
            upcoming: upcoming(&plan, committed),
            protocol: Protocol::Bsp,
            servers: BTreeMap::new(),
            shards: Vec::new(),
            replicas: Vec::new(),
            server_starts: Starts::default(),
            redone: Vec::new(),
            part: Part::Training,
            whole: false,
            asked_s: 0.0,
            work_queue: WorkQueue::new(0..0, per_step, Rule::Free),
            tally: BTreeMap::new(),
            boundary_s: 0.0,
            idle_since_s: 0.0,
            evaluated: committed,
            reports: BTreeMap::new(),
            staleness: Staleness::default(),
            summaries: Vec::new(),
            plan,
        }
    }

    /// The run goes on from the state after `step`, in the phase that this belongs to.
    pub(super) fn resume_at(&mut self, step: u64) {
        if self.summaries.is_empty() {
            self.upcoming = upcoming(&self.plan, step);
        }
    }

    /// Whether steps of this protocol are done without a membership.
    fn is_asynchronous(&self, protocol: Protocol) -> bool {
        !protocol.waits_for_all() || self.plan.reduce_at_servers
    }

    /// Whether some phase has local steps.
    fn has_local_steps(&self) -> bool {
        self.plan.phases.iter().any(|(_, protocol)| protocol.is_local())
    }

    /// How the members of a membership keep together after `step`.
    fn together_at(&self, step: u64) -> Protocol {
        let phase = self.plan.phases.iter().rfind(|(from, _)| *from <= step);
        phase.map(|(_, protocol)| *protocol).filter(|p| p.waits_for_all()).unwrap_or(Protocol::Bsp)
    }

    fn needs_servers(&self, protocol: Protocol) -> bool {
        self.is_asynchronous(protocol) && protocol != Protocol::Gossip
    }

    /// The next change that ends the membership in force, and its first step.
    fn next_change(&self) -> Option<(u64, Protocol)> {
        self.upcoming.iter().copied().find(|(_, protocol)| self.is_asynchronous(*protocol))
    }
}

impl Coordinator {
    /// The boundary at which a membership is to hand its state over.
    pub(super) fn hands_over_at(&self) -> Option<u64> {
        self.asynchronous
            .next_change()
            .map(|(step, _)| step)
            .filter(|step| self.total_steps.is_none_or(|t| *step < t))
    }

    /// The membership that ends all training together, once everything else is settled.
    pub(super) fn hand_over(
        &self,
        members: &[WorkerId],
        shadows: &[WorkerId],
    ) -> Option<(Membership, Reason)> {
        let (step, protocol) = self.asynchronous.next_change()?;
        self.hands_over_at()?;
        let next =
            Membership { from_step: step, hold_at: None, stop: true, ..self.compose(members, shadows) };
        Some((next, Reason::Protocol { next: protocol.to_string() }))
    }

    /// Who waits for whom from a boundary on, as asked; what was planned for later is void.
    pub(super) fn ask_protocol(&mut self, at_step: u64, protocol: Protocol) {
        let upcoming = &mut self.asynchronous.upcoming;
        upcoming.retain(|(step, _)| *step < at_step);
        // A run that sums at its servers never has a membership as a phase.
        let present = self.lifecycle == Lifecycle::Asynchronous || !self.asynchronous.plan.reduce_at_servers;
        let present = present.then_some(self.asynchronous.protocol);
        if Some(protocol) != upcoming.back().map(|(_, last)| *last).or(present) {
            upcoming.push_back((at_step, protocol));
        }
    }

    /// All have stopped at `step` and the coordinator holds their state. What follows is what is wanted by now: another
    /// protocol may have been asked for since they were told to stop.
    pub(super) fn begin_asynchronous(&mut self, step: u64) {
        let mut protocol = self.asynchronous.protocol;
        while let Some((_, next)) = self.asynchronous.upcoming.front().filter(|(at, _)| *at <= step) {
            protocol = *next;
            self.asynchronous.upcoming.pop_front();
        }
        if !self.asynchronous.is_asynchronous(protocol) {
            return self.leave_asynchronous(step);
        }
        self.keep_staleness(step);
        self.proposed.clear();
        self.suspect_at_s = None;
        if self.lifecycle != Lifecycle::Asynchronous {
            self.asynchronous.idle_since_s = self.now_s;
        }
        self.paused.clear();
        self.end_phase(step);
        self.lifecycle = Lifecycle::Asynchronous;
        self.asynchronous.protocol = protocol;
        self.load_asynchronous(step);
    }

    /// Every worker begins again from the state after `step`.
    fn load_asynchronous(&mut self, step: u64) {
        self.last_epoch += 1;
        self.dismiss_leaving();
        for worker in self.workers.values_mut() {
            worker.finished = None;
            worker.kept = Kept::Nothing;
            if !matches!(worker.stage, Stage::Started | Stage::Booting) {
                worker.stage = Stage::Standby;
            }
        }
        self.current = Membership { epoch: self.last_epoch, ..Membership::default() }.into();
        let asynchronous = &mut self.asynchronous;
        asynchronous.part = Part::Loading { step };
        let shards = if asynchronous.needs_servers(asynchronous.protocol) {
            asynchronous.plan.servers.max(1) as usize
        } else {
            0
        };
        asynchronous.shards = vec![None; shards];
        asynchronous.replicas = vec![None; if asynchronous.plan.replica { shards } else { 0 }];
        asynchronous.servers.values_mut().for_each(Server::stand_by);
        asynchronous.reports.clear();
        asynchronous.tally.clear();
    }

    /// Workers that asked to leave go: the coordinator holds the state.
    fn dismiss_leaving(&mut self) {
        for worker in self.staged(Stage::Leaving) {
            self.dismiss(worker, "it asked to leave");
            self.close(worker);
        }
    }

    /// Goes on with a phase, as far as things stand.
    pub(super) fn advance_phase(&mut self) {
        if let Some(failure) = self.failure.take() {
            return self.give_up(failure);
        }
        self.follow_schedule();
        self.spawn_missing();
        self.spawn_servers();
        self.give_up_stuck_servers();
        self.end_if_hopeless();
        if self.lifecycle != Lifecycle::Asynchronous {
            return;
        }
        match self.asynchronous.part {
            Part::Loading { step } if self.stopping => self.leave_asynchronous(step),
            Part::Loading { step } => {
                self.assign(Some(step));
                if self.are_served() {
                    self.train_asynchronous(step);
                }
            }
            Part::Training => {
                self.assign(None);
                self.admit();
                self.reap_leaving();
                self.halt_if_asked();
                for (worker, units) in self.asynchronous.work_queue.grants() {
                    let epoch = self.current.epoch;
                    self.send(worker, ToWorker::Grant { epoch, units });
                }
                let over =
                    self.asynchronous.work_queue.is_over() && self.asynchronous.work_queue.in_flight() == 0;
                if over && self.are_served() {
                    self.commit_units();
                    self.collect(self.asynchronous.work_queue.steps_complete());
                }
            }
            Part::Collecting { .. } => self.assign(None),
        }
    }

    fn train_asynchronous(&mut self, step: u64) {
        let asynchronous = &self.asynchronous;
        let rule = match asynchronous.protocol {
            Protocol::Bsp | Protocol::Local(_) => Rule::Together,
            Protocol::Ssp(bound) => Rule::Bounded(bound),
            Protocol::Asp | Protocol::Gossip => Rule::Free,
        };
        let per_step = asynchronous.per_step;
        let units = step * per_step..self.boundary_after(step) * per_step;
        self.asynchronous.work_queue = WorkQueue::new(units, per_step, rule);
        self.asynchronous.part = Part::Training;
        self.asynchronous.boundary_s = self.now_s;
        let stall_s = self.now_s - self.asynchronous.idle_since_s;
        self.tell_redone();
        self.enter_phase(step, self.asynchronous.protocol, stall_s);
        // Units are granted as soon as workers have come and asked.
        self.admit();
    }

    /// The first boundary after `step` at which the state is to be collected.
    fn boundary_after(&self, step: u64) -> u64 {
        let total = self.total_steps.unwrap_or(u64::MAX / self.asynchronous.per_step);
        let change = self.asynchronous.upcoming.front().map_or(total, |(at, _)| (*at).max(step + 1));
        let checkpoint = match self.config.checkpoint_every {
            0 => total,
            every => (step / every + 1) * every,
        };
        total.min(change).min(checkpoint)
    }

    /// Ends the phase at the next possible boundary when that was asked for.
    fn halt_if_asked(&mut self) {
        let asked = self
            .asynchronous
            .upcoming
            .front()
            .is_some_and(|(at, _)| *at <= self.asynchronous.work_queue.steps_complete());
        if self.stopping || asked || self.is_checkpoint_due() {
            self.asynchronous.work_queue.halt(0);
        }
    }

    /// Takes warm workers in, up to the number wanted, and tells those that are spare to go.
    fn admit(&mut self) {
        let wanted = self.wanted as usize;
        let mut active = self.staged(Stage::Active);
        let mut changed = false;
        for worker in self.staged(Stage::Standby) {
            if active.len() >= wanted + self.replacing.len() {
                break;
            }
            self.workers.get_mut(&worker).expect("it is staged").stage = Stage::Active;
            self.asynchronous.work_queue.join(worker);
            active.push(worker);
            self.send_phase(worker);
            changed = true;
        }
        while active.len() > wanted.max(1) {
            let goes = active.iter().rposition(|id| self.replacing.contains(id)).unwrap_or(active.len() - 1);
            let worker = active.remove(goes);
            self.workers.get_mut(&worker).expect("it is staged").stage = Stage::Leaving;
            changed = true;
        }
        if changed {
            self.renew(&active, Reason::Resize { wanted: self.wanted });
        }
    }

    /// Writes down who trains from now on.
    fn renew(&mut self, active: &[WorkerId], reason: Reason) {
        let epoch = self.current.epoch;
        // Units go to any worker that asks; the shares are nominal.
        let nodes = self.config.virtual_nodes as usize;
        self.current = Membership { epoch, ..self.compose(&active[..active.len().min(nodes)], &[]) }.into();
        self.journal_membership(self.progress.committed(), &reason);
        if self.asynchronous.protocol == Protocol::Gossip {
            for worker in active {
                self.send_phase(*worker);
            }
        }
    }

    /// Lets those go that were asked to and have done their units.
    fn reap_leaving(&mut self) {
        for worker in self.staged(Stage::Leaving) {
            self.asynchronous.work_queue.leave(worker);
            if self.asynchronous.work_queue.workers().all(|id| id != worker) {
                self.dismiss(worker, "it is not needed any more");
                self.close(worker);
                let active = self.staged(Stage::Active);
                self.renew(&active, Reason::Leave { worker });
            }
        }
    }

    fn send_phase(&mut self, worker: WorkerId) {
        if self.asynchronous.shards.iter().any(Option::is_none) {
            // All workers are told once each shard has a holder again.
            return;
        }
        let peer = |id: &WorkerId| Peer { worker: *id, address: self.address(*id) };
        let gossips = self.asynchronous.protocol == Protocol::Gossip;
        let peers = if gossips { self.staged(Stage::Active) } else { Vec::new() };
        let phase = Phase {
            epoch: self.current.epoch,
            protocol: self.asynchronous.protocol,
            servers: self.asynchronous.shards.iter().flatten().map(peer).collect(),
            peers: peers.iter().filter(|id| **id != worker).map(peer).collect(),
            order: self.asynchronous.plan.order.clone(),
            checkpoint: self.checkpoint.filter(|_| gossips),
            late: self.checkpoint.is_some_and(|step| step < self.progress.committed()),
        };
        self.send(worker, ToWorker::Phase(phase));
    }

    fn address(&self, id: WorkerId) -> String {
        let server = self.asynchronous.servers.get(&id).map(|server| server.address.clone());
        server.or_else(|| self.workers.get(&id).map(|w| w.address.clone())).unwrap_or_default()
    }

    fn collect(&mut self, step: u64) {
        self.asynchronous.part = Part::Collecting { step };
        self.asynchronous.whole = false;
        self.asynchronous.asked_s = self.now_s;
        self.asynchronous.idle_since_s = self.now_s;
        // Who handed over before may hang by now: what counts is who does so again.
        self.asynchronous.reports.values_mut().for_each(|report| report.handed_over = None);
        let epoch = self.current.epoch;
        let holders = match self.asynchronous.protocol {
            Protocol::Gossip => self.staged(Stage::Active),
            _ => self.asynchronous.shards.iter().flatten().copied().collect(),
        };
        self.actions.push(Action::Collect { step, holders: holders.clone() });
        for holder in holders {
            self.send(holder, ToWorker::HandOver { epoch, step });
        }
    }

    /// The whole state after `step` is at the coordinator, or could not be put together.
    pub(super) fn collected(&mut self, step: u64, result: &Result<(), String>) {
        if self.asynchronous.part != (Part::Collecting { step }) || self.lifecycle != Lifecycle::Asynchronous
        {
            return;
        }
        if let Err(why) = result {
            self.journal(Journal::Warning {
                message: format!("the state of step {step} did not come: {why}"),
            });
            return self.collect(step);
        }
        self.checkpoint = self.checkpoint.max(Some(step));
        self.asynchronous.whole = true;
        self.end_collection(step);
    }

    fn has_handed_over(&self, server: WorkerId, step: u64) -> bool {
        self.asynchronous.reports.get(&server).is_some_and(|report| report.handed_over == Some(step))
    }

    fn have_handed_over(&self, step: u64) -> bool {
        self.asynchronous.shards.iter().flatten().all(|server| self.has_handed_over(*server, step))
    }

    /// Goes on once the state and the accounts of all that hold it have come.
    fn end_collection(&mut self, step: u64) {
        if !self.asynchronous.whole || !self.have_handed_over(step) {
            return;
        }
        let over = self.total_steps.is_some_and(|total| step >= total);
        let change = self.asynchronous.upcoming.front().copied().filter(|(at, _)| *at <= step);
        match change {
            _ if over || self.stopping => self.leave_asynchronous(step),
            Some(_) => self.begin_asynchronous(step),
            None => {
                let end = self.boundary_after(step) * self.asynchronous.per_step;
                self.asynchronous.work_queue.extend(end);
                self.asynchronous.part = Part::Training;
                self.advance_phase();
            }
        }
    }

    /// A membership goes on from `step`.
    fn leave_asynchronous(&mut self, step: u64) {
        self.keep_staleness(step);
        self.dismiss_leaving();
        self.end_phase(step);
        self.asynchronous.protocol = Protocol::Bsp;
        self.asynchronous.idle_since_s = self.now_s;
        let mut members = self.staged(Stage::Active);
        members.extend(self.staged(Stage::Standby));
        members.truncate(self.wanted as usize);
        self.strays.clear();
        let known: BTreeSet<WorkerId> = members.iter().copied().collect();
        self.replacing.retain(|id| known.contains(id));
        if members.is_empty() {
            self.current = Membership::default().into();
            self.lifecycle = Lifecycle::Gathering { grace_until_s: self.now_s };
            return;
        }
        let next = self.asynchronous.together_at(step).to_string();
        self.form(&members, Some(Load::Checkpoint(step)), Reason::Protocol { next });
    }
}
