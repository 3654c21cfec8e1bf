//! What processes report.

use std::time::Duration;

use bellwether_core::cluster::JobId;
use bellwether_core::job::StopLimit;
use bellwether_core::policy::Fault;
use bellwether_core::profile::Profile;
use bellwether_core::record::{RunFailure, RunOutcome, StepRecord};

use super::{Engine, profiled};
use crate::clock::Clock;
use crate::ledger::{Entry, Outcome, Progress};
use crate::runner::{JobRunner, Report};

/// Steps of one lesson that are written down; a model needs no more.
const LESSON_STEPS: usize = 25;

/// Fewer steps teach nothing.
const LESSON_STEPS_MIN: usize = 5;

/// The longest time between two lessons.
const LESSON_PERIOD_MAX: Duration = Duration::from_secs(60);

/// A change of what is believed that policies are told.
const TELLING: f64 = 0.1;

/// Between two reports of steps that are done there is no more time than this, and a step.
const NEWS: Duration = Duration::from_millis(250);

/// How long a job waits whose processes found no place.
const UNPLACED_PAUSE: Duration = Duration::from_secs(30);

/// Training with the same workers for this long shows what a decision brought.
const SHOWING: Duration = Duration::from_secs(1);

impl<C: JobRunner, T: Clock> Engine<C, T> {
    pub(super) fn report(&mut self, report: Report) -> Result<(), Fault> {
        match report {
            Report::Training { job, workers, .. } => self.training(job, workers),
            Report::Settled { job, workers } => {
                let Some(record) = self.state.jobs.get(&job) else { return Ok(()) };
                let live = self.live.entry(job).or_default();
                live.settled = live.order.is_some_and(|(ordered, _)| record.workers_on(ordered) == workers);
                Ok(())
            }
            Report::Progress { job, step, since, loss, examples_per_s } => {
                let live = self.live.entry(job).or_default();
                (live.step, live.examples_per_s) = (Some(step), examples_per_s);
                live.step_at = self.clock.elapsed().saturating_sub(since);
                live.loss = loss.or(live.loss);
                self.state.touched.insert(job);
                self.show_effect(job)
            }
            Report::Nodes(nodes) => self.nodes(&nodes),
            Report::Expected { expected, took } => {
                self.foreseen(expected, took);
                Ok(())
            }
            Report::Profiled { job, profile } => self.profiled(job, profile),
            Report::Steps { job, workers, speed, steps, processor_wait } => {
                self.lesson(job, workers, speed, steps, processor_wait)
            }
            Report::Ended { job, outcome, ended_early, step, digest, unix_s, limit, by } => {
                self.processes_gone(job);
                let unix_s = Some(unix_s).filter(|unix_s| *unix_s > 0.0);
                let is_leaving = self.state.jobs.get(&job).is_some_and(|record| record.leaving);
                let live = self.live.entry(job).or_default();
                (live.step, live.ended_unix_s) = (Some(step), unix_s);
                let early = ended_early.map(|end| format!("ended early {end}"));
                let why = early.unwrap_or_else(|| outcome.reason());
                match outcome {
                    RunOutcome::Finished => self.end(job, Outcome::Finished, why, step, digest),
                    RunOutcome::Stopped => self.stopped(job, step, unix_s, (limit, by)),
                    // The same steps give the same numbers again.
                    RunOutcome::Failed(RunFailure::Diverged { .. }) => {
                        self.end(job, Outcome::Failed, why, step, None)
                    }
                    // It was to go, and there was no room for its state: no failure of the job.
                    RunOutcome::Failed(RunFailure::Unsaved { .. }) if is_leaving => {
                        self.write(Entry::Stopped { job, step, why, unix_s })
                    }
                    RunOutcome::Failed(_) | RunOutcome::Broken(_) => self.failed(job, why, unix_s),
                }
            }
            Report::Left { job, why } => {
                let name = self.state.jobs.get(&job).map_or("a job", |record| record.submitted.name.as_str());
                let hint = "`bellwether machines` shows what may be left";
                (self.options.tell)(&format!("{name} cannot give its machines back: {why}; {hint}"));
                Ok(())
            }
            Report::Lost { job, why } => self.lost(job, why),
            Report::Failed { job, why } => {
                self.processes_gone(job);
                let step = self.step(job);
                self.end(job, Outcome::Failed, why, step, None)
            }
            Report::Unplaced { job, why } => {
                self.processes_gone(job);
                // It goes back to those who wait; the policy gives it other slots, or the same later.
                self.live.entry(job).or_default().not_before = Some(self.clock.elapsed() + UNPLACED_PAUSE);
                let step = self.step(job);
                self.write(Entry::Stopped { job, step, why, unix_s: None })
            }
        }
    }

