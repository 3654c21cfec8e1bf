//! Hands out the units of a phase that is not trained by all-reduce, each to one worker at a time.
//!
//! Pure: no clock, no socket. The owner of the work queue tells it what happened (a worker came, finished units, died)
//! and then asks for [`WorkQueue::grants`].
//!
//! # Who counts for the staleness bound
//!
//! A worker's *clock* is the number of units that it has done, plus the clock it began with. Under
//! [`Rule::Bounded`] a unit may begin only while its worker is at most K ahead of the slowest clock *that counts*:
//!
//! - A worker counts while it holds a unit, or wants one and is not leaving. One that holds none and wants none has
//!   nothing that could become stale, so no worker waits for it; a dead one is forgotten at once.
//! - A worker that begins to count (because it is new, or wants units again after it wanted none) does so no lower than
//!   the slowest clock that counts already, or, when no worker counts, than the furthest clock of all. So the slowest
//!   clock never falls while any worker counts, and a bound that held when units were granted holds when they begin.
//! - The slowest worker that counts may always begin a unit, so no worker waits for ever: either there is no unit left,
//!   or it holds one that it will do, or it is given one.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use thiserror::Error;

use super::WorkerId;

/// Who waits for whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// No worker.
    Free,
    /// No unit begins while its worker is more than this many units ahead of the slowest.
    Bounded(u32),
    /// All: the units of a step are granted when those of all steps before it are done.
    Together,
}

/// A worker reported a unit that no worker was ever given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("worker {worker} reports unit {unit}, which was never granted")]
pub struct NeverGranted {
    /// Who.
    pub worker: WorkerId,
    /// Which unit.
    pub unit: u64,
}

/// What the work queue knows of one worker.
#[derive(Debug, Clone, Default)]
struct WorkerQueue {
    clock: u64,
    held: BTreeSet<u64>,
    /// Units it would like to hold.
    ahead: u32,
    leaving: bool,
}

impl WorkerQueue {
    fn wants_more(&self) -> bool {
        !self.leaving && (self.held.len() as u64) < u64::from(self.ahead)
    }

    fn counts(&self) -> bool {
        !self.held.is_empty() || self.wants_more()
    }

    /// Its clock when all that it holds is done.
    fn horizon(&self) -> u64 {
        self.clock + self.held.len() as u64
    }
}

/// Hands out the units of a phase.
///
/// ```
/// use bellwether_runtime::membership::work_queue::{WorkQueue, Rule};
/// let mut queue = WorkQueue::new(0..4, 2, Rule::Bounded(1));
/// for worker in [7, 8] {
///     queue.join(worker);
///     queue.want(worker, 2);
/// }
/// assert_eq!(queue.grants(), [(7, vec![0, 2]), (8, vec![1, 3])]);
/// assert_eq!(queue.done(8, &[1]), Ok(vec![1]));
/// assert_eq!(queue.lost(7), [0, 2]);
/// // What the dead worker still says counts no more.
/// assert_eq!(queue.done(7, &[0]), Ok(vec![]));
/// assert_eq!(queue.grants(), [(8, vec![0])]);
/// ```
#[derive(Debug, Clone)]
pub struct WorkQueue {
    start: u64,
    /// The first unit that is not granted any more.
    end: u64,
    per_step: u64,
    rule: Rule,
    workers: BTreeMap<WorkerId, WorkerQueue>,
    /// Units that came back; all below `next`.
    returned: BTreeSet<u64>,
    /// The first unit that was never granted nor done.
    next: u64,
    /// All units below it are done.
    watermark: u64,
    /// Units above the watermark that are done.
    above: BTreeSet<u64>,
}

impl WorkQueue {
    /// The work queue of these units; unit `n` belongs to step `n / per_step`.
    ///
    /// # Panics
    ///
    /// When a step has no units.
    pub fn new(units: Range<u64>, per_step: u64, rule: Rule) -> WorkQueue {
        WorkQueue::resume(units, per_step, rule, &BTreeSet::new())
    }

    /// The work queue of a phase of which `done` was done already, and all units before `units`, whose first is the
    /// watermark. Of `done`, what lies outside `units` is ignored. All clocks begin at zero again.
    ///
    /// # Panics
    ///
    /// When a step has no units.
    pub fn resume(units: Range<u64>, per_step: u64, rule: Rule, done: &BTreeSet<u64>) -> WorkQueue {
        assert!(per_step > 0, "a step has units");
        let Range { start, end } = units;
        let mut work_queue = WorkQueue {
            start,
            end: end.max(start),
            per_step,
            rule,
            workers: BTreeMap::new(),
            returned: BTreeSet::new(),
            next: start,
            watermark: start,
            above: done.iter().copied().filter(|unit| (start..end).contains(unit)).collect(),
        };
        work_queue.advance();
        work_queue.next = work_queue.watermark;
        work_queue
    }

    /// A worker comes. Nothing changes when it is there already.
    pub fn join(&mut self, worker: WorkerId) {
        self.workers.entry(worker).or_default();
    }

    /// A worker is gone. Returns the units that go back to the pool, where the smallest are granted first.
    pub fn lost(&mut self, worker: WorkerId) -> Vec<u64> {
        let held = self.workers.remove(&worker).map(|desk| desk.held).unwrap_or_default();
        self.returned.extend(&held);
        held.into_iter().collect()
    }

    /// A worker gets no more units, and is gone once it has done those that it holds.
    pub fn leave(&mut self, worker: WorkerId) {
        let Some(desk) = self.workers.get_mut(&worker) else { return };
        desk.leaving = true;
        self.forget_if_gone(worker);
    }

