//! What the coordinator's thread and the one that talks to the provider both know.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use bellwether_sched::fleet::Fleet;
use bellwether_sched::promise::keeper::Seen;

/// What the run should do, and why.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Order {
    /// Train with this many workers.
    Scale(u32),
    /// Stop with a checkpoint.
    Stop(String),
}

/// Both sides' knowledge.
#[derive(Debug)]
pub(crate) struct Board {
    pub(crate) fleet: Fleet,
    /// The coordinator, as each worker is to find it.
    pub(crate) joins: BTreeMap<u64, SocketAddr>,
    /// What the run showed last.
    pub(crate) seen: Option<Seen>,
    /// What it should do.
    pub(crate) orders: Vec<Order>,
    /// What the user should hear, in order.
    pub(crate) notes: Vec<String>,
    pub(crate) is_closing: bool,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Shared {
    board: Mutex<Board>,
    news: Condvar,
}

impl Shared {
    pub(crate) fn new(fleet: Fleet) -> Shared {
        let board = Board {
            fleet,
            joins: BTreeMap::new(),
            seen: None,
            orders: Vec::new(),
            notes: Vec::new(),
            is_closing: false,
        };
        Shared { board: Mutex::new(board), news: Condvar::new() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Board> {
        self.board.lock().expect("no holder of this lock panics")
    }

    pub(crate) fn notify(&self) {
        self.news.notify_one();
    }

    /// Waits until something is wished for, at most for `patience`.
    pub(crate) fn wait(&self, patience: Duration) {
        let board = self.lock();
        drop(self.news.wait_timeout(board, patience).expect("no holder of this lock panics"));
    }
}
