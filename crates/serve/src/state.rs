//! The state of all jobs: a pure fold of the ledger's lines.
//!
//! Two things are kept apart. The *view* is what was decided: policies see it. The *slots* are what processes hold;
//! they follow the view as soon as processes start and leave.

mod active;
mod arrivals;
mod clock;
mod decided;
mod early_ends;
mod kept;
mod line_error;
mod nodes;
mod present;
mod queues;
mod record;
mod slots;
mod waiting;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bellwether_core::cluster::{Allocation, ClusterView, JobId, JobView, NodeId};
use bellwether_core::job::WorkerRange;
use bellwether_core::policy::Changes;
use bellwether_core::record::StepRecord;
use bellwether_model::observed::Observed;

use crate::belief::Belief;
use crate::early_ends::EarlyEnds;
pub use crate::ledger::{End, Held, Record};
use crate::ledger::{Entry, Line, Outcome, Progress, Submitted};
use crate::machine::Machine;
use crate::snapshot::DecisionState;
pub use active::Active;
pub(crate) use kept::RESTORING;
pub use line_error::LineError;
pub use queues::Queues;
pub(crate) use record::server_slots;
pub use slots::Slots;
pub use waiting::Waiting;

/// Decisions that are remembered.
const DECISIONS_KEPT: usize = 300;

/// Everything that follows from the ledger.
#[derive(Debug)]
pub struct State {
    /// Time 0, in seconds since the Unix epoch.
    pub unix_s: f64,
    /// Seconds of the daemon's clock in a real second.
    pub time_scale: f64,
    /// The slots that there are.
    pub machine: Machine,
    /// The time of the last line.
    pub now_s: f64,
    /// The policy that decides; empty before the first was chosen.
    pub policy: String,
    /// How often a policy began to decide: the holder of an older policy has to make a fresh one.
    pub policies: u64,
    /// The queues that divide the slots, if any do.
    pub queues: Option<Queues>,
    /// What was decided.
    pub view: ClusterView,
    /// Nodes that take no processes, with the reason.
    pub down: BTreeMap<NodeId, String>,
    /// Slots of nodes that others' jobs hold.
    pub taken: BTreeMap<NodeId, u32>,
    /// Whether something was said of a node since this was last cleared.
    pub nodes_changed: bool,
    /// What happened since the policy was last asked.
    pub changes: Changes,
    /// Jobs by number, those that ended included.
    pub jobs: BTreeMap<JobId, Record>,
    /// Jobs by name.
    pub names: BTreeMap<String, JobId>,
    /// Jobs by their clients' own word.
    pub keys: BTreeMap<String, JobId>,
    /// Who holds which slot.
    pub slots: Slots,
    /// Jobs of whose processes nothing is known since lines of the ledger were lost; no processes start until these
    /// left.
    pub unsettled: BTreeSet<JobId>,
    /// What is believed of speeds.
    pub belief: Belief,
    /// What is learnt of jobs that end before their work is done.
    pub early_ends: EarlyEnds,
    /// Number of decisions.
    pub decided: u64,
    /// The last decisions, oldest first.
    pub decisions: VecDeque<DecisionState>,
    /// Of each job's name the last number that was added to it.
    pub numbers: BTreeMap<String, u64>,
    /// Whether something was said of a decision since this was last cleared.
    pub decisions_changed: bool,
    /// Jobs that something was said of since this was last emptied.
    pub touched: BTreeSet<JobId>,
    /// Jobs that hold slots by the last decision, and those that are cancelled and have not ended.
    pub active: Active,
    /// Whether the last of the lines that a compaction kept is still to come.
    pub is_restoring: bool,
}

impl State {
    /// The state after the first line of a ledger.
    ///
    /// # Errors
    ///
    /// Returns an error if it is none.
    pub fn open(line: &Line) -> Result<State, LineError> {
        let (Entry::Opened { unix_s, time_scale, machine, .. }
        | Entry::Compacted { unix_s, time_scale, machine, .. }) = &line.entry
        else {
            return Err(LineError::NotOpened);
        };
        if !(time_scale.is_finite() && *time_scale > 0.0 && unix_s.is_finite()) {
            return Err(LineError::Clock);
        }
        machine.check()?;
        let speeds = machine.device_types.iter().map(|kind| (kind.name.clone(), kind.speed)).collect();
        Ok(State {
            unix_s: *unix_s,
            time_scale: *time_scale,
            now_s: line.time_s,
            policy: String::new(),
            policies: 0,
            queues: None,
            view: machine.view(),
            down: BTreeMap::new(),
            taken: BTreeMap::new(),
            nodes_changed: false,
            changes: Changes::default(),
            jobs: BTreeMap::new(),
            names: BTreeMap::new(),
            keys: BTreeMap::new(),
            slots: Slots::default(),
            unsettled: BTreeSet::new(),
            belief: Belief::new(Observed::new(speeds), *time_scale),
            early_ends: EarlyEnds::default(),
            decided: 0,
            decisions: VecDeque::new(),
            numbers: BTreeMap::new(),
            decisions_changed: false,
            touched: BTreeSet::new(),
            active: Active::default(),
            is_restoring: matches!(line.entry, Entry::Compacted { .. }),
            machine: machine.clone(),
        })
    }

