//! Carries a sweep on: hears what trials report, writes down what follows, and lets jobs be what they should.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bellwether_core::InputError;
use bellwether_core::job::{HeldOut, WorkerRange};
use bellwether_core::record::Event;
use bellwether_core::sweep::{Sample, Unit};
use bellwether_runtime::journal::Tail;
use bellwether_runtime::run_dir::RunDir;
use bellwether_sched::search::{Decision, Trial, TrialState};

use super::jobs::{Act, Jobs, Trouble};
use super::ledger::{Entry, LedgerFile, Line, Outcome};
use super::state::State;
use super::submission::{self, Laid};
use super::summary::Summary;
use crate::request::Submission;
use crate::snapshot::{JobState, Phase};

/// Between two looks at the trials.
const PERIOD: Duration = Duration::from_millis(50);

/// Between two attempts to write on a full disk.
const FULL_PERIOD: Duration = Duration::from_millis(500);

/// How long the trials of a sweep that cannot go on have to pause.
const LEAVING: Duration = Duration::from_secs(30);

/// What happens in a sweep.
#[derive(Debug, Clone, PartialEq)]
pub enum Told<'a> {
    /// A decision was written down.
    Decided(&'a Decision),
    /// A trial was evaluated: trial, length and figure.
    Reported(u64, u64, Option<f64>),
    /// A trial's job has ended, and how.
    Ended(u64, Outcome, &'a str),
    /// The ledger cannot be written: the sweep waits.
    Full(&'a str),
    /// It can be written again.
    Goes,
    /// All trials are being paused.
    Halting(&'a str),
}

/// Why a sweep cannot go on. What was trained is not lost.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// Something that its user can mend.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The ledger cannot be read or written.
    #[error("the sweep's ledger {path}: {source}")]
    Ledger {
        /// Its file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A decision contradicts what is known: a fault of ours.
    #[error("the sweep contradicts itself: {0}")]
    Broken(String),
}

/// A sweep that is carried on.
pub struct Drive<'a> {
    /// What is known.
    pub state: State,
    file: LedgerFile,
    path: PathBuf,
    jobs: &'a mut dyn Jobs,
    /// Lays a sample over the job file.
    lay: &'a dyn Fn(&Sample) -> Result<Laid, InputError>,
    tell: &'a mut dyn FnMut(Told<'_>),
    /// Whether somebody wants the sweep to stop.
    is_stopping: &'a dyn Fn() -> bool,
    /// What the names of its jobs begin with.
    prefix: String,
    unit: Unit,
    began: (Instant, f64),
    tails: BTreeMap<u64, Tail>,
    /// Rungs as they were written last.
    rungs: BTreeMap<u64, Option<u64>>,
    /// Most workers of each trial.
    most: BTreeMap<u64, u32>,
    seen: BTreeMap<String, JobState>,
}

/// What a drive is given beside the state.
pub struct Means<'a> {
    /// Runs the trials.
    pub jobs: &'a mut dyn Jobs,
    /// Lays a sample over the job file.
    pub lay: &'a dyn Fn(&Sample) -> Result<Laid, InputError>,
    /// Is told what happens.
    pub tell: &'a mut dyn FnMut(Told<'_>),
    /// Whether somebody wants the sweep to stop.
    pub is_stopping: &'a dyn Fn() -> bool,
}

