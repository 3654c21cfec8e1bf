//! The worker's and the command line's end of the control plane.

use std::io;
use std::time::{Duration, Instant};

use hyper_util::rt::TokioIo;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Status as Refusal;
use tonic::codegen::http::Uri;
use tonic::transport::{Channel, Endpoint};

use super::generated::control_client::ControlClient;
use super::generated::membership_client::MembershipClient;
use super::{ANSWER, Answer, QUESTION, Status, Token, convert, generated as wire};
use crate::channel::{AsyncStream, ConnectionKind, DialError, Hello, Stream, dial, random_number, resolve};
use crate::membership::FromWorker;

/// A coordinator that has not answered by then hangs.
const ANSWER_PATIENCE: Duration = Duration::from_secs(3);

/// Time for a connection to stand.
const CONNECT_PATIENCE: Duration = Duration::from_secs(3);

/// Could not talk to a coordinator.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No process answers at the address.
    #[error("no coordinator answers at {address}: {why}")]
    Unreachable {
        /// The address.
        address: String,
        /// Why.
        why: String,
    },
    /// The process that listens at the address is not the coordinator of this run. Nothing proves what it says: a
    /// coordinator that was there may come back.
    #[error("the process at {address} is not a coordinator of this run: {why}")]
    Stranger {
        /// The address.
        address: String,
        /// Why.
        why: String,
    },
    /// The coordinator refused.
    #[error("the coordinator at {address} refused: {why}")]
    Refused {
        /// The address.
        address: String,
        /// Why.
        why: String,
    },
}

/// Dials the coordinator; both sides prove that they hold the token.
async fn call(address: &str, token: &Token) -> Result<Stream, ClientError> {
    let unreachable = |why: String| ClientError::Unreachable { address: address.into(), why };
    let (place, token) = (address.to_string(), token.clone());
    let dialing = tokio::task::spawn_blocking(move || {
        let place = resolve(&place).map_err(|why| Err(io::Error::other(why)))?;
        // A number of its own, since many may call at once.
        let epoch = random_number().map_err(Err)?;
        let hello = Hello { kind: ConnectionKind::Control, worker: 0, epoch, to: None };
        dial(place, &hello, &token, Instant::now() + CONNECT_PATIENCE).map_err(Ok)
    });
    let dialed = dialing.await.map_err(|error| unreachable(error.to_string()))?;
    dialed.map_err(|error| match error {
        Ok(DialError::OtherJob { .. } | DialError::WrongToken { .. }) => ClientError::Stranger {
            address: address.into(),
            why: "it refused this token, or does not hold it; pass --token-file with the run's token".into(),
        },
        Ok(DialError::OtherCipher { .. }) => ClientError::Stranger {
            address: address.into(),
            why: "it uses another cipher than this token names; pass --token-file with the run's token, as it is".into(),
        },
        Ok(error @ DialError::OtherProtocol { .. }) => ClientError::Stranger {
            address: address.into(),
            why: format!("{error}; use the same release on all machines"),
        },
        Ok(DialError::Connect { source, .. }) => unreachable(source.to_string()),
        Ok(error) => unreachable(error.to_string()),
        Err(error) => unreachable(error.to_string()),
    })
}

async fn connect(address: &str, token: &Token) -> Result<Channel, ClientError> {
    let unreachable = |why: String| ClientError::Unreachable { address: address.into(), why };
    // One connection only. A caller that needs another dials again, and so learns why this one ended.
    let mut dialed = Some(call(address, token).await?);
    let connector = tower::service_fn(move |_: Uri| {
        let stream = dialed.take();
        async move {
            let stream = stream.ok_or(io::ErrorKind::NotConnected)?;
            AsyncStream::new(stream).map(TokioIo::new)
        }
    });
    Endpoint::from_static("http://coordinator")
        .http2_keep_alive_interval(QUESTION)
        .keep_alive_timeout(ANSWER)
        .connect_with_connector(connector)
        .await
        .map_err(|e| unreachable(source_of(&e)))
}

