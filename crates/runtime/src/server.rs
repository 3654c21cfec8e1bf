//! A parameter server's process: holds a shard while a phase lasts, and stands by between phases.
//!
//! Its control plane is that of a worker: one session, over which the coordinator says which shard to hold
//! ([`ToWorker::Serve`]) and when to hand it over ([`ToWorker::HandOver`]). Workers reach its data plane.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bellwether_core::job::CheckedJob;
use bellwether_core::prediction::Protocol;

use crate::channel::{ConnectionKind, Inbox, InboxError, Listener, Stream};
use crate::collective::wake_pair;
use crate::membership::{FromWorker, Serve, ServerReport, ToWorker};
use crate::optimizer::Optimizer;
use crate::parameters::{Phase, Rule, Server, ServerOptions, ShardMap, Told};
use crate::state::TrainingState;
use crate::transfer::{self, Kind};
use crate::worker::links::{Connector, LinkError};
use crate::worker::session::{Connection, Event, Identity};
use crate::worker::{Options, WorkerError, system, welcomed};

/// Time between two reports of a server that is at work.
const REPORT_PERIOD: Duration = Duration::from_millis(200);

/// Runs a server until its run ends or it cannot go on.
///
/// # Errors
///
/// See [`WorkerError`].
pub fn run(options: Options) -> Result<(), WorkerError> {
    let listener = Listener::bind(options.listen, &options.token, Arc::new(|_| {}))
        .map_err(system("listen for workers"))?;
    let (waker, _wake) = wake_pair().map_err(system("make a waker"))?;
    let identity = Identity {
        worker: options.worker,
        address: listener.local_addr().to_string(),
        server: true,
        ..Identity::default()
    };
    let connection = Connection::start(
        options.coordinator.clone(),
        options.token.clone(),
        identity,
        (options.orphan_timeout, options.leashed.clone()),
        &options.notices,
        waker,
        Arc::default(),
    )
    .map_err(system("start the session"))?;
    let welcome = welcomed(&connection)?;
    listener.set_number(welcome.worker);
    let job: CheckedJob = serde_json::from_str(&welcome.job)
        .map_err(|e| WorkerError::Task(format!("the coordinator's job cannot be read: {e}")))?;
    let connector = Connector { me: welcome.worker, token: options.token.clone(), inbox: listener.inbox() };
    let process = Process {
        job,
        connection,
        connector,
        data_address: welcome.data_address,
        holding: None,
        reported: Instant::now(),
        alone: Arc::default(),
    };
    process.run()
}

/// A shard that is held.
struct Holding {
    server: Arc<Server>,
    epoch: u64,
    shard: u32,
    /// Nothing is admitted any more.
    over: Arc<AtomicBool>,
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        self.server.stop();
    }
}

struct Process {
    job: CheckedJob,
    connection: Connection,
    connector: Connector,
    data_address: String,
    holding: Option<Holding>,
    reported: Instant,
    /// Why the replica is lost, until the coordinator is told.
    alone: Arc<Mutex<Option<String>>>,
}

impl Process {
    fn run(mut self) -> Result<(), WorkerError> {
        loop {
            self.connection.mailbox.wait(Duration::from_millis(100));
            for event in self.connection.mailbox.take() {
                match event {
                    Event::Message(ToWorker::Serve(serve)) => self.serve(&serve),
                    Event::Message(ToWorker::HandOver { epoch, step }) => self.hand_over(epoch, step),
                    Event::Message(ToWorker::Bye { reason, refused: true }) => {
                        return Err(WorkerError::Refused(reason));
                    }
                    Event::Message(ToWorker::Bye { .. }) => return Ok(()),
                    // The next coordinator begins again from what is written.
                    Event::Disconnected => self.holding = None,
                    Event::Reconnected(data_address) => self.data_address = data_address,
                    Event::Over { why, refused: true } => return Err(WorkerError::Refused(why)),
                    Event::Over { why, .. } => return Err(WorkerError::Orphaned(why)),
                    Event::Message(_) | Event::Welcome(_) | Event::Prepared(..) | Event::Stream => {}
                }
            }
            self.tell_if_alone();
            if self.reported.elapsed() >= REPORT_PERIOD {
                self.report(None);
            }
        }
    }

    /// Loads a shard and serves it.
    fn serve(&mut self, serve: &Serve) {
        self.holding = None;
        // What became of an earlier shard does not concern this one.
        *self.alone.lock().expect("no holder of this lock panics") = None;
        match self.load(serve) {
            Ok(holding) => {
                self.holding = Some(holding);
                self.connection.say(FromWorker::Serving { epoch: serve.epoch });
            }
            Err(error) => self.connection.say(FromWorker::Failed { what: error.to_string() }),
        }
    }

