//! Turns target device counts into a decision; jobs whose count is unchanged are not moved.

use std::cmp::Reverse;

use bellwether_core::cluster::{ClusterView, JobId, JobView};
use bellwether_core::policy::{Changes, Decision, Rule};
use bellwether_core::prediction::StepModel;
use serde::{Deserialize, Serialize};

use crate::curve::{Curve, Curves};
use crate::decision_builder::DecisionBuilder;
use crate::free_devices::FreeDevices;

/// A job is to hold this many devices of one type; more than none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// The job.
    pub job: JobId,
    /// The type of all its devices.
    pub device_type: u16,
    /// How many.
    pub devices: u32,
}

/// What a policy that deals devices out again each time remembers: which job holds what, and how fast each would be.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AllocationState {
    board: FreeDevices,
    curves: Curves,
}

impl AllocationState {
    /// Takes in what happened; says whether the speeds of a job that was there before are others now.
    pub fn follow(&mut self, view: &ClusterView, changes: &Changes, model: &dyn StepModel) -> bool {
        self.board.follow(view, changes);
        self.curves.follow(view, changes, model)
    }

    /// Drops a job that is refused.
    pub fn forget(&mut self, id: JobId) {
        self.curves.forget(id);
    }

    /// The speeds of a job, by type of device.
    pub fn curves(&self, id: JobId) -> &[Curve] {
        self.curves.of(id)
    }

    /// By type: devices of nodes that are up, as if no job held any.
    pub fn devices(&self) -> Vec<u32> {
        (0..self.board.device_types()).map(|device_type| self.board.devices(device_type)).collect()
    }

    /// Device-seconds that a job still takes on the fewest devices of the type that suits it best. Where nothing may be
    /// known of its remaining work, every such job is taken to have a unit of work left.
    pub fn size(&self, id: JobId, seen: &JobView, now_s: f64) -> f64 {
        let unit = self.curves(id).iter().map(Curve::unit_size).fold(f64::INFINITY, f64::min);
        seen.remaining(now_s).unwrap_or(1.0) * unit
    }

    /// The decision that leads to `targets`: a job that is not among them waits.
    ///
    /// Running jobs whose target is what they hold are left alone. All others that have one are placed again, the
    /// largest first.
    ///
    /// # Panics
    ///
    /// When the targets take more than there is of a type.
    pub fn enact(
        &mut self,
        view: &ClusterView,
        mut targets: Vec<Target>,
        rule: Rule,
        next_wakeup_s: Option<f64>,
    ) -> Decision {
        targets.sort_unstable_by_key(|target| target.job);
        let waiting = view.jobs.len() - targets.len();
        let mut draft = DecisionBuilder::new(&mut self.board);
        let mut wanted = targets.iter().peekable();
        let mut places = Vec::new();
        for (&id, seen) in &view.jobs {
            let target = wanted.next_if(|target| target.job == id);
            match (target, held_type(view, seen)) {
                (None, None) => {}
                (None, Some(_)) => draft.stop(id, seen),
                (Some(target), None) => places.push((target, false)),
                (Some(target), Some(device_type)) => {
                    if (target.device_type, target.devices) != (device_type, seen.allocation.devices()) {
                        draft.lift(id, seen);
                        places.push((target, true));
                    }
                }
            }
        }
        places.sort_by_key(|(target, _)| Reverse(target.devices));
        for (target, running) in places {
            let allocation = draft.board().place(target.device_type, target.devices);
            let allocation = allocation.expect("a policy deals out what there is");
            match running {
                true => draft.change(target.job, allocation, None),
                false => draft.start(target.job, allocation, None),
            }
        }
        draft.finish(rule, waiting, next_wakeup_s)
    }
}

/// The type of device that a job holds.
pub fn held_type(view: &ClusterView, seen: &JobView) -> Option<u16> {
    let share = seen.allocation.shares().first()?;
    Some(view.nodes[share.node.0 as usize].device_type)
}

/// All types of device, that which a job holds first: so it stays where it is unless another is better.
pub fn types(view: &ClusterView, seen: &JobView) -> impl Iterator<Item = usize> {
    let held = held_type(view, seen).map(usize::from);
    held.into_iter().chain((0..view.device_types.len()).filter(move |&device_type| Some(device_type) != held))
}

/// Of the offers by type the one with the largest worth, and of equal ones the first.
pub fn best<T>(offers: impl Iterator<Item = (f64, T)>) -> Option<T> {
    let better = |known: Option<(f64, T)>, offer: (f64, T)| match known {
        Some(known) if known.0 >= offer.0 => Some(known),
        _ => Some(offer),
    };
    offers.fold(None, better).map(|(_, offer)| offer)
}
