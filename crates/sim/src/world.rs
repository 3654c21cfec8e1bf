//! The simulated cluster as a backend: time jumps from event to event, and jobs advance with what is true.
//!
//! At one instant jobs end first, then nodes go down or up, then jobs arrive, and then the policy is asked once.
//! A job's progress is settled only when something touches it, so an event costs what it changes. Every decision is
//! checked against the laws of [`Policy`](bellwether_core::policy::Policy) while it is carried out.

mod admission;
mod apply;
mod belief;
mod links;
mod outage;
mod present;
mod record;
mod together;
mod truths;

use std::collections::BTreeMap;
use std::sync::Arc;

use bellwether_core::cluster::{Allocation, Batch, ClusterView, JobId, JobView, NodeId};
use bellwether_core::policy::{Backend, Changes, Decision, Fault, PolicyInput};
use bellwether_core::prediction::StepModel;
use bellwether_des::{Queue, Streams, Ticket};
use bellwether_model::early_end::Ends;

use crate::trace::Entry;
use admission::Admitted;
pub use bellwether_core::knowledge::Knowledge;
pub use bellwether_model::early_end::EarlyTermination;
pub use outage::{Failures, Outage, Revocations};
pub use present::Fate;
pub use record::{JobRecord, Recording, SoFar, Span};

/// Idle decision points in a row, with no job running, after which the simulation is considered stuck.
const IDLE_MOMENTS: u32 = 10_000;
/// Moments in a row at which no job arrives or ends, after which none ever will: nodes fail faster than jobs restart.
const STALLED_MOMENTS: u32 = 5_000_000;

/// What happens in a simulated cluster beside what its policy decides.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// The cluster when it is empty.
    pub cluster: ClusterView,
    /// Outages of each node; empty, or one entry per node.
    pub outages: Vec<Option<Outage>>,
    /// What a policy knows of the work that remains.
    pub knowledge: Knowledge,
    /// Which jobs end before their nominal work is done.
    pub early_termination: Option<EarlyTermination>,
    /// How jobs ended so far, by their model: of these a policy is told what is to be expected, unless they have a
    /// deadline.
    pub early_ends: BTreeMap<String, Ends>,
    /// Work since the last multiple of this many seconds of progress is lost with a node; `None`: nothing is.
    pub checkpoint_s: Option<f64>,
    /// Seconds without progress that a job pays at its first start; what later ones cost is
    /// [`ClusterView::restart_s`].
    pub start_s: f64,
    /// Policies are asked only at multiples of this many seconds after the first arrival, as those that decide in
    /// rounds; `None`: whenever something has changed.
    pub round_s: Option<f64>,
    /// Whether jobs that span several nodes share the nodes' links, and slow each other down there.
    pub shared_links: bool,
    /// Decides every draw.
    pub seed: u64,
    /// Keep who held what when, for pictures.
    pub keep_spans: bool,
    /// Add up, after every event, what all jobs hold on every node; what a decision takes is checked in any case.
    pub audit: bool,
}

