//! A cluster that only keeps accounts, for what a simulation never does: policies are replaced while jobs run, models
//! learn, limits are revised, and jobs are cancelled, suspended and resumed.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bellwether_core::cluster::{Allocation, ClusterView, Job, JobId, JobView, NodeId};
use bellwether_core::policy::{Action, Backend, Changes, Decision, Fault, PolicyInput};
use bellwether_core::prediction::{Configuration, JobDescription, PredictError, Prediction, StepModel};

use super::common::ByCount;

/// What is believed of speeds, which has nothing to do with the truth: that is one unit of work per device and second.
pub(crate) struct Belief {
    /// What was learnt.
    pub(crate) salt: Cell<u64>,
    /// Work per second on one node by what was learnt, number of devices and their type.
    pub(crate) law: fn(u64, u32, &str) -> Option<f64>,
}

impl StepModel for Belief {
    fn predict(
        &self,
        job: &JobDescription,
        configuration: &Configuration,
    ) -> Result<Prediction, PredictError> {
        let kind = configuration.devices.first().map_or("", |group| &group.device);
        let rate = |devices, _| {
            let speed = (self.law)(self.salt.get(), devices, kind)?;
            Some(speed / (1.0 + 0.125 * f64::from(configuration.nodes() - 1)))
        };
        ByCount(rate).predict(job, configuration)
    }
}

/// More devices may be slower, and the model need not know numbers that no job asks for.
pub(crate) fn jagged(salt: u64, devices: u32, kind: &str) -> Option<f64> {
    let salt = salt ^ (u64::from(devices) << 8 | kind.len() as u64);
    let luck = salt.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) % 8;
    let speaks = luck > 0 || NUMBERS.contains(&devices);
    speaks.then(|| f64::from(devices) * (1.0 + luck as f64) / 4.0)
}

/// Devices that jobs ask for, or need at least or at most.
pub(crate) const NUMBERS: [u32; 7] = [1, 2, 3, 4, 6, 8, 12];

/// What happens. Jobs are named by their place among those that are there (or are suspended), nodes and policies by
/// theirs; numbers that are too large wrap around.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// A job of so much work arrives.
    Arrive(Job, f64),
    Cancel(usize),
    Suspend(usize),
    Resume(usize),
    /// A job gets the limits, weight and deadline of this one, and perhaps a new belief of its work.
    Revise(usize, Job),
    /// The model answers otherwise from now on.
    Learn(u64),
    /// A node goes down, or comes up again.
    Toggle(usize),
    /// Another policy takes over.
    Replace(usize),
}

/// The cluster.
pub(crate) struct Live<'a> {
    belief: &'a Belief,
    script: VecDeque<(f64, Event)>,
    now_s: f64,
    pub(crate) view: ClusterView,
    changes: Changes,
    /// All work of a job, done or not.
    work: BTreeMap<JobId, f64>,
    suspended: BTreeMap<JobId, JobView>,
    knows_work: bool,
    /// The policy that is to take over, or has just done so.
    pub(crate) replacement: Option<usize>,
    moments: u32,
}

/// More moments than any case has.
const MOST_MOMENTS: u32 = 20_000;

