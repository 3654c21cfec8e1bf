//! Carrying out decisions: every law is checked, then progress is settled and events are moved.

use std::sync::Arc;

use bellwether_core::cluster::{JobId, JobView};
use bellwether_core::policy::{Action, Fault};
use bellwether_core::prediction::{JobDescription, PredictError};

use super::{Before, Event, Truth, World, belief, together};

/// No simulation goes on for longer: thirty billion years, where a time is still known to some minutes.
const LATEST_S: f64 = 1e18;

impl World<'_> {
    pub(super) fn carry_out(&mut self, action: Action) -> Result<(), Fault> {
        match action {
            Action::Allocate { job: id, allocation, batch, beside, way, .. } => {
                let Some(seen) = self.view.jobs.get(&id) else {
                    return Err(broken(id, "is given devices, and is not there"));
                };
                match beside {
                    None => self.view.check(seen, &allocation),
                    Some(other) => self.view.check_beside(id, &allocation, other),
                }
                .map_err(|what| Fault::Broken(format!("job `{}` {what}", seen.job.description.name)))?;
                self.touch(id, true);
                self.view.vacate(id);
                match beside {
                    None => self.view.take(&allocation),
                    Some(other) => self.join(id, other),
                }
                let seen = self.view.jobs.get_mut(&id).expect("it was there just now");
                (seen.allocation, seen.batch, seen.way) = (allocation, batch, way);
                Ok(())
            }
            Action::Refuse { job: id, why } => {
                match self.view.jobs.get(&id) {
                    Some(seen) if !seen.is_running() => {}
                    _ => return Err(broken(id, "is refused, and is not waiting")),
                }
                if self.touched.remove(&id).is_some_and(|before| !before.allocation.is_empty()) {
                    return Err(broken(id, "is stopped and refused by one decision"));
                }
                self.view.jobs.remove(&id);
                self.truths.remove(id);
                self.present.ended(id);
                self.recording.refused(id, why, self.now_s);
                Ok(())
            }
        }
    }

    /// Settles what this decision touched: progress with the old devices, cost of the change, next event.
    pub(super) fn settle_touched(&mut self) -> Result<(), Fault> {
        let touched = std::mem::take(&mut self.touched);
        for (id, Before { allocation: before, batch, beside, is_named }) in touched {
            let seen = self.view.jobs.get_mut(&id).expect("a touched job is there");
            if seen.allocation == before && (seen.batch, seen.beside) == (batch, beside) {
                continue;
            }
            self.recording.span(id, &before, seen, self.now_s);
            match (before.is_empty(), seen.allocation.is_empty()) {
                (true, false) => self.running += 1,
                (false, true) => self.running -= 1,
                _ => {}
            }
            if !before.is_empty() && seen.allocation.is_empty() {
                self.recording.preempted(id);
            }
            self.links.touch(id);
            let is_start = seen.started_s.is_none() && seen.is_running();
            let (now_beside, begins_s) = (std::mem::replace(&mut seen.beside, beside), seen.progress_s);
            seen.turn(&before, self.now_s, self.view.restart_s);
            seen.beside = now_beside;
            let begins = before.is_empty() && seen.is_running();
            if let Some(start_s) = self.present.start_s(id).filter(|_| begins) {
                // Whether it trains for the first time or goes on after a stop: its processes start.
                seen.progress_s = self.now_s + start_s;
            } else if is_start {
                seen.progress_s += self.scenario.start_s;
            } else if seen.allocation == before && seen.beside != beside {
                together::go_on(seen, begins_s, is_named.then_some(self.view.restart_s));
            }
            self.advance(id)?;
        }
        Ok(())
    }

    /// Sets a job's speed, what is believed of it, and its next event, from its present state.
    pub(super) fn advance(&mut self, id: JobId) -> Result<(), Fault> {
        let truth = self.truths.get_mut(id).expect("a job in the view has its truth");
        if let Some(ticket) = truth.ticket.take() {
            self.queue.cancel(ticket);
        }
        let Truth { work, nominal, switch_at, .. } = *truth;
        let rate = match self.view.jobs.get(&id) {
            Some(seen) if seen.is_running() => self.rate(id, seen)?,
            _ => 0.0,
        };
        let seen = self.view.jobs.get_mut(&id).expect("it was there just now");
        seen.rate = rate;
        belief::renew(seen, (work, nominal), self.scenario);
        if !seen.is_running() {
            return Ok(());
        }
        if rate == 0.0 && seen.beside.is_some() {
            let ticket = self.queue.schedule(seen.progress_s.max(self.now_s), Event::NoRoom(id));
            if let Some(truth) = self.truths.get_mut(id) {
                truth.ticket = Some(ticket);
            }
            return Ok(());
        }
        let end_s = seen.progress_s + (work - seen.done).max(0.0) / rate;
        let description = &seen.job.description;
        let change = self.truth.efficiency_changes_at(description, seen.done).filter(|&at| at > seen.done);
        let change_s =
            change.map(|at| seen.progress_s + (at - seen.done) / rate).filter(|&at_s| at_s < end_s);
        let switch_s = switch_at.map(|at| seen.progress_s + (at - seen.done).max(0.0) / rate);
        let (time_s, event) = match (change_s, switch_s.filter(|&at_s| at_s < end_s)) {
            (Some(time_s), None) => (time_s, Event::Efficiency(id)),
            (Some(time_s), Some(switch_s)) if time_s < switch_s => (time_s, Event::Efficiency(id)),
            (_, Some(switch_s)) => (switch_s, Event::Switch(id)),
            (None, None) => (end_s, Event::Completion(id)),
        };
        if time_s.is_nan() || time_s > LATEST_S {
            let what = format!("job `{}` would end at {end_s:e} s, or never", description.name);
            return Err(Fault::World(what));
        }
        let ticket = self.queue.schedule(time_s.max(self.now_s), event);
        if let Some(truth) = self.truths.get_mut(id) {
            truth.ticket = Some(ticket);
        }
        Ok(())
    }

    /// Adds up what all jobs hold on every node.
    pub(super) fn audit(&self) -> Result<(), Fault> {
        let mut held = vec![0; self.view.nodes.len()];
        for (id, seen) in &self.view.jobs {
            if seen.beside.is_some_and(|other| !self.is_pair(*id, other)) {
                return Err(broken(*id, "shares devices with one that does not share them with it"));
            }
            // Two that share devices hold them once.
            if seen.beside.is_none_or(|other| *id < other) {
                seen.allocation
                    .shares()
                    .iter()
                    .for_each(|share| held[share.node.0 as usize] += share.devices);
            }
        }
        let wrong = self
            .view
            .nodes
            .iter()
            .zip(held)
            .position(|(node, held)| node.free + held != node.devices || (held > 0 && !node.up));
        match wrong {
            None if !self.links.are_those_of(&self.view) => {
                Err(Fault::Broken("the jobs that share links are not those that span nodes".into()))
            }
            Some(node) => {
                Err(Fault::Broken(format!("node {node}: what is held and what is free is not what there is")))
            }
            None => Ok(()),
        }
    }

    /// Work per second, in truth; 0 where it finds no memory.
    fn rate(&self, id: JobId, seen: &JobView) -> Result<f64, Fault> {
        let way = seen.way();
        let configuration = self.view.configuration_in(way, &seen.job, &seen.allocation, seen.batch);
        let description = &seen.job.description;
        let unknown = |why: PredictError| speed_unknown(description, &why);
        let prediction = self.truth.predict(description, &configuration).map_err(unknown)?;
        let efficiency = match seen.batch {
            Some(batch) => self.truth.efficiency(description, batch.samples, seen.done),
            None => 1.0,
        };
        let alone = prediction.examples_per_s * efficiency * self.links.kept(id);
        match seen.beside {
            None => Ok(alone),
            Some(other) => Ok(alone * self.kept(id, &configuration, other).map_err(unknown)?),
        }
    }

    /// A job's efficiency has changed.
    pub(super) fn revise(&mut self, id: JobId) {
        let Some(seen) = self.view.jobs.get(&id) else { return };
        let at = self.truth.efficiency_changes_at(&seen.job.description, seen.done);
        self.reach(id, at);
    }

    /// A job's workers are kept together in another way, the first of those that its author left for the rest.
    pub(super) fn switch(&mut self, id: JobId) {
        let Some(seen) = self.view.jobs.get_mut(&id) else { return };
        let job = Arc::make_mut(&mut seen.job);
        if let Some(switch) = job.switch.take() {
            (job.ways, seen.way) = (switch.ways, None);
        }
        self.links.touch(id);
        let at = self.truths.get_mut(id).and_then(|truth| truth.switch_at.take());
        self.reach(id, at);
    }

    /// A job goes on otherwise from here, where its work is `at`.
    fn reach(&mut self, id: JobId, at: Option<f64>) {
        let Some(seen) = self.view.jobs.get_mut(&id) else { return };
        // The event came just there: rounding must not leave it short.
        let reached = seen.done(self.now_s).max(at.unwrap_or(0.0));
        let gained = reached - seen.done;
        seen.done = reached;
        seen.remaining = seen.remaining.map(|work| (work - gained).max(0.0));
        seen.progress_s = self.now_s;
        self.changes.revised.push(id);
        if let Err(fault) = self.advance(id) {
            self.fault.get_or_insert(fault);
        }
    }
}

pub(super) fn speed_unknown(description: &JobDescription, why: &PredictError) -> Fault {
    Fault::World(format!("job `{}` runs where its speed is not known: {why}", description.name))
}

fn broken(id: JobId, what: &str) -> Fault {
    Fault::Broken(format!("job number {} {what}", id.0))
}