    fn lost(&mut self, job: JobId, why: String) -> Result<(), Fault> {
        self.processes_gone(job);
        if self.state.jobs.get(&job).is_some_and(|record| record.leaving) {
            // They were to go: what ended them, perhaps a kill of ours, does not count as a failure of the job.
            let step = self.step(job);
            self.release(job);
            return self.write(Entry::Stopped { job, step, why, unix_s: None });
        }
        self.failed(job, why, None)
    }

    /// How far the running jobs are, for the policy.
    pub(super) fn progress(&self) -> Vec<Progress> {
        let (scale, now) = (self.state.time_scale, self.clock.elapsed());
        let progress = self.state.active.holding.iter().filter_map(|id| {
            let (live, record) = (self.live.get(id)?, self.state.jobs.get(id)?);
            let batch = record.submitted.job.batch.size as f64;
            let (done, rate) = (live.step? as f64 * batch, live.examples_per_s);
            let from = live.step_at.max(live.training_since.unwrap_or(now));
            // Of one that was not heard of for longer than a step takes it is not known that it goes on.
            let longest_s = rate.map_or(0.0, |rate| batch / rate) + NEWS.as_secs_f64();
            let since_s = now.saturating_sub(from).as_secs_f64().min(longest_s) * scale;
            let rate = rate.map(|rate| rate / scale);
            (record.training > 0).then_some(Progress { job: *id, done, rate, since_s })
        });
        progress.collect()
    }

    fn processes_gone(&mut self, job: JobId) {
        let live = self.live.entry(job).or_default();
        (live.order, live.settled) = (None, false);
        (live.training_since, live.examples_per_s) = (None, None);
    }

    /// Committed steps, as heard last, by this daemon or by one before it.
    pub(super) fn step(&self, job: JobId) -> u64 {
        let known = self.state.jobs.get(&job).map_or(0, |record| record.step);
        self.live.get(&job).and_then(|live| live.step).unwrap_or(known)
    }

    fn is_open(&self, job: JobId) -> bool {
        self.state.jobs.get(&job).is_some_and(|record| record.end.is_none())
    }

    fn training(&mut self, job: JobId, workers: u32) -> Result<(), Fault> {
        if !self.is_open(job) {
            return Ok(());
        }
        let now = self.clock.elapsed();
        let live = self.live.entry(job).or_default();
        (live.training_since, live.examples_per_s) = (Some(now), None);
        if live.order.is_none() {
            // A wish crossed an end on its way, and the run began again: that wish is out of date.
            return self.order_leave(job, 1.0);
        }
        if self.state.jobs.get(&job).is_none_or(|record| record.training != workers) {
            self.write(Entry::Training { job, workers })?;
        }
        Ok(())
    }

    /// What a job's profile says of it; one that tells nothing does not keep the job from training.
    fn profiled(&mut self, job: JobId, profile: Result<Box<Profile>, String>) -> Result<(), Fault> {
        let Some(record) = self.state.jobs.get(&job).filter(|record| record.after_profile.is_some()) else {
            return Ok(());
        };
        let (submitted, machine) = (&record.submitted, &self.state.machine);
        let told = profile.and_then(|profile| {
            let told = submitted.job.clone().check().and_then(|checked| {
                profile.check()?;
                let rates = profiled::rates(&profile, &checked, submitted.task, machine)?;
                Ok((rates, profiled::types_that_fit(&profile, machine).map_err(|error| error.what)))
            });
            told.map_err(|error| error.to_string())
        });
        let needed = record.after_profile.map_or(1, |workers| workers.min).saturating_add(submitted.servers);
        let (mut rates, mut device_types, mut why, mut too_large) = Default::default();
        match told {
            Err(error) => why = error,
            Ok((told, Err(error))) => (rates, too_large) = (told, Some(error)),
            Ok((told, Ok(types))) if needed > self.state.widest(&types) => {
                let error = "there are too few slots that can hold a worker".to_owned();
                (rates, too_large) = (told, Some(error));
            }
            Ok((told, Ok(types))) => (rates, device_types) = (told, types),
        }
        self.write(Entry::Profiled { job, rates, device_types, why })?;
        match too_large {
            // It is not known to fail: who knows better resumes it.
            Some(by) if self.state.view.jobs.contains_key(&job) => {
                self.write(Entry::Suspended { job, by: format!("the daemon: {by}") })
            }
            // Its user has suspended it meanwhile, and will hear of it from the run.
            _ => Ok(()),
        }
    }

    /// Writes down what the last decision about a job brought.
    fn show_effect(&mut self, job: JobId) -> Result<(), Fault> {
        let Some(live) = self.live.get(&job) else { return Ok(()) };
        let now = self.clock.elapsed();
        let has_settled = live.training_since.is_some_and(|since| now.saturating_sub(since) >= SHOWING);
        let Some(examples_per_s) = live.examples_per_s.filter(|_| has_settled) else { return Ok(()) };
        match self.state.unmeasured(job) {
            Some(decision) => self.write(Entry::Measured { decision, job, examples_per_s }),
            None => Ok(()),
        }
    }

