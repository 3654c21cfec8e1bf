//! A parameter server: its pieces, and the threads that serve workers.
//!
//! Each connection has a thread that reads and one that writes. A gradient is applied by the thread that read it, under
//! the lock of its piece, while it is still in the core's cache; a piece is copied out under its lock and written to
//! the socket without any.

mod account;
mod apply;
mod connection;
mod held;
mod replica;

use std::io;
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard};
use std::thread::JoinHandle;

use bellwether_core::plan::TransmissionOrder;

use super::map::{Piece, ShardMap};
use super::pipe::lock;
use super::wire::{HEADER_BYTES, Header, Kind, Stamp, WireError};
use crate::channel::Stream;
use crate::optimizer::Optimizer;
use crate::state::TrainingState;
use account::Ledger;
use connection::Connection;
use held::Held;
use replica::Replica;

pub use account::{Account, Progress};

/// When a unit's gradient is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// As soon as it arrives.
    Each,
    /// Together with those of all units of its step.
    Together,
}

/// What happened at a server that others should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// A worker's connection ended; `why` is absent when it was closed in order.
    Left {
        /// The worker.
        worker: u64,
        /// The reason.
        why: Option<String>,
    },
    /// The replica has all that this server has.
    Replicated,
    /// The replica is gone; this server goes on without.
    ReplicaLost {
        /// The reason.
        why: String,
    },
    /// This replica's primary closed its connection, or it broke.
    PrimaryLost {
        /// The reason.
        why: String,
    },
}

/// What a server is started with.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Who holds what.
    pub map: Arc<ShardMap>,
    /// This server's number.
    pub me: u32,
    /// Tag of the job.
    pub job: u64,
    /// Slots of the optimizer.
    pub slots: usize,
    /// Units of a step, at least 1.
    pub units_per_step: u32,
    /// Which of the pieces that wait for a connection goes next.
    pub order: TransmissionOrder,
}

/// A phase of steps in which nothing changes but the state.
#[derive(Debug, Clone)]
pub struct Phase {
    /// Its number; frames of another are refused.
    pub number: u64,
    /// When gradients are applied.
    pub rule: Rule,
    /// Its first step: all units of earlier steps count as complete.
    pub step: u64,
    /// The update rule, which must not clip. Where it has fewer slots than the servers, the others stay as they are.
    pub optimizer: Optimizer,
}

/// A parameter server, or its replica. Dropping it ends all its connections.
pub struct Server {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    options: ServerOptions,
    pieces: Vec<Mutex<Held>>,
    phase: RwLock<Option<Phase>>,
    ledger: Mutex<Ledger>,
    /// All but what is counted elsewhere.
    counts: Mutex<Account>,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    connections: Mutex<Vec<Arc<Connection>>>,
    replica: Mutex<Option<Arc<Replica>>>,
    /// A primary's stream, at its replica.
    primary: Mutex<Option<Stream>>,
    /// No worker is served any more.
    stopped: AtomicBool,
    tell: Box<dyn Fn(Told) + Send + Sync>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("me", &self.shared.options.me).finish_non_exhaustive()
    }
}

impl Server {
    /// A server of zeros, to be [loaded](Server::load) and to [begin](Server::begin). `tell` is called from its
    /// threads.
    pub fn start(options: ServerOptions, tell: impl Fn(Told) + Send + Sync + 'static) -> Server {
        let shared = Shared {
            pieces: options.map.of_server(options.me).iter().map(|_| Mutex::default()).collect(),
            options,
            phase: RwLock::default(),
            ledger: Mutex::default(),
            counts: Mutex::default(),
            bytes_in: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
            connections: Mutex::default(),
            replica: Mutex::default(),
            primary: Mutex::default(),
            stopped: AtomicBool::new(false),
            tell: Box::new(tell),
        };
        let zeros = shared.options.map.empty_shard(shared.options.slots, shared.options.me);
        shared.load(&zeros);
        Server { shared: Arc::new(shared), threads: Mutex::default() }
    }

    /// Takes this server's pieces out of a whole state; their versions begin at 0. No unit may be in flight.
    ///
    /// # Panics
    ///
    /// When the state is not of the map's layout, or has another number of slots.
    pub fn load(&self, whole: &TrainingState) {
        let options = &self.shared.options;
        self.shared.load(&options.map.scatter(whole, options.me));
    }

    /// Begins a phase; before the first one no frame is taken. No unit may be in flight.
    pub fn begin(&self, phase: Phase) {
        let (shared, step) = (&self.shared, phase.step);
        let units = shared.options.units_per_step;
        let gathered = if phase.rule == Rule::Together { units as usize } else { 0 };
        *shared.phase.write().expect("no holder of this lock has panicked") = Some(phase);
        shared.pieces.iter().for_each(|piece| lock(piece).begin(step, gathered));
        let earlier = Progress::below(step.saturating_mul(units.into()));
        lock(&shared.ledger).begin(earlier);
    }

