//! Where a coordinator leaves its wishes for Slurm, and finds what Slurm says: it never waits for Slurm itself.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use bellwether_runtime::coordinator::Spawned;
use bellwether_runtime::membership::WorkerId;

use super::board::{Post, Role, Shared, Stage, Wish};
use super::clerk::Clerk;

/// The coordinator's side. When the last holder lets go of it, jobs that have not ended are ended.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) shared: Arc<Shared>,
    clerk: Option<JoinHandle<()>>,
}

impl Desk {
    pub(super) fn open(clerk: impl FnOnce(Arc<Shared>) -> Clerk) -> std::io::Result<Desk> {
        let shared = Arc::new(Shared::default());
        let clerk = clerk(Arc::clone(&shared));
        let thread = std::thread::Builder::new().name("slurm".into()).spawn(move || clerk.work())?;
        Ok(Desk { shared, clerk: Some(thread) })
    }

    /// Asks for a job.
    pub(crate) fn ask(self: &Arc<Self>, role: Role, number: WorkerId, join: SocketAddr) -> SlurmJob {
        let ticket = Arc::new(Mutex::new(None));
        self.shared.lock().asked.push((Arc::clone(&ticket), Post::new(role, number, join)));
        self.shared.notify();
        SlurmJob { desk: Arc::clone(self), ticket }
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.shared.lock().is_closing = true;
        self.shared.notify();
        if let Some(clerk) = self.clerk.take() {
            // One that panicked has said so.
            let _ = clerk.join();
        }
    }
}

/// A worker or server whose process is in a job of Slurm's.
pub(crate) struct SlurmJob {
    desk: Arc<Desk>,
    /// The number of its ticket, once it has one.
    ticket: Arc<Mutex<Option<u64>>>,
}

impl SlurmJob {
    fn with<T>(&self, look: impl FnOnce(&mut Post) -> T) -> Option<T> {
        let mut board = self.desk.shared.lock();
        let ticket = *self.ticket.lock().expect("no holder of this lock panics");
        match ticket {
            Some(ticket) => board.posts.get_mut(&ticket).map(look),
            None => {
                let mut asked = board.asked.iter_mut();
                asked.find(|(slot, _)| Arc::ptr_eq(slot, &self.ticket)).map(|(_, post)| look(post))
            }
        }
    }

    fn wish(&self, wish: Wish) {
        self.with(|post| (post.wish, post.is_told) = (wish, false));
        self.desk.shared.notify();
    }
}

impl Spawned for SlurmJob {
    fn ended(&mut self) -> Option<String> {
        self.with(|post| match &post.stage {
            Stage::Over { how } => Some(how.clone()),
            _ => None,
        })
        // One that is not known any more has ended.
        .unwrap_or_else(|| Some("its Slurm job is gone".into()))
    }

    fn is_queued(&mut self) -> bool {
        self.with(|post| matches!(post.stage, Stage::Unsubmitted { .. } | Stage::Waits { .. }))
            .unwrap_or(false)
    }

    /// The run has decided that it leaves; its job ends with its process.
    fn warn(&mut self) {}

    fn kill(&mut self) {
        self.wish(Wish::Vanish);
    }

    fn end(&mut self) {
        self.wish(Wish::Go);
    }

    fn is_waited_for(&self) -> bool {
        false
    }
}
