//! Least attained time or service first, in queues.
//!
//! # Idea
//!
//! A job enters the first queue whose threshold it has not reached: one that has not run the very first. It moves down
//! to the tail of the next at the very instant at which it has run for a threshold of seconds (LAS), or of
//! device-seconds, rounded up to whole seconds (2D-LAS). The queues are walked from the first to the last, each from
//! its head, and each job runs that fits into what is left. After a decision those that run stand before those that
//! wait in every queue, so that no job is stopped for an equal.
//!
//! With `promote=f`, a job that has waited f times as long as it had run goes back to the first queue, as if it had
//! not run yet.
//!
//! # Source
//!
//! Gu et al., Tiresias: A GPU cluster manager for distributed deep learning, NSDI 2019.
//!
//! # Reads
//!
//! The seconds for which a job has held devices, restarts included, and how many it asks for. Nothing of the future.
//!
//! # Complexity
//!
//! With one type of device, O(widths · log n) per job that starts, stops or moves down, for that many distinct widths
//! (see [`Gangs`]), and a shift of at most half of the running jobs of one width. With several types, all jobs at each
//! event.
//!
//! # Bad when
//!
//! Most jobs are alike (they share the devices by turns, and all end late); restarts are costly; long jobs must not
//! starve, without promotion. With promotion and restarts that take longer than a queue lasts, no job makes progress.

mod queues;
mod whole;

use std::collections::{BTreeMap, BTreeSet};

use bellwether_core::cluster::{ClusterView, JobId, JobView};
use bellwether_core::policy::{Changes, Decision, Policy, PolicyInput, Promises, Rule};
use serde::{Deserialize, Serialize};

use super::About;
use crate::decision_builder::DecisionBuilder;
use crate::greedy::{Gangs, Place, bits, number};
pub use queues::{Attained, Queues};
pub use whole::WholeView;

/// Least attained time first.
pub const TIME: About = About {
    name: "las",
    idea: "who has run for the shortest time runs, in queues divided by seconds of run time",
    options: &[
        ("threshold...", 3250.0, "seconds of run time after which a job leaves the first queue"),
        MORE,
        PROMOTE,
    ],
    bad_when: "most jobs are alike, restarts are costly, or long jobs must not starve",
    gangs: true,
    needs_remaining: false,
    promises: Promises { work_conserving: true, starvation_free: false },
    make: |options| Ok(Box::new(LeastAttained::new(Queues::read(Attained::Time, options)?))),
};

/// Least attained service first.
pub const SERVICE: About = About {
    name: "las2d",
    idea: "who has had the fewest device-seconds runs, in queues divided by device-seconds",
    options: &[FIRST, MORE, PROMOTE],
    bad_when: "most jobs are alike, restarts are costly, or long or wide jobs must not starve",
    gangs: true,
    needs_remaining: false,
    promises: Promises { work_conserving: true, starvation_free: false },
    make: |options| Ok(Box::new(LeastAttained::new(Queues::read(Attained::Service, options)?))),
};

pub(super) const FIRST: (&str, f64, &str) =
    ("threshold...", 3250.0, "device-seconds after which a job leaves the first queue");
pub(super) const MORE: (&str, f64, &str) =
    ("threshold...", 7200.0, "and the second one, and so on; as many as you like");
pub(super) const PROMOTE: (&str, f64, &str) =
    ("promote", 0.0, "back to the first queue after waiting this many times as long as it had run; 0: never");

/// What is kept of a job.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Known {
    place: Place,
    /// Devices that it asked for when it was put there.
    width: u32,
    running: bool,
    /// When it changes its queue if nothing else happens.
    due: Option<u64>,
    /// Executed seconds that no longer count, since a promotion.
    forgiven_s: f64,
}

/// The rule, with queues that are kept from event to event where the cluster has one type of device.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct LeastAttained {
    whole: WholeView,
    gangs: Gangs,
    jobs: BTreeMap<JobId, Known>,
    due: BTreeSet<Place>,
    ends: Vec<Ends>,
}

