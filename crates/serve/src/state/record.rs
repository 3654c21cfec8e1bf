//! One job's account.

use bellwether_core::cluster::{Job, JobView, Way};
use bellwether_core::job::{Model, Reduce, Sync, WorkerRange};
use bellwether_core::prediction::{JobDescription, Protocol};
use bellwether_model::observed::Observed;

use crate::ledger::{OpenWay, Record, Submitted};
use crate::machine::Machine;

/// Why a job does not train yet.
const BEING_PROFILED: &str = "it is profiled first";

impl Record {
    pub(super) fn new(submitted: &Submitted, now_s: f64) -> Record {
        Record {
            total_steps: submitted.job.total_steps(submitted.task.training_samples),
            submitted: Box::new(submitted.clone()),
            after_profile: submitted.profile_first.then_some(submitted.workers),
            submitted_s: now_s,
            away: None,
            elsewhere: None,
            obtaining: false,
            cancelled: false,
            leaving: false,
            end: None,
            why: if submitted.profile_first { BEING_PROFILED.into() } else { String::new() },
            loss: None,
            step: 0,
            training: 0,
            failures: 0,
            preemptions: 0,
            run_ended_unix_s: None,
            started_s: None,
            held: (0, 0.0),
            slot_s: 0.0,
        }
    }

    /// Samples of the whole job: of its last epoch's last step as many as of the others, so that it is a whole number
    /// of batches.
    pub fn work(&self) -> f64 {
        self.total_steps as f64 * self.submitted.job.batch.size as f64
    }

    /// Slot-seconds that its processes held until `now_s`, on the daemon's clock.
    pub fn slot_s(&self, now_s: f64) -> f64 {
        self.slot_s + f64::from(self.held.0) * (now_s - self.held.1).max(0.0)
    }

    pub(super) fn hold(&mut self, slots: u32, now_s: f64) {
        self.slot_s = self.slot_s(now_s);
        self.held = (slots, now_s);
        if slots > 0 && self.started_s.is_none() {
            self.started_s = Some(now_s);
        }
    }

    /// Machines of its own are asked for.
    pub(super) fn obtain(&mut self, now_s: f64) {
        self.obtaining = true;
        self.started_s.get_or_insert(now_s);
    }

    /// The job as policies see it, or would: suspended, or on machines of its own.
    pub(crate) fn unseen(&self) -> Option<&JobView> {
        self.away.as_ref().or(self.elsewhere.as_ref())
    }

    pub(super) fn unseen_mut(&mut self) -> Option<&mut JobView> {
        self.away.as_mut().or(self.elsewhere.as_mut())
    }

    /// Its processes left, and this happened to them.
    pub(super) fn stopped(&mut self, why: &str, unix_s: Option<f64>) {
        self.run_ended_unix_s = unix_s.or(self.run_ended_unix_s);
        if !why.is_empty() && !self.why.is_empty() {
            self.why.push_str("; ");
        }
        self.why.push_str(why);
    }

    /// Its processes failed.
    pub(super) fn retried(&mut self, failures: u32, why: &str, unix_s: Option<f64>) {
        (self.failures, self.training, self.leaving) = (failures, 0, false);
        self.run_ended_unix_s = unix_s.or(self.run_ended_unix_s);
        why.clone_into(&mut self.why);
    }

    /// The job in the words of policies, within the limits with which it was submitted; at most `widest` slots are of
    /// one type that can hold it.
    pub fn scheduled(&self, widest: u32, machine: &Machine) -> Job {
        let Submitted { name, job, weight, deadline_s, .. } = self.submitted.as_ref();
        let workers =
            if self.after_profile.is_some() { self.profiled_with(machine) } else { self.submitted.workers };
        let (ways, is_open) = (self.ways_at(self.step), !self.submitted.ways.is_empty());
        let mut scheduled = Job {
            description: JobDescription {
                name: name.clone(),
                model: self.kind_at(self.step),
                batch: job.batch.size,
                devices: 0,
            },
            arrival_s: self.submitted_s,
            min_devices: 0,
            max_devices: 0,
            device_types: self.submitted.device_types.clone(),
            weight: *weight,
            deadline_s: *deadline_s,
            adaptive_batch: false,
            ways,
            switch: None,
            workers: is_open.then_some(workers),
            queue: self.submitted.queue.clone(),
        };
        limit(&mut scheduled, workers, widest);
        scheduled.description.devices = scheduled.max_devices;
        scheduled
    }

