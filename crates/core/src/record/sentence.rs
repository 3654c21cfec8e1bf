//! Events in words, for people who follow a run.

use super::{Decision, Event};

impl Event {
    /// What a person would want to hear of it, if anything.
    pub fn sentence(&self) -> Option<String> {
        Some(match self {
            Event::Crashed { worker, step, evidence, .. } => {
                format!("step {step}: worker {worker} is lost: {evidence}")
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
                    format!("step {step}: held-out loss {loss:.4}, accuracy {:.2} %", accuracy * 100.0)
                }
                None => format!("step {step}: held-out loss {loss:.4}"),
            },
            Event::Decided(decision) => decision.sentence(),
            Event::Straggler { step, reason, .. } => format!("step {step}: {reason}"),
            Event::BatchChanged { step, from, to, learning_rate_factor, reason, .. } => {
                format!(
                    "step {step}: batch {from} → {to}, learning rate × {learning_rate_factor:.2} ({reason})"
                )
            }
            Event::CheckpointFailed { step, reason } => {
                format!("warning: the checkpoint of step {step} is not there: {reason}")
            }
            Event::Warning { message } => format!("warning: {message}"),
            Event::Refused { peer, reason } => format!("refused {peer}: {reason}"),
            Event::RolledBack { to } => format!("no worker is left with the state; going back to step {to}"),
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

/// Seconds with as many digits as a person needs.
fn brief(seconds: f64) -> String {
    if seconds < 1.0 { format!("{:.0} ms", seconds * 1e3) } else { format!("{seconds:.1} s") }
}
