//! Decentralised averaging: after each unit a worker averages its parameters with one peer, drawn at random.
//!
//! No worker waits for another, and no lock is held while a message travels, so there is nothing to deadlock, however
//! many begin at once. Threads of each worker answer its peers, from the same [`Shared`] vector that its computing
//! thread reads, averages and updates. An exchange with a peer that is gone is left out, and costs nothing but itself.
//!
//! # Source
//!
//! AD-PSGD (Lian, Zhang, Zhang and Liu, ICML 2018): a worker computes a gradient at a copy of its parameters, averages
//! with a random neighbour, and applies the gradient to the average. Only parameters are averaged; optimizer slots stay
//! where they are. AD-PSGD escapes deadlock by a bipartite graph of neighbours; here any two workers may average,
//! because a chunk that is under way itself is still averaged, with a smaller share (see [`Shared`]).

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::channel::{ConnectionKind, Hello, Inbox, InboxError, Stream, dial};
use crate::control::Token;
use crate::membership::WorkerId;
use crate::order::mix;

mod exchange;
mod shared;

pub use exchange::Exchanged;
pub use shared::Shared;

/// Time to reach a peer, and longest silence of one in an exchange; then it is left out.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often the accepting thread looks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(10);

/// Who a worker is among those that average.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The worker.
    pub me: WorkerId,
    /// The job's token.
    pub token: Token,
    /// Number of this phase: connections of other phases are closed.
    pub epoch: u64,
    /// Seed of the draws.
    pub seed: u64,
}

/// An exchange that did not happen, or not to its end.
#[derive(Debug, thiserror::Error)]
#[error("no average with worker {peer}: {why}")]
pub struct Skipped {
    /// With whom.
    pub peer: WorkerId,
    /// Why not.
    pub why: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Dialed,
    Answered,
}

#[derive(Debug, Default)]
struct Neighbours {
    peers: BTreeMap<WorkerId, SocketAddr>,
    /// Handles of all connections, to end them from outside.
    streams: BTreeMap<(WorkerId, End), Stream>,
    closed: bool,
}

/// One worker's part in the averaging; dropping it closes its connections and ends its threads. A worker that has done
/// its last unit keeps it until its peers have done theirs, or are told that it has left: they would wait for an
/// answer, though not for long.
#[derive(Debug)]
pub struct Gossip {
    identity: Identity,
    shared: Arc<Shared>,
    neighbours: Arc<Mutex<Neighbours>>,
    /// The connections that this worker dialed; locked during an exchange, one at a time.
    dialed: Mutex<BTreeMap<WorkerId, Stream>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Gossip {
    /// Begins to answer the peers whose connections arrive in `inbox`, from `shared`; there is none at first.
    ///
    /// # Errors
    ///
    /// Returns an error if the system gives no thread.
    pub fn start(inbox: Arc<Inbox>, identity: Identity, shared: Arc<Shared>) -> io::Result<Gossip> {
        let neighbours = Arc::new(Mutex::new(Neighbours::default()));
        let stop = Arc::new(AtomicBool::new(false));
        let door = Door {
            inbox,
            epoch: identity.epoch,
            shared: Arc::clone(&shared),
            neighbours: Arc::clone(&neighbours),
            stop: Arc::clone(&stop),
        };
        let thread = std::thread::Builder::new().name("gossip-accept".into()).spawn(move || door.keep())?;
        let dialed = Mutex::default();
        Ok(Gossip { identity, shared, neighbours, dialed, stop, thread: Some(thread) })
    }

    /// Averages with these workers from now on (itself is left out), and closes the connections to all others, also in
    /// the middle of an exchange. Any thread may call it at any moment.
    pub fn set_peers(&self, peers: &BTreeMap<WorkerId, SocketAddr>) {
        let mut neighbours = lock(&self.neighbours);
        let kept = |peer: &WorkerId, old: &BTreeMap<WorkerId, SocketAddr>| {
            old.contains_key(peer) && old.get(peer) == peers.get(peer)
        };
        let Neighbours { peers: present, streams, .. } = &mut *neighbours;
        streams.retain(|(peer, _), stream| {
            let stays = kept(peer, present);
            if !stays {
                end(stream);
            }
            stays
        });
        *present = peers.clone();
        present.remove(&self.identity.me);
    }

    /// With whom this worker averages after `unit`: the same draw for the same peers; none when it is alone.
    pub fn peer_after(&self, unit: u64) -> Option<WorkerId> {
        let neighbours = lock(&self.neighbours);
        let draw = mix(mix(mix(self.identity.seed, 0x676f), unit), self.identity.me);
        neighbours.peers.keys().nth((draw % neighbours.peers.len().max(1) as u64) as usize).copied()
    }

    /// Averages with the peer drawn for `unit`; nothing when this worker is alone. It takes as long as the parameters
    /// take to travel both ways at once, whatever the peer computes meanwhile.
    ///
    /// # Errors
    ///
    /// Returns an error if the peer cannot be reached or goes away; what was averaged until then stays.
    pub fn exchange(&self, unit: u64) -> Result<Option<Exchanged>, Skipped> {
        self.peer_after(unit).map(|peer| self.exchange_with(peer)).transpose()
    }

    /// Averages with `peer`.
    ///
    /// # Errors
    ///
    /// Same errors as [`Gossip::exchange`].
    pub fn exchange_with(&self, peer: WorkerId) -> Result<Exchanged, Skipped> {
        self.talk(peer, exchange::lead)
    }

    /// Takes the values of `peer` for this worker's own, as one does that comes when the others have trained for a
    /// while: its old values would draw the others back.
    ///
    /// # Errors
    ///
    /// Same errors as [`Gossip::exchange`]; the values are then of no use.
    pub fn copy_from(&self, peer: WorkerId) -> Result<(), Skipped> {
        self.talk(peer, exchange::copy)
    }

    fn talk<T>(
        &self,
        peer: WorkerId,
        speak: impl FnOnce(&Stream, &Shared) -> io::Result<T>,
    ) -> Result<T, Skipped> {
        let mut dialed = lock(&self.dialed);
        let stream = dialed.remove(&peer).map_or_else(|| self.dial(peer), Ok);
        let outcome = stream.and_then(|stream| {
            let said = speak(&stream, &self.shared).map_err(|error| error.to_string())?;
            dialed.insert(peer, stream);
            Ok(said)
        });
        outcome.map_err(|why| Skipped { peer, why })
    }

    fn dial(&self, peer: WorkerId) -> Result<Stream, String> {
        let Identity { me, token, epoch, .. } = &self.identity;
        let address = lock(&self.neighbours).peers.get(&peer).copied().ok_or("it is not a peer")?;
        let hello = Hello { kind: ConnectionKind::Gossip, worker: *me, epoch: *epoch, to: Some(peer) };
        let stream =
            dial(address, &hello, token, Instant::now() + PATIENCE).map_err(|error| error.to_string())?;
        let prepared =
            stream.set_read_timeout(Some(PATIENCE)).and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
        prepared.map_err(|error| error.to_string())?;
        let admitted = lock(&self.neighbours).admit(peer, End::Dialed, stream.clone());
        if admitted { Ok(stream) } else { Err("it is a peer no more".into()) }
    }
}

impl Drop for Gossip {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported by its own hook.
            let _ = thread.join();
        }
    }
}

