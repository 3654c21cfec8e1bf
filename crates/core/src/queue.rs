//! Queues: groups of jobs with a guaranteed share of the cluster, which may borrow what others do not use.
//!
//! Queues form a tree: `research/vision` is below `research`. Jobs are in queues that have none below them. What a
//! queue is guaranteed is counted for each type of device, in devices or as a percentage: of the cluster, or of what
//! the queue above it is guaranteed. What no guarantee covers, or what its queue does not use, is surplus, and goes to
//! queues that can use it by their weights, up to their limits; between equal weights who had less of late comes first.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cluster::ClusterView;
use crate::error::{InputError, ParseError};
use crate::parse;
use crate::spelling::did_you_mean;
use crate::units::Seconds;

mod quantity;

pub use quantity::{Measure, Quantity};

/// Where jobs are that name no queue. A file may describe it; if it does not, it is guaranteed nothing.
pub const DEFAULT_QUEUE: &str = "default";

/// Whether a queue is `above`, or one below it, by their names.
///
/// ```
/// use bellwether_core::queue::is_within;
/// assert!(is_within("research/vision", "research") && is_within("research", "research"));
/// assert!(!is_within("researchers", "research") && !is_within("research", "research/vision"));
/// ```
pub fn is_within(queue: &str, above: &str) -> bool {
    queue.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// More queues than this are a mistake.
const QUEUES_MAX: usize = 1000;

/// A file that describes queues.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QueuesFile {
    /// After this time a device-second that a queue had counts half when surplus is dealt out.
    #[serde(default = "day")]
    pub half_life: Seconds,
    /// The queues, in any order.
    pub queues: Vec<QueueEntry>,
}

fn day() -> Seconds {
    Seconds::new(86_400.0)
}

/// A queue as a file describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QueueEntry {
    /// Its name; below another queue that queue's name, `/` and a word: `research/vision`.
    pub name: String,
    /// What it has as soon as its jobs can use it: "60%" of the cluster (or of what the queue above it is guaranteed),
    /// a number of devices, or one of these for each type of device, as in { v100 = 8, p100 = "50%" }.
    #[serde(default)]
    pub guarantee: Quantity,
    /// The most that its jobs may hold, with what they borrow, in the same forms; percentages are of the whole cluster,
    /// nodes that are down included. No limit if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Quantity>,
    /// Its part of the surplus, against those of the queues beside it.
    #[serde(default = "one")]
    pub weight: f64,
}

fn one() -> f64 {
    1.0
}

/// A queue in its tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Queue {
    /// Its name, with those of the queues above it.
    pub name: String,
    /// The queue above it, as an index into [`QueueTree::queues`]; `None` for one directly below the cluster.
    pub parent: Option<usize>,
    /// The queues below it, by index.
    pub children: Vec<usize>,
    /// What it has as soon as its jobs can use it.
    pub guarantee: Quantity,
    /// The most that its jobs may hold.
    pub limit: Option<Quantity>,
    /// Its part of the surplus, against those of the queues beside it.
    pub weight: f64,
}

/// Queues that were checked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueueTree {
    /// After this many seconds a device-second that a queue had counts half.
    pub half_life_s: f64,
    queues: Vec<Queue>,
}

impl QueueTree {
    /// Reads a file of queues. `place` names it in errors.
    ///
    /// # Errors
    ///
    /// Text of another form, with the nearest known key, or queues that contradict each other.
    ///
    /// ```
    /// use bellwether_core::queue::QueueTree;
    /// let tree = QueueTree::parse("[[queues]]\nname = \"vision\"\nguarantee = \"60%\"", "queues.toml")?;
    /// assert_eq!(tree.names().into_keys().collect::<Vec<_>>(), ["default", "vision"]);
    /// let error = QueueTree::parse("[[queues]]\nname = \"vision\"\nwaight = 2", "queues.toml").unwrap_err();
    /// assert!(error.to_string().contains("did you mean `weight`?"), "{error}");
    /// # Ok::<(), bellwether_core::InputError>(())
    /// ```
    pub fn parse(text: &str, place: &str) -> Result<QueueTree, InputError> {
        QueueTree::new(&parse::document(text, place)?, place)
    }

