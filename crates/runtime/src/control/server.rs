//! The coordinator's end of the control plane: a gRPC server on a thread of its own.
//!
//! Every call becomes an [`Input`] in the coordinator's queue; the server decides nothing but who may
//! speak. A connection must say within five seconds that it speaks HTTP/2, a call must carry the token
//! and the protocol's version; whoever does not is sent away and the coordinator is told.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_stream::wrappers::{ReceiverStream, UnboundedReceiverStream, WatchStream};
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

use super::generated::control_server::{Control, ControlServer};
use super::generated::membership_server::{Membership, MembershipServer};
use super::{PROTOCOL, PROTOCOL_KEY, TOKEN_KEY, Token, convert, generated as wire};
use crate::membership::FromWorker;

#[cfg(test)]
mod tests;

/// Time within which a new connection must say what it speaks.
const GREETING_PATIENCE: Duration = Duration::from_secs(5);

/// Connections that may be silent at once.
const SILENT_MAX: usize = 256;

/// First bytes of every HTTP/2 connection (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How the coordinator speaks to one worker; dropping it ends the session.
pub type Outgoing = mpsc::UnboundedSender<Result<wire::ToWorker, Status>>;

/// What the control plane tells the coordinator.
#[derive(Debug)]
pub enum Input {
    /// A worker opened a session. The answer is its number, or why it is not let in.
    Opened {
        /// Names the session: a worker may open a new one before the end of the old one is noticed.
        session: u64,
        /// Its first message.
        attach: wire::Attach,
        /// How to speak to it.
        outgoing: Outgoing,
    },
    /// A worker said something.
    Said(u64, FromWorker),
    /// A session ended.
    Closed(u64, String),
    /// Someone wants this many workers.
    Scale(u32, oneshot::Sender<wire::Reply>),
    /// Someone wants the run to stop.
    Stop(oneshot::Sender<wire::Reply>),
    /// This process was asked to end (SIGINT or SIGTERM).
    Signal,
    /// Someone was sent away.
    Refused {
        /// Its address.
        peer: String,
        /// Why.
        reason: String,
    },
}

