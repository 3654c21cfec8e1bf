//! Hand-made profiles for the tests of the simulated training.

#![allow(dead_code)]

use bellwether_core::profile::{MeasuredStep, Operation, OperationKind, PROFILE_VERSION, Part, Profile};

/// A graph that grows operation by operation.
pub(crate) struct Graph {
    parts: Vec<Part>,
    operations: Vec<Operation>,
    durations_s: Vec<f64>,
}

impl Graph {
    /// Parts of these sizes, and no operation.
    pub(crate) fn new(bytes: &[u64]) -> Graph {
        let part = |(number, bytes): (usize, &u64)| Part {
            name: format!("part {number}"),
            bytes: *bytes,
            server: None,
        };
        let parts = bytes.iter().enumerate().map(part).collect();
        Graph { parts, operations: Vec::new(), durations_s: Vec::new() }
    }

    /// Adds an operation and returns its number.
    pub(crate) fn add(&mut self, kind: OperationKind, after: &[u32], duration_s: f64) -> u32 {
        let name = format!("operation {}", self.operations.len());
        self.operations.push(Operation { name, kind, after: after.to_vec() });
        self.durations_s.push(duration_s);
        self.operations.len() as u32 - 1
    }

    /// The profile of one measured step that took this long.
    pub(crate) fn profile(&self, step_s: f64) -> Profile {
        Profile {
            version: PROFILE_VERSION,
            job: "test".into(),
            source: "by hand".into(),
            computation: None,
            device: "none".into(),
            batch: 1,
            virtual_nodes: 1,
            parameter_bytes: self.parts.iter().map(|part| part.bytes).sum(),
            parts: self.parts.clone(),
            operations: self.operations.clone(),
            steps: vec![MeasuredStep { step_s, operations_s: self.durations_s.clone(), data_wait_s: 0.0 }],
            collective: None,
            network: None,
            shared_memory: None,
            parsing: None,
            checkpoint_s: None,
            tail_s: None,
            sharding: None,
            peak_resident_bytes: None,
            processor_wait: None,
            boot: None,
            apart: None,
            batches: Vec::new(),
        }
    }
}

/// Two parts of 10 MB, A and B; fA needs A, fB needs fA and B, then bB gives gB and bA gives gA; 1 s each.
pub(crate) fn golden() -> Profile {
    let mut graph = Graph::new(&[10_000_000, 10_000_000]);
    let a = graph.add(OperationKind::Download(0), &[], 0.0);
    let b = graph.add(OperationKind::Download(1), &[], 0.0);
    let forward_a = graph.add(OperationKind::Compute, &[a], 1.0);
    let forward_b = graph.add(OperationKind::Compute, &[forward_a, b], 1.0);
    let backward_b = graph.add(OperationKind::Compute, &[forward_b], 1.0);
    let backward_a = graph.add(OperationKind::Compute, &[backward_b], 1.0);
    graph.add(OperationKind::Upload(1), &[backward_b], 0.0);
    graph.add(OperationKind::Upload(0), &[backward_a], 0.0);
    graph.profile(6.0)
}

/// One part down, one computation of these durations, the part up.
pub(crate) fn phases(bytes: u64, compute_s: &[f64], bandwidth_bytes_per_s: f64) -> Profile {
    let mut graph = Graph::new(&[bytes]);
    let down = graph.add(OperationKind::Download(0), &[], 0.0);
    let compute = graph.add(OperationKind::Compute, &[down], 0.0);
    graph.add(OperationKind::Upload(0), &[compute], 0.0);
    let transfers_s = 2.0 * bytes as f64 / bandwidth_bytes_per_s;
    let step = |duration_s: &f64| MeasuredStep {
        step_s: duration_s + transfers_s,
        operations_s: vec![0.0, *duration_s, 0.0],
        data_wait_s: 0.0,
    };
    Profile { steps: compute_s.iter().map(step).collect(), ..graph.profile(1.0) }
}
