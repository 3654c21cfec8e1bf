//! What was measured on one worker: the first arrow of the road, from measuring to modelling.
//!
//! A profile is a file of JSON. It holds one graph of operations (what a step does, and what must be done
//! before what) and the measured durations of many steps. A transfer has bytes and no duration: how long it
//! takes depends on who shares the link, which is for a model to say.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::boot::Boot;
use crate::error::InputError;

mod check;

/// Version of the file format that this program writes and reads.
pub const PROFILE_VERSION: u32 = 1;

/// The measurements of one worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Version of the format, [`PROFILE_VERSION`].
    pub version: u32,
    /// Name of the job.
    pub job: String,
    /// Who measured: `bellwether 0.1.0`, `pytorch`, `tensorflow`.
    pub source: String,
    /// Digest of what a worker computes: of the job's model, data, batch and kind of update rule, and after an `@`
    /// where a script computes, if not in one thread of a processor. Jobs with an equal one are as fast on the same
    /// machines; absent where it is not known, as of another framework.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub computation: Option<String>,
    /// The device on which it was measured, in the words of the person who measured.
    pub device: String,
    /// Samples that one worker processes in one step of this profile.
    pub batch: u64,
    /// Virtual nodes that these samples are cut into; 1 where there are none.
    pub virtual_nodes: u32,
    /// Bytes of the model's parameters in memory.
    pub parameter_bytes: u64,
    /// What travels: tensors or buckets of them, in the order in which the backward pass needs no more.
    pub parts: Vec<Part>,
    /// What one step does.
    pub operations: Vec<Operation>,
    /// Measured steps, warm-up left out. Each holds one duration per operation of `operations`.
    pub steps: Vec<MeasuredStep>,
    /// Costs of taking part in a collective that do not depend on the link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collective: Option<CollectiveCost>,
    /// The link to a peer, measured by bulk transfers; absent when none was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// The same link through the memory that two processes of one machine share, which carries the exchanges of
    /// synchronous steps there; absent where the two were on different machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_memory: Option<Network>,
    /// Time of getting a received part ready for use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parsing: Option<Parsing>,
    /// Measured time to write a checkpoint, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_s: Option<f64>,
    /// Seconds before the end of a virtual node's computing in which its gradients get ready one after another, so that
    /// they can be exchanged; absent where all come at its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail_s: Option<f64>,
    /// What the workers share of the optimizer's state; absent where each holds the whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharding: Option<SharedState>,
    /// Largest resident memory of a worker while it was measured, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_resident_bytes: Option<u64>,
    /// Part of the time of measuring, 0…1, in which a process of the machine was ready and had no processor; absent
    /// where the system does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor_wait: Option<f64>,
    /// What the start of the first worker took: a newcomer on another machine takes as long. Absent when it was not
    /// measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<Boot>,
    /// What was measured apart from the steps; absent when nothing was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apart: Option<MeasuredApart>,
    /// What a micro-batch takes by its size, smallest first, this profile's own among them; empty when only that was
    /// measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub batches: Vec<MeasuredBatch>,
}

/// What a micro-batch of one size takes: what a virtual node computes at once.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredBatch {
    /// Samples of the micro-batch.
    pub samples: u64,
    /// Seconds of computing it, of which a quarter of those that were measured took less: the others may have waited
    /// for a processor.
    pub compute_s: f64,
    /// Relative standard error of these seconds, by how much rounds of the measurement differ.
    pub error: f64,
    /// Largest resident memory of a lone worker that computed all virtual nodes of this size, in bytes; absent where
    /// the system does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_resident_bytes: Option<u64>,
}

/// What measurements apart from the profiled steps say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredApart {
    /// Relative standard error of the mean step, taken as that of another run of the same job.
    pub step_error: f64,
    /// Relative standard error of the time of an exchange, taken as that of another exchange over the same link.
    pub link_error: f64,
    /// Processor time that a pull and a push through parameter servers take at each end: per part, and per byte of the
    /// parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handling: Option<Parsing>,
}

/// A piece that travels as one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Name of the tensor or bucket.
    pub name: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// The parameter server that holds it, when the measured job had several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<u32>,
}

/// One operation of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operation {
    /// Its name.
    pub name: String,
    /// What it does, and on what.
    pub kind: OperationKind,
    /// Numbers of the operations that must be done before it; all smaller than its own or larger, but never
    /// in a circle.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<u32>,
}

/// What an operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationKind {
    /// Computes on the worker.
    Compute,
    /// Brings the part of this number to the worker.
    Download(u32),
    /// Gives the gradient of this part away: to its server, or to a collective.
    Upload(u32),
    /// Applies this part's gradient where the part is held: at its server, or at the worker itself.
    Update(u32),
}

/// One measured step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredStep {
    /// From its begin to its end, in seconds.
    pub step_s: f64,
    /// Duration of each operation, in seconds, in the order of [`Profile::operations`]; 0 for transfers.
    pub operations_s: Vec<f64>,
    /// Seconds of it in which computing waited for its samples to be loaded; part of no operation.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub data_wait_s: f64,
}

// Serde hands over a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(seconds: &f64) -> bool {
    *seconds == 0.0
}

