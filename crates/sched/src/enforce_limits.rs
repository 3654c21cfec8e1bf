//! Takes unsuitable devices from jobs before a policy is asked, no matter which policy assigned them.
//!
//! A policy may be put in place where another one dealt devices out, and a user may change the limits of a job that
//! runs. So that each policy need not know of this, a job that holds what it may not hold is shown to it as one that
//! has just lost its devices, in a cluster where they are free. If the policy gives it others at once, it goes on with
//! those after a restart; if not, it waits.

use std::collections::BTreeSet;

use bellwether_core::cluster::{Allocation, ClusterView, JobId, JobView};
use bellwether_core::policy::{Action, Changes, Decision, Policy, PolicyInput};

use crate::allocation::held_type;

/// A policy that is only shown jobs which hold what they may hold.
pub struct WithLimits {
    policy: Box<dyn Policy + Send>,
    gangs: bool,
    begun: bool,
}

impl WithLimits {
    /// With `gangs`, a job may only hold as many devices as it [asks for](bellwether_core::cluster::Job::asked), and
    /// without, any number within its limits.
    pub fn new(policy: Box<dyn Policy + Send>, gangs: bool) -> WithLimits {
        WithLimits { policy, gangs, begun: false }
    }

    /// Jobs that hold what does not suit them. That can change only where they are revised.
    fn misfits(&mut self, view: &ClusterView, changes: &Changes) -> BTreeSet<JobId> {
        let is_misfit =
            |id: &JobId| view.jobs.get(id).is_some_and(|seen| seen.is_running() && !self.suits(view, seen));
        let misfits = match self.begun {
            true => changes.revised.iter().copied().filter(is_misfit).collect(),
            false => view.jobs.keys().copied().filter(is_misfit).collect(),
        };
        self.begun = true;
        misfits
    }

    /// Whether a running job holds as many devices as it may, all of one type that it accepts.
    fn suits(&self, view: &ClusterView, seen: &JobView) -> bool {
        let (job, devices) = (&seen.job, seen.allocation.devices());
        let enough = match self.gangs {
            true => devices == job.asked(),
            false => (job.min_devices..=job.max_devices).contains(&devices),
        };
        let held = held_type(view, seen);
        let is_held = |node: usize| Some(view.nodes[node].device_type) == held;
        let mut nodes = seen.allocation.shares().iter().map(|share| share.node.0 as usize);
        enough && held.is_some_and(|kind| job.accepts(kind)) && nodes.all(is_held)
    }
}

impl Policy for WithLimits {
    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        let PolicyInput { now_s, view, changes, .. } = *input;
        let misfits = self.misfits(view, changes);
        if misfits.is_empty() {
            return self.policy.decide(input);
        }
        let (mut view, mut changes) = (view.clone(), changes.clone());
        for &id in &misfits {
            let held = take_devices(&mut view, id, now_s);
            changes.lost.push((id, held));
        }
        let mut decision = self.policy.decide(&PolicyInput { view: &view, changes: &changes, ..*input });
        let is_given =
            |action: &&Action| matches!(action, Action::Allocate { job, .. } if misfits.contains(job));
        let given = decision.actions.iter().filter(is_given).count() as u32;
        let reason = &mut decision.reason;
        reason.started = reason.started.saturating_sub(given);
        reason.resized += given;
        reason.stopped += (misfits.len() as u32).saturating_sub(given);
        let stop = |&job: &JobId| Action::Allocate {
            job,
            allocation: Allocation::none(),
            batch: None,
            expected: None,
            beside: None,
            way: None,
        };
        decision.actions.splice(0..0, misfits.iter().map(stop));
        decision
    }
}

/// A running job waits from now on; returns what is free by that.
fn take_devices(view: &mut ClusterView, id: JobId, now_s: f64) -> Allocation {
    let seen = view.jobs.get_mut(&id).expect("a misfit is in the view");
    let held = seen.allocation.clone();
    seen.settle(&held, now_s);
    (seen.allocated_s, seen.progress_s, seen.rate) = (now_s, now_s, 0.0);
    view.vacate(id)
}

/// Whether limits were revised so that a running job lost its devices: a policy that decides at intervals need not let
/// it wait for the next one.
pub fn interrupted(changes: &Changes) -> bool {
    changes.lost.iter().any(|(id, _)| changes.revised.contains(id))
}
