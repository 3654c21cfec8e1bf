//! Error answers: a status, and a body that says what to do.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bellwether_core::InputError;

use crate::request::{Refusal, RefusalKind};
use crate::snapshot::ErrorBody;

/// Most bytes of a client's words that are said back to it.
const ECHO_BYTES: usize = 200;

/// An error answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) status: StatusCode,
    pub(super) error: InputError,
}

impl Failure {
    /// With `status`, at `place`, without a hint.
    pub(super) fn new(status: StatusCode, place: impl Into<String>, what: impl std::fmt::Display) -> Failure {
        Failure { status, error: InputError::new(place, what) }
    }

    /// What was sent cannot be done.
    pub(super) fn invalid(place: impl Into<String>, what: impl std::fmt::Display) -> Failure {
        Failure::new(StatusCode::UNPROCESSABLE_ENTITY, place, what)
    }

    /// The daemon cannot do its work now.
    pub(super) fn unavailable(what: impl std::fmt::Display) -> Failure {
        Failure::new(StatusCode::SERVICE_UNAVAILABLE, "serve", what).hint("try again later")
    }

    /// The same with advice.
    pub(super) fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.error.hint = hint.into();
        self
    }
}

impl From<InputError> for Failure {
    fn from(error: InputError) -> Failure {
        Failure { status: StatusCode::UNPROCESSABLE_ENTITY, error }
    }
}

impl From<Refusal> for Failure {
    fn from(Refusal { kind, error }: Refusal) -> Failure {
        let status = match kind {
            RefusalKind::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
            RefusalKind::Unknown => StatusCode::NOT_FOUND,
            RefusalKind::Conflict => StatusCode::CONFLICT,
            RefusalKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        };
        Failure { status, error }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let InputError { what, place, hint, .. } = self.error;
        let body = ErrorBody { error: cut(what), place: cut(place), hint: cut(hint) };
        let body = serde_json::to_string(&body).expect("an error is plain data");
        let json = [(header::CONTENT_TYPE, "application/json")];
        let mut response = (self.status, json, body).into_response();
        let headers = response.headers_mut();
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"bellwether\""));
        }
        // The rest of what is on its way would be read as the next request.
        if matches!(self.status, StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT) {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// As much of a sentence as is worth sending: words of the client in it may be of any length.
fn cut(mut text: String) -> String {
    let limit = 10 * ECHO_BYTES;
    if text.len() > limit {
        text.truncate(text.floor_char_boundary(limit));
        text.push('…');
    }
    text
}

/// A client's word, shortened if it is long.
pub(super) fn echo(word: &str) -> String {
    if word.len() <= ECHO_BYTES {
        return word.to_owned();
    }
    format!("{}…", &word[..word.floor_char_boundary(ECHO_BYTES)])
}
