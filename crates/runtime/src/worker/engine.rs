//! One worker's arithmetic: gradients of its virtual nodes, the collective, the update.
//!
//! # Memory
//!
//! Beside what the trainee needs: parameters, optimizer slots and model state once; the reduced result
//! once (it is kept until the next collective overwrites it, so that a member who missed it can still
//! have it); and the partial sums of [`Accumulator`]: log2(V/W) + 1 for aligned ranges.

use std::sync::{Arc, RwLock};
use std::time::Instant;

use bellwether_core::job::Job;

use super::incoming::Incoming;
use crate::collective::{
    Collective, CollectiveError, CollectivePlan, Member, Outcome, Traffic, WakeReceiver,
};
use crate::control::Token;
use crate::frame::Stamp;
use crate::membership::{EvaluationRecord, Membership, WorkerId};
use crate::mesh::Mesh;
use crate::optimizer::{Optimizer, Update};
use crate::order::{SampleOrder, micro_batch_seed};
use crate::state::{Reduced, TrainingState};
use crate::trainee::{Evaluation, MicroBatch, Trainee, Weights};
use crate::transfer::{read, write};
use crate::tree::{Accumulator, maximal_nodes};
use header::Header;

mod header;

/// Samples of the held-out set that one call of `evaluate` gets at most.
const EVALUATION_BATCH: u64 = 256;

/// Why a round did not come to its end.
#[derive(Debug)]
pub(super) enum Fault {
    /// A peer is to blame, or nobody (interrupted).
    Collective(Option<WorkerId>, String),
    /// The trainee failed.
    Trainee(String),
    /// The result is not finite; nothing was applied.
    NotFinite(String),
}

/// What a training round found.
#[derive(Debug)]
pub(super) struct Round {
    /// Epochs that the active members offered, by rank.
    pub(super) offers: Vec<u64>,
    /// Mean loss of the step's samples.
    pub(super) loss: f64,
    /// Seconds spent on gradients.
    pub(super) compute_s: f64,
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
    pub(super) trainee: Box<dyn Trainee>,
    pub(super) state: Arc<RwLock<TrainingState>>,
    pub(super) optimizer: Optimizer,
    pub(super) order: SampleOrder,
    pub(super) mesh: Mesh,
    job: u64,
    seed: u64,
    me: WorkerId,
    wake: WakeReceiver,
    membership: Membership,
    pub(super) accumulator: Accumulator,
    bulk: Option<Collective>,
    control: Option<Collective>,
    /// Sums of the last finished step.
    out: Vec<f32>,
    last_loss: f64,
    samples: Vec<u64>,
    /// Changes with every change of parameters or state.
    version: u64,
}

impl Engine {
    pub(super) fn new(
        trainee: Box<dyn Trainee>,
        job: &Job,
        token: &Token,
        me: WorkerId,
        wake: WakeReceiver,
    ) -> Self {
        let order = SampleOrder {
            samples: trainee.training_samples(),
            batch: job.batch.size,
            virtual_nodes: job.batch.virtual_nodes,
            seed: job.seed,
        };
        let optimizer = Optimizer::new(job, job.total_steps(order.samples));
        let state = TrainingState::zeros(trainee.layout(), optimizer.slots().len());
        let length = trainee.layout().parameter_count() + trainee.layout().state_count();
        Engine {
            state: Arc::new(RwLock::new(state)),
            optimizer,
            accumulator: Accumulator::new(order.virtual_nodes, 0..0, length),
            order,
            mesh: Mesh::new(),
            job: token.job_tag(),
            seed: job.seed,
            me,
            wake,
            membership: Membership::default(),
            bulk: None,
            control: None,
            out: vec![0.0; length],
            last_loss: f64::NAN,
            samples: Vec::new(),
            version: 0,
            trainee,
        }
    }

    /// Writes the initial state.
    pub(super) fn initialize(&mut self) {
        let mut state = write(&self.state);
        let TrainingState { parameters, model_state, slots, step } = &mut *state;
        slots.iter_mut().for_each(|slot| slot.fill(0.0));
        *step = 0;
        self.trainee.initialize(self.seed, parameters, model_state);
        self.version += 1;
    }

    /// The state was changed from outside.
    pub(super) fn touched(&mut self) {
        self.version += 1;
    }

