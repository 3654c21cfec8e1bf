//! Runs of jobs, and the runner that sees to them as the law of crews says.

use std::path::PathBuf;
use std::time::Duration;

use bellwether_core::cluster::JobId;
use bellwether_core::record::{RunFailure, RunOutcome};
use bellwether_serve::runner::{Report, Wanted};

use super::replay::Followed;
use super::users::profile;
use super::world::{CRASHES_MAX, STEPS, World};

/// How long the runner waits for a run that should leave.
const PATIENCE: Duration = Duration::from_secs(30);

/// The processes of a job, and its journal.
#[derive(Debug, Default)]
pub(crate) struct Run {
    /// Whether a coordinator lives.
    alive: bool,
    /// Whether one ever began.
    begun: bool,
    /// Workers that it should have; 0: it should leave.
    target: u32,
    /// Workers that train.
    active: u32,
    pub(crate) step: u64,
    checkpoint: u64,
    /// The last word in the journal: how it ended, and when.
    ending: Option<(RunOutcome, f64)>,
    /// It does not answer until then.
    silent_until: Duration,
    /// How often it broke by itself.
    pub(crate) crashes: u32,
    /// Its folder.
    path: PathBuf,
    /// Whether machines of its own may be there.
    pub(crate) holds_machines: bool,
    /// It was stopped by hand, and no wish to leave or to go on has come since.
    pub(crate) stopped_by_hand: bool,
}

impl Run {
    /// Workers that train, or are about to.
    pub(crate) fn workers(&self) -> u32 {
        if self.alive { self.target.max(self.active) } else { 0 }
    }

    /// A coordinator's last word. What it has left of its machines the runner gives back.
    fn leave(&mut self, outcome: RunOutcome, unix_s: f64) {
        self.ending = Some((outcome, unix_s));
    }
}

/// What the runner knows of a job.
#[derive(Debug, Default)]
pub(crate) struct Post {
    wish: Option<Wanted>,
    attended: bool,
    /// Whether it has found out who coordinates the run.
    met: bool,
    /// When it left because that was wanted, since it was met.
    left_unix_s: Option<f64>,
    /// Whether it was told that no more processes are there than are wanted.
    settled: bool,
    leave_since: Option<Duration>,
}

impl World {
    pub(crate) fn want(&mut self, wanted: Wanted) {
        self.tell(|| format!("wanted: job {} with {} workers", wanted.job.0, wanted.workers));
        let (job, workers) = (wanted.job, wanted.workers);
        let is_placed = !self.nodes.is_empty() && wanted.provision.is_none();
        assert_eq!(wanted.places.is_some(), is_placed, "job {}", job.0);
        let room: u32 = wanted.places.iter().flat_map(|places| places.values()).sum();
        assert!(!is_placed || room >= workers, "job {}: {wanted:?}", job.0);
        let known = self.posts.contains_key(&job);
        let run = self.runs.entry(job).or_default();
        // Also where both crossed: it is the daemon's stop then.
        run.stopped_by_hand &= workers > 0;
        run.path.clone_from(&wanted.run);
        let post = self.posts.entry(job).or_default();
        let leaves_nothing = workers == 0 && known && wanted.provision.is_none();
        if !post.attended && (!wanted.begins || leaves_nothing) {
            return;
        }
        let mut wanted = wanted;
        wanted.profiles &= !post.attended || post.wish.as_ref().is_none_or(|wish| wish.profiles);
        (post.wish, post.settled) = (Some(wanted), false);
        post.met &= post.attended;
        post.attended = true;
    }

    /// What no process leads any more gives its machines back.
    pub(crate) fn release(&mut self, paths: &[PathBuf]) {
        for run in self.runs.values_mut().filter(|run| paths.contains(&run.path) && !run.alive) {
            run.holds_machines = false;
        }
    }

