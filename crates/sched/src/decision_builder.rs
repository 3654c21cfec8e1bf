//! A decision while it is being made: who stops, who starts, who changes, on a board of free devices.

use std::collections::BTreeSet;

use bellwether_core::cluster::{Allocation, Batch, JobId, JobView};
use bellwether_core::policy::{Action, Decision, Reason, Rule};

use crate::free_devices::FreeDevices;

/// Collects actions and keeps the board in step with them. Releases come before allocations.
#[derive(Debug)]
pub struct DecisionBuilder<'a> {
    board: &'a mut FreeDevices,
    releases: Vec<Action>,
    allocations: Vec<Action>,
    /// Jobs that left devices to the one that shared them.
    left: BTreeSet<JobId>,
    started: u32,
    stopped: u32,
    resized: u32,
}

impl<'a> DecisionBuilder<'a> {
    /// Nothing yet.
    pub fn new(board: &'a mut FreeDevices) -> DecisionBuilder<'a> {
        let (releases, allocations, left) = (Vec::new(), Vec::new(), BTreeSet::new());
        DecisionBuilder { board, releases, allocations, left, started: 0, stopped: 0, resized: 0 }
    }

    /// The devices that are free as far as it has got.
    pub fn board(&mut self) -> &mut FreeDevices {
        self.board
    }

    /// A running job waits from now on. Call this for all that stop before the first that starts.
    pub fn stop(&mut self, id: JobId, seen: &JobView) {
        self.lift(id, seen);
        self.stopped += 1;
    }

    /// A waiting job gets what was taken from the board for it.
    pub fn start(&mut self, id: JobId, allocation: Allocation, batch: Option<Batch>) {
        self.allocations.push(allocate(id, allocation, batch));
        self.started += 1;
    }

    /// Starts a waiting job on `devices` devices of the first type with room; `false` when there is none.
    pub fn start_on(&mut self, id: JobId, seen: &JobView, devices: u32) -> bool {
        let place = self.board.place_job(&seen.job, devices);
        let found = place.is_some();
        if let Some(allocation) = place {
            self.start(id, allocation, None);
        }
        found
    }

    /// Frees a running job's devices, so that it can be placed again by [`change`](DecisionBuilder::change). Those that
    /// it shares are free when both have gone.
    pub fn lift(&mut self, id: JobId, seen: &JobView) {
        match seen.beside {
            Some(other) if !self.left.contains(&other) => {
                self.left.insert(id);
            }
            _ => self.board.release(&seen.allocation),
        }
        self.releases.push(allocate(id, Allocation::none(), None));
    }

    /// A waiting or lifted job gets the devices of another one, which holds them by now, to share them.
    pub fn join(&mut self, id: JobId, seen: &JobView, allocation: Allocation, host: JobId) {
        let (job, beside) = (id, Some(host));
        self.allocations.push(Action::Allocate {
            job,
            allocation,
            batch: None,
            expected: None,
            beside,
            way: None,
        });
        if seen.is_running() {
            self.resized += 1;
        } else {
            self.started += 1;
        }
    }

    /// A lifted job waits after all.
    pub fn leave(&mut self) {
        self.stopped += 1;
    }

    /// Gives a lifted job other devices (those were taken from the board), or the same ones with another batch.
    pub fn change(&mut self, id: JobId, allocation: Allocation, batch: Option<Batch>) {
        self.allocations.push(allocate(id, allocation, batch));
        self.resized += 1;
    }

    /// Jobs that were given devices, and those.
    pub fn started(&self) -> impl Iterator<Item = (JobId, &Allocation)> {
        self.allocations.iter().filter_map(|action| match action {
            Action::Allocate { job, allocation, .. } => Some((*job, allocation)),
            Action::Refuse { .. } => None,
        })
    }

    /// The decision.
    pub fn finish(self, rule: Rule, waiting: usize, next_wakeup_s: Option<f64>) -> Decision {
        let DecisionBuilder { mut releases, allocations, started, stopped, resized, .. } = self;
        releases.extend(allocations);
        let reason = Reason { rule, started, stopped, resized, waiting: waiting as u32, reclaimed: 0 };
        Decision { actions: releases, reason, next_wakeup_s }
    }
}

fn allocate(job: JobId, allocation: Allocation, batch: Option<Batch>) -> Action {
    Action::Allocate { job, allocation, batch, expected: None, beside: None, way: None }
}
