//! A worker process: a [`Member`] and a model of the shell around it.

use std::ops::Range;

use bellwether_runtime::membership::member::{Effect, Member, Task};
use bellwether_runtime::membership::{EvaluationRecord, FromWorker, Load, Membership, Offer, Report};
use bellwether_runtime::membership::{StepRecord, SwitchRecord, ToWorker, WorkerId, WorkloadDescription};

use super::rounds::{Kind, pair};
use super::world::{Happening, World};
use crate::digests::{FRESH, applied};

/// The training state of a process.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct State {
    pub(crate) step: u64,
    pub(crate) digest: u64,
    /// Chunks are still missing.
    pub(crate) partial: bool,
}

/// What the main thread is doing.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Activity {
    /// Nothing, until something comes.
    Waiting,
    /// Gradients or an evaluation, before the collective.
    Computing { task: Task, epoch: u64, interrupted: bool },
    /// A collective.
    InRound { task: Task, epoch: u64, index: usize },
    /// Takes in the result of a collective.
    Applying { task: Task, epoch: u64, index: usize },
    /// Makes all connections again; `loading` is the first part of that.
    Forming { membership: Membership, load: Option<Load>, loading: bool, loaded: Option<u64> },
    /// Waits for the sources' first chunks.
    BeginningShadow { epoch: u64 },
    /// Hands on the last result, or receives it.
    CatchingUp { epoch: u64 },
    /// Adopts prepared connections.
    Switching(Membership),
    /// Begins an upload.
    Uploading,
    /// Hands everything over.
    Finishing,
    /// Goes.
    Leaving,
}

/// What the main thread has to hear of.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Input {
    /// The coordinator says something.
    Message(ToWorker),
    /// The session broke.
    Disconnected,
    /// There is a new session.
    Reconnected,
    /// Background connections stand, or one is lacking.
    Prepared(Membership, Option<WorkerId>),
}

impl Input {
    fn is_urgent(&self) -> bool {
        matches!(self, Input::Disconnected | Input::Message(ToWorker::Recover { .. } | ToWorker::Bye { .. }))
    }
}

/// A worker process.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) alive: bool,
    /// Stands still: nothing happens in it.
    pub(crate) still: bool,
    /// Its computing thread hangs.
    pub(crate) hung: bool,
    /// It hung once, or stood still, or its session did.
    pub(crate) hung_once: bool,
    /// What would have happened in that thread meanwhile.
    pub(crate) held_up: Vec<Happening>,
    /// When it began what it is doing.
    pub(crate) since_s: f64,
    /// Stood still once, so that others may have given it up.
    pub(crate) stood_still: bool,
    /// What would have happened meanwhile.
    pub(crate) deferred: Vec<Happening>,
    /// The coordinator process that started it, unless it was started by hand.
    pub(crate) parent: Option<u64>,
    pub(crate) warm: bool,
    /// The run's word for its kernels.
    pub(crate) workload: WorkloadDescription,
    pub(crate) told_warm: bool,
    pub(crate) leaving: bool,
    pub(crate) member: Member,
    /// The open session.
    pub(crate) session: Option<u64>,
    /// A session that is being opened.
    pub(crate) opening: Option<u64>,
    pub(crate) disconnected_s: f64,
    pub(crate) activity: Activity,
    /// Changes with the activity, so that what belongs to an earlier one is void.
    pub(crate) serial: u64,
    pub(crate) state: Option<State>,
    /// Steps and result of the last completed training round.
    pub(crate) last_result: Option<(Range<u64>, u64)>,
    /// What a catch-up brings.
    pub(crate) handed: Option<(Range<u64>, u64)>,
    pub(crate) uploaded: Option<u64>,
    pub(crate) steps: Vec<StepRecord>,
    pub(crate) evaluations: Vec<EvaluationRecord>,
    pub(crate) switches: Vec<SwitchRecord>,
    /// The epoch that the state chunks on their way belong to.
    pub(crate) receiving: Option<u64>,
    /// What the main thread has not heard of yet.
    pub(crate) mailbox: Vec<Input>,
    /// Rounds since the last report; a full count makes the next one urgent.
    pub(crate) unreported: u32,
}