/// How far a queue reaches: numbers of places that are not yet taken.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Ends {
    /// Behind all that run.
    behind_running: u64,
    /// Before all that wait.
    before_waiting: u64,
    /// Behind all that wait.
    behind_waiting: u64,
}

/// The number of a place is its queue, whether it lies behind the running jobs, and a number of order.
const QUEUE: u64 = 1 << 48;
const WAITING: u64 = 1 << 47;
const MIDDLE: u64 = 1 << 46;

impl Ends {
    fn of_queue(queue: usize) -> Ends {
        let first = queue as u64 * QUEUE;
        let middle = first + WAITING + MIDDLE;
        Ends { behind_running: first, before_waiting: middle, behind_waiting: middle + 1 }
    }
}

/// What moves a job in the order when it changes: the devices that it asks for, and whether it runs.
fn state(seen: &JobView) -> (u32, bool) {
    (seen.job.asked(), seen.is_running())
}

fn queue_of(place: Place) -> usize {
    (place.0 / QUEUE) as usize
}

fn is_behind_running(place: Place) -> bool {
    place.0 & WAITING != 0
}

impl LeastAttained {
    fn new(queues: Queues) -> LeastAttained {
        let ends = (0..queues.count()).map(Ends::of_queue).collect();
        let (gangs, jobs, due) = (Gangs::default(), BTreeMap::new(), BTreeSet::new());
        LeastAttained { whole: WholeView::new(queues), gangs, jobs, due, ends }
    }

    fn tail(&mut self, queue: usize, id: JobId) -> Place {
        let end = &mut self.ends[queue].behind_waiting;
        *end += 1;
        (*end - 1, id)
    }

    fn remove(&mut self, id: JobId) -> Option<Known> {
        let known = self.jobs.remove(&id)?;
        match known.running {
            true => self.gangs.remove_running(known.width, known.place),
            false => self.gangs.remove_waiting(known.width, known.place),
        }
        if let Some(due) = known.due {
            self.due.remove(&(due, id));
        }
        Some(known)
    }

    /// Puts a job at a place, where it runs (or waits) from now on.
    fn put(&mut self, now_s: f64, seen: &JobView, place: Place, running: bool, forgiven_s: f64) {
        let (id, width) = (place.1, seen.job.asked());
        match running {
            true => self.gangs.run(width, place),
            false => self.gangs.wait(width, place),
        }
        let due_s = self.whole.queues().due_s(queue_of(place), forgiven_s, seen, running, now_s);
        let due = due_s.map(bits);
        if let Some(due) = due {
            self.due.insert((due, id));
        }
        self.jobs.insert(id, Known { place, width, running, due, forgiven_s });
    }

    fn follow(&mut self, now_s: f64, view: &ClusterView, changes: &Changes) {
        for id in changes.gone(view) {
            self.remove(id);
        }
        let (lost, revised) = (changes.lost.iter().map(|(id, _)| id), &changes.revised);
        for &id in changes.arrived.iter().chain(lost).chain(revised) {
            let seen = view.jobs.get(&id).filter(|seen| seen.job.accepts(0));
            let is_there = |known: &Known| Some((known.width, known.running)) == seen.map(state);
            if self.jobs.get(&id).is_some_and(is_there) {
                continue;
            }
            let known = self.remove(id);
            let Some(seen) = seen else { continue };
            // It keeps its place: if there is room elsewhere, it goes on.
            let (place, forgiven_s) = match known {
                Some(known) => (known.place, known.forgiven_s),
                None => (self.enter(now_s, id, seen), 0.0),
            };
            self.put(now_s, seen, place, seen.is_running(), forgiven_s);
        }
    }

    /// The place of a job that comes: behind its equals.
    fn enter(&mut self, now_s: f64, id: JobId, seen: &JobView) -> Place {
        let queue = self.whole.queues().entry(seen, now_s);
        if !seen.is_running() {
            return self.tail(queue, id);
        }
        let end = &mut self.ends[queue].behind_running;
        *end += 1;
        (*end - 1, id)
    }

