//! What happened in the cluster, told to the policies of the queues that it happened in.

use bellwether_core::cluster::{Job, JobId, JobView};
use bellwether_core::policy::{Action, PolicyInput};

use super::draft::Draft;
use super::rights::Rights;
use super::{ROUNDS, WithQueues, reclaim, stopped};

impl WithQueues {
    /// Takes in what happened since the last decision.
    pub(super) fn follow(&mut self, input: &PolicyInput<'_>, draft: &mut Draft) {
        let PolicyInput { now_s, view, changes, .. } = *input;
        self.nodes.clone_from(&view.nodes);
        let is_first = !std::mem::replace(&mut self.begun, true);
        // Where nothing happened and no policy wanted to be asked, all are.
        if is_first {
            self.entitle(view, ROUNDS[0]);
            for place in 0..self.leaves.len() {
                let limits = self.limits(self.leaves[place].queue);
                self.leaves[place].begin(view, limits);
            }
        }
        let all = changes.is_empty() && !self.leaves.iter().any(|leaf| leaf.wants_to_wake(now_s));
        for leaf in &mut self.leaves {
            leaf.follow(view);
            leaf.wake(now_s, all);
            if leaf.is_used() {
                leaf.changes.nodes.extend_from_slice(&changes.nodes);
                leaf.changes.relearnt |= changes.relearnt;
            }
        }
        self.follow_those_who_go(input);
        for &id in &changes.arrived {
            if let Some(seen) = view.jobs.get(&id) {
                self.arrive(id, seen, input, draft);
            }
        }
        let mut moved = false;
        for &id in &changes.revised {
            let Some((&place, seen)) = self.of_job.get(&id).zip(view.jobs.get(&id)) else { continue };
            if self.place(&seen.job) == place {
                self.leaves[place].revise(id, seen);
            } else {
                self.change_queue(id, place, seen, input, draft);
                moved = true;
            }
        }
        self.speeds.follow(changes);
        for leaf in &mut self.leaves {
            if changes.relearnt {
                leaf.wide.relearn();
            }
            leaf.narrow(input, &mut self.speeds);
        }
        self.entitle(view, ROUNDS[0]);
        if is_first || moved {
            self.enforce_limits(input, draft);
        }
        for id in changes.arrived.iter().chain(&changes.revised) {
            self.refuse_if_too_wide(*id, input, draft);
        }
    }

    fn follow_those_who_go(&mut self, input: &PolicyInput<'_>) {
        let PolicyInput { view, changes, .. } = *input;
        for (id, freed) in &changes.lost {
            let Some(&place) = self.of_job.get(id) else { continue };
            let other = self.leaves[place].view.jobs.get(id).and_then(|seen| seen.beside);
            self.leaves[place].lose(*id, freed, view.jobs.get(id));
            self.renew(place, other, input);
        }
        for (id, seen) in &changes.ended {
            let Some(&place) = self.of_job.get(id) else { continue };
            let other = self.leaves[place].view.jobs.get(id).and_then(|seen| seen.beside);
            self.leaves[place].end(*id, seen);
            self.renew(place, other, input);
        }
        for id in changes.gone(view) {
            self.of_job.remove(&id);
        }
    }

    /// A job has its devices for itself now.
    fn renew(&mut self, place: usize, other: Option<JobId>, input: &PolicyInput<'_>) {
        if let Some((other, seen)) = other.and_then(|other| Some((other, input.view.jobs.get(&other)?))) {
            self.leaves[place].renew(other, seen);
        }
    }

    /// The place of a job's queue among the leaves.
    fn place(&self, job: &Job) -> usize {
        let named = self.tree.of_job(job.queue.as_deref()).or_else(|_| self.tree.of_job(None));
        named.ok().and_then(|queue| self.places.get(&queue)).copied().unwrap_or(0)
    }

    fn arrive(&mut self, id: JobId, seen: &JobView, input: &PolicyInput<'_>, draft: &mut Draft) {
        let place = self.place(&seen.job);
        self.of_job.insert(id, place);
        let other = seen.beside.and_then(|other| Some((other, input.view.jobs.get(&other)?)));
        match other.filter(|(_, other)| self.place(&other.job) != place) {
            None => self.leaves[place].arrive(id, seen),
            // Jobs of two queues cannot share devices: the later one stops.
            Some((other, _)) if id > other => {
                draft.forced().push(reclaim::stop_action(id));
                self.leaves[place].arrive(id, &stopped(seen, input.now_s));
                self.leaves[place].touch(id);
            }
            Some(_) => self.leaves[place].arrive(id, &JobView { beside: None, ..seen.clone() }),
        }
    }

