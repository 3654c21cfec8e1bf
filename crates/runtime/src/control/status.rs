//! The state of a run as others see it: what `watch` shows, and what a request is answered with.

use std::collections::BTreeMap;

use bellwether_core::record::LinkKind;
use serde_json::{Value, json};

use super::convert::{self, read_link, write_link};
use super::generated as wire;
use crate::membership::EvaluationRecord;

/// The state of a run at one moment.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Status {
    /// Name of the run.
    pub run: String,
    /// What it is doing, in a word or two; `ended` at the end.
    pub lifecycle: String,
    /// Number of the membership.
    pub epoch: u64,
    /// Steps that are done.
    pub step: u64,
    /// Steps of the whole run; 0 until that is known.
    pub total_steps: u64,
    /// Loss of the last step; not a number where none is done, or it has none.
    pub loss: f64,
    /// Samples per second.
    pub examples_per_s: f64,
    /// Workers that train.
    pub workers: u32,
    /// Workers that are wanted.
    pub wanted: u32,
    /// All workers that are there.
    pub members: Vec<WorkerStatus>,
    /// The last evaluation.
    pub evaluation: Option<EvaluationRecord>,
    /// Seconds since this coordinator began.
    pub elapsed_s: f64,
    /// Samples that were trained on.
    pub examples: u64,
    /// Samples of an update; 0 where that never changes.
    pub batch: u64,
}

impl Status {
    /// The same as JSON, with the key `phase` for the lifecycle, as in 0.1.
    pub fn json(&self) -> Value {
        let member = |member: &WorkerStatus| {
            json!({
                "worker": member.worker, "stage": member.stage, "address": member.address,
                "process": member.process, "virtual_nodes": member.virtual_nodes, "step": member.step,
                "doing": member.doing, "links": member.links,
            })
        };
        json!({
            "run": self.run, "phase": self.lifecycle, "epoch": self.epoch, "step": self.step,
            "total_steps": self.total_steps, "loss": self.loss, "examples": self.examples,
            "examples_per_s": self.examples_per_s, "workers": self.workers, "wanted": self.wanted,
            "elapsed_s": self.elapsed_s, "batch": (self.batch > 0).then_some(self.batch),
            "members": self.members.iter().map(member).collect::<Vec<_>>(),
        })
    }
}

/// A worker as its coordinator sees it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct WorkerStatus {
    /// Its number.
    pub worker: u64,
    /// How far it is on its way into the training, or out of it.
    pub stage: String,
    /// Address of its data plane.
    pub address: String,
    /// Its process on its machine.
    pub process: u32,
    /// Virtual nodes that it computes.
    pub virtual_nodes: u32,
    /// Steps that it has applied.
    pub step: u64,
    /// What its computing thread does and for how long, where it told; for people.
    pub doing: String,
    /// The peers to which its last exchange went, by what carried it; nothing where there are too many to be named.
    pub links: BTreeMap<LinkKind, Vec<u64>>,
}

/// The answer to a request to scale or stop a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Whether it will be done.
    pub accepted: bool,
    /// What will happen, or why nothing will.
    pub message: String,
}

impl From<wire::Reply> for Answer {
    fn from(wire::Reply { accepted, message }: wire::Reply) -> Answer {
        Answer { accepted, message }
    }
}

impl From<WorkerStatus> for wire::WorkerStatus {
    fn from(status: WorkerStatus) -> wire::WorkerStatus {
        let WorkerStatus { worker, stage, address, process, virtual_nodes, step, doing, links } = status;
        let by_link = |(link, peers)| wire::PeersByLink { link: write_link(Some(link)).into(), peers };
        let links = links.into_iter().map(by_link).collect();
        wire::WorkerStatus { worker, stage, address, process, virtual_nodes, step, doing, links }
    }
}

impl From<wire::WorkerStatus> for WorkerStatus {
    fn from(status: wire::WorkerStatus) -> WorkerStatus {
        let wire::WorkerStatus { worker, stage, address, process, virtual_nodes, step, doing, links } =
            status;
        let known = |by_link: wire::PeersByLink| Some((read_link(by_link.link)?, by_link.peers));
        let links = links.into_iter().filter_map(known).collect();
        WorkerStatus { worker, stage, address, process, virtual_nodes, step, doing, links }
    }
}

impl From<Status> for wire::Status {
    fn from(status: Status) -> wire::Status {
        wire::Status {
            run: status.run,
            lifecycle: status.lifecycle,
            epoch: status.epoch,
            step: status.step,
            total_steps: status.total_steps,
            loss: status.loss,
            examples_per_s: status.examples_per_s,
            workers: status.workers,
            wanted: status.wanted,
            members: status.members.into_iter().map(Into::into).collect(),
            evaluation: status.evaluation.as_ref().map(convert::write_evaluation),
            elapsed_s: status.elapsed_s,
            examples: status.examples,
            batch: status.batch,
        }
    }
}

impl From<wire::Status> for Status {
    fn from(status: wire::Status) -> Status {
        Status {
            run: status.run,
            lifecycle: status.lifecycle,
            epoch: status.epoch,
            step: status.step,
            total_steps: status.total_steps,
            loss: status.loss,
            examples_per_s: status.examples_per_s,
            workers: status.workers,
            wanted: status.wanted,
            members: status.members.into_iter().map(Into::into).collect(),
            evaluation: status.evaluation.map(convert::read_evaluation),
            elapsed_s: status.elapsed_s,
            examples: status.examples,
            batch: status.batch,
        }
    }
}
