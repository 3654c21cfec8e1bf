//! Follows what a run writes into its folder, and reports what of it matters to the engine.
//!
//! The folder may be the run's own, or a copy that is kept up to date from elsewhere.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use bellwether_core::cluster::JobId;
use bellwether_core::record::{Event, StepRecord};
use bellwether_runtime::journal::{self, Ending, RunHistory};
use bellwether_runtime::metrics;
use bellwether_runtime::run_dir::RunDir;
use bellwether_session::pressure::Pressure;

use super::Report;
pub(super) use longest::LongestStep;
use steps::{CalmSteps, InCrowd, Pace};

mod longest;
mod steps;

/// Who hears the reports.
pub type Tell = Arc<dyn Fn(Report) + Send + Sync>;

/// Nothing happens when there was no news for this long.
pub(super) const QUIET: Duration = Duration::from_millis(250);

/// Time between two reports of progress, and between two of calm steps.
const PROGRESS_PERIOD: Duration = Duration::from_millis(200);
const STEPS_PERIOD: Duration = Duration::from_secs(1);

/// Bytes at the end of the metrics in which the last loss stands.
const LAST_STEPS_BYTES: u64 = 1 << 14;

/// What else computes on the machine of a run, which slows its steps down.
pub(super) struct Neighbours {
    /// Its workers among those of all jobs.
    crowd: InCrowd,
    /// How busy the machine was since steps were handed over last.
    pressure: Option<Pressure>,
}

impl Neighbours {
    /// `crowd`: workers of all jobs.
    pub(super) fn on_this_machine(crowd: &Arc<AtomicU32>) -> Neighbours {
        Neighbours { crowd: InCrowd::new(crowd), pressure: Pressure::begin() }
    }
}

/// Follows one run.
pub struct Follower {
    job: JobId,
    tell: Tell,
    journal: journal::Tail,
    metrics: metrics::Tail,
    /// What its journal says.
    pub history: RunHistory,
    /// When the journal had news last.
    pub news_at: Instant,
    pub(super) longest: LongestStep,
    pace: Pace,
    lesson: CalmSteps,
    /// Absent where the run computes on other machines.
    neighbours: Option<Neighbours>,
    loss: Option<f64>,
    /// Workers and committed steps as they were reported last.
    reported: (u32, u64),
    progress_at: Instant,
    /// When it was heard of the last committed step.
    committed_at: Instant,
    steps_at: Instant,
}

/// What the last steps of a run took.
fn longest_step(run: &Path) -> LongestStep {
    let (mut metrics, mut longest) = (metrics::Tail::new(run), LongestStep::default());
    // Metrics that cannot be read tell nothing.
    let _ = metrics.skip(LAST_STEPS_BYTES);
    while let Ok(steps) = metrics.read()
        && !steps.is_empty()
    {
        steps.iter().for_each(|step| longest.see(step.duration_s, step.workers));
    }
    longest
}

impl Follower {
    /// Of a run that computes on other machines than this one.
    pub fn elsewhere(job: JobId, run: &Path, tell: Tell) -> Follower {
        Follower::new(job, run, tell, None)
    }

    pub(super) fn new(job: JobId, run: &Path, tell: Tell, neighbours: Option<Neighbours>) -> Follower {
        let now = Instant::now();
        // All that the last coordinators wrote need not be read at every begin.
        let (history, journal) = RunDir::at(run).follow_history();
        Follower {
            job,
            tell,
            journal,
            metrics: metrics::Tail::new(run),
            history,
            news_at: now,
            longest: longest_step(run),
            pace: Pace::default(),
            lesson: CalmSteps::default(),
            neighbours,
            loss: None,
            reported: (0, 0),
            progress_at: now,
            committed_at: now,
            steps_at: now,
        }
    }

    /// Reads what the journal says without reporting it.
    pub fn read_past(&mut self) {
        while let Ok(lines) = self.journal.read()
            && !lines.is_empty()
        {
            lines.iter().for_each(|line| self.history.take_line(line));
        }
    }