    /// Checks what a file says, and adds the [default queue](DEFAULT_QUEUE) if it is not there. `place` names the file.
    ///
    /// # Errors
    ///
    /// Names that cannot be or come twice, a queue below one that is not there, weights and times that are not
    /// positive, and guarantees in percent that are more than there is.
    pub fn new(file: &QueuesFile, place: &str) -> Result<QueueTree, InputError> {
        let half_life_s = file.half_life.get();
        if half_life_s <= 0.0 {
            return Err(InputError::new(place, "`half_life` takes no time").hint("write for example \"1d\""));
        }
        if file.queues.len() > QUEUES_MAX {
            let what = format!("{} queues, and {QUEUES_MAX} are the most", file.queues.len());
            return Err(InputError::new(place, what));
        }
        let mut tree = QueueTree { half_life_s, queues: Vec::new() };
        // Shorter paths first, so that a queue comes after the one above it.
        let mut entries: Vec<&QueueEntry> = file.queues.iter().collect();
        entries.sort_by_key(|entry| entry.name.matches('/').count());
        for entry in entries {
            tree.add(entry, &format!("{place}: queue `{}`", entry.name))?;
        }
        if tree.find(DEFAULT_QUEUE).is_none() {
            let (guarantee, name) = (Quantity::default(), DEFAULT_QUEUE.to_owned());
            tree.add(&QueueEntry { name, guarantee, limit: None, weight: 1.0 }, place)?;
        }
        if let Some(at) = tree.find(DEFAULT_QUEUE).filter(|at| !tree.queues[*at].children.is_empty()) {
            let what = "jobs that name no queue are here, and it has queues below it";
            let place = format!("{place}: queue `{}`", tree.queues[at].name);
            return Err(InputError::new(place, what).hint("give the queues below it another name"));
        }
        tree.check_percentages(place)?;
        Ok(tree)
    }

    fn add(&mut self, entry: &QueueEntry, place: &str) -> Result<(), InputError> {
        let is_word = |word: &str| {
            !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        };
        if !entry.name.split('/').all(is_word) {
            return Err(InputError::new(place, "this cannot name a queue").hint(
                "use letters, digits, `-`, `_` and `.`, with `/` between a queue and one below it: research/vision",
            ));
        }
        if self.find(&entry.name).is_some() {
            return Err(InputError::new(place, "there is a queue of this name already")
                .hint("give one of them another name"));
        }
        if !(entry.weight.is_finite() && entry.weight > 0.0) {
            return Err(ParseError::out_of_range("weight", entry.weight, "a number above 0").at(place));
        }
        let parent = match entry.name.rsplit_once('/') {
            None => None,
            Some((above, _)) => {
                let missing = || {
                    InputError::new(place, format!("there is no queue `{above}` above it"))
                        .hint(format!("add [[queues]] with name = \"{above}\""))
                };
                Some(self.find(above).ok_or_else(missing)?)
            }
        };
        let own = self.queues.len();
        if let Some(parent) = parent {
            self.queues[parent].children.push(own);
        }
        self.queues.push(Queue {
            name: entry.name.clone(),
            parent,
            children: Vec::new(),
            guarantee: entry.guarantee.clone(),
            limit: entry.limit.clone(),
            weight: entry.weight,
        });
        Ok(())
    }

    /// The queues; one comes after the queue above it.
    pub fn queues(&self) -> &[Queue] {
        &self.queues
    }

