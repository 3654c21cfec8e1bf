//! Between the generated messages of the wire and the words of the membership protocol.
//!
//! Reading never panics: a message that lacks a part, or carries a number out of range, is `None`, and
//! the session that sent it ends.

use bellwether_core::profile::Network;
use bellwether_core::record::{Boot, LinkKind};

use super::generated as wire;
use crate::collective::Traffic;
use crate::membership::{
    Active, EvaluationRecord, FromWorker, Load, Membership, Report, Shadow, StepRecord, SwitchRecord,
    ToWorker, WorkloadDescription,
};
use crate::workload::{Layout, Tensor};

mod mismatch;
mod phase;
mod position;
mod slices;

use mismatch::{read_mismatch, write_mismatch};

/// Most tensors or members that a message may list.
const LIST_MAX: usize = 1 << 20;

fn list<T, U>(items: Vec<T>, each: impl Fn(T) -> Option<U>) -> Option<Vec<U>> {
    if items.len() > LIST_MAX { None } else { items.into_iter().map(each).collect() }
}

/// A membership for the wire.
pub fn write_membership(m: &Membership) -> wire::MembershipEpoch {
    wire::MembershipEpoch {
        epoch: m.epoch,
        active: m
            .active
            .iter()
            .map(|a| wire::Member {
                worker: a.worker,
                address: a.address.clone(),
                first: a.nodes.start,
                end: a.nodes.end,
            })
            .collect(),
        shadows: m
            .shadows
            .iter()
            .map(|s| wire::Member { worker: s.worker, address: s.address.clone(), first: 0, end: 0 })
            .collect(),
        from_step: m.from_step,
        hold_at: m.hold_at,
        decided: m.decided,
        stop: m.stop,
        promoted: m.promoted.clone(),
        accumulation: m.accumulation,
        paused: m.paused.clone(),
        sharded: m.sharded,
    }
}

/// A membership from the wire.
pub fn read_membership(m: wire::MembershipEpoch) -> Option<Membership> {
    Some(Membership {
        epoch: m.epoch,
        active: list(m.active, |a| {
            (a.first < a.end).then_some(Active {
                worker: a.worker,
                address: a.address,
                nodes: a.first..a.end,
            })
        })?,
        shadows: list(m.shadows, |s| Some(Shadow { worker: s.worker, address: s.address }))?,
        promoted: m.promoted,
        from_step: m.from_step,
        hold_at: m.hold_at,
        decided: m.decided,
        stop: m.stop,
        accumulation: m.accumulation,
        paused: m.paused,
        sharded: m.sharded,
    })
}

/// A message to a worker, for the wire.
pub fn write_to_worker(message: &ToWorker) -> wire::ToWorker {
    use wire::to_worker::Body;
    let body = match message {
        ToWorker::Prepare(m) => Body::Prepare(wire::Prepare { membership: Some(write_membership(m)) }),
        ToWorker::Recover { membership, load, keep } => Body::Recover(wire::Recover {
            membership: Some(write_membership(membership)),
            keep: *keep,
            load: load.map(|load| match load {
                Load::Fresh => wire::recover::Load::Fresh(true),
                Load::Checkpoint(step) => wire::recover::Load::CheckpointStep(step),
            }),
        }),
        ToWorker::Start { epoch, step, behind, source, accumulation } => Body::Start(wire::Start {
            epoch: *epoch,
            step: *step,
            behind: behind.clone(),
            source: *source,
            accumulation: *accumulation,
        }),
        ToWorker::Phase(phase) => Body::Phase(phase::write_phase(phase)),
        ToWorker::Grant { epoch, units } => Body::Grant(wire::Grant { epoch: *epoch, units: units.clone() }),
        ToWorker::EvaluateAlone { epoch, step } => {
            Body::EvaluateAlone(wire::EvaluateAlone { epoch: *epoch, step: *step })
        }
        ToWorker::Serve(serve) => Body::Serve(phase::write_serve(serve)),
        ToWorker::HandOver { epoch, step } => Body::HandOver(wire::HandOver { epoch: *epoch, step: *step }),
        ToWorker::SendCheckpoint { epoch, step } => {
            Body::SendCheckpoint(wire::SendCheckpoint { epoch: *epoch, step: *step })
        }
        ToWorker::GoOn { step } => Body::GoOn(wire::GoOn { step: *step }),
        ToWorker::Inquire { explain } => Body::Inquire(wire::Inquire { explain: *explain }),
        ToWorker::Bye { reason, refused } => {
            Body::Bye(wire::Bye { reason: reason.clone(), refused: *refused })
        }
    };
    wire::ToWorker { body: Some(body) }
}

