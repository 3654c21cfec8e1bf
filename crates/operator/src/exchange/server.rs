//! The operator's side: routes, and who may ask what.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Method, Request as HttpRequest, StatusCode, header};
use axum::response::Response;
use axum::routing::{get, post};
use bellwether_runtime::channel::Token;
use bellwether_runtime::run_dir::{RunDir, RunFile};
use futures::StreamExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::copy::{self, Taken};
use super::desk::{Desk, News, count, lock};
use super::sign::{self, Key, Signature};
use super::wish::Report;
use super::{CHUNK_BYTES, LONGEST_POLL, is_uid};

/// Bodies that are received at a time, at most: so much memory they take.
const BODIES: usize = 64;

/// How long a pod may take to send a body.
const BODY_PATIENCE: Duration = Duration::from_secs(10);

/// Most bytes of a body.
#[derive(Debug, Clone, Copy)]
enum Size {
    /// There is none.
    Nothing = 0,
    /// That of a report.
    Report = 4 << 10,
    /// A part of a file.
    File = CHUNK_BYTES as isize,
}

/// What the routes must know of a job.
#[derive(Debug, Clone)]
pub struct JobSide {
    /// Its token, see [`token_of`](super::token_of).
    pub token: Token,
    /// Where the copy of its run's folder lies; the folder need not be there.
    pub run: RunDir,
    /// The name of the pod that leads its run; files of any other pod are not taken. Where it is not known, pods are to
    /// ask again.
    pub coordinator: Option<String>,
}

/// Knows the jobs.
pub trait Exchange: Send + Sync {
    /// The job with this uid, if there is one. It should answer from memory: it is asked at every request.
    fn lookup(&self, uid: &str) -> Option<JobSide>;
}

/// What all routes share.
struct Office {
    exchange: Arc<dyn Exchange>,
    desk: Desk,
    bodies: Arc<Semaphore>,
}

/// A request of a pod that has the job's token.
struct Asked {
    uid: String,
    side: JobSide,
    key: Key,
    signature: Signature,
    query: String,
    pod: String,
    body: Vec<u8>,
    /// Held until the body, or the answer, is of no more use.
    _place: Option<OwnedSemaphorePermit>,
}

