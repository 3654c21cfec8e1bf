//! The processes (or threads) of workers and servers that this coordinator started.

use std::time::Duration;

use super::turns::TICK;
use super::{Run, Spawned};
use crate::membership::WorkerId;
use crate::membership::coordinator::Event;

/// How long a process may take to end once it was told to.
const LEAVING_PATIENCE: Duration = Duration::from_secs(2);

/// A process whose worker no longer belongs to the run.
pub(super) struct Leaving {
    pub(super) worker: WorkerId,
    pub(super) child: Box<dyn Spawned>,
    /// Looks at it after which it is killed. A coordinator that stood still has not looked.
    looks: u128,
}

impl Run {
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

    /// Ends a worker's session. Its process, if it is ours, has a while to end by itself, or to come back if it was not
    /// told to go.
    pub(super) fn release(&mut self, worker: WorkerId) {
        if let Some(session) = self.sessions.remove(&worker) {
            self.workers_by_session.remove(&session.id);
        }
        if let Some(mut child) = self.children.remove(&worker) {
            child.given_up();
            let back = if self.machine.was_dismissed(worker) { Duration::ZERO } else { self.options.grace };
            let looks = (back + LEAVING_PATIENCE).as_millis() / TICK.as_millis();
            self.leaving.push(Leaving { worker, child, looks });
        }
    }

    /// A worker that was given up has come back: its process is one of ours again.
    pub(super) fn take_back(&mut self, worker: WorkerId) {
        if let Some(place) = self.leaving.iter().position(|leaving| leaving.worker == worker) {
            self.children.insert(worker, self.leaving.swap_remove(place).child);
        }
    }

    /// Takes note of processes that have ended.
    pub(super) fn reap(&mut self) {
        let (mut ended, mut awaited, mut queued) = (Vec::new(), Vec::new(), Vec::new());
        for (worker, child) in &mut self.children {
            ended.extend(child.ended().map(|how| (*worker, how)));
            if child.is_queued() {
                queued.push(*worker);
            } else if child.is_awaited() {
                awaited.push(*worker);
            }
        }
        awaited.into_iter().for_each(|worker| self.machine.await_start(worker));
        queued.into_iter().for_each(|worker| self.machine.await_machine(worker));
        for (worker, how) in ended {
            self.children.remove(&worker);
            self.handle(Event::Gone(worker, how));
            self.handle(Event::Ended(worker));
        }
    }

    /// Takes note of processes that were to go and have ended; those that stay too long are killed.
    pub(super) fn see_off(&mut self) {
        let mut ended = Vec::new();
        self.leaving.retain_mut(|Leaving { worker, child, looks }| {
            if child.ended().is_none() {
                *looks = looks.saturating_sub(1);
                if *looks > 0 {
                    return true;
                }
                child.end();
            }
            ended.push(*worker);
            false
        });
        ended.into_iter().for_each(|worker| self.handle(Event::Ended(worker)));
    }

    pub(super) fn processes(&mut self) -> impl Iterator<Item = &mut Box<dyn Spawned>> {
        self.children.values_mut().chain(self.leaving.iter_mut().map(|leaving| &mut leaving.child))
    }
}
