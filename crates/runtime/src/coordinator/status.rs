//! The state of a run as others see it: `GetStatus`, `Watch`, and the terminal.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bellwether_core::record::{LinkKind, StepRecord};

use super::Run;
use crate::control::{Status, WorkerStatus};
use crate::membership::WorkerId;
use crate::membership::coordinator::Stage;

/// The stage of a worker that waits without a part in the training, and without any claim to one.
pub const STANDBY: &str = "standby";

/// Time between two looks at the status, ...
const PERIOD: Duration = Duration::from_millis(100);

/// ... and for each worker: it has a line of each, and what all lines take is a bounded part of the time. From 100
/// workers on there are fewer looks.
const PERIOD_EACH: Duration = Duration::from_millis(1);

/// A worker's peers, by what carried the last exchange to them.
pub(super) type Links = BTreeMap<LinkKind, Vec<WorkerId>>;

impl Run {
    /// Takes in what carried the last of these steps from a worker to its peers, if it names them.
    pub(super) fn note_links(&mut self, worker: WorkerId, steps: &[StepRecord]) {
        let Some(last) = steps.iter().rev().find(|step| !step.traffic.is_empty()) else { return };
        let mut links = Links::new();
        for peer in &last.traffic {
            if let Some(link) = peer.link {
                links.entry(link).or_default().push(peer.peer);
            }
        }
        self.links.insert(worker, links);
    }

    /// What carries a worker's exchanges to those of its peers that are still among these workers.
    fn links_of(&self, worker: WorkerId, among: &BTreeMap<WorkerId, u32>) -> Links {
        let Some(links) = self.links.get(&worker) else { return Links::new() };
        let present = |peers: &[WorkerId]| -> Vec<WorkerId> {
            peers.iter().copied().filter(|peer| among.contains_key(peer)).collect()
        };
        let links = links.iter().map(|(link, peers)| (*link, present(peers)));
        links.filter(|(_, peers)| !peers.is_empty()).collect()
    }

    /// Shows the status to all watchers, when it is time.
    pub(super) fn show(&mut self) {
        let members = u32::try_from(self.machine.membership().active.len()).unwrap_or(u32::MAX);
        if self.shown.elapsed() >= PERIOD.max(PERIOD_EACH.saturating_mul(members)) {
            self.show_now();
        }
    }

    pub(super) fn show_now(&mut self) {
        self.shown = Instant::now();
        let status = self.current_status();
        self.observer.status(&status);
        self.planes.status.send_replace(status.into());
    }

    /// Steps of the whole run; 0 until the size of the task is known.
    pub(super) fn total_steps(&self) -> u64 {
        let workload = self.machine.workload().or(self.options.workload.as_ref());
        workload.map_or(0, |t| self.options.job.total_steps(t.training_samples))
    }

    pub(super) fn current_status(&self) -> Status {
        let (machine, progress) = (&self.machine, self.machine.progress());
        let total_steps = self.total_steps();
        let step = progress.committed();
        let batch = self.options.job.batch.size as f64;
        let membership = machine.membership();
        let active = membership.active.iter();
        let nodes: BTreeMap<_, _> = active.map(|m| (m.worker, m.nodes.len() as u32)).collect();
        let members = machine
            .workers()
            .map(|(worker, stage, address, process, step)| WorkerStatus {
                doing: machine.doing(worker),
                worker,
                stage: stage_name(stage).into(),
                address: address.into(),
                process,
                virtual_nodes: nodes.get(&worker).copied().unwrap_or(0),
                step,
                links: self.links_of(worker, &nodes),
            })
            .collect();
        Status {
            run: self.options.run.clone(),
            lifecycle: machine.lifecycle().into(),
            epoch: membership.epoch,
            step,
            total_steps,
            loss: progress.last.as_ref().and_then(|last| last.loss).unwrap_or(f64::NAN),
            examples_per_s: progress.mean_step_s().map_or(0.0, |mean_s| batch / mean_s),
            workers: membership.active.len() as u32,
            wanted: machine.wanted(),
            members,
            evaluation: progress.evaluation,
            elapsed_s: self.began.elapsed().as_secs_f64(),
            examples: self.order.map_or(0, |order| order.samples_before(step)),
            batch: if self.options.job.mode.goodput().is_some() { self.batches.samples() } else { 0 },
        }
    }
}

fn stage_name(stage: Stage) -> &'static str {
    match stage {
        Stage::Started => "starting",
        Stage::Booting => "warming up",
        Stage::Standby => STANDBY,
        Stage::Holding => "holding state",
        Stage::Shadow => "receiving state",
        Stage::CaughtUp => "ready to join",
        Stage::Active => "active",
        Stage::Leaving => "leaving",
        Stage::Paused => "pausing",
    }
}
