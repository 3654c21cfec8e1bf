//! The processes of workers and servers that this coordinator started.

use std::process::Child;
use std::time::{Duration, Instant};

use super::Run;
use crate::membership::WorkerId;
use crate::membership::coordinator::Event;

/// How long a process may take to end once it was told to.
const LEAVING_PATIENCE: Duration = Duration::from_secs(2);

impl Run<'_> {
    pub(super) fn spawn(&mut self, worker: WorkerId, serves: bool) {
        let address = self.planes.server.address();
        let spawn = if serves { &mut self.options.spawn_server } else { &mut self.options.spawn };
        let Some(spawn) = spawn else { return };
        match spawn(worker, address) {
            Ok(child) => drop(self.children.insert(worker, child)),
            Err(error) => {
                self.handle(Event::Gone(worker, format!("its process could not be started: {error}")))
            }
        }
    }

    /// Ends a worker's session, and its process if it is ours and does not end by itself.
    pub(super) fn release(&mut self, worker: WorkerId) {
        if let Some(session) = self.sessions.remove(&worker) {
            self.workers_by_session.remove(&session.id);
        }
        if let Some(child) = self.children.remove(&worker) {
            self.leaving.push((worker, child, Instant::now() + LEAVING_PATIENCE));
        }
    }

    /// Takes note of processes that were told to go and have ended; those that stay too long are killed.
    pub(super) fn see_off(&mut self) {
        let mut ended = Vec::new();
        self.leaving.retain_mut(|(worker, child, until)| {
            if matches!(child.try_wait(), Ok(None)) {
                if Instant::now() < *until {
                    return true;
                }
                let _ = child.kill();
                let _ = child.wait();
            }
            ended.push(*worker);
            false
        });
        ended.into_iter().for_each(|worker| self.handle(Event::Ended(worker)));
    }

    pub(super) fn processes(&mut self) -> impl Iterator<Item = &mut Child> {
        self.children.values_mut().chain(self.leaving.iter_mut().map(|(_, child, _)| child))
    }
}