/// The innermost reason: "transport error" alone does not help the user.
fn source_of(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

fn refused(address: &str, status: &Refusal) -> ClientError {
    match status.code() {
        tonic::Code::Unauthenticated | tonic::Code::FailedPrecondition | tonic::Code::PermissionDenied => {
            ClientError::Refused { address: address.into(), why: status.message().into() }
        }
        _ => ClientError::Unreachable { address: address.into(), why: status.message().into() },
    }
}

/// An open session of a worker.
pub(crate) struct Session {
    /// What the coordinator says; ends when the session does.
    pub(crate) incoming: tonic::Streaming<wire::ToWorker>,
    /// Where the worker speaks.
    pub(crate) outgoing: mpsc::UnboundedSender<wire::FromWorker>,
    /// The coordinator's first message.
    pub(crate) welcome: wire::Welcome,
}

/// Opens a worker's session.
///
/// # Errors
///
/// Returns an error if no coordinator answers within `patience`, or it refuses the worker.
pub(crate) async fn open_session(
    address: &str,
    token: &Token,
    attach: wire::Attach,
    patience: Duration,
) -> Result<Session, ClientError> {
    let opened = tokio::time::timeout(patience, attach_to(address, token, attach)).await;
    opened.unwrap_or_else(|_| {
        let why = format!("it has admitted no worker within {patience:?}");
        Err(ClientError::Unreachable { address: address.into(), why })
    })
}

async fn attach_to(address: &str, token: &Token, attach: wire::Attach) -> Result<Session, ClientError> {
    let mut client = MembershipClient::new(connect(address, token).await?);
    let (outgoing, receiver) = mpsc::unbounded_channel();
    let body = Some(wire::from_worker::Body::Attach(attach));
    let gone = |why: &str| ClientError::Unreachable { address: address.into(), why: why.into() };
    outgoing.send(wire::FromWorker { body }).map_err(|_| gone("the session closed"))?;
    let response =
        client.session(UnboundedReceiverStream::new(receiver)).await.map_err(|s| refused(address, &s))?;
    let mut incoming = response.into_inner();
    match incoming.next().await {
        Some(Ok(wire::ToWorker { body: Some(wire::to_worker::Body::Welcome(welcome)) })) => {
            Ok(Session { incoming, outgoing, welcome })
        }
        Some(Ok(wire::ToWorker { body: Some(wire::to_worker::Body::Bye(bye)) })) => {
            Err(ClientError::Refused { address: address.into(), why: bye.reason })
        }
        Some(Err(status)) => Err(refused(address, &status)),
        _ => Err(gone("the session closed before it began")),
    }
}

/// Wraps a word of the protocol for [`Session::outgoing`].
pub(crate) fn envelope(message: &FromWorker) -> wire::FromWorker {
    convert::write_from_worker(message)
}

/// Waits for an answer, not for ever.
async fn answer<T>(
    call: impl Future<Output = Result<tonic::Response<T>, Refusal>>,
    address: &str,
) -> Result<T, ClientError> {
    match tokio::time::timeout(ANSWER_PATIENCE, call).await {
        Ok(answered) => answered.map(tonic::Response::into_inner).map_err(|status| refused(address, &status)),
        Err(_) => {
            let why = format!("it did not answer within {ANSWER_PATIENCE:?}");
            Err(ClientError::Unreachable { address: address.into(), why })
        }
    }
}

/// A blocking client of the `Control` service, for the command line.
pub struct Control {
    runtime: tokio::runtime::Runtime,
    client: ControlClient<Channel>,
    address: String,
}

impl Control {
    /// Connects to a run's coordinator.
    ///
    /// # Errors
    ///
    /// Returns an error if no process answers at the address.
    pub fn connect(address: &str, token: &Token) -> Result<Control, ClientError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| ClientError::Unreachable { address: address.into(), why: e.to_string() })?;
        let client = ControlClient::new(runtime.block_on(connect(address, token))?);
        Ok(Control { runtime, client, address: address.into() })
    }

    /// The run's status.
    ///
    /// # Errors
    ///
    /// Returns an error if the coordinator is gone, refuses, or does not answer within 3 s.
    pub fn status(&mut self) -> Result<Status, ClientError> {
        let call = self.client.get_status(wire::StatusRequest {});
        self.runtime.block_on(answer(call, &self.address)).map(Into::into)
    }

    /// Asks for this many workers; the answer says what will happen.
    ///
    /// # Errors
    ///
    /// Same errors as [`Control::status`].
    pub fn scale(&mut self, workers: u32) -> Result<Answer, ClientError> {
        let call = self.client.scale(wire::ScaleRequest { workers });
        self.runtime.block_on(answer(call, &self.address)).map(Into::into)
    }

    /// Says whether the run goes on after `step`, at which its workers wait, or ends there for the reason `ends`. The
    /// answer tells why that is not followed.
    ///
    /// # Errors
    ///
    /// Same errors as [`Control::status`].
    pub fn verdict(&mut self, step: u64, ends: Option<&str>) -> Result<Answer, ClientError> {
        let call = self.client.verdict(wire::VerdictRequest { step, ends: ends.map(String::from) });
        self.runtime.block_on(answer(call, &self.address)).map(Into::into)
    }

    /// Asks the run to stop with a checkpoint.
    ///
    /// # Errors
    ///
    /// Same errors as [`Control::status`].
    pub fn stop(&mut self) -> Result<Answer, ClientError> {
        let call = self.client.stop(wire::StopRequest {});
        self.runtime.block_on(answer(call, &self.address)).map(Into::into)
    }

    /// Calls `each` with every status until the run ends or `each` returns false.
    ///
    /// # Errors
    ///
    /// Returns an error if the coordinator refuses; its end ends the watch without an error.
    pub fn watch(&mut self, mut each: impl FnMut(Status) -> bool) -> Result<(), ClientError> {
        let Control { runtime, client, address } = self;
        runtime.block_on(async {
            let response = client.watch(wire::StatusRequest {}).await.map_err(|s| refused(address, &s))?;
            let mut stream = response.into_inner();
            while let Some(Ok(status)) = stream.next().await {
                if !each(status.into()) {
                    break;
                }
            }
            Ok(())
        })
    }
}
