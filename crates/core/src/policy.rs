//! The seam between decisions and the world: a policy decides, a backend carries out.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::cluster::{Allocation, Batch, ClusterView, JobId, JobView, NodeId, Way};
use crate::prediction::{Prediction, StepModel};

/// What happened since a policy was last asked. At one instant jobs end before others arrive.
///
/// A policy may be put in place while jobs run. Its first changes name all jobs of the view as arrived.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Changes {
    /// Jobs that ended, done or not, as they were last seen; the view holds them no more, unless they arrived again.
    /// What one held is free now, unless it shared that.
    pub ended: Vec<(JobId, JobView)>,
    /// Jobs that arrived, in order: for the first time, or again after they had ended. They wait, except in a policy's
    /// first changes.
    pub arrived: Vec<JobId>,
    /// Jobs that lost their devices, and what that freed, which is all that they held where no job shared it: they wait
    /// now, or have ended without any. A job for which there is no memory beside the one that it was put beside loses
    /// them.
    pub lost: Vec<(JobId, Allocation)>,
    /// Nodes that went up or down.
    pub nodes: Vec<NodeId>,
    /// Jobs of which something else is known now: their remaining work, speed, limits, weight or deadline. What they
    /// hold may lie outside of new limits. Also jobs that gave back a part of their devices to
    /// [another queue](crate::queue); the nodes of these are named then.
    pub revised: Vec<JobId>,
    /// The model has learnt: it may answer otherwise than before.
    pub relearnt: bool,
}

impl Changes {
    /// Whether nothing happened.
    pub fn is_empty(&self) -> bool {
        let Changes { ended, arrived, lost, nodes, revised, relearnt } = self;
        let same_jobs = ended.is_empty() && arrived.is_empty() && lost.is_empty() && revised.is_empty();
        same_jobs && nodes.is_empty() && !relearnt
    }

    /// Forgets everything, and keeps the memory.
    pub fn clear(&mut self) {
        self.ended.clear();
        self.arrived.clear();
        self.lost.clear();
        self.nodes.clear();
        self.revised.clear();
        self.relearnt = false;
    }

    /// Jobs of which nothing need be remembered: those that ended, and those that lost their devices and are not in
    /// `view`.
    pub fn gone<'a>(&'a self, view: &'a ClusterView) -> impl Iterator<Item = JobId> + 'a {
        let lost = self.lost.iter().map(|(id, _)| *id).filter(|id| !view.jobs.contains_key(id));
        self.ended.iter().map(|(id, _)| *id).chain(lost)
    }
}

/// Something that a backend has to do. Actions are carried out in their order, so what one takes must have
/// been released by one before it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// The job holds exactly these devices from now on (none: it waits), and trains with this batch.
    Allocate {
        /// The job.
        job: JobId,
        /// All that it holds from now on.
        allocation: Allocation,
        /// Its batch, where the policy chooses one.
        batch: Option<Batch>,
        /// What the policy expects of it; written down beside what is measured.
        expected: Option<Prediction>,
        /// The job whose devices these are, all of them, where it uses them together with that one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        beside: Option<JobId>,
        /// The way in which its workers are kept together, where its author left several; a policy may leave that open,
        /// and the one is taken that the model believes to be fastest.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        way: Option<Way>,
    },
    /// The job will never run, for this reason.
    Refuse {
        /// The job.
        job: JobId,
        /// One sentence.
        why: String,
    },
}

/// What decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// In order of arrival.
    ArrivalOrder,
    /// In order of arrival; others may go ahead as long as they do not delay the first.
    Reservation,
    /// Least remaining work first.
    ShortestRemaining,
    /// Least attained service first.
    LeastAttained,
    /// The job that is likeliest to end soon for what it takes goes first.
    GittinsIndex,
    /// Equal shares.
    EqualShares,
    /// Shares in proportion to weights.
    WeightedShares,
    /// A device goes where it saves most.
    MarginalGain,
    /// Small and efficient first.
    SpeedupRatio,
    /// Up to the knee of the speed-up curve.
    Knee,
    /// The solution of a program that is best for all jobs together.
    Program,
    /// Shares of time by a program, taken in rounds.
    Rounds,
    /// In order of arrival; a job that finds no devices joins the one that it slows down least.
    Packing,
    /// The nearest deadline goes first.
    Deadline,
    /// A rule of the policy's own, for policies that are not built in.
    Custom,
}

/// Why a decision is what it is; renders to one sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// What decided.
    pub rule: Rule,
    /// Jobs that start or go on.
    pub started: u32,
    /// Jobs that stop.
    pub stopped: u32,
    /// Jobs whose devices change.
    pub resized: u32,
    /// Jobs that wait afterwards.
    pub waiting: u32,
    /// Devices that were taken back from queues that had borrowed them, because the job of another queue needs them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reclaimed: u32,
}

fn is_zero(devices: &u32) -> bool {
    *devices == 0
}

/// What a policy wants done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// In this order.
    pub actions: Vec<Action>,
    /// Why.
    pub reason: Reason,
    /// When the policy wants to be asked again though nothing has happened, in seconds; after now.
    pub next_wakeup_s: Option<f64>,
}

