//! What a run has achieved so far: committed steps, losses, evaluations, and what changes cost.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use bellwether_core::record::{Boot, Crash, Event as Journal, Mismatch, Resize};

use crate::membership::{EvaluationRecord, Report, StepRecord, WorkerId};

/// The steps from `first` up to `end`, in phases whose updates covered the same number of steps: the first and the
/// last step of each, and that number. Where the batch may move (`moves`) it is 0 for steps without a record.
pub(super) fn phases(first: u64, end: u64, records: &[StepRecord], moves: bool) -> Vec<(u64, u64, u32)> {
    if !moves {
        return vec![(first, end - 1, 1)];
    }
    let mut phases: Vec<(u64, u64, u32)> = Vec::new();
    let mut add = |from: u64, to: u64, accumulation: u32| match phases.last_mut() {
        Some((_, last, same)) if *same == accumulation => *last = to - 1,
        _ => phases.push((from, to - 1, accumulation)),
    };
    let mut next = first;
    // Of updates that were done again after a loss, what belongs to the steps before them was taken already.
    for record in records.iter().filter(|r| r.step + r.steps() <= end) {
        if record.step < next {
            continue;
        }
        if record.step > next {
            add(next, record.step, 0);
        }
        add(record.step, record.step + record.steps(), record.accumulation.max(1));
        next = record.step + record.steps();
    }
    if next < end {
        add(next, end, 0);
    }
    phases
}

/// The account of a run.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    committed: u64,
    /// Reported steps that are not committed yet.
    pending: BTreeMap<u64, StepRecord>,
    /// The last committed step that a worker reported.
    pub last: Option<StepRecord>,
    /// The last evaluation.
    pub evaluation: Option<EvaluationRecord>,
    /// Committed steps at the last evaluation that an earlier coordinator wrote into the journal.
    evaluated: Option<u64>,
    /// Active workers at each membership.
    pub worker_counts: Vec<u32>,
    /// Planned changes.
    pub resizes: Vec<Resize>,
    /// The start of a worker that took longest.
    pub slowest_boot: Option<Boot>,
    /// Losses.
    pub crashes: Vec<Crash>,
    /// Virtual nodes that two workers computed differently.
    pub mismatches: Vec<Mismatch>,
    /// Largest resident memory of a worker.
    pub peak_resident_bytes: u64,
    /// Seconds of the committed steps whose account is known, and those of them in which gradients waited for samples.
    steps_s: [f64; 2],
    /// How many of them waited.
    pub data_waits: u64,
    /// Moving average of the time of a step.
    mean_step_s: Option<f64>,
    stalls: BTreeMap<u64, f64>,
    /// Changes that no commit has followed yet; short steps let several wait for the next report.
    open_resizes: Vec<OpenResize>,
    /// Indices into `crashes` with the time of the evidence.
    open_crashes: Vec<(usize, f64)>,
}

#[derive(Debug, Clone)]
struct OpenResize {
    epoch: u64,
    resize: Resize,
    hidden_s: f64,
}

impl Progress {
    pub(super) fn new(committed: u64, evaluated: Option<u64>) -> Self {
        Progress { committed, evaluated, ..Progress::default() }
    }

    /// A worker can train.
    pub(super) fn booted(&mut self, boot: Boot) {
        let slower = self.slowest_boot.is_none_or(|slowest| slowest.total_s() < boot.total_s());
        if slower {
            self.slowest_boot = Some(boot);
        }
    }

    /// Steps of the result so far.
    pub fn committed(&self) -> u64 {
        self.committed
    }

    /// Average time of recent steps, in seconds.
    pub fn mean_step_s(&self) -> Option<f64> {
        self.mean_step_s
    }

    /// Share of the steps' time in which gradients waited for their samples; nothing where none did.
    pub fn data_wait(&self) -> Option<f64> {
        let [all_s, waited_s] = self.steps_s;
        (waited_s > 0.0).then(|| (waited_s / all_s).min(1.0))
    }

