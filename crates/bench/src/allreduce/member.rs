//! One measuring process: does what the conductor says, and answers with its samples.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::conductor::{BenchError, system};
use bellwether_runtime::channel::{ConnectionKind, Hello, Inbox, Listener, Stream, Token, dial};
use bellwether_runtime::collective::{
    Collective, CollectivePlan, Member, Stamp, WakeReceiver, Waker, wake_pair,
};
use bellwether_runtime::mesh::Mesh;
use bellwether_runtime::tree::ranges;

/// Tag of the pretended job.
const JOB: u64 = 0xBE7C;

/// Control bytes of each all-reduce, about what a training step sends.
const CONTROL: [u8; 32] = [1; 32];

const CONNECT_DEADLINE: Duration = Duration::from_secs(30);

/// What a measuring process needs to know at its start.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct MemberOptions {
    /// Where the conductor listens
    #[arg(long)]
    pub(crate) control: SocketAddr,
    /// This process's rank
    #[arg(long)]
    pub(crate) rank: u32,
}

impl MemberOptions {
    /// Says them to a process that is about to be started.
    pub(crate) fn tell(&self, command: &mut std::process::Command) {
        command.args(["--control", &self.control.to_string(), "--rank", &self.rank.to_string()]);
    }
}

/// A member's first line, after it was told the token.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Greeting {
    pub(super) rank: u32,
    pub(super) address: SocketAddr,
}

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
    Stop,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// Seconds per operation, one per batch.
    Samples(Vec<f64>),
    Fault(String),
}

/// Lines of JSON over TCP.
pub(crate) struct Conversation {
    reader: BufReader<TcpStream>,
}

impl Conversation {
    pub(crate) fn new(stream: TcpStream) -> io::Result<Conversation> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        Ok(Conversation { reader: BufReader::new(stream) })
    }

    pub(crate) fn say(&mut self, message: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.reader.get_mut().write_all(&line)
    }

    pub(crate) fn hear<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it hung up"));
        }
        Ok(serde_json::from_str(&line)?)
    }
}

/// The token that a conductor made for its measurement.
pub(crate) fn heard_token(conductor: &mut Conversation) -> io::Result<Token> {
    Token::parse(&conductor.hear::<String>()?)
        .ok_or_else(|| io::Error::other("the conductor's token is none"))
}

/// Runs one measuring process until the conductor stops it.
///
/// # Errors
///
/// When the conductor cannot be reached or hangs up. Faults of a measurement go to the conductor.
pub(crate) fn member(options: &MemberOptions) -> Result<(), BenchError> {
    converse(options).map_err(system("lost the conductor"))
}

fn converse(options: &MemberOptions) -> io::Result<()> {
    let mut conductor = Conversation::new(TcpStream::connect(options.control)?)?;
    let token = heard_token(&mut conductor)?;
    // Others of this machine may knock; that is no concern of the measurement.
    let listener = Listener::bind_remote(([127, 0, 0, 1], 0).into(), &token, Arc::new(|_| ()))?;
    conductor.say(&Greeting { rank: options.rank, address: listener.local_addr() })?;
    let mut stage = None;
    loop {
        let result = match conductor.hear()? {
            Command::Setup(addresses) => {
                Stage::new(options.rank, addresses, token.clone(), &listener).map(|new| {
                    stage = Some(new);
                    Vec::new()
                })
            }
            Command::Stop => return conductor.say(&Reply::Samples(Vec::new())),
            command => match &mut stage {
                Some(stage) => stage.measure(&command),
                None => Err(io::Error::other("asked to measure before the setup")),
            },
        };
        conductor.say(&match result {
            Ok(samples) => Reply::Samples(samples),
            Err(error) => Reply::Fault(error.to_string()),
        })?;
    }
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
    fn new(rank: u32, addresses: Vec<SocketAddr>, token: Token, listener: &Listener) -> io::Result<Stage> {
        let (waker, wake) = wake_pair()?;
        let inbox = listener.inbox();
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
            Command::Setup(_) | Command::Stop => Ok(Vec::new()),
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
        let serves = self.rank == 0;
        let stream = self.plain()?;
        let mut bytes = [7; 4];
        sample(batches, batch, serves, || {
            if serves {
                stream.write_all(&bytes)?;
                stream.read_exact(&mut bytes)
            } else {
                stream.read_exact(&mut bytes)?;
                stream.write_all(&bytes)
            }
        })
    }

    /// Rank 0 sends, rank 1 receives and confirms each batch with a byte.
    fn copies(&mut self, bytes: u64, batches: u64, batch: u64) -> io::Result<Vec<f64>> {
        let sends = self.rank == 0;
        let stream = self.plain()?;
        let mut buffer = vec![1u8; bytes as usize];
        let mut done = [0; 1];
        let samples = sample(batches, 1, sends, || {
            for _ in 0..batch {
                if sends {
                    stream.write_all(&buffer)?;
                } else {
                    stream.read_exact(&mut buffer)?;
                }
            }
            if sends { stream.read_exact(&mut done) } else { stream.write_all(&done) }
        })?;
        Ok(samples.into_iter().map(|seconds| seconds / batch as f64).collect())
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
        let samples = sample(batches, batch, true, || {
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

/// Runs `batches` batches of `operation`: seconds per operation, one sample per batch.
///
/// Without `timed` it only takes part.
pub(crate) fn sample(
    batches: u64,
    batch: u64,
    timed: bool,
    mut operation: impl FnMut() -> io::Result<()>,
) -> io::Result<Vec<f64>> {
    let mut samples = Vec::new();
    for _ in 0..batches {
        let begin = Instant::now();
        for _ in 0..batch {
            operation()?;
        }
        if timed {
            samples.push(begin.elapsed().as_secs_f64() / batch as f64);
        }
    }
    Ok(samples)
}