    /// The machine ends and starts again: no process is left.
    pub(crate) fn lose_power(&mut self) {
        self.tell(|| "the machine loses its power".into());
        self.count("power lost", 1);
        self.disk.lose_power(&mut self.random);
        self.followed = Followed::default();
        for run in self.runs.values_mut() {
            (run.alive, run.active, run.step) = (false, 0, run.checkpoint);
        }
    }

    /// The runner sees to a job.
    pub(crate) fn attend(&mut self, job: JobId) {
        let now = self.elapsed;
        let (Some(run), Some(post)) = (self.runs.get_mut(&job), self.posts.get_mut(&job)) else { return };
        let Some(wish) = post.wish.clone().filter(|_| post.attended) else { return };
        if !post.met {
            self.meet(job, &wish);
            return;
        }
        if !run.alive {
            match run.ending.clone() {
                Some((RunOutcome::Stopped, unix_s)) if run.target == 0 && wish.workers > 0 => {
                    (post.left_unix_s, post.met) = (Some(unix_s), false);
                }
                Some(ending) => self.end(job, ending),
                None => self.lose(job, "it is gone without a word"),
            }
            return;
        }
        if now < run.silent_until {
            // It hears nothing.
        } else if run.target > 0 {
            run.target = wish.workers;
        }
        let is_settled = now >= run.silent_until && run.active <= run.target && run.target == wish.workers;
        if is_settled && run.target > 0 && !std::mem::replace(&mut post.settled, true) {
            let workers = run.target;
            self.send(job, Report::Settled { job, workers });
            return;
        }
        if wish.workers > 0 && run.target > 0 {
            post.leave_since = None;
        } else if now - *post.leave_since.get_or_insert(now) > PATIENCE {
            (run.alive, run.active, run.step) = (false, 0, run.checkpoint);
            self.lose(job, "it did not leave in time and was killed");
        }
    }

    fn meet(&mut self, job: JobId, wish: &Wanted) {
        let (Some(run), Some(post)) = (self.runs.get_mut(&job), self.posts.get_mut(&job)) else { return };
        let is_known = |unix_s: f64| [post.left_unix_s, wish.known_end_unix_s].contains(&Some(unix_s));
        match run.ending.clone() {
            _ if run.alive => {
                (post.met, post.leave_since, post.settled) = (true, None, false);
                if run.active > 0 {
                    let (workers, unix_s) = (run.active, 0.0);
                    self.send(job, Report::Training { job, workers, unix_s });
                }
            }
            Some((_, unix_s)) if wish.workers == 0 && is_known(unix_s) => {
                self.end(job, (RunOutcome::Stopped, unix_s));
            }
            Some(ending) if ending.0 == RunOutcome::Finished || wish.workers == 0 => self.end(job, ending),
            Some(ending) if ending.0 == RunOutcome::Stopped && !is_known(ending.1) => self.end(job, ending),
            None if wish.workers == 0 && run.begun => self.lose(job, "it is gone without a word"),
            None if wish.workers == 0 => {
                let unix_s = self.unix_s();
                self.end(job, (RunOutcome::Stopped, unix_s));
            }
            _ if wish.profiles => {
                if self.random.below(20) == 0 {
                    post.wish.iter_mut().for_each(|wish| wish.profiles = false);
                    self.count("profiled", 1);
                    let profile = match self.random.below(2) {
                        0 => Err("it is played".into()),
                        // More than some slots have.
                        _ => Ok(profile(2 << 30)),
                    };
                    self.send(job, Report::Profiled { job, profile });
                }
            }
            _ => {
                assert!(
                    !run.stopped_by_hand,
                    "job {} was stopped by hand, and begins again by itself",
                    job.0
                );
                (run.alive, run.begun, run.ending) = (true, true, None);
                (run.target, run.active) = (wish.workers, 0);
                run.holds_machines = wish.provision.is_some();
                (post.met, post.leave_since, post.settled) = (true, None, false);
                let has_machines = run.holds_machines;
                self.count("machines of their own", u64::from(has_machines));
            }
        }
    }