    /// Takes in the next line of a ledger; the first one makes the state.
    ///
    /// # Errors
    ///
    /// Same errors as [`open`](State::open) and [`apply`](State::apply).
    pub fn fold(state: &mut Option<State>, line: &Line) -> Result<(), LineError> {
        match state {
            Some(state) => state.apply(line),
            None => {
                *state = Some(State::open(line)?);
                Ok(())
            }
        }
    }

    /// Takes in a line.
    ///
    /// # Errors
    ///
    /// Returns what cannot be true after the lines before it. It is as if the line had not been there, but for progress
    /// that was told together with what cannot be.
    pub fn apply(&mut self, line: &Line) -> Result<(), LineError> {
        if !line.time_s.is_finite() || line.time_s < self.now_s {
            return Err(LineError::TimeGoesBack { from_s: self.now_s, to_s: line.time_s });
        }
        let before_s = std::mem::replace(&mut self.now_s, line.time_s);
        let applied = self.take(line);
        self.sort_touched();
        if applied.is_err() {
            self.now_s = before_s;
        }
        applied
    }

    fn take(&mut self, line: &Line) -> Result<(), LineError> {
        self.check_place(&line.entry)?;
        match &line.entry {
            Entry::Opened { .. } | Entry::Compacted { .. } => Err(LineError::OpenedTwice),
            Entry::KeptJob(kept) | Entry::KeptElsewhere(kept) => self.keep_job(kept),
            Entry::KeptDecision { decision } => {
                self.keep_decision(decision);
                Ok(())
            }
            Entry::KeptState(kept) => {
                self.keep_state(kept);
                Ok(())
            }
            Entry::Reopened { .. } => {
                self.begin_policy();
                Ok(())
            }
            Entry::PolicyChosen { policy, .. } => {
                self.policy.clone_from(policy);
                self.begin_policy();
                Ok(())
            }
            Entry::RemainingChosen { remaining } => {
                self.choose_remaining(*remaining);
                Ok(())
            }
            Entry::QueuesChosen { queues, .. } => self.divide(queues.as_ref()),
            Entry::Repaired { .. } => {
                self.unsettle();
                Ok(())
            }
            Entry::ClockCorrected { unix_s, .. } => self.correct_clock(*unix_s),
            Entry::Node { node, up, why } => self.node(*node, *up, why),
            Entry::Slots { node, device_type, devices, taken } => {
                self.slots_are(node, device_type, *devices, *taken)
            }
            Entry::Submitted(submitted) => self.submitted(submitted),
            Entry::Moment { progress } => progress.iter().try_for_each(|progress| self.progress(progress)),
            Entry::Decided { decision, deciding_s } => self.decide_in_queues(decision, *deciding_s),
            Entry::Measured { decision, job, examples_per_s } => {
                self.known(*job)?;
                self.measured(*decision, *job, *examples_per_s);
                Ok(())
            }
            entry => self.of_job(entry),
        }
    }

    /// The number of the next job. Where a line was lost, that of its job is not given again as long as later ones are
    /// there.
    pub fn next_job(&self) -> JobId {
        JobId(self.jobs.last_key_value().map_or(0, |(last, _)| last.0 + 1))
    }

    /// The job with this name.
    pub fn named(&self, name: &str) -> Option<&Record> {
        self.jobs.get(self.names.get(name)?)
    }

    /// What the job holds by the last decision.
    pub fn target(&self, job: JobId) -> Allocation {
        self.view.jobs.get(&job).map_or_else(Allocation::none, |seen| seen.allocation.clone())
    }

    fn known(&mut self, job: JobId) -> Result<&mut Record, LineError> {
        self.touch(job);
        self.jobs.get_mut(&job).ok_or(LineError::UnknownJob(job))
    }

    /// A job that has not ended, suspended or not, as policies see it or saw it last.
    fn seen_mut(&mut self, job: JobId) -> Option<&mut JobView> {
        let unseen = self.jobs.get_mut(&job).and_then(Record::unseen_mut);
        unseen.or_else(|| self.view.jobs.get_mut(&job))
    }