/// A message to a worker, from the wire. `Welcome` does not belong to the membership protocol.
pub fn read_to_worker(message: wire::ToWorker) -> Option<ToWorker> {
    use wire::to_worker::Body;
    Some(match message.body? {
        Body::Prepare(m) => ToWorker::Prepare(read_membership(m.membership?)?),
        Body::Recover(m) => ToWorker::Recover {
            membership: read_membership(m.membership?)?,
            load: m.load.map(|load| match load {
                wire::recover::Load::Fresh(_) => Load::Fresh,
                wire::recover::Load::CheckpointStep(step) => Load::Checkpoint(step),
            }),
            keep: m.keep,
        },
        Body::Start(m) => ToWorker::Start {
            epoch: m.epoch,
            step: m.step,
            behind: m.behind,
            source: m.source,
            accumulation: m.accumulation,
        },
        Body::Phase(m) => ToWorker::Phase(phase::read_phase(m)?),
        Body::Grant(m) => ToWorker::Grant { epoch: m.epoch, units: m.units },
        Body::EvaluateAlone(m) => ToWorker::EvaluateAlone { epoch: m.epoch, step: m.step },
        Body::Serve(m) => ToWorker::Serve(phase::read_serve(m)?),
        Body::HandOver(m) => ToWorker::HandOver { epoch: m.epoch, step: m.step },
        Body::SendCheckpoint(m) => ToWorker::SendCheckpoint { epoch: m.epoch, step: m.step },
        Body::GoOn(m) => ToWorker::GoOn { step: m.step },
        Body::Inquire(m) => ToWorker::Inquire { explain: m.explain },
        Body::Bye(m) => ToWorker::Bye { reason: m.reason, refused: m.refused },
        Body::Welcome(_) => return None,
    })
}

fn write_tensors(tensors: &[Tensor]) -> Vec<wire::Tensor> {
    let tensor = |t: &Tensor| wire::Tensor {
        name: t.name.clone(),
        shape: t.shape.iter().map(|d| *d as u64).collect(),
    };
    tensors.iter().map(tensor).collect()
}

fn read_tensors(tensors: Vec<wire::Tensor>) -> Option<Vec<Tensor>> {
    let mut total = 0usize;
    list(tensors, |t| {
        let shape: Vec<usize> = list(t.shape, |d| usize::try_from(d).ok())?;
        shape.iter().try_fold(1usize, |product, d| product.checked_mul(*d))?;
        Some(Tensor { name: t.name, shape })
    })
    .filter(|tensors| {
        tensors.iter().all(|t| total.checked_add(t.len()).map(|sum| total = sum).is_some())
            && total.checked_mul(16).is_some()
    })
}

/// A workload's description, for the wire.
pub fn write_workload(t: &WorkloadDescription) -> wire::Workload {
    wire::Workload {
        fingerprint: t.fingerprint.clone(),
        training_samples: t.training_samples,
        held_out_samples: t.held_out_samples,
        parameters: write_tensors(&t.layout.parameters),
        state: write_tensors(&t.layout.state),
    }
}

/// A workload's description, from the wire.
pub fn read_workload(t: wire::Workload) -> Option<WorkloadDescription> {
    Some(WorkloadDescription {
        fingerprint: t.fingerprint,
        training_samples: t.training_samples,
        held_out_samples: t.held_out_samples,
        layout: Layout { parameters: read_tensors(t.parameters)?, state: read_tensors(t.state)? },
    })
}