impl Neighbours {
    /// Keeps the handle of a connection with `peer`, unless that is none (any more).
    fn admit(&mut self, peer: WorkerId, which: End, handle: Stream) -> bool {
        let admitted = !self.closed && self.peers.contains_key(&peer);
        if admitted && let Some(older) = self.streams.insert((peer, which), handle) {
            end(&older);
        }
        admitted
    }
}

/// Lets peers in, each to a thread of its own.
struct Door {
    inbox: Arc<Inbox>,
    epoch: u64,
    shared: Arc<Shared>,
    neighbours: Arc<Mutex<Neighbours>>,
    stop: Arc<AtomicBool>,
}

impl Door {
    fn keep(self) {
        let mut threads: Vec<JoinHandle<()>> = Vec::new();
        while !self.stop.load(Ordering::Relaxed) {
            threads.retain(|thread| !thread.is_finished());
            match self.inbox.take_any(ConnectionKind::Gossip, Instant::now() + LOOK) {
                // A stranger, or a peer of another phase, sees its connection closed and leaves this exchange out.
                Ok((from, stream)) if from.epoch == self.epoch => {
                    threads.extend(self.answer(from.worker, stream));
                }
                Ok(_) | Err(InboxError::TimedOut) => {}
                Err(InboxError::Closed) => break,
            }
        }
        let streams = {
            let mut neighbours = lock(&self.neighbours);
            neighbours.closed = true;
            std::mem::take(&mut neighbours.streams)
        };
        streams.values().for_each(end);
        // The last to come sees at once that no answer will follow.
        self.inbox.discard_below(ConnectionKind::Gossip, self.epoch + 1);
        for thread in threads {
            let _ = thread.join();
        }
    }

    fn answer(&self, peer: WorkerId, stream: Stream) -> Option<JoinHandle<()>> {
        if !lock(&self.neighbours).admit(peer, End::Answered, stream.clone()) {
            return None;
        }
        let shared = Arc::clone(&self.shared);
        let name = format!("gossip-answer-{peer}");
        // Without a thread the stream is dropped, and the peer leaves this exchange out.
        std::thread::Builder::new().name(name).spawn(move || exchange::follow(&stream, &shared)).ok()
    }
}

fn end(stream: &Stream) {
    // One that is closed already is ended all the same.
    let _ = stream.shutdown(Shutdown::Both);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder of this lock panics")
}
