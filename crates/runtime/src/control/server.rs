//! The coordinator's end of the control plane: a gRPC server on a thread of its own.
//!
//! Every call becomes an [`Input`] in the coordinator's queue; the server decides nothing but who may speak.
//! Connections come through the [channel](crate::channel), so every caller holds the run's token. A process without it
//! is sent away before a byte of HTTP/2 is read, and the coordinator is told.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio_stream::wrappers::{UnboundedReceiverStream, WatchStream};
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

use super::generated::control_server::{Control, ControlServer};
use super::generated::membership_server::{Membership, MembershipServer};
use super::{ANSWER, QUESTION, Token, convert, generated as wire};
use crate::channel::{AsyncStream, ConnectionKind, Hello, Listener, Refusal, Stream as Connection};
use crate::ending::{EndSignal, EndSignals};
use crate::membership::FromWorker;

#[cfg(test)]
mod tests;

/// Time within which a session must say who opens it.
const GREETING_PATIENCE: Duration = Duration::from_secs(5);

/// Calls in progress on one connection: a worker has one, who steers has one or two.
const CALLS_MAX: u32 = 16;

/// Bytes of a call's headers: they hold nothing of ours.
const HEADERS_BYTES_MAX: u32 = 16 * 1024;

/// How the coordinator speaks to one worker; dropping it ends the session.
pub(crate) type Outgoing = mpsc::UnboundedSender<Result<wire::ToWorker, Status>>;

/// Where everything goes that the control plane hears; false once the run is over.
pub(crate) type Inputs = Arc<dyn Fn(Input) -> bool + Send + Sync>;

/// What the control plane tells the coordinator.
#[derive(Debug)]
pub(crate) enum Input {
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
    /// Someone says whether the run goes on after a step.
    Verdict {
        /// The step.
        step: u64,
        /// Why the run ends there; `None` where it goes on.
        ends: Option<String>,
        /// Whether that is followed.
        answer: oneshot::Sender<wire::Reply>,
    },
    /// Someone wants the run to stop.
    Stop(oneshot::Sender<wire::Reply>),
    /// This process was asked to end.
    Signal(EndSignal),
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
pub(crate) struct Server {
    listener: Listener,
    shutdown: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    /// Serves on `address` (port 0 for any).
    ///
    /// # Errors
    ///
    /// Returns an error if the address cannot be bound or the system gives no thread.
    pub(crate) fn start(
        address: SocketAddr,
        token: Token,
        inputs: Inputs,
        status: watch::Receiver<wire::Status>,
    ) -> std::io::Result<Server> {
        let (connections, incoming) = mpsc::unbounded_channel();
        let refused = Arc::clone(&inputs);
        let on_refusal = move |Refusal { peer, reason }: Refusal| {
            let peer = peer.map_or("this machine".into(), |peer| peer.to_string());
            refused(Input::Refused { peer, reason: format!("it {reason}") });
        };
        // Without a server there is no one to speak to, and the connection ends.
        let on_arrival = move |_: Hello, stream: Connection| drop(connections.send(stream));
        let (kind, place) = (&[ConnectionKind::Control], (address, &token));
        let listener = Listener::of_kind(kind, place, Arc::new(on_arrival), Arc::new(on_refusal))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (shutdown, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("control-plane".into()).spawn(move || {
            runtime.block_on(async move {
                tokio::select! {
                    () = serve(incoming, inputs, status) => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Server { listener, shutdown: Some(shutdown), thread: Some(thread) })
    }

    /// The bound address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.listener.local_addr()
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

async fn serve(
    connections: mpsc::UnboundedReceiver<Connection>,
    inputs: Inputs,
    status: watch::Receiver<wire::Status>,
) {
    tokio::spawn(signals(Arc::clone(&inputs)));
    let service = Service { inputs, status, sessions: Arc::default() };
    let result = tonic::transport::Server::builder()
        .max_concurrent_streams(CALLS_MAX)
        .http2_max_header_list_size(HEADERS_BYTES_MAX)
        .http2_keepalive_interval(Some(QUESTION))
        .http2_keepalive_timeout(Some(ANSWER))
        .add_service(MembershipServer::new(service.clone()))
        .add_service(ControlServer::new(service))
        .serve_with_incoming(UnboundedReceiverStream::new(connections).map(AsyncStream::new))
        .await;
    // The coordinator notices by its silence; no other process has to be told.
    drop(result);
}

/// Passes on the first signal that asks to end; a second one ends the process at once.
async fn signals(inputs: Inputs) {
    let Ok(mut signals) = EndSignals::listen() else { return };
    inputs(Input::Signal(signals.next().await));
    loop {
        match signals.next().await {
            // A terminal that closes says so twice: through its shell, and through the system.
            EndSignal::Hangup => {}
            // The workers keep the state and wait; the run can be taken up again.
            signal => std::process::exit(signal.exit_code().into()),
        }
    }
}

#[derive(Clone)]
struct Service {
    inputs: Inputs,
    status: watch::Receiver<wire::Status>,
    sessions: Arc<AtomicU64>,
}

impl Service {
    fn tell(&self, input: Input) -> Result<(), Status> {
        (self.inputs)(input).then_some(()).ok_or_else(|| Status::unavailable("the run is over"))
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
        let inputs = Arc::clone(&self.inputs);
        tokio::spawn(async move {
            let why = listen(session, &mut incoming, &inputs).await;
            inputs(Input::Closed(session, why));
        });
        Ok(Response::new(Box::pin(UnboundedReceiverStream::new(stream))))
    }
}

async fn listen(session: u64, incoming: &mut Streaming<wire::FromWorker>, inputs: &Inputs) -> String {
    loop {
        match incoming.next().await {
            Some(Ok(message)) => match convert::read_from_worker(message) {
                Some(message) => {
                    if !inputs(Input::Said(session, message)) {
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

    async fn verdict(&self, request: Request<wire::VerdictRequest>) -> Result<Response<wire::Reply>, Status> {
        let (answer, answered) = oneshot::channel();
        let wire::VerdictRequest { step, ends } = request.into_inner();
        self.tell(Input::Verdict { step, ends, answer })?;
        answered.await.map(Response::new).map_err(|_| Status::unavailable("the run is over"))
    }

    async fn stop(&self, _: Request<wire::StopRequest>) -> Result<Response<wire::Reply>, Status> {
        let (answer, answered) = oneshot::channel();
        self.tell(Input::Stop(answer))?;
        answered.await.map(Response::new).map_err(|_| Status::unavailable("the run is over"))
    }
}

/// Wraps a word of the protocol for [`Outgoing`].
pub(crate) fn envelope(message: &crate::membership::ToWorker) -> wire::ToWorker {
    convert::write_to_worker(message)
}

/// The first message of a session.
pub(crate) fn welcome(welcome: wire::Welcome) -> wire::ToWorker {
    wire::ToWorker { body: Some(wire::to_worker::Body::Welcome(welcome)) }
}