impl Scenario {
    /// A cluster where nothing fails and all is known.
    pub fn new(cluster: ClusterView) -> Scenario {
        Scenario {
            cluster,
            outages: Vec::new(),
            knowledge: Knowledge::Exact,
            early_termination: None,
            early_ends: BTreeMap::new(),
            checkpoint_s: None,
            start_s: 0.0,
            round_s: None,
            shared_links: false,
            seed: 0,
            keep_spans: false,
            audit: false,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// The job has done its work, if nothing changed since this was scheduled.
    Completion(JobId),
    /// Its statistical efficiency changes.
    Efficiency(JobId),
    /// Its workers are kept together in another way from now on.
    Switch(JobId),
    /// It finds no memory beside the job that it was put beside.
    NoRoom(JobId),
    NodeDown(NodeId),
    NodeUp(NodeId),
}

/// What is true of a job and hidden from the policy.
#[derive(Debug, Clone, Copy)]
struct Truth {
    /// Work in all.
    work: f64,
    /// Work that its author declared.
    nominal: f64,
    /// Work after which it goes on in another way.
    switch_at: Option<f64>,
    /// Its next own event.
    ticket: Option<Ticket>,
    /// Whether it was put beside another job, and not another one beside it.
    is_guest: bool,
}

/// What a job held when a decision first touched it.
#[derive(Debug, Clone)]
struct Before {
    allocation: Allocation,
    batch: Option<Batch>,
    beside: Option<JobId>,
    /// Whether the decision names it, and not only one that shares its devices.
    is_named: bool,
}

/// A cluster that is simulated event by event.
pub struct World<'a> {
    entries: &'a [Entry],
    /// Jobs that were there when it began; those of `entries` are numbered after them.
    present: present::Present,
    /// Whether nothing more will happen.
    is_over: bool,
    truth: &'a dyn StepModel,
    scenario: &'a Scenario,
    streams: Streams,
    now_s: f64,
    view: ClusterView,
    changes: Changes,
    queue: Queue<Event>,
    next_arrival: usize,
    truths: truths::Truths,
    /// Jobs that this decision touched, with what they held before it.
    touched: BTreeMap<JobId, Before>,
    outages: outage::Outages,
    admission: admission::Admission,
    links: links::Links,
    idle_moments: u32,
    stalled_moments: u32,
    running: u32,
    /// What went wrong between two decisions.
    fault: Option<Fault>,
    recording: Recording,
}

impl<'a> World<'a> {
    /// The jobs of `entries` (in order of arrival) on the cluster of `scenario`, advancing as `truth` says.
    ///
    /// # Panics
    ///
    /// When `entries` are not in order.
    pub fn new(entries: &'a [Entry], truth: &'a dyn StepModel, scenario: &'a Scenario) -> World<'a> {
        let sorted = entries.is_sorted_by(|a, b| a.job.arrival_s <= b.job.arrival_s);
        assert!(sorted, "a trace is in order of arrival");
        // The clock begins with the first arrival: dates count from 1970, and failures before the first arrival do not
        // matter.
        let begin_s = entries.first().map_or(0.0, |entry| entry.job.arrival_s);
        World::empty(begin_s, entries, truth, scenario)
    }

    fn empty(
        begin_s: f64,
        entries: &'a [Entry],
        truth: &'a dyn StepModel,
        scenario: &'a Scenario,
    ) -> World<'a> {
        let streams = Streams::new(scenario.seed);
        let mut queue = Queue::new();
        let outages = outage::Outages::new(&scenario.outages, &streams, &mut queue, begin_s);
        let devices = scenario.cluster.devices(None);
        World {
            entries,
            present: present::Present::default(),
            is_over: false,
            truth,
            scenario,
            streams,
            now_s: begin_s,
            view: scenario.cluster.clone(),
            changes: Changes::default(),
            queue,
            next_arrival: 0,
            truths: truths::Truths::default(),
            touched: BTreeMap::new(),
            outages,
            admission: admission::Admission::default(),
            links: links::Links::new(scenario.shared_links, &scenario.cluster),
            idle_moments: 0,
            stalled_moments: 0,
            running: 0,
            fault: None,
            recording: Recording::new(entries.len(), devices, scenario.keep_spans, begin_s),
        }
    }

    /// What happened; jobs that are still there count as unfinished.
    pub fn into_recording(mut self) -> Recording {
        for (&id, seen) in &self.view.jobs {
            self.recording.unfinished(id, seen, self.now_s);
        }
        self.recording.close(self.now_s);
        self.recording
    }

    /// The account so far: jobs that are still there have no end in it, and have not held what they hold.
    pub fn so_far(&self) -> SoFar<'_> {
        SoFar { entries: self.entries, jobs: &self.view.jobs, recording: &self.recording, now_s: self.now_s }
    }

