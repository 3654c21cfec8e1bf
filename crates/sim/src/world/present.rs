//! A world that begins in the midst of things: jobs are there, and some of them run.

use bellwether_core::cluster::{ClusterView, JobId};
use bellwether_core::policy::Fault;
use bellwether_core::prediction::StepModel;

use super::{Scenario, Truth, World};
use crate::trace::Entry;

/// What is true of jobs, and not known.
#[derive(Debug, Clone, Default)]
pub struct Fate {
    /// The work that each job that is there still does.
    pub rests: Vec<f64>,
    /// The part of its work that each job does that comes; empty where the scenario's law says that.
    pub parts: Vec<f64>,
    /// Seconds without progress that each start of each of all these jobs costs, the first one and those after a stop;
    /// empty where the scenario and the view say that.
    pub starts_s: Vec<f64>,
}

/// The jobs that were there when a world began.
#[derive(Debug, Default)]
pub(super) struct Present {
    /// How many: their numbers are those below this.
    pub(super) jobs: u32,
    /// Those of them that have not ended.
    left: u32,
    /// Whether a policy was not asked yet.
    pub(super) begins: bool,
    /// What is true of them, and of those that come.
    fate: Fate,
}

impl Present {
    pub(super) fn ended(&mut self, id: JobId) {
        self.left -= u32::from(id.0 < self.jobs);
    }

    /// The part of its work that a job does that has come, where it is said.
    pub(super) fn part(&self, id: JobId) -> Option<f64> {
        self.fate.parts.get((id.0 - self.jobs) as usize).copied()
    }

    /// What a start of a job costs, where it is said.
    pub(super) fn start_s(&self, id: JobId) -> Option<f64> {
        self.fate.starts_s.get(id.0 as usize).copied()
    }

    /// Whether there were some, and all have ended.
    pub(super) fn are_over(&self) -> bool {
        self.jobs > 0 && self.left == 0
    }
}

impl<'a> World<'a> {
    /// The cluster of `view` from `now_s` on, until all jobs that are there have ended. These are numbered from 0 on,
    /// and `entries` arrive later; `fate` says what is true of them. A policy is asked at once, as one that begins.
    ///
    /// # Errors
    ///
    /// Returns an error where a job runs of which `truth` does not know the speed.
    ///
    /// # Panics
    ///
    /// When the jobs of `view` are not numbered from 0 on, or `fate` is not one for as many.
    pub fn going_on(
        (now_s, view): (f64, ClusterView),
        entries: &'a [Entry],
        fate: Fate,
        truth: &'a dyn StepModel,
        scenario: &'a Scenario,
    ) -> Result<World<'a>, Fault> {
        let jobs = view.jobs.len() as u32;
        assert_eq!(fate.rests.len(), jobs as usize, "each job that is there has work left");
        assert!(view.jobs.keys().copied().eq((0..jobs).map(JobId)), "jobs are numbered from 0 on");
        let mut world = World::empty(now_s, entries, truth, scenario);
        world.view = view;
        world.recording.make_room(jobs as usize);
        for (id, rest) in (0..jobs).map(JobId).zip(&fate.rests) {
            world.take_over(id, *rest)?;
        }
        world.present = Present { jobs, left: jobs, begins: true, fate };
        world.share_links()?;
        Ok(world)
    }

    /// Until when all that happens is known, in seconds: for ever where the world was not left before its end.
    pub fn reach_s(&self) -> f64 {
        if self.is_over { f64::INFINITY } else { self.now_s }
    }

    /// A job goes on with what it holds, or waits on.
    fn take_over(&mut self, id: JobId, rest: f64) -> Result<(), Fault> {
        let now_s = self.now_s;
        let seen = self.view.jobs.get_mut(&id).expect("jobs are numbered from 0 on");
        (seen.done, seen.remaining) = (seen.done(now_s), seen.remaining(now_s));
        seen.progress_s = seen.progress_s.max(now_s);
        if !seen.is_running() {
            // Its next start is the one that is asked for.
            seen.started_s = None;
        }
        let nominal = seen.done + seen.remaining.unwrap_or(rest);
        let work = seen.done + rest;
        let switch = seen.job.switch.as_ref().map(|switch| switch.at * nominal);
        let switch_at = switch.filter(|at| *at > seen.done);
        let is_guest = seen.beside.is_some_and(|other| other < id);
        self.truths.insert(id, Truth { work, nominal, switch_at, ticket: None, is_guest });
        self.recording.arrived(id, seen, 0.0);
        self.running += u32::from(seen.is_running());
        self.links.touch(id);
        self.advance(id)
    }
}