    /// The workers that it may have while it is profiled. On one machine a second one is measured beside the first, on
    /// the same slot; on a cluster each has a place of its own, so that the link between two is measured.
    pub(super) fn profiled_with(&self, machine: &Machine) -> WorkerRange {
        let job = &self.submitted.job;
        let two = machine.is_cluster() && self.submitted.servers == 0 && job.batch.virtual_nodes >= 2;
        let workers = if two { 2 } else { 1 };
        WorkerRange { min: workers, max: workers }
    }

    /// The numbers of workers that `seen`, this job as policies see it, may have now, or once it was profiled.
    pub fn workers(&self, seen: &JobView) -> WorkerRange {
        self.after_profile.unwrap_or_else(|| self.workers_of(&seen.job))
    }

    /// The numbers of workers that policies may give it now, by their words.
    pub(super) fn workers_of(&self, scheduled: &Job) -> WorkerRange {
        let servers = self.submitted.servers;
        let within = || {
            let [min, max] =
                [scheduled.min_devices, scheduled.max_devices].map(|count| count.saturating_sub(servers));
            WorkerRange { min, max }
        };
        scheduled.workers.unwrap_or_else(within)
    }

    /// The fewest slots of servers that it may have.
    pub(crate) fn fewest_servers(&self) -> u32 {
        let Submitted { ways, servers, .. } = self.submitted.as_ref();
        ways.iter().map(|way| way.servers).min().unwrap_or(*servers)
    }

    /// How many workers it has on this number of slots, of which its servers take theirs.
    pub(crate) fn workers_on(&self, slots: u32) -> u32 {
        slots.saturating_sub(self.submitted.servers).min(self.submitted.job.batch.virtual_nodes)
    }

    /// Who waits for whom, and from which step on.
    fn phases(&self) -> Vec<(u64, Protocol)> {
        self.submitted.job.sync.policy.phases(self.total_steps)
    }

    /// The number of the phase in which the step after `step` committed ones is done.
    pub(super) fn phase_at(&self, step: u64) -> usize {
        self.phases().partition_point(|(from, _)| *from <= step).saturating_sub(1)
    }

    /// What jobs have in common that are as fast after `step` committed steps: of a job that switches protocols, its
    /// phases are kinds of their own.
    pub(super) fn kind_at(&self, step: u64) -> String {
        self.kind_of(self.phase_at(step))
    }

    fn kind_of(&self, phase: usize) -> String {
        let (phases, kind) = (self.phases(), &self.submitted.kind);
        match phases.get(phase) {
            Some((_, protocol)) if phases.len() > 1 && self.submitted.ways.is_empty() => {
                format!("{kind}@{protocol}")
            }
            _ => kind.clone(),
        }
    }

    /// How its workers are kept together after `step` committed steps; the servers are those of all its phases.
    fn way_at(&self, step: u64) -> Way {
        let Submitted { job, servers, .. } = self.submitted.as_ref();
        way(&job.sync, *servers, self.total_steps, step)
    }

    /// The ways in which its workers may be kept together after `step` committed steps, in the words of policies.
    pub(crate) fn ways_at(&self, step: u64) -> Vec<Way> {
        let Submitted { ways, .. } = self.submitted.as_ref();
        if !ways.is_empty() {
            return ways.iter().map(|open| way(&open.sync, open.servers, self.total_steps, 0)).collect();
        }
        Some(self.way_at(step)).filter(|way| *way != Way::default()).into_iter().collect()
    }

