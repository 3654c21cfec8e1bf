//! The all-reduce of one step: every member's partial sums, added along the canonical tree.
//!
//! # Protocol
//!
//! Members are in groups of consecutive ranks ([`bellwether_core::groups`]). The first members of each group are its
//! *owners*; those at one place, one from each group, make up a *column*. Few members are one group, and then all of
//! them are owners.
//!
//! Every step each member sends its peers one `Control` frame with its control bytes, and its sums in one of two ways,
//! which all sides derive from the same plan:
//!
//! - *Small* vectors: each member sends all its partial sums to every owner of its group, control bytes and sums in one
//!   write, and every receiver adds them up itself: one hop. With several groups, each owner sends the sums of its
//!   group to its column, and adds up those of all groups: two hops. A member that owns nothing gets the result from
//!   an owner.
//! - *Bulk*: each owner of a group has one segment of the vector. It receives the partial sums of its segment from all
//!   members of the group, piece by piece, adds up a piece as soon as it has come from all of them, writes it into
//!   `out` and sends it on at once. With aligned ranges every member sends `2(W-1)/W` times the vector, as in a ring,
//!   but everything is two hops from everywhere. With several groups, what an owner adds up is a sum of its group.
//!   Its pieces are dealt out among the owners of its column, each of whom adds up its own over all groups and sends
//!   the result back; the owner hands the results on within its group. Every piece goes through all this by itself: a
//!   member sends about `2 + 2/m` times the vector, where `m` is the number of owners, and is four hops from
//!   everywhere.
//!
//! Either way the additions are those of the canonical tree, never in the order of arrival. The sum of a group is one
//! vector for each maximal node of the group's range.
//!
//! Control bytes take the same way. An owner sends its column those of all members of its group in one frame, and a
//! member that owns nothing gets those of all from an owner (the module `headers`).
//!
//! *Shadows* hold no virtual nodes: they receive what members receive and send nothing. Where there are several groups,
//! the owners of one serve them. A shadow that dies costs the members nothing but a line in the outcome.
//!
//! A step whose optimizer is sharded takes an all-reduce apart ([`CollectivePlan::scatter`],
//! [`CollectivePlan::gather`]). Both phases are in bulk mode and in one group, and an owner's segments are given. In
//! the first an owner sends the result of a piece to those alone who hold a copy of its part; in the second there are
//! no partial sums, and from the start an owner has the results that it sends. [`CollectivePlan::deliver`] is as the
//! second, for those alone who are to get a part: so slots travel when holders change.
//!
//! Between two workers of one machine whose vectors lie in memory that the other can read, frames say only where the
//! values are, and that they are there (the module `lent`).
//!
//! # No element of `out` is written too early
//!
//! `out` keeps the last step's result until the new one replaces it. An element is written only when every member's
//! contribution to its piece has been sent: in small mode they are all here, by themselves or in the sums of their
//! groups; in bulk mode the piece comes from an owner who had the sums of all groups, each of which had all its
//! members' contributions, or from one who got it so. As a member contributes to a step only when it has finished the
//! one before, a member that overwrites an old result knows that all members have it. What a gathering brings, an
//! owner sends only once it has had all contributions to the scattering before it.
//!
//! # Why it cannot dead-lock
//!
//! All sockets are nonblocking and served by one thread, so what one connection does never keeps a member from serving
//! another. Frames on one connection are sent whole, in turn, and a frame gets its turn only once all it holds is here:
//! no frame waits for data of others while it keeps those behind it waiting. A member stops reading from a peer for two
//! reasons only: the peer's data of this step are complete, or the peer is a fixed number of pieces ahead of the piece
//! that is added up next. It stops adding up, over its group, only while a sum that has not crossed yet has the place
//! of the next.
//!
//! First, one group. Look at the piece an owner adds up next, and a member from whom it is missing. That member is not
//! ahead, so the owner reads its connection. What lies before the piece on that connection are contributions and
//! results, which the owner takes at once; and what the member sends are its own partial sums, which depend on no other
//! member. So the piece arrives, every segment is added up in the end, every result becomes sendable, and is read by
//! peers whose only reason to pause (being ahead) passes by the same argument.
//!
//! Now several. Of the pieces of a column that are not added up over all groups, take the first. All before it are, so
//! the workers that add them up have had the sums of all groups: these have crossed, and no group lacks a place for the
//! sum of this piece. So each owner adds it up over its group, as above. The sums cross: at the worker that
//! adds them up no peer is ahead with this piece or one before it, so it reads these connections as far as the piece.
//! So every piece is added up over all groups, one after another. After that no peer is ahead any more, all is read,
//! and all results arrive. Control bytes depend on control bytes only: a group's on those of its members. Small
//! vectors follow them; in bulk no sum waits for them, so a member that still computes sends them last.
//!
//! A member that is handed its sums bucket by bucket (the module `feed`) holds the others up until it has computed:
//! what is said here of a member's sums holds from then on.

mod exchange;
mod feed;
mod headers;
mod inputs;
mod lent;
mod peer;
mod plan;
mod reduce;
mod route;
mod step;
mod waiting;
mod wake;

use thiserror::Error;

pub use bellwether_core::record::Traffic;

pub use crate::frame::{CONTROL_BYTES_MAX, Stamp};
pub use exchange::{Collective, Outcome};
pub use feed::{Feed, Feeder, feed};
pub use peer::fuzz;
pub use plan::{CollectivePlan, Held, Lengths, Member, PlanError, SHADOW_PATIENCE};
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
