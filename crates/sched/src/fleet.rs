//! The machines of one run: which are wanted, which are held, and what the provider is asked for next.
//!
//! A [`Fleet`] is a plain value. Events go in (a worker needs a machine, the provider answered, the provider listed
//! what there is) and [`Action`]s come out; the time is an argument. The one that carries the actions out writes
//! [`rows`](Fleet::rows) to a file before each of them, so that a fleet which is lost comes back from there
//! ([`restore`](Fleet::restore)), and from the provider's list.
//!
//! # Rules
//!
//! 1. A worker without a machine gets one of the first wanted group that has room.
//! 2. A pool that refuses, keeps a machine waiting for too long, or gives machines on which no worker ever joins, is
//!    left alone for a while: [`PAUSE_S`], twice as long each time, up to [`PAUSE_MAX_S`].
//! 3. While that is so, another pool stands in: one of the same region that costs no more for each device, in the order
//!    of the supplies; a dearer one only while the fleet [is urgent](Fleet::set_urgent).
//! 4. A machine that no worker needs is released, again and again until the provider lists it no more.
//! 5. What the provider lists under this lease and the fleet does not know is released.
//! 6. A request without an answer is said again with the same tag while the machine is wanted. While it is not, the
//!    machine counts as held for some time after the last request, because it may yet appear: how long, the provider
//!    says.

mod row;
mod seats;
mod supply;

use std::collections::{BTreeMap, BTreeSet};

use bellwether_core::machines::{Machine, Phase, Pool, ProviderError};

pub use supply::{Supply, supplies};

/// Seconds for which a pool that failed is left alone, the first time and at most.
pub const PAUSE_S: f64 = 10.0;
/// See [`PAUSE_S`].
pub const PAUSE_MAX_S: f64 = 600.0;

/// Seconds between two requests without an answer, the first time; twice as long each time, up to 30.
const ASK_AGAIN_S: f64 = 1.0;

/// Seconds between two releases of one machine.
const RELEASE_AGAIN_S: f64 = 5.0;

/// Seconds for which a machine of several devices waits for further workers that are about to ask.
const RIPE_S: f64 = 0.5;

/// Machines that are missing in this many lists, one after the other, are gone: a list may be older than a request.
const MISSING_MAX: u32 = 2;

/// What is to be done, in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Ask the provider for this machine, whose processes are these workers.
    Request {
        /// Its number in the lease.
        number: u64,
        /// What kind.
        pool: Pool,
        /// Workers, one for each device.
        workers: Vec<u64>,
    },
    /// Give this machine back.
    Release {
        /// Its number in the lease.
        number: u64,
    },
}

/// How far a worker is on its way to a machine.
#[derive(Debug, Clone, PartialEq)]
pub enum Place {
    /// It has no machine that runs.
    Waits,
    /// Its machine runs.
    Runs,
    /// Its machine is over.
    Over(String),
}

/// A worker whose machine will be taken away.
#[derive(Debug, Clone, PartialEq)]
pub struct Leaving {
    /// The worker.
    pub worker: u64,
    /// Its machine.
    pub number: u64,
    /// Seconds that are left.
    pub left_s: f64,
    /// Why, in the provider's words.
    pub why: String,
}

/// How far a machine is.
#[derive(Debug, Clone, PartialEq)]
enum Stage {
    /// The provider was not asked yet, or has not answered.
    Unanswered { asked_s: Option<f64>, failures: u32 },
    /// It does not run yet.
    Waits { since_s: f64, reason: String },
    /// It runs here; and when it is taken away, and why.
    Runs { place: String, leaves: Option<(f64, String)> },
    /// It is over.
    Over { how: String },
}

/// A machine that is held, or was.
#[derive(Debug, Clone, PartialEq)]
struct Held {
    pool: Pool,
    dollars_per_hour: f64,
    requested_s: f64,
    running_s: Option<f64>,
    ended_s: Option<f64>,
    stage: Stage,
    /// Workers that need it.
    workers: BTreeSet<u64>,
    /// Whether it stands in for one that was not to be had.
    is_stand_in: bool,
    /// Whether a worker of it ever joined.
    has_joined: bool,
    /// Whether its last worker went before one of it had joined.
    is_fruitless: bool,
    /// Whether it is gone, and what is left of it at the provider is to go, too.
    is_to_be_cleared: bool,
    /// Whether the provider ever listed it.
    is_seen: bool,
    missing: u32,
    released_s: Option<f64>,
}