    /// Its way is this one from now on; it was open.
    pub(super) fn settle_way(&mut self, chosen: Way) {
        let total_steps = self.total_steps;
        let ways = std::mem::take(&mut self.submitted.ways);
        let is_chosen = |open: &OpenWay| way(&open.sync, open.servers, total_steps, 0) == chosen;
        let Some(OpenWay { sync, servers, kind, profiled }) = ways.into_iter().find(is_chosen) else {
            return;
        };
        let submitted = self.submitted.as_mut();
        submitted.job.sync = sync;
        (submitted.servers, submitted.kind, submitted.profiled) = (servers, kind, profiled);
    }

    /// Introduces jobs of its kind, or of all that it may yet be of.
    pub(super) fn describe(&self, observed: &mut Observed) {
        let Submitted { job, task, profiled, ways, kind, .. } = self.submitted.as_ref();
        if !ways.is_empty() {
            let mut kinds = Vec::new();
            for way in self.ways_at(0) {
                let mut settled = self.clone();
                settled.settle_way(way);
                settled.describe(observed);
                kinds.push((way.protocol, way.servers, settled.kind_of(0)));
            }
            return observed.leave_open(kind, kinds);
        }
        for phase in 0..self.phases().len() {
            let kind = self.kind_of(phase);
            observed.describe(
                &kind,
                job.batch.size,
                job.batch.virtual_nodes,
                task.bytes,
                declared_node_s(self),
            );
            observed.name_network(&kind, &network(&job.model));
        }
        // A profile measures what a job does first.
        if !profiled.is_empty() {
            observed.foresee(&self.kind_of(0), profiled);
        }
    }
}

/// What a model is called in job files: networks of one name are alike but for their sizes. Of a script nothing is
/// known.
fn network(model: &Model) -> String {
    let named = serde_json::to_value(model).unwrap_or_default();
    match named.get("kind").and_then(serde_json::Value::as_str) {
        Some("python" | "synthetic") | None => String::new(),
        Some(kind) => kind.into(),
    }
}

/// The way that a table `[sync]` means after `step` committed steps. The slots of servers are those of all phases.
fn way(sync: &Sync, servers: u32, total_steps: u64, step: u64) -> Way {
    let phases = sync.policy.phases(total_steps);
    let phase = phases.partition_point(|(from, _)| *from <= step).saturating_sub(1);
    let protocol = phases.get(phase).map_or(Protocol::Bsp, |(_, protocol)| *protocol);
    let nodes_per_update = if servers > 0 { sync.nodes_per_update } else { 1 };
    Way { protocol, servers, nodes_per_update }
}

/// Lets a job have as many devices as these numbers of workers need beside its servers, of which `widest` are of one
/// type at most.
pub(super) fn limit(job: &mut Job, workers: WorkerRange, widest: u32) {
    let servers = || job.ways().map(|way| way.servers);
    let (fewest, most) = (servers().min().unwrap_or(0), servers().max().unwrap_or(0));
    let min_devices = workers.min.saturating_add(fewest);
    let max_devices = workers.max.saturating_add(most).min(widest).max(min_devices);
    (job.min_devices, job.max_devices) = (min_devices, max_devices);
    if job.workers.is_some() {
        job.workers = Some(workers);
    }
}

/// Seconds of a virtual node on a slot of speed 1, where the job says it: a synthetic device.
fn declared_node_s(record: &Record) -> Option<f64> {
    let job = &record.submitted.job;
    let Model::Synthetic { step_time, saturation, .. } = &job.model else { return None };
    let samples = job.batch.size as f64 / f64::from(job.batch.virtual_nodes);
    let crowded = if *saturation == 0 { 1.0 } else { (samples / *saturation as f64).max(1.0) };
    Some(step_time.get() * crowded)
}

/// Slots of a job's parameter servers and their replicas: those of all its phases, which it has from the beginning.
pub(crate) fn server_slots(job: &bellwether_core::job::Job, total_steps: u64) -> u32 {
    let phases = job.sync.policy.phases(total_steps);
    let has_servers =
        job.sync.reduce == Reduce::Servers || phases.iter().any(|(_, protocol)| protocol.needs_servers());
    let servers = if has_servers { job.sync.servers } else { 0 };
    servers.saturating_mul(1 + u32::from(job.sync.replica))
}
