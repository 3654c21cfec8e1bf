//! The worker's session with its coordinator: a thread that speaks gRPC, reconnects, and hands what it
//! hears to the main thread.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio_stream::StreamExt;

use crate::channel::{raise_descriptor_limit, random_number};
use crate::collective::Waker;
use crate::control::client::{ClientError, Session, envelope, open_session};
use crate::control::{Token, convert, generated as wire};
use crate::membership::{FromWorker, Membership, Phase, ToWorker, WorkerId, WorkloadDescription};
use crate::notice::{self, Listening, Source, Watch};
use crate::parameters::Handle;
use crate::progress::{Progress, Witness};
use crate::run_dir::CoordinatorAddress;
use crate::threads;
use crate::worker::leash::{Call, Calls, Leashed};
use crate::worker::links::Preparation;

/// Time between two signs of life.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Time between two looks at how far the computing thread is.
const LOOK: Duration = Duration::from_millis(100);

/// Time between two attempts to reach a coordinator that went away.
const RETRY: Duration = Duration::from_millis(50);

/// How long a coordinator that takes a call may take to let the worker in: it may stand still for a while.
const ADMISSION: Duration = Duration::from_secs(20);

/// How long a worker that was asked to leave looks for a coordinator that it could tell.
const FAREWELL: Duration = Duration::from_secs(2);

/// Why a worker ends that was told to vanish.
const VANISHED: &str = "it was told to vanish";

/// What the main thread is told.
#[derive(Debug)]
pub(crate) enum Event {
    /// The coordinator let the worker in, with this number and job; at the first time.
    Welcome(wire::Welcome),
    /// The coordinator said something.
    Message(ToWorker),
    /// The session broke.
    Disconnected,
    /// A new session is open; the coordinator's data plane is at this address now.
    Reconnected(String),
    /// The background connections for a membership stand or failed.
    Prepared(Membership, Result<Preparation, (WorkerId, String)>),
    /// A state stream has news.
    Stream,
    /// There will be no session.
    Over {
        /// Why.
        why: String,
        /// Whether the coordinator refused.
        refused: bool,
    },
}

/// Events for the main thread, and the means to wake it from a collective.
#[derive(Debug)]
pub(crate) struct Mailbox {
    events: Mutex<VecDeque<Event>>,
    arrived: Condvar,
    urgent: AtomicBool,
    waker: Waker,
    /// What the last message about a phase said, for who waits for the address of a server in the middle of a unit.
    phase: Mutex<Option<Phase>>,
    /// Makes a wait for servers return.
    interrupt: Mutex<Option<Handle>>,
}

