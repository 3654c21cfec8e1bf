//! What reaches the coordinator over the control plane, turned into events of the state machine.

use std::time::Instant;

use bellwether_core::record::{Event as Journaled, RunFailure, RunOutcome};
use bellwether_core::words::count;

use super::slices::Slices;
use super::{MeasureLinks, REFUSAL_PERIOD, REFUSALS_MAX, Run, RunEvent, Session};
use crate::control::server::{Input, Outgoing, envelope, welcome};
use crate::control::{convert, generated as wire};
use crate::membership::coordinator::{End, Event};
use crate::membership::{FromWorker, ToWorker, WorkerId, WorkloadDescription, any_class, host};

/// Most characters of the reason of a verdict.
const REASON_CHARACTERS_MAX: usize = 500;

/// Most characters of a kernel class in the journal.
const CLASS_CHARACTERS_MAX: usize = 500;

impl Run {
    pub(super) fn input(&mut self, input: Input) {
        match input {
            Input::Opened { session, attach, outgoing } => self.opened(session, attach, outgoing),
            Input::Said(session, mut message) => {
                let Some(worker) = self.workers_by_session.get(&session).copied() else { return };
                if let FromWorker::Warmed(workload) = &mut message {
                    self.note_class(worker, workload);
                    if !self.meet(workload) {
                        return;
                    }
                }
                // Each worker's own account, before it is merged with the others'.
                if let FromWorker::Report(report) = &message
                    && !report.steps.is_empty()
                {
                    self.note_links(worker, &report.steps);
                    self.direct(RunEvent::Reported(worker, &report.steps));
                }
                if let FromWorker::SlicesWritten(written) = &message {
                    let written = written.clone();
                    // First the machine, which sends away who says what cannot be.
                    self.handle(Event::Said(worker, message));
                    return self.slices_written(worker, written);
                }
                self.handle(Event::Said(worker, message));
            }
            Input::Closed(session, why) => {
                if let Some(worker) = self.workers_by_session.remove(&session) {
                    self.sessions.remove(&worker);
                    self.links.remove(&worker);
                    self.classes.remove(&worker);
                    self.slices_lost(worker);
                    self.handle(Event::Gone(worker, why));
                }
            }
            Input::Scale(workers, answer) => {
                let nodes = self.options.job.batch.virtual_nodes;
                let accepted = (1..=nodes).contains(&workers);
                let message = if accepted {
                    format!("{} is on its way to {}", self.options.run, count(workers as usize, "worker"))
                } else {
                    format!("{workers} workers cannot share {nodes} virtual nodes; choose 1…{nodes}")
                };
                if accepted {
                    self.scale(workers, "control".into());
                    // A client that has the answer and then asks for the status sees one that includes the change.
                    self.show_now();
                }
                let _ = answer.send(wire::Reply { accepted, message });
            }
            Input::Verdict { step, ends, answer } => {
                let refusal = match self.options.job.stop.by_results() {
                    true => {
                        Some("the run's own results decide whether it goes on: its job has [stop]".into())
                    }
                    false => self.verdict(step, ends),
                };
                let accepted = refusal.is_none();
                let _ = answer.send(wire::Reply { accepted, message: refusal.unwrap_or_default() });
            }
            Input::Stop(answer) => {
                let message = format!("{} stops at the next step and leaves a checkpoint", self.options.run);
                let _ = answer.send(wire::Reply { accepted: true, message });
                self.stop("control");
            }
            Input::Signal(signal) => self.stop(signal.name()),
            Input::Refused { peer, reason } => self.refused(peer, reason),
        }
    }

    /// Notes who was sent away; of a flood only the beginning, so that strangers cannot fill the disk.
    fn refused(&mut self, peer: String, reason: String) {
        if self.refusals_since.elapsed() >= REFUSAL_PERIOD {
            if self.refusals > REFUSALS_MAX {
                let message = format!("{} more strangers were refused", self.refusals - REFUSALS_MAX);
                self.write(&Journaled::Warning { message });
            }
            (self.refusals_since, self.refusals) = (Instant::now(), 0);
        }
        self.refusals += 1;
        if self.refusals <= REFUSALS_MAX {
            self.write(&Journaled::Refused { peer, reason });
        }
    }

    pub(super) fn scale(&mut self, workers: u32, by: String) {
        self.write(&Journaled::ScaleRequested { workers, by });
        self.handle(Event::Scale(workers));
    }

