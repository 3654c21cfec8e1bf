//! The control plane: gRPC between coordinator, workers, and the clients that steer a run.
//!
//! `proto/bellwether.proto` is the contract. `server` is the coordinator's end, [`client`] that of workers and of the
//! command line; `convert` translates between the wire and [`crate::membership`]. Messages of the wire stay in here:
//! others see the words of the membership, and [`Status`].

pub mod client;
// Decoders are fuzzed from outside; nothing else may use them there.
#[doc(hidden)]
pub mod convert;
#[doc(hidden)]
#[rustfmt::skip]
pub mod generated;
pub(crate) mod server;
mod status;

use std::time::Duration;

pub use crate::channel::Token;
pub use status::{Answer, Status, WorkerStatus};

/// Both ends ask each other this often whether they are there.
///
/// A connection whose packets vanish looks like one on which nothing is said. The coordinator notices a silent worker
/// much earlier, and so do the processes that wait for it.
pub(crate) const QUESTION: Duration = Duration::from_secs(5);

/// How long the answer may take: a coordinator may stand still for as long, and its workers go on.
pub(crate) const ANSWER: Duration = Duration::from_secs(15);