    /// Learns at growing intervals: what changes slowly need not be heard all the time.
    fn lesson(
        &mut self,
        job: JobId,
        workers: u32,
        speed: f64,
        mut steps: Vec<StepRecord>,
        processor_wait: Option<f64>,
    ) -> Result<(), Fault> {
        let now = self.clock.elapsed();
        // What machines of its own do says nothing of the slots.
        let is_open = self.is_open(job) && !self.state.active.elsewhere.contains(&job);
        let live = self.live.entry(job).or_default();
        let is_early = live.next_lesson.is_some_and(|next| now < next);
        if !is_open || is_early || steps.len() < LESSON_STEPS_MIN {
            return Ok(());
        }
        let period = Duration::from_secs(1) * 2_u32.pow(live.lessons.min(6));
        (live.lessons, live.next_lesson) = (live.lessons + 1, Some(now + period.min(LESSON_PERIOD_MAX)));
        steps.drain(..steps.len().saturating_sub(LESSON_STEPS));
        let matters = self.matters(job, workers, &steps);
        self.write(Entry::Learnt { job, workers, speed, steps, processor_wait, matters })
    }

    /// Whether what was predicted differs from these steps by more than a policy should overlook.
    fn matters(&self, job: JobId, workers: u32, steps: &[StepRecord]) -> bool {
        let Some(seen) = self.state.view.jobs.get(&job).filter(|seen| seen.workers() == workers) else {
            return false;
        };
        let configuration = self.state.view.configuration(&seen.job, &seen.allocation, None);
        let predicted = self.state.belief.in_real_time(&seen.job.description, &configuration);
        let mean_s = steps.iter().map(|step| step.duration_s).sum::<f64>() / steps.len() as f64;
        predicted.is_ok_and(|predicted| (predicted.step_s / mean_s - 1.0).abs() > TELLING)
    }

    fn stopped(
        &mut self,
        job: JobId,
        step: u64,
        unix_s: Option<f64>,
        (limit, by): (Option<StopLimit>, Option<String>),
    ) -> Result<(), Fault> {
        if !self.is_open(job) {
            return Ok(());
        }
        let Some(record) = self.state.jobs.get(&job) else { return Ok(()) };
        let is_elsewhere = record.elsewhere.is_some();
        let by_hand = !record.leaving && (is_elsewhere || self.state.view.jobs.contains_key(&job));
        if by_hand {
            // The run was stopped by hand, or by a limit of its job: until its user resumes it, it waits. In this
            // order: of the two lines the second may be lost with a daemon that is killed.
            // The keeper of a plan's word says why it stops a run.
            let kept = by.filter(|by| is_elsewhere && by != "control");
            let by = limit.map(|limit| limit.to_string()).or(kept);
            let by = by.unwrap_or_else(|| "`bellwether stop`".into());
            self.write(Entry::Suspended { job, by })?;
        }
        self.write(Entry::Stopped { job, step, why: String::new(), unix_s })
    }

    fn failed(&mut self, job: JobId, why: String, unix_s: Option<f64>) -> Result<(), Fault> {
        let Some(record) = self.state.jobs.get(&job).filter(|record| record.end.is_none()) else {
            return Ok(());
        };
        let (failures, is_wanted) = (record.failures + 1, record.elsewhere.is_some());
        let step = self.step(job);
        if record.cancelled {
            // What held slots is ended with them.
            let stopped = Entry::Stopped { job, step, why: String::new(), unix_s };
            return if record.obtaining { self.write(stopped) } else { Ok(()) };
        }
        if failures > self.options.retries {
            return self.end(job, Outcome::Failed, why, step, None);
        }
        self.delay(job, failures);
        self.write(Entry::Retried { job, failures, why, unix_s })?;
        if self.state.target(job).is_empty() && !is_wanted {
            self.write(Entry::Stopped { job, step, why: String::new(), unix_s })?;
        }
        Ok(())
    }

    pub(super) fn end(
        &mut self,
        job: JobId,
        outcome: Outcome,
        why: String,
        step: u64,
        digest: Option<String>,
    ) -> Result<(), Fault> {
        if !self.is_open(job) {
            return Ok(());
        }
        let cancelled = self.state.jobs.get(&job).is_some_and(|record| record.cancelled);
        let outcome = if cancelled && outcome == Outcome::Failed { Outcome::Cancelled } else { outcome };
        let live = self.live.remove(&job).unwrap_or_default();
        let (loss, unix_s) = (live.loss.filter(|loss| loss.is_finite()), live.ended_unix_s);
        self.write(Entry::Ended { job, outcome, why, step, digest, loss, unix_s })?;
        self.release(job);
        Ok(())
    }
}
