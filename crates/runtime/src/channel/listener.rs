//! The listening side: accepts, runs handshakes beside each other, hands on what passed.
//!
//! A dialer that stays silent, sends garbage or holds another token costs one short-lived thread for at most
//! [`HANDSHAKE_DEADLINE`], is reported, and touches nothing else. When all places are taken, the oldest dialer that has
//! proved nothing gives its place to the newest, from the address that has most of them: a dialer that floods a
//! listener displaces itself. A process has some descriptors that no stranger gets, however many come.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use socket2::Socket;

use super::descriptors::Noted;
use super::handshake::{ANYONE, ConnectionKind, Door, Hello, RefusalReason, Status, limitless, status};
use super::inbox::Inbox;
use super::local::Local;
use super::patience::{PATIENCE, limit_silence};
use super::{Stream, Token, descriptor_bounds, lane};

/// Time a whole handshake may take.
pub const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(5);

/// Handshakes in progress at once, where the process may have descriptors enough.
pub const HANDSHAKES_MAX: usize = 64;

/// Connections that wait for `accept`: whole clusters dial at the same moment.
const BACKLOG: i32 = 1024;

/// A dialer that was sent away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Where it dialed from, unless on this machine.
    pub peer: Option<SocketAddr>,
    /// Why.
    pub reason: RefusalReason,
}

/// Called with every refused dialer, from the listener's threads.
pub type OnRefusal = Arc<dyn Fn(Refusal) + Send + Sync>;

/// Called with every connection that passed, from the listener's threads.
pub(crate) type OnArrival = Arc<dyn Fn(Hello, Stream) + Send + Sync>;

struct Gate {
    token: Token,
    kinds: &'static [ConnectionKind],
    /// This process's number; [`ANYONE`] until it is said.
    number: Arc<AtomicU64>,
    on_arrival: OnArrival,
    on_refusal: OnRefusal,
    places: Mutex<Places>,
    /// Descriptors are given lowest first: a connection that gets this one or a later one takes what is kept for the
    /// run itself.
    first_reserved: RawFd,
}

/// The handshakes in progress.
struct Places {
    most: usize,
    last: u64,
    taken: BTreeMap<u64, Place>,
}

struct Place {
    source: Option<IpAddr>,
    /// Shut down when another needs the place.
    socket: Socket,
    proved: bool,
    displaced: bool,
}

impl Gate {
    fn places(&self) -> MutexGuard<'_, Places> {
        // Whole whatever thread panicked while it held the lock.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refuse(&self, peer: Option<SocketAddr>, reason: RefusalReason) {
        (self.on_refusal)(Refusal { peer, reason });
    }
}

impl Places {
    /// A place for a new dialer, if need be that of an older one. `None` if all dialers are honest.
    fn take(&mut self, source: Option<IpAddr>, socket: Socket) -> Option<u64> {
        if self.taken.values().filter(|place| !place.displaced).count() >= self.most {
            let victim = self.victim()?;
            let place = self.taken.get_mut(&victim).expect("it was just found");
            place.displaced = true;
            // Its thread sees the end of the connection; one that is gone already needs no end.
            let _ = place.socket.shutdown(Shutdown::Both);
        }
        self.last += 1;
        self.taken.insert(self.last, Place { source, socket, proved: false, displaced: false });
        Some(self.last)
    }

    /// The oldest unproved dialer from the address that has most of them.
    fn victim(&self) -> Option<u64> {
        let mut sources: BTreeMap<Option<IpAddr>, (usize, u64)> = BTreeMap::new();
        for (number, place) in self.taken.iter().filter(|(_, place)| !place.proved && !place.displaced) {
            sources.entry(place.source).or_insert((0, *number)).0 += 1;
        }
        sources
            .into_values()
            .max_by_key(|(count, oldest)| (*count, u64::MAX - oldest))
            .map(|(_, oldest)| oldest)
    }
}

