//! What clients see: rebuilt only where something changed.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bellwether_core::cluster::{JobId, JobView, NodeId, Way};
use bellwether_core::job::WorkerRange;
use tokio::sync::watch;

use super::{Engine, Live};
use crate::clock::Clock;
use crate::ledger::Outcome;
use crate::machine::Slot;
use crate::runner::JobRunner;
use crate::snapshot::{ClusterState, JobState, NodeState, Phase, Snapshot, Span};
use crate::state::{Record, State};

mod queues;
mod tally;

use tally::Tally;

/// Time between two snapshots, unless a client waits for an answer.
const PERIOD: Duration = Duration::from_millis(50);

/// Makes snapshots.
pub(super) struct Publisher {
    sender: watch::Sender<Arc<Snapshot>>,
    last: Snapshot,
    /// When the last snapshot was shown; absent before the first.
    published: Option<Duration>,
    tally: Tally,
    nodes: Arc<Vec<NodeState>>,
    slots: u64,
    decided: u64,
}

impl Publisher {
    pub(super) fn new(sender: watch::Sender<Arc<Snapshot>>, folder: PathBuf) -> Publisher {
        let last = Snapshot { folder, ..Snapshot::default() };
        let (slots, decided) = (u64::MAX, u64::MAX);
        let (tally, nodes) = Default::default();
        Publisher { sender, last, published: None, tally, nodes, slots, decided }
    }

    /// How long nothing has to be published.
    fn patience(&self, now: Duration) -> Duration {
        self.published.map_or(Duration::ZERO, |last| (last + PERIOD).saturating_sub(now))
    }

    /// A job as clients see it since the last snapshot.
    pub(super) fn job(&self, state: &State, job: JobId) -> Option<Arc<JobState>> {
        self.last.jobs.get(&state.jobs.get(&job)?.submitted.name).cloned()
    }
}

impl<C: JobRunner, T: Clock> Engine<C, T> {
    fn has_news(&self) -> bool {
        let State { touched, decided, nodes_changed, .. } = &self.state;
        let is_foreseen_otherwise = self.publisher.last.cluster.no_outlook.as_ref() != self.no_outlook();
        !touched.is_empty() || *nodes_changed || self.publisher.decided != *decided || is_foreseen_otherwise
    }

    /// How long nothing has to be published; where there is no news, for ever.
    pub(super) fn publish_patience(&self) -> Duration {
        if self.has_news() { self.publisher.patience(self.clock.elapsed()) } else { Duration::MAX }
    }

    /// Shows clients what changed, when it is time or a client waits for it.
    pub(super) fn publish(&mut self, now: Duration) {
        let is_time = self.publisher.patience(now).is_zero() || !self.answers.is_empty();
        if !is_time || !self.has_news() {
            return;
        }
        let touched = std::mem::take(&mut self.state.touched);
        let nodes_changed = std::mem::take(&mut self.state.nodes_changed);
        let (now_s, no_outlook) = (self.now_s(), self.no_outlook().cloned());
        self.publish_jobs(&touched, now_s);
        let publisher = &mut self.publisher;
        // Of many nodes few change, and most news is of none of them.
        if publisher.slots != self.state.slots.version || nodes_changed {
            publisher.nodes = Arc::new(nodes(&self.state));
        }
        if publisher.slots != self.state.slots.version {
            publisher.slots = self.state.slots.version;
            publisher.last.spans = Arc::new(spans(&self.state));
        }
        publisher.decided = self.state.decided;
        if std::mem::take(&mut self.state.decisions_changed) {
            publisher.last.decisions = Arc::new(self.state.decisions.iter().cloned().collect());
        }
        publisher.last.queues = self.state.queues_file().cloned();
        publisher.last.cluster =
            Arc::new(ClusterState { no_outlook, ..cluster(&self.state, publisher, now_s) });
        publisher.last.version += 1;
        publisher.published = Some(now);
        publisher.sender.send_replace(Arc::new(publisher.last.clone()));
    }

    fn publish_jobs(&mut self, touched: &BTreeSet<JobId>, now_s: f64) {
        for id in touched {
            let Some(record) = self.state.jobs.get(id) else { continue };
            let mut state =
                job_state(&self.state, *id, record, self.live.get(id), now_s, &self.publisher.last.folder);
            state.outlook = self.outlook_of(*id, state.state);
            let name = &record.submitted.name;
            if !self.publisher.last.jobs.contains_key(name) {
                self.publisher.last.order.push_back_mut(name.clone());
            }
            self.publisher.tally.count(*id, state.state, state.queue.as_ref());
            self.publisher.last.jobs.insert_mut(name.clone(), Arc::new(state));
        }
    }
}

fn phase(state: &State, id: JobId, record: &Record, live: Option<&Live>) -> Phase {
    let target = state.target(id).devices();
    match &record.end {
        Some(end) => match end.outcome {
            Outcome::Finished => Phase::Finished,
            Outcome::Cancelled => Phase::Cancelled,
            Outcome::Failed | Outcome::Refused => Phase::Failed,
        },
        None if record.leaving || record.cancelled => Phase::Stopping,
        None if record.away.is_some() => Phase::Suspended,
        None if record.training > 0 => Phase::Running,
        None if (target > 0 || record.elsewhere.is_some())
            && live.is_some_and(|live| live.order.is_some()) =>
        {
            Phase::Starting
        }
        None => Phase::Queued,
    }
}