/// What a policy decides by: a moment at which it is asked.
#[derive(Clone, Copy)]
pub struct PolicyInput<'a> {
    /// Seconds on the backend's clock.
    pub now_s: f64,
    /// The cluster now.
    pub view: &'a ClusterView,
    /// What happened since the policy was last asked.
    pub changes: &'a Changes,
    /// What the policy believes of the speed of jobs.
    pub model: &'a dyn StepModel,
}

/// Decides who runs where.
///
/// # Laws
///
/// - The same initial state and the same calls give the same decisions.
/// - No action takes more of a node than is free when it comes, or of a node that is down; a job holds at least
///   [`min_devices`](crate::cluster::Job::min_devices) and at most
///   [`max_devices`](crate::cluster::Job::max_devices) devices, of types that it accepts, or none. This holds after
///   every decision, even for devices that an earlier policy gave or under earlier limits.
/// - Where the view [packs](ClusterView::packs), a job may be given all devices of another one to share them; never
///   more than two jobs use a device. When one of two goes, the other one keeps the devices.
/// - Only jobs that have never run are refused.
/// - `next_wakeup_s` lies after [`now_s`](PolicyInput::now_s).
///
/// Which policies also keep no device idle that a waiting job could use, and let no job wait forever, is said
/// by [`Promises`].
pub trait Policy {
    /// What to do now.
    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision;
}

/// What a policy claims beyond the laws of [`Policy`]; property tests hold it to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Promises {
    /// After a decision no job waits though the devices that its author asked for are free on one type.
    pub work_conserving: bool,
    /// Every job runs in the end, as long as arrivals end.
    pub starvation_free: bool,
}

/// A backend's failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// A decision that breaks a law of [`Policy`]: nothing after the action that it names was done.
    Broken(String),
    /// The world failed.
    World(String),
}

/// A cluster, real or simulated, that carries decisions out.
///
/// # Laws
///
/// - Time never goes back. What a moment's view shows is what the actions so far and the changes named so far
///   lead to.
/// - Every job in a view could run: some type of device that it accepts has as many as its
///   [`max_devices`](crate::cluster::Job::max_devices) if all nodes are up and no other job holds any.
/// - An action that breaks a law of [`Policy`] is refused with [`Fault::Broken`], and changes nothing.
/// - What an action expects is written down beside what is measured.
pub trait Backend {
    /// What a policy that believes `model` is asked at the next moment: when something has changed, or at `wakeup_s` if
    /// that is earlier; `None` when all is over.
    ///
    /// # Errors
    ///
    /// Returns an error if the world fails.
    fn next<'a>(
        &'a mut self,
        wakeup_s: Option<f64>,
        model: &'a dyn StepModel,
    ) -> Result<Option<PolicyInput<'a>>, Fault>;

    /// Whether it writes down what actions expect; a simulation has no use for it.
    fn wants_expectations(&self) -> bool {
        true
    }

    /// Carries out a decision for the moment that was last given.
    ///
    /// # Errors
    ///
    /// Returns an error if it breaks a law, or when the world fails.
    fn apply(&mut self, decision: Decision) -> Result<(), Fault>;
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rule::ArrivalOrder => "who came first goes first",
            Rule::Reservation => "others pass the first only where they do not delay it",
            Rule::ShortestRemaining => "who has least left goes first",
            Rule::LeastAttained => "who has had least goes first",
            Rule::GittinsIndex => "who is likeliest to end soon goes first",
            Rule::EqualShares => "everybody has the same",
            Rule::WeightedShares => "everybody has a share by weight",
            Rule::MarginalGain => "a device goes where it saves most",
            Rule::SpeedupRatio => "small and efficient jobs go first",
            Rule::Knee => "everybody has as many as still pay",
            Rule::Program => "the sum of all is best so",
            Rule::Rounds => "everybody gets its share of time, round by round",
            Rule::Packing => "who came first goes first, and joins another where devices are short",
            Rule::Custom => "as the policy's own rule says",
            Rule::Deadline => "the nearest deadline goes first",
        })
    }
}

impl fmt::Display for Reason {
    /// ```
    /// use bellwether_core::policy::{Reason, Rule};
    /// let (started, stopped, resized, waiting, reclaimed) = (2, 1, 0, 3, 0);
    /// let reason = Reason { rule: Rule::ShortestRemaining, started, stopped, resized, waiting, reclaimed };
    /// assert_eq!(reason.to_string(), "2 start, 1 stop, 0 change, 3 wait: who has least left goes first");
    /// let words = Reason { reclaimed: 4, ..reason }.to_string();
    /// assert!(words.ends_with("; 4 borrowed devices go back to another queue"));
    /// ```
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Reason { rule, started, stopped, resized, waiting, reclaimed } = self;
        write!(f, "{started} start, {stopped} stop, {resized} change, {waiting} wait: {rule}")?;
        match reclaimed {
            0 => Ok(()),
            1 => f.write_str("; 1 borrowed device goes back to another queue"),
            _ => write!(f, "; {reclaimed} borrowed devices go back to another queue"),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Broken(what) => write!(f, "the decision breaks a law: {what}"),
            Fault::World(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Fault {}