impl Mailbox {
    pub(crate) fn new(waker: Waker) -> Self {
        Mailbox {
            events: Mutex::default(),
            arrived: Condvar::new(),
            urgent: AtomicBool::new(false),
            waker,
            phase: Mutex::default(),
            interrupt: Mutex::default(),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Event>> {
        self.events.lock().expect("no holder of this lock panics")
    }

    pub(crate) fn put(&self, event: Event) {
        let urgent = matches!(
            event,
            Event::Disconnected
                | Event::Over { .. }
                | Event::Message(ToWorker::Recover { .. } | ToWorker::Bye { .. })
        );
        let mut events = self.lock();
        // A thread that waits for servers of an earlier phase waits in vain.
        let mut urgent = urgent;
        if let Event::Message(ToWorker::Phase(phase)) = &event {
            let mut latest = self.phase.lock().expect("no holder of this lock panics");
            urgent = latest.as_ref().is_some_and(|latest| latest.epoch != phase.epoch);
            *latest = Some(phase.clone());
        }
        events.push_back(event);
        // Before the lock is free, so that the flag is set when a reader takes the event.
        if urgent {
            self.urgent.store(true, Ordering::Release);
            self.waker.wake();
            if let Some(handle) = &*self.interrupt.lock().expect("no holder of this lock panics") {
                handle.interrupt();
            }
        }
        drop(events);
        self.arrived.notify_all();
    }

    /// The last that was said about a phase.
    pub(crate) fn phase(&self) -> Option<Phase> {
        self.phase.lock().expect("no holder of this lock panics").clone()
    }

    /// What is to be interrupted by something urgent beside a collective.
    pub(crate) fn interrupts(&self, handle: Option<Handle>) {
        *self.interrupt.lock().expect("no holder of this lock panics") = handle;
    }

    /// Whether something waits that must interrupt the step in flight.
    pub(crate) fn urgent(&self) -> bool {
        self.urgent.load(Ordering::Acquire)
    }

    /// The first of what waits; the rest goes on waiting.
    pub(crate) fn take_first(&self) -> Option<Event> {
        self.lock().pop_front()
    }

    /// Why the run is over for this worker, if that waits to be taken: whether it was refused, and the reason.
    pub(crate) fn farewell(&self) -> Option<(bool, String)> {
        self.lock().iter().find_map(|event| match event {
            Event::Over { why, refused } => Some((*refused, why.clone())),
            Event::Message(ToWorker::Bye { reason, refused }) => Some((*refused, reason.clone())),
            _ => None,
        })
    }

    /// All that waits; the urgency is over.
    pub(crate) fn take(&self) -> VecDeque<Event> {
        let mut events = self.lock();
        self.urgent.store(false, Ordering::Release);
        std::mem::take(&mut *events)
    }

    /// Waits until something is there, at most for `patience`.
    pub(crate) fn wait(&self, patience: Duration) {
        let events = self.lock();
        if events.is_empty() {
            drop(self.arrived.wait_timeout(events, patience).expect("no holder of this lock panics"));
        }
    }
}

/// What the worker says of itself when it opens a session.
#[derive(Debug, Clone, Default)]
pub(crate) struct Identity {
    pub(crate) worker: WorkerId,
    pub(crate) address: String,
    pub(crate) held: Option<(u64, u64)>,
    pub(crate) workload: Option<WorkloadDescription>,
    /// It is a parameter server.
    pub(crate) server: bool,
    /// Tells this process from another that has its number.
    pub(crate) instance: u64,
}

/// The session as the main thread sees it.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) mailbox: Arc<Mailbox>,
    identity: Arc<Mutex<Identity>>,
    outgoing: mpsc::UnboundedSender<FromWorker>,
    thread: Option<std::thread::JoinHandle<()>>,
    _watch: Watch,
}

impl Connection {
    /// Starts the thread; it keeps a session open until the worker ends, or is told to vanish.
    pub(crate) fn start(
        coordinator: CoordinatorAddress,
        token: Token,
        identity: Identity,
        (orphan_timeout, leashed): (Duration, Option<Leashed>),
        listening: &Listening,
        waker: Waker,
        progress: Arc<Progress>,
    ) -> std::io::Result<Connection> {
        raise_descriptor_limit();
        let mailbox = Arc::new(Mailbox::new(waker));
        let identity = Identity { instance: random_number()?, ..identity };
        let identity = Arc::new(Mutex::new(identity));
        let (outgoing, receiver) = mpsc::unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (noticed, notices) = mpsc::unbounded_channel();
        // The worker may be gone when a notice comes.
        let watch = notice::watch(listening, move |_| {
            let _ = noticed.send(());
        })?;
        let farewell = Farewell { notices, said: None };
        let keeper = Keeper {
            coordinator,
            token,
            orphan_timeout,
            mailbox: Arc::clone(&mailbox),
            identity: Arc::clone(&identity),
            progress,
            log: listening.log,
            terminate_is_notice: listening.sources.contains(&Source::Sigterm),
        };
        let thread = std::thread::Builder::new()
            .name("session".into())
            .spawn(move || runtime.block_on(keeper.keep(receiver, farewell, leashed)))?;
        Ok(Connection { mailbox, identity, outgoing, thread: Some(thread), _watch: watch })
    }

