//! Gangs in an order of preference: each that still fits runs, and the rest wait.
//!
//! [`run_in_order`] walks a whole order. [`Gangs`] gives the same answer for one type of device and touches only what
//! changes: it keeps the order itself, by width, and looks for the first place where the walk would now do otherwise.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bellwether_core::cluster::{ClusterView, JobId, JobView};
use serde::{Deserialize, Serialize};

use crate::allocation::held_type;
use crate::decision_builder::DecisionBuilder;

/// What becomes of a job in a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Waits,
    Stops,
    Keeps,
    /// Starts on this type, or moves to it.
    Takes(u16),
}

/// Walks all jobs in `order` and lets each run that fits into what those before it leave; says which run then.
///
/// A running job keeps its devices where its type has room for it, and moves to another type where only that has.
/// Jobs that stop come first in the draft, then those that start, both in `order`.
pub fn run_in_order(view: &ClusterView, order: &[JobId], draft: &mut DecisionBuilder) -> Vec<bool> {
    let kinds = 0..draft.board().device_types();
    let mut rooms: Vec<u32> = kinds.map(|kind| draft.board().devices(kind)).collect();
    let fates: Vec<Fate> = order.iter().map(|id| fate(view, &view.jobs[id], &mut rooms)).collect();
    for (&id, &fate) in order.iter().zip(&fates) {
        let seen = &view.jobs[&id];
        match fate {
            Fate::Stops => draft.stop(id, seen),
            Fate::Takes(_) if seen.is_running() => draft.lift(id, seen),
            _ => {}
        }
    }
    for (&id, &fate) in order.iter().zip(&fates) {
        let Fate::Takes(kind) = fate else { continue };
        let seen = &view.jobs[&id];
        let place = draft.board().place(kind, seen.job.asked()).expect("the walk left room for it");
        if seen.is_running() {
            draft.change(id, place, None);
        } else {
            draft.start(id, place, None);
        }
    }
    fates.iter().map(|fate| matches!(fate, Fate::Keeps | Fate::Takes(_))).collect()
}

fn fate(view: &ClusterView, seen: &JobView, rooms: &mut [u32]) -> Fate {
    let devices = seen.job.asked();
    let own = held_type(view, seen);
    let has_room = |kind: &u16| rooms[usize::from(*kind)] >= devices;
    let other = || (0..rooms.len() as u16).filter(|&kind| seen.job.accepts(kind)).find(has_room);
    let fate = match own.filter(has_room) {
        Some(_) => Fate::Keeps,
        None => match other() {
            Some(kind) => Fate::Takes(kind),
            None if own.is_some() => Fate::Stops,
            None => Fate::Waits,
        },
    };
    match (fate, own) {
        (Fate::Takes(kind), _) | (Fate::Keeps, Some(kind)) => rooms[usize::from(kind)] -= devices,
        _ => {}
    }
    fate
}

/// Where a job stands in the order: a smaller number goes first, and of equal ones the job that arrived earlier.
pub type Place = (u64, JobId);

/// Bits that order as the numbers do, for the first half of a [`Place`]; NaN comes last.
pub fn bits(value: f64) -> u64 {
    if value.is_nan() {
        return u64::MAX;
    }
    // Adding zero turns -0.0 into 0.0: they are the same number.
    let bits = (value + 0.0).to_bits();
    if bits >> 63 == 0 { bits | (1 << 63) } else { !bits }
}

/// The number that gave these [`bits`].
pub fn number(bits: u64) -> f64 {
    f64::from_bits(if bits >> 63 == 1 { bits & !(1 << 63) } else { !bits })
}

/// Jobs of one width. Both sides are in their order.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Gang {
    /// Those that are about to end stand in front, so what leaves mostly moves nothing.
    running: VecDeque<Place>,
    waiting: BTreeSet<Place>,
}

/// All jobs on devices of one type, in an order of preference.
///
/// Places of waiting jobs are fixed. Those of running jobs are marks that a rule turns into places when the order is
/// walked, such as expected ends that become remaining times; the rule must keep the order of equally wide jobs.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Gangs {
    gangs: BTreeMap<u32, Gang>,
    /// Devices of running jobs.
    held: u64,
    waiting: usize,
}

/// What a walk changes, each in the order of the walk: width and place (or mark, of those that stop).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Turn {
    /// Running jobs that wait from now on. They have left the [`Gangs`].
    pub stop: Vec<(u32, Place)>,
    /// Waiting jobs that run from now on. They have left the [`Gangs`].
    pub start: Vec<(u32, Place)>,
}

impl Gangs {
    /// Jobs that wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// A job of `width` devices waits at `place`.
    pub fn wait(&mut self, width: u32, place: Place) {
        self.waiting += usize::from(self.gangs.entry(width).or_default().waiting.insert(place));
    }

