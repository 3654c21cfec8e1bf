//! The coordinator of an inference: it starts workers, hands out units, and gives the results away in order.

use std::collections::BTreeMap;
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use bellwether_core::InputError;
use bellwether_core::job::Job;

use super::desk::Desk;
use super::hands::{Event, Granted, Shared, serve};
use super::wire::{Message, receive, send};
pub use super::work::Work;
use crate::channel::{ConnectionKind, Listener, Stream, raise_descriptor_limit};
use crate::coordinator::{Endpoint, Spawn, Spawned};
use crate::membership::WorkerId;
use crate::run_dir::{RunDir, RunDirError};

mod crew;

use crew::Crew;

/// Units that a worker holds: one that it computes and one that is on its way.
const AHEAD: u32 = 2;

/// Open units per worker: what waits for an earlier unit is bounded by them.
const WINDOW_PER_WORKER: u64 = 8;

/// Time between two looks at processes that were started.
const TICK: Duration = Duration::from_millis(20);

/// How long a worker may take for a unit before it counts as gone, if that is more than a multiple of the longest so
/// far.
const PATIENCE: Duration = Duration::from_secs(60);

/// Such a multiple.
const PATIENCE_FACTOR: u32 = 20;

/// The number by which who steers an inference is told from its workers.
const STEERS: WorkerId = u64::MAX - 1;

/// How an inference is started.
pub struct Options<W: Work> {
    /// Its folder, with its token: logs lie there, and where its coordinator is.
    pub run: RunDir,
    /// What workers are told: the job, and what the one who builds the workload has to know beside it.
    pub job: Job,
    /// See above.
    pub description: String,
    /// The trained parameters and state, in layout order.
    pub weights: (Vec<f32>, Vec<f32>),
    /// Where workers join.
    pub listen: SocketAddr,
    /// Workers that are started, and replaced when they die.
    pub workers: u32,
    /// How; without it all of them join by hand.
    pub spawn: Option<Spawn>,
    /// Number of the first unit: those before it were done by an earlier coordinator.
    pub first: u64,
    /// The kernel class of that coordinator's workers; others would compute other bits.
    pub class: Option<String>,
    /// What is computed.
    pub work: Arc<W>,
}

/// What is told while an inference goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// Workers join here.
    Listening(SocketAddr),
    /// A worker can compute, by these kernels; as many compute now.
    Joined {
        /// Its kernel class.
        class: String,
        /// Workers now.
        workers: usize,
    },
    /// A worker is gone before its time; as many are left.
    Lost {
        /// Why.
        why: String,
        /// Workers now.
        workers: usize,
    },
    /// Other numbers of workers are wanted.
    Scaled(u32),
}

/// An inference ended before its rows did.
#[derive(Debug, thiserror::Error)]
pub enum InferenceError {
    /// Rows that cannot be understood, or results that cannot be written.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The folder cannot be used.
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    /// The system does not give what is needed.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: std::io::Error,
    },
    /// Workers cannot compute.
    #[error("{0}")]
    Workers(String),
}

fn system(what: &'static str) -> impl Fn(std::io::Error) -> InferenceError {
    move |source| InferenceError::System { what, source }
}

/// Where results go, in the order of the units.
pub type Sink<'a, O> = &'a mut dyn FnMut(u64, O) -> Result<(), InputError>;

/// Computes all units of `source`, and gives each result to `sink` once, in order.
///
/// # Errors
///
/// See [`InferenceError`]. All results before the unit that failed were given to `sink`.
pub fn run<W: Work>(
    options: Options<W>,
    source: impl Iterator<Item = Result<W::Unit, InputError>> + Send + 'static,
    sink: Sink<'_, W::Output>,
    observe: &mut dyn FnMut(News),
) -> Result<(), InferenceError> {
    raise_descriptor_limit();
    let (events, heard) = channel();
    let token = options.run.token()?;
    let arrivals = events.clone();
    let on_arrival = Arc::new(move |hello: crate::channel::Hello, stream: Stream| {
        // A coordinator that has ended needs no workers.
        let _ = arrivals.send(Event::Arrived { worker: hello.worker, stream });
    });
    let place = (options.listen, &token);
    let listener = Listener::of_kind(&[ConnectionKind::Inference], place, on_arrival, Arc::new(|_| ()))
        .map_err(system("listen for workers"))?;
    let address = listener.local_addr();
    options.run.keep_endpoint(&Endpoint { control: address, data: address, process: std::process::id() })?;
    observe(News::Listening(address));
    let permits = read(source, events.clone()).map_err(system("start a thread"))?;
    let run = options.run.clone();
    let mut inference = Inference::new(options, address, events, permits);
    let result = inference.carry_on(&heard, sink, observe);
    // Without a way for further units each worker is told that there are none.
    inference.hands.clear();
    inference.crew.end(result.is_ok());
    run.remove_endpoint();
    result
}

