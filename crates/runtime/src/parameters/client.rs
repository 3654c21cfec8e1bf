//! A worker's side: parameters that come piece by piece for one unit of work, and gradients that leave so.
//!
//! Each server's connection has a thread that reads and one that writes, so that the network works while the workload
//! computes. One buffer per piece holds its parameters until they are taken, and then its gradient until it is
//! acknowledged: whatever a broken connection had in flight can be asked for, or sent, again.

mod link;
mod watched;

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bellwether_core::plan::TransmissionOrder;
use thiserror::Error;

use super::map::ShardMap;
use super::pipe::lock;
use super::wire::{Header, Kind, Stamp};
use crate::channel::Stream;
use crate::workload::{TensorExchange, WorkloadError};
use link::Link;
use watched::Watched;

/// What a client is made with.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// Who holds what.
    pub map: Arc<ShardMap>,
    /// Tag of the job.
    pub job: u64,
    /// Which of the gradients that wait for a connection goes next.
    pub order: TransmissionOrder,
    /// How long a broken connection may stay so before waits for its server fail: time for [`Handle::replace`].
    pub patience: Duration,
}

/// One unit of work.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Work {
    /// The servers' phase.
    pub phase: u64,
    /// Number of the unit.
    pub unit: u64,
    /// Its step, which says the learning rate.
    pub step: u64,
    /// Whether the units of a step are applied together: then parameters are of this step.
    pub together: bool,
    /// Factor on the summed gradient. Each for itself: one over the unit's samples. Together: one over the step's.
    pub scale: f32,
    /// Factor on the learning rate, where each is applied for itself: the unit's share of the step's samples.
    pub share: f32,
    /// Samples of the step: the divisor of a summed model state.
    pub samples: u64,
}

/// Why a wait ended without what was waited for. The client is as good as before.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Fault {
    /// It was interrupted.
    #[error("interrupted")]
    Interrupted,
    /// A connection broke and was not replaced in time.
    #[error("lost parameter server {server}: {why}")]
    Lost {
        /// Number of the server.
        server: u32,
        /// The reason.
        why: String,
    },
    /// The workload broke the contract of [`TensorExchange`].
    #[error("{0}")]
    Order(&'static str),
}

impl From<Fault> for WorkloadError {
    fn from(fault: Fault) -> Self {
        WorkloadError::new(fault.to_string())
    }
}

/// What became of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct UnitAccount {
    /// Largest staleness of its pieces, in updates.
    pub staleness_max: u64,
    /// Mean staleness of its pieces that were applied.
    pub staleness_mean: f64,
    /// Pieces that had been applied before.
    pub repeated: u64,
    /// Seconds that the workload waited for parameters.
    pub waited_s: f64,
    /// Seconds from its first gradient to the last acknowledgement.
    pub sending_s: f64,
    /// Seconds of those after the last gradient was given.
    pub finishing_s: f64,
}

/// A worker's connections to all servers. Dropping it closes them.
#[derive(Debug)]
pub struct Client {
    shared: Arc<Shared>,
    state: Vec<f32>,
}

/// Steers a client from other threads.
#[derive(Debug, Clone)]
pub struct Handle(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    options: ClientOptions,
    inner: Mutex<Inner>,
    /// Something came, broke, or was interrupted.
    changed: Condvar,
    /// For each server: something is to be sent.
    due: Vec<Condvar>,
    watched: Mutex<Option<Watched>>,
}

#[derive(Debug)]
struct Inner {
    work: Option<Work>,
    pieces: Vec<Slot>,
    links: Vec<Link>,
    interrupted: bool,
    unacknowledged: usize,
    tally: Tally,
}

#[derive(Debug, Default)]
struct Tally {
    account: UnitAccount,
    staleness_sum: u64,
    first_given: Option<Instant>,
}

/// A piece's buffer and how far it is.
#[derive(Debug, Default)]
struct Slot {
    stage: Stage,
    version: u64,
    /// Empty while a thread reads into it or writes it.
    values: Vec<f32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Stage {
    #[default]
    Idle,
    /// The parameters are on their way.
    Asked,
    /// The parameters are here.
    Here,
    /// The gradient waits to be sent, or to be acknowledged.
    Given,
    /// The gradient was applied.
    Applied,
}

impl Client {
    /// A client over one admitted connection per server, in the servers' order.
    ///
    /// # Errors
    ///
    /// Returns an error if a socket refuses its options, or the system gives no thread.
    ///
    /// # Panics
    ///
    /// When there are not as many connections as servers.
    pub fn new(options: ClientOptions, streams: Vec<Stream>) -> io::Result<Client> {
        assert_eq!(streams.len(), options.map.servers() as usize, "one connection per server");
        let pieces = options.map.pieces().iter();
        let pieces = pieces.map(|piece| Slot { values: vec![0.0; piece.len()], ..Slot::default() }).collect();
        let inner = Inner {
            work: None,
            pieces,
            links: streams.iter().map(|_| Link::new(&options.order)).collect(),
            interrupted: false,
            unacknowledged: 0,
            tally: Tally::default(),
        };
        let due = streams.iter().map(|_| Condvar::new()).collect();
        let shared = Arc::new(Shared {
            options,
            inner: Mutex::new(inner),
            changed: Condvar::new(),
            due,
            watched: Mutex::default(),
        });
        for (server, stream) in (0..).zip(streams) {
            shared.connect(server, stream)?;
        }
        Ok(Client { shared, state: Vec::new() })
    }