/// What the workers share of a worker's memory (`[sharding]`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SharedState {
    /// Workers that hold each part.
    pub copies: u32,
    /// Optimizer slots, and one reduced gradient, of which each of W workers holds copies / W.
    pub bytes: u64,
}

/// Costs of a collective beside the link: what reducing and copying bytes takes a worker.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CollectiveCost {
    /// Seconds per byte of the vector for handling it at one worker.
    pub s_per_byte: f64,
    /// Seconds per step, whatever the bytes: wake-ups and headers, between two workers.
    pub fixed_s: f64,
}

/// A measured link.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Bytes per second in one direction, of a bulk transfer.
    pub bandwidth_bytes_per_s: f64,
    /// Seconds that the first byte takes one way.
    pub latency_s: f64,
}

/// Time of getting a received part ready: `fixed_s + s_per_byte · bytes`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parsing {
    /// Seconds per part.
    pub fixed_s: f64,
    /// Seconds per byte.
    pub s_per_byte: f64,
}

/// What of a [`computation`](Profile::computation) is the same on every device.
pub fn task(computation: &str) -> &str {
    computation.split_once('@').map_or(computation, |(task, _)| task)
}

impl Profile {
    /// Reads and checks a profile; `place` names it in errors.
    ///
    /// # Errors
    ///
    /// Returns an error for text that is not JSON, another version, negative or absent durations, operations in a
    /// circle, numbers of parts or operations that do not exist, sizes beyond any machine.
    pub fn read(text: &str, place: &str) -> Result<Profile, InputError> {
        check::read(text, place)
    }

    /// Checks what [`Profile::read`] checks, of a profile that was made and not read.
    ///
    /// # Errors
    ///
    /// Returns the first thing that is wrong, with its place in the profile.
    pub fn check(&self) -> Result<(), InputError> {
        check::check(self)
    }

    /// Refuses `other`, which was measured on another kind of machine, unless it is of the same job.
    ///
    /// # Errors
    ///
    /// Names what differs, in both.
    pub fn check_same_job(&self, other: &Profile) -> Result<(), InputError> {
        let (own, its) = (self.computation.as_deref().map(task), other.computation.as_deref().map(task));
        let sizes = [
            ("samples of a batch", self.batch, other.batch),
            ("virtual nodes", self.virtual_nodes.into(), other.virtual_nodes.into()),
            ("bytes of parameters", self.parameter_bytes, other.parameter_bytes),
        ];
        let difference = match sizes.iter().find(|(_, own, its)| own != its) {
            Some((what, own, its)) => format!("it has {its} {what}, and `{}` has {own}", self.job),
            None => match (own, its) {
                (Some(own), Some(its)) if own != its => {
                    format!(
                        "the digest of its model, data and update rule is {its}, and that of `{}` {own}",
                        self.job
                    )
                }
                _ => return Ok(()),
            },
        };
        let what = format!("the profile is of another job, `{}`: {difference}", other.job);
        Err(InputError::new("profile", what)
            .hint("measure this job on that kind of machine: bellwether profile JOB.toml -o FILE.json"))
    }

    /// Seconds of the worker's own operations in each measured step, added up.
    pub fn compute_s(&self) -> Vec<f64> {
        self.per_step(|kind| kind == OperationKind::Compute)
    }

    /// Seconds of the updates in each measured step, added up.
    pub fn update_s(&self) -> Vec<f64> {
        self.per_step(|kind| matches!(kind, OperationKind::Update(_)))
    }

    /// Seconds of each measured step in which computing waited for its samples.
    pub fn data_wait_s(&self) -> Vec<f64> {
        self.steps.iter().map(|step| step.data_wait_s).collect()
    }

    fn per_step(&self, counts: impl Fn(OperationKind) -> bool) -> Vec<f64> {
        let sum = |step: &MeasuredStep| {
            let pairs = step.operations_s.iter().zip(&self.operations);
            pairs.filter(|(_, operation)| counts(operation.kind)).map(|(seconds, _)| seconds).sum()
        };
        self.steps.iter().map(sum).collect()
    }

    /// Samples of one micro-batch of this profile: what a virtual node computes at once.
    pub fn micro_batch(&self) -> f64 {
        self.batch as f64 / f64::from(self.virtual_nodes)
    }

    /// Bytes that a worker of parameter servers pulls in one step: of the downloads, or, in a profile without any, as
    /// much as it pushes.
    pub fn download_bytes(&self) -> u64 {
        let of = |operation: &Operation| match operation.kind {
            OperationKind::Download(part) => Some(self.parts[part as usize].bytes),
            _ => None,
        };
        let mut downloads = self.operations.iter().filter_map(of).peekable();
        match downloads.peek() {
            Some(_) => downloads.fold(0, u64::saturating_add),
            None => self.upload_bytes(),
        }
    }

    /// Bytes of the uploads of one step; a profile that [`Profile::check`] accepts has no more than 2⁶⁰.
    pub fn upload_bytes(&self) -> u64 {
        let of = |operation: &Operation| match operation.kind {
            OperationKind::Upload(part) => self.parts[part as usize].bytes,
            _ => 0,
        };
        self.operations.iter().map(of).fold(0, u64::saturating_add)
    }
}