/// Starts the thread that takes units from the source, one for each permit.
fn read<W: Work>(
    mut source: impl Iterator<Item = Result<W::Unit, InputError>> + Send + 'static,
    events: Sender<Event<W>>,
) -> std::io::Result<Sender<()>> {
    let (permit, permits) = channel();
    let read = move || {
        for () in permits {
            let unit = source.next().transpose();
            let is_last = !matches!(unit, Ok(Some(_)));
            if events.send(Event::Unit(unit)).is_err() || is_last {
                return;
            }
        }
    };
    std::thread::Builder::new().name("source".into()).spawn(read)?;
    Ok(permit)
}

/// A worker's connection.
struct Hand<U> {
    /// The number of a worker that was started here; 0 of others.
    worker: WorkerId,
    stream: Stream,
    /// Where its units go, once it can compute.
    grants: Option<Sender<Granted<U>>>,
    leaving: bool,
    /// When it was last given something or gave something back.
    since: Instant,
}

type Outcome<W> = Result<<W as Work>::Output, InputError>;

/// What the main loop knows.
struct Inference<W: Work> {
    shared: Arc<Shared<W>>,
    desk: Desk<Arc<W::Unit>, Outcome<W>>,
    /// Permits for units, of which as many are on their way.
    permits: Sender<()>,
    asked: u64,
    hands: BTreeMap<u64, Hand<W::Unit>>,
    last_hand: u64,
    crew: Crew,
    class: Option<String>,
    longest: Duration,
    /// An error of the source, which counts when all before it is out.
    failure: Option<InputError>,
}

impl<W: Work> Inference<W> {
    fn new(options: Options<W>, address: SocketAddr, events: Sender<Event<W>>, permits: Sender<()>) -> Self {
        let Options { job, description, weights, workers, spawn, first, class, work, .. } = options;
        let job = serde_json::to_string(&job).expect("a job is text");
        let (parameters, state) = weights;
        let window = WINDOW_PER_WORKER * u64::from(workers.max(4));
        Inference {
            shared: Arc::new(Shared { work, job, description, parameters, state, events }),
            desk: Desk::new(first, window),
            permits,
            asked: 0,
            hands: BTreeMap::new(),
            last_hand: 0,
            crew: Crew::new(spawn, address, workers),
            class,
            longest: Duration::ZERO,
            failure: None,
        }
    }

