//! Watches over the coordinator of one job: finds or starts it, follows what it writes, steers it, and tells its end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use bellwether_core::record::{Event, RunOutcome, StepRecord};
use bellwether_runtime::journal::{self, Ending, RunHistory};
use bellwether_runtime::metrics;
use bellwether_runtime::run_dir::RunDir;
use bellwether_session::pressure::Pressure;
use bellwether_session::process::{Life, Resume, RunProcess, Tie};

use super::patience::{LongestStep, Patience};
use super::steps::{CalmSteps, InCrowd, Pace};
use super::{Closing, Mailbox, Tell};
use crate::runner::{Report, Wanted};

mod profile;
mod steer;

/// Time between two looks at the files: while something begins or ends, while steps are done, and while nothing
/// happens.
const TICK_EAGER: Duration = Duration::from_millis(5);
const TICK: Duration = Duration::from_millis(20);
const TICK_QUIET: Duration = Duration::from_millis(50);

/// Nothing happens when there was no news for this long.
const QUIET: Duration = Duration::from_millis(250);

/// Time between two looks at the coordinator's process, or at the lock where it is not ours.
const PROBE: Duration = Duration::from_millis(100);

/// How long a coordinator may go on after its last word.
const LEAVING_PATIENCE: Duration = Duration::from_secs(10);

/// Time between two reports of progress, and between two of calm steps.
const PROGRESS_PERIOD: Duration = Duration::from_millis(200);
const STEPS_PERIOD: Duration = Duration::from_secs(1);

/// Bytes at the end of the metrics in which the last loss stands.
const LAST_STEPS_BYTES: u64 = 1 << 14;

/// Sees to one job.
pub(super) struct Supervisor {
    program: PathBuf,
    patience: Patience,
    tell: Tell,
    post: Arc<Mailbox>,
    crowd: Arc<AtomicU32>,
}

impl Supervisor {
    pub(super) fn new(
        program: PathBuf,
        patience: Patience,
        tell: Tell,
        post: Arc<Mailbox>,
        crowd: Arc<AtomicU32>,
    ) -> Supervisor {
        Supervisor { program, patience, tell, post, crowd }
    }

    /// Sees to the job until it has ended and is not wanted again.
    pub(super) fn attend(self) {
        // None until the first wish.
        let mut process = None;
        while let Ok(Some(wish)) = self.idle(&mut process) {
            let process = process.get_or_insert_with(|| RunProcess::of(RunDir::at(&wish.run)));
            place(&wish);
            let Ok(last) = Attempt::new(&self, process, wish).play() else { return };
            (self.tell)(last);
        }
    }

    /// Waits until the last coordinator is gone, or for the next wish; `None` when there is nothing to wait for.
    fn idle(&self, process: &mut Option<RunProcess>) -> Result<Option<Wanted>, Closing> {
        let since = Instant::now();
        loop {
            if process.as_mut().is_none_or(RunProcess::forget_ended) {
                return Ok(self.post.leave());
            }
            // A change that crosses the end on its way comes too late.
            if let Some(wish) = self.post.wait(TICK_EAGER)?.filter(|wish| wish.begins) {
                return Ok(Some(wish));
            }
            let own = process.as_mut().and_then(RunProcess::own);
            if let Some(own) = own.filter(|_| since.elapsed() > LEAVING_PATIENCE) {
                own.kill();
            }
        }
    }
}

/// From a wish to the end that is reported.
struct Attempt<'s> {
    of: &'s Supervisor,
    process: &'s mut RunProcess,
    wish: Wanted,
    journal: journal::Tail,
    metrics: metrics::Tail,
    history: RunHistory,
    pace: Pace,
    longest: LongestStep,
    lesson: CalmSteps,
    /// Its workers among those of all jobs.
    crowd: InCrowd,
    /// How busy the machine was since steps were handed over last.
    pressure: Option<Pressure>,
    loss: Option<f64>,
    /// When it left because that was wanted.
    left_unix_s: Option<f64>,
    /// When the journal had news last.
    news_at: Instant,
    /// Workers and committed steps as they were reported last.
    reported: (u32, u64),
    progress_at: Instant,
    /// When it was heard of the last committed step.
    committed_at: Instant,
    steps_at: Instant,
    /// Speed of the slots when its coordinator started, as far as is known here.
    speed: f64,
    /// What was asked of the coordinator; 0 to stop. `None` where it is not known what others asked.
    asked: Option<u32>,
    ask_at: Instant,
    /// Whether it was told that what was asked is so, and when to look again.
    settled: bool,
    settle_at: Instant,
    /// Since when it should leave.
    leave_since: Option<Instant>,
    /// The patience with which it was killed.
    killed: Option<Duration>,
    probe_at: Instant,
}

