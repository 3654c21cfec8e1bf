//! One worker's arithmetic: gradients of its virtual nodes, the collective, the update.
//!
//! # Memory
//!
//! Beside what the workload needs: parameters, optimizer slots and model state once; the reduced result
//! once (it is kept until the next collective overwrites it, so that a member who missed it can still
//! have it); the partial sums of [`Accumulator`]: log2(V/W) + 1 for aligned ranges; and one more vector once an
//! update covers several steps.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use bellwether_core::job::Job;
use bellwether_memory::{Arena, Vector};

use super::incoming::Incoming;
use crate::collective::{
    Collective, CollectiveError, CollectivePlan, Member, Outcome, PlanError, Traffic, WakeReceiver,
};
use crate::control::Token;
use crate::frame::Stamp;
use crate::membership::{Activity, Membership, Offer, WorkerId};
use crate::mesh::Mesh;
use crate::optimizer::Optimizer;
use crate::order::SampleOrder;
use crate::progress::Progress;
use crate::state::TrainingState;
use crate::transfer::{read, write};
use crate::tree::{Accumulator, maximal_nodes};
use crate::workload::{MicroBatch, Weights, Workload, WorkloadError};
use apply::square_sum;
use header::Header;
pub(super) use verify::Found;
use verify::Verification;

mod apply;
mod evaluate;
mod gradients;
mod header;
pub(in crate::worker) mod unit;
mod verify;

/// Why a round did not come to its end.
#[derive(Debug)]
pub(super) enum Fault {
    /// A peer is to blame, or none (interrupted).
    Collective(Option<WorkerId>, String),
    /// The workload failed, in this step and, where it computed a gradient, this virtual node.
    Workload(WorkloadError, Option<(u64, u32)>),
    /// The result is not finite; nothing was applied.
    NotFinite(String),
    /// Two workers computed a virtual node differently; nothing was applied.
    Mismatch(Found),
}

impl Fault {
    /// The thread is needed for something more urgent.
    pub(super) fn interrupted() -> Fault {
        Fault::Collective(None, "interrupted".into())
    }
}

/// What an update was, the same on all workers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Applied {
    /// Mean loss of its samples.
    pub(super) loss: f64,
    /// Whether every number of the state is one.
    pub(super) is_finite: bool,
    /// The noise scale after it, where it is measured.
    pub(super) noise_scale: Option<f64>,
    /// What the learning rate was multiplied with, where the batch may move.
    pub(super) rate_factor: Option<f64>,
}

/// Sums over the virtual nodes beside the gradient: the loss, the square norms of the micro-batches' gradients, and the
/// weights of the losses.
#[derive(Debug, Clone, Copy)]
struct Sums {
    loss: f64,
    squares: f64,
    /// Weights of the losses.
    weight: f64,
}

/// What a training round found.
#[derive(Debug)]
pub(super) struct Round {
    /// What the active members offered, by rank.
    pub(super) offers: Vec<Offer>,
    /// What the update was.
    pub(super) applied: Applied,
    /// Seconds spent on gradients.
    pub(super) compute_s: f64,
    /// Seconds in which they waited for their samples.
    pub(super) data_wait_s: f64,
    /// Seconds spent in the collective.
    pub(super) exchange_s: f64,
    /// Seconds spent on the update.
    pub(super) update_s: f64,
    /// Seconds spent on the gradients of each virtual node.
    pub(super) nodes_s: Vec<f64>,
    /// What the collective moved.
    pub(super) traffic: Vec<Traffic>,
}

pub(super) struct Engine {
    pub(super) workload: Box<dyn Workload>,
    pub(super) state: Arc<RwLock<TrainingState>>,
    pub(super) optimizer: Optimizer,
    pub(super) order: SampleOrder,
    pub(super) mesh: Mesh,
    job: u64,
    seed: u64,
    me: WorkerId,
    wake: WakeReceiver,
    pub(super) progress: Arc<Progress>,
    membership: Membership,
    pub(super) accumulator: Accumulator,
    bulk: Option<Collective>,
    control: Option<Collective>,
    /// Sums of the last finished update.
    out: Vector,
    last: Sums,
    /// Memory for the workload's own update rule.
    mean: Vec<f32>,
    /// A micro-batch that is about to be added to others of its node.
    part: Vec<f32>,
    samples: Vec<u64>,
    /// Changes with every change of parameters or state.
    version: u64,
    /// The membership whose virtual nodes the workload knows.
    assigned: Option<u64>,
    /// Shadows of the present membership that are not served any more, and whether the coordinator knows.
    dead_shadows: BTreeMap<WorkerId, bool>,
    verification: Verification,
}