    fn carry_on(
        &mut self,
        heard: &Receiver<Event<W>>,
        sink: Sink<'_, W::Output>,
        observe: &mut dyn FnMut(News),
    ) -> Result<(), InferenceError> {
        let mut looked: Option<Instant> = None;
        while !self.desk.is_over() {
            if looked.is_none_or(|looked| looked.elapsed() >= TICK) {
                looked = Some(Instant::now());
                self.look(observe)?;
            }
            while self.desk.room() > self.asked && self.failure.is_none() {
                // The source ends by itself, and then there is no room.
                let _ = self.permits.send(());
                self.asked += 1;
            }
            for (hand, number, unit) in self.desk.grants() {
                if let Some(hand) = self.hands.get_mut(&hand) {
                    hand.since = Instant::now();
                    // One that is gone is reported soon.
                    let _ = hand.grants.as_ref().map(|grants| grants.send((number, unit)));
                }
            }
            match heard.recv_timeout(TICK) {
                Ok(event) => self.take(event, observe)?,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            while let Some((number, result)) = self.desk.take() {
                sink(number, result?)?;
            }
        }
        self.failure.take().map_or(Ok(()), |failure| Err(failure.into()))
    }

    fn take(&mut self, event: Event<W>, observe: &mut dyn FnMut(News)) -> Result<(), InferenceError> {
        match event {
            Event::Unit(unit) => {
                self.asked = self.asked.saturating_sub(1);
                match unit {
                    Ok(Some(unit)) => drop(self.desk.put(Arc::new(unit))),
                    Ok(None) => self.desk.end(),
                    Err(error) => {
                        self.failure = Some(error);
                        self.desk.end();
                    }
                }
            }
            Event::Arrived { worker: STEERS, stream } => self.steered(stream)?,
            Event::Arrived { worker, stream } => self.arrived(worker, stream)?,
            Event::Scale { workers, mut stream } => {
                self.crew.wanted = workers;
                observe(News::Scaled(workers));
                let told = format!("{workers} workers are wanted from now on");
                // Who asked may be gone already.
                let _ = send(&mut stream, &Message::Told(told));
            }
            Event::Ready { hand, class, grants } => self.ready(hand, class, grants, observe)?,
            Event::Done { hand, unit, result } => {
                if let Some(hand) = self.hands.get_mut(&hand) {
                    self.longest = self.longest.max(hand.since.elapsed());
                    hand.since = Instant::now();
                }
                self.desk.done(hand, unit, result);
            }
            Event::Gone { hand, why, is_user } => self.gone(hand, why, is_user, observe)?,
        }
        Ok(())
    }

    /// Someone steers the inference: hears on a thread of its own what is wanted.
    fn steered(&mut self, stream: Stream) -> Result<(), InferenceError> {
        let shared = Arc::clone(&self.shared);
        let hear = move || {
            if let Ok(Message::Scale(workers)) = receive(&mut stream.clone(), 0) {
                let _ = shared.events.send(Event::Scale { workers, stream });
            }
        };
        std::thread::Builder::new().name("steer".into()).spawn(hear).map_err(system("start a thread"))?;
        Ok(())
    }

    fn arrived(&mut self, worker: WorkerId, stream: Stream) -> Result<(), InferenceError> {
        self.last_hand += 1;
        let (number, shared, own) = (self.last_hand, Arc::clone(&self.shared), stream.clone());
        let serve = move || serve(&shared, number, &own);
        std::thread::Builder::new().name("worker".into()).spawn(serve).map_err(system("start a thread"))?;
        let hand = Hand { worker, stream, grants: None, leaving: false, since: Instant::now() };
        self.hands.insert(number, hand);
        Ok(())
    }

    fn ready(
        &mut self,
        number: u64,
        class: String,
        grants: Sender<Granted<W::Unit>>,
        observe: &mut dyn FnMut(News),
    ) -> Result<(), InferenceError> {
        let Some(hand) = self.hands.get_mut(&number) else { return Ok(()) };
        let own = self.class.get_or_insert_with(|| class.clone());
        if *own != class {
            let what =
                format!("this worker computes by `{class}`, and the rows before were computed by `{own}`");
            if self.crew.joined(hand.worker) {
                return Err(InferenceError::Workers(what));
            }
            let refused = Message::Failed { what, is_user: false };
            // Then it is gone.
            let _ =
                send(&mut hand.stream.clone(), &refused).and_then(|()| hand.stream.shutdown(Shutdown::Both));
            return Ok(());
        }
        hand.grants = Some(grants);
        hand.since = Instant::now();
        self.crew.joined(hand.worker);
        self.desk.join(number, AHEAD);
        observe(News::Joined { class, workers: self.desk.workers().len() });
        Ok(())
    }

    fn gone(
        &mut self,
        number: u64,
        why: String,
        is_user: bool,
        observe: &mut dyn FnMut(News),
    ) -> Result<(), InferenceError> {
        let Some(hand) = self.hands.remove(&number) else { return Ok(()) };
        let hopeless = self.desk.lost(number);
        if hand.leaving && hopeless.is_none() {
            return Ok(());
        }
        if is_user {
            return Err(InferenceError::Workers(why));
        }
        if let Some(unit) = hopeless {
            let what = format!(
                "unit {unit} was lost with each of the workers that computed it, the last time: {why}"
            );
            return Err(InferenceError::Workers(what));
        }
        self.crew.lost(hand.worker, &why)?;
        observe(News::Lost { why, workers: self.desk.workers().len() });
        Ok(())
    }

    /// Looks at processes: starts those that are wanted, lets go those that are not, gives up those that are silent.
    fn look(&mut self, observe: &mut dyn FnMut(News)) -> Result<(), InferenceError> {
        let patience = PATIENCE.max(self.longest.saturating_mul(PATIENCE_FACTOR));
        let mut silent = Vec::new();
        for (number, hand) in &self.hands {
            if hand.grants.is_some() && self.desk.held(*number) > 0 && hand.since.elapsed() > patience {
                silent.push((*number, hand.worker));
            }
        }
        for (number, worker) in silent {
            self.crew.kill(worker);
            if let Some(hand) = self.hands.get(&number) {
                let _ = hand.stream.shutdown(Shutdown::Both);
            }
            self.gone(number, format!("it was silent for {} s", patience.as_secs()), false, observe)?;
        }
        let own = |hand: &Hand<W::Unit>| hand.worker != 0 && hand.grants.is_some() && !hand.leaving;
        let mut staying = self.hands.values().filter(|hand| own(hand)).count();
        // The newest go first: the oldest are warm.
        for (number, hand) in self.hands.iter_mut().rev() {
            if own(hand) && staying > self.crew.wanted as usize {
                staying -= 1;
                hand.leaving = true;
                self.crew.released(hand.worker);
                self.desk.leave(*number);
            }
        }
        for (number, hand) in &mut self.hands {
            if hand.leaving && self.desk.held(*number) == 0 {
                // It is told that there is nothing more to do.
                hand.grants = None;
            }
        }
        self.crew.fill()
    }
}

/// Asks the coordinator of the inference in this folder for another number of workers. Returns what it says.
///
/// # Errors
///
/// Returns an error if no coordinator answers there.
pub fn scale(run: &RunDir, workers: u32) -> Result<String, InferenceError> {
    let gone = |why: String| {
        InferenceError::Workers(format!("no inference goes on in {}: {why}", run.path.display()))
    };
    let endpoint = run.endpoint().ok_or_else(|| gone("it says no address".into()))?;
    let address = endpoint.control.to_string();
    let stream = super::worker::connect(&address, &run.token()?, STEERS);
    let mut stream = stream.map_err(|error| gone(error.to_string()))?;
    send(&mut stream, &Message::Scale(workers)).map_err(|error| gone(error.to_string()))?;
    match receive(&mut stream, 0) {
        Ok(Message::Told(text)) => Ok(text),
        Ok(_) => Err(gone("it says something out of turn".into())),
        Err(error) => Err(gone(error.to_string())),
    }
}