impl<'a> Live<'a> {
    pub(crate) fn new(
        view: ClusterView,
        belief: &'a Belief,
        script: Vec<(f64, Event)>,
        knows_work: bool,
    ) -> Live<'a> {
        Live {
            belief,
            script: script.into(),
            now_s: 0.0,
            view,
            changes: Changes::default(),
            work: BTreeMap::new(),
            suspended: BTreeMap::new(),
            knows_work,
            replacement: Some(0),
            moments: 0,
        }
    }

    /// Whether all has happened and all jobs have ended.
    pub(crate) fn is_over(&self) -> bool {
        self.script.is_empty() && self.view.jobs.is_empty() && self.suspended.is_empty()
    }

    /// Whether all of the script has happened, and no job is suspended.
    pub(crate) fn has_told_all(&self) -> bool {
        self.script.is_empty() && self.suspended.is_empty()
    }

    fn end_s(&self, id: JobId) -> Option<f64> {
        let seen = &self.view.jobs[&id];
        seen.is_running().then(|| seen.progress_s + (self.work[&id] - seen.done).max(0.0) / seen.rate)
    }

    /// A job leaves the view, as one that has ended.
    fn depart(&mut self, id: JobId) -> JobView {
        let mut seen = self.view.jobs.remove(&id).expect("it is there");
        let held = seen.allocation.clone();
        seen.settle(&held, self.now_s);
        (seen.allocated_s, seen.progress_s, seen.rate) = (self.now_s, self.now_s, 0.0);
        self.view.release(&held);
        self.changes.ended.push((id, seen.clone()));
        seen.allocation = Allocation::none();
        seen
    }

    fn arrive(&mut self, id: JobId, seen: JobView) {
        self.view.jobs.insert(id, seen);
        self.changes.arrived.push(id);
    }

    fn nth(&self, place: usize) -> Option<JobId> {
        self.view.jobs.keys().nth(place % self.view.jobs.len().max(1)).copied()
    }

    /// The job as the cluster admits it: some type that it accepts has as many devices as its most.
    fn admit(&self, mut job: Job) -> Arc<Job> {
        let of_type = |kind: u16| self.view.nodes_of(kind).map(|(_, devices)| devices).sum();
        let kinds = (0..self.view.device_types.len() as u16).filter(|&kind| job.accepts(kind));
        let widest: u32 = kinds.map(of_type).max().expect("it accepts some type");
        job.max_devices = job.max_devices.min(widest);
        job.min_devices = job.min_devices.min(job.max_devices);
        Arc::new(job)
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive(job, work) => {
                let id = JobId(self.work.len() as u32);
                self.work.insert(id, work);
                let mut job = self.admit(job);
                Arc::make_mut(&mut job).arrival_s = self.now_s;
                let remaining = self.knows_work.then_some(work);
                self.arrive(id, JobView::waiting(job, self.now_s, remaining));
            }
            Event::Cancel(place) => {
                if let Some(id) = self.nth(place) {
                    self.depart(id);
                    // That a job lost its devices may be all that is said of it.
                    if id.0.is_multiple_of(2) && self.changes.lost.iter().any(|(lost, _)| *lost == id) {
                        self.changes.ended.retain(|(ended, _)| *ended != id);
                    }
                }
            }
            Event::Suspend(place) => {
                if let Some(id) = self.nth(place) {
                    let seen = self.depart(id);
                    self.suspended.insert(id, seen);
                }
            }
            Event::Resume(place) => {
                let id = self.suspended.keys().nth(place % self.suspended.len().max(1)).copied();
                if let Some((id, mut seen)) = id.and_then(|id| self.suspended.remove_entry(&id)) {
                    (seen.allocated_s, seen.progress_s) = (self.now_s, self.now_s);
                    self.arrive(id, seen);
                }
            }
            Event::Revise(place, job) => {
                let Some(id) = self.nth(place) else { return };
                let job = self.admit(job);
                let seen = self.view.jobs.get_mut(&id).expect("it is there");
                let own = Arc::make_mut(&mut seen.job);
                (own.min_devices, own.max_devices, own.weight) =
                    (job.min_devices, job.max_devices, job.weight);
                own.device_types.clone_from(&job.device_types);
                own.deadline_s = job.deadline_s;
                own.queue.clone_from(&job.queue);
                self.changes.revised.push(id);
            }
            Event::Learn(salt) => {
                self.belief.salt.set(salt);
                self.changes.relearnt = true;
            }
            Event::Toggle(place) => self.toggle(NodeId((place % self.view.nodes.len()) as u32)),
            Event::Replace(policy) => self.replacement = Some(policy),
        }
    }

    fn toggle(&mut self, id: NodeId) {
        let node = &mut self.view.nodes[id.0 as usize];
        node.up = !node.up;
        self.changes.nodes.push(id);
        let now_s = self.now_s;
        let on_it = |seen: &&mut JobView| seen.allocation.shares().iter().any(|share| share.node == id);
        let mut lost = Vec::new();
        for (&job, seen) in &mut self.view.jobs {
            if !on_it(&seen) {
                continue;
            }
            let held = std::mem::take(&mut seen.allocation);
            seen.settle(&held, now_s);
            (seen.allocated_s, seen.progress_s, seen.rate) = (now_s, now_s, 0.0);
            lost.push((job, held));
        }
        for (_, held) in &lost {
            self.view.release(held);
        }
        self.changes.lost.extend(lost);
    }

    fn carry_out(&mut self, action: Action) -> Result<(), String> {
        match action {
            Action::Allocate { job: id, allocation, batch, .. } => {
                let seen = self.view.jobs.get(&id).ok_or(format!("{id:?} is not there"))?;
                self.view.check(seen, &allocation).map_err(|error| error.to_string())?;
                let held = seen.allocation.clone();
                self.view.release(&held);
                self.view.take(&allocation);
                let seen = self.view.jobs.get_mut(&id).expect("it was there just now");
                seen.settle(&held, self.now_s);
                (seen.allocated_s, seen.progress_s) = (self.now_s, self.now_s);
                (seen.allocation, seen.batch) = (allocation, batch);
                seen.rate = f64::from(seen.allocation.devices());
                if seen.is_running() && seen.started_s.is_some() {
                    seen.restarts += 1;
                    seen.progress_s += self.view.restart_s;
                } else if seen.is_running() {
                    seen.started_s = Some(self.now_s);
                }
            }
            Action::Refuse { job, .. } => {
                let seen = self.view.jobs.remove(&job).ok_or("who is refused is not there")?;
                if seen.started_s.is_some() {
                    return Err(format!("{job:?} is refused, and has run"));
                }
            }
        }
        Ok(())
    }
}

