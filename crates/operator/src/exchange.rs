//! What pods and the operator say to each other, over HTTP.
//!
//! ```text
//! coordinator ── POST files/{journal|metrics|log}?offset=N ─► the operator's copy of the run's folder
//!             ◄─ GET  files/{journal|metrics|log}?offset=N ── a folder that was lost is made from it
//! every pod   ◄─ GET  wish?known=V ────────────────────────── where the coordinator is, whether to stop, …
//! a script    ── POST report ───────────────────────────────► how fast it is
//! ```
//!
//! Pods cannot ask Kubernetes' API. All that they and the operator have in common is the job's token, a file in each
//! pod. It never travels: it signs. A request is signed over its method, path, query, pod and body; an answer over its
//! status, the request's signature and its body. Each request has a random word of its own, so no old answer fits a
//! new one. What is said is not encrypted; the token of the run's own connections, which are, cannot be found from it.
//!
//! The operator keeps no tokens: they follow from one key of its own ([`token_of`]).

mod client;
mod copy;
mod desk;
mod listen;
mod server;
mod sign;
mod wish;

#[cfg(test)]
mod tests;

pub use client::{Client, ClientError, Sent};
pub use desk::{Counts, Desk, News};
pub use listen::serve;
pub use server::{Exchange, JobSide, routes};
pub use sign::token_of;
pub use wish::{Member, Report, Wish};

/// Most bytes of a file that travel at once.
pub const CHUNK_BYTES: usize = 1 << 20;

/// How long a question for news may stay unanswered.
pub const LONGEST_POLL: std::time::Duration = std::time::Duration::from_secs(20);

/// What the operator has of a file; the answer to bytes that were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
struct Have {
    /// Bytes.
    have: u64,
    /// Some of those that were sent are not those that it has.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    differs: bool,
}

/// Whether this may be a job's name in paths: Kubernetes' uids are, and nothing that leads out of a folder is.
fn is_uid(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}
