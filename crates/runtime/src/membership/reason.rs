//! Why a membership changed, in a type and in words.

use super::WorkerId;

/// Why the coordinator changed the membership: the reason in the journal.
#[derive(Debug, Clone, PartialEq)]
pub enum Reason {
    /// The first membership.
    Formed,
    /// A worker went away without a word.
    Crash {
        /// Who.
        worker: WorkerId,
        /// The evidence.
        evidence: String,
    },
    /// Two living workers lost their connection.
    Link {
        /// What broke.
        evidence: String,
    },
    /// The coordinator came back and found its workers waiting.
    Reattached,
    /// No worker was left; the state comes from a checkpoint.
    Restored {
        /// Steps in the checkpoint.
        step: u64,
    },
    /// The number of workers moves towards the one wanted.
    Resize {
        /// Workers wanted.
        wanted: u32,
    },
    /// The virtual nodes are shared out again, by the speeds of the workers.
    Speeds,
    /// An update covers another number of steps.
    Batch {
        /// This many from now on.
        accumulation: u32,
    },
    /// A worker asked to leave.
    Leave {
        /// Who.
        worker: WorkerId,
    },
    /// Newcomers begin to receive state.
    Shadow,
    /// A worker that was still joining went away.
    JoinerLost,
    /// A slow worker pauses.
    Pause {
        /// Who.
        worker: WorkerId,
    },
    /// The next steps are done by another protocol.
    Protocol {
        /// That one.
        next: String,
    },
    /// A verdict ends the run.
    EarlyEnd,
    /// The run was asked to stop.
    Stop,
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Reason::Formed => write!(f, "the first workers are ready"),
            Reason::Crash { worker, evidence } => write!(f, "worker {worker} is lost: {evidence}"),
            Reason::Link { evidence } => write!(f, "a connection between workers broke: {evidence}"),
            Reason::Reattached => write!(f, "the coordinator came back"),
            Reason::Restored { step } => write!(f, "no worker was left; restored from step {step}"),
            Reason::Resize { wanted: 1 } => write!(f, "1 worker is wanted"),
            Reason::Resize { wanted } => write!(f, "{wanted} workers are wanted"),
            Reason::Batch { accumulation: 1 } => write!(f, "an update covers 1 step"),
            Reason::Batch { accumulation } => write!(f, "an update covers {accumulation} steps"),
            Reason::Speeds => write!(f, "the work is shared by the speeds of the workers"),
            Reason::Leave { worker } => write!(f, "worker {worker} asked to leave"),
            Reason::Shadow => write!(f, "newcomers begin to receive state"),
            Reason::JoinerLost => write!(f, "a joining worker is lost"),
            Reason::Pause { worker } => write!(f, "worker {worker} pauses"),
            Reason::Protocol { next } => write!(f, "the protocol changes to {next}"),
            Reason::EarlyEnd => write!(f, "the run ends here, as was decided"),
            Reason::Stop => write!(f, "the run was asked to stop"),
        }
    }
}