    /// A copy of this server's shard, each piece of one version. With [`Rule::Together`] its step is the least of all
    /// pieces.
    pub fn shard(&self) -> TrainingState {
        let shared = &self.shared;
        let mut shard = shared.options.map.empty_shard(shared.options.slots, shared.options.me);
        shard.step = u64::MAX;
        for (local, piece) in shared.pieces() {
            let held = lock(&shared.pieces[local]);
            let to = piece.at..piece.at + piece.len();
            if piece.state {
                shard.model_state[to].copy_from_slice(&held.values);
            } else {
                shard.parameters[to.clone()].copy_from_slice(&held.values);
                for (slot, values) in shard.slots.iter_mut().zip(&held.slots) {
                    slot[to.clone()].copy_from_slice(values);
                }
            }
            shard.step = shard.step.min(held.step);
        }
        if shared.pieces.is_empty() {
            shard.step = 0;
        }
        shard
    }

    /// Serves an admitted connection of a worker until it ends.
    ///
    /// # Errors
    ///
    /// Returns an error if the socket refuses its options, the system gives no thread, or the server was
    /// [stopped](Server::stop).
    pub fn serve(&self, stream: Stream, worker: u64) -> io::Result<()> {
        let connection = Connection::new(stream, worker, &self.shared.options.order)?;
        {
            let mut connections = lock(&self.shared.connections);
            // Under the lock: a thread that ends all connections finds this one, or this one finds that it was done.
            self.shared.check_stopped()?;
            connections.push(Arc::clone(&connection));
        }
        let (shared, writer) = (Arc::clone(&self.shared), Arc::clone(&connection));
        self.spawn("parameters-out", move || {
            if writer.write(&shared).is_err() {
                // The reading thread says why.
                writer.close();
            }
        })?;
        let shared = Arc::clone(&self.shared);
        self.spawn("parameters-in", move || {
            let ended = connection.read(&shared);
            connection.close();
            lock(&shared.connections).retain(|other| !Arc::ptr_eq(other, &connection));
            shared.forget(&connection);
            let why = ended.err().map(|error| error.to_string());
            (shared.tell)(Told::Left { worker: connection.worker, why });
        })
    }

    /// Sends all pieces to a replica that [follows](Server::follow) on the other end, and from now on what is applied
    /// to them: acknowledgements wait for the replica's. [`Told::Replicated`] says that it is whole. Units may be in
    /// flight.
    ///
    /// # Errors
    ///
    /// Same errors as [`serve`](Server::serve).
    pub fn replicate_to(&self, stream: Stream) -> io::Result<()> {
        let replica = Replica::new(stream)?;
        let (shared, writer) = (Arc::clone(&self.shared), Arc::clone(&replica));
        self.spawn("replica-out", move || {
            if let Err(error) = writer.write() {
                shared.lose_replica(&writer, &error.to_string());
            }
        })?;
        let (shared, reader) = (Arc::clone(&self.shared), Arc::clone(&replica));
        self.spawn("replica-in", move || {
            let why = match reader.read(|| (shared.tell)(Told::Replicated)) {
                Ok(()) => "it closed the connection".to_owned(),
                Err(error) => error.to_string(),
            };
            shared.lose_replica(&reader, &why);
        })?;
        self.shared.install(&replica);
        Ok(())
    }

    /// Follows a primary on the other end until it is gone; then this is the server that workers ask. It must have
    /// begun the primary's phase, and follows no other in it.
    ///
    /// # Errors
    ///
    /// Same errors as [`serve`](Server::serve).
    pub fn follow(&self, stream: Stream) -> io::Result<()> {
        {
            let mut primary = lock(&self.shared.primary);
            self.shared.check_stopped()?;
            *primary = Some(stream.clone());
        }
        let shared = Arc::clone(&self.shared);
        self.spawn("primary-in", move || {
            let why = match shared.follow(stream) {
                Ok(()) => "it closed the connection".to_owned(),
                Err(error) => error.to_string(),
            };
            shared.close_primary();
            (shared.tell)(Told::PrimaryLost { why });
        })
    }

    /// What it did since it was started.
    pub fn account(&self) -> Account {
        let shared = &self.shared;
        let mut account = lock(&shared.counts).clone();
        account.bytes_in = shared.bytes_in.load(Ordering::Relaxed);
        account.bytes_out = shared.bytes_out.load(Ordering::Relaxed);
        account.progress = lock(&shared.ledger).progress.clone();
        let numbers = shared.options.map.of_server(shared.options.me);
        let rows = numbers.iter().zip(&shared.pieces).map(|(number, piece)| {
            let held = lock(piece);
            (*number, held.version, held.applying_s / held.version.max(1) as f64)
        });
        account.pieces = rows.collect();
        account
    }

