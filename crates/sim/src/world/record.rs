//! What a simulation leaves: an account of every job, and of the cluster over time.

use std::collections::BTreeMap;
use std::sync::Arc;

use bellwether_core::cluster::{Allocation, Job, JobId, JobView, NodeId, Share};

use crate::trace::Entry;

/// What became of a job.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JobRecord {
    /// What its author declared; `None` for one that was refused at once.
    pub job: Option<Arc<Job>>,
    /// When it first held devices, in seconds.
    pub start_s: Option<f64>,
    /// When it ended, in seconds.
    pub end_s: Option<f64>,
    /// How often it went on after it had stopped or changed its devices.
    pub restarts: u32,
    /// How often it lost all its devices before its end.
    pub preemptions: u32,
    /// Seconds for which it held devices.
    pub executed_s: f64,
    /// Device-seconds that it held.
    pub device_s: f64,
    /// Seconds that its work takes alone on the devices that it asked for.
    pub alone_s: f64,
    /// Mean number of jobs that were there while it was, itself included.
    pub contention: f64,
    /// Why it was refused.
    pub refused: Option<String>,
}

/// A job held devices of a node for a while.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// The job.
    pub job: JobId,
    /// The node.
    pub node: NodeId,
    /// How many of its devices.
    pub devices: u32,
    /// From when, in seconds.
    pub start_s: f64,
    /// Until when, in seconds.
    pub end_s: f64,
}

/// What is known of a simulation in the midst of it.
#[derive(Debug, Clone, Copy)]
pub struct SoFar<'a> {
    /// All jobs, those that have not come as well.
    pub entries: &'a [Entry],
    /// Those that are there.
    pub jobs: &'a BTreeMap<JobId, JobView>,
    /// What was written down until now.
    pub recording: &'a Recording,
    /// The time, in seconds.
    pub now_s: f64,
}

/// The account of a simulation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recording {
    /// By job.
    pub jobs: Vec<JobRecord>,
    /// Who held what when, if that was to be kept.
    pub spans: Vec<Span>,
    /// Device-seconds that nodes offered while they were up, from the first arrival until the last job ended.
    pub offered_device_s: f64,
    /// When the last job ended, in seconds; the first arrival where none did.
    pub end_s: f64,
    keep_spans: bool,
    devices: u32,
    devices_since_s: f64,
    /// Jobs that are there, and the integral of their number over time.
    present: u32,
    present_since_s: f64,
    present_s: f64,
}

impl Recording {
    pub(super) fn new(jobs: usize, devices: u32, keep_spans: bool, begin_s: f64) -> Recording {
        Recording {
            jobs: vec![JobRecord::default(); jobs],
            end_s: begin_s,
            keep_spans,
            devices,
            devices_since_s: begin_s,
            present_since_s: begin_s,
            ..Recording::default()
        }
    }

    /// That many more jobs are there before the others.
    pub(super) fn make_room(&mut self, jobs: usize) {
        self.jobs.resize(self.jobs.len() + jobs, JobRecord::default());
    }

    fn presence(&mut self, now_s: f64) -> f64 {
        self.present_s += f64::from(self.present) * (now_s - self.present_since_s);
        self.present_since_s = now_s;
        self.present_s
    }

    pub(super) fn arrived(&mut self, id: JobId, seen: &JobView, alone_s: f64) {
        let before = self.presence(seen.allocated_s);
        self.present += 1;
        let record = &mut self.jobs[id.0 as usize];
        // The integral at its arrival, until its end is known.
        (record.job, record.contention, record.alone_s) = (Some(seen.job.clone()), before, alone_s);
    }

    pub(super) fn refused(&mut self, id: JobId, why: String, now_s: f64) {
        self.presence(now_s);
        let record = &mut self.jobs[id.0 as usize];
        record.refused = Some(why);
        if record.job.is_some() {
            self.present -= 1;
        }
    }

    pub(super) fn ended(&mut self, id: JobId, seen: &JobView, now_s: f64) {
        self.unfinished(id, seen, now_s);
        self.present -= 1;
        self.jobs[id.0 as usize].end_s = Some(now_s);
        self.end_s = now_s;
        self.span(id, &seen.allocation, seen, now_s);
    }

    /// Closes the account of a job that has not ended.
    pub(super) fn unfinished(&mut self, id: JobId, seen: &JobView, now_s: f64) {
        let all = self.presence(now_s);
        let record = &mut self.jobs[id.0 as usize];
        let there_s = now_s - seen.job.arrival_s;
        record.contention = if there_s > 0.0 { (all - record.contention) / there_s } else { 1.0 };
        record.start_s = seen.started_s;
        record.restarts = seen.restarts;
        record.executed_s = seen.executed_s(now_s);
        record.device_s = seen.device_s(now_s);
    }

    pub(super) fn preempted(&mut self, id: JobId) {
        self.jobs[id.0 as usize].preemptions += 1;
    }

    /// The job held these devices from `seen.allocated_s` until now.
    pub(super) fn span(&mut self, job: JobId, held: &Allocation, seen: &JobView, now_s: f64) {
        if !self.keep_spans || now_s <= seen.allocated_s {
            return;
        }
        let (start_s, end_s) = (seen.allocated_s, now_s);
        let span = |share: &Share| Span { job, node: share.node, devices: share.devices, start_s, end_s };
        self.spans.extend(held.shares().iter().map(span));
    }

    pub(super) fn capacity(&mut self, now_s: f64, devices: u32) {
        self.close(now_s);
        self.devices = devices;
    }

    pub(super) fn close(&mut self, now_s: f64) {
        self.offered_device_s += f64::from(self.devices) * (now_s - self.devices_since_s).max(0.0);
        self.devices_since_s = now_s;
    }
}
