//! What the coordinator and the thread that talks to Slurm both know: a post for each worker and server.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bellwether_runtime::membership::WorkerId;

/// What a job of Slurm's is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Worker,
    Server,
}

impl Role {
    /// The verb of the program, and the word in the job's comment.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Role::Worker => "worker",
            Role::Server => "server",
        }
    }
}

/// What is wanted of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    /// It should run.
    Stay,
    /// It should end.
    Go,
    /// Its processes should vanish.
    Vanish,
}

/// How far a job is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Stage {
    /// Slurm has not accepted it yet; it may have, where the answer was lost.
    Unsubmitted { is_uncertain: bool, not_before: Option<Instant>, failures: u32 },
    /// It waits.
    Waits { job: u64, reason: String },
    /// It runs on this node, until its time limit comes.
    Runs { job: u64, node: String, until: Option<Instant>, is_preempted: bool },
    /// It ran, and Slurm knows it no more, as after a crash of the controller. Its process may go on: whether it does,
    /// its session tells.
    Forgotten { job: u64 },
    /// It is over.
    Over { how: String },
}

impl Stage {
    pub(crate) const NEW: Stage = Stage::Unsubmitted { is_uncertain: false, not_before: None, failures: 0 };

    pub(crate) fn job(&self) -> Option<u64> {
        match self {
            Stage::Waits { job, .. } | Stage::Runs { job, .. } | Stage::Forgotten { job } => Some(*job),
            Stage::Unsubmitted { .. } | Stage::Over { .. } => None,
        }
    }
}

/// A worker or server of ours, and its job.
#[derive(Debug, Clone)]
pub(crate) struct Post {
    pub(crate) role: Role,
    pub(crate) number: WorkerId,
    /// The coordinator.
    pub(crate) join: SocketAddr,
    /// The node that it has to run on, if its coordinator was told.
    pub(crate) node: Option<String>,
    pub(crate) wish: Wish,
    /// The comment of its job.
    pub(crate) mark: String,
    /// Whether Slurm was told that it should not stay.
    pub(crate) is_told: bool,
    pub(crate) stage: Stage,
}

impl Post {
    /// One that nothing is known of yet.
    pub(crate) fn new(role: Role, number: WorkerId, join: SocketAddr) -> Post {
        let (mark, stage) = (String::new(), Stage::NEW);
        Post { role, number, join, node: None, wish: Wish::Stay, mark, is_told: false, stage }
    }

    /// Slurm was told that it should not stay.
    pub(crate) fn told(&mut self) {
        self.is_told = true;
        if let Stage::Forgotten { job } = self.stage {
            self.stage = Stage::Over { how: format!("its Slurm job {job} is gone") };
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over { .. })
    }
}

/// Nodes and how many workers and servers may run on each.
pub(crate) type Placement = BTreeMap<String, u32>;

/// All posts by the numbers of their tickets, and what else both sides must know.
#[derive(Debug, Default)]
pub(crate) struct Board {
    pub(crate) posts: BTreeMap<u64, Post>,
    /// Posts that were asked for and have no ticket yet.
    pub(crate) asked: Vec<(Arc<Mutex<Option<u64>>>, Post)>,
    pub(crate) placement: Option<Placement>,
    /// Nodes that take no more jobs, with the reason.
    pub(crate) drained: BTreeMap<String, String>,
    /// What the user should hear, in order.
    pub(crate) notes: Vec<String>,
    pub(crate) is_closing: bool,
}

impl Board {
    /// Posts on nodes, or on their way to nodes, where there is no room for them any more.
    pub(crate) fn without_room(&self) -> BTreeSet<u64> {
        let Some(mut room) = self.placement.clone() else { return BTreeSet::new() };
        let mut without = BTreeSet::new();
        for (ticket, post) in self.posts.iter().filter(|(_, post)| !post.is_over()) {
            let node = match &post.stage {
                Stage::Runs { node, .. } => Some(node),
                _ => post.node.as_ref(),
            };
            let Some(node) = node else { continue };
            match room.get_mut(node).filter(|room| **room > 0) {
                Some(room) => *room -= 1,
                None => drop(without.insert(*ticket)),
            }
        }
        without
    }
}

/// What both threads share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    board: Mutex<Board>,
    news: Condvar,
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Board> {
        self.board.lock().expect("no holder of this lock panics")
    }

    pub(crate) fn notify(&self) {
        self.news.notify_one();
    }

    /// Waits until something is asked for, at most for `patience`.
    pub(crate) fn wait(&self, patience: Duration) {
        let board = self.lock();
        let asks = |board: &Board| {
            let is_told = |post: &Post| post.wish == Wish::Stay || post.is_told || post.is_over();
            board.is_closing || !board.asked.is_empty() || !board.posts.values().all(is_told)
        };
        if !asks(&board) {
            drop(self.news.wait_timeout(board, patience).expect("no holder of this lock panics"));
        }
    }
}