    /// A coordinator lives that began before it was followed.
    pub fn take_over(&mut self) {
        // Metrics that cannot be read tell nothing.
        let _ = self.metrics.skip(LAST_STEPS_BYTES);
        self.start_again();
        if self.history.workers > 0 {
            self.report_workers();
        }
    }

    /// Steps of earlier coordinators tell nothing of the one that is about to begin.
    pub(super) fn pass_over_steps(&mut self) {
        let _ = self.metrics.skip(0);
    }

    /// A coordinator was started.
    pub(super) fn begin(&mut self) {
        self.history.expect_coordinator();
        self.start_again();
    }

    fn start_again(&mut self) {
        self.lesson.started();
        self.pace.changed(0);
        self.reported = (0, self.history.committed());
        self.news_at = Instant::now();
    }

    /// Reads what is new, and reports it. `speed`: of the slots on which the run computes.
    pub fn hear(&mut self, speed: f64) {
        while let Ok(lines) = self.journal.read()
            && !lines.is_empty()
        {
            self.news_at = Instant::now();
            for line in &lines {
                let committed = self.history.committed();
                self.history.take_line(line);
                if self.history.committed() != committed {
                    self.committed_at = self.news_at;
                }
                if matches!(line.event, Event::CoordinatorStarted { .. }) {
                    self.lesson.started();
                    self.pace.changed(0);
                    self.reported.0 = 0;
                }
                if self.history.workers != self.reported.0 {
                    self.report_workers();
                }
            }
        }
        // After the journal: a step's workers are known before the step. Without news there, there are no steps.
        while self.news_at.elapsed() < QUIET
            && let Ok(steps) = self.metrics.read()
            && !steps.is_empty()
        {
            for step in steps {
                self.loss = step.loss.or(self.loss);
                self.pace.see(&step, self.history.task.as_ref().map_or(0, |task| task.batch));
                self.longest.see(step.duration_s, step.workers);
                let before = self.lesson.see(step);
                self.report_steps(before, speed);
            }
        }
        let due = self.progress_at.elapsed() >= PROGRESS_PERIOD || self.history.ending.is_some();
        if due && self.history.committed() != self.reported.1 {
            self.report_progress();
        }
        if self.steps_at.elapsed() >= STEPS_PERIOD {
            self.hand_over_steps(speed);
        }
    }

    fn report_workers(&mut self) {
        let RunHistory { workers, workers_since_unix_s: since_s, .. } = self.history;
        self.reported.0 = workers;
        if let Some(neighbours) = &mut self.neighbours {
            neighbours.crowd.set(workers);
        }
        self.pace.changed(workers);
        (self.tell)(Report::Training { job: self.job, workers, unix_s: since_s });
    }

    fn report_progress(&mut self) {
        let step = self.history.committed();
        (self.reported.1, self.progress_at) = (step, Instant::now());
        let (since, loss) = (self.committed_at.elapsed(), self.loss);
        let examples_per_s = self.pace.examples_per_s();
        (self.tell)(Report::Progress { job: self.job, step, since, loss, examples_per_s });
    }

    /// Reports the steps that a model may learn from.
    pub fn hand_over_steps(&mut self, speed: f64) {
        self.steps_at = Instant::now();
        let steps = self.lesson.take();
        self.report_steps(steps, speed);
        if let Some(neighbours) = &mut self.neighbours {
            neighbours.pressure = Pressure::begin();
        }
    }

    fn report_steps(&self, steps: Option<(u32, Vec<StepRecord>)>, speed: f64) {
        let Some((workers, steps)) = steps else { return };
        let share = |neighbours: &Neighbours| neighbours.pressure?.share(neighbours.crowd.all());
        let processor_wait = self.neighbours.as_ref().and_then(share);
        (self.tell)(Report::Steps { job: self.job, workers, speed, steps, processor_wait });
    }

    /// The report of an end that the journal tells.
    pub fn ended(&self, Ending { outcome, step, digest, unix_s, limit, by }: Ending) -> Report {
        let ended_early = self.history.ended_early().filter(|end| end.step == step).cloned();
        Report::Ended { job: self.job, outcome, ended_early, step, digest, unix_s, limit, by }
    }
}
