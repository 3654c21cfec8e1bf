//! First come, first served: strictly, passing over what does not fit, or with a reservation for the first.
//!
//! # Idea
//!
//! Jobs start in the order of their arrival and keep their devices to their end. *Strict* stops at the first that
//! does not fit. *Skip* passes over it. *EASY* passes over it too, but only with jobs that will not delay it: those
//! that end before the first in line can start, or that leave it enough devices then.
//!
//! A running job keeps what it holds, even if another policy gave it that or its author now asks for another number.
//! Only what its limits no longer allow is taken from it: it then waits at its place in the order of arrival, and
//! starts again on what it asks for.
//!
//! # Source
//!
//! EASY: Lifka, The ANL/IBM SP scheduling system, JSSPP 1995.
//!
//! # Reads
//!
//! Arrival order and the devices asked for. EASY also reads the remaining time of running and waiting jobs.
//!
//! # Complexity
//!
//! Strict: the jobs that start. Skip: per event, one look per distinct number of devices. EASY: the running jobs
//! once, and the waiting ones.
//!
//! # Bad when
//!
//! Short jobs wait behind long ones: mean completion times are the worst of all. Skip lets wide jobs starve.

use std::collections::{BTreeMap, BTreeSet};

use bellwether_core::cluster::{Allocation, ClusterView, JobId, JobView, Share};
use bellwether_core::policy::{Changes, Decision, Policy, PolicyInput, Promises, Rule};
use bellwether_core::prediction::StepModel;

use serde::{Deserialize, Serialize};

use super::About;
use crate::decision_builder::DecisionBuilder;
use crate::free_devices::FreeDevices;
use crate::speed::Speeds;

/// Strict order of arrival.
pub const STRICT: About = About {
    name: "fifo",
    idea: "jobs start in order of arrival, and no job passes one that does not fit",
    options: &[],
    bad_when: "short jobs wait behind long ones, and devices stand idle before a wide one",
    gangs: false,
    needs_remaining: false,
    promises: Promises { work_conserving: false, starvation_free: true },
    make: |_| Ok(Box::new(Fifo::new(Order::Strict))),
};

/// Order of arrival, passing over what does not fit.
pub const SKIP: About = About {
    name: "fifo_skip",
    idea: "jobs start in order of arrival; who does not fit is passed over",
    options: &[],
    bad_when: "wide jobs starve while narrow ones keep coming",
    gangs: false,
    needs_remaining: false,
    promises: Promises { work_conserving: true, starvation_free: false },
    make: |_| Ok(Box::new(Fifo::new(Order::Skip))),
};

/// Order of arrival with a reservation for the first in line.
pub const EASY: About = About {
    name: "easy",
    idea: "as fifo_skip, but no job may delay the first in line",
    options: &[],
    bad_when: "remaining times are badly known, or short jobs are many",
    gangs: false,
    needs_remaining: true,
    promises: Promises { work_conserving: false, starvation_free: true },
    make: |_| Ok(Box::new(Fifo::new(Order::Easy))),
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Order {
    Strict,
    Skip,
    Easy,
}

/// Jobs that wait, and devices that are free.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Fifo {
    order: Order,
    board: FreeDevices,
    /// By devices asked for and accepted types, in order of arrival.
    waiting: BTreeMap<(u32, Vec<u16>), BTreeSet<JobId>>,
    count: usize,
    speeds: Speeds,
}

impl Fifo {
    fn new(order: Order) -> Fifo {
        let (board, speeds) = (FreeDevices::default(), Speeds::new());
        Fifo { order, board, waiting: BTreeMap::new(), count: 0, speeds }
    }

    /// Takes in what happened.
    fn follow(&mut self, view: &ClusterView, changes: &Changes) {
        self.board.follow(view, changes);
        self.speeds.follow(changes);
        for id in leave(view, changes) {
            for jobs in self.waiting.values_mut() {
                self.count -= usize::from(jobs.remove(&id));
            }
            self.waiting.retain(|_, jobs| !jobs.is_empty());
        }
        for (id, seen) in enter(view, changes) {
            let kind = (seen.job.asked(), seen.job.device_types.clone());
            self.count += usize::from(self.waiting.entry(kind).or_default().insert(id));
        }
    }

    fn remove(&mut self, seen: &JobView, id: JobId) {
        let kind = (seen.job.asked(), seen.job.device_types.clone());
        if let Some(jobs) = self.waiting.get_mut(&kind) {
            self.count -= usize::from(jobs.remove(&id));
            if jobs.is_empty() {
                self.waiting.remove(&kind);
            }
        }
    }

    fn first(&self) -> Option<JobId> {
        self.waiting.values().filter_map(|jobs| jobs.first()).min().copied()
    }
}

impl Policy for Fifo {
    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        let PolicyInput { now_s, view, changes, model } = *input;
        self.follow(view, changes);
        let mut board = std::mem::take(&mut self.board);
        let mut draft = DecisionBuilder::new(&mut board);
        let rule = match self.order {
            Order::Strict => self.strict(view, &mut draft),
            Order::Skip => self.skip(view, &mut draft),
            Order::Easy => self.easy(now_s, view, model, &mut draft),
        };
        let decision = draft.finish(rule, self.count, None);
        self.board = board;
        decision
    }
}

impl Fifo {
    fn strict(&mut self, view: &ClusterView, draft: &mut DecisionBuilder) -> Rule {
        while let Some(id) = self.first() {
            let seen = &view.jobs[&id];
            if !draft.start_on(id, seen, seen.job.asked()) {
                break;
            }
            self.remove(seen, id);
        }
        Rule::ArrivalOrder
    }

