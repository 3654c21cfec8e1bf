//! Where a coordinator leaves its wishes for machines: it never waits for a provider itself.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use bellwether_runtime::coordinator::Spawned;
use bellwether_runtime::membership::WorkerId;
use bellwether_sched::fleet::Place;

use super::clerk::Clerk;
use super::shared::Shared;

/// The coordinator's side. When its last user lets go of it, all machines are given back.
#[derive(Debug)]
pub(crate) struct Holder {
    pub(crate) shared: Arc<Shared>,
    clerk: Option<JoinHandle<()>>,
}

impl Holder {
    pub(super) fn open(shared: Shared, clerk: impl FnOnce(Arc<Shared>) -> Clerk) -> std::io::Result<Holder> {
        let shared = Arc::new(shared);
        let clerk = clerk(Arc::clone(&shared));
        let thread = std::thread::Builder::new().name("machines".into()).spawn(move || clerk.work())?;
        Ok(Holder { shared, clerk: Some(thread) })
    }

    /// Asks for a place on a machine.
    pub(crate) fn ask(self: &Arc<Self>, worker: WorkerId, join: SocketAddr) -> MachineWorker {
        let mut board = self.shared.lock();
        board.joins.insert(worker, join);
        board.fleet.need(worker);
        drop(board);
        self.shared.notify();
        MachineWorker { holder: Arc::clone(self), worker }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.shared.lock().is_closing = true;
        self.shared.notify();
        if let Some(clerk) = self.clerk.take() {
            // One that panicked has said so, and its lease says what is left.
            let _ = clerk.join();
        }
    }
}

/// A worker whose process is on a machine of the fleet.
pub(crate) struct MachineWorker {
    holder: Arc<Holder>,
    worker: WorkerId,
}

impl MachineWorker {
    fn dismiss(&self) {
        self.holder.shared.lock().fleet.dismiss(self.worker);
        self.holder.shared.notify();
    }
}

impl Spawned for MachineWorker {
    fn ended(&mut self) -> Option<String> {
        match self.holder.shared.lock().fleet.place(self.worker) {
            Place::Over(how) => Some(how),
            Place::Waits | Place::Runs => None,
        }
    }

    fn is_queued(&mut self) -> bool {
        self.holder.shared.lock().fleet.place(self.worker) == Place::Waits
    }

    /// The run has decided that it leaves; its machine is released when it has.
    fn warn(&mut self) {}

    fn kill(&mut self) {
        self.dismiss();
    }

    fn end(&mut self) {
        self.dismiss();
    }

    fn is_waited_for(&self) -> bool {
        false
    }
}

impl Drop for MachineWorker {
    /// The run knows it no more.
    fn drop(&mut self) {
        self.dismiss();
    }
}