    /// Queues that have none below them: those where jobs are.
    pub fn leaves(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.queues.len()).filter(|at| self.queues[*at].children.is_empty())
    }

    /// Queues directly below `parent`, or below the cluster.
    pub fn below(&self, parent: Option<usize>) -> impl Iterator<Item = usize> + '_ {
        (0..self.queues.len()).filter(move |at| self.queues[*at].parent == parent)
    }

    /// A queue and those above it, from the bottom.
    pub fn path(&self, queue: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(Some(queue), |at| self.queues[*at].parent)
    }

    /// The queue of this name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.queues.iter().position(|queue| queue.name == name)
    }

    /// The queue of a job that names `name`: the [default one](DEFAULT_QUEUE) if it names none.
    ///
    /// # Errors
    ///
    /// A name that no queue has, with the nearest that one has, or that of a queue with others below it.
    pub fn of_job(&self, name: Option<&str>) -> Result<usize, InputError> {
        let name = name.unwrap_or(DEFAULT_QUEUE);
        let names = || self.leaves().map(|at| self.queues[at].name.as_str());
        let Some(at) = self.find(name) else {
            let known: Vec<&str> = names().collect();
            let what = format!("there is no queue `{name}`");
            return Err(InputError::new("queue", what).hint(did_you_mean(name, &known)));
        };
        if self.queues[at].children.is_empty() {
            return Ok(at);
        }
        let below = names().find(|other| other.starts_with(&format!("{name}/"))).unwrap_or_default();
        Err(InputError::new("queue", format!("`{name}` has queues below it, and jobs are in those"))
            .hint(format!("write for example `{below}`")))
    }

    /// Percentages of the queues beside each other are at most all of what they are parts of.
    fn check_percentages(&self, place: &str) -> Result<(), InputError> {
        for parent in std::iter::once(None).chain((0..self.queues.len()).map(Some)) {
            let percent = |at: usize| match self.queues[at].guarantee {
                Quantity::Each(Measure::Percent(percent)) => percent,
                _ => 0.0,
            };
            let sum: f64 = self.below(parent).map(percent).sum();
            if sum > 100.0 + 1e-9 {
                let whole =
                    parent.map_or("the cluster".to_owned(), |at| format!("`{}`", self.queues[at].name));
                let what = format!("the queues below {whole} are guaranteed {sum} % of it");
                return Err(InputError::new(place, what).hint("lower a `guarantee`, to 100 % in all at most"));
            }
        }
        Ok(())
    }

    /// Whether these queues can be those of the cluster of `view`, if all its nodes are up.
    ///
    /// # Errors
    ///
    /// A type of device that is not there; a number of devices that does not say of which type where there are
    /// several; guarantees that are more than there is, or more than the queue above has, or than the limit.
    pub fn check_cluster(&self, view: &ClusterView, place: &str) -> Result<(), InputError> {
        let at = |queue: usize| format!("{place}: queue `{}`", self.queues[queue].name);
        for (queue, one) in self.queues.iter().enumerate() {
            for quantity in std::iter::once(&one.guarantee).chain(&one.limit) {
                quantity
                    .check(&view.device_types)
                    .map_err(|error| InputError { place: at(queue), ..error })?;
            }
        }
        for (kind, name) in view.device_types.iter().enumerate() {
            let whole = view.devices_with_down(kind as u16);
            let guarantees = self.plain_guarantees(name, whole);
            for parent in std::iter::once(None).chain((0..self.queues.len()).map(Some)) {
                let sum: u64 = self.below(parent).map(|at| u64::from(guarantees[at])).sum();
                let most = parent.map_or(whole, |at| guarantees[at]);
                if sum > u64::from(most) {
                    let above =
                        parent.map_or("the cluster".into(), |at| format!("`{}`", self.queues[at].name));
                    let what = format!(
                        "the queues below {above} are guaranteed {sum} devices of type `{name}`, and it has {most}"
                    );
                    return Err(InputError::new(place, what).hint("lower a `guarantee`"));
                }
            }
            for (queue, limit) in self.limits(name, whole).into_iter().enumerate() {
                if limit < guarantees[queue] {
                    let guaranteed = guarantees[queue];
                    let what = format!(
                        "it is guaranteed {guaranteed} devices of type `{name}`, and may hold {limit}"
                    );
                    return Err(InputError::new(at(queue), what).hint("raise `limit`, or lower `guarantee`"));
                }
            }
        }
        Ok(())
    }

    /// Devices of a type that each queue is guaranteed, as its entry says it.
    fn plain_guarantees(&self, device_type: &str, whole: u32) -> Vec<u32> {
        let mut all: Vec<u32> = Vec::with_capacity(self.queues.len());
        for queue in &self.queues {
            let of = queue.parent.map_or(whole, |parent| all[parent]);
            all.push(queue.guarantee.of(device_type, of).unwrap_or(0));
        }
        all
    }

    /// Devices of a type that each queue is guaranteed while `up` of them are there: percentages are of these, rounded
    /// down, and numbers shrink in proportion where they are more than there is.
    pub fn guarantees(&self, device_type: &str, up: u32) -> Vec<u32> {
        let mut all = vec![0; self.queues.len()];
        for parent in std::iter::once(None).chain((0..self.queues.len()).map(Some)) {
            let whole = parent.map_or(up, |parent: usize| all[parent]);
            let below: Vec<usize> = self.below(parent).collect();
            let plain =
                |at: &usize| u64::from(self.queues[*at].guarantee.of(device_type, whole).unwrap_or(0));
            let sum: u64 = below.iter().map(plain).sum();
            for at in &below {
                let fits = sum <= u64::from(whole);
                // Both factors fit into 32 bits, and the result is at most the whole.
                all[*at] = if fits { plain(at) } else { plain(at) * u64::from(whole) / sum } as u32;
            }
        }
        all
    }

    /// The most devices of a type that each queue may hold, of `whole` that are there, up or down.
    pub fn limits(&self, device_type: &str, whole: u32) -> Vec<u32> {
        let limit = |queue: &Queue| queue.limit.as_ref().and_then(|limit| limit.of(device_type, whole));
        self.queues.iter().map(|queue| limit(queue).unwrap_or(u32::MAX)).collect()
    }

    /// The most devices of a type that the jobs of a queue may hold, by its limit and those of the queues above it, in
    /// the cluster of `view` with all its nodes up.
    pub fn most(&self, view: &ClusterView, queue: usize, device_type: u16) -> u32 {
        let whole = view.devices_with_down(device_type);
        let limits = self.limits(&view.device_types[usize::from(device_type)], whole);
        self.path(queue).map(|at| limits[at]).fold(whole, u32::min)
    }

    /// The JSON schema of a file of queues.
    pub fn schema() -> serde_json::Value {
        schemars::schema_for!(QueuesFile).to_value()
    }

    /// The names of the queues where jobs are, with their index.
    pub fn names(&self) -> BTreeMap<String, usize> {
        self.leaves().map(|at| (self.queues[at].name.clone(), at)).collect()
    }
}
