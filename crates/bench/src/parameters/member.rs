//! One measuring process: the server, a worker or the replica. It does what the conductor says.

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bellwether_core::parse;
use bellwether_core::plan::TransmissionOrder;
use bellwether_runtime::channel::{ConnectionKind, Hello, Inbox, Stream, Token, dial};
use bellwether_runtime::optimizer::Optimizer;
use bellwether_runtime::parameters::{
    Client, ClientOptions, Phase, Rule, Server, ServerOptions, ShardMap, Told, Work,
};
use bellwether_runtime::workload::{Layout, Tensor, TensorExchange};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::members::{self, MemberArguments, Way};
use crate::tcp;

/// Tag of the pretended job.
const JOB: u64 = 0xBE70;

const DEADLINE: Duration = Duration::from_secs(30);

/// What a connection is for, told as its membership epoch.
const PLAIN: u64 = 0;
const PARAMETERS: u64 = 1;
const SMALL: u64 = 2;
const FORWARD: u64 = 3;

/// Values of the small model.
const SMALL_VALUES: u64 = 1 << 10;

/// Tensors of equal size.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Model {
    pub(super) tensors: u64,
    pub(super) values: u64,
}

impl Model {
    fn layout(self) -> Layout {
        let tensor = |number| Tensor { name: format!("{number}"), shape: vec![self.values as usize] };
        Layout { parameters: (0..self.tensors).map(tensor).collect(), state: Vec::new() }
    }

    fn map(self) -> Arc<ShardMap> {
        Arc::new(ShardMap::new(&self.layout(), 1))
    }
}

const SMALL_MODEL: Model = Model { tensors: 1, values: SMALL_VALUES };

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Command {
    /// Be the server, or its replica.
    Host {
        model: Model,
        follows: bool,
    },
    /// Be a worker.
    Connect {
        model: Model,
        server: SocketAddr,
    },
    /// Forward to the replica from now on.
    Replicate {
        replica: SocketAddr,
    },
    RoundTrips {
        there: u64,
        back: u64,
        batches: u64,
        batch: u64,
    },
    Copies {
        bytes: u64,
        batches: u64,
        batch: u64,
    },
    Units {
        first: u64,
        count: u64,
    },
    Pulls {
        batches: u64,
        batch: u64,
    },
    /// All parameters must have got this many gradients.
    Check {
        units: u64,
    },
}

/// Runs one measuring process until the conductor hangs up.
pub(crate) fn member(arguments: MemberArguments) -> Result<(), Failure> {
    // Plain TCP stands beside it, so nothing is encrypted.
    members::member(arguments, &[Way::Tcp], |rank, token, listeners| {
        let mut stage = Stage::new(rank, Way::Tcp.token(&token), listeners[0].inbox());
        move |command| stage.obey(&command)
    })
}

/// What one process holds; most fields are used in one role only.
struct Stage {
    rank: u32,
    token: Token,
    inbox: Arc<Inbox>,
    hosted: Option<Hosted>,
    worker: Option<Worker>,
    /// Between the server and the first worker, for the limits.
    plain: Arc<Mutex<Option<Stream>>>,
}

struct Hosted {
    server: Arc<Server>,
    _small: Arc<Server>,
    told: Receiver<Told>,
}

struct Worker {
    client: Client,
    small: Client,
    parameters: Vec<f32>,
    gradient: Vec<f32>,
    tensors: usize,
    /// Number of the next small unit.
    next: u64,
}

impl Stage {
    fn new(rank: u32, token: Token, inbox: Arc<Inbox>) -> Stage {
        Stage { rank, token, inbox, hosted: None, worker: None, plain: Arc::default() }
    }

