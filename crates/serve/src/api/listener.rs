//! Connections: how many, how long they may take, and how they end.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Request, header};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::places::{Place, Places};
use super::route::Template;
use super::{Api, Doors, Security};
use crate::local::may_steer;

/// Connections at a port at a time, at most.
const WEB_CONNECTIONS: u32 = 384;

/// The same at the socket, whose clients are all of one user; more wait in the system's queue.
const SOCKET_CONNECTIONS: u32 = 128;

/// How long a client may take for the head of its next request.
const HEAD_PATIENCE: Duration = Duration::from_secs(20);

/// Most bytes of a request's head, and of an answer that waits for a slow reader.
const BUFFER_BYTES: usize = 64 << 10;

/// How long answers that are under way may hold up the end.
const DRAINING_PATIENCE: Duration = Duration::from_secs(5);

/// How long a client may go on sending what the server does not want.
const LINGERING_PATIENCE: Duration = Duration::from_secs(2);

/// Pause after the system had no connection to give.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Listens at a door.
pub(super) enum Listener {
    Socket(UnixListener),
    Web(TcpListener, Option<TlsAcceptor>, Door),
}

/// The door through which a request came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Door {
    /// The Unix socket, which lets only this user and root in.
    Socket,
    /// A port where nothing is encrypted, which lets every client in.
    Plain,
    /// A port where a token may be sent: the connection is encrypted, here or by a proxy.
    Secure,
}

/// Listeners at all doors; inside a runtime.
pub(super) fn listeners(doors: Doors) -> io::Result<Vec<Listener>> {
    doors.web.set_nonblocking(true)?;
    let (tls, door) = match doors.security {
        Security::Sessions => (None, Door::Plain),
        Security::Elsewhere => (None, Door::Secure),
        Security::Tls(identity) => (Some(identity.config.into()), Door::Secure),
    };
    let mut all = vec![Listener::Web(TcpListener::from_std(doors.web)?, tls, door)];
    if let Some(socket) = doors.socket {
        socket.set_nonblocking(true)?;
        all.push(Listener::Socket(UnixListener::from_std(socket)?));
    }
    Ok(all)
}

/// Accepts connections at all doors until it is told to stop.
pub(super) async fn listen_at_all(listeners: Vec<Listener>, api: Arc<Api>, router: Router) {
    let listen = |listener| tokio::spawn(listen(listener, api.clone(), router.clone()));
    for door in listeners.into_iter().map(listen).collect::<Vec<_>>() {
        // It is ours, and has nothing to panic about.
        let _ = door.await;
    }
}

/// Accepts connections until it is told to stop, then lets those that are there end.
async fn listen(listener: Listener, api: Arc<Api>, router: Router) {
    let places = Places::new(match listener {
        Listener::Socket(_) => SOCKET_CONNECTIONS,
        Listener::Web(..) => WEB_CONNECTIONS,
    });
    let mut stopping = api.stopping.clone();
    loop {
        let accepted = tokio::select! {
            _ = stopping.wait_for(|stop| *stop) => break,
            accepted = listener.accept(&api, &router, &places) => accepted,
        };
        if accepted.is_err() {
            sleep(ACCEPT_PAUSE).await;
        }
    }
    drop(listener);
    let _ = timeout(DRAINING_PATIENCE, places.empty()).await;
}

impl Listener {
    /// Waits for a connection, and serves it on a task of its own.
    async fn accept(&self, api: &Arc<Api>, router: &Router, places: &Arc<Places>) -> io::Result<()> {
        let (api, router) = (api.clone(), router.clone());
        match self {
            Listener::Socket(listener) => {
                let (stream, _) = listener.accept().await?;
                if may_steer(stream.peer_cred()?.uid()) {
                    let place = places.take(None).await;
                    place.keep();
                    tokio::spawn(connection(stream, Door::Socket, api, router, place));
                }
            }
            Listener::Web(listener, tls, door) => {
                let (stream, peer) = listener.accept().await?;
                let place = places.take(Some(peer.ip())).await;
                // Small answers shall not wait for more to come; without it they are only slower.
                let _ = stream.set_nodelay(true);
                match tls.clone() {
                    Some(tls) => drop(tokio::spawn(secure(stream, tls, *door, api, router, place))),
                    None => drop(tokio::spawn(connection(stream, *door, api, router, place))),
                }
            }
        }
        Ok(())
    }
}

/// Serves one connection until either end closes it, or another client needs its place.
async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    door: Door,
    api: Arc<Api>,
    router: Router,
    place: Place,
) {
    let place = Arc::new(place);
    tokio::select! {
        () = serve(stream, door, api, router, place.clone()) => {}
        () = place.is_needed() => {}
    }
}

/// The same over TLS.
async fn secure(
    stream: TcpStream,
    tls: TlsAcceptor,
    door: Door,
    api: Arc<Api>,
    router: Router,
    place: Place,
) {
    let accepted = tokio::select! {
        accepted = timeout(HEAD_PATIENCE, tls.accept(stream)) => accepted,
        () = place.is_needed() => return,
    };
    // A client that cannot speak TLS has been told so.
    if let Ok(Ok(stream)) = accepted {
        connection(stream, door, api, router, place).await;
    }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    door: Door,
    api: Arc<Api>,
    router: Router,
    place: Arc<Place>,
) {
    let mut stopping = api.stopping.clone();
    let router = TowerToHyperService::new(router);
    let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(door);
        request.extensions_mut().insert(place.clone());
        Box::pin(answer(api.clone(), router.clone(), door, request))
    });
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut stop = pin!(stopping.wait_for(|stop| *stop));
    let mut told = false;
    loop {
        tokio::select! {
            // Errors are the client's: a torn connection, a malformed HTTP head, which it has been told.
            _ = poll_fn(|context| connection.poll_without_shutdown(context)) => break,
            _ = &mut stop, if !told => {
                told = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
        }
    }
    linger(connection.into_parts().io.into_inner()).await;
}

/// Reads what the client still sends, for a while: a connection that is closed with unread bytes is reset, and the
/// client loses the answer that says why.
async fn linger(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let ended = poll_fn(|context| Pin::new(&mut stream).poll_shutdown(context)).await;
    let mut unwanted = [0; 16 << 10];
    let _ = timeout(LINGERING_PATIENCE, async {
        while ended.is_ok() {
            let mut buffer = ReadBuf::new(&mut unwanted);
            let read = poll_fn(|context| Pin::new(&mut stream).poll_read(context, &mut buffer)).await;
            if read.is_err() || buffer.filled().is_empty() {
                break;
            }
        }
    })
    .await;
}

/// Answers one request.
async fn answer(
    api: Arc<Api>,
    router: TowerToHyperService<Router>,
    door: Door,
    request: Request<Incoming>,
) -> Result<Response, std::convert::Infallible> {
    let began = Instant::now();
    let method = request.method().clone();
    let mut response = match api.gate.check_host(door, &request) {
        Err(failure) => failure.into_response(),
        Ok(()) => router.call(request.map(Body::new)).await?,
    };
    let template = response.extensions().get::<Template>().map_or("", |template| template.0);
    api.tally.count(&method, template, response.status(), began.elapsed());
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    Ok(response)
}