    /// Free devices only become fewer, so the walk in order is the same as taking the first that fits again and again.
    fn skip(&mut self, view: &ClusterView, draft: &mut DecisionBuilder) -> Rule {
        loop {
            let fits = |jobs: &&BTreeSet<JobId>| {
                let job = &view.jobs[jobs.first().expect("no list is empty")].job;
                draft.board().type_with_room(job, job.asked()).is_some()
            };
            let fitting = self.waiting.values().filter(fits);
            let Some(&id) = fitting.filter_map(|jobs| jobs.first()).min() else { break };
            let seen = &view.jobs[&id];
            draft.start_on(id, seen, seen.job.asked());
            self.remove(seen, id);
        }
        Rule::ArrivalOrder
    }

    fn easy(
        &mut self,
        now_s: f64,
        view: &ClusterView,
        model: &dyn StepModel,
        draft: &mut DecisionBuilder,
    ) -> Rule {
        self.strict(view, draft);
        let Some(head) = self.first() else { return Rule::Reservation };
        let Some(mut reservation) = self.reserve(now_s, view, model, &view.jobs[&head], draft) else {
            return Rule::Reservation;
        };
        let mut others: Vec<JobId> =
            self.waiting.values().flatten().copied().filter(|&id| id != head).collect();
        others.sort_unstable();
        for id in others {
            let seen = &view.jobs[&id];
            let devices = seen.job.asked();
            let ends_in_s = self.speeds.remaining_s(model, view, seen, now_s);
            let in_time = ends_in_s.is_some_and(|s| now_s + s <= reservation.at_s);
            let kinds = 0..draft.board().device_types();
            let has_place = |kind: &u16| {
                let harmless = in_time || *kind != reservation.kind || devices <= reservation.spare;
                harmless && seen.job.accepts(*kind) && draft.board().free(*kind) >= devices
            };
            let Some(kind) = kinds.into_iter().find(has_place) else { continue };
            let Some(allocation) = draft.board().place(kind, devices) else { continue };
            if kind == reservation.kind && !in_time {
                reservation.spare -= devices;
            }
            draft.start(id, allocation, None);
            self.remove(seen, id);
        }
        Rule::Reservation
    }

    /// When and on which type the first in line can start, as far as running jobs end when they are believed to.
    fn reserve(
        &mut self,
        now_s: f64,
        view: &ClusterView,
        model: &dyn StepModel,
        head: &JobView,
        draft: &mut DecisionBuilder,
    ) -> Option<Reservation> {
        let wanted = head.job.asked();
        let mut earliest: Option<Reservation> = None;
        for kind in (0..draft.board().device_types()).filter(|&kind| head.job.accepts(kind)) {
            let mut ends: Vec<(f64, u32)> = Vec::new();
            let started =
                draft.started().map(|(id, allocation)| (id, allocation.clone())).collect::<Vec<_>>();
            for (id, allocation) in started {
                let seen = &view.jobs[&id];
                let end_s = self.speeds.remaining_s(model, view, seen, now_s).map(|s| now_s + s);
                ends.push((end_s.unwrap_or(f64::MAX), on_type(view, &allocation, kind)));
            }
            for seen in view.jobs.values().filter(|seen| seen.is_running()) {
                let end_s = seen.end_s().unwrap_or(f64::MAX).max(now_s);
                ends.push((end_s, on_type(view, &seen.allocation, kind)));
            }
            ends.sort_by(|a, b| a.0.total_cmp(&b.0));
            let mut free = draft.board().free(kind);
            for (at_s, devices) in ends {
                free += devices;
                if free >= wanted {
                    let found = Reservation { at_s, kind, spare: free - wanted };
                    earliest = earliest.filter(|known| known.at_s <= at_s).or(Some(found));
                    break;
                }
            }
        }
        earliest
    }
}

/// Jobs that no longer wait where they waited. A running job waits nowhere.
pub(super) fn leave<'a>(view: &'a ClusterView, changes: &'a Changes) -> impl Iterator<Item = JobId> + 'a {
    let waited = changes.ended.iter().filter(|(_, seen)| !seen.is_running()).map(|(id, _)| *id);
    let runs = |id: &JobId| view.jobs.get(id).is_some_and(JobView::is_running);
    waited.chain(changes.revised.iter().copied().filter(move |id| !runs(id)))
}

/// Jobs that wait from now on, or elsewhere than before.
pub(super) fn enter<'a>(
    view: &'a ClusterView,
    changes: &'a Changes,
) -> impl Iterator<Item = (JobId, &'a JobView)> {
    let Changes { arrived, lost, revised, .. } = changes;
    let ids = arrived.iter().chain(lost.iter().map(|(id, _)| id)).chain(revised);
    ids.filter_map(|&id| Some((id, view.jobs.get(&id).filter(|seen| !seen.is_running())?)))
}

/// The first in line starts then and there.
#[derive(Debug, Clone, Copy)]
struct Reservation {
    at_s: f64,
    kind: u16,
    /// Devices of the type that will still be free then.
    spare: u32,
}

fn on_type(view: &ClusterView, allocation: &Allocation, kind: u16) -> u32 {
    let of_type = |share: &&Share| view.nodes[share.node.0 as usize].device_type == kind;
    allocation.shares().iter().filter(of_type).map(|share| share.devices).sum()
}