    fn obey(&mut self, command: &Command) -> io::Result<Vec<f64>> {
        match *command {
            Command::Host { model, follows } => self.host(model, follows),
            Command::Connect { model, server } => self.connect(model, server),
            Command::Replicate { replica } => self.replicate(replica),
            Command::RoundTrips { there, back, batches, batch } => {
                self.round_trips(there, back, batches, batch)
            }
            Command::Copies { bytes, batches, batch } => self.copies(bytes, batches, batch),
            Command::Units { first, count } => self.worker()?.units(first, count),
            Command::Pulls { batches, batch } => self.worker()?.pulls(batches, batch),
            Command::Check { units } => self.check(units),
        }
    }

    fn worker(&mut self) -> io::Result<&mut Worker> {
        self.worker.as_mut().ok_or_else(|| io::Error::other("this is not a worker"))
    }

    fn host(&mut self, model: Model, follows: bool) -> io::Result<Vec<f64>> {
        let (tell, told) = channel();
        let start = |model: Model| -> io::Result<Arc<Server>> {
            let tell = tell.clone();
            let map = model.map();
            let order = TransmissionOrder::Fifo;
            let options = ServerOptions { map, me: 0, job: JOB, slots: 0, units_per_step: 1, order };
            let server = Server::start(options, move |news| {
                // No process listens at the end.
                let _ = tell.send(news);
            });
            server.begin(Phase { number: 1, rule: Rule::Each, step: 0, optimizer: optimizer()? });
            Ok(Arc::new(server))
        };
        let (server, small) = (start(model)?, start(SMALL_MODEL)?);
        let (inbox, plain) = (Arc::clone(&self.inbox), Arc::clone(&self.plain));
        let (to_server, to_small) = (Arc::clone(&server), Arc::clone(&small));
        let serve = move || {
            let far = Duration::from_secs(24 * 3600);
            while let Ok((arrival, stream)) = inbox.take_any(ConnectionKind::State, Instant::now() + far) {
                let served = match arrival.epoch {
                    PARAMETERS => to_server.serve(stream, arrival.worker),
                    SMALL => to_small.serve(stream, arrival.worker),
                    FORWARD if follows => to_server.follow(stream),
                    _ => {
                        *plain.lock().expect("no holder of this lock has panicked") = Some(stream);
                        Ok(())
                    }
                };
                if served.is_err() {
                    // The dialer sees that it is closed, and says so.
                    return;
                }
            }
        };
        std::thread::Builder::new().name("bench-serve".into()).spawn(serve)?;
        self.hosted = Some(Hosted { server, _small: small, told });
        Ok(Vec::new())
    }

    fn dial(&self, address: SocketAddr, purpose: u64) -> io::Result<Stream> {
        let (kind, worker) = (ConnectionKind::State, u64::from(self.rank));
        let hello = Hello { kind, worker, epoch: purpose, to: None };
        dial(address, &hello, &self.token, Instant::now() + DEADLINE).map_err(io::Error::other)
    }

    fn connect(&mut self, model: Model, server: SocketAddr) -> io::Result<Vec<f64>> {
        let client = |model: Model, stream| {
            let (map, order) = (model.map(), TransmissionOrder::Fifo);
            Client::new(ClientOptions { map, job: JOB, order, patience: Duration::ZERO }, vec![stream])
        };
        let values = (model.tensors * model.values) as usize;
        self.worker = Some(Worker {
            client: client(model, self.dial(server, PARAMETERS)?)?,
            small: client(SMALL_MODEL, self.dial(server, SMALL)?)?,
            parameters: vec![0.5; values],
            gradient: vec![1.0; values],
            tensors: model.tensors as usize,
            next: 0,
        });
        if self.rank == 1 {
            let stream = self.dial(server, PLAIN)?;
            *self.plain.lock().expect("no holder of this lock has panicked") = Some(stream);
        }
        Ok(Vec::new())
    }