    /// A handle for other threads.
    pub fn handle(&self) -> Handle {
        Handle(Arc::clone(&self.shared))
    }

    /// Begins a unit: asks for all pieces, in the order of the tensors. What was left of an earlier one is abandoned.
    ///
    /// # Errors
    ///
    /// Returns [`Fault::Interrupted`].
    pub fn begin(&mut self, work: Work) -> Result<(), Fault> {
        let shared = &self.shared;
        let mut inner = lock(&shared.inner);
        if inner.interrupted {
            return Err(Fault::Interrupted);
        }
        inner.work = Some(work);
        inner.tally = Tally::default();
        inner.unacknowledged = inner.pieces.len();
        inner.pieces.iter_mut().for_each(|slot| slot.stage = Stage::Asked);
        for server in 0..shared.options.map.servers() {
            shared.ask(&mut inner, server);
        }
        Ok(())
    }

    /// Waits for the model state as the servers have it.
    ///
    /// # Errors
    ///
    /// See [`Fault`].
    pub fn state(&mut self) -> Result<&[f32], Fault> {
        let map = &self.shared.options.map;
        let pieces = map.of_tensor(map.state_tensor());
        self.state.resize(map.pieces()[pieces].iter().map(|piece| piece.len()).sum(), 0.0);
        self.shared.copy_out(map.state_tensor(), &mut self.state)?;
        Ok(&self.state)
    }

    /// Hands the model state over, where the model has one: as the unit would leave it; where units are applied
    /// together, summed over the unit's samples along the canonical tree.
    ///
    /// # Errors
    ///
    /// See [`Fault`].
    pub fn give_state(&mut self, state: &[f32]) -> Result<(), Fault> {
        let together = lock(&self.shared.inner).work.is_some_and(|work| work.together);
        self.shared.queue(self.shared.options.map.state_tensor(), state, |buffer, new| {
            if together {
                return buffer.copy_from_slice(new);
            }
            for (value, new) in buffer.iter_mut().zip(new) {
                *value = new - *value;
            }
        })
    }

    /// Waits until all gradients (and the model state) are acknowledged, and tells what became of the unit.
    ///
    /// # Errors
    ///
    /// See [`Fault`]; the unit may have been applied in part, and may be begun again.
    pub fn finish(&mut self) -> Result<UnitAccount, Fault> {
        let shared = &self.shared;
        let begin = Instant::now();
        let everywhere = |inner: &Inner, _: u32| inner.unacknowledged > 0;
        let inner = shared.wait(everywhere, |inner| inner.unacknowledged == 0)?;
        let tally = &inner.tally;
        let mut account = tally.account;
        let applied = inner.pieces.len() as u64 - account.repeated;
        account.staleness_mean = tally.staleness_sum as f64 / applied.max(1) as f64;
        account.sending_s = tally.first_given.map_or(0.0, |first| first.elapsed().as_secs_f64());
        account.finishing_s = begin.elapsed().as_secs_f64();
        Ok(account)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        for server in 0..self.shared.options.map.servers() {
            self.shared.disconnect(server);
        }
    }
}

impl TensorExchange for Client {
    fn pull(&mut self, tensor: usize, out: &mut [f32]) -> Result<(), WorkloadError> {
        Ok(self.shared.copy_out(tensor, out)?)
    }

    fn push(&mut self, tensor: usize, gradient: &[f32]) -> Result<(), WorkloadError> {
        Ok(self.shared.queue(tensor, gradient, |buffer, gradient| buffer.copy_from_slice(gradient))?)
    }
}

impl Handle {
    /// Lets all waits, and every new one, fail at once, until [`resume`](Handle::resume).
    pub fn interrupt(&self) {
        lock(&self.0.inner).interrupted = true;
        self.0.changed.notify_all();
    }

    /// Lets waits wait again.
    pub fn resume(&self) {
        lock(&self.0.inner).interrupted = false;
    }

    /// The servers whose connections are broken, and why.
    pub fn lost(&self) -> Vec<(u32, String)> {
        let inner = lock(&self.0.inner);
        let lost =
            (0..).zip(&inner.links).filter_map(|(server, link)| Some((server, link.lost()?.to_owned())));
        lost.collect()
    }

