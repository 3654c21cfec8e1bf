//! What has to be done for one job: from what is wanted and what is there to actions, as a pure function.
//!
//! [`reconcile`] is asked whenever something may have changed, and as often as one likes. It knows only what
//! Kubernetes' API knows, so an operator that lost everything else goes on where the last one was.
//!
//! # Laws
//!
//! - A new allocation is written before any pod is created or deleted for its sake.
//! - What it asks for is named so that asking twice does it once: the name of a pod follows from the allocation's
//!   generation and a rank that no pod of the job has.
//! - A pod that does not belong to the job's user identifier is never touched.
//! - Once everything is as wanted, it asks for nothing.

use std::collections::{BTreeMap, BTreeSet};

use crate::crd::{self, FailurePolicy};

pub use pods::{Exit, Final, Life, PodSeen, Role};

mod backoff;
mod group;
mod pods;
mod size;
mod times;

pub use backoff::pause_s;
use size::Change;
use times::{late, overdue};

/// What the engine wants of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Desired {
    /// Workers that should train; 0: all leave with a checkpoint.
    pub workers: u32,
    /// Parameter servers beside them.
    pub servers: u32,
    /// The most pods on each node, parameter servers included.
    pub places: BTreeMap<String, u32>,
    /// When the run ended as far as the engine knows, in bits of seconds since the Unix epoch.
    pub known_end: Option<u64>,
    /// Why it is wanted, in a sentence.
    pub reason: String,
}

/// What was decided and written last.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Allocation {
    /// Grows with every decision.
    pub generation: u64,
    /// Workers.
    pub workers: u32,
    /// Parameter servers.
    pub servers: u32,
    /// The most pods on each node.
    pub places: BTreeMap<String, u32>,
    /// When it was written, in seconds since the Unix epoch.
    pub since_s: f64,
    /// Seconds for which the job had workers under the allocations before.
    pub ran_s: u64,
}

impl Allocation {
    /// Seconds for which the job has had workers so far, pauses left out.
    fn ran_until_s(&self, now_s: f64) -> u64 {
        let since_s = if self.workers > 0 { (now_s - self.since_s).max(0.0).round() as u64 } else { 0 };
        self.ran_s.saturating_add(since_s)
    }
}

/// How often something went wrong, as the job's status keeps it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Restarts {
    /// Pods that failed by the job's own fault.
    pub crash: u32,
    /// Coordinators that were replaced.
    pub coordinator: u32,
    /// When a pod failed last, in seconds since the Unix epoch.
    pub last_s: f64,
}

/// How the pods of a job work together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// Workers join and leave a coordinator between two steps.
    Native,
    /// All pods of a generation begin together, and end together when the next one begins.
    Group,
}

/// What the job's author says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// How its pods work together.
    pub backend: Backend,
    /// Fewest workers with which it trains.
    pub min_workers: u32,
    /// Seconds from the notice to the end of a pod.
    pub grace_s: u32,
    /// Seconds within which the fewest workers have to be ready.
    pub start_timeout_s: u32,
    /// Seconds from one allocation until one with more workers may follow.
    pub cooldown_s: u32,
    /// Seconds for which it may have workers; it has failed after that.
    pub active_deadline_s: Option<u64>,
    /// Steps of the whole job.
    pub total_steps: u64,
    /// When it has failed.
    pub failure: FailurePolicy,
}

/// Nodes on which something is about to end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Nodes {
    /// Those that take no new pods, and whose pods should go elsewhere.
    pub draining: BTreeSet<String>,
    /// Those that do not answer.
    pub lost: BTreeSet<String>,
}