/// An answer that is not signed: the pod could not be recognised, or the request could not be read.
type Refusal = (StatusCode, &'static str);

/// Nothing is answered any more.
const BUSY: Refusal = (StatusCode::SERVICE_UNAVAILABLE, "the operator ends");

/// The routes under `/v1/jobs`.
pub fn routes(exchange: Arc<dyn Exchange>, desk: Desk) -> Router {
    let office = Arc::new(Office { exchange, desk, bodies: Arc::new(Semaphore::new(BODIES)) });
    Router::new()
        .route("/v1/jobs/{uid}/files/{file}", get(files).post(files))
        .route("/v1/jobs/{uid}/wish", get(wish))
        .route("/v1/jobs/{uid}/report", post(report))
        .with_state(office)
}

type Segments = Path<(String, String)>;

async fn files(
    State(office): State<Arc<Office>>,
    Path((uid, word)): Segments,
    request: HttpRequest<Body>,
) -> Response {
    let sends = request.method() == Method::POST;
    let size = if sends { Size::File } else { Size::Nothing };
    let Some(file) = RunFile::named(&word) else {
        return office.refused((StatusCode::NOT_FOUND, "no such file"));
    };
    match office.asked(uid, request, size).await {
        Ok(asked) if sends => office.take(asked, file).await,
        Ok(asked) => office.give(asked, file).await,
        Err(refusal) => office.refused(refusal),
    }
}

async fn wish(
    State(office): State<Arc<Office>>,
    Path(uid): Path<String>,
    request: HttpRequest<Body>,
) -> Response {
    let asked = match office.asked(uid, request, Size::Nothing).await {
        Ok(asked) => asked,
        Err(refusal) => return office.refused(refusal),
    };
    let Some(known) = asked.number("known") else { return office.senseless(&asked, "no `known`") };
    count(&office.desk.tally().polls);
    match office.desk.news(&asked.uid, known, LONGEST_POLL).await {
        Some(wish) => asked.answer(StatusCode::OK, serde_json::to_vec(&wish).unwrap_or_default()),
        None => asked.answer(StatusCode::NO_CONTENT, Vec::new()),
    }
}

async fn report(
    State(office): State<Arc<Office>>,
    Path(uid): Path<String>,
    request: HttpRequest<Body>,
) -> Response {
    let asked = match office.asked(uid, request, Size::Report).await {
        Ok(asked) => asked,
        Err(refusal) => return office.refused(refusal),
    };
    let report = serde_json::from_slice::<Report>(&asked.body).ok().filter(Report::makes_sense);
    let Some(report) = report else { return office.senseless(&asked, "this is not a report") };
    count(&office.desk.tally().reports);
    office.desk.tell(&asked.uid, News::Reported(report));
    asked.answer(StatusCode::OK, b"{}".to_vec())
}

impl Office {
    /// Receives a request, and finds out whether a pod of the job sent it.
    async fn asked(&self, uid: String, request: HttpRequest<Body>, size: Size) -> Result<Asked, Refusal> {
        const UNKNOWN: Refusal = (StatusCode::NOT_FOUND, "no such job");
        const UNSIGNED: Refusal = (StatusCode::FORBIDDEN, "the signature is not that of the job's token");
        let side =
            Some(&uid).filter(|uid| is_uid(uid)).and_then(|uid| self.exchange.lookup(uid)).ok_or(UNKNOWN)?;
        let (head, body) = request.into_parts();
        let text = |name| head.headers.get(name).and_then(|value| value.to_str().ok());
        let (said, pod) = (text(sign::SIGNATURE).ok_or(UNSIGNED)?, text(sign::POD).ok_or(UNSIGNED)?);
        let place = match size {
            Size::File => Some(Arc::clone(&self.bodies).acquire_owned().await.map_err(|_| BUSY)?),
            Size::Report | Size::Nothing => None,
        };
        let body = receive(&head.headers, body, size as usize).await?;
        let path = head.uri.path_and_query().map_or("", |path| path.as_str());
        let key = Key::of(&side.token);
        let request = sign::Request { method: head.method.as_str(), path, pod, body: &body };
        let signature = key.accept(&request, said).ok_or(UNSIGNED)?;
        let (query, pod) = (head.uri.query().unwrap_or_default().to_owned(), pod.to_owned());
        Ok(Asked { uid, side, key, signature, query, pod, body, _place: place })
    }

    /// Takes bytes of a file into the copy.
    async fn take(self: Arc<Self>, asked: Asked, file: RunFile) -> Response {
        let Some(offset) = asked.number("offset") else { return self.senseless(&asked, "no `offset`") };
        let body = &asked.body;
        if file.has_lines() && body.last().is_some_and(|last| *last != b'\n') {
            return self.senseless(&asked, "these are not whole lines");
        }
        self.at_copy(asked, move |office, asked| {
            let taken = copy::add(&asked.side.run, file, offset, &asked.body)?;
            Ok(office.taken(asked, file, taken))
        })
        .await
    }

    fn taken(&self, asked: &Asked, file: RunFile, taken: Taken) -> Response {
        let tally = self.desk.tally();
        let (status, have) = match taken {
            Taken::Here(have, new) => {
                count(&tally.copied);
                if new > 0 {
                    tally.copied_bytes.fetch_add(new as u64, Ordering::Relaxed);
                    self.desk.tell(&asked.uid, News::Grew(file));
                }
                (StatusCode::OK, have)
            }
            Taken::Elsewhere(have) => {
                count(&tally.misplaced);
                (StatusCode::CONFLICT, have)
            }
            Taken::Full => {
                count(&tally.failed);
                return asked.answer(StatusCode::INSUFFICIENT_STORAGE, Vec::new());
            }
        };
        asked.answer(status, serde_json::to_vec(&have).unwrap_or_default())
    }

    /// Gives bytes of the copy.
    async fn give(self: Arc<Self>, asked: Asked, file: RunFile) -> Response {
        let Some(offset) = asked.number("offset") else { return self.senseless(&asked, "no `offset`") };
        count(&self.desk.tally().restored);
        self.at_copy(asked, move |_, asked| {
            Ok(asked.answer(StatusCode::OK, copy::read(&asked.side.run, file, offset)?))
        })
        .await
    }

    /// Lets the pod that leads the run do something with the copy, which no other does meanwhile.
    async fn at_copy(
        self: Arc<Self>,
        asked: Asked,
        work: impl FnOnce(&Office, &Asked) -> std::io::Result<Response> + Send + 'static,
    ) -> Response {
        let office = Arc::clone(&self);
        let worked = tokio::task::spawn_blocking(move || {
            let copying = office.desk.copying(&asked.uid);
            let _copying = lock(&copying);
            // Another pod may lead the run since the request came: then nothing changes any more that it was given.
            let leader = office.exchange.lookup(&asked.uid).map(|side| side.coordinator);
            if leader == Some(None) {
                // An operator that has just begun does not know yet.
                return asked.answer(BUSY.0, Vec::new());
            }
            if leader.flatten().as_deref() != Some(&asked.pod) {
                count(&office.desk.tally().replaced);
                return asked.answer(StatusCode::GONE, Vec::new());
            }
            work(&office, &asked).unwrap_or_else(|_| {
                // It is tried again; what the disk says is in the operator's counts, and none of the pod's business.
                count(&office.desk.tally().failed);
                asked.answer(StatusCode::INTERNAL_SERVER_ERROR, Vec::new())
            })
        });
        worked.await.unwrap_or_else(|_| self.refused(BUSY))
    }

    /// A request of a pod of the job that makes no sense.
    fn senseless(&self, asked: &Asked, why: &'static str) -> Response {
        count(&self.desk.tally().malformed);
        asked.answer(StatusCode::BAD_REQUEST, why.as_bytes().to_vec())
    }

    fn refused(&self, (status, why): Refusal) -> Response {
        let tally = self.desk.tally();
        match status {
            StatusCode::NOT_FOUND => count(&tally.unknown),
            StatusCode::FORBIDDEN => count(&tally.unsigned),
            StatusCode::SERVICE_UNAVAILABLE => count(&tally.failed),
            _ => count(&tally.malformed),
        }
        plain(status, None, why.as_bytes().to_vec())
    }
}

impl Asked {
    /// A number of the query.
    fn number(&self, name: &str) -> Option<u64> {
        let mut pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(key, _)| *key == name)?.1.parse().ok()
    }

    /// A signed answer.
    fn answer(&self, status: StatusCode, body: Vec<u8>) -> Response {
        plain(status, Some(self.key.answer(status.as_u16(), &self.signature, &body)), body)
    }
}

fn plain(status: StatusCode, signature: Option<Signature>, body: Vec<u8>) -> Response {
    let mut response = Response::builder().status(status).header(header::CACHE_CONTROL, "no-store");
    if let Some(signature) = signature {
        response = response.header(sign::SIGNATURE, signature.to_string());
    }
    response.body(Body::from(body)).expect("its headers are plain")
}

/// Receives a body of at most this many bytes, however long it says it is.
async fn receive(headers: &HeaderMap, body: Body, most: usize) -> Result<Vec<u8>, Refusal> {
    const TOO_LONG: Refusal = (StatusCode::PAYLOAD_TOO_LARGE, "the body is too long");
    let claim =
        headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if claim.is_some_and(|bytes| bytes > most as u64) {
        return Err(TOO_LONG);
    }
    let mut bytes = Vec::new();
    let mut chunks = body.into_data_stream();
    let whole = async {
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|_| (StatusCode::BAD_REQUEST, "the body is torn"))?;
            if bytes.len() + chunk.len() > most {
                return Err(TOO_LONG);
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(())
    };
    let late = (StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time");
    timeout(BODY_PATIENCE, whole).await.map_err(|_| late)??;
    Ok(bytes)
}
