//! Events in words, for people who follow a run.

use super::{Decision, EarlyEnd, Event, Mismatch};

impl Event {
    /// What a person would want to hear of it, if anything.
    pub fn sentence(&self) -> Option<String> {
        Some(match self {
            Event::Crashed { worker, step, evidence, .. } => {
                format!("step {step}: worker {worker} is lost: {evidence}")
            }
            Event::Late { .. } | Event::InTime { .. } => return self.lateness(),
            // A built-in model is there within a moment, which no reader needs to hear of.
            Event::WorkerWarm { worker, boot } if boot.importing_s > 0.0 => {
                format!("worker {worker} can train after {}", boot.sentence())
            }
            Event::Recovered { step, seconds, .. } => {
                format!("step {step}: training goes on after {:.0} ms", seconds * 1e3)
            }
            Event::Resized { step, from, to, stall_s, reason, .. } => {
                format!(
                    "step {step}: {from} → {to} workers, {:.1} ms at the boundary ({reason})",
                    stall_s * 1e3
                )
            }
            Event::Revoked { worker, step, notice_s, .. } => match notice_s {
                Some(notice_s) => {
                    format!("step {step}: the server of worker {worker} will be gone in {}", brief(*notice_s))
                }
                None => format!("step {step}: the server of worker {worker} is taken away"),
            },
            Event::Evaluated { step, loss, accuracy } => match accuracy {
                Some(accuracy) => {
                    format!("step {step}: held-out loss {}, accuracy {:.2} %", shown(*loss), accuracy * 100.0)
                }
                None => format!("step {step}: held-out loss {}", shown(*loss)),
            },
            Event::Decided(decision) => decision.sentence(),
            Event::Straggler { step, reason, .. } => format!("step {step}: {reason}"),
            Event::BatchChanged { step, from, to, learning_rate_factor, reason, .. } => {
                format!(
                    "step {step}: batch {from} → {to}, learning rate × {learning_rate_factor:.2} ({reason})"
                )
            }
            Event::Protocol { step, protocol, servers, stall_s, reason } => {
                let through = match servers {
                    0 => String::new(),
                    1 => " through 1 server".into(),
                    n => format!(" through {n} servers"),
                };
                format!("step {step}: {protocol}{through}, {:.1} ms for the change ({reason})", stall_s * 1e3)
            }
            Event::Mismatched(mismatch) => mismatch.sentence(),
            Event::Quarantined { worker, step, judge } => {
                format!("step {step}: worker {worker} is sent away: worker {judge} computed as the other did")
            }
            Event::Paused { worker, step } => format!("step {step}: worker {worker} pauses"),
            Event::ServerCrashed { server, shard, step, evidence } => {
                format!("step {step}: server {server} with shard {shard} is lost: {evidence}")
            }
            Event::ServerReplaced { server, shard, lost_updates, checkpoint, seconds } => {
                let loss = match checkpoint {
                    None => "nothing is lost".to_string(),
                    Some(step) => format!("its {lost_updates} updates since step {step} are lost"),
                };
                format!("server {server} holds shard {shard} after {:.0} ms; {loss}", seconds * 1e3)
            }
            Event::Stale { step, staleness, .. } => format!("step {step}: {staleness}"),
            Event::Verdict { step, ends } => {
                let end = EarlyEnd { step: *step, reason: ends.clone()? };
                format!("ended early: {end}")
            }
            Event::RolledBack { to } => format!("no worker is left with the state; going back to step {to}"),
            _ => return self.warning(),
        })
    }

    /// What a person should hear of it at any rate.
    fn warning(&self) -> Option<String> {
        Some(match self {
            Event::LimitReached { limit, trained_s, worker_s } => format!(
                "{limit} is reached after {} of training ({} of all workers); `bellwether resume` grants as much again",
                brief(*trained_s),
                brief(*worker_s)
            ),
            Event::CheckpointFailed { step, reason } => {
                format!("warning: the checkpoint of step {step} is not there: {reason}")
            }
            Event::OtherDataAccepted { before, now } => {
                format!(
                    "warning: the run goes on with other data or kernels, as was asked: {now}; before: {before}"
                )
            }
            Event::PlainTransport { reason } => {
                format!(
                    "warning: nothing is encrypted between the machines of this run, as was asked: {reason}"
                )
            }
            Event::FoundInCheckpoint { first, last } => {
                format!(
                    "steps {first}…{last} are in the checkpoint, and no line of the journal tells of them"
                )
            }
            Event::Restored { bytes } => {
                format!("the run's folder was lost; its journal is restored from a copy of {bytes} bytes")
            }
            Event::Cluster { message } => message.clone(),
            Event::Warning { message } => format!("warning: {message}"),
            Event::Refused { peer, reason } => format!("refused {peer}: {reason}"),
            _ => return None,
        })
    }
}

impl std::fmt::Display for EarlyEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "after step {}: {}", self.step, self.reason)
    }
}

impl Mismatch {
    /// It in a sentence.
    pub fn sentence(&self) -> String {
        let Mismatch { step, node, worker, checker, wrong } = self;
        let who = match worker == checker {
            true => format!("worker {worker} computed virtual node {node} twice, and not the same"),
            false => format!("workers {worker} and {checker} computed virtual node {node} differently"),
        };
        let blame = wrong.map_or(String::new(), |wrong| format!("; worker {wrong} was wrong"));
        format!("step {step}: {who}{blame}; nothing of the step was applied")
    }
}

impl Event {
    /// Who keeps the run waiting, or does so no more.
    fn lateness(&self) -> Option<String> {
        Some(match self {
            Event::Late { worker, step, doing, seconds, limit_s, next, .. } => format!(
                "step {step}: worker {worker} keeps the run waiting for {} (more than {}): {doing}; {next}",
                brief(*seconds),
                brief(*limit_s)
            ),
            Event::InTime { worker, seconds, .. } => {
                format!("worker {worker} got on by itself after {}", brief(*seconds))
            }
            _ => return None,
        })
    }
}

impl Decision {
    /// It in a sentence.
    pub fn sentence(&self) -> String {
        let Decision { by, step, workers, target, reason } = self;
        if *workers == 0 {
            return format!("{by}: {reason}");
        }
        let what =
            if target == workers { format!("{workers} stay") } else { format!("{workers} → {target}") };
        format!("step {step}: {by}: {what}: {reason}")
    }
}

/// A loss; a power of ten where it is a long number, as of a run that diverges.
fn shown(loss: f64) -> String {
    if loss.abs() < 1e5 { format!("{loss:.4}") } else { format!("{loss:.1e}") }
}

/// Seconds with as many digits as a person needs.
fn brief(seconds: f64) -> String {
    if seconds < 1.0 { format!("{:.0} ms", seconds * 1e3) } else { format!("{seconds:.1} s") }
}
