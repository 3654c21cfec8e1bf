//! One measuring process: does what the conductor says, and answers with its samples.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bellwether_memory::{Arena, Vector};
use bellwether_runtime::channel::{ConnectionKind, Hello, Inbox, Listener, Stream, Token, dial};
use bellwether_runtime::collective::{
    Collective, CollectivePlan, Member, Stamp, WakeReceiver, Waker, wake_pair,
};
use bellwether_runtime::mesh::Mesh;
use bellwether_runtime::tree::ranges;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::members::{self, MemberArguments, Way};
use crate::tcp;

/// Tag of the pretended job.
const JOB: u64 = 0xBE7C;

/// The ways that are measured, in the order of their rows.
pub(super) const WAYS: [Way; 5] = [Way::Shared, Way::Tcp, Way::Encrypted, Way::Tcp, Way::Encrypted];

/// From here on among [`WAYS`] values travel as bfloat16.
const HALVED: usize = 3;

/// Shared memory, among [`WAYS`].
pub(super) const SHARED: usize = 0;

/// Plain TCP, among [`WAYS`]; the limits are measured over it, too.
pub(super) const TCP: usize = 1;

/// Values that stay in the caches.
const STRIDE: usize = 4096;

/// Control bytes of each all-reduce, about what a training step sends.
const CONTROL: [u8; 32] = [1; 32];

const CONNECT_DEADLINE: Duration = Duration::from_secs(30);

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Command {
    /// Addresses of all members' listeners, by rank and then by way.
    Setup(Vec<Vec<SocketAddr>>),
    /// New connections on one of the [`WAYS`], as a change of membership makes them.
    Connect {
        way: usize,
        /// Size of the vectors that are exchanged next.
        bytes: u64,
        epoch: u64,
    },
    /// What no exchange can do without: each process adds up its part of the vector from as many inputs as there are
    /// processes, and copies the other parts, all in memory of its own.
    CopyAndAdd {
        bytes: u64,
        batches: u64,
        batch: u64,
    },
    RoundTrips {
        batches: u64,
        batch: u64,
    },
    Copies {
        bytes: u64,
        batches: u64,
        batch: u64,
    },
    AllReduce {
        way: usize,
        bytes: u64,
        batches: u64,
        batch: u64,
    },
}

/// Runs one measuring process until the conductor hangs up.
pub(crate) fn member(arguments: MemberArguments) -> Result<(), Failure> {
    members::member(arguments, &WAYS, |rank, token, listeners| {
        let (inboxes, mut stage) = (listeners.iter().map(Listener::inbox).collect::<Vec<_>>(), None);
        move |command| match (command, &mut stage) {
            (Command::Setup(addresses), stage) => {
                *stage = Some(Stage::new(rank, addresses, token.clone(), inboxes.clone())?);
                Ok(Vec::new())
            }
            (command, Some(stage)) => stage.measure(&command),
            (_, None) => Err(io::Error::other("asked to measure before the setup")),
        }
    })
}

/// The connections of one measuring process.
struct Stage {
    rank: u32,
    addresses: Vec<Vec<SocketAddr>>,
    token: Token,
    /// By way.
    inboxes: Vec<Arc<Inbox>>,
    /// By way.
    meshes: [Mesh; WAYS.len()],
    arenas: [Option<Arena>; WAYS.len()],
    wake: WakeReceiver,
    _waker: Waker,
    /// Plain connection between ranks 0 and 1, for the limits.
    plain: Option<Stream>,
    epoch: u64,
    /// Counts all-reduces.
    step: u64,
}

impl Stage {
    fn new(
        rank: u32,
        addresses: Vec<Vec<SocketAddr>>,
        token: Token,
        inboxes: Vec<Arc<Inbox>>,
    ) -> io::Result<Stage> {
        let (waker, wake) = wake_pair()?;
        let mut stage = Stage {
            rank,
            addresses,
            token,
            inboxes,
            meshes: WAYS.map(|_| Mesh::new()),
            arenas: WAYS.map(|_| None),
            wake,
            _waker: waker,
            plain: None,
            epoch: 0,
            step: 0,
        };
        if rank < 2 {
            stage.plain = Some(stage.connect(TCP, ConnectionKind::State, 1 - rank as usize)?);
        }
        Ok(stage)
    }

    /// A connection to the peer of rank `peer`, in the current epoch.
    fn connect(&self, way: usize, kind: ConnectionKind, peer: usize) -> io::Result<Stream> {
        let deadline = Instant::now() + CONNECT_DEADLINE;
        if peer < self.rank as usize {
            let hello = Hello { kind, worker: self.rank.into(), epoch: self.epoch, to: None };
            dial(self.addresses[peer][way], &hello, &WAYS[way].token(&self.token), deadline)
                .map_err(io::Error::other)
        } else {
            self.inboxes[way].take(kind, self.epoch, peer as u64, deadline).map_err(io::Error::other)
        }
    }

