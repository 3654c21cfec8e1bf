//! The all-reduce of one step: every member's partial sums, added along the canonical tree.
//!
//! # Protocol
//!
//! Every step each member sends every peer one `Control` frame with its control bytes. The sums
//! follow in one of two ways, which all sides derive from the same plan:
//!
//! - *Small* vectors: each member sends all its partial sums to every peer, control bytes and sums in
//!   one write, and every receiver adds them up itself: one hop.
//! - *Bulk*: each member owns one segment of the vector. It receives the partial sums of its segment from all members,
//!   piece by piece, adds up a piece as soon as it has come from all of them, writes it into `out` and sends it on at
//!   once. With aligned ranges every member sends `2(W-1)/W` times the vector, as in a ring, but everything is two hops
//!   from everywhere.
//!
//! Either way the additions are those of the canonical tree, never in the order of arrival.
//!
//! *Shadows* hold no virtual nodes: they receive what members receive and send nothing. A shadow that
//! dies costs the members nothing but a line in the outcome.
//!
//! # No element of `out` is written too early
//!
//! `out` keeps the last step's result until the new one replaces it. An element is written only when every member's
//! contribution to its piece has been sent: in small mode they are all here; in bulk mode the piece comes from its
//! owner, who had them all. As a member contributes to a step only when it has finished the one before, a member that
//! overwrites an old result knows that all members have it.
//!
//! # Why it cannot dead-lock
//!
//! All sockets are nonblocking and served by one thread, so what one connection does never keeps a member from serving
//! another. A member stops reading from a peer for two reasons only: the peer's data of this step are complete, or the
//! peer is a fixed number of pieces ahead of the piece that is reduced next. Look at the piece an owner reduces next,
//! and a member from whom it is missing. That member is not ahead, so the owner reads its connection. What lies before
//! the piece on that connection are contributions and results, which the owner takes at once; and what the member sends
//! are its own partial sums, which depend on no other member. So the piece arrives, every segment is reduced in the
//! end, every result becomes sendable, and is read by peers whose only reason to pause (being ahead) passes by the same
//! argument. Frames on one connection are sent whole, in turn; there is no circular wait.

mod exchange;
pub(crate) mod groups;
mod headers;
mod peer;
mod plan;
mod reduce;
mod route;
mod wake;

use thiserror::Error;

pub use bellwether_core::record::Traffic;

pub use crate::frame::{CONTROL_BYTES_MAX, Stamp};
pub use exchange::{Collective, Outcome};
pub use plan::{CollectivePlan, Member, PlanError, SHADOW_PATIENCE};
pub use wake::{WakeReceiver, Waker, wake_pair};

/// A collective did not finish. The connections of its epoch are not usable any more.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CollectiveError {
    /// A member hung up, its connection broke, or it broke the protocol.
    #[error("lost worker {worker}: {why}")]
    PeerLost {
        /// The worker's id.
        worker: u64,
        /// What was seen.
        why: String,
    },
    /// The waker was used.
    #[error("the collective was interrupted")]
    Interrupted,
    /// The operating system failed this worker itself.
    #[error("waiting for peers failed: {0}")]
    System(String),
}

#[cfg(test)]
mod tests;
