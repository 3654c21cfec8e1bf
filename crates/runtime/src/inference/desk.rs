//! Who computes which unit, and which result is the next to be written.
//!
//! Pure: no clock, no socket. Units come in order from a source; a [`WorkQueue`] grants each to one worker at a time;
//! results wait until those before them are there. Only a window of units is open at once, so memory is bounded however
//! far ahead the source or a fast worker could go.

use std::collections::{BTreeMap, VecDeque};

use crate::membership::WorkerId;
use crate::membership::work_queue::{Rule, WorkQueue};

/// How often a unit may be lost with its worker. A unit that kills its workers must not be granted for ever.
const LOSSES_MAX: u32 = 8;

/// A unit of work whose content is `U`, with results `R`.
#[derive(Debug)]
struct Unit<U> {
    content: U,
    losses: u32,
}

/// The state of an inference.
///
/// ```
/// use bellwether_runtime::inference::desk::Desk;
/// let mut desk = Desk::new(0, 4);
/// desk.put("a");
/// desk.put("b");
/// desk.join(7, 1);
/// desk.join(8, 1);
/// assert_eq!(desk.grants(), [(7, 0, "a"), (8, 1, "b")]);
/// assert!(desk.done(8, 1, "B"));
/// assert_eq!(desk.take(), None);
/// // The worker of the first unit dies, and another computes it.
/// assert_eq!(desk.lost(7), None);
/// assert_eq!(desk.grants(), [(8, 0, "a")]);
/// assert!(!desk.done(7, 0, "late") && desk.done(8, 0, "A"));
/// assert_eq!([desk.take(), desk.take()], [Some((0, "A")), Some((1, "B"))]);
/// ```
#[derive(Debug)]
pub struct Desk<U, R> {
    queue: WorkQueue,
    window: u64,
    /// Number of the unit that comes next from the source.
    next: u64,
    /// Number of the unit whose result leaves next.
    written: u64,
    ended: bool,
    units: BTreeMap<u64, Unit<U>>,
    results: BTreeMap<u64, R>,
}

impl<U: Clone, R> Desk<U, R> {
    /// The desk of an inference whose units before `first` are done, with at most `window` open units.
    pub fn new(first: u64, window: u64) -> Desk<U, R> {
        let queue = WorkQueue::new(first..first, 1, Rule::Free);
        let (units, results) = (BTreeMap::new(), BTreeMap::new());
        Desk { queue, window: window.max(1), next: first, written: first, ended: false, units, results }
    }

    /// Units that may be taken from the source now.
    pub fn room(&self) -> u64 {
        match self.ended {
            true => 0,
            false => (self.written + self.window).saturating_sub(self.next),
        }
    }

    /// The source gives the next unit. Returns its number.
    pub fn put(&mut self, content: U) -> u64 {
        let number = self.next;
        self.units.insert(number, Unit { content, losses: 0 });
        self.next += 1;
        self.queue.extend(self.next);
        number
    }

    /// The source has no more units.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// A worker comes that would like to hold up to `ahead` units.
    pub fn join(&mut self, worker: WorkerId, ahead: u32) {
        self.queue.join(worker);
        self.queue.want(worker, ahead);
    }

    /// A worker gets no more units.
    pub fn leave(&mut self, worker: WorkerId) {
        self.queue.leave(worker);
    }

    /// A worker is gone; what it held goes to others. Returns a unit that was lost so often that it must be to blame.
    pub fn lost(&mut self, worker: WorkerId) -> Option<u64> {
        let mut hopeless = None;
        for number in self.queue.lost(worker) {
            if let Some(unit) = self.units.get_mut(&number) {
                unit.losses += 1;
                if unit.losses >= LOSSES_MAX {
                    hopeless = hopeless.or(Some(number));
                }
            }
        }
        hopeless
    }

    /// What is to be computed now, and by whom.
    pub fn grants(&mut self) -> Vec<(WorkerId, u64, U)> {
        let mut granted = Vec::new();
        for (worker, numbers) in self.queue.grants() {
            for number in numbers {
                if let Some(unit) = self.units.get(&number) {
                    granted.push((worker, number, unit.content.clone()));
                }
            }
        }
        granted.sort_by_key(|(_, number, _)| *number);
        granted
    }

    /// A worker has computed a unit. Returns whether that counts: a unit that was taken back from it does not.
    pub fn done(&mut self, worker: WorkerId, number: u64, result: R) -> bool {
        let counts = self.queue.done(worker, &[number]).is_ok_and(|counted| counted == [number]);
        if counts {
            self.units.remove(&number);
            self.results.insert(number, result);
        }
        counts
    }