    /// A job is in another queue from now on, where it has to be given devices.
    fn change_queue(
        &mut self,
        id: JobId,
        place: usize,
        seen: &JobView,
        input: &PolicyInput<'_>,
        draft: &mut Draft,
    ) {
        let mut seen = seen.clone();
        if seen.is_running() {
            self.stop(place, id, input.now_s, draft);
            seen = stopped(&seen, input.now_s);
        }
        self.leaves[place].end(id, &seen);
        let next = self.place(&seen.job);
        self.of_job.insert(id, next);
        self.leaves[next].arrive(id, &seen);
        self.leaves[next].touch(id);
    }

    /// Stops a job, and the one that shares its devices.
    fn stop(&mut self, place: usize, id: JobId, now_s: f64, draft: &mut Draft) {
        let freed = reclaim::take_back(&mut self.leaves[place], id, None, now_s, draft.forced());
        for share in freed.shares() {
            self.nodes[share.node.0 as usize].free += share.devices;
        }
    }

    /// Stops jobs where more is held than a limit allows: what an earlier policy gave, or in another queue.
    fn enforce_limits(&mut self, input: &PolicyInput<'_>, draft: &mut Draft) {
        for kind in 0..self.rights.len() {
            for queue in (0..self.tree.queues().len()).rev() {
                while self.held(queue, kind) > self.rights[kind].limit[queue] {
                    let Some((place, id)) = self.latest(queue, kind, input) else { break };
                    self.stop(place, id, input.now_s, draft);
                }
            }
        }
    }

    /// Of the jobs in a queue or below it that hold devices of a type, the one that started last.
    fn latest(&self, queue: usize, kind: usize, input: &PolicyInput<'_>) -> Option<(usize, JobId)> {
        let is_below = |place: &usize| self.tree.path(self.leaves[*place].queue).any(|at| at == queue);
        let jobs = (0..self.leaves.len())
            .filter(is_below)
            .flat_map(|place| self.leaves[place].view.jobs.iter().map(move |(&id, seen)| (place, id, seen)));
        let holding = jobs.filter(|(_, _, seen)| reclaim::of_kind(input.view, seen, kind as u16) > 0);
        let started = |seen: &JobView| seen.started_s.map_or(0, crate::greedy::bits);
        let last = holding.max_by_key(|(_, id, seen)| (started(seen), *id));
        last.map(|(place, id, _)| (place, id))
    }

    /// By type of device, the most that the jobs of a queue may hold.
    fn limits(&self, queue: usize) -> Vec<u32> {
        let least = |rights: &Rights| self.tree.path(queue).map(|at| rights.limit[at]).min();
        self.rights.iter().map(|rights| least(rights).unwrap_or(u32::MAX)).collect()
    }

    /// Refuses a job that its queue can never hold, as long as it has not run.
    fn refuse_if_too_wide(&mut self, id: JobId, input: &PolicyInput<'_>, draft: &mut Draft) {
        let Some((&place, seen)) = self.of_job.get(&id).zip(input.view.jobs.get(&id)) else { return };
        let (job, leaf) = (&seen.job, &self.leaves[place]);
        let limits = self.limits(leaf.queue);
        let kinds = (0..limits.len()).filter(|kind| job.accepts(*kind as u16));
        let most = kinds.map(|kind| limits[kind]).max().unwrap_or(u32::MAX);
        let least = if most >= job.min_devices { leaf.least(job).min(most) } else { leaf.least(job) };
        if most >= least || seen.is_running() || seen.started_s.is_some() {
            return;
        }
        let queue = &self.tree.queues()[leaf.queue].name;
        let why = format!("it needs {least} devices of one type, and its queue `{queue}` may hold {most}");
        self.leaves[place].end(id, seen);
        self.of_job.remove(&id);
        draft.forced().push(Action::Refuse { job: id, why });
    }
}