    fn measure(&mut self, command: &Command) -> io::Result<Vec<f64>> {
        match *command {
            Command::Connect { way, bytes, epoch } => {
                self.connect_all(way, bytes, epoch).map(|()| Vec::new())
            }
            Command::CopyAndAdd { bytes, batches, batch } => self.copy_and_add(bytes, batches, batch),
            Command::RoundTrips { batches, batch } => self.round_trips(batches, batch),
            Command::Copies { bytes, batches, batch } => self.copies(bytes, batches, batch),
            Command::AllReduce { way, bytes, batches, batch } => {
                self.all_reduce(way, bytes, (batches, batch))
            }
            Command::Setup(_) => Ok(Vec::new()),
        }
    }

    fn connect_all(&mut self, way: usize, bytes: u64, epoch: u64) -> io::Result<()> {
        self.epoch = epoch;
        self.meshes[way].clear();
        // As a worker does: a partial sum and the result lie where peers of this machine can read them.
        let arena = Arena::create((bytes / 4) as usize, 2)?;
        self.meshes[way].share(arena.clone());
        self.arenas[way] = Some(arena);
        for peer in (0..self.addresses.len()).filter(|peer| *peer != self.rank as usize) {
            let stream = self.connect(way, ConnectionKind::Mesh, peer)?;
            self.meshes[way].insert(peer as u64, stream)?;
        }
        Ok(())
    }

    fn plain(&mut self) -> io::Result<&mut Stream> {
        self.plain.as_mut().ok_or_else(|| io::Error::other("only ranks 0 and 1 measure the limits"))
    }

    /// Bounces 4 bytes; rank 0 takes the time.
    fn round_trips(&mut self, batches: u64, batch: u64) -> io::Result<Vec<f64>> {
        let asks = self.rank == 0;
        tcp::round_trips(self.plain()?, asks, (4, 4), (batches, batch))
    }

    /// Rank 0 sends, rank 1 receives.
    fn copies(&mut self, bytes: u64, batches: u64, batch: u64) -> io::Result<Vec<f64>> {
        let sends = self.rank == 0;
        tcp::copies(self.plain()?, sends, bytes as usize, (batches, batch))
    }

    fn copy_and_add(&mut self, bytes: u64, batches: u64, batch: u64) -> io::Result<Vec<f64>> {
        let (length, workers) = ((bytes / 4) as usize, self.addresses.len());
        let part = length.div_ceil(workers);
        let inputs: Vec<Vec<f32>> = (0..workers).map(|input| vec![input as f32; part]).collect();
        let results = vec![1.0; length - part];
        let mut out = vec![1.0; length];
        tcp::sample(batches, batch, true, || {
            let (own, others) = out.split_at_mut(part);
            // In strides that stay in the caches, as an exchange would.
            for (at, own) in own.chunks_mut(STRIDE).enumerate() {
                let stride = at * STRIDE..at * STRIDE + own.len();
                own.copy_from_slice(&inputs[0][stride.clone()]);
                for input in &inputs[1..] {
                    own.iter_mut().zip(&input[stride.clone()]).for_each(|(sum, value)| *sum += value);
                }
            }
            others.copy_from_slice(&results);
            std::hint::black_box(&mut out);
            Ok(())
        })
    }

    fn all_reduce(&mut self, way: usize, bytes: u64, (batches, batch): (u64, u64)) -> io::Result<Vec<f64>> {
        let length = (bytes / 4) as usize;
        let workers = self.addresses.len() as u32;
        let nodes = ranges(workers, workers).into_iter();
        let members = nodes.enumerate().map(|(i, nodes)| Member { worker: i as u64, nodes }).collect();
        let plan = CollectivePlan::new(workers, members, Vec::new(), self.rank.into(), length);
        let halves = if way < HALVED { 0 } else { length };
        let mut collective = Collective::new(plan.map_err(io::Error::other)?.with_bfloat16(halves));
        let weights = workers * (workers + 1) / 2;
        // Small integers, so that every order of additions gives the sum checked below: bfloat16 has them up to 256.
        let period = if way < HALVED { 251 } else { (256 / weights as usize).max(1) };
        let weight = (self.rank + 1) as f32;
        let vector = || self.arenas[way].as_ref().map_or_else(|| Vector::private(length), Arena::vector);
        let (mut partial, mut out) = (vector(), vector());
        partial.iter_mut().enumerate().for_each(|(i, value)| *value = weight * (i % period) as f32);
        // The pages must be there before the time is taken.
        out.fill(1.0);
        let mesh = &mut self.meshes[way];
        let samples = tcp::sample(batches, batch, true, || {
            let stamp = Stamp { job: JOB, epoch: self.epoch, step: self.step };
            self.step += 1;
            let outcome = collective.run(mesh, stamp, &CONTROL, &[&partial], &mut out, &self.wake);
            outcome.map(|_| ()).map_err(io::Error::other)
        })?;
        let weights = weights as f32;
        match out.iter().enumerate().find(|(i, value)| **value != weights * (i % period) as f32) {
            Some((i, value)) => Err(io::Error::other(format!("element {i} of the sum is {value}"))),
            None => Ok(samples),
        }
    }
}