    fn submitted(&mut self, submitted: &Submitted) -> Result<(), LineError> {
        let id = submitted.id;
        if self.names.contains_key(&submitted.name) || id < self.next_job() {
            return Err(LineError::JobTwice { name: submitted.name.clone() });
        }
        let record = Record::new(submitted, self.now_s);
        let seen = JobView::waiting(
            Arc::new(record.scheduled(self.widest(&submitted.device_types), &self.machine)),
            self.now_s,
            Some(self.remaining(&record, 0.0)),
        );
        self.introduce(record);
        self.arrive(id, seen);
        Ok(())
    }

    /// A job is known from now on.
    fn introduce(&mut self, record: Record) {
        let submitted = &record.submitted;
        let id = submitted.id;
        self.belief.learn(|observed| record.describe(observed));
        self.names.insert(submitted.name.clone(), id);
        let number = submitted.name.strip_prefix(&submitted.job.name).and_then(|rest| rest.strip_prefix('-'));
        if let Some(number) = number.and_then(|number| number.parse::<u32>().ok()) {
            let last = self.numbers.entry(submitted.job.name.clone()).or_default();
            *last = u64::from(number).max(*last);
        }
        if let Some(key) = &submitted.key {
            self.keys.insert(key.clone(), id);
        }
        self.jobs.insert(id, record);
    }

    /// Lines that say something of one job.
    fn of_job(&mut self, entry: &Entry) -> Result<(), LineError> {
        let now_s = self.now_s;
        match entry {
            Entry::Limited { job, workers, weight } => self.limited(*job, *workers, *weight)?,
            Entry::Suspended { job, by } => {
                self.known(*job)?;
                let seen = self.leave(*job).ok_or(LineError::Job("a job that is not there is suspended"))?;
                let record = self.known(*job)?;
                record.preemptions += u32::from(record.training > 0);
                (record.away, record.why) = (Some(seen), format!("suspended by {by}"));
            }
            Entry::Resumed { job } => {
                let record = self.known(*job)?;
                let mut seen =
                    record.away.take().ok_or(LineError::Job("a job that is not suspended is resumed"))?;
                (seen.allocated_s, seen.progress_s) = (now_s, now_s);
                record.why.clear();
                self.arrive(*job, seen);
            }
            Entry::Cancelled { job } => {
                let record = self.known(*job)?;
                (record.cancelled, record.away) = (true, None);
                self.leave(*job);
            }
            Entry::Learnt { job, .. } => self.learnt(*job, entry)?,
            Entry::Profiled { job, .. } => self.profiled(*job, entry)?,
            Entry::Held { job, slots } => {
                self.known(*job)?;
                self.slots.hold(*job, slots, now_s)?;
                self.known(*job)?.hold(slots.len() as u32, now_s);
            }
            Entry::Obtaining { job } => self.known(*job)?.obtain(now_s),
            Entry::Training { job, workers } => {
                let record = self.known(*job)?;
                record.training = *workers;
                if *workers > 0 && record.away.is_none() {
                    // Why it was tried again matters no more.
                    record.why.clear();
                }
                self.took_effect(*job, *workers);
            }
            Entry::Leaving { job } => self.known(*job)?.leaving = true,
            Entry::Stopped { job, step, why, unix_s } => {
                self.put_down(*job, Some(*step))?;
                self.known(*job)?.stopped(why, *unix_s);
            }
            Entry::Retried { job, failures, why, unix_s } => {
                self.known(*job)?.retried(*failures, why, *unix_s);
                self.unsettled.remove(job);
            }
            Entry::Ended { job, .. } => self.ended(*job, entry)?,
            _ => return Err(LineError::Misplaced("a line about no job")),
        }
        Ok(())
    }

    /// A job's user changed its limits; while it is profiled, they are those that it will have.
    fn limited(&mut self, job: JobId, wanted: WorkerRange, weight: f64) -> Result<(), LineError> {
        let types = self.known(job)?.submitted.device_types.clone();
        let widest = self.widest(&types);
        let while_profiled = self.jobs.get(&job).map(|record| record.profiled_with(&self.machine));
        let mut workers = wanted;
        if let (Some(after), Some(meanwhile)) = (&mut self.known(job)?.after_profile, while_profiled) {
            (workers, *after) = (meanwhile, wanted);
        }
        let seen = self.seen_mut(job).ok_or(LineError::Job("an ended job is limited"))?;
        let limited = Arc::make_mut(&mut seen.job);
        record::limit(limited, workers, widest);
        limited.weight = weight;
        if self.view.jobs.contains_key(&job) {
            self.changes.revised.push(job);
        }
        Ok(())
    }