    /// The next result in the order of the units, once it is there.
    pub fn take(&mut self) -> Option<(u64, R)> {
        let result = self.results.remove(&self.written)?;
        self.written += 1;
        Some((self.written - 1, result))
    }

    /// Whether the source has ended and every result was taken.
    pub fn is_over(&self) -> bool {
        self.ended && self.written == self.next
    }

    /// Units that this worker holds; 0 of one that is not there.
    pub fn held(&self, worker: WorkerId) -> usize {
        self.queue.held(worker).count()
    }

    /// The workers that are there, ascending.
    pub fn workers(&self) -> VecDeque<WorkerId> {
        self.queue.workers().collect()
    }

    /// Number of the unit whose result leaves next: all before it are out.
    pub fn written(&self) -> u64 {
        self.written
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What may happen to an inference.
    #[derive(Debug, Clone)]
    enum Act {
        Put,
        Join(u64, u32),
        Leave(u64),
        Die(u64),
        /// A worker finishes the oldest of what it holds.
        Finish(u64),
        Take,
    }

    fn act() -> impl Strategy<Value = Act> {
        let worker = || 1u64..6;
        prop_oneof![
            3 => Just(Act::Put),
            2 => (worker(), 1u32..4).prop_map(|(worker, ahead)| Act::Join(worker, ahead)),
            1 => worker().prop_map(Act::Leave),
            1 => worker().prop_map(Act::Die),
            6 => worker().prop_map(Act::Finish),
            3 => Just(Act::Take),
        ]
    }

    /// An inference with workers that hold what they were granted, as real ones do.
    struct World {
        desk: Desk<u64, u64>,
        units: u64,
        held: BTreeMap<u64, Vec<u64>>,
        out: Vec<u64>,
        window: u64,
    }

    impl World {
        fn act(&mut self, act: Act) {
            match act {
                Act::Put if self.units > 0 && self.desk.room() > 0 => {
                    self.units -= 1;
                    let number = self.desk.put(self.desk.next);
                    assert_eq!(self.desk.units[&number].content, number);
                    if self.units == 0 {
                        self.desk.end();
                    }
                }
                Act::Put => {}
                Act::Join(worker, ahead) => {
                    self.desk.join(worker, ahead);
                    self.held.entry(worker).or_default();
                }
                Act::Leave(worker) => self.desk.leave(worker),
                Act::Die(worker) => {
                    self.held.remove(&worker);
                    // These workers are never to blame, and die more often than the limit.
                    let _ = self.desk.lost(worker);
                }
                Act::Finish(worker) => {
                    let held = self.held.entry(worker).or_default();
                    if !held.is_empty() {
                        let unit = held.remove(0);
                        assert!(self.desk.done(worker, unit, unit * 10), "it was granted and not taken back");
                        assert!(!self.desk.done(worker, unit, 0), "once");
                    }
                }
                Act::Take => self.out.extend(self.desk.take().map(|(number, result)| {
                    assert_eq!(result, number * 10);
                    number
                })),
            }
            for (worker, number, content) in self.desk.grants() {
                assert_eq!(number, content);
                assert!(self.held.values().all(|held| !held.contains(&number)), "one worker at a time");
                self.held.entry(worker).or_default().push(number);
            }
            let open = self.desk.units.len() + self.desk.results.len();
            assert!(open as u64 <= self.window, "{open} open units");
        }
    }

    proptest! {
        #[test]
        fn every_unit_leaves_once_and_in_order(
            acts in prop::collection::vec(act(), 0..300), units in 1u64..30, window in 1u64..8, first in 0u64..5,
        ) {
            let desk = Desk::new(first, window);
            let mut world = World { desk, units, held: BTreeMap::new(), out: Vec::new(), window };
            acts.into_iter().for_each(|act| world.act(act));
            // Whatever came before, one worker that stays finishes everything.
            world.held.keys().copied().collect::<Vec<_>>().into_iter().for_each(|worker| world.act(Act::Die(worker)));
            world.act(Act::Join(9, 1));
            for _ in 0..200 {
                [Act::Put, Act::Finish(9), Act::Take].into_iter().for_each(|act| world.act(act));
            }
            prop_assert!(world.desk.is_over());
            prop_assert_eq!(world.out, (first..first + units).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_unit_that_kills_its_workers_is_named() {
        let mut desk: Desk<(), ()> = Desk::new(3, 4);
        desk.put(());
        let mut last = None;
        for worker in 0..u64::from(LOSSES_MAX) {
            assert_eq!(last, None);
            desk.join(worker, 1);
            assert_eq!(desk.grants().len(), 1);
            last = desk.lost(worker);
        }
        assert_eq!(last, Some(3));
    }
}
