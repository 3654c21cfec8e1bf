//! Where a computing thread stands: written by it as it goes, told by the thread that speaks with the coordinator.
//!
//! Writing costs a lock that is nearly always free; a byte that moves costs no more than a look at the clock.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::membership::{Activity, Position, WorkerId};
use crate::threads::{self, Starvation};

/// Durations of which the usual one is made.
const KEPT: usize = 128;

/// The usual duration is as long as this share of them at most: one in twenty may be a hiccup.
const USUAL: f64 = 0.95;

/// A thread that has got no further for this long is looked at more closely.
const LONG: Duration = Duration::from_millis(250);

/// Where a thread stands.
#[derive(Debug)]
pub(crate) struct Progress {
    began: Instant,
    /// When it got further for the last time, in nanoseconds since it began.
    since_ns: AtomicU64,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    activity: Activity,
    epoch: u64,
    step: u64,
    started: Instant,
    allowance: Option<Duration>,
    waits_for: Vec<WorkerId>,
    /// Since when what it does has stood still for the sake of others.
    held_up: Option<Instant>,
    /// By activity.
    durations: [VecDeque<f64>; Activity::ALL.len()],
    thread: u32,
}

impl Default for Progress {
    fn default() -> Progress {
        let began = Instant::now();
        Progress {
            began,
            since_ns: AtomicU64::new(0),
            inner: Mutex::new(Inner {
                activity: Activity::Idle,
                epoch: 0,
                step: 0,
                started: began,
                allowance: None,
                waits_for: Vec::new(),
                held_up: None,
                durations: Default::default(),
                thread: 0,
            }),
        }
    }
}

impl Progress {
    /// The calling thread is the one that computes.
    pub(crate) fn computes_here(&self) {
        self.lock().thread = threads::this_thread();
    }

    /// The thread begins the next part of its work. What it did before took as long as it did.
    pub(crate) fn at(&self, activity: Activity, epoch: u64, step: u64) {
        self.begin(activity, epoch, step, None);
    }

    /// As [`at`](Progress::at), before there is any membership; `allowance` is what the workload says it may take.
    pub(crate) fn prepares(&self, activity: Activity, allowance: Option<Duration>) {
        self.begin(activity, 0, 0, allowance);
    }

    fn begin(&self, activity: Activity, epoch: u64, step: u64, allowance: Option<Duration>) {
        let now = Instant::now();
        let mut inner = self.lock();
        let (before, took) = (inner.activity, now - inner.started);
        inner.took(before, took);
        (inner.activity, inner.epoch, inner.step) = (activity, epoch, step);
        (inner.started, inner.allowance) = (now, allowance);
        inner.waits_for.clear();
        inner.held_up = None;
        self.moved_at(now);
    }

    /// In the middle of what it does it waits for these, until the guard is dropped.
    pub(crate) fn held_up_by(self: &Arc<Self>, peers: impl Iterator<Item = WorkerId>) -> HeldUp {
        let now = Instant::now();
        let mut inner = self.lock();
        inner.waits_for.clear();
        inner.waits_for.extend(peers);
        inner.held_up = Some(now);
        self.moved_at(now);
        HeldUp(Arc::clone(self))
    }

    /// It got further with what it is doing.
    pub(crate) fn moved(&self) {
        self.moved_at(Instant::now());
    }

    fn moved_at(&self, now: Instant) {
        let since_ns = u64::try_from((now - self.began).as_nanos()).unwrap_or(u64::MAX);
        self.since_ns.store(since_ns, Ordering::Relaxed);
    }

    /// It waits for these.
    pub(crate) fn waits_for(&self, peers: impl Iterator<Item = WorkerId>) {
        let mut inner = self.lock();
        inner.waits_for.clear();
        inner.waits_for.extend(peers);
    }

    /// Seconds that the last times took in which it did this.
    pub(crate) fn spent_s(&self, activity: Activity) -> f64 {
        self.lock().durations[activity as usize].iter().sum()
    }