impl Backend for Live<'_> {
    /// `None` also where another policy is to take over: ask it for the next moment, which is the same one.
    fn next<'a>(
        &'a mut self,
        wakeup_s: Option<f64>,
        model: &'a dyn StepModel,
    ) -> Result<Option<PolicyInput<'a>>, Fault> {
        let taken_over = self.replacement.take().is_some();
        if taken_over {
            self.changes.arrived = self.view.jobs.keys().copied().collect();
        } else {
            self.changes.clear();
            let ends = self.view.jobs.keys().filter_map(|&id| self.end_s(id));
            let script_s = self.script.front().map(|(time_s, _)| *time_s);
            let next_s = ends.chain(script_s).chain(wakeup_s).min_by(f64::total_cmp);
            let Some(time_s) = next_s.filter(|_| !self.is_over()) else { return Ok(None) };
            self.now_s = self.now_s.max(time_s);
            let over = |id: &JobId| self.end_s(*id).is_some_and(|end_s| end_s <= self.now_s);
            for id in self.view.jobs.keys().copied().filter(over).collect::<Vec<_>>() {
                self.depart(id);
            }
            while self.script.front().is_some_and(|(time_s, _)| *time_s <= self.now_s) {
                let (_, event) = self.script.pop_front().expect("it was there just now");
                self.happen(event);
                if self.replacement.is_some() {
                    return Ok(None);
                }
            }
        }
        self.moments += 1;
        if self.moments > MOST_MOMENTS {
            return Err(Fault::World("it never ends".into()));
        }
        Ok(Some(PolicyInput { now_s: self.now_s, view: &self.view, changes: &self.changes, model }))
    }

    fn apply(&mut self, decision: Decision) -> Result<(), Fault> {
        for action in decision.actions {
            self.carry_out(action).map_err(Fault::Broken)?;
        }
        for (id, seen) in &self.view.jobs {
            let lawful = self.view.check(seen, &seen.allocation);
            lawful.map_err(|what| Fault::Broken(format!("{id:?} stays, and {what}")))?;
        }
        Ok(())
    }
}