/// A listening socket with its accepting thread; dropping it ends both and closes the inbox.
pub struct Listener {
    address: SocketAddr,
    inbox: Arc<Inbox>,
    number: Arc<AtomicU64>,
    stop: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Listener {
    /// Listens for the data plane on `address` (port 0 for any), and beside it for this user's processes on this
    /// machine. Connections of holders of `token` wait in the [inbox](Listener::inbox).
    ///
    /// # Errors
    ///
    /// Returns an error if the address cannot be bound, or the system gives no thread or descriptor.
    pub fn bind(address: SocketAddr, token: &Token, on_refusal: OnRefusal) -> io::Result<Listener> {
        Listener::data(Opened::bind(address, token, true)?, on_refusal)
    }

    /// Listens as [`bind`](Listener::bind) does, for other machines only: for measurements of the way over the network.
    ///
    /// # Errors
    ///
    /// Same errors as [`bind`](Listener::bind).
    pub fn bind_remote(address: SocketAddr, token: &Token, on_refusal: OnRefusal) -> io::Result<Listener> {
        Listener::data(Opened::bind(address, token, false)?, on_refusal)
    }

    /// Lets connections of the data plane wait in the inbox.
    fn data(opened: Opened, on_refusal: OnRefusal) -> io::Result<Listener> {
        let inbox = Arc::new(Inbox::default());
        let arrived = Arc::clone(&inbox);
        let on_arrival = Arc::new(move |hello: Hello, stream| arrived.put(&hello, stream));
        Listener::start(opened, inbox, &ConnectionKind::DATA, on_arrival, on_refusal)
    }

    /// Listens for connections of one kind; `on_arrival` is given every one of them.
    ///
    /// # Errors
    ///
    /// Same errors as [`bind`](Listener::bind).
    pub(crate) fn of_kind(
        kind: &'static [ConnectionKind; 1],
        (address, token): (SocketAddr, &Token),
        on_arrival: OnArrival,
        on_refusal: OnRefusal,
    ) -> io::Result<Listener> {
        let opened = Opened::bind(address, token, true)?;
        Listener::start(opened, Arc::default(), kind, on_arrival, on_refusal)
    }

    fn start(
        opened: Opened,
        inbox: Arc<Inbox>,
        kinds: &'static [ConnectionKind],
        on_arrival: OnArrival,
        on_refusal: OnRefusal,
    ) -> io::Result<Listener> {
        let (stop, stopped) = UnixStream::pair()?;
        let address = opened.address;
        let number = Arc::new(AtomicU64::new(ANYONE));
        let (most, first_reserved) = descriptor_bounds();
        let places = Mutex::new(Places { most, last: 0, taken: BTreeMap::new() });
        let (token, own) = (opened.token.clone(), Arc::clone(&number));
        let gate = Gate { token, kinds, number: own, on_arrival, on_refusal, places, first_reserved };
        let gate = Arc::new(gate);
        let thread = std::thread::Builder::new()
            .name("accept".into())
            .spawn(move || opened.accept_until(&stopped, &gate))?;
        Ok(Listener { address, inbox, number, stop, thread: Some(thread) })
    }

    /// The bound address, with the port the system chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Where finished connections wait.
    pub fn inbox(&self) -> Arc<Inbox> {
        Arc::clone(&self.inbox)
    }

    /// From now on dialers that mean another process of the run than `worker` are refused.
    pub fn set_number(&self, worker: u64) {
        self.number.store(worker, Ordering::Relaxed);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.inbox.close();
        // Either way the accepting thread sees its end of the pair become readable.
        let _ = self.stop.shutdown(Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported by its own hook.
            let _ = thread.join();
        }
    }
}

/// What is listened on.
struct Opened {
    /// Go first.
    _noted: Vec<Noted>,
    token: Token,
    address: SocketAddr,
    socket: TcpListener,
    local: Option<Local>,
}

impl Opened {
    fn bind(address: SocketAddr, token: &Token, local: bool) -> io::Result<Opened> {
        let socket = Socket::new(socket2::Domain::for_address(address), socket2::Type::STREAM, None)?;
        // At once to a port that a predecessor left in TIME_WAIT.
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        let socket = TcpListener::from(socket);
        let address = socket.local_addr()?;
        // Where there is no private folder the way over the network is as good, and only slower.
        let local = local.then(|| Local::bind(token.job_tag(), address).ok()).flatten();
        let noted = local.iter().map(|local| Noted::of(&local.socket)).chain([Noted::of(&socket)]);
        Ok(Opened { _noted: noted.collect(), token: token.clone(), address, socket, local })
    }

