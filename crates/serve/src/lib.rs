//! Many jobs share one machine under any policy: `bellwether serve`.
//!
//! # How data flow
//!
//! ```text
//!  HTTP request ──► engine ──► ledger (one line per fact, on disk first)
//!                     │  ▲         │
//!                     │  │         └─► state ──► view ──► policy ──► decision ──► ledger
//!                     ▼  │
//!                    runner (a process per running job) ──► journal.jsonl, metrics.jsonl
//! ```
//!
//! The [`state`] is a pure fold of the [`ledger`]'s lines, and nothing else changes it. So a daemon that was killed is
//! where it was as soon as it has read its ledger, and a replay of the ledger sees what the policy saw.
//!
//! Each running job is coordinated by a process of its own, which does not notice when the daemon dies. The daemon
//! follows the files that it writes, and steers it over the control plane of [`bellwether_runtime`].

pub mod api;
pub mod belief;
pub mod clock;
pub mod connection;
pub mod daemon;
pub mod dashboard;
pub mod early_ends;
pub mod engine;
pub mod ledger;
pub mod loading;
pub mod local;
pub mod machine;
pub mod outlook;
mod private;
pub mod provision;
pub mod replay;
pub mod request;
pub mod runner;
pub mod secret;
pub mod snapshot;
pub mod state;
pub mod sweep;
pub mod tls;