    /// Lets the run go on after a step, or ends it there; why not, where that cannot be.
    pub(super) fn verdict(&mut self, step: u64, ends: Option<String>) -> Option<String> {
        // A line of the journal, and of a table.
        let ends = ends.map(|reason| {
            let line = reason.split_whitespace().collect::<Vec<_>>().join(" ");
            line.chars().take(REASON_CHARACTERS_MAX).collect::<String>()
        });
        let refusal = self.machine.verdict_refusal(step, ends.is_some());
        if refusal.is_none() {
            self.handle(Event::Verdict(step, ends));
            self.show_now();
        }
        refusal
    }

    pub(super) fn stop(&mut self, by: &str) {
        self.write(&Journaled::StopRequested { by: by.into() });
        self.handle(Event::Stop);
    }

    /// The first worker says what the workload is; the run ends if it cannot be this one.
    fn meet(&mut self, workload: &WorkloadDescription) -> bool {
        if self.order.is_some() {
            return true;
        }
        let learnt = self.learn_from_worker(workload);
        if let Err(error) = &learnt {
            let how = RunOutcome::Failed(RunFailure::Other(error.to_string()));
            self.end = Some(End { how, digest: None });
        }
        learnt.is_ok()
    }

    /// Writes down what a worker computes with where the run is open to any kernel class; it is held to the rest.
    fn note_class(&mut self, worker: WorkerId, workload: &mut WorkloadDescription) {
        if !self.options.job.is_open_to_any_class() {
            return;
        }
        let class: String = workload.fingerprint.chars().take(CLASS_CHARACTERS_MAX).collect();
        workload.fingerprint = any_class(&workload.fingerprint);
        if self.classes.get(&worker) != Some(&class) {
            self.classes.insert(worker, class.clone());
            self.write(&Journaled::KernelClass { worker, class });
        }
    }

    /// Whether a worker that listens here measures its link.
    fn measures_link(&self, address: &str) -> bool {
        match self.options.measure_links {
            MeasureLinks::Never => false,
            MeasureLinks::OfOtherMachines => {
                let data = self.planes.data.local_addr().to_string();
                host(address) != host(&data)
            }
            MeasureLinks::Profile => true,
        }
    }

    fn opened(&mut self, session: u64, attach: wire::Attach, outgoing: Outgoing) {
        if let Some(reason) = self.machine.refusal(attach.worker, attach.instance) {
            self.refused(format!("worker {}", attach.worker), reason.clone());
            // A client that is gone already needs no answer.
            let _ = outgoing.send(Ok(envelope(&ToWorker::Bye { reason, refused: true })));
            return;
        }
        let worker = if attach.worker == 0 { self.machine.new_worker() } else { attach.worker };
        let mut workload = match attach.workload.map(convert::read_workload) {
            Some(None) => {
                let reason = "its description of the workload makes no sense".to_string();
                return self.write(&Journaled::Refused { peer: format!("worker {worker}"), reason });
            }
            other => other.flatten(),
        };
        let job = serde_json::to_string(&self.options.job).expect("a job is plain data");
        let data_address = self.planes.data.local_addr().to_string();
        let (checkpoint_url, origin_url) = self.slices.as_ref().map(Slices::urls).unwrap_or_default();
        let first = wire::Welcome {
            worker,
            job,
            data_address,
            run: self.options.run.clone(),
            measure_link: !attach.server && self.measures_link(&attach.address),
            alternates: self.options.measure_links == MeasureLinks::Profile,
            checkpoint_url,
            origin_url,
        };
        if outgoing.send(Ok(welcome(first))).is_err() {
            return;
        }
        if let Some(workload) = &mut workload {
            self.note_class(worker, workload);
        }
        // One that looked for another coordinator does not warm up again.
        if workload.as_ref().is_some_and(|workload| !self.meet(workload)) {
            return;
        }
        let held = attach.held.map(|h| (h.epoch, h.step));
        let wire::Attach { address, process, instance, .. } = attach;
        let waited_s = self.seen.elapsed().as_secs_f64();
        let event = match attach.server {
            true => Event::ServerAttached { server: worker, address, process, instance, waited_s },
            false => Event::Attached { worker, address, process, instance, waited_s, held, workload },
        };
        // The old session, if any, belongs to a dead connection: its end no longer matters.
        if let Some(old) = self.sessions.remove(&worker) {
            self.workers_by_session.remove(&old.id);
        }
        self.take_back(worker);
        let actions = self.machine.handle(event, self.now_s());
        self.sessions.insert(worker, Session { id: session, outgoing });
        self.workers_by_session.insert(session, worker);
        self.act(actions);
    }
}