    /// Takes the records of a report in; returns evaluations that no journal has.
    pub(super) fn take(&mut self, report: &mut Report) -> Vec<EvaluationRecord> {
        self.peak_resident_bytes = self.peak_resident_bytes.max(report.resident_bytes);
        for record in report.steps.drain(..).filter(|record| record.step >= self.committed) {
            match self.pending.entry(record.step) {
                Entry::Vacant(place) => drop(place.insert(record)),
                Entry::Occupied(mut known) => {
                    let merged = std::mem::take(known.get_mut()).merge(record);
                    known.insert(merged);
                }
            }
        }
        let known = self.evaluation.map(|e| e.step);
        let mut new: Vec<EvaluationRecord> = Vec::new();
        for evaluation in &report.evaluations {
            if known.is_none_or(|step| evaluation.step > step) && new.iter().all(|e| e.step < evaluation.step)
            {
                new.push(*evaluation);
            }
        }
        self.evaluation = new.last().copied().or(self.evaluation);
        // Workers that come back to another coordinator say again what they said last.
        new.retain(|evaluation| self.evaluated.is_none_or(|step| evaluation.step > step));
        new
    }

    /// The boundary before the update that ended at `step`, as it was reported.
    pub(super) fn before(&self, step: u64) -> Option<u64> {
        let (_, last) = self.pending.range(..step).next_back()?;
        (last.step + last.steps() == step).then_some(last.step)
    }

    /// Commits all steps below `step`; returns the first of them and the records that are known.
    pub(super) fn commit(&mut self, step: u64) -> (u64, Vec<StepRecord>) {
        let first = std::mem::replace(&mut self.committed, step);
        let later = self.pending.split_off(&step);
        let records: Vec<StepRecord> = std::mem::replace(&mut self.pending, later).into_values().collect();
        for record in &records {
            let [all_s, waited_s] = &mut self.steps_s;
            *all_s += record.duration_s;
            *waited_s += record.data_wait_s;
            self.data_waits += u64::from(record.data_wait_s > 0.0);
            let step_s = record.duration_s / record.steps() as f64;
            let mean = self.mean_step_s.get_or_insert(step_s);
            *mean += 0.1 * (step_s - *mean);
        }
        self.last = records.last().cloned().or(self.last.take());
        (first, records)
    }

    /// The run goes on from `step`: workers that reported more are lost, and may have done other updates than will be
    /// done now.
    pub(super) fn goes_on_from(&mut self, step: u64) {
        self.pending.retain(|_, record| record.step + record.steps() <= step);
    }

    pub(super) fn roll_back(&mut self, to: u64) {
        self.committed = to;
        self.pending.clear();
        self.evaluation = self.evaluation.filter(|e| e.step <= to);
        self.evaluated = self.evaluated.filter(|step| *step <= to);
    }

    pub(super) fn stalled(&mut self, epoch: u64, stall_s: f64) {
        let stall = self.stalls.entry(epoch).or_default();
        *stall = stall.max(stall_s);
    }

    pub(super) fn resized(&mut self, epoch: u64, resize: Resize, hidden_s: f64) {
        self.open_resizes.push(OpenResize { epoch, resize, hidden_s });
    }

    pub(super) fn crashed(&mut self, worker: WorkerId, at_s: f64) {
        self.open_crashes.push((self.crashes.len(), at_s));
        self.crashes.push(Crash { step: self.committed, worker, seconds: None });
    }

    /// Closes what a commit proves to be over; returns the lines for the journal.
    pub(super) fn recovered(&mut self, now_s: f64) -> Vec<Journal> {
        let mut lines = Vec::new();
        for (index, at_s) in self.open_crashes.drain(..) {
            let seconds = now_s - at_s;
            let crash = &mut self.crashes[index];
            crash.seconds = Some(seconds);
            lines.push(Journal::Recovered { worker: crash.worker, step: self.committed - 1, seconds });
        }
        for OpenResize { epoch, mut resize, hidden_s } in self.open_resizes.drain(..) {
            let later = self.stalls.split_off(&(epoch + 1));
            // The shadow memberships that led here count too: everything since the last resize.
            resize.stall_s = std::mem::replace(&mut self.stalls, later).into_values().fold(0.0, f64::max);
            lines.push(Journal::Resized {
                step: resize.step,
                from: resize.from,
                to: resize.to,
                expected_stall_s: 0.0,
                stall_s: resize.stall_s,
                hidden_s,
                reason: resize.reason.clone(),
            });
            self.resizes.push(resize);
        }
        lines
    }
}
