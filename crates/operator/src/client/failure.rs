//! Error answers, in the daemon's form: what is wrong, where, and what to do.

use std::error::Error;
use std::fmt::Display;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bellwether_core::InputError;
use bellwether_serve::snapshot::ErrorBody;

use crate::crd::FieldError;

/// Most bytes of a sentence: servers quote what they were sent.
const SENTENCE_BYTES: usize = 2000;

/// An error answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) status: StatusCode,
    pub(super) error: InputError,
}

impl Failure {
    /// With `status`, at `place`, without a hint.
    pub(super) fn new(status: StatusCode, place: impl Into<String>, what: impl Display) -> Failure {
        Failure { status, error: InputError::new(place, what) }
    }

    /// What was sent cannot be done.
    pub(super) fn invalid(place: impl Into<String>, what: impl Display) -> Failure {
        Failure::new(StatusCode::UNPROCESSABLE_ENTITY, place, what)
    }

    /// The same with advice.
    pub(super) fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.error.hint = hint.into();
        self
    }

    /// All that is wrong with an object: the first thing in its place, and the others after it.
    pub(super) fn of_fields(errors: Vec<FieldError>) -> Failure {
        let mut errors = errors.into_iter();
        let Some(FieldError { field, mut what, hint }) = errors.next() else {
            return Failure::invalid("object", "something is wrong with it");
        };
        for error in errors {
            what.push_str(&format!("; {error}"));
        }
        // The author has the job file before them, not the object.
        let place = field.strip_prefix("spec.job.").map_or(field.clone(), |key| format!("job.{key}"));
        Failure::invalid(place, what).hint(hint)
    }
}

impl From<InputError> for Failure {
    fn from(error: InputError) -> Failure {
        Failure { status: StatusCode::UNPROCESSABLE_ENTITY, error }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let InputError { what, place, hint, .. } = self.error;
        let body = ErrorBody { error: cut(what), place: cut(place), hint: cut(hint) };
        let body = serde_json::to_string(&body).expect("an error is plain data");
        (self.status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
    }
}

fn cut(mut text: String) -> String {
    if text.len() > SENTENCE_BYTES {
        text.truncate(text.floor_char_boundary(SENTENCE_BYTES));
        text.push('…');
    }
    text
}

/// Something that was asked of Kubernetes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    /// As roles call it: `get`, `patch`.
    pub(super) verb: &'a str,
    /// As roles call it: `elasticjobs`, `pods/log`.
    pub(super) resource: &'a str,
    /// Name of the object, where one is meant.
    pub(super) name: Option<&'a str>,
    /// The namespace.
    pub(super) namespace: &'a str,
    /// Where Kubernetes is.
    pub(super) url: &'a str,
    /// Whether it answered before, so that it may be worth asking again.
    pub(super) is_known: bool,
}

impl Asked<'_> {
    /// Why it was not done, and what to do.
    pub(super) fn failed(self, error: &kube::Error) -> Failure {
        let Asked { verb, resource, namespace, .. } = self;
        let kube::Error::Api(status) = error else { return self.unreachable(error) };
        let said = status.message.as_str();
        let place = self.name.unwrap_or(namespace);
        match status.code {
            401 => Failure::new(StatusCode::FORBIDDEN, self.url, "Kubernetes does not know you").hint(
                "sign in again, or let KUBECONFIG name another file: `kubectl auth whoami` asks the same",
            ),
            403 => {
                let what = format!("you may not {verb} {resource} in the namespace `{namespace}`");
                let hint = format!(
                    "`kubectl auth can-i --list -n {namespace}` says what you may; the administrators give roles"
                );
                Failure::new(StatusCode::FORBIDDEN, place, what).hint(hint)
            }
            404 => self.missing(said),
            409 => Failure::new(StatusCode::CONFLICT, place, format!("it was changed meanwhile: {said}"))
                .hint("try again"),
            400 | 422 => Failure::invalid(place, format!("Kubernetes refuses it: {said}")),
            code => {
                let status = if self.is_known && matches!(code, 429 | 503 | 504) { 503 } else { 502 };
                let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
                Failure::new(status, self.url, format!("Kubernetes cannot {verb} {resource} now: {said}"))
                    .hint("try again later")
            }
        }
    }

    fn missing(self, said: &str) -> Failure {
        let Asked { name, namespace, .. } = self;
        if said.starts_with("namespaces ") {
            let what = format!("the cluster has none of the name `{namespace}`");
            return Failure::new(StatusCode::NOT_FOUND, "--namespace", what)
                .hint("`kubectl get namespaces` lists them");
        }
        match name.filter(|name| said.contains(&format!("\"{name}\""))) {
            Some(name) => no_job(name, namespace),
            // 404 would be the answer about a job.
            None => Failure::new(StatusCode::NOT_IMPLEMENTED, self.url, "the cluster knows no elastic jobs")
                .hint("`bellwether-operator crd | kubectl create -f -` makes them known"),
        }
    }

    fn unreachable(self, error: &kube::Error) -> Failure {
        let status = if self.is_known { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::BAD_GATEWAY };
        let what = format!("Kubernetes does not answer: {}", cause(error));
        Failure::new(status, self.url, what).hint(
            "`kubectl cluster-info` asks the same server; KUBECONFIG or another context may name another one",
        )
    }

    /// It did not answer in time.
    pub(super) fn late(self, seconds: u64) -> Failure {
        let status = if self.is_known { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::BAD_GATEWAY };
        Failure::new(status, self.url, format!("Kubernetes did not answer within {seconds} s"))
            .hint("try again later; `kubectl cluster-info` asks the same server")
    }
}

