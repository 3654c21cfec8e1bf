//! What the engine wants of each job, and what it was told: the third runner.
//!
//! The engine's wishes arrive here ([`Pods`] is its [`JobRunner`]); [`crate::reconcile`] reads them, and what it finds
//! goes back as reports. Progress comes from the copy of the run's folder, which [`Follower`]s read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use bellwether_core::cluster::JobId;
use bellwether_serve::runner::follow::{Follower, Tell};
use bellwether_serve::runner::{JobRunner, Report, Wanted};

use crate::exchange;
use crate::observe::now_s;
use crate::pace::{Counting, Pace};
use crate::reconcile::{Desired, Final, News};

/// Is called with the name of a run of which something else is wanted now.
pub type Wake = Arc<dyn Fn(&str) + Send + Sync>;

/// Where the engine's wishes lie, by the names of runs. A copy is the same desk.
#[derive(Clone)]
pub struct Desk {
    runs: Arc<Mutex<BTreeMap<String, Attended>>>,
    tell: Tell,
    wake: Wake,
}

/// A run of which the engine has wanted something.
struct Attended {
    job: JobId,
    folder: PathBuf,
    desired: Desired,
    /// Whether the engine was not told of an end since it last wanted the run to begin.
    is_open: bool,
    /// Workers of which it was told that no others are there.
    settled: Option<u32>,
    follower: Option<Follower>,
    /// Of a set of pods that trains: which one, and what it has told.
    set: Option<(u64, Pace)>,
}