    /// Steps of a job were observed: each teaches what the job's kind was when it was done.
    fn learnt(&mut self, job: JobId, entry: &Entry) -> Result<(), LineError> {
        let Entry::Learnt { workers, speed, steps, processor_wait, matters, .. } = entry else {
            return Ok(());
        };
        self.known(job)?;
        let Some(record) = self.jobs.get(&job) else { return Ok(()) };
        let wait = processor_wait.unwrap_or(0.0);
        let one_phase =
            |one: &StepRecord, next: &StepRecord| record.phase_at(one.step) == record.phase_at(next.step);
        for steps in steps.chunk_by(one_phase) {
            let kind = record.kind_at(steps[0].step);
            self.belief.learn(|known| known.observe_beside(&kind, *workers, *speed, steps, wait));
        }
        self.changes.relearnt |= *matters;
        Ok(())
    }

    /// A job was profiled, or could not be: it may have the workers that it was submitted with.
    fn profiled(&mut self, job: JobId, entry: &Entry) -> Result<(), LineError> {
        let Entry::Profiled { rates, device_types, why, .. } = entry else { return Ok(()) };
        let widest = self.widest(device_types);
        let record = self.known(job)?;
        let Some(workers) = record.after_profile.take() else {
            return Err(LineError::Job("a job is profiled that should not be"));
        };
        record.submitted.profiled.clone_from(rates);
        record.submitted.device_types.clone_from(device_types);
        record.why = if why.is_empty() { String::new() } else { format!("it could not be profiled: {why}") };
        if let Some(record) = self.jobs.get(&job) {
            self.belief.learn(|observed| record.describe(observed));
        }
        let Some(seen) = self.seen_mut(job) else { return Ok(()) };
        let limited = Arc::make_mut(&mut seen.job);
        limited.device_types.clone_from(device_types);
        record::limit(limited, workers, widest);
        limited.description.devices = limited.max_devices;
        if self.view.jobs.contains_key(&job) {
            self.changes.revised.push(job);
        }
        Ok(())
    }

    /// The line with which a job ends.
    fn ended(&mut self, job: JobId, entry: &Entry) -> Result<(), LineError> {
        let Entry::Ended { outcome, why, step, digest, loss, unix_s, .. } = entry else { return Ok(()) };
        let now_s = self.now_s;
        self.put_down(job, (*outcome == Outcome::Finished).then_some(*step))?;
        self.leave(job);
        let time_s = unix_s.map_or(now_s, |unix_s| (unix_s - self.unix_s) * self.time_scale);
        let record = self.known(job)?;
        let time_s = time_s.min(now_s).max(record.submitted_s);
        let end = End { outcome: *outcome, step: *step, digest: digest.clone(), time_s };
        (record.end, record.away, record.loss) = (Some(end), None, *loss);
        record.why.clone_from(why);
        self.learn_end(job);
        Ok(())
    }

    /// The job's processes are gone.
    fn put_down(&mut self, job: JobId, step: Option<u64>) -> Result<(), LineError> {
        let now_s = self.now_s;
        let record = self.known(job)?;
        record.hold(0, now_s);
        (record.training, record.leaving, record.obtaining) = (0, false, false);
        record.step = step.unwrap_or(record.step);
        let batch = record.submitted.job.batch.size as f64;
        let work = record.work();
        let done = step.map(|step| (step as f64 * batch).min(work));
        let remaining = done.zip(self.jobs.get(&job)).map(|(done, record)| self.remaining(record, done));
        if let (Some(done), Some(seen)) = (done, self.seen_mut(job)) {
            (seen.done, seen.remaining) = (done, remaining);
            seen.progress_s = seen.progress_s.max(now_s);
        }
        self.unsettled.remove(&job);
        self.slots.free(job, now_s);
        Ok(())
    }

    fn progress(&mut self, progress: &Progress) -> Result<(), LineError> {
        let now_s = self.now_s;
        let record = self.known(progress.job)?;
        let work = record.work();
        record.step = (progress.done / record.submitted.job.batch.size as f64).round() as u64;
        let (kind, ways) = (record.kind_at(record.step), record.ways_at(record.step));
        let done = progress.done.clamp(0.0, work);
        let remaining = self.jobs.get(&progress.job).map(|record| self.remaining(record, done));
        let Some(seen) = self.view.jobs.get_mut(&progress.job) else {
            return Err(LineError::Idle(progress.job));
        };
        if seen.job.description.model != kind {
            // From its switch on it is another kind of job.
            let switched = Arc::make_mut(&mut seen.job);
            switched.description.model = kind;
            switched.ways = ways;
            self.changes.revised.push(progress.job);
        }
        seen.done = done;
        seen.remaining = remaining;
        seen.progress_s = seen.progress_s.max(now_s - progress.since_s.max(0.0));
        if let Some(rate) = progress.rate {
            seen.rate = rate;
        }
        Ok(())
    }
}
