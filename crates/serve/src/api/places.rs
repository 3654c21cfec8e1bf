//! Places at a door: how many connections there are, and which leaves when a client comes and finds none.
//!
//! Clients that have shown who they are keep their places. All others may be anyone: of the peer that has most of them,
//! the one that has been there for longest leaves. So places that are held for nothing keep no client out, and one peer
//! cannot take those of all others.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// The places at a door.
pub(super) struct Places {
    count: u32,
    free: Arc<Semaphore>,
    strangers: Mutex<Strangers>,
}

/// Connections whose clients are unknown.
#[derive(Default)]
struct Strangers {
    next: u64,
    /// By the order in which they came.
    all: BTreeMap<u64, (Option<IpAddr>, Arc<Notify>)>,
}

/// A connection's place, until this is dropped.
pub(super) struct Place {
    number: u64,
    places: Arc<Places>,
    leave: Arc<Notify>,
    _permit: OwnedSemaphorePermit,
}

impl Places {
    pub(super) fn new(count: u32) -> Arc<Places> {
        Arc::new(Places {
            count,
            free: Arc::new(Semaphore::new(count as usize)),
            strangers: Mutex::default(),
        })
    }

    /// A place for a client that came from `peer`; a stranger loses one for it if there is no other.
    pub(super) async fn take(self: &Arc<Places>, peer: Option<IpAddr>) -> Place {
        let permit = match self.free.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                if let Some(leave) = self.strangers().choose() {
                    leave.notify_one();
                }
                self.free.clone().acquire_owned().await.expect("the semaphore is never closed")
            }
        };
        let leave = Arc::new(Notify::new());
        let mut strangers = self.strangers();
        let number = strangers.next;
        strangers.next += 1;
        strangers.all.insert(number, (peer, leave.clone()));
        drop(strangers);
        Place { number, places: self.clone(), leave, _permit: permit }
    }

    /// Waits until all have left.
    pub(super) async fn empty(&self) {
        // It is never closed, and no other connection takes places any more.
        let _ = self.free.acquire_many(self.count).await;
    }

    fn strangers(&self) -> MutexGuard<'_, Strangers> {
        self.strangers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Strangers {
    /// Who leaves.
    fn choose(&mut self) -> Option<Arc<Notify>> {
        let mut counts: BTreeMap<Option<IpAddr>, usize> = BTreeMap::new();
        for (peer, _) in self.all.values() {
            *counts.entry(*peer).or_default() += 1;
        }
        let (most, _) = counts.into_iter().max_by_key(|(_, count)| *count)?;
        let oldest = self.all.iter().find(|(_, (peer, _))| *peer == most).map(|(number, _)| *number)?;
        self.all.remove(&oldest).map(|(_, leave)| leave)
    }
}

impl Place {
    /// Its client is known: no other is preferred to it.
    pub(super) fn keep(&self) {
        self.places.strangers().all.remove(&self.number);
    }

    /// Waits until another client needs it.
    pub(super) async fn is_needed(&self) {
        self.leave.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.keep();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn peer(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([10, 0, 0, last]))
    }

    fn is_needed(place: &Place) -> bool {
        let mut waiting = std::pin::pin!(place.is_needed());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        waiting.as_mut().poll(&mut context).is_ready()
    }

    #[tokio::test]
    async fn the_oldest_stranger_of_the_peer_with_most_leaves() {
        let places = Places::new(4);
        let other = places.take(peer(2)).await;
        let known = places.take(peer(1)).await;
        known.keep();
        let (first, second) = (places.take(peer(1)).await, places.take(peer(1)).await);
        let coming = tokio::time::timeout(Duration::from_millis(1), places.take(peer(3))).await;
        assert!(coming.is_err(), "no connection has left yet");
        assert!(is_needed(&first) && ![&other, &known, &second].into_iter().any(is_needed));
        drop(first);
        let third = places.take(peer(3)).await;
        third.keep();
        second.keep();
        other.keep();
        let coming = tokio::time::timeout(Duration::from_millis(1), places.take(peer(3))).await;
        assert!(coming.is_err());
        assert!(![&other, &known, &second, &third].into_iter().any(is_needed), "known ones stay");
        drop((other, known, second, third));
        places.empty().await;
    }
}