    /// Moves down who has reached a threshold, and up who has waited too long; says who moved down.
    fn change_queues(&mut self, now_s: f64, view: &ClusterView) -> Vec<JobId> {
        let now = bits(now_s);
        let is_due = |known: &Known| known.due.is_some_and(|due| due <= now);
        let due = self.due.range(..=(now, JobId(u32::MAX)));
        let (mut down, mut up) = (BTreeSet::new(), BTreeSet::new());
        for (_, id) in due {
            let known = &self.jobs[id];
            let _ = if known.running { down.insert(known.place) } else { up.insert(known.place) };
        }
        let mut moved = Vec::new();
        while let Some(place) = down.pop_first() {
            let (id, seen) = (place.1, &view.jobs[&place.1]);
            let Some(known) = self.remove(id) else { continue };
            let place = self.tail(queue_of(place) + 1, id);
            self.put(now_s, seen, place, true, known.forgiven_s);
            if is_due(&self.jobs[&id]) {
                down.insert(place);
            } else {
                moved.push(id);
            }
        }
        for (_, id) in up {
            let seen = &view.jobs[&id];
            self.remove(id);
            let place = self.tail(0, id);
            self.put(now_s, seen, place, false, seen.executed_s);
        }
        moved
    }

    /// Puts those that run before those that wait, in each queue and each in the order of the walk.
    fn part(&mut self, now_s: f64, view: &ClusterView, mut run: Vec<JobId>, mut wait: Vec<JobId>) {
        run.sort_unstable_by_key(|id| self.jobs[id].place);
        wait.sort_unstable_by_key(|id| std::cmp::Reverse(self.jobs[id].place));
        for (id, runs) in run.into_iter().map(|id| (id, true)).chain(wait.into_iter().map(|id| (id, false))) {
            let seen = &view.jobs[&id];
            let Some(known) = self.remove(id) else { continue };
            let ends = &mut self.ends[queue_of(known.place)];
            let number = match (runs, is_behind_running(known.place)) {
                (true, true) => {
                    ends.behind_running += 1;
                    ends.behind_running - 1
                }
                (false, false) => {
                    ends.before_waiting -= 1;
                    ends.before_waiting + 1
                }
                _ => known.place.0,
            };
            self.put(now_s, seen, (number, id), runs, known.forgiven_s);
        }
    }
}

impl Policy for LeastAttained {
    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        let PolicyInput { now_s, view, changes, .. } = *input;
        if view.device_types.len() > 1 {
            return self.whole.decide(input);
        }
        self.whole.board().follow(view, changes);
        self.follow(now_s, view, changes);
        let moved = self.change_queues(now_s, view);
        let devices = self.whole.board().devices(0);
        let turn = self.gangs.turn(devices, |_, place| place);
        let mut draft = DecisionBuilder::new(self.whole.board());
        for (_, (_, id)) in &turn.stop {
            draft.stop(*id, &view.jobs[id]);
        }
        for &(width, (_, id)) in &turn.start {
            draft.start_on(id, &view.jobs[&id], width);
        }
        let mut decision = draft.finish(Rule::LeastAttained, self.gangs.waiting() + turn.stop.len(), None);
        let ids = |jobs: &[(u32, Place)]| jobs.iter().map(|(_, (_, id))| *id).collect::<BTreeSet<_>>();
        let (started, stopped) = (ids(&turn.start), ids(&turn.stop));
        let lost = changes.lost.iter().map(|(id, _)| *id).filter(|id| self.jobs.contains_key(id));
        let wait = lost.filter(|id| !started.contains(id)).chain(stopped.iter().copied()).collect();
        let kept = moved.into_iter().filter(|id| !stopped.contains(id));
        let run = kept.chain(started.iter().copied()).collect();
        self.part(now_s, view, run, wait);
        decision.next_wakeup_s = self.due.first().map(|(due, _)| number(*due).max(now_s.next_up()));
        decision
    }
}