    /// A worker would like to hold up to `ahead` units from now on. One that is not there is ignored.
    pub fn want(&mut self, worker: WorkerId, ahead: u32) {
        let counted = self.workers.get(&worker).is_some_and(WorkerQueue::counts);
        // Taken before it counts itself.
        let slowest = self.slowest().or_else(|| self.workers.values().map(|desk| desk.clock).max());
        let Some(desk) = self.workers.get_mut(&worker) else { return };
        desk.ahead = ahead;
        if !counted && desk.counts() {
            desk.clock = desk.clock.max(slowest.unwrap_or(0));
        }
    }

    /// A worker has done these units. Returns those that count: a unit that was taken back from the worker does not,
    /// since another has it, will get it or did it.
    ///
    /// # Errors
    ///
    /// Returns an error if one of the units was never granted; then none counts.
    pub fn done(&mut self, worker: WorkerId, units: &[u64]) -> Result<Vec<u64>, NeverGranted> {
        let known = |unit: &u64| *unit < self.next || self.above.contains(unit);
        if let Some(&unit) = units.iter().find(|unit| !known(unit)) {
            return Err(NeverGranted { worker, unit });
        }
        let Some(desk) = self.workers.get_mut(&worker) else { return Ok(Vec::new()) };
        let counted: Vec<u64> = units.iter().copied().filter(|unit| desk.held.remove(unit)).collect();
        desk.clock += counted.len() as u64;
        self.above.extend(&counted);
        self.advance();
        self.forget_if_gone(worker);
        Ok(counted)
    }

    /// Grants what may be granted now, the smallest units first, each to the one that holds the fewest.
    pub fn grants(&mut self) -> Vec<(WorkerId, Vec<u64>)> {
        let mut granted: BTreeMap<WorkerId, Vec<u64>> = BTreeMap::new();
        // Every worker that can be granted a unit counts already: the slowest clock stays what it is meanwhile.
        let furthest = match self.rule {
            Rule::Bounded(bound) => self.slowest().map_or(0, |slowest| slowest + u64::from(bound)),
            Rule::Free | Rule::Together => u64::MAX,
        };
        while let Some(unit) = self.first_in_pool() {
            let ready = self.workers.iter_mut().filter(|(_, d)| d.wants_more() && d.horizon() <= furthest);
            let Some((worker, desk)) = ready.min_by_key(|(id, d)| (d.held.len(), d.clock, **id)) else {
                break;
            };
            desk.held.insert(unit);
            granted.entry(*worker).or_default().push(unit);
            if !self.returned.remove(&unit) {
                self.next = (unit + 1..).find(|unit| !self.above.contains(unit)).unwrap_or(u64::MAX);
            }
        }
        granted.into_iter().collect()
    }

    /// Ends the phase as soon as possible at or after unit `after`: at the first beginning of a step that is not
    /// before it, nor before a unit that was granted or done. Returns that end; no unit from there on is granted.
    pub fn halt(&mut self, after: u64) -> u64 {
        let begun = self.above.last().map_or(self.next, |last| self.next.max(last + 1));
        let step = after.max(begun).checked_next_multiple_of(self.per_step);
        self.end = step.unwrap_or(self.end).min(self.end);
        self.end
    }

    /// The phase goes on until unit `end`, if that is later than its end so far.
    pub fn extend(&mut self, end: u64) {
        self.end = self.end.max(end);
    }

    /// The first unit that is not done.
    pub fn watermark(&self) -> u64 {
        self.watermark
    }

    /// The units beyond the watermark that are done.
    pub fn done_above(&self) -> &BTreeSet<u64> {
        &self.above
    }

    /// Number of units of this phase that are done, those included that were before it was resumed.
    pub fn completed(&self) -> u64 {
        self.watermark - self.start + self.above.len() as u64
    }

    /// Number of steps, from the beginning of the run, of which every unit is done.
    pub fn steps_complete(&self) -> u64 {
        self.watermark / self.per_step
    }

    /// Whether every unit is done.
    pub fn is_over(&self) -> bool {
        self.watermark >= self.end
    }

    /// Number of units that workers hold.
    pub fn in_flight(&self) -> u64 {
        self.workers.values().map(|desk| desk.held.len() as u64).sum()
    }

    /// The units that `worker` holds, ascending; none when it is not there.
    pub fn held(&self, worker: WorkerId) -> impl Iterator<Item = u64> + '_ {
        self.workers.get(&worker).into_iter().flat_map(|desk| desk.held.iter().copied())
    }

    /// The workers that are there, ascending.
    pub fn workers(&self) -> impl Iterator<Item = WorkerId> + '_ {
        self.workers.keys().copied()
    }

    /// The slowest clock that counts.
    fn slowest(&self) -> Option<u64> {
        self.workers.values().filter(|desk| desk.counts()).map(|desk| desk.clock).min()
    }

    /// The unit to grant next, if the rule lets it begin.
    fn first_in_pool(&self) -> Option<u64> {
        let unit = self.returned.first().copied().unwrap_or(self.next);
        let may_begin = match self.rule {
            Rule::Free | Rule::Bounded(_) => true,
            Rule::Together => unit / self.per_step <= self.steps_complete(),
        };
        (unit < self.end && may_begin).then_some(unit)
    }

    /// Moves the watermark over what is done.
    fn advance(&mut self) {
        while self.above.remove(&self.watermark) {
            self.watermark += 1;
        }
    }

    fn forget_if_gone(&mut self, worker: WorkerId) {
        if self.workers.get(&worker).is_some_and(|desk| desk.leaving && desk.held.is_empty()) {
            self.workers.remove(&worker);
        }
    }
}