    fn accept_until(&self, stopped: &UnixStream, gate: &Arc<Gate>) {
        loop {
            let mut descriptors =
                vec![PollFd::new(&self.socket, PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
            descriptors.extend(self.local.iter().map(|local| PollFd::new(&local.socket, PollFlags::IN)));
            // A failed wait (a signal) is only tried again; what is ready is looked up below.
            let _ = poll(&mut descriptors, None);
            if !descriptors[1].revents().is_empty() {
                return;
            }
            let remote = self.socket.accept().map(|(stream, peer)| (Socket::from(stream), Some(peer)));
            let local = self.local.iter().map(|l| l.socket.accept().map(|(s, _)| (Socket::from(s), None)));
            for accepted in [remote].into_iter().chain(local) {
                match accepted {
                    Ok((stream, peer)) => start_handshake(stream, peer, gate),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => {
                        gate.refuse(None, RefusalReason::System(error.to_string()));
                        // Out of descriptors, most likely: let some be closed rather than spin.
                        std::thread::sleep(Duration::from_millis(50));
                    }
                }
            }
        }
    }
}

/// `peer` is where it dialed from; without one it came over the Unix socket.
fn start_handshake(stream: Socket, peer: Option<SocketAddr>, gate: &Arc<Gate>) {
    let deadline = Instant::now() + HANDSHAKE_DEADLINE;
    let place = match stream.try_clone() {
        Ok(handle) if stream.as_raw_fd().max(handle.as_raw_fd()) >= gate.first_reserved => {
            return gate.refuse(peer, RefusalReason::NoDescriptors);
        }
        Ok(handle) => gate.places().take(peer.map(|peer| peer.ip()), handle),
        Err(error) => return gate.refuse(peer, RefusalReason::System(error.to_string())),
    };
    let Some(place) = place else {
        // The few bytes fit any send buffer; if not, the dialer sees only that we hang up.
        let _ = stream.set_nonblocking(true).and_then(|()| stream.send(&status(Status::Busy)));
        return gate.refuse(peer, RefusalReason::Busy);
    };
    let shared = Arc::clone(gate);
    let handshake = move || {
        let _leave = Leave(&shared, place);
        let admitted = shake(&shared, stream, peer, (place, deadline));
        match admitted {
            Ok((hello, stream)) => (shared.on_arrival)(hello, stream),
            Err(_) if shared.places().taken.get(&place).is_some_and(|place| place.displaced) => {
                shared.refuse(peer, RefusalReason::Busy);
            }
            Err(reason) => shared.refuse(peer, reason),
        }
    };
    if let Err(error) = std::thread::Builder::new().name("handshake".into()).spawn(handshake) {
        gate.places().taken.remove(&place);
        gate.refuse(peer, RefusalReason::System(error.to_string()));
    }
}

/// Frees the place of a handshake, also when its thread panics.
struct Leave<'a>(&'a Gate, u64);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.places().taken.remove(&self.1);
    }
}

fn shake(
    gate: &Gate,
    stream: Socket,
    peer: Option<SocketAddr>,
    (place, deadline): (u64, Instant),
) -> Result<(Hello, Stream), RefusalReason> {
    let prepared = stream.set_nonblocking(false).and_then(|()| match peer {
        Some(_) => stream.set_tcp_nodelay(true).and_then(|()| limit_silence(&stream, PATIENCE)),
        None => Ok(()),
    });
    prepared.map_err(|error| RefusalReason::System(error.to_string()))?;
    let number = gate.number.load(Ordering::Relaxed);
    let proved = || {
        if let Some(place) = gate.places().taken.get_mut(&place) {
            place.proved = true;
        }
    };
    let number = (number != ANYONE).then_some(number);
    let door = Door { token: &gate.token, kinds: gate.kinds, number, deadline, proved: &proved };
    match peer {
        Some(_) => door.admit(stream),
        None => {
            let (hello, stream) = door.admit_local(stream)?;
            let lane = match hello.kind {
                ConnectionKind::Mesh | ConnectionKind::Probe => lane::accept(&stream, deadline)?,
                _ => None,
            };
            limitless(&stream).map_err(|error| RefusalReason::System(error.to_string()))?;
            Ok((hello, Stream::local(stream, lane)))
        }
    }
}
