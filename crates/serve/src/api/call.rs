//! A request as handlers see it.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::Api;
use super::access::Caller;
use super::failure::{Failure, echo};
use crate::request::{Reply, Request};
use crate::snapshot::{JobState, Snapshot};

pub(super) mod query;

/// How long the engine may think about a wish.
const ENGINE_PATIENCE: Duration = Duration::from_secs(30);

/// A request, its token and parameters checked.
pub(super) struct Call {
    pub(super) api: Arc<Api>,
    pub(super) caller: Caller,
    /// The job's name in the path, not yet known to be one; empty on paths without.
    pub(super) name: String,
    pub(super) query: query::Query,
    pub(super) headers: HeaderMap,
    /// Empty where the route reads none.
    pub(super) body: Bytes,
}

impl Call {
    /// The job that the path names, in this snapshot.
    pub(super) fn job<'s>(&self, snapshot: &'s Snapshot) -> Result<&'s Arc<JobState>, Failure> {
        let seen = snapshot.jobs.get(&self.name).filter(|job| self.caller.sees(job));
        seen.ok_or_else(|| no_job(snapshot, &self.name, &self.caller))
    }

    /// Asks the engine.
    pub(super) async fn ask(&self, request: Request) -> Result<Reply, Failure> {
        match tokio::time::timeout(ENGINE_PATIENCE, self.api.engine.ask(request)).await {
            Ok(answer) => Ok(answer?),
            Err(_) => {
                let what = format!("the engine did not answer within {} s", ENGINE_PATIENCE.as_secs());
                Err(Failure::unavailable(what).hint("look whether it was done before you ask again"))
            }
        }
    }

    /// Asks the engine for something that is answered with a job.
    pub(super) async fn ask_for_job(&self, request: Request) -> Result<(Arc<JobState>, bool), Failure> {
        match self.ask(request).await? {
            Reply::Job { job, created } => Ok((job, created)),
            _ => Err(Failure::unavailable("the engine answered another question")),
        }
    }

    /// Reads files on a thread that may wait for them, with few others beside it.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Failure> {
        // A client that leaves takes no permit from a thread that reads on.
        let permit = self.api.readers.clone().acquire_owned().await.expect("the semaphore is never closed");
        blocking(move || {
            let _permit = permit;
            read()
        })
        .await
    }
}

/// Does what may take long or wait, on a thread of its own.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let failed = |error| Failure::unavailable(format!("the daemon failed at it: {error}"));
    tokio::task::spawn_blocking(work).await.map_err(failed)
}

/// There is no job of this name that the caller sees.
fn no_job(snapshot: &Snapshot, name: &str, caller: &Caller) -> Failure {
    let what = format!("there is no job `{}`", echo(name));
    let failure = Failure::new(StatusCode::NOT_FOUND, "path, `{name}`", what);
    let is_seen = |name: &&String| snapshot.jobs.get(*name).is_some_and(|job| caller.sees(job));
    let names: Vec<String> = snapshot.order.iter().filter(is_seen).cloned().collect();
    match bellwether_core::parse::nearest(name, &names) {
        Some(near) => failure.hint(format!("did you mean `{near}`? GET /v1/jobs lists all")),
        None => failure.hint("GET /v1/jobs lists all"),
    }
}

/// An answer in JSON.
pub(super) fn json(status: StatusCode, body: &impl Serialize) -> Result<Response, Failure> {
    let written = serde_json::to_vec(body);
    let body =
        written.map_err(|error| Failure::unavailable(format!("the answer cannot be written: {error}")))?;
    let json = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    Ok((status, json, body).into_response())
}
