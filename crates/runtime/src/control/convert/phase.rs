//! The words of phases, to the wire and back.

use bellwether_core::plan::TransmissionOrder;
use bellwether_core::record::{Call, Staleness};

use super::{list, read_workload, wire, write_workload};
use crate::membership::{Peer, Phase, Serve, ServerReport, UnitRecord};

fn write_peer(peer: &Peer) -> wire::Member {
    wire::Member { worker: peer.worker, address: peer.address.clone(), first: 0, end: 0 }
}

fn read_peer(member: wire::Member) -> Option<Peer> {
    Some(Peer { worker: member.worker, address: member.address })
}

fn write_order(order: &TransmissionOrder) -> (Option<u64>, Vec<u32>) {
    match order {
        TransmissionOrder::Fifo => (None, Vec::new()),
        TransmissionOrder::RoundRobin { window_bytes } => (Some(*window_bytes), Vec::new()),
        TransmissionOrder::Priority(levels) => (None, levels.clone()),
    }
}

fn read_order(window_bytes: Option<u64>, levels: Vec<u32>) -> TransmissionOrder {
    match (window_bytes, levels) {
        (Some(window_bytes), _) => TransmissionOrder::RoundRobin { window_bytes },
        (None, levels) if levels.is_empty() => TransmissionOrder::Fifo,
        (None, levels) => TransmissionOrder::Priority(levels),
    }
}

pub(super) fn write_phase(phase: &Phase) -> wire::Phase {
    let (window_bytes, levels) = write_order(&phase.order);
    wire::Phase {
        epoch: phase.epoch,
        protocol: phase.protocol.to_string(),
        servers: phase.servers.iter().map(write_peer).collect(),
        peers: phase.peers.iter().map(write_peer).collect(),
        window_bytes,
        levels,
        checkpoint_step: phase.checkpoint,
        late: phase.late,
    }
}

pub(super) fn read_phase(phase: wire::Phase) -> Option<Phase> {
    let order = read_order(phase.window_bytes, phase.levels);
    Some(Phase {
        epoch: phase.epoch,
        protocol: phase.protocol.parse().ok()?,
        servers: list(phase.servers, read_peer)?,
        peers: list(phase.peers, read_peer)?,
        order,
        checkpoint: phase.checkpoint_step,
        late: phase.late,
    })
}

pub(super) fn write_serve(serve: &Serve) -> wire::Serve {
    let (window_bytes, levels) = write_order(&serve.order);
    wire::Serve {
        epoch: serve.epoch,
        shard: serve.shard,
        shards: serve.shards,
        protocol: serve.protocol.to_string(),
        checkpoint_step: serve.checkpoint,
        workload: Some(write_workload(&serve.workload)),
        replica: serve.replica.as_ref().map(write_peer),
        window_bytes,
        levels,
        step: serve.step,
        follows: serve.follows,
    }
}

pub(super) fn read_serve(serve: wire::Serve) -> Option<Serve> {
    (serve.shard < serve.shards).then_some(())?;
    Some(Serve {
        epoch: serve.epoch,
        shard: serve.shard,
        shards: serve.shards,
        protocol: serve.protocol.parse().ok()?,
        checkpoint: serve.checkpoint_step,
        workload: read_workload(serve.workload?)?,
        replica: serve.replica.and_then(read_peer),
        follows: serve.follows,
        step: serve.step,
        order: read_order(serve.window_bytes, serve.levels),
    })
}

pub(super) fn write_unit(unit: &UnitRecord) -> wire::UnitRecord {
    wire::UnitRecord {
        unit: unit.unit,
        loss_sum: unit.loss_sum,
        duration_s: unit.duration_s,
        compute_s: unit.compute_s,
        data_wait_s: unit.data_wait_s,
        wait_s: unit.wait_s,
        segments_s: unit.segments_s.clone(),
        samples: unit.samples,
        calls: unit.calls.iter().map(|call| write_call(*call)).collect(),
    }
}

fn write_call(call: Call) -> i32 {
    let number = |tensor: u32| i32::try_from(tensor).map_or(i32::MAX, |tensor| tensor.saturating_add(1));
    match call {
        Call::Take(tensor) => number(tensor),
        Call::Give(tensor) => -number(tensor),
    }
}

fn read_call(call: i32) -> Option<Call> {
    let tensor = call.unsigned_abs().checked_sub(1)?;
    Some(if call > 0 { Call::Take(tensor) } else { Call::Give(tensor) })
}

pub(super) fn read_unit(unit: wire::UnitRecord) -> UnitRecord {
    UnitRecord {
        unit: unit.unit,
        loss_sum: unit.loss_sum,
        duration_s: unit.duration_s,
        compute_s: unit.compute_s,
        data_wait_s: unit.data_wait_s,
        wait_s: unit.wait_s,
        segments_s: unit.segments_s,
        samples: unit.samples,
        worker: 0,
        calls: unit.calls.into_iter().filter_map(read_call).collect(),
    }
}

pub(super) fn write_server_report(report: &ServerReport) -> wire::ServerReport {
    wire::ServerReport {
        epoch: report.epoch,
        staleness: report.staleness.counts.clone(),
        staleness_sum: report.staleness.sum,
        staleness_largest: report.staleness.largest,
        updates: report.updates,
        apply_s: report.apply_s,
        received_bytes: report.received_bytes,
        sent_bytes: report.sent_bytes,
        handed_over: report.handed_over,
        pieces_s: report.pieces_s.clone(),
    }
}

pub(super) fn read_server_report(report: wire::ServerReport) -> ServerReport {
    ServerReport {
        epoch: report.epoch,
        staleness: Staleness {
            counts: report.staleness,
            sum: report.staleness_sum,
            largest: report.staleness_largest,
        },
        updates: report.updates,
        apply_s: report.apply_s,
        received_bytes: report.received_bytes,
        sent_bytes: report.sent_bytes,
        handed_over: report.handed_over,
        pieces_s: report.pieces_s,
    }
}