    fn replicate(&mut self, replica: SocketAddr) -> io::Result<Vec<f64>> {
        let stream = self.dial(replica, FORWARD)?;
        let hosted = self.hosted.as_ref().ok_or_else(|| io::Error::other("this is not a server"))?;
        hosted.server.replicate_to(stream)?;
        loop {
            match hosted.told.recv_timeout(DEADLINE).map_err(io::Error::other)? {
                Told::Replicated => return Ok(Vec::new()),
                Told::ReplicaLost { why } => return Err(io::Error::other(why)),
                Told::Left { .. } | Told::PrimaryLost { .. } => {}
            }
        }
    }

    /// The server's process echoes; the first worker takes the time.
    fn round_trips(&self, there: u64, back: u64, batches: u64, batch: u64) -> io::Result<Vec<f64>> {
        let sizes = (there as usize, back as usize);
        self.with_plain(|stream| tcp::round_trips(stream, self.rank > 0, sizes, (batches, batch)))
    }

    /// The server's process sends; the first worker receives.
    fn copies(&self, bytes: u64, batches: u64, batch: u64) -> io::Result<Vec<f64>> {
        self.with_plain(|stream| tcp::copies(stream, self.rank == 0, bytes as usize, (batches, batch)))
    }

    fn with_plain<T>(&self, body: impl FnOnce(&mut Stream) -> io::Result<T>) -> io::Result<T> {
        let mut plain = self.plain.lock().expect("no holder of this lock has panicked");
        body(plain.as_mut().ok_or_else(|| io::Error::other("only the server and the first worker have it"))?)
    }

    fn check(&self, units: u64) -> io::Result<Vec<f64>> {
        let hosted = self.hosted.as_ref().ok_or_else(|| io::Error::other("this is not a server"))?;
        let shard = hosted.server.shard();
        let wrong = shard.parameters.iter().enumerate().find(|(_, value)| **value != -(units as f32));
        match wrong {
            Some((i, value)) => {
                Err(io::Error::other(format!("parameter {i} is {value} after {units} units")))
            }
            None => Ok(Vec::new()),
        }
    }
}

impl Worker {
    /// Pulls and pushes everything, unit after unit; seconds of all.
    fn units(&mut self, first: u64, count: u64) -> io::Result<Vec<f64>> {
        let begin = Instant::now();
        let values = self.parameters.len() / self.tensors;
        for unit in first..first + count {
            self.client.begin(work(unit)).map_err(io::Error::other)?;
            for tensor in 0..self.tensors {
                let out = &mut self.parameters[tensor * values..(tensor + 1) * values];
                self.client.pull(tensor, out).map_err(io::Error::other)?;
                let gradient = &self.gradient[tensor * values..(tensor + 1) * values];
                self.client.push(tensor, gradient).map_err(io::Error::other)?;
            }
            self.client.finish().map_err(io::Error::other)?;
        }
        Ok(vec![begin.elapsed().as_secs_f64()])
    }

    /// Pulls the small model again and again; seconds of one.
    fn pulls(&mut self, batches: u64, batch: u64) -> io::Result<Vec<f64>> {
        let mut out = vec![0.0; SMALL_VALUES as usize];
        tcp::sample(batches, batch, true, || {
            self.next += 1;
            self.small.begin(work(self.next)).map_err(io::Error::other)?;
            self.small.pull(0, &mut out).map_err(io::Error::other)
        })
    }
}

/// A unit whose gradient is subtracted as it is.
fn work(unit: u64) -> Work {
    Work { phase: 1, unit, step: unit, together: false, scale: 1.0, share: 1.0, samples: 1 }
}

/// Plain descent with rate 1.
fn optimizer() -> io::Result<Optimizer> {
    let text = "name='bench'\nsteps=1\n[model]\nkind='mlp'\nhidden=[]\n[data]\nkind='digits'\n\
                [batch]\nsize=8\nvirtual_nodes=8\n[optimizer]\nkind='sgd'\nlearning_rate=1.0\nmomentum=0.0";
    let job = parse::job(text, "bench", &[]).map_err(io::Error::other)?;
    Ok(Optimizer::new(&job, 1))
}
