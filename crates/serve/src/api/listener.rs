//! Connections: how many, how long they may take, and how they end.

use std::future::poll_fn;
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
use tokio::io::AsyncWrite;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

use super::Api;
use super::route::Template;

/// Connections at a time; more wait in the system's queue.
const CONNECTIONS: u32 = 512;

/// How long a client may take for the head of its next request.
const HEAD_PATIENCE: Duration = Duration::from_secs(20);

/// Most bytes of a request's head, and of an answer that waits for a slow reader.
const BUFFER_BYTES: usize = 64 << 10;

/// How long answers that are under way may hold up the end.
const DRAINING_PATIENCE: Duration = Duration::from_secs(5);

/// How long a client may go on sending what nobody wants.
const LINGERING_PATIENCE: Duration = Duration::from_secs(2);

/// Pause after the system had no connection to give.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections until it is told to stop, then lets those that are there end.
pub(super) async fn listen(listener: TcpListener, api: Arc<Api>, router: Router) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS as usize));
    let mut stopping = api.stopping.clone();
    loop {
        let accepted = async {
            let permit = slots.clone().acquire_owned().await.expect("the semaphore is never closed");
            (listener.accept().await, permit)
        };
        let (accepted, permit) = tokio::select! {
            _ = stopping.wait_for(|stop| *stop) => break,
            accepted = accepted => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                tokio::spawn(connection(stream, api.clone(), router.clone(), permit));
            }
            Err(_) => sleep(ACCEPT_PAUSE).await,
        }
    }
    drop(listener);
    let _ = timeout(DRAINING_PATIENCE, slots.acquire_many(CONNECTIONS)).await;
}

/// Serves one connection until either end closes it.
async fn connection(stream: TcpStream, api: Arc<Api>, router: Router, _permit: OwnedSemaphorePermit) {
    // Small answers shall not wait for more to come; without it they are only slower.
    let _ = stream.set_nodelay(true);
    let mut stopping = api.stopping.clone();
    let router = TowerToHyperService::new(router);
    let service =
        hyper::service::service_fn(move |request| Box::pin(answer(api.clone(), router.clone(), request)));
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut stop = pin!(stopping.wait_for(|stop| *stop));
    let mut told = false;
    loop {
        tokio::select! {
            // Errors are the client's: a torn connection, a head that is no HTTP, which it has been told.
            _ = poll_fn(|context| connection.poll_without_shutdown(context)) => break,
            _ = &mut stop, if !told => {
                told = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
        }
    }
    linger(connection.into_parts().io.into_inner()).await;
}

/// Reads what the client still sends, for a while: a connection that is closed with unread bytes is reset, and the client
/// loses the answer that says why.
async fn linger(mut stream: TcpStream) {
    let ended = poll_fn(|context| Pin::new(&mut stream).poll_shutdown(context)).await;
    let mut unwanted = [0; 16 << 10];
    let _ = timeout(LINGERING_PATIENCE, async {
        while ended.is_ok() && stream.readable().await.is_ok() {
            match stream.try_read(&mut unwanted) {
                Ok(0) => break,
                Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => break,
                _ => {}
            }
        }
    })
    .await;
}

/// Answers one request.
async fn answer(
    api: Arc<Api>,
    router: TowerToHyperService<Router>,
    request: Request<Incoming>,
) -> Result<Response, std::convert::Infallible> {
    let began = Instant::now();
    let method = request.method().clone();
    let mut response = match api.gate.check_host(&request) {
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