impl Desk {
    /// An empty one. `tell` takes the reports.
    pub fn new(tell: Tell, wake: Wake) -> Desk {
        Desk { runs: Arc::default(), tell, wake }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Attended>> {
        self.runs.lock().expect("no holder of this lock panics")
    }

    /// What the engine wants of a run; `None` until it has wanted something.
    pub fn desired(&self, run: &str) -> Option<Desired> {
        self.lock().get(run).map(|attended| attended.desired.clone())
    }

    /// Where the copy of a run's folder is; `None` while the engine has wanted nothing of it.
    pub fn folder(&self, run: &str) -> Option<PathBuf> {
        self.lock().get(run).map(|attended| attended.folder.clone())
    }

    /// The copy of a run's folder has news.
    pub fn hear(&self, run: &str) {
        if let Some(attended) = self.lock().get_mut(run).filter(|attended| attended.is_open)
            && let Some(follower) = &mut attended.follower
        {
            follower.hear(1.0);
        }
    }

    /// All pods of a set are there: this many workers train from now on.
    pub fn trains(&self, run: &str, generation: u64, workers: u32, counting: Counting) {
        let mut runs = self.lock();
        let Some(attended) = runs.get_mut(run).filter(|attended| attended.is_open) else { return };
        if attended.set.as_ref().is_some_and(|(known, _)| *known == generation) {
            return;
        }
        attended.set = Some((generation, Pace::new(counting, workers)));
        (self.tell)(Report::Training { job: attended.job, workers, unix_s: now_s() });
    }

    /// The set of pods that trains.
    pub fn whole(&self, run: &str) -> Option<u64> {
        self.lock().get(run)?.set.as_ref().map(|(generation, _)| *generation)
    }

    /// A set of pods says how fast its script is.
    pub fn reported(&self, run: &str, said: &exchange::Report) {
        let mut runs = self.lock();
        let Some(attended) = runs.get_mut(run).filter(|attended| attended.is_open) else { return };
        let job = attended.job;
        let news = attended.set.as_mut().map(|(_, pace)| pace.take(job, said, now_s()));
        news.into_iter().flatten().for_each(|report| (self.tell)(report));
    }

    /// What [`crate::reconcile`] has to say of a run; said twice, the engine hears it once.
    pub fn tell(&self, run: &str, news: &News) {
        let mut runs = self.lock();
        let Some(attended) = runs.get_mut(run).filter(|attended| attended.is_open) else { return };
        let job = attended.job;
        match news {
            News::Settled(workers) => {
                if attended.settled.replace(*workers) != Some(*workers) {
                    (self.tell)(Report::Settled { job, workers: *workers });
                }
            }
            News::Ended(word) => {
                let report = attended.ended(word);
                attended.desired.known_end = Some(word.unix_s.to_bits());
                self.close(attended, report);
            }
            News::Lost(why) => self.close(attended, Report::Lost { job, why: why.clone() }),
            News::Failed(why) => self.close(attended, Report::Failed { job, why: why.clone() }),
            News::Unplaced(why) => self.close(attended, Report::Unplaced { job, why: why.clone() }),
        }
    }

    /// Nothing is reported of the run any more until it is wanted again, and no pods are wanted.
    fn close(&self, attended: &mut Attended, last: Report) {
        attended.is_open = false;
        attended.follower = None;
        attended.set = None;
        (attended.desired.workers, attended.desired.servers) = (0, 0);
        attended.desired.places.clear();
        (self.tell)(last);
    }

    /// Nothing more will be wanted of a run.
    pub fn forget(&self, run: &str) {
        self.lock().remove(run);
    }

    fn want(&self, wanted: Wanted) {
        let Some(run) = wanted.run.file_name().map(|name| name.to_string_lossy().into_owned()) else {
            return;
        };
        let mut runs = self.lock();
        let known = runs.get_mut(&run);
        if let Some(known) = &known
            && !known.is_open
            && (!wanted.begins || wanted.workers == 0)
        {
            // It has ended, which was reported, and that report is on its way.
            return;
        }
        let known_end = wanted.known_end_unix_s.map(f64::to_bits);
        let places = wanted.places.clone().unwrap_or_default();
        let reason = String::new();
        let desired = Desired { workers: wanted.workers, servers: wanted.servers, places, known_end, reason };
        let follower = || Some(follower(wanted.job, &wanted.run, &self.tell));
        match known {
            Some(known) => {
                let before = known.desired.known_end;
                known.desired = desired;
                known.desired.known_end = known_end.or(before);
                known.settled = None;
                if !known.is_open {
                    (known.is_open, known.follower) = (true, follower());
                }
            }
            None => {
                let (job, folder) = (wanted.job, wanted.run.clone());
                let (settled, follower, set) = (None, follower(), None);
                let attended = Attended { job, folder, desired, is_open: true, settled, follower, set };
                runs.insert(run.clone(), attended);
            }
        }
        drop(runs);
        (self.wake)(&run);
    }
}

/// Follows the copy of a run's folder from now on.
fn follower(job: JobId, folder: &Path, tell: &Tell) -> Follower {
    let mut follower = Follower::elsewhere(job, folder, Arc::clone(tell));
    follower.read_past();
    if follower.history.ending.is_none() {
        follower.take_over();
    }
    follower
}

impl Attended {
    /// The report of an end: in the words of the journal's copy, where that has them.
    fn ended(&mut self, word: &Final) -> Report {
        let job = self.job;
        if let Some(follower) = &mut self.follower {
            follower.hear(1.0);
            follower.hand_over_steps(1.0);
            let ending = follower.history.ending.clone();
            if let Some(ending) = ending.filter(|ending| ending.unix_s.to_bits() == word.unix_s.to_bits()) {
                return follower.ended(ending);
            }
        }
        let outcome = word.outcome();
        let (step, digest, unix_s) = (word.step, word.digest.clone(), word.unix_s);
        let ended_early = word.ended_early.clone();
        Report::Ended { job, outcome, ended_early, step, digest, unix_s, limit: None, by: None }
    }
}

/// The engine's end of the desk.
#[derive(Clone)]
pub struct Pods(pub Desk);

impl JobRunner for Pods {
    fn want(&mut self, wanted: Wanted) {
        self.0.want(wanted);
    }

    /// Jobs here have no machines of a provider's.
    fn release(&mut self, _runs: Vec<PathBuf>) {}
}