/// A pool that failed.
#[derive(Debug, Clone, PartialEq)]
struct Pause {
    until_s: f64,
    failures: u32,
}

/// The machines of one run; see the [module](self).
#[derive(Debug, Clone)]
pub struct Fleet {
    supplies: Vec<Supply>,
    wanted: Vec<(Pool, u32)>,
    held: BTreeMap<u64, Held>,
    /// Workers that need a machine, in the order in which they asked.
    waiting: Vec<u64>,
    /// How many waited when that changed last, and when that was.
    waited: (usize, f64),
    /// Workers whose machine is over, and how.
    lost: BTreeMap<u64, String>,
    pauses: BTreeMap<Pool, Pause>,
    last: u64,
    /// Seconds after a request within which its machine may yet appear, though no answer came.
    settle_s: f64,
    is_urgent: bool,
    is_closing: bool,
    news: Vec<String>,
}

impl Fleet {
    /// A fleet that holds nothing, and takes machines of these supplies, the best first. A machine may appear
    /// `settle_s` after a request without an answer.
    pub fn new(supplies: Vec<Supply>, wanted: Vec<(Pool, u32)>, settle_s: f64) -> Fleet {
        Fleet {
            supplies,
            settle_s,
            wanted,
            held: BTreeMap::new(),
            waiting: Vec::new(),
            waited: (0, 0.0),
            lost: BTreeMap::new(),
            pauses: BTreeMap::new(),
            last: 0,
            is_urgent: false,
            is_closing: false,
            news: Vec::new(),
        }
    }

    /// Wants these machines from now on. Those that are too many go once others have taken their place: see
    /// [`surplus`](Fleet::surplus).
    pub fn want(&mut self, wanted: Vec<(Pool, u32)>) {
        self.wanted = wanted;
        self.held.values_mut().for_each(|held| held.is_stand_in = false);
    }

    /// The machines that are wanted.
    pub fn wanted(&self) -> &[(Pool, u32)] {
        &self.wanted
    }

    /// Whether dearer machines may stand in for those that are not to be had.
    pub fn set_urgent(&mut self, is_urgent: bool) {
        self.is_urgent = is_urgent;
    }

    /// What machines of a pool cost from now on; those that are held keep their price.
    pub fn set_price(&mut self, pool: &Pool, dollars_per_hour: f64) {
        for supply in self.supplies.iter_mut().filter(|supply| supply.pool == *pool) {
            supply.dollars_per_hour = dollars_per_hour;
        }
    }

    /// What people should hear, since it was asked last.
    pub fn news(&mut self) -> Vec<String> {
        std::mem::take(&mut self.news)
    }

    /// Gives everything back, and asks for nothing more.
    pub fn close(&mut self) {
        self.is_closing = true;
        self.waiting.clear();
        for held in self.held.values_mut() {
            held.workers.clear();
        }
    }

    /// Whether no machine is held any more, nor may appear.
    pub fn is_empty(&self) -> bool {
        self.held.values().all(Held::is_over)
    }

    /// Whether something is on its way, so that the provider should be asked often.
    pub fn is_moving(&self) -> bool {
        let moves = |held: &Held| match held.stage {
            Stage::Unanswered { .. } | Stage::Waits { .. } => true,
            Stage::Runs { .. } => held.released_s.is_some() || held.workers.is_empty(),
            Stage::Over { .. } => false,
        };
        !self.waiting.is_empty() || self.held.values().any(moves)
    }

    /// What to do now. Each action is to be carried out, and answered where it is a request, before the next question.
    pub fn actions(&mut self, now_s: f64) -> Vec<Action> {
        let mut actions = Vec::new();
        if !self.is_closing {
            self.seat(now_s);
            self.lose_patience(now_s);
            self.leave_alone(now_s);
        }
        for (number, held) in &mut self.held {
            actions.extend(held.next(*number, now_s));
        }
        actions
    }