    fn load(&self, serve: &Serve) -> Result<Holding, LinkError> {
        let workload = &serve.workload;
        let total_steps = self.job.total_steps(workload.training_samples);
        let rule = if serve.protocol == Protocol::Bsp { Rule::Together } else { Rule::Each };
        let optimizer = match rule {
            Rule::Together => Optimizer::new(&self.job, total_steps),
            Rule::Each => Optimizer::of_units(&self.job, total_steps),
        };
        let mut whole = TrainingState::zeros(&workload.layout, optimizer.slots().len());
        if let Some(step) = serve.checkpoint {
            let mut stream = self.connector.state_stream(serve.epoch, &self.data_address)?;
            let mut receive = || {
                transfer::send_mark(&mut stream, Kind::Fetch, step)?;
                let begin = transfer::receive_header(&mut stream)?;
                transfer::receive_whole(&mut stream, begin, &mut whole)
            };
            receive().map_err(LinkError::broken(format!("the state after step {step} did not arrive")))?;
        }
        let map = Arc::new(ShardMap::new(&workload.layout, serve.shards));
        let options = ServerOptions {
            map,
            me: serve.shard,
            job: self.connector.token.job_tag(),
            slots: optimizer.slots().len(),
            units_per_step: self.job.batch.virtual_nodes / self.job.sync.nodes_per_update,
            order: serve.order.clone(),
        };
        let alone = Arc::clone(&self.alone);
        let server = Server::start(options, move |told: Told| {
            if let Told::ReplicaLost { why } = told {
                *alone.lock().expect("no holder of this lock panics") = Some(why);
            }
        });
        server.load(&whole);
        server.begin(Phase { number: serve.epoch, rule, step: serve.step, optimizer });
        let holding = Holding {
            server: Arc::new(server),
            epoch: serve.epoch,
            shard: serve.shard,
            over: Arc::default(),
        };
        if let Some(replica) = &serve.replica {
            let stream = self.connector.parameter_stream(serve.epoch, &replica.address)?;
            let broken = LinkError::broken("the replica cannot be reached");
            holding.server.replicate_to(stream).map_err(broken)?;
        }
        self.admit(&holding, serve.follows).map_err(LinkError::broken("cannot start a thread"))?;
        Ok(holding)
    }

    /// Serves those who connect for this phase; the first, at a replica, is the primary.
    fn admit(&self, holding: &Holding, follows: bool) -> std::io::Result<()> {
        let (inbox, epoch): (Arc<Inbox>, u64) = (Arc::clone(&self.connector.inbox), holding.epoch);
        inbox.discard_below(ConnectionKind::Parameters, epoch);
        let (server, over) = (Arc::clone(&holding.server), Arc::clone(&holding.over));
        let mut follows = follows;
        let admit = move || {
            while !over.load(Ordering::Acquire) {
                let deadline = Instant::now() + Duration::from_millis(50);
                match inbox.take_any(ConnectionKind::Parameters, deadline) {
                    // Of an earlier phase, or for a later one: the dialer sees it closed, and tries again.
                    Ok((arrival, _)) if arrival.epoch != epoch => {}
                    Ok((arrival, stream)) => {
                        let first = std::mem::take(&mut follows);
                        // The process at the other end notices that no thread serves its stream.
                        drop(if first {
                            server.follow(stream)
                        } else {
                            server.serve(stream, arrival.worker)
                        });
                    }
                    Err(InboxError::TimedOut) => {}
                    Err(InboxError::Closed) => return,
                }
            }
        };
        std::thread::Builder::new().name("admit".into()).spawn(admit).map(|_| ())
    }

    /// Its replica is gone: what it applies from now on is nowhere else.
    fn tell_if_alone(&mut self) {
        let why = self.alone.lock().expect("no holder of this lock panics").take();
        if let (Some(why), Some(holding)) = (why, &self.holding) {
            let (epoch, shard) = (holding.epoch, holding.shard);
            self.connection.say(FromWorker::ServerLost { epoch, shard, why });
        }
    }

    fn hand_over(&mut self, epoch: u64, step: u64) {
        let Some(holding) = self.holding.as_ref().filter(|holding| holding.epoch == epoch) else { return };
        let mut shard = holding.server.shard();
        shard.step = step;
        // Before the shard, so that the account is whole when the phase ends with it.
        self.report(Some(step));
        let send = |stream: &mut Stream| {
            transfer::send_mark(stream, Kind::Part, step)?;
            transfer::send_whole(stream, &shard)
        };
        let stream = self.connector.state_stream(epoch, &self.data_address);
        let sent = stream.map_err(LinkError::from).and_then(|mut stream| Ok(send(&mut stream)?));
        if let Err(error) = sent {
            let what = format!("the shard could not be handed over: {error}");
            self.connection.say(FromWorker::Failed { what });
        }
    }

    fn report(&mut self, handed_over: Option<u64>) {
        let Some(holding) = &self.holding else { return };
        let account = holding.server.account();
        self.connection.say(FromWorker::ServerReport(ServerReport {
            epoch: holding.epoch,
            staleness: account.staleness,
            updates: account.updates,
            apply_s: account.applying_s,
            received_bytes: account.bytes_in,
            sent_bytes: account.bytes_out,
            handed_over,
            pieces_s: account.pieces.iter().map(|(_, _, mean_s)| *mean_s).collect(),
        }));
        self.reported = Instant::now();
    }
}