/// Tells the coordinator of a run on a cluster where its workers may be. It looks there again and again.
fn place(wish: &Wanted) {
    let Some(places) = wish.places.as_ref().filter(|_| wish.workers > 0) else { return };
    // A disk that is full now has room when the next wish comes; until then workers are where they are.
    let _ = RunDir::at(&wish.run).keep_placement(places);
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

/// What there is when a job is wanted.
enum Startup {
    /// A coordinator leads it.
    Coordinator,
    /// None does, and none should.
    Over(Report),
}

impl<'s> Attempt<'s> {
    fn new(of: &'s Supervisor, process: &'s mut RunProcess, wish: Wanted) -> Attempt<'s> {
        let now = Instant::now();
        // All that the last coordinators wrote need not be read at every begin.
        let (history, journal) = RunDir::at(&wish.run).follow_history();
        Attempt {
            of,
            process,
            journal,
            metrics: metrics::Tail::new(&wish.run),
            longest: longest_step(&wish.run),
            speed: wish.speed,
            wish,
            left_unix_s: None,
            history,
            pace: Pace::default(),
            lesson: CalmSteps::default(),
            crowd: InCrowd::new(&of.crowd),
            pressure: Pressure::begin(),
            loss: None,
            news_at: now,
            reported: (0, 0),
            progress_at: now,
            committed_at: now,
            steps_at: now,
            asked: None,
            ask_at: now,
            settled: false,
            settle_at: now,
            leave_since: None,
            killed: None,
            probe_at: now,
        }
    }

    /// Until the end, which is returned.
    fn play(mut self) -> Result<Report, Closing> {
        loop {
            if let Startup::Over(report) = self.meet()? {
                return Ok(report);
            }
            let end = loop {
                self.hear();
                if let Some(ending) = self.history.ending.clone() {
                    break Ok(ending);
                }
                if !self.lives() {
                    // What it wrote last may have come after the last look.
                    self.hear();
                    break self.history.ending.clone().ok_or(());
                }
                self.steer();
                let tick = self.tick();
                self.listen(tick)?;
            };
            self.hand_over_steps();
            match end {
                // It left because that was wanted, and is wanted back since.
                Ok(ending)
                    if ending.outcome == RunOutcome::Stopped
                        && self.asked == Some(0)
                        && self.wish.workers > 0 =>
                {
                    self.left_unix_s = Some(ending.unix_s);
                }
                Ok(ending) => return Ok(self.ended(ending)),
                Err(()) => return Ok(self.lost()),
            }
        }
    }

    /// Finds the coordinator of the run; starts one if that is wanted and none lives.
    fn meet(&mut self) -> Result<Startup, Closing> {
        let since = Instant::now();
        loop {
            // In this order: of one that is gone, all was written.
            let alive = match self.process.run().is_alive() {
                Ok(alive) => alive,
                Err(error) => {
                    let why = format!("{} cannot be used: {error}", self.wish.run.display());
                    return Ok(Startup::Over(Report::Lost { job: self.wish.job, why }));
                }
            };
            self.read_past();
            match (alive, self.history.ending.clone()) {
                (true, None) => {
                    self.take_over();
                    return Ok(Startup::Coordinator);
                }
                // It is about to leave, or another has come that has not said so yet.
                (true, Some(_)) => {
                    if since.elapsed() > LEAVING_PATIENCE {
                        self.kill();
                    }
                    self.listen(TICK_EAGER)?;
                }
                (false, Some(ending)) if self.wish.workers == 0 && self.is_known(&ending) => {
                    let ending = Ending { outcome: RunOutcome::Stopped, ..ending };
                    return Ok(Startup::Over(self.ended(ending)));
                }
                (false, Some(ending)) if ending.outcome == RunOutcome::Finished || self.wish.workers == 0 => {
                    return Ok(Startup::Over(self.ended(ending)));
                }
                // It was stopped by hand while no daemon looked.
                (false, Some(ending)) if ending.outcome == RunOutcome::Stopped && !self.is_known(&ending) => {
                    return Ok(Startup::Over(self.ended(ending)));
                }
                (false, None) if self.wish.workers == 0 => return Ok(Startup::Over(self.gone())),
                // It may be that it is not wanted any more when that is over.
                (false, _) if self.wish.profiles => self.profile()?,
                (false, _) => return Ok(self.launch()),
            }
        }
    }

    /// Whether this end is known to the one that wants something of the run.
    fn is_known(&self, ending: &Ending) -> bool {
        [self.left_unix_s, self.wish.known_end_unix_s].contains(&Some(ending.unix_s))
    }

    /// Reads what the journal says without reporting it.
    fn read_past(&mut self) {
        while let Ok(lines) = self.journal.read()
            && !lines.is_empty()
        {
            lines.iter().for_each(|line| self.history.take_line(line));
        }
    }

    /// A coordinator lives that was not started here.
    fn take_over(&mut self) {
        // Metrics that cannot be read tell nothing.
        let _ = self.metrics.skip(LAST_STEPS_BYTES);
        self.asked = None;
        self.follow_again();
        if self.history.workers > 0 {
            self.report_workers();
        }
    }

    fn launch(&mut self) -> Startup {
        let _ = self.metrics.skip(0);
        let how = Resume {
            workers: Some(self.wish.workers),
            speed: Some(self.wish.speed).filter(|speed| *speed < 1.0),
            served: true,
            ..Resume::of(self.process.run())
        };
        match self.process.start(&self.of.program, &how.avoiding_taken_address(), Tie::Outlives) {
            Ok(()) => {
                self.asked = Some(self.wish.workers);
                self.history.expect_coordinator();
                self.follow_again();
                Startup::Coordinator
            }
            Err(error) => {
                let program = self.of.program.display();
                let why = format!("{program} cannot be started for {}: {error}", self.wish.run.display());
                Startup::Over(Report::Lost { job: self.wish.job, why })
            }
        }
    }

    fn follow_again(&mut self) {
        self.lesson.started();
        self.pace.changed(0);
        (self.leave_since, self.killed, self.settled) = (None, None, false);
        self.reported = (0, self.history.committed());
        self.news_at = Instant::now();
        self.speed = self.wish.speed;
    }

    /// Waits for a wish, at most for `patience`.
    fn listen(&mut self, patience: Duration) -> Result<(), Closing> {
        if let Some(mut wish) = self.of.post.wait(patience)? {
            // One that was asked for before it was known that the job was profiled does not ask for that again.
            wish.profiles &= self.wish.profiles;
            place(&wish);
            (self.wish, self.settled) = (wish, false);
        }
        Ok(())
    }

    /// How long to wait for news.
    fn tick(&self) -> Duration {
        match self.history.workers {
            0 => TICK_EAGER,
            _ if self.asked == Some(0) => TICK_EAGER,
            _ if self.news_at.elapsed() < QUIET => TICK,
            _ => TICK_QUIET,
        }
    }

    /// Reads what is new, and reports it.
    fn hear(&mut self) {
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
                self.report_steps(before);
            }
        }
        let due = self.progress_at.elapsed() >= PROGRESS_PERIOD || self.history.ending.is_some();
        if due && self.history.committed() != self.reported.1 {
            self.report_progress();
        }
        if self.steps_at.elapsed() >= STEPS_PERIOD {
            self.hand_over_steps();
        }
    }

    fn report_workers(&mut self) {
        let RunHistory { workers, workers_since_unix_s: since_s, .. } = self.history;
        self.reported.0 = workers;
        self.crowd.set(workers);
        self.pace.changed(workers);
        (self.of.tell)(Report::Training { job: self.wish.job, workers, unix_s: since_s });
    }

    fn report_progress(&mut self) {
        let step = self.history.committed();
        (self.reported.1, self.progress_at) = (step, Instant::now());
        let (since, loss) = (self.committed_at.elapsed(), self.loss);
        let examples_per_s = self.pace.examples_per_s();
        (self.of.tell)(Report::Progress { job: self.wish.job, step, since, loss, examples_per_s });
    }

    fn hand_over_steps(&mut self) {
        self.steps_at = Instant::now();
        let steps = self.lesson.take();
        self.report_steps(steps);
        self.pressure = Pressure::begin();
    }

    fn report_steps(&self, steps: Option<(u32, Vec<StepRecord>)>) {
        let (job, speed) = (self.wish.job, self.speed);
        if let Some((workers, steps)) = steps {
            let processor_wait = self.pressure.and_then(|pressure| pressure.share(self.crowd.all()));
            (self.of.tell)(Report::Steps { job, workers, speed, steps, processor_wait });
        }
    }

    /// Whether a coordinator lives.
    fn lives(&mut self) -> bool {
        if Instant::now() < self.probe_at {
            return true;
        }
        self.probe_at = Instant::now() + PROBE;
        let life = self.process.look();
        if life == Life::LedByAnother {
            self.asked = None;
        }
        life != Life::Gone
    }

    fn ended(&self, Ending { outcome, step, digest, unix_s }: Ending) -> Report {
        let ended_early = self.history.ended_early().filter(|end| end.step == step).cloned();
        Report::Ended { job: self.wish.job, outcome, ended_early, step, digest, unix_s }
    }

    /// No coordinator leads the run any more, and none should.
    fn gone(&mut self) -> Report {
        if self.history.process.is_some() {
            return self.lost();
        }
        // It had not begun.
        let (outcome, unix_s) = (RunOutcome::Stopped, journal::now_s());
        self.ended(Ending { outcome, step: 0, digest: None, unix_s })
    }

    /// The coordinator is gone without a word in the journal.
    fn lost(&mut self) -> Report {
        if let Some(patience) = self.killed {
            let seconds = patience.as_secs_f64().ceil();
            let why = format!("its processes did not leave within {seconds} s and were killed");
            return Report::Lost { job: self.wish.job, why };
        }
        Report::Lost { job: self.wish.job, why: self.process.why_gone() }
    }
}