/// An evaluation, for the wire.
pub fn write_evaluation(e: &EvaluationRecord) -> wire::EvaluationRecord {
    wire::EvaluationRecord {
        step: e.step,
        loss: e.loss,
        correct: e.correct,
        predictions: e.predictions,
        samples: e.samples,
    }
}

/// An evaluation, from the wire.
pub fn read_evaluation(e: wire::EvaluationRecord) -> EvaluationRecord {
    EvaluationRecord {
        step: e.step,
        loss: e.loss,
        correct: e.correct,
        predictions: e.predictions,
        samples: e.samples,
    }
}

fn write_network(n: &Network) -> wire::Network {
    wire::Network { bandwidth_bytes_per_s: n.bandwidth_bytes_per_s, latency_s: n.latency_s }
}

fn read_network(n: wire::Network) -> Network {
    Network { bandwidth_bytes_per_s: n.bandwidth_bytes_per_s, latency_s: n.latency_s }
}

/// What carries bytes, for the wire.
pub(super) fn write_link(link: Option<LinkKind>) -> wire::LinkKind {
    match link {
        None => wire::LinkKind::LinkUnknown,
        Some(LinkKind::Lent) => wire::LinkKind::LinkLent,
        Some(LinkKind::SharedMemory) => wire::LinkKind::LinkSharedMemory,
        Some(LinkKind::UnixSocket) => wire::LinkKind::LinkUnixSocket,
        Some(LinkKind::Tcp) => wire::LinkKind::LinkTcp,
        Some(LinkKind::EncryptedTcp) => wire::LinkKind::LinkEncryptedTcp,
    }
}

/// What carries bytes, from the wire; absent where it is of a kind that this release does not know.
pub(super) fn read_link(link: i32) -> Option<LinkKind> {
    LinkKind::ALL.into_iter().find(|kind| i32::from(write_link(Some(*kind))) == link)
}

fn write_report(r: &Report) -> wire::Report {
    let traffic = |t: &Traffic| wire::Traffic {
        peer: t.peer,
        sent_bytes: t.sent_bytes,
        received_bytes: t.received_bytes,
        sent_s: t.sent_s,
        received_s: t.received_s,
        link: write_link(t.link).into(),
    };
    let step = |s: &StepRecord| wire::StepRecord {
        step: s.step,
        loss: s.loss.unwrap_or(f64::NAN),
        duration_s: s.duration_s,
        compute_s: s.compute_s,
        data_wait_s: s.data_wait_s,
        exchange_s: s.exchange_s,
        hidden_s: s.hidden_s,
        update_s: s.update_s,
        nodes_s: s.nodes_s.clone(),
        traffic: s.traffic.iter().map(traffic).collect(),
        accumulation: s.accumulation,
        noise_scale: s.noise_scale,
        learning_rate_factor: s.learning_rate_factor,
    };
    let switch = |s: &SwitchRecord| wire::SwitchRecord { epoch: s.epoch, step: s.step, stall_s: s.stall_s };
    wire::Report {
        epoch: r.epoch,
        step: r.step,
        steps: r.steps.iter().map(step).collect(),
        evaluations: r.evaluations.iter().map(write_evaluation).collect(),
        switches: r.switches.iter().map(switch).collect(),
        resident_bytes: r.resident_bytes,
    }
}

fn read_report(r: wire::Report) -> Option<Report> {
    let traffic = |t: wire::Traffic| {
        Some(Traffic {
            peer: t.peer,
            sent_bytes: t.sent_bytes,
            received_bytes: t.received_bytes,
            sent_s: t.sent_s,
            received_s: t.received_s,
            link: read_link(t.link),
        })
    };
    let step = |s: wire::StepRecord| {
        Some(StepRecord {
            step: s.step,
            loss: Some(s.loss).filter(|loss| loss.is_finite()),
            duration_s: s.duration_s,
            compute_s: s.compute_s,
            data_wait_s: s.data_wait_s,
            exchange_s: s.exchange_s,
            hidden_s: s.hidden_s,
            update_s: s.update_s,
            nodes_s: s.nodes_s,
            traffic: list(s.traffic, traffic)?,
            accumulation: s.accumulation,
            noise_scale: s.noise_scale,
            learning_rate_factor: s.learning_rate_factor,
            ..StepRecord::default()
        })
    };
    let switch =
        |s: wire::SwitchRecord| Some(SwitchRecord { epoch: s.epoch, step: s.step, stall_s: s.stall_s });
    Some(Report {
        epoch: r.epoch,
        step: r.step,
        steps: list(r.steps, step)?,
        evaluations: list(r.evaluations, |e| Some(read_evaluation(e)))?,
        switches: list(r.switches, switch)?,
        resident_bytes: r.resident_bytes,
    })
}

