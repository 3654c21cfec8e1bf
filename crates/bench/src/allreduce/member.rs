//! One measuring process: does what the conductor says, and answers with its samples.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bellwether_runtime::channel::{ConnectionKind, Hello, Inbox, Stream, Token, dial};
use bellwether_runtime::collective::{
    Collective, CollectivePlan, Member, Stamp, WakeReceiver, Waker, wake_pair,
};
use bellwether_runtime::mesh::Mesh;
use bellwether_runtime::tree::ranges;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::members::{self, MemberArguments};
use crate::tcp;

/// Tag of the pretended job.
const JOB: u64 = 0xBE7C;

/// Control bytes of each all-reduce, about what a training step sends.
const CONTROL: [u8; 32] = [1; 32];

const CONNECT_DEADLINE: Duration = Duration::from_secs(30);

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Command {
    /// Addresses of all members' listeners, by rank.
    Setup(Vec<SocketAddr>),
    /// New connections, as a change of membership makes them.
    Connect {
        epoch: u64,
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
        bytes: u64,
        batches: u64,
        batch: u64,
    },
}

/// Runs one measuring process until the conductor hangs up.
pub(crate) fn member(arguments: MemberArguments) -> Result<(), Failure> {
    members::member(arguments, |rank, token, listener| {
        let (inbox, mut stage) = (listener.inbox(), None);
        move |command| match (command, &mut stage) {
            (Command::Setup(addresses), stage) => {
                *stage = Some(Stage::new(rank, addresses, token.clone(), Arc::clone(&inbox))?);
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
    addresses: Vec<SocketAddr>,
    token: Token,
    inbox: Arc<Inbox>,
    mesh: Mesh,
    wake: WakeReceiver,
    _waker: Waker,
    /// Plain connection between ranks 0 and 1, for the limits.
    plain: Option<Stream>,
    epoch: u64,
    /// Counts all-reduces.
    step: u64,
}

impl Stage {
    fn new(rank: u32, addresses: Vec<SocketAddr>, token: Token, inbox: Arc<Inbox>) -> io::Result<Stage> {
        let (waker, wake) = wake_pair()?;
        let mut stage = Stage {
            rank,
            addresses,
            token,
            inbox,
            mesh: Mesh::new(),
            wake,
            _waker: waker,
            plain: None,
            epoch: 0,
            step: 0,
        };
        if rank < 2 {
            stage.plain = Some(stage.connect(ConnectionKind::State, 1 - rank as usize)?);
        }
        Ok(stage)
    }

    /// A connection to the peer of rank `peer`, in the current epoch.
    fn connect(&self, kind: ConnectionKind, peer: usize) -> io::Result<Stream> {
        let deadline = Instant::now() + CONNECT_DEADLINE;
        if peer < self.rank as usize {
            let hello = Hello { kind, worker: self.rank.into(), epoch: self.epoch, to: None };
            dial(self.addresses[peer], &hello, &self.token, deadline).map_err(io::Error::other)
        } else {
            self.inbox.take(kind, self.epoch, peer as u64, deadline).map_err(io::Error::other)
        }
    }

    fn measure(&mut self, command: &Command) -> io::Result<Vec<f64>> {
        match *command {
            Command::Connect { epoch } => self.connect_all(epoch).map(|()| Vec::new()),
            Command::RoundTrips { batches, batch } => self.round_trips(batches, batch),
            Command::Copies { bytes, batches, batch } => self.copies(bytes, batches, batch),
            Command::AllReduce { bytes, batches, batch } => self.all_reduce(bytes, batches, batch),
            Command::Setup(_) => Ok(Vec::new()),
        }
    }

    fn connect_all(&mut self, epoch: u64) -> io::Result<()> {
        self.epoch = epoch;
        self.mesh.clear();
        for peer in (0..self.addresses.len()).filter(|peer| *peer != self.rank as usize) {
            let stream = self.connect(ConnectionKind::Mesh, peer)?;
            self.mesh.insert(peer as u64, stream)?;
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

    fn all_reduce(&mut self, bytes: u64, batches: u64, batch: u64) -> io::Result<Vec<f64>> {
        let length = (bytes / 4) as usize;
        let workers = self.addresses.len() as u32;
        let nodes = ranges(workers, workers).into_iter();
        let members = nodes.enumerate().map(|(i, nodes)| Member { worker: i as u64, nodes }).collect();
        let plan = CollectivePlan::new(workers, members, Vec::new(), self.rank.into(), length);
        let mut collective = Collective::new(plan.map_err(io::Error::other)?);
        // Small integers, so that every order of additions gives the sum checked below.
        let weight = (self.rank + 1) as f32;
        let partial: Vec<f32> = (0..length).map(|i| weight * (i % 251) as f32).collect();
        // Not zeros: the pages must be there before the time is taken.
        let mut out = vec![1.0; length];
        let samples = tcp::sample(batches, batch, true, || {
            let stamp = Stamp { job: JOB, epoch: self.epoch, step: self.step };
            self.step += 1;
            let outcome = collective.run(&mut self.mesh, stamp, &CONTROL, &[&partial], &mut out, &self.wake);
            outcome.map(|_| ()).map_err(io::Error::other)
        })?;
        let weights = (workers * (workers + 1) / 2) as f32;
        match out.iter().enumerate().find(|(i, value)| **value != weights * (i % 251) as f32) {
            Some((i, value)) => Err(io::Error::other(format!("element {i} of the sum is {value}"))),
            None => Ok(samples),
        }
    }
}