/// All that is known of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// What the engine wants; `None` until it has spoken.
    pub desired: Option<Desired>,
    /// What was written last.
    pub allocation: Allocation,
    /// What its author says.
    pub terms: Terms,
    /// Its pods.
    pub pods: Vec<PodSeen>,
    /// Of a script's job: the last set of pods of which all were there at once.
    pub whole: Option<u64>,
    /// The nodes.
    pub nodes: Nodes,
    /// What went wrong so far.
    pub restarts: Restarts,
    /// Whether the job has ended, and only remains of it are to be removed.
    pub is_over: bool,
    /// Since when this operator looks after jobs: pods are not blamed for the time without one.
    pub watched_since_s: f64,
    /// Now, in seconds since the Unix epoch.
    pub now_s: f64,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Write this allocation, if none was written since.
    Allocate(Allocation, String),
    /// Count a pod's failure, then remove the pod.
    Count {
        /// Name of the pod.
        pod: String,
        /// Whether it was the job's own fault.
        is_fault: bool,
        /// Whether it was the coordinator.
        was_coordinator: bool,
        /// What happened, in a sentence.
        what: String,
    },
    /// Let another set of pods take the place of one in which a pod has failed: count that, and write this allocation.
    Replace {
        /// The next one.
        allocation: Allocation,
        /// Whether it was the job's own fault.
        is_fault: bool,
        /// What happened, in a sentence.
        what: String,
    },
    /// Create a pod.
    Create(NewPod),
    /// Delete a pod, which gets this many seconds to leave.
    Delete {
        /// Its name.
        pod: String,
        /// Seconds from the notice to its end.
        grace_s: u32,
        /// Why, in a sentence.
        why: String,
    },
    /// Ask the coordinator for an end with a checkpoint.
    Stop,
    /// Tell the engine.
    Tell(News),
}

/// A pod to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPod {
    /// What it does.
    pub role: Role,
    /// Its place among the pods of its role.
    pub rank: u32,
    /// The allocation for which it is created.
    pub generation: u64,
    /// The node on which it has to be; the coordinator's is Kubernetes' choice.
    pub node: Option<String>,
}

/// What the engine is told.
#[derive(Debug, Clone, PartialEq)]
pub enum News {
    /// As many workers are there as are wanted, and no more.
    Settled(u32),
    /// The run ended, and said how.
    Ended(Final),
    /// It ended without a word.
    Lost(String),
    /// It has failed for good.
    Failed(String),
    /// Its pods found no place, which is not the job's fault.
    Unplaced(String),
}

/// What is to be done, and when to look again at the latest, in seconds from now.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Todo {
    /// In this order.
    pub actions: Vec<Action>,
    /// Nothing may change before, and yet something will be due then.
    pub again_s: Option<f64>,
}

impl Todo {
    fn then(&mut self, action: Action) {
        self.actions.push(action);
    }

    fn again(&mut self, seconds: f64) {
        let seconds = seconds.max(0.0);
        self.again_s = Some(self.again_s.map_or(seconds, |earlier| earlier.min(seconds)));
    }
}

/// What has to be done now.
pub fn reconcile(seen: &Observed) -> Todo {
    let mut todo = Todo::default();
    give_up_lost(seen, &mut todo);
    if seen.is_over {
        clear(seen, &mut todo);
        return todo;
    }
    let Some(desired) = &seen.desired else { return todo };
    let held_back = held_back(seen, desired, &mut todo);
    let desired = held_back.as_ref().unwrap_or(desired);
    if let Some(allocation) = rewritten(seen, desired) {
        todo.then(Action::Allocate(allocation, desired.reason.clone()));
        return todo;
    }
    if let Some(word) = last_word(seen, desired) {
        todo.then(Action::Tell(News::Ended(word)));
        dismiss(seen, &mut todo);
        return todo;
    }
    if let Some(why) = look_at_ended(seen, desired, &mut todo) {
        if let Some(news) = why {
            todo.then(Action::Tell(news));
            dismiss(seen, &mut todo);
        }
        return todo;
    }
    if desired.workers == 0 {
        leave(seen, &mut todo);
        return todo;
    }
    if seen.restarts.crash > seen.terms.failure.max_restarts {
        let crashes = seen.restarts.crash;
        todo.then(Action::Tell(News::Failed(format!("its pods failed {crashes} times"))));
        dismiss(seen, &mut todo);
        return todo;
    }
    if let Some(why) = overdue(seen, &mut todo) {
        todo.then(Action::Tell(News::Failed(why)));
        dismiss(seen, &mut todo);
        return todo;
    }
    if let Some(why) = late(seen, &mut todo) {
        todo.then(Action::Tell(News::Unplaced(why)));
        return todo;
    }
    let due_s = seen.restarts.last_s + pause_s(&seen.restarts) - seen.now_s;
    let may_create = due_s <= 0.0;
    if !may_create {
        todo.again(due_s);
    }
    if seen.terms.backend == Backend::Native && may_create {
        lead(seen, &mut todo);
    }
    let change = Change::of(seen, desired);
    for victim in &change.victims {
        let why = victim.why.clone();
        todo.then(Action::Delete { pod: victim.pod.clone(), grace_s: victim.grace_s, why });
    }
    if let Some(seconds) = change.again_s {
        todo.again(seconds);
    }
    if may_create {
        change.newcomers.into_iter().for_each(|pod| todo.then(Action::Create(pod)));
    }
    if change.is_settled {
        todo.then(Action::Tell(News::Settled(desired.workers)));
    }
    todo
}

