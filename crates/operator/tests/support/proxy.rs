//! An API server that fails now and then: what is asked of it is passed on to one that does not.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bellwether_testkit::Random;
use futures::StreamExt;
use kube::Client;
use serde_json::json;
use tokio::time::sleep;

/// The most bytes of a request.
const REQUEST_BYTES_MAX: usize = 1 << 22;

/// The longest time that a watch lasts.
const WATCH_MOST_MS: u64 = 3000;

/// How often something is done to requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// It is passed on and answered.
    None,
    /// Another has changed the object.
    Conflict,
    /// Too many requests.
    Busy,
    /// The server is not there.
    Down,
    /// It is done, and the answer is lost.
    AnswerLost,
    /// A watch begins too long ago.
    Expired,
    /// A watch breaks.
    Broken,
}

/// A server that fails.
pub(crate) struct Proxy {
    shared: Arc<Shared>,
    url: String,
    task: tokio::task::JoinHandle<()>,
}

struct Shared {
    client: Client,
    random: Mutex<Random>,
    counts: Mutex<BTreeMap<Fault, u64>>,
    fails: AtomicBool,
}

impl Proxy {
    /// Passes on to the server of this client.
    pub(crate) async fn start(client: Client, seed: u64) -> Proxy {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let random = Mutex::new(Random::new(seed));
        let shared =
            Arc::new(Shared { client, random, counts: Mutex::default(), fails: AtomicBool::new(false) });
        let routes = Router::new().fallback(pass).with_state(Arc::clone(&shared));
        let task = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Proxy { shared, url, task }
    }

    /// A kubeconfig that leads here.
    pub(crate) fn kubeconfig(&self, folder: &Path) -> PathBuf {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "proxy",
            "clusters": [{"name": "proxy", "cluster": {"server": self.url}}],
            "users": [{"name": "proxy", "user": {}}],
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "proxy"}}],
        });
        let file = folder.join("proxy.json");
        std::fs::write(&file, config.to_string()).unwrap();
        file
    }

    /// It fails from now on; before, only watches break.
    pub(crate) fn fail(&self) {
        self.shared.fails.store(true, Ordering::Relaxed);
    }

    /// How often each fault happened so far.
    pub(crate) fn counts(&self) -> BTreeMap<Fault, u64> {
        self.shared.counts.lock().unwrap().clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    /// What happens to a request.
    fn fault(&self, method: &Method, query: &str, path: &str) -> (Fault, u64) {
        let mut random = self.random.lock().unwrap();
        let (dice, more) = (random.below(100), random.below(WATCH_MOST_MS));
        drop(random);
        // An operator that cannot renew its Lease has to give way, which is another test's.
        let is_of_lease = path.contains("/leases/");
        let (is_watch, fails) = (query.contains("watch=true"), self.fails.load(Ordering::Relaxed));
        let fault = match (is_watch, method == Method::GET) {
            _ if is_of_lease || !(is_watch || fails) => Fault::None,
            (true, _) if fails && dice < 20 => Fault::Expired,
            (true, _) => Fault::Broken,
            (false, true) if dice < 10 => Fault::Busy,
            (false, true) if dice < 20 => Fault::Down,
            (false, true) => Fault::None,
            (false, false) if dice < 10 => Fault::Conflict,
            (false, false) if dice < 20 => Fault::Busy,
            (false, false) if dice < 30 => Fault::Down,
            (false, false) if dice < 40 => Fault::AnswerLost,
            (false, false) => Fault::None,
        };
        *self.counts.lock().unwrap().entry(fault).or_default() += 1;
        (fault, more)
    }
}

/// A refusal as an API server words it.
fn refusal(code: StatusCode, reason: &str) -> Response {
    let status = json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": reason,
        "message": "the server fails for the test's sake", "code": code.as_u16()});
    (code, [(header::CONTENT_TYPE, "application/json")], status.to_string()).into_response()
}

async fn pass(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let query = parts.uri.query().unwrap_or_default().to_owned();
    let (fault, more) = shared.fault(&parts.method, &query, parts.uri.path());
    match fault {
        Fault::Conflict => return refusal(StatusCode::CONFLICT, "Conflict"),
        Fault::Busy => return refusal(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests"),
        Fault::Down => return refusal(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable"),
        Fault::Expired => return refusal(StatusCode::GONE, "Expired"),
        Fault::None | Fault::AnswerLost | Fault::Broken => {}
    }
    let Ok(bytes) = to_bytes(body, REQUEST_BYTES_MAX).await else {
        return refusal(StatusCode::BAD_REQUEST, "BadRequest");
    };
    parts.headers.remove(header::HOST);
    let request = axum::http::Request::from_parts(parts, kube::client::Body::from(bytes.to_vec()));
    let Ok(answer) = shared.client.send(request).await else {
        return refusal(StatusCode::BAD_GATEWAY, "InternalError");
    };
    let answer = answer.map(Body::new);
    match fault {
        Fault::AnswerLost => refusal(StatusCode::GATEWAY_TIMEOUT, "Timeout"),
        Fault::Broken => answer.map(|body| {
            let end = Box::pin(sleep(Duration::from_millis(more)));
            Body::from_stream(body.into_data_stream().take_until(end))
        }),
        _ => answer,
    }
}