fn write_failed(kind: wire::failed::Kind, what: &str, (step, node): (u64, u32)) -> wire::from_worker::Body {
    wire::from_worker::Body::Failed(wire::Failed { kind: kind.into(), step, what: what.into(), node })
}

/// A message from a worker, for the wire.
pub fn write_from_worker(message: &FromWorker) -> wire::FromWorker {
    use wire::from_worker::Body;
    let body = match message {
        FromWorker::Warmed(t) => Body::Warmed(write_workload(t)),
        // When it was asked for, the coordinator knows.
        FromWorker::Booted(Boot { importing_s, building_s, compiling_s, .. }) => Body::Booted(wire::Booted {
            importing_s: *importing_s,
            building_s: *building_s,
            compiling_s: *compiling_s,
        }),
        FromWorker::LinkMeasured { network, shared_memory } => Body::LinkMeasured(wire::LinkMeasured {
            network: Some(write_network(network)),
            shared_memory: shared_memory.as_ref().map(write_network),
        }),
        FromWorker::Heartbeat => Body::Heartbeat(wire::Heartbeat { position: None }),
        FromWorker::At(position) => {
            Body::Heartbeat(wire::Heartbeat { position: Some(position::write_position(position)) })
        }
        FromWorker::Ready { epoch, step, last, trained: (trained, accumulation) } => {
            Body::Ready(wire::Ready {
                epoch: *epoch,
                step: *step,
                last: *last,
                trained: *trained,
                accumulation: *accumulation,
            })
        }
        FromWorker::Lacking { epoch, shard } => Body::Lacking(wire::Lacking { epoch: *epoch, shard: *shard }),
        FromWorker::Lost { epoch, step, peer, why } => {
            Body::Lost(wire::Lost { epoch: *epoch, step: *step, peer: peer.unwrap_or(0), why: why.clone() })
        }
        FromWorker::Report(report) => Body::Report(write_report(report)),
        FromWorker::CaughtUp { epoch, step } => Body::CaughtUp(wire::CaughtUp { epoch: *epoch, step: *step }),
        FromWorker::ShadowLost { epoch, shadow } => {
            Body::ShadowLost(wire::ShadowLost { epoch: *epoch, shadow: *shadow })
        }
        FromWorker::Leave { replace } => Body::Leave(wire::Leave { replace: *replace }),
        FromWorker::Left { epoch, step } => Body::Left(wire::Left { epoch: *epoch, step: *step }),
        FromWorker::Failed { what } => write_failed(wire::failed::Kind::Worker, what, (0, 0)),
        FromWorker::UserFailed { what, step, node } => {
            write_failed(wire::failed::Kind::User, what, (*step, *node))
        }
        FromWorker::NotFinite { step, what } => write_failed(wire::failed::Kind::NotFinite, what, (*step, 0)),
        FromWorker::Mismatched(mismatch) => Body::Mismatched(write_mismatch(mismatch)),
        FromWorker::CheckpointFailed { step, why } => {
            Body::CheckpointFailed(wire::CheckpointFailed { step: *step, why: why.clone() })
        }
        FromWorker::SlicesWritten(written) => Body::SlicesWritten(slices::write_slices(written)),
        FromWorker::CheckpointDamaged { step, why } => {
            Body::CheckpointDamaged(wire::CheckpointDamaged { step: *step, why: why.clone() })
        }
        FromWorker::Units { epoch, done, want } => Body::Units(wire::Units {
            epoch: *epoch,
            done: done.iter().map(phase::write_unit).collect(),
            want: *want,
        }),
        FromWorker::ServerLost { epoch, shard, why } => {
            Body::ServerLost(wire::ServerLost { epoch: *epoch, shard: *shard, why: why.clone() })
        }
        FromWorker::Serving { epoch } => Body::Serving(wire::Serving { epoch: *epoch }),
        FromWorker::ServerReport(report) => Body::ServerReport(phase::write_server_report(report)),
        FromWorker::Finished { step, digest } => {
            Body::Finished(wire::Finished { step: *step, digest: digest.to_vec() })
        }
    };
    wire::FromWorker { body: Some(body) }
}

