//! For whom a unit waits, as others hear of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Client, Handle, Inner, Shared, Stage};
use crate::membership::WorkerId;
use crate::parameters::pipe::lock;
use crate::progress::{HeldUp, Progress};

/// Time between two looks at who is waited for.
pub(super) const LOOK: Duration = Duration::from_millis(50);

/// Where it is noted how far a client is, and who its servers are, by their numbers.
#[derive(Debug)]
pub(super) struct Watched {
    progress: Arc<Progress>,
    servers: Vec<WorkerId>,
}

/// A wait of which others are told.
pub(super) struct Wait {
    guard: HeldUp,
    looked: Instant,
}

impl Client {
    /// Notes from now on whom this client waits for.
    pub(crate) fn watched_by(&self, progress: &Arc<Progress>, servers: Vec<WorkerId>) {
        *lock(&self.shared.watched) = Some(Watched { progress: Arc::clone(progress), servers });
    }
}

impl Handle {
    /// Another process is this server now.
    pub(crate) fn is_now(&self, server: u32, process: WorkerId) {
        if let Some(watched) = &mut *lock(&self.0.watched)
            && let Some(known) = watched.servers.get_mut(server as usize)
        {
            *known = process;
        }
    }
}

impl Shared {
    /// Something came from a server, or went to it.
    pub(super) fn moved(&self) {
        if let Some(watched) = &*lock(&self.watched) {
            watched.progress.moved();
        }
    }

    /// The client waits, and says for whom, again and again.
    pub(super) fn remark(
        &self,
        wait: Option<Wait>,
        inner: &Inner,
        concerns: &impl Fn(&Inner, u32) -> bool,
    ) -> Option<Wait> {
        if wait.as_ref().is_some_and(|wait| wait.looked.elapsed() < LOOK) {
            return wait;
        }
        let watched = lock(&self.watched);
        let Watched { progress, servers } = watched.as_ref()?;
        let due = self.due_from(inner, concerns).into_iter();
        let due = due.filter_map(|server| servers.get(server as usize).copied());
        let guard = match wait {
            Some(wait) => {
                progress.waits_for(due);
                wait.guard
            }
            None => progress.held_up_by(due),
        };
        Some(Wait { guard, looked: Instant::now() })
    }

    /// Servers that have not sent, or not acknowledged, all that they are to.
    fn due_from(&self, inner: &Inner, concerns: &impl Fn(&Inner, u32) -> bool) -> Vec<u32> {
        let pieces = self.options.map.pieces();
        let lacks = |server: &u32| {
            let mut slots = pieces.iter().zip(&inner.pieces).filter(|(piece, _)| piece.server == *server);
            concerns(inner, *server)
                && slots.any(|(_, slot)| matches!(slot.stage, Stage::Asked | Stage::Given))
        };
        (0..self.options.map.servers()).filter(lacks).collect()
    }
}