    /// The provider's answer to the request of a machine.
    pub fn answered(&mut self, number: u64, now_s: f64, answer: Result<(), ProviderError>) {
        let Some(held) = self.held.get_mut(&number) else { return };
        match (answer, &mut held.stage) {
            (Ok(()), Stage::Unanswered { .. }) => {
                held.stage = Stage::Waits { since_s: now_s, reason: String::new() };
            }
            (Ok(()), _) => {}
            (Err(error @ ProviderError::Refused { .. }), _) => {
                let pool = held.pool.clone();
                held.end(now_s, error.to_string());
                self.wait_again(number);
                self.pause(&pool, now_s, &error.to_string());
            }
            (Err(error @ ProviderError::Unanswered { .. }), Stage::Unanswered { failures, .. }) => {
                if *failures == 0 {
                    self.news.push(format!("machine {number}: {error}; it is asked again until it answers"));
                }
                *failures += 1;
            }
            (Err(ProviderError::Unanswered { .. }), _) => {}
        }
    }

    /// What the provider lists under the lease.
    pub fn listed(&mut self, now_s: f64, machines: &[Machine]) {
        let mut unseen: BTreeSet<u64> = self.held.keys().copied().collect();
        for machine in machines {
            let number = machine.tag.number;
            unseen.remove(&number);
            self.last = self.last.max(number);
            if !self.held.contains_key(&number) && matches!(machine.phase, Phase::Ended { .. }) {
                continue;
            }
            let unknown = || Held::unknown(self.supplies.first(), now_s);
            let held = self.held.entry(number).or_insert_with(unknown);
            (held.missing, held.is_seen) = (0, true);
            held.appear(now_s, &machine.phase);
            if let Some(how) = held.see(now_s, &machine.phase) {
                self.over(number, now_s, how);
            }
        }
        for number in unseen {
            let held = self.held.get_mut(&number).expect("it is one of those that are held");
            let is_gone = match held.stage {
                Stage::Waits { .. } | Stage::Runs { .. } => {
                    held.missing += 1;
                    held.missing >= MISSING_MAX
                }
                Stage::Unanswered { asked_s: Some(asked_s), .. } => {
                    !held.is_wanted() && now_s - asked_s >= self.settle_s
                }
                Stage::Unanswered { asked_s: None, .. } | Stage::Over { .. } => false,
            };
            if is_gone {
                held.is_to_be_cleared = true;
                self.over(number, now_s, "it is gone".into());
            }
        }
    }

    /// A machine is over: its workers are lost.
    fn over(&mut self, number: u64, now_s: f64, how: String) {
        let Some(held) = self.held.get_mut(&number).filter(|held| !held.is_over()) else { return };
        let never_joined = !held.has_joined && !held.workers.is_empty() && held.released_s.is_none();
        let (pool, place) = (held.pool.clone(), held.running_place());
        held.end(now_s, how.clone());
        let workers = std::mem::take(&mut held.workers);
        if !workers.is_empty() {
            self.news.push(format!("machine {number} ({pool}{place}) is over: {how}"));
        }
        for worker in workers {
            self.lost.insert(worker, format!("its machine {number} is over: {how}"));
        }
        if never_joined {
            self.pause(&pool, now_s, &how);
        }
    }

    /// Leaves a pool alone for a while.
    fn pause(&mut self, pool: &Pool, now_s: f64, why: &str) {
        // Several machines were asked for before the first of them was refused: that is one failure.
        if self.pauses.get(pool).is_some_and(|pause| now_s < pause.until_s) {
            return;
        }
        let failures = self.pauses.get(pool).map_or(0, |pause| pause.failures);
        let seconds = (PAUSE_S * f64::from(1u32 << failures.min(16))).min(PAUSE_MAX_S);
        self.pauses.insert(pool.clone(), Pause { until_s: now_s + seconds, failures: failures + 1 });
        self.news.push(format!("no {pool} for {seconds:.0} s: {why}"));
    }

    /// Dollars that the machines have cost so far.
    pub fn spent_dollars(&self, now_s: f64) -> f64 {
        self.rows().iter().map(|row| row.dollars(now_s)).sum()
    }