/// A message from a worker, from the wire. `Attach` opens the session and does not belong to the membership protocol.
pub fn read_from_worker(message: wire::FromWorker) -> Option<FromWorker> {
    use wire::from_worker::Body;
    Some(match message.body? {
        Body::Attach(_) => return None,
        Body::Warmed(t) => FromWorker::Warmed(read_workload(t)?),
        Body::Booted(m) => FromWorker::Booted(Boot {
            start_s: 0.0,
            importing_s: m.importing_s,
            building_s: m.building_s,
            compiling_s: m.compiling_s,
        }),
        Body::LinkMeasured(m) => FromWorker::LinkMeasured {
            network: read_network(m.network?),
            shared_memory: m.shared_memory.map(read_network),
        },
        Body::Heartbeat(m) => match m.position {
            Some(position) => FromWorker::At(position::read_position(position)?),
            None => FromWorker::Heartbeat,
        },
        Body::Ready(m) => FromWorker::Ready {
            epoch: m.epoch,
            step: m.step,
            last: m.last,
            trained: (m.trained, m.accumulation),
        },
        Body::Lacking(m) => FromWorker::Lacking { epoch: m.epoch, shard: m.shard },
        Body::Lost(m) => FromWorker::Lost {
            epoch: m.epoch,
            step: m.step,
            peer: (m.peer != 0).then_some(m.peer),
            why: m.why,
        },
        Body::Report(r) => FromWorker::Report(read_report(r)?),
        Body::ShadowLost(m) => FromWorker::ShadowLost { epoch: m.epoch, shadow: m.shadow },
        Body::CaughtUp(m) => FromWorker::CaughtUp { epoch: m.epoch, step: m.step },
        Body::Leave(m) => FromWorker::Leave { replace: m.replace },
        Body::Left(m) => FromWorker::Left { epoch: m.epoch, step: m.step },
        Body::Failed(m) => match m.kind() {
            wire::failed::Kind::Worker => FromWorker::Failed { what: m.what },
            wire::failed::Kind::NotFinite => FromWorker::NotFinite { step: m.step, what: m.what },
            wire::failed::Kind::User => FromWorker::UserFailed { what: m.what, step: m.step, node: m.node },
        },
        Body::Mismatched(m) => FromWorker::Mismatched(read_mismatch(&m)),
        Body::CheckpointFailed(m) => FromWorker::CheckpointFailed { step: m.step, why: m.why },
        Body::SlicesWritten(m) => FromWorker::SlicesWritten(slices::read_slices(m)?),
        Body::CheckpointDamaged(m) => FromWorker::CheckpointDamaged { step: m.step, why: m.why },
        Body::Units(m) => FromWorker::Units {
            epoch: m.epoch,
            done: list(m.done, |unit| Some(phase::read_unit(unit)))?,
            want: m.want,
        },
        Body::ServerLost(m) => FromWorker::ServerLost { epoch: m.epoch, shard: m.shard, why: m.why },
        Body::Serving(m) => FromWorker::Serving { epoch: m.epoch },
        Body::ServerReport(m) => FromWorker::ServerReport(phase::read_server_report(m)),
        Body::Finished(m) => FromWorker::Finished { step: m.step, digest: m.digest.try_into().ok()? },
    })
}