    fn time_of_next(&self) -> Option<f64> {
        let arrival_s = self.entries.get(self.next_arrival).map(|entry| entry.job.arrival_s);
        let event_s = self.queue.next_time().filter(|_| arrival_s.is_some() || !self.view.jobs.is_empty());
        match (arrival_s, event_s) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// The first moment from `time_s` on at which a policy may be asked.
    fn moment(&self, time_s: f64) -> f64 {
        let Some(round_s) = self.scenario.round_s else { return time_s };
        let begin_s = self.entries.first().map_or(0.0, |entry| entry.job.arrival_s);
        let rounds = (time_s - begin_s) / round_s;
        // What is a round's end but for rounding is one.
        let whole = if (rounds - rounds.round()).abs() < 1e-9 { rounds.round() } else { rounds.ceil() };
        (begin_s + whole * round_s).max(time_s)
    }

    /// Lets everything happen that happens at `now_s`.
    fn happen(&mut self) {
        let mut later = Vec::new();
        while self.queue.next_time().is_some_and(|time_s| time_s <= self.now_s) {
            let Some((_, event)) = self.queue.pop() else { break };
            match event {
                Event::Completion(id) => self.complete(id),
                other => {
                    if let Event::Efficiency(id) | Event::Switch(id) | Event::NoRoom(id) = other
                        && let Some(truth) = self.truths.get_mut(id)
                    {
                        truth.ticket = None;
                    }
                    later.push(other);
                }
            }
        }
        self.changes.ended.sort_unstable_by_key(|(id, _)| *id);
        for event in later {
            match event {
                // Where a job that shared its devices has ended, it has another event now.
                Event::Efficiency(id) | Event::Switch(id) | Event::NoRoom(id)
                    if self.truths.get(id).is_none_or(|truth| truth.ticket.is_some()) => {}
                Event::Efficiency(id) => self.revise(id),
                Event::Switch(id) => self.switch(id),
                Event::NoRoom(id) => self.expel(id),
                Event::NodeDown(node) => self.node_down(node),
                Event::NodeUp(node) => self.node_up(node),
                Event::Completion(_) => {}
            }
        }
        while let Some(entry) = self.entries.get(self.next_arrival) {
            if entry.job.arrival_s > self.now_s {
                break;
            }
            let id = JobId(self.present.jobs + self.next_arrival as u32);
            self.next_arrival += 1;
            self.arrive(id, entry);
        }
    }

    fn complete(&mut self, id: JobId) {
        let Some(mut seen) = self.view.jobs.remove(&id) else { return };
        self.links.touch(id);
        self.truths.remove(id);
        self.present.ended(id);
        self.running -= 1;
        match seen.beside {
            Some(other) => self.leave_alone(other),
            None => self.view.release(&seen.allocation),
        }
        self.recording.ended(id, &seen, self.now_s);
        // What it held stays in its last view, so that a policy can follow.
        (seen.done, seen.remaining) = (seen.done(self.now_s), seen.remaining(self.now_s));
        seen.executed_s = seen.executed_s(self.now_s);
        seen.device_s = seen.device_s(self.now_s);
        (seen.allocated_s, seen.rate) = (self.now_s, 0.0);
        self.changes.ended.push((id, seen));
    }

    fn arrive(&mut self, id: JobId, entry: &Entry) {
        let Admitted { rate, widest, only } =
            match self.admission.of(&entry.job, &self.scenario.cluster, self.truth) {
                Ok(admitted) => admitted,
                Err(why) => return self.recording.refused(id, why.to_string(), self.now_s),
            };
        let mut job = entry.job.clone();
        if let Some(types) = only {
            Arc::make_mut(&mut job).device_types = types;
        }
        if job.max_devices > widest {
            Arc::make_mut(&mut job).max_devices = widest;
        }
        let scenario = self.scenario;
        // A duration holds on the devices that its author asked for; the model says how much work that is.
        let is_work = !entry.is_duration || self.truth.is_relative();
        let nominal = if is_work { entry.work } else { entry.work * rate };
        let law = scenario.early_termination;
        let part = self.present.part(id);
        let part = part.or_else(|| {
            law.map(|law| law.fraction(&mut self.streams.stream("early termination", u64::from(id.0))))
        });
        let work = nominal * part.unwrap_or(1.0);
        let remaining = belief::of_new(scenario, &job, (work, nominal), &self.streams, id);
        let switch_at = job.switch.as_ref().map(|switch| switch.at * nominal);
        self.truths.insert(id, Truth { work, nominal, switch_at, ticket: None, is_guest: false });
        let seen = JobView::waiting(job, self.now_s, remaining);
        self.recording.arrived(id, &seen, work / rate);
        self.view.jobs.insert(id, seen);
        self.changes.arrived.push(id);
    }

    /// Lets time pass until the policy is to be asked; `false` if it never will be again.
    fn turn(&mut self, wakeup_s: Option<f64>) -> Result<bool, Fault> {
        self.changes.clear();
        if self.present.are_over() {
            return Ok(false);
        }
        if std::mem::take(&mut self.present.begins) {
            self.changes.arrived.extend(self.view.jobs.keys());
            return Ok(true);
        }
        let mut asked_s = wakeup_s.map(|wakeup_s| self.moment(wakeup_s));
        // A moment at which jobs were only refused is none for the policy.
        loop {
            let event_s = self.time_of_next();
            let wakeup_s = asked_s.filter(|_| event_s.is_some() || !self.view.jobs.is_empty());
            let time_s = match (event_s, wakeup_s) {
                (Some(event_s), Some(wakeup_s)) => event_s.min(wakeup_s),
                (Some(time_s), None) | (None, Some(time_s)) => time_s,
                (None, None) => return Ok(false),
            };
            self.now_s = self.now_s.max(time_s);
            self.happen();
            self.share_links()?;
            if let Some(fault) = self.fault.take() {
                return Err(fault);
            }
            self.tell_unheard();
            let woken = wakeup_s.is_some_and(|wakeup_s| wakeup_s <= self.now_s);
            let no_more = self.next_arrival == self.entries.len();
            let moved = !self.changes.ended.is_empty() || !self.changes.arrived.is_empty();
            // A policy that is woken while a node is repaired waits for something.
            let nothing_comes = self.queue.is_empty() || !self.changes.nodes.is_empty();
            let idle = self.running == 0 && no_more && !moved;
            self.idle_moments = if idle { self.idle_moments + u32::from(nothing_comes) } else { 0 };
            self.stalled_moments = if moved { 0 } else { self.stalled_moments + 1 };
            if self.idle_moments > IDLE_MOMENTS || self.stalled_moments > STALLED_MOMENTS {
                return Ok(false);
            }
            if !woken && !self.changes.is_empty() {
                let moment_s = self.moment(self.now_s);
                if moment_s > self.now_s {
                    asked_s = Some(asked_s.map_or(moment_s, |asked_s| asked_s.min(moment_s)));
                    continue;
                }
            }
            if woken || !self.changes.is_empty() {
                return Ok(true);
            }
        }
    }
}

impl Backend for World<'_> {
    fn next<'a>(
        &'a mut self,
        wakeup_s: Option<f64>,
        model: &'a dyn StepModel,
    ) -> Result<Option<PolicyInput<'a>>, Fault> {
        self.is_over = !self.turn(wakeup_s)?;
        let World { now_s, view, changes, .. } = self;
        Ok((!self.is_over).then_some(PolicyInput { now_s: *now_s, view, changes, model }))
    }

    fn wants_expectations(&self) -> bool {
        false
    }

    fn apply(&mut self, decision: Decision) -> Result<(), Fault> {
        for action in decision.actions {
            self.carry_out(action)?;
        }
        self.settle_touched()?;
        self.share_links()?;
        if self.scenario.audit { self.audit() } else { Ok(()) }
    }
}