impl Engine {
    pub(super) fn new(
        workload: Box<dyn Workload>,
        job: &Job,
        token: &Token,
        me: WorkerId,
        wake: WakeReceiver,
    ) -> Self {
        let order = SampleOrder::of(job, workload.training_samples());
        let optimizer = Optimizer::new(job, job.total_steps(order.samples));
        let state = TrainingState::zeros(workload.layout(), optimizer.slots().len());
        let length = workload.layout().parameter_count() + workload.layout().state_count();
        let mut accumulator = Accumulator::new(order.virtual_nodes, 0..0, length);
        let mut mesh = Mesh::new();
        // Without memory that can be shared the sums are copied to peers of this machine, too.
        if let Ok(arena) = Arena::create(length, 2 + 2 * order.virtual_nodes.ilog2() as usize + 2) {
            accumulator.share(arena.clone());
            mesh.share(arena);
        }
        Engine {
            state: Arc::new(RwLock::new(state)),
            optimizer,
            out: accumulator.buffer(),
            accumulator,
            order,
            mesh,
            job: token.job_tag(),
            seed: job.seed,
            me,
            wake,
            progress: Arc::default(),
            membership: Membership::default(),
            bulk: None,
            control: None,
            last: Sums { loss: f64::NAN, squares: 0.0, weight: 0.0 },
            mean: Vec::new(),
            part: Vec::new(),
            samples: Vec::new(),
            version: 0,
            assigned: None,
            dead_shadows: BTreeMap::new(),
            verification: Verification::of(job),
            workload,
        }
    }

    /// Notes from now on where this thread stands.
    pub(super) fn watched_by(&mut self, progress: &Arc<Progress>) {
        self.progress = Arc::clone(progress);
        self.mesh.progress = Some(Arc::clone(progress));
    }

    /// This thread begins something.
    pub(super) fn stand(&self, activity: Activity, epoch: u64, step: u64) {
        self.progress.at(activity, epoch, step);
    }

    /// This thread begins the next part of a step of the membership in force.
    fn part(&self, activity: Activity, step: u64) {
        self.progress.at(activity, self.membership.epoch, step);
    }

    /// Writes the initial state.
    pub(super) fn initialize(&mut self) {
        let mut state = write(&self.state);
        let TrainingState { parameters, model_state, slots, step, noise } = &mut *state;
        slots.iter_mut().for_each(|slot| slot.fill(0.0));
        (*step, *noise) = Default::default();
        self.workload.initialize(self.seed, parameters, model_state);
        self.version += 1;
    }

    /// The state was changed from outside.
    pub(super) fn touched(&mut self) {
        self.version += 1;
    }

    /// Computes one micro-batch for nothing, so that the first real one is as fast as the others.
    pub(super) fn warm_up(&mut self) -> Result<(), WorkloadError> {
        self.initialize();
        self.order.micro_batch(0, 0, &mut self.samples);
        if self.samples.is_empty() {
            return Ok(());
        }
        // Memory that was never written to is slow at its first use, and the others would wait for it.
        self.out.fill(0.0);
        self.accumulator.assign(self.order.virtual_nodes, 0..1);
        let state = read(&self.state);
        let (gradient, model_state) = self.accumulator.leaf().split_at_mut(state.parameters.len());
        let weights =
            Weights { parameters: &state.parameters, state: &state.model_state, version: self.version };
        let batch = MicroBatch { samples: &self.samples };
        self.workload.gradient(weights, batch, 0, gradient, model_state).map(|_| ())
    }

    /// Takes a membership into use, over the connections in `mesh`.
    pub(super) fn adopt(&mut self, membership: &Membership) -> Result<(), PlanError> {
        self.membership = membership.clone();
        self.dead_shadows.clear();
        if !membership.contains(self.me) {
            (self.bulk, self.control) = (None, None);
            return Ok(());
        }
        self.bulk = Some(Collective::new(self.plan(self.out.len())?));
        self.control = Some(Collective::new(self.plan(0)?));
        let range = membership.rank(self.me).map_or(0..0, |rank| membership.active[rank].nodes.clone());
        self.accumulator.assign(self.order.virtual_nodes, range);
        Ok(())
    }

