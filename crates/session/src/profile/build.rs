//! Makes a profile of what a run's steps took.

use bellwether_core::job::Job;
use bellwether_core::profile::{
    CollectiveCost, MeasuredStep, Network, Operation, OperationKind, PROFILE_VERSION, Part, Profile,
    SharedState,
};
use bellwether_core::record::{Boot, StepRecord};
use bellwether_runtime::membership::WorkloadDescription;
use bellwether_runtime::optimizer::Optimizer;
use bellwether_runtime::workload::Tensor;

use crate::metrics::WARM_UP_STEPS;

/// Bytes from which the time of a collective is mostly that of its bytes.
const LARGE_BYTES: u64 = 256 << 10;

/// An exchange that takes this many times as long as the link shows what handling costs.
const HANDLING_SEEN: f64 = 1.2;

/// What was measured.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    /// All steps, in order.
    pub(crate) steps: Vec<StepRecord>,
    /// How many of them were to be measured, with each number of workers.
    pub(crate) wanted: u64,
    /// The link to the peer.
    pub(crate) network: Option<Network>,
    /// The same through shared memory, if the peer is on the same machine.
    pub(crate) shared_memory: Option<Network>,
    /// Time to write a checkpoint.
    pub(crate) checkpoint_s: Option<f64>,
    /// Largest resident memory of a worker, where it is known.
    pub(crate) peak_resident_bytes: Option<u64>,
    /// What the start of the first worker took.
    pub(crate) boot: Option<Boot>,
}

impl Measured {
    /// The first steps with this many workers and no newcomer, warm-up left out.
    fn with_workers(&self, workers: u32) -> Vec<&StepRecord> {
        let steps = self.steps.iter().filter(|step| step.workers == workers && step.shadows == 0);
        steps.skip(WARM_UP_STEPS).take(self.wanted as usize).collect()
    }
}

/// The profile of `job`.
pub(crate) fn profile(job: &Job, description: &WorkloadDescription, measured: &Measured) -> Profile {
    let nodes = job.batch.virtual_nodes;
    let layout = &description.layout;
    let part = |tensor: &Tensor, value_bytes: u64| {
        let bytes = value_bytes * tensor.len() as u64;
        Part { name: tensor.name.clone(), bytes, server: None }
    };
    let gradients = layout.parameters.iter().map(|tensor| part(tensor, job.exchange.precision.bytes()));
    let parts: Vec<Part> = gradients.chain(layout.state.iter().map(|tensor| part(tensor, 4))).collect();
    let bytes: u64 = parts.iter().map(|part| part.bytes).sum();
    let one = measured.with_workers(1);
    let complete = one.iter().filter(|step| step.nodes_s.len() == nodes as usize);
    Profile {
        version: PROFILE_VERSION,
        job: job.name.clone(),
        source: concat!("bellwether ", env!("CARGO_PKG_VERSION")).into(),
        computation: None,
        device: description.fingerprint.clone(),
        batch: job.batch.size,
        virtual_nodes: nodes,
        parameter_bytes: 4 * (layout.parameter_count() + layout.state_count()) as u64,
        operations: operations(nodes, &parts),
        steps: complete.map(|step| measured_step(step, &parts, bytes)).collect(),
        parts,
        collective: collective(&measured.with_workers(2), bytes, measured.shared_memory.or(measured.network)),
        network: measured.network,
        shared_memory: measured.shared_memory,
        parsing: None,
        checkpoint_s: measured.checkpoint_s,
        tail_s: tail_s(&measured.with_workers(2)),
        sharding: sharding(job, description),
        peak_resident_bytes: measured.peak_resident_bytes,
        processor_wait: None,
        boot: measured.boot,
        apart: None,
        batches: Vec::new(),
    }
}

/// The virtual nodes one after another; then all parts leave together; each is updated when it is back.
fn operations(nodes: u32, parts: &[Part]) -> Vec<Operation> {
    let count = parts.len() as u32;
    let compute = (0..nodes).map(|node| Operation {
        name: format!("virtual node {node}"),
        kind: OperationKind::Compute,
        after: node.checked_sub(1).into_iter().collect(),
    });
    let upload = (0..count).map(|part| Operation {
        name: format!("send {}", parts[part as usize].name),
        kind: OperationKind::Upload(part),
        after: vec![nodes - 1],
    });
    let update = (0..count).map(|part| Operation {
        name: format!("update {}", parts[part as usize].name),
        kind: OperationKind::Update(part),
        after: vec![nodes + part],
    });
    compute.chain(upload).chain(update).collect()
}

fn measured_step(step: &StepRecord, parts: &[Part], bytes: u64) -> MeasuredStep {
    let mut operations_s = step.nodes_s.clone();
    operations_s.extend(parts.iter().map(|_| 0.0));
    let share = |part: &Part| step.update_s * part.bytes as f64 / bytes.max(1) as f64;
    operations_s.extend(parts.iter().map(share));
    // A worker's clock for waiting is not that of its steps.
    let data_wait_s = step.data_wait_s.min(step.duration_s);
    MeasuredStep { step_s: step.duration_s, operations_s, data_wait_s }
}

/// What two workers' exchange takes beside the link. With one size of vector it cannot be told how much of it
/// is for bytes and how much for messages: a large vector's is for bytes. Bytes are handled while others
/// travel, so where the link takes most of the time, handling was not seen.
fn collective(steps: &[&StepRecord], bytes: u64, network: Option<Network>) -> Option<CollectiveCost> {
    // Beside computing an exchange does not show what it takes; every other step has one that does.
    let bare = steps.iter().filter(|step| step.hidden_s == 0.0);
    let exchange_s: Vec<f64> = bare.map(|step| step.exchange_s).collect();
    let median_s = median(&exchange_s)?;
    let (wire_s, latency_s) =
        network.map_or((0.0, 0.0), |n| (bytes as f64 / n.bandwidth_bytes_per_s, 2.0 * n.latency_s));
    let rest_s = (median_s - latency_s).max(0.0);
    Some(match bytes {
        LARGE_BYTES.. if rest_s > HANDLING_SEEN * wire_s => {
            CollectiveCost { s_per_byte: rest_s / bytes as f64, fixed_s: 0.0 }
        }
        LARGE_BYTES.. => CollectiveCost { s_per_byte: 0.0, fixed_s: 0.0 },
        _ => CollectiveCost { s_per_byte: 0.0, fixed_s: (rest_s - wire_s).max(0.0) },
    })
}

/// For how long gradients of a worker's last virtual node are there before all are.
fn sharding(job: &Job, description: &WorkloadDescription) -> Option<SharedState> {
    let steps = job.total_steps(description.training_samples);
    let slots = Optimizer::new(job, steps).slots().len();
    let bytes = 4 * ((1 + slots) * description.layout.parameter_count()) as u64;
    job.sharding.map(|sharding| SharedState { copies: sharding.copies, bytes })
}

fn tail_s(steps: &[&StepRecord]) -> Option<f64> {
    let beside = steps.iter().filter(|step| step.hidden_s > 0.0);
    median(&beside.map(|step| step.hidden_s).collect::<Vec<f64>>())
}

/// The middle one of some values; of two in the middle the larger.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}
