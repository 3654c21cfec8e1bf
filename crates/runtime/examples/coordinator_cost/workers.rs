//! What the workers of a run say while it trains.

use bellwether_core::record::{LinkKind, StepRecord, Traffic};
use bellwether_runtime::membership::{
    Activity, FromWorker, Position, Report, SwitchRecord, WorkerId, WorkloadDescription,
};

/// Virtual nodes of each worker.
pub(super) const NODES_EACH: u32 = 4;

pub(super) fn workload() -> WorkloadDescription {
    WorkloadDescription {
        fingerprint: "synthetic".into(),
        training_samples: 1 << 20,
        ..WorkloadDescription::default()
    }
}

/// A report about the step before `step`, as `worker::report` sends it.
pub(super) fn report(worker: WorkerId, peers: &[WorkerId], (epoch, step): (u64, u64), step_s: f64) -> Report {
    let part_s = step_s * (0.5 + (worker * 7 % 11) as f64 / 100.0);
    let traffic = |peer: &WorkerId| Traffic {
        peer: *peer,
        sent_bytes: 40_000 + peer,
        received_bytes: 40_100 + peer,
        sent_s: 0.1 * step_s,
        received_s: 0.2 * step_s,
        link: Some(LinkKind::SharedMemory),
    };
    let record = StepRecord {
        step: step - 1,
        loss: Some(1.5),
        duration_s: step_s,
        compute_s: part_s,
        exchange_s: 0.3 * step_s,
        update_s: 0.05 * step_s,
        nodes_s: vec![part_s / f64::from(NODES_EACH); NODES_EACH as usize],
        traffic: Traffic::reported(peers.iter().filter(|peer| **peer != worker).map(traffic).collect()),
        accumulation: 1,
        ..StepRecord::default()
    };
    Report { epoch, step, steps: vec![record], ..Report::default() }
}

/// A report about a membership that began, before any step in it.
pub(super) fn switched(epoch: u64, step: u64) -> FromWorker {
    let switches = vec![SwitchRecord { epoch, step, stall_s: 0.001 }];
    FromWorker::Report(Report { epoch, step, switches, ..Report::default() })
}

pub(super) fn heartbeat(epoch: u64, step: u64) -> FromWorker {
    FromWorker::At(Position {
        activity: Activity::Computing,
        epoch,
        step,
        since_s: 0.01,
        usual_s: Some(0.05),
        thread: "R".into(),
        ..Position::default()
    })
}
