//! One job's account.

use bellwether_core::cluster::JobView;
use bellwether_core::job::Model;
use bellwether_model::observed::Observed;

use crate::ledger::{Outcome, Submitted};

/// What is known of a job beside what policies see.
#[derive(Debug, Clone)]
pub struct Record {
    /// As it was accepted.
    pub submitted: Box<Submitted>,
    /// When, on the daemon's clock.
    pub submitted_s: f64,
    /// Steps of the whole job.
    pub total_steps: u64,
    /// What policies saw of it last, while its user wants it to wait.
    pub away: Option<JobView>,
    /// Its user does not want it any more.
    pub cancelled: bool,
    /// Its processes were told to leave.
    pub leaving: bool,
    /// How it ended.
    pub end: Option<End>,
    /// Why it is as it is, where that needs to be said.
    pub why: String,
    /// Training loss at its end.
    pub loss: Option<f64>,
    /// Committed steps, as far as the ledger knows.
    pub step: u64,
    /// Active workers.
    pub training: u32,
    /// How often its processes failed.
    pub failures: u32,
    /// How often it lost all its workers before its end.
    pub preemptions: u32,
    /// When its run ended last though the job was not over, in seconds since the Unix epoch as it says itself.
    pub run_ended_unix_s: Option<f64>,
    /// When its processes first held slots, on the daemon's clock.
    pub started_s: Option<f64>,
    /// Slots that its processes hold, and since when, on the daemon's clock.
    held: (u32, f64),
    /// Slot-seconds until then.
    slot_s: f64,
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq)]
pub struct End {
    /// In a word.
    pub outcome: Outcome,
    /// Committed steps.
    pub step: u64,
    /// Digest of what was trained.
    pub digest: Option<String>,
    /// When, on the daemon's clock.
    pub time_s: f64,
}

impl Record {
    pub(super) fn new(submitted: &Submitted, now_s: f64) -> Record {
        Record {
            total_steps: submitted.job.total_steps(submitted.task.training_samples),
            submitted: Box::new(submitted.clone()),
            submitted_s: now_s,
            away: None,
            cancelled: false,
            leaving: false,
            end: None,
            why: String::new(),
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

    /// Introduces jobs of its kind.
    pub(super) fn describe(&self, observed: &mut Observed) {
        let Submitted { job, task, kind, .. } = self.submitted.as_ref();
        observed.describe(kind, job.batch.size, job.batch.virtual_nodes, task.bytes, declared_node_s(self));
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