/// A pod that was told to go before its node fell silent: without the node it would go for ever, and a set of pods that
/// is to take its place would wait for that.
fn give_up_lost(seen: &Observed, todo: &mut Todo) {
    let is_left = |pod: &&PodSeen| pod.is_deleting && seen.nodes.lost.contains(&pod.node);
    for pod in seen.pods.iter().filter(is_left) {
        let why = format!("{} does not answer", pod.node);
        todo.then(Action::Delete { pod: pod.name.clone(), grace_s: 0, why });
    }
}

/// What the job has, for as long as its author does not let it have the workers more that are wanted.
fn held_back(seen: &Observed, desired: &Desired, todo: &mut Todo) -> Option<Desired> {
    let Allocation { workers, places, since_s, .. } = &seen.allocation;
    let left_s = since_s + f64::from(seen.terms.cooldown_s) - seen.now_s;
    let grows = *workers > 0 && desired.workers > *workers;
    // What it has may be another's by now.
    let may_stay = places.iter().all(|(node, count)| desired.places.get(node).is_some_and(|to| to >= count));
    if !grows || !may_stay || left_s <= 0.0 {
        return None;
    }
    todo.again(left_s);
    Some(Desired { workers: *workers, places: places.clone(), ..desired.clone() })
}

/// The next allocation, where the last one is not what is wanted.
fn rewritten(seen: &Observed, desired: &Desired) -> Option<Allocation> {
    let Allocation { generation, workers, servers, places, .. } = &seen.allocation;
    let is_so = *workers == desired.workers
        && (desired.workers == 0 || (*places == desired.places && *servers == desired.servers));
    (!is_so).then(|| Allocation {
        generation: generation + 1,
        workers: desired.workers,
        servers: desired.servers,
        places: if desired.workers == 0 { BTreeMap::new() } else { desired.places.clone() },
        since_s: seen.now_s,
        ran_s: seen.allocation.ran_until_s(seen.now_s),
    })
}

/// How the run ended, if a pod says so and the engine does not know.
fn last_word(seen: &Observed, desired: &Desired) -> Option<Final> {
    let of_leads = seen.pods.iter().filter(|pod| pod.role == Role::Coordinator);
    let words = of_leads.filter_map(|pod| pod.exit.as_ref()?.word.clone());
    // Of two that led one after another, the engine may know the later end: then the earlier one says nothing new.
    let last = words.max_by(|a, b| a.unix_s.total_cmp(&b.unix_s));
    last.filter(|word| desired.known_end != Some(word.unix_s.to_bits()))
}

/// The run is over: pods that do not end by themselves soon are told to.
fn dismiss(seen: &Observed, todo: &mut Todo) {
    for pod in seen.pods.iter().filter(|pod| pod.holds_its_node() && !pod.is_deleting) {
        let (grace_s, why) = (seen.terms.grace_s, "the run has ended".to_owned());
        todo.then(Action::Delete { pod: pod.name.clone(), grace_s, why });
    }
}

/// Of a job that is over, pods that still run are removed; those that ended stay for their logs.
fn clear(seen: &Observed, todo: &mut Todo) {
    dismiss(seen, todo);
}

/// Sees to pods that have ended. Answers with what is to be said of the run, if anything, where nothing else is to be
/// done.
fn look_at_ended(seen: &Observed, desired: &Desired, todo: &mut Todo) -> Option<Option<News>> {
    match seen.terms.backend {
        Backend::Native => count_failures(seen, todo).map(|why| Some(News::Failed(why))),
        Backend::Group => {
            group::clear_earlier(seen, todo);
            if let Some(word) = group::finished(seen, desired.known_end) {
                return Some(Some(News::Ended(word)));
            }
            (desired.workers > 0 && group::replace_broken(seen, todo)).then_some(None)
        }
    }
}