    /// A job of `width` devices runs with this mark.
    pub fn run(&mut self, width: u32, mark: Place) {
        let running = &mut self.gangs.entry(width).or_default().running;
        running.insert(running.partition_point(|known| *known < mark), mark);
        self.held += u64::from(width);
    }

    /// A waiting job leaves.
    pub fn remove_waiting(&mut self, width: u32, place: Place) {
        if let Some(gang) = self.gangs.get_mut(&width) {
            self.waiting -= usize::from(gang.waiting.remove(&place));
            self.forget(width);
        }
    }

    /// A running job leaves.
    pub fn remove_running(&mut self, width: u32, mark: Place) {
        if let Some(gang) = self.gangs.get_mut(&width)
            && let Ok(index) = gang.running.binary_search(&mark)
        {
            gang.running.remove(index);
            self.held -= u64::from(width);
            self.forget(width);
        }
    }

    fn forget(&mut self, width: u32) {
        if self.gangs.get(&width).is_some_and(|gang| gang.running.is_empty() && gang.waiting.is_empty()) {
            self.gangs.remove(&width);
        }
    }

    /// Walks the order on `devices` devices; `rule` turns width and mark of a running job into its place.
    ///
    /// Up to the first place where the walk would start a waiting job or stop a running one, all stays as it is. So
    /// that place is looked for, and then the next one after it. Each costs O(widths² log n) at worst, and O(widths log
    /// n) where the first waiting job finds no room.
    pub fn turn(&mut self, devices: u32, rule: impl Fn(u32, Place) -> Place) -> Turn {
        let mut turn = Turn::default();
        let mut room = i64::from(devices);
        let mut after = (0, JobId(0));
        loop {
            // A job that fits stands before the first one without room: behind that one none fits.
            if let Some((place, width)) = self.first_that_fits(room, after, &rule) {
                self.remove_waiting(width, place);
                // It stands before all that the walk still comes to.
                room -= i64::from(width);
                turn.start.push((width, place));
                after = place;
            } else if let Some((place, width, mark)) = self.first_without_room(room, after, &rule) {
                self.remove_running(width, mark);
                turn.stop.push((width, mark));
                after = place;
            } else {
                return turn;
            }
        }
    }

    /// The first waiting job from `after` on that fits into what running jobs before it leave of `room`.
    ///
    /// Room only shrinks along the order: of each width only the first job counts, and none that is wider than the room
    /// at an earlier one.
    fn first_that_fits(
        &self,
        mut room: i64,
        after: Place,
        rule: &impl Fn(u32, Place) -> Place,
    ) -> Option<(Place, u32)> {
        if self.waiting == 0 {
            return None;
        }
        let first = |(&width, gang): (&u32, &Gang)| Some((*gang.waiting.range(after..).next()?, width));
        let mut heads: Vec<(Place, u32)> = self.gangs.iter().filter_map(first).collect();
        heads.sort_unstable();
        let all = room;
        for (place, width) in heads {
            if i64::from(width) <= room {
                room = all - self.held_before(place, rule);
                if i64::from(width) <= room {
                    return Some((place, width));
                }
            }
        }
        None
    }

    /// Devices of running jobs before a place.
    fn held_before(&self, place: Place, rule: &impl Fn(u32, Place) -> Place) -> i64 {
        let of_width = |(&width, gang): (&u32, &Gang)| {
            let jobs = gang.running.partition_point(|&mark| rule(width, mark) < place);
            jobs as i64 * i64::from(width)
        };
        self.gangs.iter().map(of_width).sum()
    }

    /// The first running job after `after` that has no place in `room` together with those before it: place, width and
    /// mark. It is found from the end, where it mostly is.
    fn first_without_room(
        &self,
        room: i64,
        after: Place,
        rule: &impl Fn(u32, Place) -> Place,
    ) -> Option<(Place, u32, Place)> {
        let mut held = self.held as i64;
        if held <= room {
            return None;
        }
        let last_place = |&(width, running): &(u32, &VecDeque<Place>), left: usize| {
            left.checked_sub(1).map(|last| (rule(width, running[last]), width, running[last]))
        };
        let gangs: Vec<_> = self.gangs.iter().map(|(&width, gang)| (width, &gang.running)).collect();
        let mut lasts: Vec<_> =
            gangs.iter().map(|gang| (last_place(gang, gang.1.len()), gang.1.len())).collect();
        let mut found = None;
        while held > room {
            let Some(index) = (0..lasts.len()).max_by_key(|&index| lasts[index].0) else { break };
            let (Some(last), left) = lasts[index] else { break };
            if last.0 < after {
                break;
            }
            held -= i64::from(last.1);
            found = Some(last);
            lasts[index] = (last_place(&gangs[index], left - 1), left - 1);
        }
        found
    }
}
