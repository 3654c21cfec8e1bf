//! Jobs with machines of their own, which a provider gives: accepted, begun at once, and let go.

use std::net::SocketAddr;

use bellwether_core::InputError;
use bellwether_core::cluster::JobId;
use bellwether_core::job::WorkerRange;
use bellwether_core::policy::Fault;
use bellwether_session::kind;

use super::requests::{check_wishes, refused, steps_of};
use super::{Engine, Live};
use crate::clock::Clock;
use crate::ledger::{Entry, Submitted};
use crate::provision::Provision;
use crate::request::{Refusal, RefusalKind, Submission};
use crate::runner::JobRunner;
use crate::state::Record;

impl<C: JobRunner, T: Clock> Engine<C, T> {
    /// What a submission becomes that takes none of the slots, if it can be accepted.
    pub(super) fn admit_elsewhere(
        &self,
        submission: Submission,
        provision: Provision,
    ) -> Result<Submitted, Refusal> {
        let invalid = |error| refused(RefusalKind::Invalid, error);
        if let Some(taken) = provision.listen.and_then(|address| self.listens_at(address)) {
            let error = InputError::new("listen", format!("job `{taken}` listens at that address"));
            return Err(invalid(error.hint("name another port, or port 0 where the machines may reach any")));
        }
        if self.state.machine.pods {
            let error = InputError::new("provision", "the operator finds places for its pods itself");
            return Err(invalid(error.hint("submit the job without it")));
        }
        check_alone(&submission).map_err(invalid)?;
        let Submission { job, name, weight, task, key, user, .. } = submission;
        let (job, provision) = provision.checked(job).map_err(invalid)?;
        let name = self.name_of(name, &job)?;
        steps_of(&job, task).map_err(invalid)?;
        check_wishes(weight, None).map_err(invalid)?;
        let workers = provision.workers();
        let promised_s = provision.plan.constraints.deadline_s;
        Ok(Submitted {
            id: self.state.next_job(),
            deadline_s: promised_s.map(|s| self.now_s() + s * self.state.time_scale),
            kind: kind::of(&job),
            name,
            workers: WorkerRange { min: workers, max: workers },
            weight,
            task,
            servers: 0,
            profiled: Vec::new(),
            device_types: Vec::new(),
            ways: Vec::new(),
            profile_first: false,
            key,
            queue: None,
            user,
            provision: Some(provision),
            job: job.into_job(),
        })
    }

    /// The job that has not ended and listens at this address.
    fn listens_at(&self, address: SocketAddr) -> Option<&str> {
        let of = |record: &Record| record.submitted.provision.as_ref().and_then(|provision| provision.listen);
        let open = self.state.jobs.values().filter(|record| record.end.is_none());
        let mut same = open.filter(|record| address.port() != 0 && of(record) == Some(address));
        same.next().map(|record| record.submitted.name.as_str())
    }

    /// Coordinators that were there when the last daemon died are taken over; what is over gives its machines back.
    pub(super) fn adopt_elsewhere(&mut self) -> Result<(), Fault> {
        let mut over = Vec::new();
        let provisioned = self.state.jobs.iter().filter(|(_, record)| record.submitted.provision.is_some());
        let mut begun = Vec::new();
        for (job, record) in provisioned {
            match record.obtaining {
                true => begun.push((*job, record.leaving, record.elsewhere.is_some())),
                false => over.push(self.options.folder.join(&record.submitted.name)),
            }
        }
        for (job, is_leaving, is_wanted) in begun {
            match is_wanted && !is_leaving {
                true => self.order_elsewhere(job),
                false => self.order_leave(job, 1.0)?,
            }
        }
        if !over.is_empty() {
            self.runner.release(over);
        }
        Ok(())
    }

    /// Lets those begin that should run, and those leave that should not.
    pub(super) fn obtain(&mut self) -> Result<(), Fault> {
        for job in self.state.active.elsewhere.clone() {
            let Some(record) = self.state.jobs.get(&job) else { continue };
            let (is_wanted, is_obtaining) = (record.elsewhere.is_some(), record.obtaining);
            let now = self.clock.elapsed();
            let live: &mut Live = self.live.entry(job).or_default();
            let is_early = live.not_before.is_some_and(|time| now < time);
            match live.order {
                Some((workers, speed)) if !is_wanted && workers > 0 => self.order_leave(job, speed)?,
                None if is_wanted && !is_early && self.state.unsettled.is_empty() => {
                    if !is_obtaining {
                        self.write(Entry::Obtaining { job })?;
                    }
                    // A reader of the ledger must know of machines before there are any.
                    self.commit()?;
                    self.order_elsewhere(job);
                }
                // Its coordinator failed, and before it was tried again the wish was withdrawn: its machines are left.
                None if !is_wanted && is_obtaining => self.order_leave(job, 1.0)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn order_elsewhere(&mut self, job: JobId) {
        let workers = self.state.jobs.get(&job).and_then(|record| record.submitted.provision.as_ref());
        if let Some(workers) = workers.map(Provision::workers) {
            self.order_on(job, workers, 1.0, &[]);
        }
    }

    /// Gives back what a job holds that no process leads any more, if it has machines of its own.
    pub(super) fn release(&mut self, job: JobId) {
        let of = |record: &Record| record.submitted.provision.as_ref().map(|_| record.submitted.name.clone());
        if let Some(name) = self.state.jobs.get(&job).and_then(of) {
            self.runner.release(vec![self.options.folder.join(name)]);
        }
    }
}

/// Refuses what only means something where slots are shared.
fn check_alone(submission: &Submission) -> Result<(), InputError> {
    let Submission { workers, deadline_s, profile, rates, protocols, servers, profile_first, queue, .. } =
        submission;
    let said = [
        ("workers", workers.is_some()),
        ("deadline", deadline_s.is_some()),
        ("profile", profile.is_some() || !rates.is_empty()),
        ("profile_first", *profile_first),
        ("protocols", !protocols.is_empty()),
        ("servers", servers.is_some()),
        ("queue", queue.is_some()),
    ];
    let Some((what, _)) = said.into_iter().find(|(_, is_said)| *is_said) else { return Ok(()) };
    let error = InputError::new(what, "the job has machines of its own, which its plan chose");
    Err(error.hint(match what {
        "deadline" | "workers" => "leave it out: the plan says it",
        _ => "leave it out: it is about slots that jobs share",
    }))
}