impl<'a> Drive<'a> {
    /// Begins a sweep with this first line, or goes on with the one in the ledger at `path` after this line.
    ///
    /// # Errors
    ///
    /// Returns an error if the ledger cannot be read or written.
    pub fn open(path: &Path, first: Entry, means: Means<'a>) -> Result<Drive<'a>, SweepError> {
        let wrong = |source| SweepError::Ledger { path: path.to_path_buf(), source };
        let lines = super::ledger::read(path).map_err(wrong)?;
        let mut file = LedgerFile::open(path).map_err(wrong)?;
        let broken = |why: String| wrong(io::Error::new(io::ErrorKind::InvalidData, why));
        let time_s = lines.as_ref().and_then(|lines| lines.last()).map_or(0.0, |line| line.time_s);
        let mut all = lines.unwrap_or_default();
        let line = Line { time_s, entry: first };
        all.push(line.clone());
        let state = State::fold(&all).map_err(broken)?;
        file.add(&line).map_err(wrong)?;
        let Means { jobs, lay, tell, is_stopping } = means;
        // Jobs of other sweeps in the same daemon have other names.
        let prefix = format!("trial-{}-", state.id.chars().take(4).collect::<String>());
        let unit = state.file.scheduler.resources().map_or(Unit::Steps, |resources| resources.unit);
        Ok(Drive {
            state,
            file,
            path: path.to_path_buf(),
            jobs,
            lay,
            tell,
            is_stopping,
            prefix,
            unit,
            began: (Instant::now(), time_s),
            tails: BTreeMap::new(),
            rungs: BTreeMap::new(),
            most: BTreeMap::new(),
            seen: BTreeMap::new(),
        })
    }

    /// Carries the sweep on until every trial has ended or all have to wait.
    ///
    /// # Errors
    ///
    /// Returns an error if the ledger cannot be written, the engine is gone, or the metric is never reported.
    pub fn run(&mut self) -> Result<Summary, SweepError> {
        let carried = self.carry_on();
        if carried.is_err() {
            self.leave();
        }
        carried.map(|()| self.summary())
    }

    /// Pauses all trials of a sweep that cannot go on, so that no process is left without one who needs it.
    fn leave(&mut self) {
        let until = Instant::now() + LEAVING;
        while Instant::now() < until && self.look().is_ok() && !self.is_calm() {
            for job in self.seen.values().filter(|job| !rests(job)) {
                // What is refused now is asked again.
                let _ = self.jobs.act(&job.name, Act::Suspend);
            }
            std::thread::sleep(PERIOD);
        }
    }

    fn carry_on(&mut self) -> Result<(), SweepError> {
        loop {
            self.look()?;
            self.hear()?;
            if self.state.halted.is_none()
                && let Some(why) = self.limit()
            {
                (self.tell)(Told::Halting(&why));
                self.write(Entry::Halted { why })?;
            }
            while let Some(decision) = self.state.next() {
                self.write(Entry::Decided { decision: decision.clone() })?;
                (self.tell)(Told::Decided(&decision));
            }
            self.make_so()?;
            if self.state.halted.is_some() && self.is_calm() {
                break;
            }
            if self.state.is_over() {
                let winner = self.state.search.best().map(|trial| trial.number);
                let worker_s = self.worker_s();
                self.write(Entry::Over { winner, worker_s })?;
                break;
            }
            std::thread::sleep(PERIOD);
        }
        Ok(())
    }

    /// What is known of the sweep.
    pub fn summary(&self) -> Summary {
        Summary::of(&self.state, &|trial| self.job(trial).map(|job| job.worker_s))
    }

    /// Writes a line, and takes it in. On a full disk it waits until there is room.
    fn write(&mut self, entry: Entry) -> Result<(), SweepError> {
        let line = Line { time_s: self.began.1 + self.began.0.elapsed().as_secs_f64(), entry };
        self.state.apply(&line).map_err(SweepError::Broken)?;
        let mut was_full = false;
        while let Err(source) = self.file.add(&line) {
            let is_full = matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
            if !is_full || (self.is_stopping)() {
                return Err(SweepError::Ledger { path: self.path.clone(), source });
            }
            if !was_full {
                (self.tell)(Told::Full(&source.to_string()));
            }
            was_full = true;
            std::thread::sleep(FULL_PERIOD);
        }
        if was_full {
            (self.tell)(Told::Goes);
        }
        Ok(())
    }

    fn look(&mut self) -> Result<(), SweepError> {
        match self.jobs.look(&self.prefix) {
            Ok(seen) => self.seen = seen,
            Err(Trouble::Gone(error) | Trouble::Refused(error)) => return Err(error.into()),
        }
        Ok(())
    }

    /// A trial's job as it was seen last.
    fn job(&self, trial: u64) -> Option<&JobState> {
        self.seen.get(&self.state.jobs.get(&trial)?.name)
    }

    fn worker_s(&self) -> f64 {
        let known = |trial: u64| {
            let end = self.state.jobs.get(&trial).and_then(|job| job.end.as_ref());
            self.job(trial).map(|job| job.worker_s).or(end.map(|end| end.worker_s))
        };
        self.state.jobs.keys().filter_map(|trial| known(*trial)).sum()
    }

    /// The limit that was reached, if one was.
    fn limit(&self) -> Option<String> {
        if (self.is_stopping)() {
            return Some("it was stopped".into());
        }
        if self.state.is_over() {
            return None;
        }
        let budget = &self.state.file.budget;
        let (hours, seconds) =
            (self.worker_s() / 3600.0, self.began.1 + self.began.0.elapsed().as_secs_f64());
        if budget.worker_hours.is_some_and(|most| hours >= most) {
            return Some(format!("{hours:.3} worker-hours are spent"));
        }
        if let Some(most) = budget.time.filter(|most| seconds >= most.get()) {
            return Some(format!("its time of {most} is over"));
        }
        let dollars = budget.price.map(|price| price.get() * hours);
        let most = budget.money.filter(|most| dollars.is_some_and(|dollars| dollars >= most.get()));
        most.map(|most| format!("{most} are spent"))
    }

    /// Takes in what runs and the engine say.
    fn hear(&mut self) -> Result<(), SweepError> {
        let open: Vec<u64> =
            self.state.jobs.iter().filter(|(_, job)| job.end.is_none()).map(|(trial, _)| *trial).collect();
        for trial in open {
            let Some(job) = self.job(trial).cloned() else { continue };
            let mut has_other = self.evaluations(trial, &job)?;
            has_other &= self.state.search.trials[trial as usize].reports.is_empty();
            if job.state.has_ended() {
                self.ended(trial, &job, has_other)?;
            }
        }
        Ok(())
    }

    /// Takes in what a trial's run was evaluated to; says whether it was without the metric.
    fn evaluations(&mut self, trial: u64, job: &JobState) -> Result<bool, SweepError> {
        let tail = self.tails.entry(trial).or_insert_with(|| RunDir::at(&job.run_dir).follow_journal());
        let mut evaluated = Vec::new();
        // What cannot be read now is read the next time.
        while let Ok(lines) = tail.read()
            && !lines.is_empty()
        {
            evaluated.extend(lines.into_iter().filter_map(|line| match line.event {
                Event::Evaluated { step, loss, accuracy } => Some((step, HeldOut { loss, accuracy })),
                _ => None,
            }));
        }
        let metric = self.state.search.plan().metric;
        let mut has_other = false;
        for (step, result) in evaluated {
            let Some(figure) = result.of(metric) else {
                has_other = true;
                continue;
            };
            self.reported(trial, step, figure)?;
        }
        Ok(has_other)
    }

    fn reported(&mut self, trial: u64, step: u64, figure: f64) -> Result<(), SweepError> {
        let Some(job) = self.state.jobs.get(&trial) else { return Ok(()) };
        let known = &self.state.search.trials[trial as usize];
        let maximum = self.state.search.plan().ladder.map(|ladder| ladder.maximum);
        let at = match maximum.filter(|_| step >= job.total_steps) {
            Some(maximum) => Some(maximum),
            None => step.is_multiple_of(job.unit_steps).then_some(step / job.unit_steps),
        };
        let Some(at) = at.filter(|at| *at > 0) else { return Ok(()) };
        if known.state.has_ended() || known.reports.contains_key(&at) {
            return Ok(());
        }
        let figure = Some(figure).filter(|figure| figure.is_finite());
        self.write(Entry::Reported { trial, step, at, figure })?;
        (self.tell)(Told::Reported(trial, at, figure));
        Ok(())
    }

    fn ended(&mut self, trial: u64, job: &JobState, has_other: bool) -> Result<(), SweepError> {
        let known = &self.state.search.trials[trial as usize];
        let metric = self.state.search.plan().metric.name();
        let (outcome, why) = match (job.state, &known.state) {
            (_, TrialState::Stopped(_) | TrialState::Failed(_)) => (Outcome::Stopped, String::new()),
            (Phase::Finished, _) if known.reports.is_empty() => {
                return Err(self.unreported(trial, metric, has_other).into());
            }
            (Phase::Finished, _) => (Outcome::Finished, String::new()),
            (Phase::Cancelled, _) => (Outcome::Failed, "its job was cancelled".to_owned()),
            _ => (Outcome::Failed, job.why.clone()),
        };
        let (step, digest, worker_s) = (job.step, job.digest.clone(), job.worker_s);
        self.write(Entry::Ended { trial, outcome, why: why.clone(), step, digest, worker_s })?;
        (self.tell)(Told::Ended(trial, outcome, &why));
        Ok(())
    }

    fn unreported(&self, trial: u64, metric: &str, has_other: bool) -> InputError {
        let what = format!("trial {trial} was trained to its end, and never reported its {metric}");
        let hint = match has_other {
            true => "its evaluations have another figure: write metric = \"loss\"",
            false => "the job holds no samples out: set data.held_out, or let the script evaluate",
        };
        InputError::new("objective.metric", what).hint(hint)
    }

    /// Whether no trial has processes.
    fn is_calm(&self) -> bool {
        self.state.jobs.keys().all(|trial| self.job(*trial).is_some_and(rests))
    }

    /// Lets each job be what its trial should be.
    fn make_so(&mut self) -> Result<(), SweepError> {
        let most = |trial: &Trial| self.most.get(&trial.number).copied().unwrap_or(1);
        let shares = self.state.search.shares(self.state.slots, most);
        let numbers: Vec<u64> = self.state.search.trials.iter().map(|trial| trial.number).collect();
        for trial in numbers {
            match self.state.jobs.get(&trial) {
                None if self.state.trains(trial) => self.begin(trial)?,
                None => {}
                Some(job) if job.end.is_some() => {}
                Some(_) => self.adjust(trial, shares.get(&trial).copied())?,
            }
        }
        Ok(())
    }

    /// Gives a trial to the engine.
    fn begin(&mut self, trial: u64) -> Result<(), SweepError> {
        let sample = self.state.search.trials[trial as usize].sample.clone();
        let name = format!("{}{trial}", self.prefix);
        let submitted =
            (self.lay)(&sample).and_then(|laid| self.fitted(trial, laid, &name)).map_err(Trouble::Refused);
        let submitted = submitted.and_then(|(submission, unit_steps)| {
            let total_steps = submission.job.total_steps(submission.task.training_samples);
            self.jobs.submit(submission)?;
            Ok((unit_steps, total_steps))
        });
        match submitted {
            Ok((unit_steps, total_steps)) => {
                self.write(Entry::Started { trial, job: name, unit_steps, total_steps })
            }
            // Values that do not go together end this trial only.
            Err(Trouble::Refused(error)) => {
                let (outcome, why) = (Outcome::Failed, error.to_string());
                let (step, digest, worker_s) = (0, None, 0.0);
                self.write(Entry::Ended { trial, outcome, why: why.clone(), step, digest, worker_s })?;
                (self.tell)(Told::Ended(trial, outcome, &why));
                Ok(())
            }
            Err(Trouble::Gone(error)) => Err(error.into()),
        }
    }

    /// The trial's job with its name, its length, and evaluations at its rungs; and the steps of a unit of length.
    fn fitted(&mut self, trial: u64, laid: Laid, name: &str) -> Result<(Submission, u64), InputError> {
        let Laid { job, task } = laid;
        let unit_steps = submission::unit_steps(self.unit, &job, task);
        let job = match self.state.search.plan().ladder {
            Some(ladder) => job.edit(|job| submission::stretch(job, ladder, self.unit, unit_steps))?,
            None => job,
        };
        self.most.insert(trial, job.workers.max.min(job.batch.virtual_nodes).max(1));
        let key = format!("sweep-{}-{name}", self.state.id);
        Ok((submission::named(Laid { job, task }, name, key)?, unit_steps))
    }

    fn adjust(&mut self, trial: u64, share: Option<u32>) -> Result<(), SweepError> {
        let Some(job) = self.job(trial).cloned() else { return Ok(()) };
        if job.state.has_ended() {
            return Ok(());
        }
        self.most.entry(trial).or_insert_with(|| job.max_workers.max(1));
        let asked = if self.state.trains(trial) {
            self.set_rung(trial, &job);
            let workers = share.unwrap_or(1);
            if (job.min_workers, job.max_workers) != (1, workers) {
                self.jobs.limit(&job.name, WorkerRange { min: 1, max: workers }).or_else(keep)?;
            }
            (job.state == Phase::Suspended).then_some(Act::Resume)
        } else if self.state.search.trials[trial as usize].state.has_ended() {
            Some(Act::Cancel)
        } else {
            (job.state != Phase::Suspended).then_some(Act::Suspend)
        };
        if let Some(act) = asked {
            // The job may have ended meanwhile.
            self.jobs.act(&job.name, act).or_else(keep)?;
        }
        Ok(())
    }

    /// Writes down where a trial's run waits. What cannot be written now is written the next time.
    fn set_rung(&mut self, trial: u64, job: &JobState) {
        let rung = self.state.rung(trial);
        if self.rungs.get(&trial) != Some(&rung) && RunDir::at(&job.run_dir).keep_rung(rung).is_ok() {
            self.rungs.insert(trial, rung);
        }
    }
}

/// Whether a job has no processes, and gets none by itself.
fn rests(job: &JobState) -> bool {
    job.state.has_ended() || job.state == Phase::Suspended
}

/// A refusal of a change concerns a job that has ended meanwhile.
fn keep(trouble: Trouble) -> Result<(), SweepError> {
    match trouble {
        Trouble::Refused(_) => Ok(()),
        Trouble::Gone(error) => Err(error.into()),
    }
}