fn job_state(
    state: &State,
    id: JobId,
    record: &Record,
    live: Option<&Live>,
    now_s: f64,
    folder: &std::path::Path,
) -> JobState {
    let seen = state.view.jobs.get(&id);
    let seen_or_away = seen.or(record.unseen());
    let submitted = &record.submitted;
    let WorkerRange { min: min_workers, max: max_workers } =
        seen_or_away.map_or(submitted.workers, |seen| record.workers(seen));
    let weight = seen_or_away.map_or(submitted.weight, |seen| seen.job.weight);
    let running = seen.filter(|seen| seen.is_running());
    let predicted = running.and_then(|seen| {
        let configuration = state.view.configuration(&seen.job, &seen.allocation, None);
        state.belief.well_founded(&seen.job.description, &configuration)
    });
    let heard = live.and_then(|live| live.step);
    let step = record.end.as_ref().map(|end| end.step).or(heard).unwrap_or(record.step);
    let rate = live.and_then(|live| live.examples_per_s).or(predicted.as_ref().map(|p| p.examples_per_s));
    let left = record.work() - step as f64 * submitted.job.batch.size as f64;
    let unix_s = state.unix_s(now_s);
    let is_at_work = running.is_some() || record.elsewhere.is_some();
    let expected_end_s =
        rate.filter(|rate| is_at_work && *rate > 0.0).map(|rate| unix_s + left.max(0.0) / rate);
    JobState {
        name: submitted.name.clone(),
        state: phase(state, id, record, live),
        why: record.why.clone(),
        queue: queues::queue_of(state, record),
        user: submitted.user.clone(),
        provider: submitted.provision.as_ref().map(|provision| provision.provider.clone()),
        submitted_s: state.unix_s(record.submitted_s),
        started_s: record.started_s.map(|started_s| state.unix_s(started_s)),
        ended_s: record.end.as_ref().map(|end| state.unix_s(end.time_s)),
        expected_end_s: expected_end_s.filter(|_| record.end.is_none()),
        outlook: None,
        deadline_s: submitted.deadline_s.map(|deadline_s| state.unix_s(deadline_s)),
        weight,
        min_workers,
        max_workers,
        workers: record.training,
        target_workers: match (&record.elsewhere, &submitted.provision) {
            (Some(_), Some(provision)) => provision.workers(),
            _ => seen.map_or(0, JobView::workers),
        },
        servers: submitted.servers,
        fits: submitted.device_types.iter().filter_map(|kind| name_of_type(state, *kind)).collect(),
        ways: if submitted.ways.is_empty() { Vec::new() } else { ways_of(record) },
        step,
        total_steps: record.total_steps,
        loss: live.and_then(|live| live.loss).or(record.loss).filter(|loss| loss.is_finite()),
        examples_per_s: live.and_then(|live| live.examples_per_s),
        predicted_examples_per_s: predicted.as_ref().map(|predicted| predicted.examples_per_s),
        predicted_low: predicted.as_ref().map(|predicted| predicted.low),
        predicted_high: predicted.as_ref().map(|predicted| predicted.high),
        predicted_beyond: predicted.as_ref().and_then(|it| it.validity.beyond().map(String::from)),
        preemptions: record.preemptions,
        failures: record.failures,
        worker_s: record.slot_s(now_s) / state.time_scale,
        digest: record.end.as_ref().and_then(|end| end.digest.clone()),
        run_dir: folder.join(&submitted.name),
    }
}

fn name_of_type(state: &State, kind: u16) -> Option<String> {
    state.machine.device_types.get(usize::from(kind)).map(|device| device.name.clone())
}

fn ways_of(record: &Record) -> Vec<String> {
    let told = |way: Way| match way.servers {
        0 => way.protocol.to_string(),
        1 => format!("{} with 1 server", way.protocol),
        servers => format!("{} with {servers} servers", way.protocol),
    };
    record.ways_at(0).into_iter().map(told).collect()
}

fn name_of(state: &State, job: JobId) -> String {
    state.jobs.get(&job).map_or_else(String::new, |record| record.submitted.name.clone())
}

fn spans(state: &State) -> Vec<Span> {
    let span = |held: crate::state::Held| Span {
        job: name_of(state, held.job),
        node: held.slot.node.0,
        slot: held.slot.index,
        start_s: state.unix_s(held.start_s),
        end_s: held.end_s.map(|end_s| state.unix_s(end_s)),
    };
    state.slots.all().map(span).collect()
}

fn nodes(state: &State) -> Vec<NodeState> {
    let machine = &state.machine;
    let nodes = machine.nodes.iter().enumerate().map(|(place, node)| {
        let kind = &machine.device_types[usize::from(node.device_type)];
        let holder = |index| state.slots.holder(Slot { node: NodeId(place as u32), index });
        let slots = (0..node.devices).map(|index| holder(index).map(|job| name_of(state, job))).collect();
        let down = state.down.get(&NodeId(place as u32)).cloned();
        let (name, device_type) = (node.name.clone(), kind.name.clone());
        let taken = state.taken.get(&NodeId(place as u32)).copied().unwrap_or(0);
        NodeState { name, down, device_type, speed: kind.speed, slots, taken }
    });
    nodes.collect()
}

fn cluster(state: &State, Publisher { tally, nodes, .. }: &Publisher, now_s: f64) -> ClusterState {
    let machine = &state.machine;
    let slots = machine.nodes.iter().map(|node| node.devices).sum::<u32>();
    let offered_s = f64::from(slots) * now_s;
    ClusterState {
        version: env!("CARGO_PKG_VERSION").into(),
        process: std::process::id(),
        since_s: state.unix_s,
        time_scale: state.time_scale,
        policy: state.policy.clone(),
        nodes: nodes.clone(),
        slots,
        free: slots.saturating_sub(state.slots.count() as u32 + state.taken.values().sum::<u32>()),
        jobs: tally.all.clone(),
        utilization: if offered_s > 0.0 { state.slots.slot_s(now_s) / offered_s } else { 0.0 },
        no_outlook: None,
        queues: queues::queues(state, tally),
    }
}