    /// Where it stands, but for what its threads are doing; and when it got further for the last time.
    pub(crate) fn position(&self) -> (Position, u64) {
        let inner = self.lock();
        let since_ns = self.since_ns.load(Ordering::Relaxed);
        let activity = if inner.held_up.is_some() { Activity::Exchanging } else { inner.activity };
        let durations = &inner.durations[activity as usize];
        let position = Position {
            activity,
            epoch: inner.epoch,
            step: inner.step,
            since_s: self.began.elapsed().as_secs_f64() - since_ns as f64 / 1e9,
            starved_s: 0.0,
            waits_for: inner.waits_for.clone(),
            usual_s: usual(durations),
            allowance_s: inner.allowance.map(|allowance| allowance.as_secs_f64()),
            thread: String::new(),
        };
        (position, since_ns)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no holder of this lock panics")
    }
}

impl Inner {
    fn took(&mut self, activity: Activity, time: Duration) {
        let durations = &mut self.durations[activity as usize];
        if durations.len() == KEPT {
            durations.pop_front();
        }
        durations.push_back(time.as_secs_f64());
    }
}

/// The thread waits for others.
#[derive(Debug)]
pub(crate) struct HeldUp(Arc<Progress>);

impl Drop for HeldUp {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut inner = self.0.lock();
        if let Some(since) = inner.held_up.take() {
            inner.took(Activity::Exchanging, now - since);
            inner.waits_for.clear();
            self.0.moved_at(now);
        }
    }
}

fn usual(durations: &VecDeque<f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = durations.iter().copied().collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let place = (USUAL * sorted.len() as f64).ceil() as usize;
    sorted.get(place.checked_sub(1)?).copied()
}

/// What tells where a thread stands, and whether it was kept from running there.
#[derive(Debug)]
pub(crate) struct Witness {
    progress: Arc<Progress>,
    /// When the thread had got further for the last time at the last look.
    since_ns: u64,
    /// How long threads had been kept from running, soon after that.
    earlier: Option<Starvation>,
}

impl Witness {
    pub(crate) fn new(progress: Arc<Progress>) -> Witness {
        Witness { progress, since_ns: 0, earlier: None }
    }

    /// Looks whether the thread has got further; to be called ten times a second.
    pub(crate) fn look(&mut self) {
        let since_ns = self.progress.since_ns.load(Ordering::Relaxed);
        if since_ns != self.since_ns {
            (self.since_ns, self.earlier) = (since_ns, None);
        } else if self.earlier.is_none() {
            self.earlier = Some(Starvation::now());
        }
    }

    /// Where the thread stands.
    pub(crate) fn position(&mut self) -> Position {
        let (mut position, since_ns) = self.progress.position();
        if position.since_s < LONG.as_secs_f64() {
            return position;
        }
        if since_ns == self.since_ns
            && let Some(earlier) = &self.earlier
        {
            position.starved_s = Starvation::now().since(earlier).min(position.since_s);
        }
        let thread = self.progress.lock().thread;
        position.thread = threads::state(thread);
        if threads::is_held(thread) {
            // Whatever it waited for may have come.
            position.waits_for.clear();
        }
        position
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_says_what_is_done_since_when_and_what_that_takes() {
        let progress = Arc::new(Progress::default());
        let mut witness = Witness::new(Arc::clone(&progress));
        progress.computes_here();
        assert_eq!(witness.position().activity, Activity::Idle);
        progress.at(Activity::Computing, 3, 7);
        assert_eq!(witness.position().usual_s, None, "nothing is known yet");
        std::thread::sleep(Duration::from_millis(20));
        progress.at(Activity::Exchanging, 3, 7);
        progress.waits_for([2, 5].into_iter());
        let position = witness.position();
        assert_eq!((position.epoch, position.step, position.waits_for), (3, 7, vec![2, 5]));
        progress.at(Activity::Computing, 3, 8);
        let position = witness.position();
        assert!(position.waits_for.is_empty() && position.usual_s.is_some_and(|usual_s| usual_s >= 0.02));
        std::thread::sleep(LONG);
        witness.look();
        witness.look();
        let late = witness.position();
        assert!(late.since_s >= 0.25 && late.thread == "it runs", "{late:?}");
        progress.moved();
        assert!(witness.position().since_s < late.since_s);
    }

    #[test]
    fn one_hiccup_in_twenty_is_not_usual() {
        let durations = |slow: usize| (0..100).map(|n| if n < slow { 9.0 } else { 1.0 }).collect();
        assert_eq!((usual(&durations(5)), usual(&durations(6))), (Some(1.0), Some(9.0)));
        assert_eq!(usual(&VecDeque::new()), None);
    }
}
