//! What a federation should do: coalitions valued by queues or a market, what they save split by games, as data to
//! be printed.
//!
//! - [`Valuer`]: what coalitions of a description with jobs forward, from the chain where it can be solved, else from
//!   simulation;
//! - [`savings`]: what sharing servers saves, how that is split, and who should federate with whom;
//! - [`best_levels`], [`map`]: how many servers each should share, and what other numbers save;
//! - [`affinity`]: the same for work that suits some devices better than others;
//! - [`prices`], [`posted`]: how much each lends by itself, of servers at prices inside, of devices at posted rents;
//! - [`mod@format`]: numbers and names as the sentences of an answer write them.
//!
//! Answers serialise as `bellwether federate --format json` prints them. Their notes and sentences are for people.
//! All money is in dollars per hour.
//!
//! ```
//! use bellwether_federation::answer::{Split, Valuation, Valuer, Wanted, savings};
//! use bellwether_federation::description::{Description, NoFiles};
//! let text = r#"
//!     [jobs]
//!     mean_time = "1h"
//!     public_price = "$1"
//!     [[member]]
//!     name = "north"
//!     servers = 50
//!     arrivals_per_hour = 30
//!     [[member]]
//!     name = "south"
//!     servers = 50
//!     arrivals_per_hour = 150
//! "#;
//! let federation = Description::read(text, "two.toml", &NoFiles)?;
//! let how = Valuation { simulate: false, precision: 0.01, most_states: 1_000_000, seed: 1 };
//! let valuer = Valuer::new(&federation, &how)?;
//! let wanted = Wanted { split: Split::Shapley, stable: false };
//! let answer = savings(&valuer, &valuer.shared(), &valuer.alone()?, wanted, &|_, _| ())?;
//! assert!((answer.saved_dollars_per_hour - 19.3).abs() < 0.05);
//! let payments = answer.splits[0].payments();
//! // The second, who is overrun, pays the first.
//! assert_eq!((payments.len(), payments[0].from, payments[0].to), (1, 1, 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;

use bellwether_core::InputError;

mod affinity;
pub mod format;
mod posted;
mod prices;
mod report;
mod savings;
mod sharing;
mod value;
mod whole;

pub use affinity::affinity;
pub use posted::{PostedReport, PostedRow, posted};
pub use prices::{PriceRow, PricesReport, prices};
pub use report::{AdviceRow, CoalitionRow, Leaver, Market, MemberRow, Payment, Report, Run, Share, SplitRow};
pub use savings::savings;
pub use sharing::{BestLevels, SavingsMap, best_levels, map};
pub use value::{Outcome, Valuer};

/// Members up to whom every coalition is valued; beyond, the Shapley value is sampled.
pub const EXACT_MEMBERS: usize = 15;

/// How coalitions are valued.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Valuation {
    /// Simulate, also where a model could be solved.
    pub simulate: bool,
    /// Half the width of the 95 % interval at which a simulation ends, relative to what is forwarded.
    pub precision: f64,
    /// States of a chain above which it is simulated instead.
    pub most_states: u64,
    /// Decides every draw.
    pub seed: u64,
}

/// How savings are split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    /// Each gets its mean contribution.
    Shapley,
    /// So that no member gains by leaving, where that is possible.
    Core,
    /// So that the largest gain by leaving is as small as possible.
    Nucleolus,
    /// All get the same beyond what they have alone.
    Nash,
    /// All of these, and simple rules beside them.
    All,
}

/// What is wanted of a game of savings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// How the savings are split.
    pub split: Split,
    /// Show the federation that no member gains by leaving instead of that of all.
    pub stable: bool,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unanswered {
    /// What a model refuses.
    Input(InputError),
    /// The game is about jobs that queue for servers, and the description has none.
    NoJobs,
    /// The game is about classes of jobs, and the description has none.
    NoClasses,
    /// A simulation must know how long the jobs of this class are.
    NoJobLength {
        /// The name of the class.
        class: String,
    },
    /// One member has no other to lend to.
    OneMember,
    /// For this many members only the Shapley value can be had, by sampling, and another split is wanted.
    OnlySampled {
        /// How many members there are.
        members: usize,
    },
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unanswered::Input(error) => error.fmt(f),
            Unanswered::NoJobs => f.write_str("this game needs jobs that queue for servers"),
            Unanswered::NoClasses => f.write_str("this game needs classes of jobs"),
            Unanswered::NoJobLength { .. } => f.write_str("to simulate jobs one must know how long they are"),
            Unanswered::OneMember => f.write_str("one member has no other to lend to"),
            Unanswered::OnlySampled { members } => {
                write!(f, "with {members} members only the Shapley value can be had, by sampling")
            }
        }
    }
}

impl std::error::Error for Unanswered {}

impl From<InputError> for Unanswered {
    fn from(error: InputError) -> Self {
        Unanswered::Input(error)
    }
}
