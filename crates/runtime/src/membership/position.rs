//! Where a member stands: what its computing thread is doing, since when, and whom it waits for.

use std::fmt;
use std::str::FromStr;

use super::WorkerId;

/// Others that a sentence names: the status has one of each worker.
const NAMED_MAX: usize = 16;

/// What a worker's computing thread is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Activity {
    /// Nothing, until it is told what to do.
    #[default]
    Idle,
    /// Makes a framework and what belongs to it ready.
    Importing,
    /// Reads the data and builds the model.
    Building,
    /// Computes for the first time, for nothing.
    Compiling,
    /// Makes the connections of a membership, and loads state.
    Forming,
    /// Computes a gradient.
    Computing,
    /// Exchanges gradients or parameters with others.
    Exchanging,
    /// Applies an update.
    Updating,
    /// Evaluates held-out samples.
    Evaluating,
    /// Sends the state away, or waits until it has been sent.
    Checkpointing,
}

impl Activity {
    /// All there are.
    pub const ALL: [Activity; 10] = [
        Activity::Idle,
        Activity::Importing,
        Activity::Building,
        Activity::Compiling,
        Activity::Forming,
        Activity::Computing,
        Activity::Exchanging,
        Activity::Updating,
        Activity::Evaluating,
        Activity::Checkpointing,
    ];

    fn word(self) -> &'static str {
        match self {
            Activity::Idle => "idle",
            Activity::Importing => "importing",
            Activity::Building => "building",
            Activity::Compiling => "compiling",
            Activity::Forming => "forming",
            Activity::Computing => "computing",
            Activity::Exchanging => "exchanging",
            Activity::Updating => "updating",
            Activity::Evaluating => "evaluating",
            Activity::Checkpointing => "checkpointing",
        }
    }
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for Activity {
    type Err = ();

    fn from_str(text: &str) -> Result<Activity, ()> {
        Activity::ALL.into_iter().find(|activity| activity.word() == text).ok_or(())
    }
}

/// Where a member stands, as it told.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Position {
    /// What its computing thread is doing.
    pub activity: Activity,
    /// The membership or phase it is in.
    pub epoch: u64,
    /// Steps done before what it is doing.
    pub step: u64,
    /// Seconds in which it got no further: no part of the work was done, no byte moved.
    pub since_s: f64,
    /// Of them, seconds in which one of its threads was ready to run and had no processor.
    pub starved_s: f64,
    /// Members and servers from whom something is due.
    pub waits_for: Vec<WorkerId>,
    /// What this takes usually, in seconds, as the worker measured; none before the first time.
    pub usual_s: Option<f64>,
    /// What the workload says it may take, in seconds.
    pub allowance_s: Option<f64>,
    /// What the system says of the computing thread, for people.
    pub thread: String,
}

impl Position {
    /// Whether it waits for others, and does nothing itself.
    pub fn waits(&self) -> bool {
        self.activity == Activity::Exchanging && !self.waits_for.is_empty()
    }

    /// What it is doing, for people: `computing step 40 for 1.2 s`.
    pub fn sentence(&self) -> String {
        let Position { activity, step, since_s, .. } = self;
        let what = match activity {
            Activity::Idle => return "waiting to be told what to do".into(),
            Activity::Importing | Activity::Building | Activity::Compiling | Activity::Forming => {
                activity.to_string()
            }
            _ => format!("{activity} step {step}"),
        };
        let peers: Vec<String> = self.waits_for.iter().take(NAMED_MAX).map(u64::to_string).collect();
        let waits = match self.waits_for.len() {
            0 => String::new(),
            count if count > NAMED_MAX => {
                format!(", waiting for {} and {} more", peers.join(", "), count - NAMED_MAX)
            }
            _ => format!(", waiting for {}", peers.join(", ")),
        };
        format!("{what} for {since_s:.1} s{waits}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_names_some_of_those_who_are_waited_for() {
        let waiting = |count| Position {
            activity: Activity::Exchanging,
            step: 4,
            since_s: 0.25,
            waits_for: (1..=count).collect(),
            ..Position::default()
        };
        assert_eq!(waiting(2).sentence(), "exchanging step 4 for 0.2 s, waiting for 1, 2");
        assert!(waiting(16).sentence().ends_with("15, 16"));
        assert!(waiting(1000).sentence().ends_with("15, 16 and 984 more"));
    }
}
