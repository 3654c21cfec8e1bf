//! The worker's and the command line's end of the control plane.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::metadata::MetadataValue;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use super::generated::control_client::ControlClient;
use super::generated::membership_client::MembershipClient;
use super::{PROTOCOL, PROTOCOL_KEY, TOKEN_KEY, Token, convert, generated as wire};
use crate::membership::FromWorker;

/// A coordinator that has not answered by then hangs.
const ANSWER_PATIENCE: Duration = Duration::from_secs(3);

/// Adds the token and the version to every call.
#[derive(Clone)]
pub struct Credentials {
    bearer: MetadataValue<tonic::metadata::Ascii>,
}

impl tonic::service::Interceptor for Credentials {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert(TOKEN_KEY, self.bearer.clone());
        request.metadata_mut().insert(PROTOCOL_KEY, MetadataValue::from(PROTOCOL));
        Ok(request)
    }
}

/// Could not talk to a coordinator.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody answers at the address.
    #[error("no coordinator answers at {address}: {why}")]
    Unreachable {
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

async fn connect(address: &str, token: &Token) -> Result<(Channel, Credentials), ClientError> {
    let unreachable = |why: String| ClientError::Unreachable { address: address.into(), why };
    let endpoint = Endpoint::from_shared(format!("http://{address}"))
        .map_err(|e| unreachable(e.to_string()))?
        .connect_timeout(Duration::from_secs(3))
        .tcp_nodelay(true);
    let channel = endpoint.connect().await.map_err(|e| unreachable(source_of(&e)))?;
    let bearer = token.bearer().parse().expect("hexadecimal digits are valid metadata");
    Ok((channel, Credentials { bearer }))
}

/// The innermost reason: "transport error" helps nobody.
fn source_of(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

fn refused(address: &str, status: &Status) -> ClientError {
    match status.code() {
        tonic::Code::Unauthenticated | tonic::Code::FailedPrecondition | tonic::Code::PermissionDenied => {
            ClientError::Refused { address: address.into(), why: status.message().into() }
        }
        _ => ClientError::Unreachable { address: address.into(), why: status.message().into() },
    }
}

/// An open session of a worker.
pub struct Session {
    /// What the coordinator says; ends when the session does.
    pub incoming: tonic::Streaming<wire::ToWorker>,
    /// Where the worker speaks.
    pub outgoing: mpsc::UnboundedSender<wire::FromWorker>,
    /// The coordinator's first message.
    pub welcome: wire::Welcome,
}

/// Opens a worker's session.
///
/// # Errors
///
/// When nobody answers, or the coordinator refuses the token, the protocol or the worker.
pub async fn open_session(
    address: &str,
    token: &Token,
    attach: wire::Attach,
) -> Result<Session, ClientError> {
    let (channel, credentials) = connect(address, token).await?;
    let mut client = MembershipClient::with_interceptor(channel, credentials);
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
pub fn envelope(message: &FromWorker) -> wire::FromWorker {
    convert::write_from_worker(message)
}

/// Waits for an answer, not for ever.
async fn answer<T>(
    call: impl Future<Output = Result<tonic::Response<T>, Status>>,
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
    client: ControlClient<InterceptedService<Channel, Credentials>>,
    address: String,
}

impl Control {
    /// Connects to a run's coordinator.
    ///
    /// # Errors
    ///
    /// When nobody answers at the address.
    pub fn connect(address: &str, token: &Token) -> Result<Control, ClientError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| ClientError::Unreachable { address: address.into(), why: e.to_string() })?;
        let (channel, credentials) = runtime.block_on(connect(address, token))?;
        let client = ControlClient::with_interceptor(channel, credentials);
        Ok(Control { runtime, client, address: address.into() })
    }

    /// The run's status.
    ///
    /// # Errors
    ///
    /// When the coordinator is gone, refuses, or does not answer within 3 s.
    pub fn status(&mut self) -> Result<wire::Status, ClientError> {
        let call = self.client.get_status(wire::StatusRequest {});
        self.runtime.block_on(answer(call, &self.address))
    }

    /// Asks for this many workers; the answer says what will happen.
    ///
    /// # Errors
    ///
    /// As for [`Control::status`].
    pub fn scale(&mut self, workers: u32) -> Result<wire::Reply, ClientError> {
        let call = self.client.scale(wire::ScaleRequest { workers });
        self.runtime.block_on(answer(call, &self.address))
    }

    /// Asks the run to stop with a checkpoint.
    ///
    /// # Errors
    ///
    /// As for [`Control::status`].
    pub fn stop(&mut self) -> Result<wire::Reply, ClientError> {
        let call = self.client.stop(wire::StopRequest {});
        self.runtime.block_on(answer(call, &self.address))
    }

    /// Calls `each` with every status until the run ends or `each` returns false.
    ///
    /// # Errors
    ///
    /// When the coordinator refuses; its end ends the watch without an error.
    pub fn watch(&mut self, mut each: impl FnMut(wire::Status) -> bool) -> Result<(), ClientError> {
        let Control { runtime, client, address } = self;
        runtime.block_on(async {
            let response = client.watch(wire::StatusRequest {}).await.map_err(|s| refused(address, &s))?;
            let mut stream = response.into_inner();
            while let Some(Ok(status)) = stream.next().await {
                if !each(status) {
                    break;
                }
            }
            Ok(())
        })
    }
}