impl World {
    /// A new worker process.
    pub(crate) fn create_process(&mut self, id: WorkerId, parent: Option<u64>, fingerprint: &str) {
        let process = Process {
            alive: true,
            still: false,
            hung: false,
            hung_once: false,
            held_up: Vec::new(),
            since_s: self.now,
            stood_still: false,
            deferred: Vec::new(),
            parent,
            warm: false,
            workload: WorkloadDescription { fingerprint: fingerprint.into(), ..Default::default() },
            told_warm: false,
            leaving: false,
            member: Member::new(id, self.scenario.rules.clone()),
            session: None,
            opening: None,
            disconnected_s: self.now,
            activity: Activity::Waiting,
            serial: self.number(),
            state: None,
            last_result: None,
            handed: None,
            uploaded: None,
            steps: Vec::new(),
            evaluations: Vec::new(),
            switches: Vec::new(),
            receiving: None,
            mailbox: Vec::new(),
            unreported: 0,
        };
        self.processes.insert(id, process);
    }

    pub(crate) fn process(&mut self, id: WorkerId) -> &mut Process {
        self.processes.get_mut(&id).expect("a process that was created")
    }

    /// Begins an activity; its end comes after `delay`, if given.
    fn begin_activity(&mut self, id: WorkerId, activity: Activity, delay: Option<f64>) {
        let (serial, now) = (self.number(), self.now);
        let process = self.process(id);
        (process.activity, process.serial, process.since_s) = (activity, serial, now);
        if let Some(delay) = delay {
            self.after(delay, Happening::Done(id, serial));
        }
    }

    /// Something has arrived: the member hears about it at once, or when the main thread is free.
    pub(crate) fn hear(&mut self, id: WorkerId, input: Input) {
        if self.processes[&id].hung {
            return self.process(id).mailbox.push(input);
        }
        let free =
            matches!(self.processes[&id].activity, Activity::Waiting | Activity::BeginningShadow { .. });
        if free || !self.scenario.safe_points {
            self.take_in(id, input);
        } else {
            let urgent = input.is_urgent();
            self.process(id).mailbox.push(input);
            if urgent {
                self.interrupt(id);
            }
        }
        self.proceed(id);
    }

    fn take_in(&mut self, id: WorkerId, input: Input) {
        let member = &mut self.process(id).member;
        let effects = match input {
            Input::Message(message) => member.message(message),
            Input::Disconnected => member.disconnected(),
            Input::Reconnected => {
                member.reconnected();
                vec![]
            }
            Input::Prepared(membership, lacking) => {
                let peers: Vec<WorkerId> = membership.new_peers(id).iter().map(|p| p.0).collect();
                let result = match lacking {
                    Some(peer) => Err((peer, "no connection".to_string())),
                    None => Ok(()),
                };
                if result.is_ok() {
                    self.mend(id, &peers);
                }
                self.process(id).member.prepared(membership, result)
            }
        };
        self.carry_out_effects(id, effects);
    }

    /// The session is gone.
    pub(crate) fn disconnected(&mut self, id: WorkerId) {
        let now = self.now;
        let process = self.process(id);
        process.session = None;
        process.opening = None;
        process.disconnected_s = now;
        self.hear(id, Input::Disconnected);
    }

