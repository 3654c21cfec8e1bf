//! Turns what Slurm tells in advance into changes between two steps: a time limit, a preemption, a drained node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bellwether_core::record::Event;
use bellwether_runtime::coordinator::{Director, DirectorCommand, RunEvent, RunStatus};
use bellwether_runtime::membership::WorkerId;

use crate::slurm::board::{Board, Post, Role, Stage};
use crate::slurm::desk::Desk;

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// A worker leaves this long before its time limit, wherever its successor is by then; of a short limit, in the last
/// part of it only.
const LEAVES_BEFORE: Duration = Duration::from_secs(30);
const LEAVES_PART: f64 = 0.25;

/// A successor is asked for this long before a time limit, because it may have to wait in the queue; the same of short
/// ones.
const SUCCESSOR_BEFORE: Duration = Duration::from_secs(600);
const SUCCESSOR_PART: f64 = 0.4;

/// Who drains a node waits for this long until a successor is found elsewhere.
const DRAIN_PATIENCE: Duration = Duration::from_secs(60);

/// A job that waits for longer is told of.
const WAIT_TOLD: Duration = Duration::from_secs(5);

/// Watches the jobs of a run's workers.
pub(crate) struct SlurmDirector {
    desk: Arc<Desk>,
    looked: Option<Instant>,
    /// Workers for which a successor was asked.
    replaced: BTreeSet<WorkerId>,
    /// Workers that were asked to leave.
    relieved: BTreeSet<WorkerId>,
    /// Jobs whose beginning was told, and whose waiting was.
    began: BTreeSet<u64>,
    waits: BTreeSet<u64>,
    waiting: BTreeMap<u64, Instant>,
    /// Workers on drained nodes, and since when.
    drains: BTreeMap<WorkerId, Instant>,
    /// The whole time limit of each job, as it was seen first.
    limits: BTreeMap<u64, Duration>,
}

impl SlurmDirector {
    pub(crate) fn new(desk: Arc<Desk>) -> SlurmDirector {
        SlurmDirector {
            desk,
            looked: None,
            replaced: BTreeSet::new(),
            relieved: BTreeSet::new(),
            began: BTreeSet::new(),
            waits: BTreeSet::new(),
            waiting: BTreeMap::new(),
            drains: BTreeMap::new(),
            limits: BTreeMap::new(),
        }
    }

    fn look(&mut self, run: &RunStatus<'_>) -> Vec<DirectorCommand> {
        let now = Instant::now();
        let desk = Arc::clone(&self.desk);
        let mut board = desk.shared.lock();
        let mut commands: Vec<DirectorCommand> = board.notes.drain(..).map(note).collect();
        let surplus = board.without_room();
        let has_others = run.membership.active.len() > 1;
        for (ticket, post) in &board.posts {
            commands.extend(self.tell(post, now));
            // One that does not train yet is looked at again when it does.
            if post.role == Role::Worker && run.membership.rank(post.number).is_some() {
                commands.extend(self.change(post, now, &board, (surplus.contains(ticket), has_others)));
            }
        }
        commands
    }

    /// What is worth a line of the journal.
    fn tell(&mut self, post: &Post, now: Instant) -> Option<DirectorCommand> {
        let what = format!("{} {}", post.role.word(), post.number);
        match &post.stage {
            Stage::Waits { job, reason } if !reason.is_empty() => {
                let since = *self.waiting.entry(*job).or_insert(now);
                let is_long = now.duration_since(since) > WAIT_TOLD;
                (is_long && self.waits.insert(*job))
                    .then(|| note(format!("{what} waits in Slurm's queue as job {job} ({reason})")))
            }
            Stage::Runs { job, node, .. } => {
                self.began.insert(*job).then(|| note(format!("{what} is Slurm's job {job} on {node}")))
            }
            _ => None,
        }
    }

    /// Lets a worker be replaced, or leave, if its job will not go on for long.
    fn change(
        &mut self,
        post: &Post,
        now: Instant,
        board: &Board,
        (is_surplus, has_others): (bool, bool),
    ) -> Vec<DirectorCommand> {
        let Stage::Runs { job, node, until, is_preempted } = &post.stage else { return Vec::new() };
        let worker = post.number;
        let left = until.map(|until| until.saturating_duration_since(now));
        let whole = left.map(|left| *self.limits.entry(*job).or_insert(left));
        let relief = match left {
            _ if *is_preempted => Some("a job of higher priority takes its place".to_owned()),
            Some(left) if left < LEAVES_BEFORE.min(whole.unwrap_or(left).mul_f64(LEAVES_PART)) => {
                Some(format!("its time limit comes in {} s", left.as_secs()))
            }
            _ if has_others && self.is_overdue(worker, node, board, now) => {
                Some(format!("{node} is drained, and no other place was found yet"))
            }
            _ => None,
        };
        if let Some(why) = relief {
            return match self.relieved.insert(worker) {
                true => vec![
                    note(format!("worker {worker} (Slurm's job {job}) leaves: {why}")),
                    DirectorCommand::Relieve(worker),
                ],
                false => Vec::new(),
            };
        }
        let succession = match (left, whole) {
            _ if is_surplus => Some(format!("{node} is another's now")),
            (Some(left), Some(whole)) if left < SUCCESSOR_BEFORE.min(whole.mul_f64(SUCCESSOR_PART)) => {
                Some(format!("its time limit comes in {} s", left.as_secs()))
            }
            _ => board.drained.get(node).map(|reason| match reason.as_str() {
                "" => format!("{node} is drained"),
                reason => format!("{node} is drained ({reason})"),
            }),
        };
        match succession {
            Some(why) if self.replaced.insert(worker) => vec![
                note(format!("worker {worker} (Slurm's job {job}) is to be replaced: {why}")),
                DirectorCommand::Replace(worker),
            ],
            Some(_) => Vec::new(),
            None => {
                // A node that was given back to us, a limit that was raised.
                self.replaced.remove(&worker);
                Vec::new()
            }
        }
    }

    /// Whether a worker on a drained node has waited for a successor for long enough.
    fn is_overdue(&mut self, worker: WorkerId, node: &str, board: &Board, now: Instant) -> bool {
        if !board.drained.contains_key(node) {
            self.drains.remove(&worker);
            return false;
        }
        now.duration_since(*self.drains.entry(worker).or_insert(now)) > DRAIN_PATIENCE
    }
}

fn note(message: String) -> DirectorCommand {
    DirectorCommand::Note(Event::Cluster { message })
}

impl Director for SlurmDirector {
    fn direct(&mut self, seen: RunEvent<'_>, now: &RunStatus<'_>) -> Vec<DirectorCommand> {
        let is_time = self.looked.is_none_or(|looked| looked.elapsed() >= LOOK);
        if !matches!(seen, RunEvent::Tick) || !is_time {
            return Vec::new();
        }
        self.looked = Some(Instant::now());
        self.look(now)
    }
}
