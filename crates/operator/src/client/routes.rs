//! The paths of the daemon's API that its client asks for, and what is said of those that make no sense here.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bellwether_core::parse::advice;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::cluster::Cluster;
use super::failure::Failure;
use super::logs;

type Answer = Result<Response, Failure>;
type Shared = State<Arc<Cluster>>;

/// All paths.
pub(super) fn router(cluster: Arc<Cluster>) -> Router {
    Router::new()
        .route("/v1/jobs", get(list).post(submit))
        .route("/v1/jobs/{name}", get(job).patch(limit).delete(remove))
        .route("/v1/jobs/{name}/suspend", post(suspend))
        .route("/v1/jobs/{name}/resume", post(resume))
        .route("/v1/jobs/{name}/cancel", post(cancel))
        .route("/v1/jobs/{name}/logs", get(logs::logs))
        .route("/v1/manifests", post(manifest))
        .route("/v1/decisions", get(decisions))
        .fallback(elsewhere)
        .with_state(cluster)
}

fn answer(status: StatusCode, body: &impl Serialize) -> Answer {
    let body = serde_json::to_vec(body).map_err(|error| {
        let what = format!("the answer cannot be written: {error}");
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "bellwether-operator client", what)
    })?;
    Ok((status, [(header::CONTENT_TYPE, "application/json")], body).into_response())
}

/// Reads a body; an error names the key.
fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let (place, message) = (error.path().to_string(), error.inner().to_string());
        let place = if place == "." { "body".to_owned() } else { place };
        match advice(&message) {
            Some((what, hint)) => Failure::invalid(place, what).hint(hint),
            None => Failure::invalid(place, message),
        }
    })
}

/// All at once: what a daemon has in pages, clients take as one.
async fn list(State(cluster): Shared) -> Answer {
    let jobs = cluster.jobs().await?;
    answer(StatusCode::OK, &json!({ "jobs": jobs, "total": jobs.len(), "next": null }))
}

async fn job(State(cluster): Shared, Path(name): Path<String>) -> Answer {
    answer(StatusCode::OK, &cluster.job(&name).await?)
}

async fn submit(State(cluster): Shared, body: Bytes) -> Answer {
    let (job, is_new) = cluster.submit(read(&body)?).await?;
    answer(if is_new { StatusCode::CREATED } else { StatusCode::OK }, &job)
}

async fn manifest(State(cluster): Shared, body: Bytes) -> Answer {
    answer(StatusCode::OK, &cluster.manifest(read(&body)?)?)
}

async fn limit(State(cluster): Shared, Path(name): Path<String>, body: Bytes) -> Answer {
    answer(StatusCode::OK, &cluster.limit(&name, &read(&body)?).await?)
}

async fn remove(State(cluster): Shared, Path(name): Path<String>) -> Answer {
    answer(StatusCode::OK, &cluster.remove(&name).await?)
}

async fn suspend(State(cluster): Shared, Path(name): Path<String>) -> Answer {
    answer(StatusCode::OK, &cluster.suspend(&name, true).await?)
}

async fn resume(State(cluster): Shared, Path(name): Path<String>) -> Answer {
    answer(StatusCode::OK, &cluster.suspend(&name, false).await?)
}

/// A daemon keeps what it cancelled; an object has only its own end.
async fn cancel(State(cluster): Shared, Path(name): Path<String>) -> Answer {
    let job = cluster.job(&name).await?;
    let failure =
        Failure::new(StatusCode::CONFLICT, &job.name, "an elastic job ends by itself or is deleted");
    Err(failure.hint(format!(
        "`bellwether stop {0} --kubernetes` lets it wait, `bellwether rm {0} --kubernetes` deletes it",
        job.name
    )))
}

/// What was decided before the last time, objects do not keep.
async fn decisions() -> Answer {
    answer(StatusCode::OK, &json!({ "decisions": [] }))
}

/// What a daemon answers and the objects of a namespace do not.
async fn elsewhere(uri: Uri) -> Failure {
    let known = [
        ("/v1/cluster", "slots are those of the cluster's nodes", "`kubectl get nodes` lists them"),
        (
            "/v1/policy",
            "the operator's policy decides for all namespaces",
            "`bellwether-operator run --policy NAME` chooses it",
        ),
        (
            "/v1/queues",
            "queues are `Queue` objects",
            "`kubectl get queues.train.bellwether.dev` lists them, `kubectl edit queues.train.bellwether.dev NAME` \
             changes one",
        ),
        (
            "/v1/users",
            "users are those of Kubernetes",
            "roles say who may do what with `elasticjobs`: `kubectl create rolebinding --help`",
        ),
        (
            "/v1/codes",
            "the operator serves no dashboard",
            "`bellwether jobs --kubernetes --watch` shows all jobs",
        ),
    ];
    let path = uri.path();
    let found = known.iter().find(|(prefix, ..)| path.starts_with(prefix));
    let (what, hint) = match found {
        Some((_, what, hint)) => (*what, *hint),
        None => (
            "that is not known of jobs on Kubernetes",
            "compare `bellwether --version` and that of the operator",
        ),
    };
    Failure::new(StatusCode::NOT_IMPLEMENTED, "--kubernetes", what).hint(hint)
}

#[cfg(test)]
mod tests {
    use bellwether_serve::api::body::Submit;

    use super::*;

    #[test]
    fn bodies_are_read_with_the_place_of_what_is_wrong() {
        assert_eq!(read::<Submit>(b"no JSON").unwrap_err().status, StatusCode::UNPROCESSABLE_ENTITY);
        let wrong = read::<Submit>(br#"{"workers": "many"}"#).unwrap_err();
        assert_eq!(wrong.error.place, "workers");
        assert!(read::<Submit>(b"\xff\x00").is_err());
        assert!(read::<Submit>(b"{}").is_ok());
    }
}
