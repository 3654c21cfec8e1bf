//! One worker's arithmetic: gradients of its virtual nodes, the collective, the update.
//!
//! # Memory
//!
//! Beside what the workload needs: parameters, optimizer slots and model state once; the reduced result
//! once (it is kept until the next collective overwrites it, so that a member who missed it can still
//! have it); the partial sums of [`Accumulator`]: log2(V/W) + 1 for aligned ranges; and one more vector once an
//! update covers several steps, or gradients are exchanged beside computing, for the last micro-batch's. Where there
//! are phases of local steps, parameters, slots and model state of a virtual node come on top.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use bellwether_core::job::{Job, Precision};
use bellwether_core::record::StepRecord;
use bellwether_memory::{Arena, Vector};

use super::incoming::Incoming;
use crate::collective::{
    Collective, CollectiveError, CollectivePlan, Lengths, Member, Outcome, PlanError, WakeReceiver, Waker,
};
use crate::control::Token;
use crate::frame::Stamp;
use crate::membership::{Activity, Membership, Offer, WorkerId};
use crate::mesh::Mesh;
use crate::optimizer::Optimizer;
use crate::order::SampleOrder;
use crate::progress::Progress;
use crate::state::TrainingState;
use crate::tree::{Accumulator, maximal_nodes};
use crate::verification::Check;
use crate::workload::{Workload, WorkloadError};
use apply::square_sum;
use gradients::Computing;
use header::Header;
use local::Local;
use overlap::Beside;
use sharded::{Sharded, Shared};
pub(super) use verify::Found;
use verify::Verification;

mod apply;
mod begin;
mod catch_up;
mod evaluate;
mod gradients;
mod header;
mod local;
mod overlap;
mod sharded;
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
    /// No member has the optimizer slots of this virtual shard any more.
    Lacking { shard: u32 },
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
    /// What it took, and what the collective moved: the rest of a step's record is not known here.
    pub(super) times: StepRecord,
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
    wake: Arc<WakeReceiver>,
    /// Wakes an exchange that is handed its sums while others are computed.
    fed: Arc<(Waker, WakeReceiver)>,
    pub(super) progress: Arc<Progress>,
    membership: Membership,
    pub(super) accumulator: Accumulator,
    bulk: Option<Collective>,
    control: Option<Collective>,
    /// Values of a vector of sums: parameters and state.
    length: usize,
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
    /// Where the workers share the optimizer's state.
    pub(super) sharded: Option<Sharded>,
    /// Where some steps are local ones.
    local: Option<Local>,
    /// Whether every other exchange waits until all is computed: a profile measures both.
    pub(super) alternates: bool,
}