    /// Takes a new connection to a server, which may be another process by now: what was asked of it is asked again,
    /// and gradients without acknowledgement are sent again.
    ///
    /// # Errors
    ///
    /// Same errors as [`Client::new`].
    pub fn replace(&self, server: u32, stream: Stream) -> io::Result<()> {
        self.0.disconnect(server);
        self.0.connect(server, stream)
    }
}

impl Shared {
    /// Waits until `ready`; fails when interrupted, or when a server that `concerns` the wait stays lost.
    fn wait(
        &self,
        concerns: impl Fn(&Inner, u32) -> bool,
        ready: impl Fn(&Inner) -> bool,
    ) -> Result<MutexGuard<'_, Inner>, Fault> {
        let mut inner = lock(&self.inner);
        let mut deadline: Option<Instant> = None;
        let mut told = None;
        loop {
            if inner.interrupted {
                return Err(Fault::Interrupted);
            }
            if ready(&inner) {
                return Ok(inner);
            }
            told = self.remark(told, &inner, &concerns);
            let lost = (0..).zip(&inner.links).filter(|(server, _)| concerns(&inner, *server));
            let lost = lost.filter_map(|(server, link)| Some((server, link.lost()?))).next();
            let Some((server, why)) = lost else {
                deadline = None;
                let waited = self.changed.wait_timeout(inner, watched::LOOK);
                inner = waited.expect("no holder of this lock has panicked").0;
                continue;
            };
            let until = *deadline.get_or_insert_with(|| Instant::now() + self.options.patience);
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Fault::Lost { server, why: why.to_owned() });
            }
            let waited = self.changed.wait_timeout(inner, left);
            inner = waited.expect("no holder of this lock has panicked").0;
        }
    }

    /// Waits for the pieces of a tensor and copies each as it is there.
    fn copy_out(&self, tensor: usize, out: &mut [f32]) -> Result<(), Fault> {
        let map = &self.options.map;
        let mut waited_s = 0.0;
        for number in map.of_tensor(tensor) {
            let piece = &map.pieces()[number];
            let begin = Instant::now();
            let here = |inner: &Inner| inner.pieces[number].stage != Stage::Asked;
            let mut inner = self.wait(|_, server| server == piece.server, here)?;
            waited_s += begin.elapsed().as_secs_f64();
            if inner.pieces[number].stage != Stage::Here {
                return Err(Fault::Order("parameters can be taken until their gradient is given"));
            }
            let values = std::mem::take(&mut inner.pieces[number].values);
            drop(inner);
            out[map.within(piece)].copy_from_slice(&values);
            lock(&self.inner).pieces[number].values = values;
        }
        lock(&self.inner).tally.account.waited_s += waited_s;
        Ok(())
    }

    /// Puts a tensor's gradient, as `write` makes it from what is given, in the outboxes of its pieces.
    fn queue(&self, tensor: usize, given: &[f32], write: impl Fn(&mut [f32], &[f32])) -> Result<(), Fault> {
        let map = &self.options.map;
        for number in map.of_tensor(tensor) {
            let piece = &map.pieces()[number];
            let mut inner = lock(&self.inner);
            if inner.interrupted {
                return Err(Fault::Interrupted);
            }
            if inner.pieces[number].stage != Stage::Here {
                return Err(Fault::Order("a gradient is given once, after its parameters were taken"));
            }
            let mut values = std::mem::take(&mut inner.pieces[number].values);
            drop(inner);
            write(&mut values, &given[map.within(piece)]);
            let mut inner = lock(&self.inner);
            inner.tally.first_given.get_or_insert_with(Instant::now);
            inner.pieces[number].values = values;
            inner.pieces[number].stage = Stage::Given;
            inner.links[piece.server as usize].put(number as u32, piece);
            drop(inner);
            self.due[piece.server as usize].notify_one();
        }
        Ok(())
    }

    /// Asks a server for all of its pieces that are not here, and puts what it did not acknowledge in the outbox.
    fn ask(&self, inner: &mut Inner, server: u32) {
        let map = &self.options.map;
        let Inner { work: Some(work), pieces, links, .. } = inner else { return };
        let link = &mut links[server as usize];
        link.clear();
        for number in map.of_server(server) {
            match pieces[*number as usize].stage {
                Stage::Asked => {
                    let pull = self.header(Kind::Pull, *number, work);
                    link.pull(&Header { step: if work.together { work.step } else { 0 }, ..pull });
                }
                Stage::Given => link.put(*number, &map.pieces()[*number as usize]),
                Stage::Idle | Stage::Here | Stage::Applied => {}
            }
        }
        self.due[server as usize].notify_one();
    }

    fn header(&self, kind: Kind, number: u32, work: &Work) -> Header {
        let stamp = Stamp { job: self.options.job, phase: work.phase };
        Header { unit: work.unit, step: work.step, ..Header::new(kind, number, stamp) }
    }
}
