//! Watches over the coordinator of one job: finds or starts it, follows what it writes, steers it, and tells its end.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use bellwether_core::record::RunOutcome;
use bellwether_runtime::journal::{self, Ending};
use bellwether_runtime::run_dir::RunDir;
use bellwether_session::process::{Life, Resume, RunProcess, Tie};

use super::patience::{Patience, RELEASING_PATIENCE};
use super::{Closing, Mailbox};
use crate::runner::follow::{Follower, Neighbours, QUIET, Tell};
use crate::runner::{Report, Wanted};

mod profile;
mod steer;

/// Time between two looks at the files: while something begins or ends, while steps are done, and while nothing
/// happens.
const TICK_EAGER: Duration = Duration::from_millis(5);
const TICK: Duration = Duration::from_millis(20);
const TICK_QUIET: Duration = Duration::from_millis(50);

/// Time between two looks at the coordinator's process, or at the lock where it is not ours.
const PROBE: Duration = Duration::from_millis(100);

/// How long a coordinator may go on after its last word that has no machines to give back.
const LEAVING_PATIENCE: Duration = Duration::from_secs(10);

/// How long a coordinator may go on after its last word.
fn leaving_patience(wish: &Wanted) -> Duration {
    if wish.provision.is_some() { RELEASING_PATIENCE } else { LEAVING_PATIENCE }
}

/// Sees to one job.
pub(super) struct Supervisor {
    program: PathBuf,
    patience: Patience,
    pub(super) tell: Tell,
    pub(super) post: Arc<Mailbox>,
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
            let (job, has_machines) = (wish.job, wish.provision.is_some());
            let Ok((last, workers)) = Attempt::new(&self, process, wish).play() else { return };
            // What is tried again goes on with the machines that are there.
            let goes_on = matches!(last, Report::Lost { .. }) && workers > 0;
            let is_finished = matches!(last, Report::Ended { outcome: RunOutcome::Finished, .. });
            let gives_back = has_machines && !goes_on;
            // Nothing can begin again before the machines are given back, unless nothing will.
            if gives_back && !is_finished && self.give_back(process, job).is_err() {
                return;
            }
            (self.tell)(last);
            if gives_back && is_finished && self.give_back(process, job).is_err() {
                return;
            }
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
    follow: Follower,
    /// When it left because that was wanted.
    left_unix_s: Option<f64>,
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
        let neighbours = Neighbours::on_this_machine(&of.crowd);
        Attempt {
            of,
            process,
            follow: Follower::new(wish.job, &wish.run, Arc::clone(&of.tell), Some(neighbours)),
            speed: wish.speed,
            wish,
            left_unix_s: None,
            asked: None,
            ask_at: now,
            settled: false,
            settle_at: now,
            leave_since: None,
            killed: None,
            probe_at: now,
        }
    }

    /// Until the end, which is returned, with the workers that were wanted then.
    fn play(mut self) -> Result<(Report, u32), Closing> {
        let last = self.play_on()?;
        Ok((last, self.wish.workers))
    }

    fn play_on(&mut self) -> Result<Report, Closing> {
        loop {
            if let Startup::Over(report) = self.meet()? {
                return Ok(report);
            }
            let end = loop {
                self.follow.hear(self.speed);
                if let Some(ending) = self.follow.history.ending.clone() {
                    break Ok(ending);
                }
                if !self.lives() {
                    // What it wrote last may have come after the last look.
                    self.follow.hear(self.speed);
                    break self.follow.history.ending.clone().ok_or(());
                }
                self.steer();
                let tick = self.tick();
                self.listen(tick)?;
            };
            self.follow.hand_over_steps(self.speed);
            match end {
                // It left because that was wanted, and is wanted back since.
                Ok(ending)
                    if ending.outcome == RunOutcome::Stopped
                        && self.asked == Some(0)
                        && self.wish.workers > 0 =>
                {
                    self.left_unix_s = Some(ending.unix_s);
                }
                Ok(ending) => return Ok(self.follow.ended(ending)),
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
            self.follow.read_past();
            match (alive, self.follow.history.ending.clone()) {
                (true, None) => {
                    self.take_over();
                    return Ok(Startup::Coordinator);
                }
                // It is about to leave, or another has come that has not said so yet.
                (true, Some(_)) => {
                    if since.elapsed() > leaving_patience(&self.wish) {
                        self.kill();
                    }
                    self.listen(TICK_EAGER)?;
                }
                (false, Some(ending)) if self.wish.workers == 0 && self.is_known(&ending) => {
                    let ending = Ending { outcome: RunOutcome::Stopped, ..ending };
                    return Ok(Startup::Over(self.follow.ended(ending)));
                }
                (false, Some(ending)) if ending.outcome == RunOutcome::Finished || self.wish.workers == 0 => {
                    return Ok(Startup::Over(self.follow.ended(ending)));
                }
                // It was stopped by hand while no daemon looked.
                (false, Some(ending)) if ending.outcome == RunOutcome::Stopped && !self.is_known(&ending) => {
                    return Ok(Startup::Over(self.follow.ended(ending)));
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

    /// A coordinator lives that was not started here.
    fn take_over(&mut self) {
        self.asked = None;
        self.follow_again();
        self.follow.take_over();
    }

    fn launch(&mut self) -> Startup {
        self.follow.pass_over_steps();
        let (workers, provision) = (self.wish.workers, self.wish.provision);
        let how = Resume {
            // A plan says itself how many there are.
            workers: provision.is_none().then(|| (workers..=workers).into()),
            speed: Some(self.wish.speed).filter(|speed| *speed < 1.0),
            listen: provision.and_then(|(_, listen)| listen),
            provision: provision.map(|(kind, _)| kind),
            served: true,
            ..Resume::of(self.process.run())
        };
        match self.process.start(&self.of.program, &how.avoiding_taken_address(), Tie::Outlives) {
            Ok(()) => {
                self.asked = Some(self.wish.workers);
                self.follow_again();
                self.follow.begin();
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
        (self.leave_since, self.killed, self.settled) = (None, None, false);
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
        match self.follow.history.workers {
            0 => TICK_EAGER,
            _ if self.asked == Some(0) => TICK_EAGER,
            _ if self.follow.news_at.elapsed() < QUIET => TICK,
            _ => TICK_QUIET,
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

    /// No coordinator leads the run any more, and none should.
    fn gone(&mut self) -> Report {
        if self.follow.history.process.is_some() {
            return self.lost();
        }
        // It had not begun.
        let (outcome, unix_s) = (RunOutcome::Stopped, journal::now_s());
        self.follow.ended(Ending { outcome, step: 0, digest: None, unix_s, limit: None, by: None })
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