    /// The buffers for partial sums that a membership needs beyond those that are there. They were never written to.
    pub(super) fn lacking_buffers(&self, membership: &Membership) -> Vec<Vector> {
        let nodes = membership.rank(self.me).map_or(0..0, |rank| membership.active[rank].nodes.clone());
        let lacking = self.accumulator.lacking(self.order.virtual_nodes, nodes);
        (0..lacking).map(|_| self.accumulator.buffer()).collect()
    }

    fn plan(&self, length: usize) -> Result<CollectivePlan, PlanError> {
        let m = &self.membership;
        let members = m.active.iter().map(|a| Member { worker: a.worker, nodes: a.nodes.clone() }).collect();
        let shadows = m.shadows.iter().map(|s| s.worker).collect();
        CollectivePlan::new(self.order.virtual_nodes, members, shadows, self.me, length)
    }

    fn stamp(&self, step: u64) -> Stamp {
        Stamp { job: self.job, epoch: self.membership.epoch, step }
    }

    /// Gradients of this worker's virtual nodes for these steps, their sum over all workers, and the update.
    pub(super) fn train(
        &mut self,
        steps: Range<u64>,
        offer: Offer,
        incoming: Option<&Incoming>,
        urgent: &dyn Fn() -> bool,
    ) -> Result<Round, Fault> {
        let began = Instant::now();
        // What a round that was given up waited for is not this one's.
        self.workload.take_data_wait_s();
        if self.assigned.replace(self.membership.epoch) != Some(self.membership.epoch) {
            self.workload.assigned(steps.start, self.accumulator.range());
        }
        let mut nodes_s = Vec::with_capacity(self.accumulator.range().len());
        let check = self.watch_for(&steps);
        let mut data_wait_s = 0.0;
        let sums = self.gradients(steps.clone(), &mut nodes_s, &mut data_wait_s, urgent)?;
        self.part(Activity::Computing, steps.start);
        let evidence = self.evidence(check.as_ref(), urgent)?;
        data_wait_s += self.workload.take_data_wait_s();
        let computed = Instant::now();
        self.part(Activity::Exchanging, steps.start);
        let mut bytes = Header { offer, sums }.encode();
        bytes.extend(evidence);
        let mut outcome = self.reduce(steps.start, &bytes)?;
        self.compare(check, &mut outcome)?;
        let (offers, [loss, squares, weight]) = self.read_headers(&outcome)?;
        self.last = Sums { loss, squares, weight };
        let exchanged = Instant::now();
        self.part(Activity::Updating, steps.start);
        let applied = self.apply(steps, incoming, urgent)?;
        Ok(Round {
            offers,
            applied,
            compute_s: ((computed - began).as_secs_f64() - data_wait_s).max(0.0),
            data_wait_s,
            exchange_s: (exchanged - computed).as_secs_f64(),
            update_s: exchanged.elapsed().as_secs_f64(),
            nodes_s,
            traffic: outcome.traffic,
        })
    }

    fn reduce(&mut self, step: u64, control: &[u8]) -> Result<Outcome, Fault> {
        // No peer to talk to: the only partial sum is the result.
        let alone = self.membership.active.len() == 1 && self.membership.shadows.is_empty();
        if alone && self.membership.contains(self.me) && self.accumulator.swap_only(&mut self.out) {
            let headers = vec![control.to_vec()];
            return Ok(Outcome { headers, dead_shadows: Vec::new(), traffic: Vec::new() });
        }
        let stamp = self.stamp(step);
        let collective = self.bulk.as_mut().expect("a membership was adopted");
        let result = if self.membership.rank(self.me).is_some() {
            let partials = self.accumulator.partials();
            collective.run(&mut self.mesh, stamp, control, &partials, &mut self.out, &self.wake)
        } else {
            collective.receive(&mut self.mesh, stamp, &mut self.out, &self.wake)
        };
        let outcome = result.map_err(fault)?;
        self.drop_dead(&outcome);
        Ok(outcome)
    }

    /// A shadow that died, or takes nothing, is not served again.
    fn drop_dead(&mut self, outcome: &Outcome) {
        for shadow in &outcome.dead_shadows {
            self.mesh.remove(*shadow);
            self.dead_shadows.entry(*shadow).or_insert(false);
        }
    }