impl Engine {
    pub(super) fn new(
        workload: Box<dyn Workload>,
        job: &Job,
        token: &Token,
        me: WorkerId,
        (wake, fed): (WakeReceiver, (Waker, WakeReceiver)),
    ) -> Self {
        let order = SampleOrder::of(job, workload.training_samples());
        let total_steps = job.total_steps(order.samples);
        let optimizer = Optimizer::new(job, total_steps);
        let parameters = workload.layout().parameter_count();
        let slots = optimizer.slots().len();
        // Slots that are shared are not in the state.
        let whole = if job.sharding.is_some() { 0 } else { slots };
        let state = TrainingState::zeros(workload.layout(), whole);
        let length = parameters + workload.layout().state_count();
        let mut accumulator = Accumulator::new(order.virtual_nodes, 0..0, length);
        if job.exchange.precision == Precision::Bf16 {
            accumulator.round_leading(parameters);
        }
        let mut mesh = Mesh::new();
        // Without memory that can be shared the sums are copied to peers of this machine, too.
        if let Ok(arena) = Arena::create(length, 3 + 2 * order.virtual_nodes.ilog2() as usize + 2) {
            accumulator.share(arena.clone());
            mesh.share(arena);
        }
        Engine {
            state: Arc::new(RwLock::new(state)),
            sharded: Sharded::of(job, parameters, slots, || accumulator.buffer()),
            length,
            out: accumulator.buffer(),
            accumulator,
            order,
            mesh,
            job: token.job_tag(),
            seed: job.seed,
            me,
            wake: Arc::new(wake),
            fed: Arc::new(fed),
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
            alternates: false,
            local: Local::of(job, total_steps, workload.layout(), &optimizer),
            optimizer,
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

    /// Takes a membership into use, over the connections in `mesh`.
    pub(super) fn adopt(&mut self, membership: &Membership) -> Result<(), PlanError> {
        self.membership = membership.clone();
        self.dead_shadows.clear();
        if !membership.contains(self.me) {
            (self.bulk, self.control) = (None, None);
            return Ok(());
        }
        self.bulk = match &mut self.sharded {
            // Planned once the members have told who holds what.
            Some(sharded) => {
                sharded.adopt();
                None
            }
            None => Some(Collective::new(self.plan(membership, self.lengths())?)),
        };
        self.control = Some(Collective::new(self.plan(membership, Lengths::default())?));
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

    /// Values of the memory that a membership needs for gradients that leave tensor by tensor, where it is not there.
    pub(super) fn lacking_part(&self, membership: &Membership) -> usize {
        let plan = membership.rank(self.me).and_then(|_| self.plan(membership, self.lengths()).ok());
        let needed = plan.is_some_and(|plan| plan.is_in_buckets() && plan.peers().next().is_some());
        if needed && self.part.len() < self.length { self.length } else { 0 }
    }

    /// Takes such memory into use.
    pub(super) fn give_part(&mut self, part: Vec<f32>) {
        if self.part.len() < part.len() {
            self.part = part;
        }
    }

    fn lengths(&self) -> Lengths {
        let state = self.workload.layout().state_count();
        Lengths { parameters: self.length - state, state }
    }

    fn plan(&self, m: &Membership, lengths: Lengths) -> Result<CollectivePlan, PlanError> {
        let members = Self::members_of(m);
        let shadows = m.shadows.iter().map(|s| s.worker).collect();
        let (nodes, groups) = (self.order.virtual_nodes, m.groups());
        let plan = CollectivePlan::in_groups(nodes, members, shadows, self.me, lengths, groups.starts())?;
        Ok(plan.with_bfloat16(self.accumulator.rounded().min(lengths.total())))
    }

    fn members_of(membership: &Membership) -> Vec<Member> {
        membership.active.iter().map(|m| Member { worker: m.worker, nodes: m.nodes.clone() }).collect()
    }

    fn stamp(&self, step: u64) -> Stamp {
        self.stamp_of(self.membership.epoch, step)
    }

    fn stamp_of(&self, epoch: u64, step: u64) -> Stamp {
        Stamp { job: self.job, epoch, step }
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
        self.tell_shards(steps.start)?;
        self.sharded.iter_mut().for_each(Sharded::begin_step);
        if self.assigned.replace(self.membership.epoch) != Some(self.membership.epoch) {
            self.workload.assigned(steps.start, self.accumulator.range());
        }
        let check = self.watch_for(&steps);
        let mut computing = Computing::default();
        self.accumulator.reset();
        let mut last = None;
        if self.is_local(steps.start) {
            self.local_round(&steps, &mut computing, urgent)?;
        } else {
            let mut sums = self.sums(&steps);
            last = if self.overlaps(&steps) { sums.pop() } else { None };
            self.gradients(steps.clone(), sums, &mut computing, urgent)?;
        }
        let control = |engine: &mut Self, computing: &mut Computing| {
            engine.control_bytes(steps.start, offer, computing, check.as_ref(), urgent)
        };
        let Beside { mut outcome, computed, hidden_s } = match last {
            Some(last) => self.exchange_beside(steps.start, &last, &mut computing, urgent, control)?,
            None => {
                let bytes = control(self, &mut computing)?;
                let computed = Instant::now();
                Beside { outcome: self.reduce(steps.start, &bytes)?, computed, hidden_s: 0.0 }
            }
        };
        // What newcomers receive with the new parameters has no evidence.
        let check = check.filter(|_| self.sharded.is_none() || self.membership.rank(self.me).is_some());
        self.compare(check, &mut outcome)?;
        let (offers, [loss, squares, weight]) = self.read_headers(&outcome)?;
        self.last = Sums { loss, squares, weight };
        let exchanged = Instant::now();
        self.part(Activity::Updating, steps.start);
        let (applied, shared) = match self.sharded {
            Some(_) => self.apply_sharded(steps, incoming, urgent)?,
            None => (self.apply(steps, incoming, urgent)?, Shared::default()),
        };
        shared.add_to(&mut outcome.traffic);
        Ok(Round {
            offers,
            applied,
            times: StepRecord {
                compute_s: ((computed - began).as_secs_f64() - computing.data_wait_s).max(0.0),
                data_wait_s: computing.data_wait_s,
                exchange_s: (exchanged - computed).as_secs_f64() + shared.seconds,
                hidden_s,
                update_s: exchanged.elapsed().as_secs_f64() - shared.seconds,
                nodes_s: computing.nodes_s,
                traffic: outcome.traffic,
                ..StepRecord::default()
            },
        })
    }

    /// What this worker says with its sums; it computes no more after that.
    fn control_bytes(
        &mut self,
        step: u64,
        offer: Offer,
        computing: &mut Computing,
        check: Option<&Check>,
        urgent: &dyn Fn() -> bool,
    ) -> Result<Vec<u8>, Fault> {
        self.part(Activity::Computing, step);
        let evidence = self.evidence(check, urgent)?;
        computing.data_wait_s += self.workload.take_data_wait_s();
        self.part(Activity::Exchanging, step);
        let range =
            self.membership.rank(self.me).map_or(0..0, |rank| self.membership.active[rank].nodes.clone());
        let sums = header::triples_per_node(self.order.virtual_nodes, range, &computing.leaves);
        let mut bytes = Header { offer, sums }.encode();
        if let Some(sharded) = &mut self.sharded {
            sharded.said.clone_from(&bytes);
        }
        bytes.extend(evidence);
        Ok(bytes)
    }

    fn reduce(&mut self, step: u64, control: &[u8]) -> Result<Outcome, Fault> {
        if self.sharded.is_some() && self.membership.rank(self.me).is_none() {
            return self.receive_new(step);
        }
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

    /// A step takes so long: peers may be as long without reading.
    pub(super) fn expect_step(&mut self, step: Duration) {
        self.mesh.expect_step(step);
    }

    /// Takes back wakes that came for what has been dealt with.
    pub(super) fn drain_wakes(&self) {
        self.wake.drain();
    }
}

fn unplanned(error: PlanError) -> Fault {
    Fault::Collective(None, error.to_string())
}

fn fault(error: CollectiveError) -> Fault {
    let peer = match &error {
        CollectiveError::PeerLost { worker, .. } => Some(*worker),
        CollectiveError::Interrupted | CollectiveError::System(_) => None,
    };
    Fault::Collective(peer, error.to_string())
}