    /// Dollars that the machines cost per hour now.
    pub fn dollars_per_hour(&self) -> f64 {
        let runs = self.held.values().filter(|held| held.running_s.is_some() && held.ended_s.is_none());
        runs.map(|held| held.dollars_per_hour).sum()
    }
}

impl Held {
    fn new(supply: &Supply, now_s: f64, workers: BTreeSet<u64>) -> Held {
        Held {
            pool: supply.pool.clone(),
            dollars_per_hour: supply.dollars_per_hour,
            requested_s: now_s,
            running_s: None,
            ended_s: None,
            stage: Stage::Unanswered { asked_s: None, failures: 0 },
            workers,
            is_stand_in: false,
            is_fruitless: false,
            is_to_be_cleared: false,
            has_joined: false,
            is_seen: false,
            missing: 0,
            released_s: None,
        }
    }

    /// One that the provider lists and the fleet does not know: taken for one of the first supply.
    fn unknown(supply: Option<&Supply>, now_s: f64) -> Held {
        let nothing = Supply::unknown();
        let stage = Stage::Waits { since_s: now_s, reason: String::new() };
        Held { stage, ..Held::new(supply.unwrap_or(&nothing), now_s, BTreeSet::new()) }
    }

    fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over { .. })
    }

    fn is_wanted(&self) -> bool {
        !self.workers.is_empty()
    }

    fn is_leaving(&self) -> bool {
        matches!(self.stage, Stage::Runs { leaves: Some(_), .. })
    }

    fn running_place(&self) -> String {
        match &self.stage {
            Stage::Runs { place, .. } if !place.is_empty() => format!(" on {place}"),
            _ => String::new(),
        }
    }

    /// What is to be done for it.
    fn next(&mut self, number: u64, now_s: f64) -> Option<Action> {
        let is_wanted = self.is_wanted();
        match &mut self.stage {
            Stage::Over { .. } => {
                std::mem::take(&mut self.is_to_be_cleared).then_some(Action::Release { number })
            }
            Stage::Unanswered { asked_s: None, .. } if !is_wanted => {
                self.end(now_s, "it was not needed any more".into());
                None
            }
            Stage::Unanswered { asked_s, failures } if is_wanted => {
                let pause_s = (ASK_AGAIN_S * f64::from(1u32 << (*failures).min(8))).min(30.0);
                if asked_s.is_some_and(|asked_s| now_s - asked_s < pause_s) {
                    return None;
                }
                (*asked_s, self.requested_s) = (Some(now_s), now_s);
                let workers = self.workers.iter().copied().collect();
                Some(Action::Request { number, pool: self.pool.clone(), workers })
            }
            _ if is_wanted => None,
            _ => {
                let is_due = self.released_s.is_none_or(|at_s| now_s - at_s >= RELEASE_AGAIN_S);
                is_due.then(|| {
                    self.released_s = Some(now_s);
                    Action::Release { number }
                })
            }
        }
    }

    /// One that was taken to be over, and is there all the same, is to be released.
    fn appear(&mut self, now_s: f64, phase: &Phase) {
        if self.is_over() && !matches!(phase, Phase::Ended { .. }) {
            self.ended_s = None;
            self.stage = Stage::Waits { since_s: now_s, reason: String::new() };
        }
    }

    /// Takes in what the provider says of it; how it ended, if it did.
    fn see(&mut self, now_s: f64, phase: &Phase) -> Option<String> {
        match phase {
            Phase::Ended { how } => return Some(how.clone()),
            Phase::Waits { reason } => {
                let since_s = match self.stage {
                    Stage::Waits { since_s, .. } => since_s,
                    Stage::Unanswered { .. } | Stage::Runs { .. } | Stage::Over { .. } => now_s,
                };
                self.stage = Stage::Waits { since_s, reason: reason.clone() };
            }
            Phase::Runs { place, notice } => {
                self.running_s.get_or_insert(now_s);
                let leaves = notice.as_ref().map(|notice| (now_s + notice.left_s, notice.why.clone()));
                self.stage = Stage::Runs { place: place.clone(), leaves };
            }
        }
        None
    }

    fn end(&mut self, now_s: f64, how: String) {
        if self.running_s.is_some() {
            self.ended_s.get_or_insert(now_s);
        }
        self.stage = Stage::Over { how };
    }
}
