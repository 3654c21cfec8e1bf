//! Connections of pods: how many, and how long they may take.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Connections at a time, at most: each pod has two or three.
const CONNECTIONS: usize = 16 << 10;

/// How long a pod may take for the head of its next request.
const HEAD_PATIENCE: Duration = Duration::from_secs(30);

/// Most bytes of a request's head, and of an answer that waits for a slow reader.
const BUFFER_BYTES: usize = 64 << 10;

/// Pause after the system had no connection to give.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Answers pods at this address until it is dropped; its connections end with it.
///
/// # Errors
///
/// It returns only if the listener is of no use from the beginning.
pub async fn serve(listener: TcpListener, routes: Router) -> io::Result<Infallible> {
    listener.local_addr()?;
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        // No clone of it is ever closed.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { continue };
        match listener.accept().await {
            Ok((stream, _)) => {
                let routes = routes.clone();
                connections.spawn(async move {
                    connection(stream, routes).await;
                    drop(place);
                });
            }
            Err(_) => sleep(ACCEPT_PAUSE).await,
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn connection(stream: TcpStream, routes: Router) {
    // Without it small answers are only slower.
    let _ = stream.set_nodelay(true);
    let routes = TowerToHyperService::new(routes);
    let service =
        hyper::service::service_fn(move |request: Request<Incoming>| routes.call(request.map(Body::new)));
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    // What goes wrong is the other side's: a torn connection, a malformed head, which it has been told.
    drop(served);
}
