//! Federations: should datacenters share, how much, and who pays whom?
//!
//! ```text
//! description ──► queue: what does a coalition forward?  ──► game: what is it worth, who pays whom?  ──► answer
//!             └─► game::affinity: what does it pay?      ──►
//! ```
//!
//! - [`description`]: the file that says who there is, what they have, and what is asked of them;
//! - [`queue`]: how much of each member's load still goes to a public cloud, by a chain or by simulation;
//! - [`game`]: what coalitions are worth, how that is split, who would rather leave, and how much each shares;
//! - [`answer`]: the three put together, as data that a caller prints.
//!
//! A game knows no queue and a queue no game: each is tested against its own theory, and only [`answer`] sees both.
//! Nothing here reads a file or a clock. [`answer`] values coalitions on the threads of the caller's pool; no figure
//! depends on how many there are.

pub mod answer;
pub mod description;
pub mod game;
pub mod queue;