    pub(crate) fn carry_out_effects(&mut self, id: WorkerId, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Interrupt => self.interrupt(id),
                Effect::Prepare(membership) => self.prepare(id, membership),
                Effect::Send(message) => {
                    if matches!(message, FromWorker::Ready { .. }) {
                        self.report(id);
                    }
                    self.send_up(id, message);
                }
            }
        }
    }

    fn interrupt(&mut self, id: WorkerId) {
        let process = self.process(id);
        let why = || "interrupted".to_string();
        let effects = match process.activity.clone() {
            Activity::Computing { task, epoch, .. } => {
                process.activity = Activity::Computing { task, epoch, interrupted: true };
                return;
            }
            Activity::InRound { epoch, index, .. } => {
                process.activity = Activity::Waiting;
                self.depart(id, epoch, index, false);
                self.process(id).member.failed(epoch, None, why())
            }
            Activity::Forming { membership, loaded, .. } => {
                process.activity = Activity::Waiting;
                process.member.formed(membership.epoch, loaded, Err((None, why())))
            }
            Activity::BeginningShadow { epoch } => {
                process.activity = Activity::Waiting;
                process.member.failed(epoch, None, why())
            }
            Activity::CatchingUp { epoch } => {
                process.activity = Activity::Waiting;
                self.stop_handing_on(id, epoch);
                self.process(id).member.failed(epoch, None, why())
            }
            _ => return,
        };
        self.process(id).serial = 0;
        self.carry_out_effects(id, effects);
    }

    fn prepare(&mut self, id: WorkerId, membership: Membership) {
        let peers: Vec<WorkerId> = membership.new_peers(id).iter().map(|p| p.0).collect();
        let delay = if peers.is_empty() { 0.0 } else { self.random.between(0.002, self.scenario.prepare_s) };
        let alive = |p: &WorkerId| self.processes.get(p).is_some_and(|p| p.alive);
        let silent = |p: &WorkerId| self.data.silent.contains(&pair(id, *p));
        let lacking = peers.iter().copied().find(|p| !alive(p) || silent(p));
        // Some of the dead refuse at once, others keep the caller waiting.
        let vanishes = lacking.is_some_and(|peer| self.data.silent.contains(&pair(id, peer)));
        let slow = lacking.is_some() && self.random.chance(0.3) || vanishes;
        let delay = if slow { delay + 1.0 } else { delay };
        self.after(delay, Happening::Prepared(id, membership, lacking));
    }

    pub(crate) fn prepared(&mut self, id: WorkerId, membership: Membership, lacking: Option<WorkerId>) {
        let peers: Vec<WorkerId> = membership.new_peers(id).iter().map(|p| p.0).collect();
        let alive = |p: &WorkerId| self.processes.get(p).is_some_and(|p| p.alive);
        let silent = |p: &WorkerId| self.data.silent.contains(&pair(id, *p));
        let lacking = lacking.or_else(|| peers.iter().copied().find(|p| !alive(p) || silent(p)));
        let unlucky = self.in_fault_lifecycle() && self.random.chance(self.scenario.sniper * 0.1);
        let lacking = lacking.or(if unlucky { peers.first().copied() } else { None });
        self.hear(id, Input::Prepared(membership, lacking));
    }

    /// Asks for the next task if the main thread is free.
    pub(crate) fn proceed(&mut self, id: WorkerId) {
        if self.violation.is_some() || !self.processes[&id].alive || self.processes[&id].hung {
            return;
        }
        if matches!(self.processes[&id].activity, Activity::Waiting | Activity::BeginningShadow { .. }) {
            for input in std::mem::take(&mut self.process(id).mailbox) {
                self.take_in(id, input);
            }
        }
        let process = self.process(id);
        let task = process.member.next_task();
        match &process.activity {
            Activity::Waiting if task != Task::Wait => self.start(id, task),
            Activity::Waiting => {
                if process.unreported > 0 && process.member.is_active() {
                    self.report(id);
                }
                self.check_wait(id);
            }
            // The wait for the sources goes on unless a later plan came.
            Activity::BeginningShadow { .. } if task != Task::BeginShadow => {
                process.activity = Activity::Waiting;
                if task != Task::Wait {
                    self.start(id, task);
                }
            }
            _ => {}
        }
    }

    fn start(&mut self, id: WorkerId, task: Task) {
        self.note(|| format!("{id} begins {task:?}"));
        let epoch = self.processes[&id].member.membership().epoch;
        match task.clone() {
            Task::Wait => {}
            Task::Form { membership, load } => self.start_forming(id, membership, load),
            Task::BeginShadow => {
                self.begin_activity(id, Activity::BeginningShadow { epoch }, None);
                self.join(id, epoch);
            }
            Task::CatchUp { source, behind, .. } => {
                self.begin_activity(id, Activity::CatchingUp { epoch }, None);
                self.hand_on(id, epoch, source, &behind);
            }
            Task::Evaluate | Task::Train => {
                let contributes = self.processes[&id].member.is_active();
                let mut delay = if contributes { self.random.between(0.01, 0.03) } else { 0.0 };
                if self.in_fault_lifecycle() && self.random.chance(self.scenario.straggler) {
                    delay *= 15.0;
                }
                let activity = Activity::Computing { task: task.clone(), epoch, interrupted: false };
                self.begin_activity(id, activity, Some(delay));
            }
            Task::Hold => {
                // A worker says where it stands before it waits in a round.
                let process = &self.processes[&id];
                if process.unreported > 0 && process.member.is_active() {
                    self.report(id);
                }
                self.begin_activity(id, Activity::Waiting, None);
                self.enter_round(id, task.clone(), epoch);
            }
            Task::Checkpoint => {
                let delay = self.random.between(0.0005, 0.003);
                self.begin_activity(id, Activity::Uploading, Some(delay));
            }
            Task::Switch(membership) => {
                let delay = self.random.between(0.0001, 0.002);
                self.begin_activity(id, Activity::Switching(membership), Some(delay));
            }
            Task::Finish => {
                let delay = self.random.between(0.001, 0.005);
                self.begin_activity(id, Activity::Finishing, Some(delay));
            }
            Task::Leave => {
                self.report(id);
                let step = self.processes[&id].member.step();
                self.send_up(id, FromWorker::Left { epoch, step });
                self.begin_activity(id, Activity::Leaving, Some(0.002));
            }
            Task::Unit(_) | Task::EvaluateAlone(_) | Task::HandOver(_) | Task::Idle => {
                self.violate(format!("{id} is to do {task:?} in a run that is reduced by its workers"));
            }
            Task::Exit { refused, .. } => {
                self.watch.refused += u64::from(refused);
                self.begin_activity(id, Activity::Leaving, Some(0.002));
            }
        }
        if matches!(
            task,
            Task::Form { .. } | Task::Switch(_) | Task::CatchUp { .. } | Task::Leave | Task::Finish
        ) {
            self.snipe(id);
        }
    }

    fn start_forming(&mut self, id: WorkerId, membership: Membership, load: Option<Load>) {
        self.leave_epochs(id, Some(membership.epoch), false);
        let loading = if load.is_some() { 0.06 } else { 0.005 };
        let delay = self.random.between(0.001, loading);
        self.process(id).uploaded = None;
        let activity = Activity::Forming { membership, load, loading: true, loaded: None };
        self.begin_activity(id, activity, Some(delay));
    }

    /// An activity's time is over.
    pub(crate) fn done(&mut self, id: WorkerId, serial: u64) {
        if self.processes[&id].serial != serial {
            return;
        }
        match self.processes[&id].activity.clone() {
            Activity::Computing { epoch, interrupted: true, .. } => {
                let process = self.process(id);
                process.activity = Activity::Waiting;
                let effects = process.member.failed(epoch, None, "interrupted".into());
                self.carry_out_effects(id, effects);
            }
            Activity::Computing { task, epoch, .. } => self.enter_round(id, task, epoch),
            Activity::Forming { membership, load, loading: true, .. } => {
                self.load(id, membership, load);
                return;
            }
            Activity::Applying { task, epoch, index } => self.applied(id, &task, epoch, index),
            Activity::Uploading => {
                self.upload(id);
                let process = self.process(id);
                process.activity = Activity::Waiting;
                process.member.checkpointed();
            }
            Activity::Switching(membership) => self.switched(id, membership),
            Activity::Finishing => self.finished_all(id),
            Activity::Leaving => return self.exit(id),
            other => unreachable!("{other:?} does not end by itself"),
        }
        self.proceed(id);
    }

    fn load(&mut self, id: WorkerId, membership: Membership, load: Option<Load>) {
        let state = match load {
            None => None,
            Some(Load::Fresh) => Some((0, FRESH)),
            Some(Load::Checkpoint(step)) => match self.stored.get(&step) {
                Some(digest) => Some((step, *digest)),
                None => return self.violate(format!("there is no checkpoint of step {step}")),
            },
        };
        let process = self.process(id);
        if let Some((step, digest)) = state {
            process.steps.clear();
            process.state = Some(State { step, digest, partial: false });
            process.last_result = None;
        }
        let loaded = state.map(|s| s.0);
        let activity = Activity::Forming { membership: membership.clone(), load, loading: false, loaded };
        self.begin_activity(id, activity, None);
        let serial = self.processes[&id].serial;
        let patience = self.random.between(0.8, 1.2);
        self.after(patience, Happening::Fails(id, serial, None));
        self.listen(id, &membership);
    }

    fn enter_round(&mut self, id: WorkerId, task: Task, epoch: u64) {
        let kind = match task {
            Task::Train => Kind::Train,
            Task::Evaluate => Kind::Evaluate,
            _ => Kind::Hold,
        };
        let process = self.process(id);
        if process.member.membership().epoch != epoch {
            return self.violate(format!("worker {id} enters a round of epoch {epoch} from another"));
        }
        let offer = if kind == Kind::Evaluate { Offer::default() } else { process.member.offer(&task) };
        let step = process.member.step();
        if process.member.is_active() && process.member.held().is_none() {
            return self.violate(format!("worker {id} takes part in {task:?} {step} without the state"));
        }
        let index = self.arrive(id, epoch, kind, step, offer);
        self.begin_activity(id, Activity::InRound { task, epoch, index }, None);
        self.settle(id, epoch, index);
    }

    /// What a round or the connecting gives is here.
    pub(crate) fn receipt(&mut self, id: WorkerId, serial: u64) {
        if self.processes[&id].serial != serial {
            return;
        }
        match self.processes[&id].activity.clone() {
            Activity::InRound { task, epoch, index } => {
                if self.is_doomed(id, epoch, index) {
                    return;
                }
                let (_, steps, sum) = self.result(epoch, index);
                self.depart(id, epoch, index, true);
                if task == Task::Train {
                    self.process(id).last_result = Some((steps, sum));
                }
                let delay = self.random.between(0.0001, 0.003);
                self.begin_activity(id, Activity::Applying { task, epoch, index }, Some(delay));
                self.snipe(id);
                return;
            }
            Activity::Forming { membership, loaded, .. } => {
                let peers: Vec<WorkerId> = membership.peers(id).iter().map(|p| p.0).collect();
                self.mend(id, &peers);
                self.enter(id, &membership, None);
                let process = self.process(id);
                process.activity = Activity::Waiting;
                process.unreported = u32::MAX - 1;
                let effects = process.member.formed(membership.epoch, loaded, Ok(()));
                self.carry_out_effects(id, effects);
            }
            Activity::BeginningShadow { epoch } => self.shadow_began(id, epoch),
            Activity::CatchingUp { epoch } => {
                self.stop_handing_on(id, epoch);
                let process = self.process(id);
                process.activity = Activity::Waiting;
                let before = process.member.step();
                process.member.caught_up_with_result();
                let behind = process.member.step() > before;
                if let (true, Some((steps, sum))) = (behind, process.handed.take()) {
                    self.apply(id, steps, sum);
                }
                self.watch.catch_ups += u64::from(behind);
                self.report(id);
            }
            _ => return,
        }
        self.proceed(id);
    }

    /// A round, or the connecting, fails.
    pub(crate) fn fails(&mut self, id: WorkerId, serial: u64, peer: Option<WorkerId>) {
        if self.processes[&id].serial != serial {
            return;
        }
        if matches!(self.processes[&id].activity, Activity::InRound { .. } | Activity::CatchingUp { .. }) {
            self.report(id);
        }
        let why = "connection lost".to_string();
        let effects = match self.processes[&id].activity.clone() {
            Activity::InRound { epoch, index, .. } => {
                self.depart(id, epoch, index, false);
                self.process(id).member.failed(epoch, peer, why)
            }
            Activity::Forming { membership, loaded, .. } => {
                let peer = peer.or_else(|| self.missing(id, &membership));
                self.process(id).member.formed(membership.epoch, loaded, Err((peer, why)))
            }
            Activity::BeginningShadow { epoch } => self.process(id).member.failed(epoch, peer, why),
            Activity::CatchingUp { epoch } => {
                self.stop_handing_on(id, epoch);
                self.process(id).member.failed(epoch, peer, why)
            }
            _ => return,
        };
        self.watch.failures += 1;
        let number = self.number();
        let process = self.process(id);
        (process.activity, process.serial) = (Activity::Waiting, number);
        self.carry_out_effects(id, effects);
        self.proceed(id);
    }

    fn apply(&mut self, id: WorkerId, steps: Range<u64>, sum: u64) {
        let at_s = self.now;
        let process = self.process(id);
        let state = process.state.as_mut().expect("only a process with a state takes part");
        state.digest = applied(state.digest, &steps, sum);
        state.step = steps.end;
        process.last_result = Some((steps.clone(), sum));
        process.steps.push(StepRecord {
            step: steps.start,
            accumulation: (steps.end - steps.start) as u32,
            loss: Some(sum as f64),
            duration_s: 0.02,
            compute_s: at_s.min(0.02),
            ..StepRecord::default()
        });
    }

    fn applied(&mut self, id: WorkerId, task: &Task, epoch: u64, index: usize) {
        let (offers, steps, sum) = self.result(epoch, index);
        let step = self.processes[&id].member.step();
        self.process(id).activity = Activity::Waiting;
        if *task == Task::Evaluate {
            let samples = 1;
            let record = EvaluationRecord { step, loss: 1.0, correct: 0, predictions: 0, samples };
            let process = self.process(id);
            process.evaluations.push(record);
            process.member.evaluated();
            return self.report_round(id);
        }
        if *task == Task::Train && self.scenario.poison.is_some_and(|poison| steps.contains(&poison)) {
            let effects = self.process(id).member.not_finite("the loss".into());
            return self.carry_out_effects(id, effects);
        }
        if *task == Task::Train {
            if self.mismatched(id, epoch, &steps) {
                return;
            }
            self.apply(id, steps, sum);
        }
        self.process(id).member.round_done(task, &offers);
        self.report_round(id);
    }

    fn report_round(&mut self, id: WorkerId) {
        let every = self.scenario.report_every;
        let process = self.process(id);
        process.unreported = process.unreported.saturating_add(1);
        let due = process.unreported >= every;
        if due && (self.processes[&id].member.is_active() || self.scenario.shadows_report) {
            self.report(id);
        }
    }

    /// Tells the coordinator what has been done since the last report.
    pub(crate) fn report(&mut self, id: WorkerId) {
        let process = self.process(id);
        process.unreported = 0;
        let kept = process.steps.len().saturating_sub(16);
        process.steps.drain(..kept);
        let report = Report {
            epoch: process.member.membership().epoch,
            step: process.member.step(),
            steps: process.steps.clone(),
            evaluations: process.evaluations.clone(),
            switches: process.switches.clone(),
            resident_bytes: 0,
        };
        if process.session.is_some() {
            process.evaluations.clear();
            process.switches.clear();
            self.send_up(id, FromWorker::Report(report));
        }
    }

    fn switched(&mut self, id: WorkerId, membership: Membership) {
        let epoch = membership.epoch;
        let process = self.process(id);
        process.activity = Activity::Waiting;
        process.member.switched(membership.clone());
        if process.member.membership().epoch != epoch || process.member.next_task() == Task::Leave {
            return;
        }
        let (step, shadow) = (process.member.step(), membership.shadows(id));
        let digest = process.state.as_ref().map_or(0, |s| s.digest);
        if !shadow {
            process.switches.push(SwitchRecord { epoch, step, stall_s: 0.001 });
        }
        self.leave_epochs(id, Some(epoch), true);
        self.enter(id, &membership, (!shadow).then_some((step, digest)));
        self.process(id).unreported = u32::MAX - 1;
        if self.scenario.report_every == 1 && (!shadow || self.scenario.shadows_report) {
            self.report(id);
        }
    }

    fn shadow_began(&mut self, id: WorkerId, epoch: u64) {
        let Some((step, digest)) = self.data.epochs[&epoch].begun else {
            return self.violate(format!("{id} is a shadow of epoch {epoch}, which began without a switch"));
        };
        let process = self.process(id);
        process.activity = Activity::Waiting;
        process.steps.clear();
        process.state = Some(State { step, digest, partial: true });
        process.receiving = Some(epoch);
        process.member.shadow_began(step);
        let delay = self.random.between(0.02, 0.3);
        self.after(delay, Happening::Chunks(id, epoch));
    }

    /// The last chunk is here.
    pub(crate) fn chunks(&mut self, id: WorkerId, epoch: u64) {
        let process = self.process(id);
        if process.receiving != Some(epoch) || !process.member.is_shadow() {
            return;
        }
        if matches!(process.activity, Activity::Applying { .. }) {
            return self.after(0.001, Happening::Chunks(id, epoch));
        }
        if process.member.membership().epoch != epoch {
            return;
        }
        process.receiving = None;
        if let Some(state) = &mut process.state {
            state.partial = false;
        }
        let effects = process.member.shadow_complete();
        self.carry_out_effects(id, effects);
        self.proceed(id);
    }

    fn finished_all(&mut self, id: WorkerId) {
        let step = self.processes[&id].member.step();
        let rank = self.processes[&id].member.membership().rank(id);
        let writes = if self.scenario.rules.slices { rank.is_some() } else { rank == Some(0) };
        if writes && self.processes[&id].uploaded != Some(step) {
            self.upload(id);
        }
        self.report(id);
        let process = self.process(id);
        process.activity = Activity::Waiting;
        let mut digest = [0; 32];
        digest[..8].copy_from_slice(&process.state.as_ref().map_or(0, |s| s.digest).to_le_bytes());
        let effects = process.member.finished(digest);
        self.carry_out_effects(id, effects);
    }

    fn upload(&mut self, id: WorkerId) {
        // There is room again in the end, and a process that was out of reach is found.
        let full = self.random.chance(self.scenario.disk_full) && self.in_fault_lifecycle();
        let unheard = full && self.random.chance(0.3);
        let generation = self.generation;
        let process = self.process(id);
        let Some(state) = &process.state else { return };
        let (step, digest) = (state.step, state.digest);
        let membership = process.member.membership();
        let cut = (membership.epoch, membership.active.len());
        process.uploaded = Some(step);
        if unheard {
            if self.random.chance(0.5) {
                self.send_up(id, FromWorker::CheckpointFailed { step, why: "no answer".into() });
            }
        } else if process.session.is_some() {
            let delay = self.random.between(0.01, 0.2);
            self.after(delay, Happening::Uploaded { generation, from: id, step, digest, full, cut });
        }
    }
}