    fn end(&mut self, job: JobId, (outcome, unix_s): (RunOutcome, f64)) {
        let step = self.runs.get_mut(&job).map_or(0, |run| {
            run.holds_machines = false;
            run.step
        });
        self.tell(|| format!("job {} ended: {outcome}", job.0));
        if let Some(post) = self.posts.get_mut(&job) {
            (post.left_unix_s, post.attended, post.met) = (None, false, false);
        }
        self.send(
            job,
            Report::Ended {
                job,
                outcome,
                ended_early: None,
                step,
                digest: None,
                unix_s,
                limit: None,
                by: None,
            },
        );
    }

    fn lose(&mut self, job: JobId, why: &str) {
        self.tell(|| format!("job {} is lost: {why}", job.0));
        if let Some(post) = self.posts.get_mut(&job) {
            (post.left_unix_s, post.attended, post.met) = (None, false, false);
            // Who goes on does so with the machines that are there.
            let goes_on = post.wish.as_ref().is_some_and(|wish| wish.workers > 0);
            if let Some(run) = self.runs.get_mut(&job).filter(|_| !goes_on) {
                run.holds_machines = false;
            }
        }
        self.send(job, Report::Lost { job, why: why.to_owned() });
    }

    /// The processes of a job do something, or something happens to them.
    pub(crate) fn go_on(&mut self, job: JobId) {
        let (luck, dice) = (self.random.below(400), self.random.below(12));
        let (now, calm, unix_s) = (self.elapsed, self.calm, self.unix_s());
        let follows = self.posts.get(&job).is_some_and(|post| post.met);
        let wanted = self.posts.get(&job).and_then(|post| post.wish.as_ref()).map(|wish| wish.workers);
        let Some(run) = self.runs.get_mut(&job).filter(|run| run.alive && now >= run.silent_until) else {
            return;
        };
        let breaks = !calm && run.crashes < CRASHES_MAX;
        match luck {
            0 if breaks => {
                // Its workers keep the state.
                (run.alive, run.active) = (false, 0);
                run.crashes += 1;
                self.count("coordinators died", 1);
            }
            1 if breaks && run.target > 0 => {
                (run.alive, run.active, run.step) = (false, 0, run.checkpoint);
                run.crashes += 1;
                let failure = RunFailure::Other("no worker comes up".into());
                run.leave(RunOutcome::Failed(failure), unix_s);
            }
            2 if !calm => run.silent_until = now + Duration::from_millis(dice * 4000),
            3 if !calm && run.target > 0 && wanted != Some(0) => {
                (run.alive, run.active, run.checkpoint) = (false, 0, run.step);
                run.leave(RunOutcome::Stopped, unix_s);
                run.stopped_by_hand = true;
                self.count("stopped by hand", 1);
            }
            4 if breaks && run.active > 1 && run.active == run.target => {
                // A worker dies, and another one comes.
                run.active -= 1;
                let workers = run.active;
                if follows {
                    self.send(job, Report::Training { job, workers, unix_s });
                }
            }
            // Most of the time nothing is done yet.
            _ if luck % 4 != 0 => {}
            _ if run.target == 0 => {
                (run.alive, run.active, run.checkpoint) = (false, 0, run.step);
                run.leave(RunOutcome::Stopped, unix_s);
            }
            _ if run.step == STEPS => {
                (run.alive, run.active, run.checkpoint) = (false, 0, run.step);
                run.leave(RunOutcome::Finished, unix_s);
            }
            _ if run.active != run.target => {
                run.active = run.target;
                let workers = run.active;
                if follows {
                    self.send(job, Report::Training { job, workers, unix_s });
                }
            }
            _ => {
                run.step = (run.step + dice).min(STEPS);
                let (step, examples_per_s) = (run.step, Some(100.0 * f64::from(run.active)));
                if follows {
                    let (since, loss) = (Duration::ZERO, Some(1.0));
                    self.send(job, Report::Progress { job, step, since, loss, examples_per_s });
                }
            }
        }
    }
}