    /// Ends all connections and waits for their threads. Later connections are not served.
    pub fn stop(&self) {
        let shared = &self.shared;
        shared.stopped.store(true, Ordering::Release);
        // Workers first: nothing may be acknowledged to them because the replica's connection is closed.
        let connections = lock(&shared.connections).clone();
        connections.iter().for_each(|connection| connection.close());
        if let Some(replica) = shared.replica() {
            replica.close();
        }
        shared.close_primary();
        // Without the lock: a thread that serves at this moment may be about to add another thread.
        let threads = std::mem::take(&mut *lock(&self.threads));
        for thread in threads {
            // A panic there has been reported by its own hook.
            let _ = thread.join();
        }
    }

    fn spawn(&self, name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let thread = std::thread::Builder::new().name(name.into()).spawn(body)?;
        let mut threads = lock(&self.threads);
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    /// The pieces of this server with their places in `pieces`.
    fn pieces(&self) -> impl Iterator<Item = (usize, &Piece)> {
        let map = &self.options.map;
        map.of_server(self.options.me).iter().map(|number| &map.pieces()[*number as usize]).enumerate()
    }

    fn load(&self, shard: &TrainingState) {
        for (local, piece) in self.pieces() {
            let from = piece.at..piece.at + piece.len();
            let mut held = lock(&self.pieces[local]);
            let values = if piece.state { &shard.model_state } else { &shard.parameters };
            held.values.clear();
            held.values.extend_from_slice(&values[from.clone()]);
            held.slots = match piece.state {
                true => Vec::new(),
                false => shard.slots.iter().map(|slot| slot[from.clone()].to_vec()).collect(),
            };
            held.version = 0;
            held.applying_s = 0.0;
        }
    }

    fn check_stopped(&self) -> io::Result<()> {
        match self.stopped.load(Ordering::Acquire) {
            true => Err(io::Error::new(io::ErrorKind::NotConnected, "the server was stopped")),
            false => Ok(()),
        }
    }

    fn close_primary(&self) {
        if let Some(primary) = lock(&self.primary).take() {
            // One that is closed already is what is wanted.
            let _ = primary.shutdown(Shutdown::Both);
        }
    }

    /// The piece that a frame names, if the frame belongs here.
    fn check(&self, header: &Header) -> Result<(usize, &Piece), WireError> {
        let phase = self.phase().as_ref().map(|phase| phase.number);
        let phase = phase.ok_or_else(|| header.out_of_turn())?;
        header.check(&Stamp { job: self.options.job, phase })?;
        let map = &self.options.map;
        let local = map.of_server(self.options.me).binary_search(&header.piece);
        let local = local.map_err(|_| WireError::OtherPiece(header.piece))?;
        Ok((local, &map.pieces()[header.piece as usize]))
    }

    fn phase(&self) -> RwLockReadGuard<'_, Option<Phase>> {
        self.phase.read().expect("no holder of this lock has panicked")
    }

    /// Takes a request: it is answered in its turn, or once its step has come.
    fn pull(&self, from: &Arc<Connection>, pull: Header, local: usize) {
        self.received(0);
        let piece = &self.options.map.pieces()[pull.piece as usize];
        if self.phase().as_ref().is_some_and(|phase| phase.rule == Rule::Together) {
            let mut held = lock(&self.pieces[local]);
            if held.step < pull.step {
                held.waiting.push((Arc::clone(from), pull));
                return;
            }
        }
        from.answer(piece.tensor, piece.bytes(), pull);
    }

    /// Copies the piece that is asked for; its header.
    fn read(&self, pull: &Header, values: &mut Vec<f32>) -> Header {
        let mut data = Header { kind: Kind::Data, scale: 0.0, share: 0.0, ..*pull };
        let map = &self.options.map;
        if let Ok(local) = map.of_server(self.options.me).binary_search(&pull.piece) {
            let held = lock(&self.pieces[local]);
            // Of a step that this piece has behind it: the worker does a unit again, and does not find it everywhere.
            let before = pull.step < held.step && !held.previous.is_empty();
            values.extend_from_slice(if before { &held.previous } else { &held.values });
            data.version = held.version.saturating_sub(before.into());
        }
        data.length_bytes = 4 * values.len() as u32;
        data
    }

    fn sent(&self, bytes: u64) {
        self.bytes_out.fetch_add(bytes, Ordering::Relaxed);
    }

    fn replica(&self) -> Option<Arc<Replica>> {
        lock(&self.replica).clone()
    }

    /// Counts a frame of a worker.
    fn received(&self, payload_bytes: usize) {
        self.bytes_in.fetch_add((HEADER_BYTES + payload_bytes) as u64, Ordering::Relaxed);
    }

    /// Drops what waits for a connection that ended.
    fn forget(&self, connection: &Arc<Connection>) {
        for piece in &self.pieces {
            let mut held = lock(piece);
            held.waiting.retain(|(other, _)| !Arc::ptr_eq(other, connection));
            held.early.retain(|(other, ..)| !Arc::ptr_eq(other, connection));
        }
    }
}