    /// Says something to the coordinator from another thread, as [`Connection::say`] does.
    pub(crate) fn voice(&self) -> impl Fn(FromWorker) + Send + 'static {
        let outgoing = self.outgoing.clone();
        move |message| drop(outgoing.send(message))
    }

    /// Says something to the coordinator; lost when there is no session.
    pub(crate) fn say(&self, message: FromWorker) {
        // The thread outlives this value; a closed channel can only mean that it panicked.
        let _ = self.outgoing.send(message);
    }

    /// Changes what the next session begins with.
    pub(crate) fn introduce(&self, change: impl FnOnce(&mut Identity)) {
        change(&mut self.identity.lock().expect("no holder of this lock panics"));
    }
}

impl Drop for Connection {
    /// Sends what was said before, then closes the session.
    fn drop(&mut self) {
        let (closed, _) = mpsc::unbounded_channel();
        self.outgoing = closed;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Keeper {
    coordinator: CoordinatorAddress,
    token: Token,
    orphan_timeout: Duration,
    mailbox: Arc<Mailbox>,
    identity: Arc<Mutex<Identity>>,
    progress: Arc<Progress>,
    log: fn(&str),
    /// Whether SIGTERM says that the server is taken away, and not that a user wants the worker to leave.
    terminate_is_notice: bool,
}

/// What may ask this worker to go.
struct Farewell {
    /// The provider takes the server away.
    notices: mpsc::UnboundedReceiver<()>,
    /// What was said about it, and is said again to a coordinator that came back.
    said: Option<FromWorker>,
}

impl Farewell {
    /// Says it now, and to every coordinator that comes back.
    fn say(&mut self, session: &Session, message: FromWorker) {
        // A session that broke is noticed where it is read.
        let _ = session.outgoing.send(envelope(&message));
        self.said = Some(message);
    }

    /// Ends when the worker was asked to leave and no coordinator came back in time to be told.
    async fn without_coordinator(&mut self, calls: &mut Calls) {
        let leave = FromWorker::Leave { replace: false };
        if self.said.as_ref() != Some(&leave) {
            while calls.next().await != Call::Leave {}
            self.said = Some(leave);
        }
        tokio::time::sleep(FAREWELL).await;
    }
}

enum End {
    /// The worker is done.
    Done,
    /// The worker is to vanish.
    Vanished,
    /// The session broke.
    Broken,
}

impl Keeper {
    async fn keep(
        self,
        mut outgoing: mpsc::UnboundedReceiver<FromWorker>,
        mut farewell: Farewell,
        leashed: Option<Leashed>,
    ) {
        let mut first = true;
        let Ok(mut calls) = Calls::listen(leashed, self.terminate_is_notice, self.log) else {
            return self.over("cannot listen for signals", false);
        };
        loop {
            let vanished = calls.vanished();
            let session = tokio::select! {
                session = self.open(first) => session,
                () = vanished => return self.over(VANISHED, false),
                () = farewell.without_coordinator(&mut calls) => {
                    return self.over("it was asked to leave, and no coordinator answers", false);
                }
                // The worker is done; what it says without a session reaches no one.
                () = async { while outgoing.recv().await.is_some() {} } => return,
            };
            let session = match session {
                Ok(session) => session,
                Err(error) => {
                    let refused = matches!(error, ClientError::Refused { .. } | ClientError::Stranger { .. });
                    let waited = format!("{error}; waited {:?} for one", self.patience(first));
                    return self.over(&if refused { error.to_string() } else { waited }, refused);
                }
            };
            self.identity.lock().expect("no holder of this lock panics").worker = session.welcome.worker;
            let welcome = session.welcome.clone();
            let event =
                if first { Event::Welcome(welcome) } else { Event::Reconnected(welcome.data_address) };
            first = false;
            self.mailbox.put(event);
            match self.converse(session, &mut outgoing, &mut calls, &mut farewell).await {
                End::Done => return,
                End::Vanished => return self.over(VANISHED, false),
                End::Broken => self.mailbox.put(Event::Disconnected),
            }
            // The main thread notes what it holds before the next session begins.
            tokio::time::sleep(RETRY).await;
        }
    }

    fn over(&self, why: &str, refused: bool) {
        self.mailbox.put(Event::Over { why: why.into(), refused });
    }

    /// How long to wait for a coordinator. One that is just starting may not listen yet.
    fn patience(&self, first: bool) -> Duration {
        if first { Duration::from_secs(3) } else { self.orphan_timeout }
    }

    async fn open(&self, first: bool) -> Result<Session, ClientError> {
        let begun = Instant::now();
        loop {
            let identity = self.identity.lock().expect("no holder of this lock panics").clone();
            let attach = wire::Attach {
                worker: identity.worker,
                address: identity.address,
                process: std::process::id(),
                held: identity.held.map(|(epoch, step)| wire::HeldState { epoch, step }),
                workload: identity.workload.as_ref().map(convert::write_workload),
                server: identity.server,
                instance: identity.instance,
            };
            match open_session(&self.coordinator.now(), &self.token, attach, ADMISSION).await {
                Err(ClientError::Unreachable { .. }) if begun.elapsed() < self.patience(first) => {
                    tokio::time::sleep(RETRY).await;
                }
                // A process that has the port of a dead coordinator must not end a worker that keeps a state.
                Err(ClientError::Stranger { .. }) if !first && begun.elapsed() < self.patience(first) => {
                    tokio::time::sleep(RETRY).await;
                }
                result => return result,
            }
        }
    }

    async fn converse(
        &self,
        mut session: Session,
        outgoing: &mut mpsc::UnboundedReceiver<FromWorker>,
        calls: &mut Calls,
        farewell: &mut Farewell,
    ) -> End {
        if let Some(message) = &farewell.said {
            let _ = session.outgoing.send(envelope(message));
        }
        let mut heartbeat = tokio::time::interval(HEARTBEAT);
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut witness = Witness::new(Arc::clone(&self.progress));
        let mut told_to_go = false;
        loop {
            tokio::select! {
                said = outgoing.recv() => match said {
                    Some(message) if session.outgoing.send(envelope(&message)).is_err() => return End::Broken,
                    Some(_) => {}
                    None => {
                        // Close our half and let the coordinator read everything.
                        drop(session.outgoing);
                        let drain = async { while let Some(Ok(_)) = session.incoming.next().await {} };
                        let _ = tokio::time::timeout(Duration::from_millis(500), drain).await;
                        return End::Done;
                    }
                },
                heard = session.incoming.next() => match heard {
                    Some(Ok(message)) => match convert::read_to_worker(message) {
                        Some(ToWorker::Inquire { explain }) => {
                            if explain {
                                threads::all().iter().for_each(|line| (self.log)(line));
                            }
                            let position = FromWorker::At(witness.position());
                            if session.outgoing.send(envelope(&position)).is_err() {
                                return End::Broken;
                            }
                        }
                        Some(message) => {
                            told_to_go |= matches!(message, ToWorker::Bye { .. });
                            self.mailbox.put(Event::Message(message));
                        }
                        None => return End::Broken,
                    },
                    // A worker that was told to go does not come back, however busy the main thread is.
                    _ if told_to_go => return End::Done,
                    _ => return End::Broken,
                },
                _ = heartbeat.tick() => {
                    let position = FromWorker::At(witness.position());
                    if session.outgoing.send(envelope(&position)).is_err() {
                        return End::Broken;
                    }
                }
                _ = look.tick() => witness.look(),
                call = calls.next() => match call {
                    Call::Vanish => return End::Vanished,
                    Call::Leave => farewell.say(&session, FromWorker::Leave { replace: false }),
                },
                Some(()) = farewell.notices.recv() => {
                    farewell.say(&session, FromWorker::Leave { replace: true });
                }
            }
        }
    }
}