/// A job that is not there.
pub(super) fn no_job(name: &str, namespace: &str) -> Failure {
    let what = format!("the namespace `{namespace}` has no such job");
    Failure::new(StatusCode::NOT_FOUND, cut(name.to_owned()), what)
        .hint("`bellwether jobs --kubernetes` lists its jobs; --namespace names another one")
}

/// What is at the root of an error, without the words of the libraries around it.
pub(super) fn cause(error: &dyn Error) -> String {
    let mut root = error;
    while let Some(source) = root.source() {
        root = source;
    }
    root.to_string()
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn failed(code: u16, message: &str, name: Option<&str>) -> Failure {
        let status = Status { code, message: message.into(), ..Status::default() };
        let asked = Asked {
            verb: "patch",
            resource: "elasticjobs",
            name,
            namespace: "research",
            url: "https://k8s:6443",
            is_known: true,
        };
        asked.failed(&kube::Error::Api(Box::new(status)))
    }

    #[test]
    fn errors_of_kubernetes_become_sentences() {
        let refused = failed(403, "forbidden", Some("digits"));
        assert_eq!(refused.status, StatusCode::FORBIDDEN);
        assert!(refused.error.what.contains("may not patch elasticjobs in the namespace `research`"));
        let missing = failed(404, "elasticjobs.train.bellwether.dev \"digits\" not found", Some("digits"));
        assert_eq!((missing.status, missing.error.place.as_str()), (StatusCode::NOT_FOUND, "digits"));
        let unknown = failed(404, "404 page not found", None);
        assert_eq!(unknown.status, StatusCode::NOT_IMPLEMENTED);
        assert!(unknown.error.hint.contains("bellwether-operator crd"));
        let namespace = failed(404, "namespaces \"research\" not found", None);
        assert_eq!(namespace.error.place, "--namespace");
        assert_eq!(failed(409, "the object has been modified", None).status, StatusCode::CONFLICT);
        assert_eq!(failed(503, "busy", None).status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(failed(500, "broken", None).status, StatusCode::BAD_GATEWAY);
        assert_eq!(failed(401, "Unauthorized", None).status, StatusCode::FORBIDDEN);
    }

    #[test]
    fn fields_of_the_job_file_have_their_own_names() {
        let first = FieldError::new("spec.job.data.path", "it is relative").hint("write /data/train.csv");
        let failure = Failure::of_fields(vec![first, FieldError::new("spec.weight", "0 is too small")]);
        assert_eq!(failure.error.place, "job.data.path");
        assert_eq!(failure.error.what, "it is relative; spec.weight: 0 is too small");
        assert_eq!(failure.error.hint, "write /data/train.csv");
    }

    #[test]
    fn long_sentences_are_cut_between_letters() {
        let text = cut("é".repeat(SENTENCE_BYTES));
        assert!(text.len() <= SENTENCE_BYTES + "…".len() && text.ends_with('…'));
    }
}