/// A running server; dropping it ends all sessions.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    shutdown: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    /// Serves on `address` (port 0 for any).
    ///
    /// # Errors
    ///
    /// When the address cannot be bound or no thread is to be had.
    pub fn start(
        address: SocketAddr,
        token: Token,
        inputs: Sender<Input>,
        status: watch::Receiver<wire::Status>,
    ) -> std::io::Result<Server> {
        let listener = bind(address)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (shutdown, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("control-plane".into()).spawn(move || {
            runtime.block_on(async move {
                let Ok(listener) = TcpListener::from_std(listener) else { return };
                tokio::select! {
                    () = serve(listener, token, inputs, status) => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Server { address, shutdown: Some(shutdown), thread: Some(thread) })
    }

    /// The bound address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(shutdown) = self.shutdown.take() {
            let _ = shutdown.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Binds at once to a port that a predecessor of this coordinator left in TIME_WAIT.
fn bind(address: SocketAddr) -> std::io::Result<std::net::TcpListener> {
    let socket = socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(1024)?;
    Ok(socket.into())
}

async fn serve(
    listener: TcpListener,
    token: Token,
    inputs: Sender<Input>,
    status: watch::Receiver<wire::Status>,
) {
    let (connections, incoming) = mpsc::channel(64);
    tokio::spawn(accept(listener, connections, inputs.clone()));
    tokio::spawn(signals(inputs.clone()));
    let gate = Gate { token, inputs: inputs.clone() };
    let service = Service { inputs, status, sessions: Arc::default() };
    let control = gate.clone();
    let result = tonic::transport::Server::builder()
        .tcp_nodelay(true)
        .max_concurrent_streams(1024)
        .add_service(MembershipServer::with_interceptor(service.clone(), move |r| gate.admit(r)))
        .add_service(ControlServer::with_interceptor(service, move |r| control.admit(r)))
        .serve_with_incoming(ReceiverStream::new(incoming))
        .await;
    // The coordinator notices by its silence; there is nobody else to tell.
    drop(result);
}

/// Passes on the first wish to end; a second one ends the process at once.
async fn signals(inputs: Sender<Input>) {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return;
    };
    let mut asked = false;
    loop {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        if asked {
            // The workers keep the state and wait; the run can be taken up again.
            std::process::exit(130);
        }
        asked = true;
        let _ = inputs.send(Input::Signal);
    }
}

/// Accepts connections and hands on those that speak HTTP/2.
async fn accept(
    listener: TcpListener,
    connections: mpsc::Sender<std::io::Result<TcpStream>>,
    inputs: Sender<Input>,
) {
    let silent = Arc::new(AtomicUsize::new(0));
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(_) => {
                // Out of descriptors, most likely: let some be closed rather than spin.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        // Small messages must not wait for more.
        let _ = stream.set_nodelay(true);
        let refuse = {
            let inputs = inputs.clone();
            move |reason: &str| {
                let _ = inputs.send(Input::Refused { peer: peer.to_string(), reason: reason.into() });
            }
        };
        if silent.load(Ordering::Relaxed) >= SILENT_MAX {
            refuse("too many connections have not yet said what they speak");
            continue;
        }
        silent.fetch_add(1, Ordering::Relaxed);
        let (silent, connections) = (Arc::clone(&silent), connections.clone());
        tokio::spawn(async move {
            let greeting = tokio::time::timeout(GREETING_PATIENCE, speaks_http2(&stream)).await;
            silent.fetch_sub(1, Ordering::Relaxed);
            match greeting {
                Ok(true) => drop(connections.send(Ok(stream)).await),
                Ok(false) => refuse("it does not speak the control protocol"),
                Err(_) => refuse("it did not say within 5 s what it speaks"),
            }
        });
    }
}

async fn speaks_http2(stream: &TcpStream) -> bool {
    let mut seen = [0; PREFACE.len()];
    let mut known = 0;
    loop {
        match stream.peek(&mut seen).await {
            Ok(0) | Err(_) => return false,
            Ok(count) if !PREFACE.starts_with(&seen[..count]) => return false,
            Ok(count) if count == PREFACE.len() => return true,
            // `peek` returns at once while the same bytes wait.
            Ok(count) if count == known => tokio::time::sleep(Duration::from_millis(5)).await,
            Ok(count) => known = count,
        }
    }
}

/// Lets in who holds the token and speaks the protocol.
#[derive(Clone)]
struct Gate {
    token: Token,
    inputs: Sender<Input>,
}

impl Gate {
    fn admit(&self, request: Request<()>) -> Result<Request<()>, Status> {
        let text = |key| request.metadata().get(key).and_then(|v| v.to_str().ok());
        let refusal = match (text(TOKEN_KEY), text(PROTOCOL_KEY).map(str::parse::<u32>)) {
            (None, _) => {
                Status::unauthenticated("it carries no token; pass --token-file with the run's token")
            }
            (Some(bearer), _) if !self.token.matches(bearer) => {
                Status::unauthenticated("its token is not this run's; pass --token-file with the run's token")
            }
            (_, Some(Ok(PROTOCOL))) => return Ok(request),
            (_, version) => Status::failed_precondition(format!(
                "it speaks control protocol {}, this coordinator speaks {PROTOCOL}; use the same release on all machines",
                version.and_then(Result::ok).map_or("unknown".into(), |v| v.to_string()),
            )),
        };
        let peer = request.remote_addr().map_or("unknown".into(), |a| a.to_string());
        let _ = self.inputs.send(Input::Refused { peer, reason: refusal.message().into() });
        Err(refusal)
    }
}

#[derive(Clone)]
struct Service {
    inputs: Sender<Input>,
    status: watch::Receiver<wire::Status>,
    sessions: Arc<AtomicU64>,
}

impl Service {
    fn tell(&self, input: Input) -> Result<(), Status> {
        self.inputs.send(input).map_err(|_| Status::unavailable("the run is over"))
    }
}

type Boxed<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Membership for Service {
    type SessionStream = Boxed<wire::ToWorker>;

    async fn session(
        &self,
        request: Request<Streaming<wire::FromWorker>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let mut incoming = request.into_inner();
        let first = tokio::time::timeout(GREETING_PATIENCE, incoming.next())
            .await
            .map_err(|_| Status::deadline_exceeded("no first message within 5 s"))?;
        let Some(Ok(wire::FromWorker { body: Some(wire::from_worker::Body::Attach(attach)) })) = first else {
            return Err(Status::invalid_argument("a session begins with Attach"));
        };
        let session = self.sessions.fetch_add(1, Ordering::Relaxed) + 1;
        let (outgoing, stream) = mpsc::unbounded_channel();
        self.tell(Input::Opened { session, attach, outgoing })?;
        let inputs = self.inputs.clone();
        tokio::spawn(async move {
            let why = listen(session, &mut incoming, &inputs).await;
            let _ = inputs.send(Input::Closed(session, why));
        });
        Ok(Response::new(Box::pin(UnboundedReceiverStream::new(stream))))
    }
}

async fn listen(session: u64, incoming: &mut Streaming<wire::FromWorker>, inputs: &Sender<Input>) -> String {
    loop {
        match incoming.next().await {
            Some(Ok(message)) => match convert::read_from_worker(message) {
                Some(message) => {
                    if inputs.send(Input::Said(session, message)).is_err() {
                        return "the run is over".into();
                    }
                }
                None => return "it sent a message that makes no sense".into(),
            },
            Some(Err(_)) => return "its connection broke".into(),
            None => return "it closed its connection".into(),
        }
    }
}

#[tonic::async_trait]
impl Control for Service {
    type WatchStream = Boxed<wire::Status>;

    async fn get_status(&self, _: Request<wire::StatusRequest>) -> Result<Response<wire::Status>, Status> {
        Ok(Response::new(self.status.borrow().clone()))
    }

    async fn watch(&self, _: Request<wire::StatusRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let stream = WatchStream::new(self.status.clone()).throttle(Duration::from_millis(100));
        Ok(Response::new(Box::pin(stream.map(Ok))))
    }

    async fn scale(&self, request: Request<wire::ScaleRequest>) -> Result<Response<wire::Reply>, Status> {
        let (answer, answered) = oneshot::channel();
        self.tell(Input::Scale(request.into_inner().workers, answer))?;
        answered.await.map(Response::new).map_err(|_| Status::unavailable("the run is over"))
    }

    async fn stop(&self, _: Request<wire::StopRequest>) -> Result<Response<wire::Reply>, Status> {
        let (answer, answered) = oneshot::channel();
        self.tell(Input::Stop(answer))?;
        answered.await.map(Response::new).map_err(|_| Status::unavailable("the run is over"))
    }
}

/// Wraps a word of the protocol for [`Outgoing`].
pub fn envelope(message: &crate::membership::ToWorker) -> wire::ToWorker {
    convert::write_to_worker(message)
}

/// The first message of a session.
pub fn welcome(welcome: wire::Welcome) -> wire::ToWorker {
    wire::ToWorker { body: Some(wire::to_worker::Body::Welcome(welcome)) }
}
