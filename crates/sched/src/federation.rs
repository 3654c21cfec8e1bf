//! Who should share with whom, and who pays whom: cooperative games over the values of coalitions.
//!
//! ```text
//! v(S) = sum_{i in S} cost of i alone - cost of S together           the savings game
//! x    : a payment to each member, sum_i x_i = v(N)                  what a split decides
//! e(S) = v(S) - sum_{i in S} x_i                                     what S would gain by leaving
//! ```
//!
//! Nothing here knows a queue or a server: it is handed the values of the coalitions, or a closure that gives them.
//!
//! - [`game`]: coalitions, their values, and which of them a payment drives away;
//! - [`shapley`]: each member's mean contribution, exact; [`sampling`]: the same for many members, with intervals;
//! - [`least_core`]: whether any payment keeps all together, and what is lacking if not;
//! - [`nucleolus`]: the payment that makes the gain from leaving smallest;
//! - [`splits`]: Nash's bargain, the simple rules that look at servers only, and relative cost cuts;
//! - [`advice`]: which federation to form, if any;
//! - [`affinity`]: work that suits some devices better than others, as a linear production game with market prices;
//! - [`sharing`]: how many servers each should share; [`prices`], [`play`]: how many each would share by itself;
//! - [`description`]: the file that says who there is.
//!
//! Beneath `least_core` and `nucleolus` is the linear program of [`excess`](bellwether_numerics::excess).
//!
//! | split     | exists                    | nobody loses      | stable when anything is | members |
//! |-----------|---------------------------|-------------------|-------------------------|---------|
//! | Shapley   | always                    | if superadditive  | if convex               | any, sampled beyond 20 |
//! | nucleolus | where v(N) >= sum v({i})  | always            | always                  | 15      |
//! | Nash      | always                    | if v(N) >= sum v({i}) | not in general      | any     |

pub mod advice;
pub mod affinity;
pub mod description;
pub mod game;
mod known;
pub mod least_core;
pub mod nucleolus;
pub mod play;
pub mod prices;
pub mod sampling;
pub mod shapley;
pub mod sharing;
pub mod splits;

pub use game::{Coalition, Game};