/// What a pod that ended and should not have means for its job.
struct Failure {
    /// What happened, in a sentence.
    what: String,
    /// Whether it was the job's own fault.
    is_fault: bool,
    /// Why the job has failed for good, where the pod's end says so.
    ends_job: Option<String>,
}

impl Failure {
    fn of(seen: &Observed, pod: &PodSeen) -> Failure {
        let exit = pod.exit.clone().unwrap_or_default();
        let is_lost = seen.nodes.lost.contains(&pod.node);
        let verdict = seen.terms.failure.rule(exit.code, is_lost || exit.is_disrupted);
        let is_fault = match verdict {
            Some(verdict) => verdict != crd::Action::Ignore,
            None => exit.is_fault() && !is_lost,
        };
        let what = format!("{} {}", pod.name, exit.sentence());
        let is_fatal = verdict == Some(crd::Action::FailJob);
        let ends_job = is_fatal.then(|| format!("{what}, which ends the job by its failurePolicy"));
        Failure { what, is_fault, ends_job }
    }
}

/// Pods that ended and should not have. Answers with why the job has failed for good, if one of them says so.
fn count_failures(seen: &Observed, todo: &mut Todo) -> Option<String> {
    let mut fatal = None;
    for pod in seen.pods.iter().filter(|pod| !pod.is_deleting) {
        let Life::Ended = pod.life else { continue };
        let exit = pod.exit.clone().unwrap_or_default();
        if exit.word.is_some() && pod.role == Role::Coordinator {
            // What it said is known; it is removed with the next allocation's first pods.
            let (name, why) = (pod.name.clone(), "it has done its work".to_owned());
            todo.then(Action::Delete { pod: name, grace_s: 0, why });
            continue;
        }
        let was_coordinator = pod.role == Role::Coordinator;
        let Failure { what, is_fault, ends_job } = Failure::of(seen, pod);
        fatal = ends_job.or(fatal);
        todo.then(Action::Count { pod: pod.name.clone(), is_fault, was_coordinator, what });
    }
    fatal
}

/// All leave: the coordinator with a checkpoint, the workers when it says so.
fn leave(seen: &Observed, todo: &mut Todo) {
    let lead = seen.pods.iter().find(|pod| pod.is_live() && pod.role == Role::Coordinator);
    let patience_s = f64::from(seen.terms.grace_s);
    match lead {
        Some(lead) => {
            todo.then(Action::Stop);
            let left_s = seen.allocation.since_s + patience_s - seen.now_s;
            if left_s > 0.0 {
                todo.again(left_s);
            } else {
                let why = format!("it did not stop within {patience_s} s");
                todo.then(Action::Delete { pod: lead.name.clone(), grace_s: seen.terms.grace_s, why });
            }
        }
        None => {
            dismiss(seen, todo);
            let holds = |pod: &PodSeen| pod.holds_its_node();
            if !seen.pods.iter().any(holds) {
                todo.then(Action::Tell(News::Lost("its pods are gone".into())));
            }
        }
    }
}

/// There is exactly one coordinator.
fn lead(seen: &Observed, todo: &mut Todo) {
    let coordinators = seen.pods.iter().filter(|pod| pod.role == Role::Coordinator && pod.is_live());
    let (lost, mut living): (Vec<&PodSeen>, Vec<&PodSeen>) =
        coordinators.partition(|pod| seen.nodes.lost.contains(&pod.node));
    if living.is_empty() {
        let rank = size::free_rank(seen, Role::Coordinator, &[]);
        let generation = seen.allocation.generation;
        todo.then(Action::Create(NewPod { role: Role::Coordinator, rank, generation, node: None }));
        return;
    }
    for pod in living.drain(1..).chain(lost) {
        let (name, why) = (pod.name.clone(), "another one leads the run".to_owned());
        todo.then(Action::Delete { pod: name, grace_s: 0, why });
    }
}

#[cfg(test)]
mod tests;