    /// Computes one micro-batch for nothing, so that the first real one is as fast as the others.
    pub(super) fn warm_up(&mut self) -> Result<(), String> {
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
        self.trainee.gradient(weights, batch, 0, gradient, model_state).map(|_| ()).map_err(|e| e.to_string())
    }

    /// Takes a membership into use, over the connections in `mesh`.
    pub(super) fn adopt(&mut self, membership: &Membership) -> Result<(), String> {
        self.membership = membership.clone();
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

    /// How many buffers for partial sums a membership needs beyond those that are there, and their length.
    pub(super) fn lacking_buffers(&self, membership: &Membership) -> (usize, usize) {
        let nodes = membership.rank(self.me).map_or(0..0, |rank| membership.active[rank].nodes.clone());
        (self.accumulator.lacking(self.order.virtual_nodes, nodes), self.out.len())
    }

    fn plan(&self, length: usize) -> Result<CollectivePlan, String> {
        let m = &self.membership;
        let members = m.active.iter().map(|a| Member { worker: a.worker, nodes: a.nodes.clone() }).collect();
        let shadows = m.shadows.iter().map(|s| s.worker).collect();
        CollectivePlan::new(self.order.virtual_nodes, members, shadows, self.me, length)
            .map_err(|e| e.to_string())
    }

    fn stamp(&self, step: u64) -> Stamp {
        Stamp { job: self.job, epoch: self.membership.epoch, step }
    }

    /// Gradients of this worker's virtual nodes, their sum over all workers, and the update.
    pub(super) fn train(
        &mut self,
        step: u64,
        offer: u64,
        incoming: Option<&Incoming>,
        urgent: &dyn Fn() -> bool,
    ) -> Result<Round, Fault> {
        let began = Instant::now();
        let mut nodes_s = Vec::with_capacity(self.accumulator.range().len());
        let losses = self.gradients(step, &mut nodes_s, urgent)?;
        let computed = Instant::now();
        let header = Header { offer, sums: losses.into_iter().map(|loss| [loss, 0.0, 0.0]).collect() };
        let outcome = self.reduce(step, &header)?;
        let (offers, [loss_sum, ..]) = self.read_headers(&outcome)?;
        let samples = self.order.samples_in(step);
        self.last_loss = loss_sum / samples as f64;
        let exchanged = Instant::now();
        self.apply(step, incoming, urgent)?;
        Ok(Round {
            offers,
            loss: self.last_loss,
            compute_s: (computed - began).as_secs_f64(),
            exchange_s: (exchanged - computed).as_secs_f64(),
            update_s: exchanged.elapsed().as_secs_f64(),
            nodes_s,
            traffic: outcome.traffic,
        })
    }

    /// Fills the accumulator; returns the loss sum of each maximal node of this worker's range.
    fn gradients(
        &mut self,
        step: u64,
        nodes_s: &mut Vec<f64>,
        urgent: &dyn Fn() -> bool,
    ) -> Result<Vec<f64>, Fault> {
        let range = self.accumulator.range();
        self.accumulator.reset();
        let mut losses = Vec::with_capacity(range.len());
        let state = read(&self.state);
        let weights =
            Weights { parameters: &state.parameters, state: &state.model_state, version: self.version };
        for node in range.clone() {
            if urgent() {
                return Err(Fault::Collective(None, "interrupted".into()));
            }
            let began = Instant::now();
            self.order.micro_batch(step, node, &mut self.samples);
            let leaf = self.accumulator.leaf();
            if self.samples.is_empty() {
                leaf.fill(0.0);
                losses.push(0.0);
            } else {
                let (gradient, model_state) = leaf.split_at_mut(state.parameters.len());
                let seed = micro_batch_seed(self.seed, step, node);
                let batch = MicroBatch { samples: &self.samples };
                let loss = self.trainee.gradient(weights, batch, seed, gradient, model_state);
                losses.push(loss.map_err(|e| Fault::Trainee(e.to_string()))?.sum);
                let count = self.samples.len() as f32;
                model_state.iter_mut().for_each(|value| *value *= count);
            }
            self.accumulator.push();
            nodes_s.push(began.elapsed().as_secs_f64());
        }
        Ok(header::per_node(self.order.virtual_nodes, range, &losses))
    }

    fn reduce(&mut self, step: u64, header: &Header) -> Result<Outcome, Fault> {
        // Nobody to talk to: the only partial sum is the result.
        let alone = self.membership.active.len() == 1 && self.membership.shadows.is_empty();
        if alone && self.membership.contains(self.me) && self.accumulator.swap_only(&mut self.out) {
            let headers = vec![header.encode()];
            return Ok(Outcome { headers, dead_shadows: Vec::new(), traffic: Vec::new() });
        }
        let stamp = self.stamp(step);
        let collective = self.bulk.as_mut().expect("a membership was adopted");
        let result = if self.membership.rank(self.me).is_some() {
            let partials = self.accumulator.partials();
            collective.run(&mut self.mesh, stamp, &header.encode(), &partials, &mut self.out, &self.wake)
        } else {
            collective.receive(&mut self.mesh, stamp, &mut self.out, &self.wake)
        };
        let outcome = result.map_err(fault)?;
        self.drop_dead(&outcome);
        Ok(outcome)
    }

    /// A shadow that died is not served again; the coordinator hears of it by its session.
    fn drop_dead(&mut self, outcome: &Outcome) {
        for shadow in &outcome.dead_shadows {
            self.mesh.remove(*shadow);
        }
    }

    /// Exchanges headers only.
    pub(super) fn confer(&mut self, step: u64, header: &Header) -> Result<(Vec<u64>, [f64; 3]), Fault> {
        let stamp = self.stamp(step);
        let collective = self.control.as_mut().expect("a membership was adopted");
        let result = if self.membership.rank(self.me).is_some() {
            collective.run(&mut self.mesh, stamp, &header.encode(), &[], &mut [], &self.wake)
        } else {
            collective.receive(&mut self.mesh, stamp, &mut [], &self.wake)
        };
        let outcome = result.map_err(fault)?;
        self.drop_dead(&outcome);
        self.read_headers(&outcome)
    }

    /// Offers only: a round that agrees on the next membership.
    pub(super) fn hold(&mut self, step: u64, offer: u64) -> Result<Vec<u64>, Fault> {
        let nodes = maximal_nodes(self.order.virtual_nodes, self.accumulator.range()).len();
        let header = Header { offer, sums: vec![[0.0; 3]; nodes] };
        self.confer(step, &header).map(|(offers, _)| offers)
    }

    fn read_headers(&self, outcome: &Outcome) -> Result<(Vec<u64>, [f64; 3]), Fault> {
        let ranges: Vec<_> = self.membership.active.iter().map(|a| a.nodes.clone()).collect();
        header::combine(self.order.virtual_nodes, &ranges, &outcome.headers).map_err(|rank| {
            let worker = self.membership.active[rank].worker;
            Fault::Collective(Some(worker), "it sent control bytes that make no sense".into())
        })
    }

    /// Applies the sums in `out` as the result of `step`.
    fn apply(
        &mut self,
        step: u64,
        incoming: Option<&Incoming>,
        urgent: &dyn Fn() -> bool,
    ) -> Result<(), Fault> {
        let samples = self.order.samples_in(step);
        let parameters = self.out.len() - read(&self.state).model_state.len();
        let gradient = &self.out[..parameters];
        let square_sum = if self.optimizer.clips() { square_sum(gradient) } else { 0.0 };
        if !self.last_loss.is_finite() {
            return Err(Fault::NotFinite(format!("the loss is {}", self.last_loss)));
        }
        if !all_finite(gradient) {
            return Err(Fault::NotFinite("the gradient is not finite".into()));
        }
        let update = Update { step, scale: self.optimizer.scale(samples, square_sum) };
        let reduced = Reduced { sums: &self.out, samples, update };
        match incoming {
            Some(incoming) => incoming
                .apply(step, &self.optimizer, reduced, urgent)
                .map_err(|why| Fault::Collective(None, format!("the state did not come: {why}")))?,
            None => write(&self.state).apply(&self.optimizer, reduced),
        }
        self.version += 1;
        Ok(())
    }

    /// Hands the last result from `source` to those `behind`, who apply it; returns its loss.
    pub(super) fn catch_up(
        &mut self,
        step: u64,
        source: WorkerId,
        behind: &[WorkerId],
    ) -> Result<f64, Fault> {
        let members = vec![Member { worker: source, nodes: 0..self.order.virtual_nodes }];
        let plan =
            CollectivePlan::new(self.order.virtual_nodes, members, behind.to_vec(), self.me, self.out.len());
        let mut collective = Collective::new(plan.map_err(|e| Fault::Collective(None, e.to_string()))?);
        let stamp = self.stamp(step);
        if self.me == source {
            let copy = self.out.clone();
            let header = self.last_loss.to_le_bytes();
            let run = collective.run(&mut self.mesh, stamp, &header, &[&copy], &mut self.out, &self.wake);
            run.map_err(fault)?;
            return Ok(self.last_loss);
        }
        let outcome = collective.receive(&mut self.mesh, stamp, &mut self.out, &self.wake).map_err(fault)?;
        let loss: [u8; 8] = outcome.headers[0]
            .as_slice()
            .try_into()
            .map_err(|_| Fault::Collective(Some(source), "it sent no loss with the last result".into()))?;
        self.last_loss = f64::from_le_bytes(loss);
        self.apply(step, None, &|| false)?;
        Ok(self.last_loss)
    }

    /// Evaluates the held-out set together; every member learns the result.
    pub(super) fn evaluate(
        &mut self,
        step: u64,
        offer: u64,
        urgent: &dyn Fn() -> bool,
    ) -> Result<EvaluationRecord, Fault> {
        let (range, nodes) = (self.accumulator.range(), u64::from(self.order.virtual_nodes));
        let held_out = self.trainee.held_out_samples();
        let mut leaves = Vec::with_capacity(range.len());
        for node in range.clone() {
            let node = u64::from(node);
            let mut total = Evaluation::default();
            let mut start = held_out * node / nodes;
            let end = held_out * (node + 1) / nodes;
            while start < end {
                if urgent() {
                    return Err(Fault::Collective(None, "interrupted".into()));
                }
                let next = (start + EVALUATION_BATCH).min(end);
                self.samples.clear();
                self.samples.extend(start..next);
                start = next;
                let state = read(&self.state);
                let weights = Weights {
                    parameters: &state.parameters,
                    state: &state.model_state,
                    version: self.version,
                };
                let part = self.trainee.evaluate(weights, MicroBatch { samples: &self.samples });
                let part = part.map_err(|e| Fault::Trainee(e.to_string()))?;
                total.loss_sum += part.loss_sum;
                total.correct += part.correct;
                total.predictions += part.predictions;
            }
            leaves.push([total.loss_sum, total.correct as f64, total.predictions as f64]);
        }
        let sums = header::triples_per_node(self.order.virtual_nodes, range, &leaves);
        let (_, [loss, correct, predictions]) = self.confer(step, &Header { offer, sums })?;
        let loss = if held_out > 0 { loss / held_out as f64 } else { f64::NAN };
        Ok(EvaluationRecord {
            step,
            loss,
            correct: correct as u64,
            predictions: predictions as u64,
            samples: held_out,
        })
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

/// Whether no value is infinite or not a number: one that is has all bits of its exponent set, and only
/// then does adding one to the exponent reach the sign. Integers, so that it vectorises.
fn all_finite(values: &[f32]) -> bool {
    const EXPONENT: u32 = 0x7f80_0000;
    const ONE: u32 = 1 << 23;
    let seen = values.iter().fold(0, |seen, value| seen | ((value.to_bits() & EXPONENT) + ONE));
    seen >> 31 == 0
}

/// Sum of squares in a fixed order that vectorises: sixteen lanes, added up at the end.
fn square_sum(values: &[f32]) -> f64 {
    let mut lanes = [0.0f64; 16];
    let (blocks, rest) = values.as_chunks::<16>();
    for block in blocks {
        for (lane, value) in lanes.iter_mut().zip(block) {
            *lane += f64::from(*value) * f64::from(*value);
        }
    }
    let rest: f64 = rest.iter().map(|v| f64::from(*v) * f64::from(*v)).sum();
    lanes.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_finite_values_are_finite() {
        let mut values = [0.0, -0.0, f32::MAX, f32::MIN, f32::MIN_POSITIVE, 1e-45, -1.5];
        assert!(all_finite(&values) && all_finite(&[]));
        for wrong in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -f32::NAN] {
            values[3] = wrong;
            assert!(!all_finite(&values), "{wrong}");
        }
    }
}
