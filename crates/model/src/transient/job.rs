//! What is run on transient servers: the work, the servers, and what a loss does.

use bellwether_core::InputError;

use super::law::Law;
use crate::common::check;

pub(super) const PLACE: &str = "job on transient servers";

/// Most states (numbers of workers at work, over all groups) whose speed is asked for in advance.
const STATES_MAX: usize = 1 << 20;

/// Servers of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Servers {
    /// How many; each runs one worker.
    pub count: u32,
    /// How long one lives, from when it runs.
    pub law: Law,
    /// Price of one while it runs, per hour, in any currency.
    pub price_per_hour: f64,
    /// Seconds from its request until it runs. Its life and its price begin then.
    pub provision_s: f64,
    /// Seconds from then until its worker is at work.
    pub join_s: f64,
    /// Whether another one is requested as soon as one is lost.
    pub replaced: bool,
}

/// Checkpoints: after every `period_s` of work all workers pause for `time_s`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Checkpoints {
    /// Seconds of work between two.
    pub period_s: f64,
    /// Seconds of one, during which no worker works.
    pub time_s: f64,
}

/// What the loss of a worker does to the run, from the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// The others go on: what the worker held is elsewhere too, or was handed over within the provider's notice.
    GoesOn,
    /// All go back to the last checkpoint.
    RollsBack,
    /// The run is over, and unfinished.
    Ends,
}

/// What losses do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Losses {
    /// Of any worker.
    pub worker: Effect,
    /// Of the chief, the first server of the first group, and of each that replaces it.
    pub chief: Effect,
    /// Of the last one that is left at work.
    pub last: Effect,
}

impl Losses {
    /// Every worker holds the whole state: only when all are lost at once does the last checkpoint count.
    pub const ELASTIC: Losses =
        Losses { worker: Effect::GoesOn, chief: Effect::GoesOn, last: Effect::RollsBack };
    /// Parameter servers that are never revoked hold the state, but only the chief writes checkpoints and ends the run:
    /// the design of the transient servers of ICAC 2019.
    pub const CHIEF: Losses = Losses { worker: Effect::GoesOn, chief: Effect::Ends, last: Effect::GoesOn };
    /// The collective of all workers breaks with each of them and begins again at the last checkpoint.
    pub const RIGID: Losses =
        Losses { worker: Effect::RollsBack, chief: Effect::RollsBack, last: Effect::RollsBack };
}

/// A job and the servers on which it runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Work, in any unit.
    pub work: f64,
    /// The servers, all requested at time 0 unless they are at work then.
    pub servers: Vec<Servers>,
    /// Of each group the ages in seconds of servers that are at work at time 0; those beyond the count of the group do
    /// not count, and a group without an entry has none. The closed form does not know them.
    pub ages_s: Vec<Vec<f64>>,
    /// Checkpoints, if any are written.
    pub checkpoints: Option<Checkpoints>,
    /// Seconds that all workers pause whenever one joins or is lost while they work.
    pub regroup_s: f64,
    /// Seconds to read the last checkpoint.
    pub restore_s: f64,
    /// What losses do.
    pub losses: Losses,
    /// Price of what runs from the first request to the end, per hour: parameter servers, storage.
    pub fixed_price_per_hour: f64,
    /// A run that is not finished by these seconds is given up.
    pub horizon_s: f64,
}

impl Job {
    /// Work on servers, elastic, without checkpoints, pauses and further prices, given up after `horizon_s`.
    pub fn new(work: f64, servers: Vec<Servers>, horizon_s: f64) -> Job {
        Job {
            work,
            servers,
            ages_s: Vec::new(),
            checkpoints: None,
            regroup_s: 0.0,
            restore_s: 0.0,
            losses: Losses::ELASTIC,
            fixed_price_per_hour: 0.0,
            horizon_s,
        }
    }

    /// Refuses what cannot be run.
    pub(super) fn check(&self) -> Result<(), InputError> {
        check::not_positive(PLACE, "the work", self.work)?;
        check::not_positive(PLACE, "the horizon in seconds", self.horizon_s)?;
        check::negative(PLACE, "the pause of regrouping in seconds", self.regroup_s)?;
        check::negative(PLACE, "the time to restore in seconds", self.restore_s)?;
        check::negative(PLACE, "the fixed price per hour", self.fixed_price_per_hour)?;
        if let Some(checkpoints) = &self.checkpoints {
            check::not_positive(PLACE, "the checkpoint period in seconds", checkpoints.period_s)?;
            check::negative(PLACE, "the time of a checkpoint in seconds", checkpoints.time_s)?;
        }
        let workers = self.servers.iter().fold(0u32, |sum, group| sum.saturating_add(group.count));
        check::workers(PLACE, workers)?;
        for age_s in self.ages_s.iter().flatten() {
            check::negative(PLACE, "the age of a server in seconds", *age_s)?;
        }
        for group in &self.servers {
            check::negative(PLACE, "the price of a server per hour", group.price_per_hour)?;
            check::negative(PLACE, "the time to provision a server in seconds", group.provision_s)?;
            check::negative(PLACE, "the time to join in seconds", group.join_s)?;
        }
        Ok(())
    }
}

/// Speed of every number of workers at work, asked for once.
#[derive(Debug, Clone)]
pub(super) struct Speeds {
    /// By the counts of the groups, the last group's counts side by side.
    per_s: Vec<f64>,
    strides: Vec<usize>,
}

impl Speeds {
    /// Asks `speed` (work per second, by workers at work in each group) for all counts.
    ///
    /// # Errors
    ///
    /// Returns an error for too many states, or a speed that is negative or no finite number.
    pub(super) fn new(job: &Job, speed: impl Fn(&[u32]) -> f64) -> Result<Speeds, InputError> {
        let mut strides = vec![0; job.servers.len()];
        let mut states = 1usize;
        for (stride, group) in strides.iter_mut().zip(&job.servers).rev() {
            *stride = states;
            states = states.saturating_mul(group.count as usize + 1);
        }
        if states > STATES_MAX {
            let what = format!("its groups of servers can be at work in {states} ways");
            return Err(InputError::new(PLACE, what)
                .hint(format!("at most {STATES_MAX} are taken: use fewer or smaller groups")));
        }
        let mut per_s = Vec::with_capacity(states);
        let mut counts = vec![0; job.servers.len()];
        // No workers do no work, whatever a law would say.
        per_s.push(0.0);
        for state in 1..states {
            for ((count, stride), group) in counts.iter_mut().zip(&strides).zip(&job.servers) {
                let place = state / stride % (group.count as usize + 1);
                *count = u32::try_from(place).expect("no more than the count of the group");
            }
            let value = speed(&counts);
            check::negative(PLACE, format_args!("the speed of {counts:?} workers"), value)?;
            per_s.push(value);
        }
        if per_s[states - 1] <= 0.0 {
            return Err(InputError::new(PLACE, "all its workers together do no work")
                .hint("the speed of all servers must be above 0"));
        }
        Ok(Speeds { per_s, strides })
    }

    /// Work per second in a state.
    pub(super) fn per_s(&self, state: usize) -> f64 {
        self.per_s[state]
    }

    /// Work per second when all are at work.
    pub(super) fn all_per_s(&self) -> f64 {
        self.per_s[self.per_s.len() - 1]
    }

    /// What one more worker of a group adds to the number of a state.
    pub(super) fn stride(&self, group: usize) -> usize {
        self.strides[group]
    }
}