    /// Shadows that are not served any more, each once.
    pub(super) fn newly_dead_shadows(&mut self) -> Vec<WorkerId> {
        let mut untold = Vec::new();
        for (shadow, told) in &mut self.dead_shadows {
            if !std::mem::replace(told, true) {
                untold.push(*shadow);
            }
        }
        untold
    }

    /// Exchanges headers only.
    pub(super) fn confer(&mut self, step: u64, header: &Header) -> Result<(Vec<Offer>, [f64; 3]), Fault> {
        let outcome = self.exchange_control(step, &header.encode())?;
        self.read_headers(&outcome)
    }

    /// Exchanges control bytes only.
    fn exchange_control(&mut self, step: u64, control: &[u8]) -> Result<Outcome, Fault> {
        let stamp = self.stamp(step);
        let collective = self.control.as_mut().expect("a membership was adopted");
        let result = if self.membership.rank(self.me).is_some() {
            collective.run(&mut self.mesh, stamp, control, &[], &mut [], &self.wake)
        } else {
            collective.receive(&mut self.mesh, stamp, &mut [], &self.wake)
        };
        let outcome = result.map_err(fault)?;
        self.drop_dead(&outcome);
        Ok(outcome)
    }

    /// Offers only: a round that agrees on the next membership, or to go on.
    pub(super) fn hold(&mut self, step: u64, offer: Offer) -> Result<Vec<Offer>, Fault> {
        let nodes = maximal_nodes(self.order.virtual_nodes, self.accumulator.range()).len();
        let header = Header { offer, sums: vec![[0.0; 3]; nodes] };
        self.confer(step, &header).map(|(offers, _)| offers)
    }

    fn read_headers(&self, outcome: &Outcome) -> Result<(Vec<Offer>, [f64; 3]), Fault> {
        let ranges: Vec<_> = self.membership.active.iter().map(|a| a.nodes.clone()).collect();
        header::combine(self.order.virtual_nodes, &ranges, &outcome.headers).map_err(|rank| {
            let worker = self.membership.active[rank].worker;
            Fault::Collective(Some(worker), "it sent control bytes that make no sense".into())
        })
    }

    /// Hands the last result, that of these steps, from `source` to those `behind`, who apply it; tells what it was.
    pub(super) fn catch_up(
        &mut self,
        steps: Range<u64>,
        source: WorkerId,
        behind: &[WorkerId],
    ) -> Result<Option<Applied>, Fault> {
        let members = vec![Member { worker: source, nodes: 0..self.order.virtual_nodes }];
        let plan =
            CollectivePlan::new(self.order.virtual_nodes, members, behind.to_vec(), self.me, self.out.len());
        let mut collective = Collective::new(plan.map_err(|e| Fault::Collective(None, e.to_string()))?);
        let stamp = self.stamp(steps.start);
        if self.me == source {
            let copy = self.out.to_vec();
            let header = [self.last.loss, self.last.squares, self.last.weight].map(f64::to_le_bytes).concat();
            let run = collective.run(&mut self.mesh, stamp, &header, &[&copy], &mut self.out, &self.wake);
            run.map_err(fault)?;
            return Ok(None);
        }
        let outcome = collective.receive(&mut self.mesh, stamp, &mut self.out, &self.wake).map_err(fault)?;
        let ([loss, squares, weight], []) = outcome.headers[0].as_chunks::<8>() else {
            return Err(Fault::Collective(Some(source), "it sent no loss with the last result".into()));
        };
        let [loss, squares, weight] = [loss, squares, weight].map(|bytes| f64::from_le_bytes(*bytes));
        self.last = Sums { loss, squares, weight };
        self.apply(steps, None, &|| false).map(Some)
    }

    /// A step takes so long: peers may be as long without reading.
    pub(super) fn expect_step(&mut self, step: Duration) {
        self.mesh.expect_step(step);
    }

    /// Takes back wakes that came for what has been dealt with.
    pub(super) fn drain_wakes(&self) {
        self.wake.drain();
    }
}

fn fault(error: CollectiveError) -> Fault {
    let peer = match &error {
        CollectiveError::PeerLost { worker, .. } => Some(*worker),
        CollectiveError::Interrupted | CollectiveError::System(_) => None,
    };
    Fault::Collective(peer, error.to_string())
}
